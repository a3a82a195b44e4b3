// The memory map: names in the bars, a tooltip, the keyboard, zoom, and the line of the budget.

const plot = document.getElementById("memory-plot");
if (plot) {
  const SVG = "http://www.w3.org/2000/svg";
  const LETTER = 6.8; // pixels across, of the labels; not less than any usual one
  const scroller = plot.closest(".memory-scroll");
  const map = scroller.firstElementChild;
  const kernelCount = Number(plot.dataset.kernels);
  const topBytes = Number(plot.dataset.top);
  const { tensors, kernels } = facts();
  const tensorOf = new Map(tensors.map((tensor) => [`bar-${tensor.number}`, tensor]));
  const bars = [...plot.querySelectorAll("a")];
  const drawn = bars.map((bar) => tensorOf.get(bar.id));
  let held = null; // the bar that a click or a link chose
  let shown = null; // the bar that the tooltip is of

  /** A new SVG element. */
  const draw = (name, attributes, text) => {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const across = (number) => `${(100 * number) / kernelCount}%`;
  const tallAs = (bytes) => `${(100 * bytes) / topBytes}%`;
  const up = (bytes) => tallAs(topBytes - bytes);
  const kernelName = (number) => `${number} ${kernelText(kernels[number])}`;

  // The browser's own tooltips would come on top of the page's.
  for (const bar of bars) {
    const title = bar.querySelector("title");
    bar.setAttribute("aria-label", title.textContent);
    title.remove();
  }

  function lines(tensor) {
    const { label, dtype, shape, bytes, offset, first, last, producer, readers, layout } = tensor;
    const writers = [producer, ...tensor.writers.filter((number) => number !== producer)];
    const read = readers.map(kernelName);
    const most =
      read.slice(0, 6).join(", ") + (read.length > 6 ? ` and ${read.length - 6} more` : "");
    return [
      label,
      `${dtype}[${shape.join(", ")}]${layout ? `, ${layout}` : ""}`,
      `${grouped(bytes)} bytes at ${grouped(offset)}`,
      `live in kernel${first === last ? ` ${first}` : `s ${first} to ${last}`}`,
      producer === null
        ? "written by no kernel"
        : `written by kernel ${writers.map(kernelName).join(" and ")}`,
      read.length ? `read by kernel${read.length > 1 ? "s" : ""} ${most}` : "read by no kernel",
    ];
  }

  /** Marks the kernels that write (P) and read (R) a tensor. */
  function mark(tensor) {
    const bands = document.getElementById("memory-bands");
    const marks = [];
    const band = (kernel, letter, kind) => {
      marks.push(
        draw("rect", { class: kind, x: across(kernel), y: 0, width: across(1), height: "100%" }),
      );
      const y = letter === "P" ? 12 : 25; // of kernels beside each other both can be read
      marks.push(draw("text", { class: "memory-mark", x: across(kernel + 0.5), y }, letter));
    };
    if (tensor) {
      const { producer, writers } = tensor; // others write the border of a padded one
      const writing = producer === null ? [] : new Set([producer, ...writers]);
      for (const kernel of writing) band(kernel, "P", "memory-band");
      for (const kernel of tensor.readers) band(kernel, "R", "memory-band memory-band-reader");
    }
    bands.replaceChildren(...marks);
  }

  function show(bar, event) {
    shown = bar;
    const tensor = tensorOf.get(bar.id);
    mark(tensor);
    showTip(bar, lines(tensor));
    if (event) tipAt(event);
  }

  /** The tooltip beside the pointer. */
  function tipAt(event) {
    const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    const below = event.clientY + 18;
    const fits = below + tip.offsetHeight < innerHeight;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${fits ? below : Math.max(8, event.clientY - tip.offsetHeight - 12)}px`;
  }

  function hide() {
    if (!shown) return;
    shown = null;
    hideTip();
    mark(held && tensorOf.get(held.id));
  }

  function hold(bar) {
    held?.classList.remove("memory-held");
    held = bar;
    held?.classList.add("memory-held");
    mark(held && tensorOf.get(held.id));
  }

  /** The bar under the pointer, or within a few pixels above or below it: some are thin. */
  function near(event) {
    const over = event.target.closest?.("a");
    if (over) return over;
    const box = plot.getBoundingClientRect();
    const kernel = Math.floor(((event.clientX - box.left) / box.width) * kernelCount);
    const bytes = (1 - (event.clientY - box.top) / box.height) * topBytes;
    let best = null;
    let least = (5 / box.height) * topBytes;
    drawn.forEach((tensor, i) => {
      if (kernel < tensor.first || kernel > tensor.last) return;
      const away = Math.max(tensor.offset - bytes, bytes - tensor.offset - tensor.bytes);
      if (away < least) [best, least] = [bars[i], away];
    });
    return best;
  }

  plot.addEventListener("pointermove", (event) => {
    const bar = near(event);
    if (bar) show(bar, event);
    else hide();
  });
  plot.addEventListener("pointerleave", hide);

  const strip = document.getElementById("memory-live");
  strip.addEventListener("pointermove", (event) => {
    const box = strip.getBoundingClientRect();
    const at = Math.floor(((event.clientX - box.left) / box.width) * kernelCount);
    const kernel = Math.max(0, Math.min(kernelCount - 1, at));
    const live = drawn.filter(({ first, last }) => first <= kernel && kernel <= last).length;
    showTip(strip, [
      `kernel ${kernelName(kernel)}`,
      `${grouped(facts().memory.live[kernel])} bytes live, in ${live} tensor${live === 1 ? "" : "s"}`,
      `of ${grouped(topBytes)} bytes of the workspace`,
    ]);
    tipAt(event);
  });
  strip.addEventListener("pointerleave", hideTip);
  plot.addEventListener("click", (event) => {
    const bar = near(event);
    if (!bar) return hold(null);
    hold(bar);
    if (!event.target.closest("a")) go(bar.getAttribute("href").slice(1));
  });

  // The keyboard: one bar can be reached by Tab, arrows go to the others.
  function focusBar(bar) {
    if (!bar) return;
    for (const other of plot.querySelectorAll("a[tabindex='0']"))
      other.setAttribute("tabindex", "-1");
    bar.setAttribute("tabindex", "0");
    bar.focus({ preventScroll: true });
    // An SVG link does not scroll into view by itself in every browser.
    bar
      .querySelector("rect")
      .scrollIntoView({ block: "nearest", inline: "nearest", behavior: "instant" });
  }
  /** The next bar above or below of those that live when this one begins. */
  function beside(tensor, direction) {
    let best = -1;
    drawn.forEach((other, i) => {
      if (other === tensor || other.first > tensor.first || other.last < tensor.first) return;
      if (direction * (other.offset - tensor.offset) <= 0) return;
      if (best < 0 || direction * (other.offset - drawn[best].offset) < 0) best = i;
    });
    return bars[best];
  }
  plot.addEventListener("keydown", (event) => {
    const index = bars.indexOf(event.target.closest("a"));
    if (index < 0) return;
    const tensor = drawn[index];
    const next = {
      ArrowRight: () => bars[index + 1],
      ArrowLeft: () => bars[index - 1],
      ArrowUp: () => beside(tensor, 1),
      ArrowDown: () => beside(tensor, -1),
      Home: () => bars[0],
      End: () => bars[bars.length - 1],
    }[event.key];
    if (event.key === "Escape") {
      hold(null);
      hide();
    }
    if (!next) return;
    event.preventDefault();
    focusBar(next());
  });
  plot.addEventListener(
    "focusin",
    (event) => event.target.matches("a:focus-visible") && show(event.target),
  );
  plot.addEventListener("focusout", hide);

  // In the last kernel of a tensor another may begin in its bytes: its bar lies on this one.
  const beginning = new Map();
  for (const tensor of drawn) {
    const others = beginning.get(tensor.first) ?? [];
    beginning.set(tensor.first, [...others, tensor]);
  }
  const overlaid = new Set(
    drawn.filter(({ first, last, offset, bytes }) =>
      (last > first ? beginning.get(last) ?? [] : []).some(
        (other) => other.offset < offset + bytes && offset < other.offset + other.bytes,
      ),
    ),
  );

  // Names in the bars that have room for them, across or else upwards, of what is in sight.
  const LEAST = 7; // letters of a name that says anything
  function label() {
    const width = plot.clientWidth;
    const height = plot.clientHeight;
    if (!width) return;
    const from = (scroller.scrollLeft / width) * kernelCount;
    const to = ((scroller.scrollLeft + scroller.clientWidth) / width) * kernelCount;
    const labels = [];
    for (const tensor of drawn) {
      const { label: text, first, last, offset, bytes } = tensor;
      const begin = Math.max(first, from);
      const end = overlaid.has(tensor) ? last : last + 1;
      const room = ((Math.min(end, to) - begin) / kernelCount) * width - 8;
      const tallness = (bytes / topBytes) * height;
      const least = Math.min(text.length, LEAST) * LETTER;
      const upwards = room < least && room > 4 && tallness > least + 8;
      if (!upwards && (room < least || tallness < 12)) continue;
      const letters = Math.floor((upwards ? tallness - 8 : room) / LETTER);
      const turned = { transform: "rotate(-90)", x: 4 - tallness, y: 11 };
      const outer = draw("svg", {
        x: across(begin),
        y: up(offset + bytes),
        width: across(end - begin),
        height: tallAs(bytes),
      });
      outer.append(draw("text", upwards ? turned : { x: 4, y: 11 }, shortened(text, letters)));
      labels.push(outer);
    }
    document.getElementById("memory-labels").replaceChildren(...labels);
  }

  /** Numbers of kernels, as many as have room. */
  function number() {
    const width = plot.clientWidth;
    if (!width) return;
    // Thin bars are to be more than their edges.
    map.style.setProperty(
      "--stroke",
      String(Math.min(0.75, Math.max(0.1, width / kernelCount / 10))),
    );
    let step = 1;
    while ((step * width) / kernelCount < 46)
      step = String(step).startsWith("2") ? step * 2.5 : step * 2;
    const marks = [];
    for (let at = 0; at < kernelCount; at += step) {
      marks.push(draw("text", { x: across(at + 0.5), y: 14 }, grouped(at)));
    }
    document.getElementById("memory-numbers").replaceChildren(...marks);
  }

  let waiting = false;
  function later(work) {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      work();
    });
  }
  scroller.addEventListener("scroll", () => later(label));
  new ResizeObserver(() => {
    number();
    label();
  }).observe(plot);

  // Zoom keeps what is in the middle there.
  const wide = document.getElementById("memory-wide");
  const tall = document.getElementById("memory-tall");
  function zoom() {
    const middle = (scroller.scrollLeft + scroller.clientWidth / 2) / map.clientWidth;
    const centre = (scroller.scrollTop + scroller.clientHeight / 2) / map.clientHeight;
    map.style.setProperty("--wide", String(2 ** wide.value));
    map.style.setProperty("--tall", String(2 ** tall.value));
    scroller.scrollLeft = middle * map.clientWidth - scroller.clientWidth / 2;
    scroller.scrollTop = centre * map.clientHeight - scroller.clientHeight / 2;
  }
  wide.addEventListener("input", zoom);
  tall.addEventListener("input", zoom);
  for (const [id, input, change] of [
    ["memory-wider", wide, 1],
    ["memory-narrower", wide, -1],
    ["memory-taller", tall, 1],
    ["memory-lower", tall, -1],
  ]) {
    document.getElementById(id).addEventListener("click", () => {
      input.value = String(Number(input.value) + change);
      zoom();
    });
  }

  /** The budget in the map: a line, and marks of the kernels with more live than it. */
  function drawBudget(budget) {
    const key = document.getElementById("memory-budget-key");
    for (const each of document.querySelectorAll(".memory-budget-key")) each.hidden = !budget;
    if (!budget) {
      for (const id of ["memory-line", "memory-live-line"])
        document.getElementById(id).replaceChildren();
      return;
    }
    const { bytes, text } = budget;
    key.lastElementChild.textContent = `budget ${text}${bytes > topBytes ? ", above the map" : ""}`;
    const line = () =>
      draw("line", { class: "memory-budget", x1: 0, x2: "100%", y1: up(bytes), y2: up(bytes) });
    const inside = bytes <= topBytes;
    const { live } = facts().memory;
    const over = [];
    for (let first = 0; first < live.length; first += 1) {
      if (live[first] <= bytes) continue;
      let end = first;
      while (end + 1 < live.length && live[end + 1] > bytes) end += 1;
      over.push(
        draw("rect", {
          class: "memory-over",
          x: across(first),
          y: 0,
          width: across(end + 1 - first),
          height: 4,
        }),
      );
      first = end;
    }
    document.getElementById("memory-line").replaceChildren(...(inside ? [line()] : []));
    document
      .getElementById("memory-live-line")
      .replaceChildren(...(inside ? [line()] : []), ...over);
  }
  addEventListener("budget", (event) => drawBudget(event.detail));

  // A link to a tensor marks it here, too.
  document.addEventListener("reveal", ({ target }) => {
    const bar =
      target.id.startsWith("tensor-") &&
      document.getElementById(target.id.replace("tensor", "bar"));
    if (bar) hold(bar);
  });
}
