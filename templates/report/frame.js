// What the frame and every section share: facts, places, tables, filters, the search, the tooltip.
// Names of a model are only ever set as text.
document.documentElement.classList.add("js");

let parsed = null;
/** The report's facts, without the text of the C functions; parsed when first asked for. */
function facts() {
  if (parsed) return parsed;
  parsed = JSON.parse(document.getElementById("facts").textContent);
  for (const [key, table] of Object.entries(parsed)) {
    if (!table?.fields) continue;
    const entry = (row) => Object.fromEntries(row.map((value, i) => [table.fields[i], value]));
    parsed[key] = table.rows.map(entry);
  }
  return parsed;
}

/**
 * A new element.
 * @param {string} name
 * @param {Record<string, string>} attributes
 * @param {...(Node|string)} children
 */
function make(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

const grouped = (number) => number.toLocaleString("en");
const typeText = (tensor) => `${tensor.dtype}[${tensor.shape.join(", ")}]`;
/** What to say after its bytes, which are more than its shape asks for. */
function paddingText({ layout }) {
  if (layout.includes("padded")) return " with padding";
  return layout.includes("packed") ? ", packed" : "";
}
/** Its C function; of control flow, which has none, what it is. */
const kernelText = (kernel) => kernel.function || kernel.kind;
const LONGEST_NAME = 40; // as in report/html/words.py
/** Both ends of a long name: many differ only in the last. */
function shortened(name, most = LONGEST_NAME) {
  const letters = [...name];
  if (letters.length <= most) return name;
  const end = Math.floor((most - 1) / 2);
  const [first, last] = [letters.slice(0, most - 1 - end), letters.slice(letters.length - end)];
  return `${first.join("")}…${last.join("")}`;
}
const byNumber = (list) => new Map(list.map((entry) => [entry.number, entry]));

// Places: what a link leads to is opened, found in its table, marked (by :target) and focused.

/**
 * A section may show a place in another way: it listens to the event "reveal" of the element, and
 * prevents its default where nothing is left to do.
 * @param {string} id
 */
function reveal(id) {
  const place = document.getElementById(id);
  if (!place) return;
  for (let outer = place; outer; outer = outer.parentElement) {
    if (outer instanceof HTMLDetailsElement) outer.open = true;
  }
  // A row opens to its whole name, a section not to all that is in it.
  const opened = place.localName === "tr" ? place.querySelectorAll("details") : [];
  for (const details of opened) details.open = true;
  if (place.hidden) unfilter(place.closest("table"));
  const event = new CustomEvent("reveal", { bubbles: true, cancelable: true });
  if (!place.dispatchEvent(event)) return;
  if (!place.hasAttribute("tabindex")) place.tabIndex = -1;
  place.focus({ preventScroll: true });
  const tall = place.offsetHeight > innerHeight / 2;
  place.scrollIntoView({ block: tall || place.localName === "section" ? "start" : "center" });
}

/** @param {string} id */
function go(id) {
  if (location.hash === `#${id}`) reveal(id);
  else location.hash = id; // reveals it through hashchange
}

addEventListener("hashchange", () => reveal(location.hash.slice(1)));
addEventListener("load", () => location.hash && reveal(location.hash.slice(1)));
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='#']");
  if (link && link.hash === location.hash) reveal(link.hash.slice(1));
  const opener = event.target.closest("[data-details]");
  if (opener) {
    for (const details of document.querySelectorAll(`#${opener.dataset.details} details`)) {
      details.open = opener.dataset.open === "true";
    }
  }
  const focuser = event.target.closest("[data-focus]");
  if (focuser) document.getElementById(focuser.dataset.focus).focus();
});

// Tables: a row is a <tr>, or a <tbody> where data-unit="group".

/** @param {HTMLTableElement} table */
function rowsOf(table) {
  return table.dataset.unit === "group" ? [...table.tBodies] : [...table.tBodies[0].rows];
}

const collator = new Intl.Collator(undefined, { numeric: true });

/**
 * @param {HTMLTableElement} table
 * @param {HTMLTableCellElement} head
 */
function sort(table, head) {
  const isNumber = head.dataset.sort === "number";
  const first = head.dataset.first ?? (isNumber ? "descending" : "ascending");
  const other = first === "ascending" ? "descending" : "ascending";
  const direction = head.getAttribute("aria-sort") === first ? other : first;
  const sign = direction === "ascending" ? 1 : -1;
  const keyed = rowsOf(table).map((row) => {
    const cell = (row.rows?.[0] ?? row).cells[head.cellIndex];
    const text = cell.dataset.v ?? cell.textContent.trim();
    return { row, empty: text === "", key: isNumber ? Number(text) : text };
  });
  keyed.sort((a, b) => {
    if (a.empty || b.empty) return Number(a.empty) - Number(b.empty); // last either way
    return sign * (isNumber ? a.key - b.key : collator.compare(a.key, b.key));
  });
  const parent = table.dataset.unit === "group" ? table : table.tBodies[0];
  parent.append(...keyed.map((entry) => entry.row));
  for (const each of head.parentElement.querySelectorAll("[aria-sort]")) {
    each.setAttribute("aria-sort", each === head ? direction : "none");
  }
}

/** Buttons in the heads of the columns that can be sorted. @param {HTMLTableElement} table */
function sortable(table) {
  for (const head of table.querySelectorAll("thead th[data-sort]")) {
    const button = make("button", { type: "button" }, ...head.childNodes);
    head.append(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => sort(table, head));
  }
}

const texts = new WeakMap();
/** A row's text in lower case, whole names too, read once. @param {HTMLElement} row */
function textOf(row) {
  if (!texts.has(row)) {
    const whole = [...row.querySelectorAll("bdi[title]")].map((name) => name.title);
    texts.set(row, [row.textContent, ...whole].join(" ").toLowerCase());
  }
  return texts.get(row);
}

/** Shows the rows whose text holds every word. @param {HTMLInputElement} input */
function filter(input) {
  const rows = rowsOf(document.getElementById(input.dataset.filter));
  const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of rows) {
    row.hidden = !words.every((word) => textOf(row).includes(word));
    shown += Number(!row.hidden);
  }
  const output = input.closest(".filter").querySelector("output");
  output.textContent = words.length ? `${shown} of ${rows.length}` : "";
}

/** @param {HTMLInputElement} input */
function filterable(input) {
  input.addEventListener("input", () => filter(input));
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && input.value) {
      input.value = "";
      filter(input);
    }
  });
}

/** Empties the filter of a table. @param {HTMLTableElement | null} table */
function unfilter(table) {
  const input = table && document.querySelector(`input[data-filter="${table.id}"]`);
  if (input) {
    input.value = "";
    filter(input);
  }
}

document.querySelectorAll("table.sortable").forEach(sortable);
document.querySelectorAll("input[data-filter]").forEach(filterable);

// The tooltip: one for the page.

const tip = document.getElementById("tip");
let described = null;

/**
 * Shows lines of text beside an element; the first one is a title.
 * @param {Element} element
 * @param {string[]} lines
 */
function showTip(element, lines) {
  hideTip();
  tip.replaceChildren(...lines.map((line, i) => make("p", {}, i ? line : make("strong", {}, line))));
  tip.hidden = false;
  const box = element.getBoundingClientRect();
  const left = Math.min(box.left, innerWidth - tip.offsetWidth - 8);
  const below = box.bottom + 6;
  const fits = below + tip.offsetHeight < innerHeight;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${fits ? below : Math.max(8, box.top - tip.offsetHeight - 6)}px`;
  element.setAttribute("aria-describedby", "tip");
  described = element;
}

function hideTip() {
  tip.hidden = true;
  described?.removeAttribute("aria-describedby");
  described = null;
}

// The search: a combobox; the list says right away where a node went.

const MOST_FOUND = 30;
const MOST_NAMED = 3; // kernels of a node
const search = document.getElementById("search");
const found = document.getElementById("found");
const FATES = {
  kernel: "starts", fused: "fused into", folded: "computed at compile time",
  aliased: "needs no code", dissolved: "part of how others read or write", dropped: "dropped",
};
let entries = null;
let selected = -1;

/** A node's operator and name, or what it computes where it has none. */
function nodeText(node) {
  if (node.name || !node.outputs.length) return `${node.operator} ${node.name}`.trim();
  return `${node.operator} for ${node.outputs[0]}`;
}

/** What can be found: {id, name, hint, text}, `text` in lower case. */
function searchable() {
  if (entries) return entries;
  const { nodes, kernels, tensors } = facts();
  const nameOf = Object.fromEntries(kernels.map((k) => [k.number, kernelText(k)]));
  const entry = (id, name, hint, more) => ({ id, name, hint, text: [name, more].join(" ").toLowerCase() });
  entries = [
    ...nodes.map((n) => {
      const named = n.kernels.slice(0, MOST_NAMED).map((k) => `kernel ${k} ${nameOf[k]}`);
      const more = n.kernels.length - named.length;
      const into = named.join(", ") + (more ? ` and ${more} more` : "");
      const fate = FATES[n.fate] ?? n.fate;
      return entry(`node-${n.number}`, nodeText(n), `node, ${fate} ${into}`.trim(), n.outputs.join(" "));
    }),
    ...kernels.map((k) => entry(`kernel-${k.number}`, nameOf[k.number], `kernel ${k.number}, ${k.kind}`, `kernel ${k.number}`)),
    ...tensors.map((t) =>
      entry(`tensor-${t.number}`, t.label, `tensor, ${typeText(t)}, ${t.place}`, t.name)),
  ];
  return entries;
}

/** The best first: the whole name or number, the beginning of a name, a name, what it computes. @param {string} asked */
function matches(asked) {
  const words = asked.toLowerCase().split(/\s+/).filter(Boolean);
  const whole = words.join(" ");
  const rank = (entry) => {
    const name = entry.name.toLowerCase();
    if (name === whole || entry.id === words.join("-")) return 0;
    if (name.startsWith(whole)) return 1;
    if (name.includes(whole)) return 2;
    return words.every((word) => name.includes(word)) ? 3 : 4;
  };
  return searchable()
    .filter((entry) => words.every((word) => entry.text.includes(word)))
    .map((entry) => ({ entry, rank: rank(entry) }))
    .sort((a, b) => a.rank - b.rank)
    .map(({ entry }) => entry);
}

function showFound() {
  const all = search.value.trim() ? matches(search.value) : [];
  const items = all.slice(0, MOST_FOUND).map((entry, i) =>
    make("li", { id: `found-${i}`, role: "option", "data-place": entry.id, "aria-selected": "false" },
      entry.name, make("span", { class: "note" }, entry.hint)));
  if (all.length > MOST_FOUND || (search.value.trim() && !all.length)) {
    const rest = all.length ? `and ${all.length - MOST_FOUND} more` : "nothing of that name";
    items.push(make("li", { role: "option", "aria-disabled": "true", "aria-selected": "false" }, rest));
  }
  found.replaceChildren(...items);
  found.hidden = !items.length;
  search.setAttribute("aria-expanded", String(!found.hidden));
  select(all.length ? 0 : -1);
}

function hideFound() {
  found.hidden = true;
  search.setAttribute("aria-expanded", "false");
  select(-1);
}

/** @param {number} index */
function select(index) {
  const items = found.querySelectorAll("[data-place]");
  selected = items.length ? Math.min(index, items.length - 1) : -1;
  items.forEach((item, i) => item.setAttribute("aria-selected", String(i === selected)));
  if (selected < 0) {
    search.removeAttribute("aria-activedescendant");
    return;
  }
  search.setAttribute("aria-activedescendant", items[selected].id);
  items[selected].scrollIntoView({ block: "nearest" });
}

/** @param {Element | undefined} item */
function choose(item) {
  if (!item?.dataset.place) return;
  hideFound();
  go(item.dataset.place);
}

search.addEventListener("input", showFound);
search.addEventListener("focus", () => search.value.trim() && showFound());
search.addEventListener("blur", hideFound);
search.addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown") select(selected + 1);
  else if (event.key === "ArrowUp") select(Math.max(0, selected - 1));
  else if (event.key === "Enter") choose(found.querySelectorAll("[data-place]")[selected]);
  else return;
  event.preventDefault();
});
// The list goes when the box loses the focus: what is pressed in it must not take it away first.
found.addEventListener("mousedown", (event) => event.preventDefault());
found.addEventListener("click", (event) => choose(event.target.closest("li")));

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    hideTip();
    hideFound();
  }
  const typing = event.target.matches("input, textarea, select");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    search.focus();
  }
});
