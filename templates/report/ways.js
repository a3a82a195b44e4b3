// The graph before and after: nodes at the left, kernels at the right, lines between what is one
// work. Rows have one height, and only those in sight are in the page.

const view = document.getElementById("ways-view");
if (view) {
  const LETTER = 8.5; // pixels across, of names; not less than any usual one
  const SPARE = 12; // rows above and below what is in sight
  const SVG = "http://www.w3.org/2000/svg";
  const WORDS = {
    folded: "constant",
    aliased: "alias",
    dropped: "dropped",
    dissolved: "dissolved",
  };
  const drawing = document.getElementById("ways-drawing");
  const sheet = document.getElementById("ways-sheet");
  const holder = document.getElementById("ways-rows");
  const linesSvg = document.getElementById("ways-lines");
  const detail = document.getElementById("ways-detail");
  const searchBox = document.getElementById("ways-search");
  const asRun = document.getElementById("ways-as-run");
  const boxes = [...document.querySelectorAll(".ways-legend input")];
  const model = waysModel();
  const { nodes, kernels, nodeOf, nodesOf, errorOf, signs, kernelName, keyOf, neighbours } = model;
  const orders = {
    run: drawing.dataset.order.split(",").map(Number),
    model: nodes.map((node) => node.number),
  };
  /** Style and letter of each fate, as the legend has them. */
  const fates = new Map(
    boxes.map((box) => {
      const letter = box.parentElement.querySelector(".ways-letter");
      return [box.dataset.fate, { style: letter.className, letter: letter.textContent }];
    }),
  );
  const lineStyle = (fate) => fates.get(fate).style.replace("ways-letter", "ways-line");

  // What is shown: rows of nodes and kernels.
  let tabled = false; // the table in place of the graph
  let rows = []; // the node of each row
  let kernelRows = []; // the kernel of each row, or undefined
  let rowOfNode = new Map();
  let rowOfKernel = new Map();
  const haystacks = new Map();
  function haystack(node) {
    if (!haystacks.has(node)) {
      const parts = [node.operator, node.name, node.fate, ...node.inputs, ...node.outputs];
      haystacks.set(node, [...parts, ...node.kernels.map(kernelName)].join(" ").toLowerCase());
    }
    return haystacks.get(node);
  }

  // Rows have two lines where the page is narrow.
  const rowHeight = () => parseFloat(getComputedStyle(view).getPropertyValue("--row"));
  let ROW = rowHeight(); // pixels
  /** Pixels for a node's name and for a kernel's, beside what else stands there. */
  const roomOf = {
    node: (node) => view.clientWidth * 0.42 - (ROW > 30 ? 15 : 50 + node.operator.length * LETTER),
    kernel: () => view.clientWidth * 0.36 - 52,
  };
  const fitting = (name, pixels) => {
    const short = shortened(name, Math.max(10, Math.floor(pixels / LETTER)));
    return make("bdi", short === name ? {} : { title: name }, short);
  };

  /** A kernel stands level with the middle of its nodes, or below the one before it. */
  function arrange() {
    ROW = rowHeight();
    const words = searchBox.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = new Set(boxes.filter((box) => box.checked).map((box) => box.dataset.fate));
    const all = wanted.size === boxes.length && !words.length;
    rows = orders[asRun.checked ? "run" : "model"]
      .map((number) => nodeOf.get(number))
      .filter(
        (node) => wanted.has(node.fate) && words.every((word) => haystack(node).includes(word)),
      );
    rowOfNode = new Map(rows.map((node, row) => [node.number, row]));
    rowOfKernel = new Map();
    kernelRows = [];
    for (const kernel of kernels) {
      const its = nodesOf[kernel.number]
        .map((node) => rowOfNode.get(node.number))
        .filter((row) => row !== undefined);
      if (!its.length && !(all && !nodesOf[kernel.number].length)) continue;
      const middle = its.length
        ? Math.round(its.reduce((sum, row) => sum + row, 0) / its.length)
        : 0;
      const row = Math.max(middle, kernelRows.length);
      kernelRows[row] = kernel;
      rowOfKernel.set(kernel.number, row);
    }
    const height = Math.max(rows.length, kernelRows.length) * ROW;
    sheet.style.height = `${height}px`;
    linesSvg.style.height = `${height}px`;
    if (tabled) arrangeTable();
    const found = document.getElementById("ways-found");
    found.textContent = all ? "" : `${grouped(rows.length)} of ${grouped(nodes.length)} nodes`;
    render();
  }

  /** The table has the same rows in the same order; what is left out is printed all the same. */
  function arrangeTable() {
    const body = document.getElementById("ways-table").querySelector("tbody");
    const rest = nodes.filter((node) => !rowOfNode.has(node.number));
    for (const node of [...rows, ...rest]) {
      const row = document.getElementById(`node-${node.number}`);
      row.classList.toggle("ways-left-out", !rowOfNode.has(node.number));
      body.append(row);
    }
  }

  // The selection: what the pointer is on, else what was held.
  let hovered = null; // {node} or {kernel}
  let held = null;
  const elements = new Map(); // of the rows in the page: "node-3" -> element

  /** Marks what belongs to the selection, among the rows in the page. */
  function paint() {
    const now = hovered ?? held;
    const { lit, near } = now ? neighbours(now) : { lit: new Set(), near: new Set() };
    for (const [key, element] of elements) {
      element.classList.toggle("ways-lit", lit.has(key));
      element.classList.toggle("ways-near", near.has(key) && !lit.has(key));
      element.classList.toggle("ways-now", Boolean(now) && key === keyOf(now));
    }
    for (const line of linesSvg.querySelectorAll("path")) {
      const { node, kernel } = line.dataset;
      const on = now && (now.node ? keyOf(now) === node : keyOf(now) === kernel);
      line.classList.toggle("ways-lit", Boolean(on));
    }
    const current = now && elements.get(keyOf(now));
    if (current) view.setAttribute("aria-activedescendant", current.id);
    else view.removeAttribute("aria-activedescendant");
  }

  function nodeRow(node, row) {
    const { style, letter } = fates.get(node.fate);
    const element = make(
      "div",
      {
        class: "ways-row ways-node",
        id: `way-node-${node.number}`,
        "data-key": `node-${node.number}`,
      },
      make("span", { class: style }, letter),
      make("span", {}, node.operator),
      fitting(node.name || node.outputs[0] || "", roomOf.node(node)),
    );
    element.style.top = `${row * ROW}px`;
    return element;
  }

  function kernelRow(kernel, row) {
    const element = make(
      "div",
      {
        class: "ways-row ways-made",
        id: `way-kernel-${kernel.number}`,
        "data-key": `kernel-${kernel.number}`,
      },
      make("span", {}, String(kernel.number)),
      fitting(kernelName(kernel.number), roomOf.kernel()),
    );
    const error = errorOf.get(kernel.number);
    if (error)
      element.append(
        make(
          "span",
          { class: `ways-error ways-error-${error.level}`, title: error.text },
          signs[error.level],
        ),
      );
    element.style.top = `${row * ROW}px`;
    return element;
  }

  const middle = (row) => row * ROW + ROW / 2;

  function path(d, fate, node, kernel) {
    const element = document.createElementNS(SVG, "path");
    element.setAttribute("d", d);
    element.setAttribute("class", lineStyle(fate));
    element.dataset.node = `node-${node}`;
    if (kernel !== undefined) element.dataset.kernel = `kernel-${kernel}`;
    return element;
  }

  function line(node, kernel, width) {
    const from = middle(rowOfNode.get(node.number));
    const to = middle(rowOfKernel.get(kernel));
    const bend = width / 2;
    return path(
      `M0 ${from}C${bend} ${from} ${bend} ${to} ${width} ${to}`,
      node.fate,
      node.number,
      kernel,
    );
  }

  /** What a node without a kernel became, in a word. */
  function end(node, width) {
    const y = middle(rowOfNode.get(node.number));
    const parts = [path(`M0 ${y}H${width * 0.2}`, node.fate, node.number)];
    if (width > 110) {
      const text = document.createElementNS(SVG, "text");
      text.setAttribute("class", "ways-end");
      text.setAttribute("x", String(width * 0.2 + 5));
      text.setAttribute("y", String(y + 4));
      text.textContent = WORDS[node.fate] ?? node.fate;
      parts.push(text);
    }
    return parts;
  }

  /** The rows in sight, and the lines from or to them. */
  function render() {
    if (ROW !== rowHeight()) return arrange();
    const first = Math.max(0, Math.floor(view.scrollTop / ROW) - SPARE);
    const last = Math.ceil((view.scrollTop + view.clientHeight) / ROW) + SPARE;
    const width = linesSvg.clientWidth;
    elements.clear();
    const lines = new Map();
    const connect = (node, kernel) => {
      const key = `${node.number}-${kernel}`;
      if (!lines.has(key) && rowOfNode.has(node.number) && rowOfKernel.has(kernel))
        lines.set(key, [line(node, kernel, width)]);
    };
    for (let row = first; row < last; row += 1) {
      const node = rows[row];
      if (node) {
        elements.set(`node-${node.number}`, nodeRow(node, row));
        for (const kernel of node.kernels) connect(node, kernel);
        if (!node.kernels.length) lines.set(String(node.number), end(node, width));
      }
      const kernel = kernelRows[row];
      if (kernel) {
        elements.set(`kernel-${kernel.number}`, kernelRow(kernel, row));
        for (const its of nodesOf[kernel.number]) connect(its, kernel.number);
      }
    }
    holder.replaceChildren(...elements.values());
    linesSvg.replaceChildren(...[...lines.values()].flat());
    paint();
  }

  /** Scrolls a row into the middle unless it is in sight. */
  function reach(what) {
    const row = what.node ? rowOfNode.get(what.node.number) : rowOfKernel.get(what.kernel.number);
    if (row === undefined) return;
    const top = row * ROW;
    const room = view.clientHeight - 3 * ROW;
    if (top < view.scrollTop + ROW || top > view.scrollTop + room) {
      view.scrollTo({ top: Math.max(0, top - room / 2), behavior: "instant" });
      render();
    }
  }

  const tell = waysDetail(model, fates, choose);

  function hover(what) {
    if ((what && keyOf(what)) === (hovered && keyOf(hovered))) return;
    hovered = what;
    paint();
    tell(hovered ?? held);
  }

  /** Holds a node or a kernel; `show` also brings it into sight, filters or not. */
  function choose(what, show) {
    held = what;
    hovered = null;
    if (what && show) {
      const there = what.node
        ? rowOfNode.has(what.node.number)
        : rowOfKernel.has(what.kernel.number);
      if (!there) {
        searchBox.value = "";
        for (const box of boxes) box.checked = true;
        arrange();
      }
      reach(what);
    }
    paint();
    tell(hovered ?? held);
  }

  const whatIs = (element) => {
    const key = element.closest?.(".ways-row")?.dataset.key;
    if (!key) return null;
    const number = Number(key.replace(/\D+/, ""));
    return key.startsWith("node") ? { node: nodeOf.get(number) } : { kernel: kernels[number] };
  };
  // A row that scrolls to a pointer at rest is not what the pointer asks for.
  let rest = "";
  const spot = (event) => `${event.clientX},${event.clientY}`;
  for (const kind of ["pointermove", "pointerdown"]) {
    document.addEventListener(kind, (event) => (rest = spot(event)), {
      capture: true,
      passive: true,
    });
  }
  view.addEventListener(
    "pointerover",
    (event) => spot(event) !== rest && hover(whatIs(event.target)),
  );
  view.addEventListener("pointerleave", () => hover(null));
  view.addEventListener("click", (event) => {
    const what = whatIs(event.target);
    choose(what && held && keyOf(what) === keyOf(held) ? null : what, false);
    if (held) detail.scrollIntoView({ block: "nearest" }); // below the graph where it is narrow
  });

  /** The next one up or down on the side of the selection. */
  function step(by) {
    if (held?.kernel) {
      const shown = kernelRows.filter(Boolean);
      const at = shown.indexOf(held.kernel) + by;
      return { kernel: shown[Math.max(0, Math.min(shown.length - 1, at))] };
    }
    const at =
      held?.node && rowOfNode.has(held.node.number) ? rowOfNode.get(held.node.number) + by : 0;
    const node = rows[Math.max(0, Math.min(rows.length - 1, at))];
    return node ? { node } : null;
  }
  function across(key) {
    if (key === "ArrowRight" && held?.node?.kernels.length)
      return { kernel: kernels[held.node.kernels[0]] };
    if (key === "ArrowLeft" && held?.kernel && nodesOf[held.kernel.number].length)
      return { node: nodesOf[held.kernel.number][0] };
    return held;
  }
  view.addEventListener("keydown", (event) => {
    const far = Math.max(rows.length, kernels.length);
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -far, End: far }[
      event.key
    ];
    if (by) choose(step(by), true);
    else if (event.key === "ArrowRight" || event.key === "ArrowLeft")
      choose(across(event.key), true);
    else if (event.key === "Enter" && held)
      go(
        keyOf(held).startsWith("kernel") || !held.node.kernels.length
          ? keyOf(held)
          : `kernel-${held.node.kernels[0]}`,
      );
    else if (event.key === "Escape") choose(null, false);
    else return;
    event.preventDefault();
  });

  let waiting = false;
  view.addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      render();
    });
  });
  new ResizeObserver(render).observe(view);
  searchBox.addEventListener("input", arrange);
  searchBox.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && searchBox.value) {
      searchBox.value = "";
      arrange();
    } else if (event.key === "Enter" && rows.length) {
      choose({ node: rows[0] }, true);
      view.focus();
    }
  });
  for (const box of [...boxes, asRun]) box.addEventListener("change", arrange);

  const tableBox = document.getElementById("ways-table");
  const tableButton = document.getElementById("ways-table-button");
  tableButton.addEventListener("click", () => {
    tabled = tableBox.classList.toggle("ways-shown");
    document.getElementById("ways-panes").hidden = tabled;
    tableButton.textContent = tabled ? "as a graph" : "as a table";
    arrange();
  });

  // A link to a node leads here: its row in the table is for print, and for pages without script.
  tableBox.addEventListener("reveal", (event) => {
    const node = /^node-\d+$/.test(event.target.id) && nodeOf.get(Number(event.target.id.slice(5)));
    if (!node) return;
    choose({ node }, true);
    if (tableBox.classList.contains("ways-shown")) return;
    event.preventDefault();
    view.focus({ preventScroll: true });
    // What comes into sight may turn out higher than was thought: again until nothing moves.
    let before = NaN;
    let frames = 20;
    let unmoved = 0;
    const centre = () => {
      drawing.scrollIntoView({ block: "center" });
      const { top } = drawing.getBoundingClientRect();
      unmoved = top === before ? unmoved + 1 : 0;
      before = top;
      frames -= 1;
      if (unmoved < 3 && frames) requestAnimationFrame(centre);
    };
    centre();
  });

  arrange();
  tell(null);
}
