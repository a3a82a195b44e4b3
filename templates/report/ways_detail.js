// Beside the graph: everything that is known of the node or the kernel that is selected.

/** Gives the function that tells of it; `choose` selects another, `fates` are the legend's. */
function waysDetail(model, fates, choose) {
  const MOST = 40; // of a list
  const { kernels, tensors, maker, readers, nodesOf, errorOf, signs, kernelName, nodeName } = model;
  const detail = document.getElementById("ways-detail");
  const linkTo = (id, text) => make("a", { href: `#${id}` }, text);
  const button = (what, text) => {
    const element = make("button", { type: "button" }, make("bdi", {}, text));
    element.addEventListener("click", () => choose(what, true));
    return element;
  };
  const nodeButton = (node) => button({ node }, nodeName(node));

  function list(items) {
    const shown = items.slice(0, MOST).map((item) => make("li", {}, ...item));
    if (items.length > MOST) shown.push(make("li", {}, `and ${grouped(items.length - MOST)} more`));
    return make("ul", {}, ...shown);
  }

  function kernelItem(number) {
    const error = errorOf.get(number);
    const said = error ? `, ${signs[error.level]} ${error.text}` : "";
    return [
      linkTo(`kernel-${number}`, `kernel ${number}`),
      " ",
      button({ kernel: kernels[number] }, kernelName(number)),
      said,
    ];
  }

  function nodeTerms(node) {
    const from = (name) =>
      maker.has(name)
        ? [make("bdi", {}, name), " from ", nodeButton(maker.get(name))]
        : [make("bdi", {}, name)];
    const into = (name) => [
      make("bdi", {}, name),
      ...[...(readers.get(name) ?? [])]
        .slice(0, MOST)
        .flatMap((reader, i) => [i ? ", " : " to ", nodeButton(reader)]),
    ];
    return [
      ["became", [make("strong", {}, node.fate), node.why ? `: ${node.why}` : ""]],
      ["kernels", node.kernels.length ? [list(node.kernels.map(kernelItem))] : ["none"]],
      ["inputs", [list(node.inputs.filter(Boolean).map(from))]],
      ["outputs", [list(node.outputs.filter(Boolean).map(into))]],
    ];
  }

  function kernelTerms(kernel) {
    const tensorLink = (number) => [linkTo(`tensor-${number}`, tensors[number].label)];
    const error = errorOf.get(kernel.number);
    return [
      ["kind", [kernel.kind, kernel.why ? `: ${kernel.why}` : ""]],
      ["largest error", error ? [`${signs[error.level]} ${error.text}`] : []],
      [
        "nodes",
        nodesOf[kernel.number].length
          ? [list(nodesOf[kernel.number].map((node) => [nodeButton(node), ` ${node.fate}`]))]
          : ["none"],
      ],
      ["reads", kernel.reads.length ? [list(kernel.reads.map(tensorLink))] : []],
      ["writes", kernel.writes.length ? [list(kernel.writes.map(tensorLink))] : []],
    ].filter(([, said]) => said.length);
  }

  /** Of a node or a kernel, or of nothing. */
  function tell(now) {
    if (!now) {
      const marks = errorOf.size
        ? " Marks of kernels: ○ exact, ■ within rounding, ✗ differs from the reference."
        : "";
      const hint = `Point at a node or a kernel to see its way here; a click holds it.${marks}`;
      detail.replaceChildren(make("p", { class: "note" }, hint));
      return;
    }
    const { node, kernel } = now;
    const title = node
      ? make(
          "h3",
          {},
          make("span", { class: fates.get(node.fate).style }, fates.get(node.fate).letter),
          ` ${node.operator} `,
          make("bdi", {}, node.name),
        )
      : make(
          "h3",
          {},
          linkTo(`kernel-${kernel.number}`, `kernel ${kernel.number}`),
          ` ${kernelName(kernel.number)}`,
        );
    const terms = node ? nodeTerms(node) : kernelTerms(kernel);
    detail.replaceChildren(
      title,
      make(
        "dl",
        {},
        ...terms.flatMap(([term, said]) => [make("dt", {}, term), make("dd", {}, ...said)]),
      ),
    );
    detail.scrollTop = 0;
  }

  return tell;
}
