"""branch: an If whose condition is known becomes the nodes of the branch taken."""

from __future__ import annotations

import onnx_ir as ir

from onnxc.op import OPSET
from onnxc.passes.naming import ValueNames
from onnxc.passes.rewriting import label_of, take_over
from onnxc.values import values_of


def known_branch(node: ir.Node) -> ir.Graph | None:
    """The branch that an If takes, where that is known; None for every other node."""
    if node.op_type != "If" or node.domain or len(node.inputs) != 1:
        return None
    condition = node.inputs[0]
    if condition is None or condition.const_value is None or condition.const_value.size != 1:
        return None
    if condition.dtype is not ir.DataType.BOOL:
        return None
    taken = bool(values_of(condition.const_value).reshape(-1)[0])
    attribute = node.attributes.get("then_branch" if taken else "else_branch")
    if attribute is None or attribute.type is not ir.AttributeType.GRAPH:
        return None
    branch = attribute.as_graph()
    return branch if len(branch.outputs) == len(node.outputs) else None


def inline_branch(node: ir.Node, branch: ir.Graph, names: ValueNames) -> list[ir.Node]:
    """Puts the nodes of `branch` in the place of the If, and returns them in order.

    Its values keep their names where those are free. An Identity gives each result the name and
    declaration that it had outside.
    """
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    results = list(branch.outputs)
    branch.outputs.clear()
    for value in list(branch.initializers.values()):
        del branch.initializers[value.name or ""]
        names.settle(value)
        graph.initializers.add(value)
    nodes = list(branch)
    branch.remove(nodes)
    for value in (value for inner in nodes for value in inner.outputs):
        names.settle(value)
    for position, (inner, outer) in enumerate(zip(results, node.outputs, strict=True)):
        if outer.name:
            label = f"{label_of(node)}/output_{position}"
            identity = ir.Node("", "Identity", [inner], name=label, version=OPSET)
            take_over(outer, identity.outputs[0])
            nodes.append(identity)
    graph.insert_before(node, nodes)
    _discard(node)
    return nodes


def _discard(node: ir.Node) -> None:
    """Removes a node for good: what it and the graphs inside it read has one reader less."""
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    graph.remove(node, safe=True)
    for attribute in node.attributes.values():
        if attribute.type is ir.AttributeType.GRAPH:
            for inner in attribute.as_graph().all_nodes():
                for position in range(len(inner.inputs)):
                    inner.replace_input_with(position, None)


def reachable(graph: ir.Graph) -> set[ir.Node]:
    """The nodes that the outputs need, with those of the graphs inside them."""
    found: set[ir.Node] = set()
    stack = list(graph.outputs)
    while stack:
        node = stack.pop().producer()
        if node is None or node in found:
            continue
        found.add(node)
        stack.extend(value for value in node.inputs if value is not None)
        for attribute in node.attributes.values():
            if attribute.type is ir.AttributeType.GRAPH:
                stack.extend(attribute.as_graph().outputs)
            elif attribute.type is ir.AttributeType.GRAPHS:
                stack.extend(v for inner in attribute.as_graphs() for v in inner.outputs)
    return found
