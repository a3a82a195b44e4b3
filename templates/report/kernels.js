// A row of the kernels table opens to what the kernel computes, reads and writes, and to its C.

let known = null;
const lookup = () =>
  (known ??= {
    kernels: byNumber(facts().kernels),
    nodes: byNumber(facts().nodes),
    tensors: byNumber(facts().tensors),
    functions: new Map(facts().functions.map((entry, i) => [entry.name, i])),
  });

const link = (id, ...text) => make("a", { href: `#${id}` }, ...text);

function nodeItem(number) {
  const node = lookup().nodes.get(number);
  return make("li", {}, link(`node-${number}`, nodeText(node)), make("span", { class: "note" }, ` ${node.why}`));
}

function tensorItem(number) {
  const tensor = lookup().tensors.get(number);
  const size = ` ${typeText(tensor)}, ${grouped(tensor.bytes)} bytes${paddingText(tensor)}, ${tensor.place}`;
  return make("li", {}, link(`tensor-${number}`, make("bdi", {}, tensor.label)), size);
}

/** Pairs of a term and what it says; what is empty is left out. */
function terms(kernel) {
  const list = (numbers, item) => (numbers.length ? make("ul", {}, ...numbers.map(item)) : "");
  const bytes = [
    [kernel.bytes_read, "read"],
    [kernel.bytes_written, "written"],
    [kernel.bytes_constants, "of constants"],
  ];
  const arithmetic = kernel.arithmetic === "none" ? "moves only" : kernel.arithmetic;
  const time = kernel.time;
  const micro = (ns) => `${(ns / 1000).toLocaleString("en", { maximumSignificantDigits: 3 })} µs`;
  let pace = "";
  if (time) {
    pace = `${micro(time.ns)} a run`;
    if (time.of_limit !== null) pace += `, at best ${micro(time.limit_ns)}, bound by ${time.bound_by}`;
    if (time.reason) pace += `: ${time.reason}`;
  }
  return [
    ["why", [kernel.kind, ...kernel.tiles].join(", ") + (kernel.why ? `: ${kernel.why}` : "")],
    ["sums", `${arithmetic}, ${grouped(kernel.macs ?? 0)} multiply-accumulates`],
    ["time", pace],
    ["bytes", bytes.map(([size, text]) => `${grouped(size)} ${text}`).join(", ")],
    ["nodes", list(kernel.nodes, nodeItem)],
    ["reads", list(kernel.reads, tensorItem)],
    ["writes", list(kernel.writes, tensorItem)],
    ["scratch", list(kernel.scratch, tensorItem)],
  ].filter(([, said]) => said);
}

/** The C as the page has it among the functions. */
function codeOf(kernel) {
  const index = lookup().functions.get(kernel.function);
  if (index === undefined) return [];
  const text = document.querySelector(`#function-${index} pre`);
  const { variants } = facts().functions[index];
  const plain =
    `The plain form. The C has others for ${variants.join(" and ")}, with other tiles; ` +
    "the processor decides which runs.";
  const note = variants.length ? [make("p", { class: "note" }, plain)] : [];
  const there = make("p", {}, link(`function-${index}`, `${kernel.function} among the C functions`));
  return text ? [...note, text.cloneNode(true), there] : [there];
}

/** The kernel of a row. @param {HTMLElement} group */
const numberOf = (group) => Number(group.id.slice("kernel-".length));

/** @param {HTMLButtonElement} button */
function toggle(button) {
  const group = button.closest("tbody");
  if (button.getAttribute("aria-expanded") === "true") {
    group.querySelector(".detail").remove();
    button.setAttribute("aria-expanded", "false");
    return;
  }
  const kernel = lookup().kernels.get(numberOf(group));
  const pairs = terms(kernel).flatMap(([term, said]) => [make("dt", {}, term), make("dd", {}, said)]);
  const width = group.rows[0].cells.length;
  const cell = make("td", { colspan: String(width) }, make("dl", {}, ...pairs), ...codeOf(kernel));
  group.append(make("tr", { class: "detail" }, cell));
  button.setAttribute("aria-expanded", "true");
}

const table = document.getElementById("kernels-table");
for (const group of table?.tBodies ?? []) {
  const label = `Details of kernel ${numberOf(group)}`;
  const state = { "aria-expanded": "false", "aria-label": label };
  group.rows[0].cells[0].prepend(make("button", { type: "button", class: "expand", ...state }));
}
table?.addEventListener("click", (event) => {
  const button = event.target.closest(".expand");
  if (button) toggle(button);
});
table?.addEventListener("keydown", (event) => {
  const button = event.target.closest("tbody")?.querySelector(".expand[aria-expanded='true']");
  if (event.key === "Escape" && button) {
    toggle(button);
    button.focus();
  }
});
