// What the graph draws, as the facts have it: who makes a value, which nodes are a kernel's work,
// how large the errors are.

function waysModel() {
  const { nodes, kernels, tensors, accuracy } = facts();
  const nodeOf = byNumber(nodes);

  const kernelName = (number) => kernelText(kernels[number]);
  const nodeName = (node) => `${node.operator} ${node.name || node.outputs[0] || ""}`.trim();

  // Who makes a value, and who reads it.
  const maker = new Map();
  const readers = new Map();
  for (const node of nodes) {
    for (const name of node.outputs) if (name) maker.set(name, node);
    for (const name of node.inputs) {
      if (!name) continue;
      if (!readers.has(name)) readers.set(name, new Set());
      readers.get(name).add(node);
    }
  }
  const nodesOf = kernels.map(() => []);
  for (const node of nodes) for (const kernel of node.kernels) nodesOf[kernel].push(node);

  /** The worst error of the values that each kernel stores: {level, text}. */
  const errorOf = new Map();
  const levels = ["exact", "close", "differs"];
  const signs = { exact: "○", close: "■", differs: "✗" };
  for (const entry of accuracy?.tensors ?? []) {
    if (entry.kernel === null || entry.verdict === "not compared") continue;
    const scaled = entry.max_scaled_error !== null; // integers have no scale
    const told = (scaled ? entry.max_scaled_error : entry.max_abs_error) ?? 0;
    const size = told === "inf" ? Infinity : told;
    const level = entry.verdict === "differs" ? "differs" : size === 0 ? "exact" : "close";
    const known = errorOf.get(entry.kernel);
    const worse =
      !known ||
      levels.indexOf(level) > levels.indexOf(known.level) ||
      (level === known.level && size > known.size);
    if (worse) {
      const finite = scaled ? `${size.toPrecision(2)} of the scale` : `off by ${grouped(size)}`;
      const text = size === 0 ? "exact" : size === Infinity ? "not finite" : finite;
      errorOf.set(entry.kernel, { level, size, text });
    }
  }

  const keyOf = (what) => (what.node ? `node-${what.node.number}` : `kernel-${what.kernel.number}`);

  /** Keys of what a node or a kernel is one work with, and of what feeds it or reads it. */
  function neighbours(what) {
    const lit = new Set([keyOf(what)]);
    const near = new Set();
    const its = what.node ? [what.node] : nodesOf[what.kernel.number];
    const own = what.node ? what.node.kernels : [what.kernel.number];
    for (const kernel of own) lit.add(`kernel-${kernel}`);
    for (const node of its) {
      lit.add(`node-${node.number}`);
      for (const name of node.inputs)
        if (maker.has(name)) near.add(`node-${maker.get(name).number}`);
      for (const name of node.outputs)
        for (const reader of readers.get(name) ?? []) near.add(`node-${reader.number}`);
    }
    for (const kernel of own) {
      for (const number of kernels[kernel].reads) {
        const { producer } = tensors[number] ?? {};
        if (producer !== null && producer !== undefined) near.add(`kernel-${producer}`);
      }
      for (const number of kernels[kernel].writes) {
        for (const reader of tensors[number]?.readers ?? []) near.add(`kernel-${reader}`);
      }
    }
    return { lit, near };
  }

  return {
    nodes,
    kernels,
    tensors,
    nodeOf,
    maker,
    readers,
    nodesOf,
    errorOf,
    signs,
    kernelName,
    nodeName,
    keyOf,
    neighbours,
  };
}
