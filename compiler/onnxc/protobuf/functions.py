"""Model-local functions: which are used, how far they expand, whether the calls fit them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import onnx

from onnxc.diagnostics import Kind
from onnxc.errors import Problem
from onnxc.protobuf.tensors import Fault
from onnxc.protobuf.where import quoted, standard_domain

MAX_NODES: Final = 1_000_000
"""Nodes of a model with its function calls expanded."""
MAX_CALL_DEPTH: Final = 100
MAX_GRAPH_DEPTH: Final = 32
"""Graphs in attributes of nodes in graphs; protobuf reads no more from a file either."""
_GRAPH_TYPES: Final = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
_UNCOUNTED: Final = 10**15  # sizes stop growing here, before they become slow to add


class Key(NamedTuple):
    """What a call and its function have in common."""

    domain: str
    name: str
    overload: str


def called(node: onnx.NodeProto) -> Key:
    """The function that a node would call, if the model has it."""
    return Key(standard_domain(node.domain), node.op_type, node.overload)


def subgraphs(node: onnx.NodeProto) -> Iterator[tuple[str, onnx.GraphProto]]:
    """The graphs in a node's attributes, with the attribute's name, in order."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.name, attribute.g
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            yield from ((attribute.name, graph) for graph in attribute.graphs)


def walk_nodes(
    nodes: Iterable[onnx.NodeProto], level: int = 0
) -> Iterator[tuple[onnx.NodeProto, int]]:
    """Each node, then those of its subgraphs, in order, with how many graphs are around it."""
    for node in nodes:
        yield node, level
        for _, graph in subgraphs(node):
            yield from walk_nodes(graph.node, level + 1)


@dataclass
class Size:
    """What a body expands to: nodes (a call counts as one more), calls and graphs nested."""

    nodes: int = 0
    calls: int = 0
    graphs: int = 0


class Function:
    """A model-local function; `attributes` are those that it declares, `types` how it uses them."""

    def __init__(self, proto: onnx.FunctionProto) -> None:
        self.proto = proto
        self.key = Key(standard_domain(proto.domain), proto.name, proto.overload)
        self.defaults = {attribute.name: attribute for attribute in proto.attribute_proto}
        self.attributes = {*proto.attribute, *self.defaults}
        self.types: dict[str, set[int]] = {}
        for node, _ in walk_nodes(proto.node):
            for attribute in node.attribute:
                if attribute.ref_attr_name:
                    self.types.setdefault(attribute.ref_attr_name, set()).add(attribute.type)

    @property
    def label(self) -> str:
        overload = f":{self.key.overload}" if self.key.overload else ""
        return f"function {quoted(self.key.name + overload)}"

    def call_faults(self, call: onnx.NodeProto) -> Iterator[Fault]:
        """Where a call does not fit: too many inputs or outputs, unknown or mistyped attributes."""
        counts = (
            ("inputs", len(call.input), len(self.proto.input)),
            ("outputs", len(call.output), len(self.proto.output)),
        )
        for what, given, most in counts:
            if given > most:
                yield Kind.FUNCTION_CALL, f"has {given} {what}, but the {self.label} has {most}", ""
        for attribute in call.attribute:
            name = quoted(attribute.name)
            if attribute.type in _GRAPH_TYPES:
                fact = f"attribute {name} passes a graph to the {self.label}"
                yield Kind.FUNCTION_CALL, fact, "inline that function"
            elif attribute.name not in self.attributes:
                yield Kind.FUNCTION_CALL, f"attribute {name} is not one of the {self.label}", ""
            elif attribute.type not in self.types.get(attribute.name, {attribute.type}):
                expected = min(self.types[attribute.name])
                names = [
                    onnx.AttributeProto.AttributeType.Name(number)
                    for number in (attribute.type, expected)
                ]
                fact = f"attribute {name} is {names[0]}; the {self.label} uses it as {names[1]}"
                yield Kind.FUNCTION_CALL, fact, ""


class Library:
    """The functions of a model that its graph reaches, callees first."""

    def __init__(self, model: onnx.ModelProto, problems: list[Problem]) -> None:
        self.functions: dict[Key, Function] = {}
        self._protos: dict[Key, onnx.FunctionProto] = {}
        self._sizes: dict[Key, Size] = {}
        for proto in model.functions:
            key = Key(standard_domain(proto.domain), proto.name, proto.overload)
            if key in self._protos:
                place = f"function {quoted(proto.name)}"
                problems.append(
                    Problem(Kind.FUNCTION_DEFINITION, place, "is defined twice", "use an overload")
                )
            self._protos[key] = proto
        if self._protos:
            self._survey(model.graph, problems)

    def get(self, node: onnx.NodeProto) -> Function | None:
        """The function that a node calls."""
        return self.functions.get(called(node)) if self.functions else None

    def _survey(self, graph: onnx.GraphProto, problems: list[Problem]) -> None:
        """Finds the reachable functions, recursion, and what the graph expands to."""
        callees: dict[Key, Iterator[Key]] = {}
        for root in self._calls(graph.node):
            stack = [root] if root not in self._sizes else []
            while stack:
                key = stack[-1]
                if key not in callees:
                    callees[key] = iter(self._calls(self._protos[key].node))
                callee = next(callees[key], None)
                if callee is None:
                    stack.pop()
                    self._sizes.setdefault(key, self._size(self._protos[key].node))
                    self.functions.setdefault(key, Function(self._protos[key]))
                elif callee in callees and callee not in self._sizes:
                    problems.append(_recursion([*stack[stack.index(callee) :], callee]))
                elif callee not in self._sizes:
                    stack.append(callee)
        problems.extend(_excess(self._size(graph.node)))

    def _calls(self, nodes: Iterable[onnx.NodeProto]) -> list[Key]:
        keys = (called(node) for node, _ in walk_nodes(nodes))
        return list(dict.fromkeys(key for key in keys if key in self._protos))

    def _size(self, nodes: Iterable[onnx.NodeProto]) -> Size:
        """Callees must have been measured; one of a recursion counts as nothing."""
        total = Size()
        for node, level in walk_nodes(nodes):
            key = called(node)
            callee = self._sizes.get(key) if key in self._protos else None
            total.nodes += 1
            total.graphs = max(total.graphs, level)
            if callee is not None:
                total.nodes += callee.nodes + len(self._protos[key].output)
                total.calls = max(total.calls, callee.calls + 1)
                total.graphs = max(total.graphs, level + callee.graphs)
        total.nodes = min(total.nodes, _UNCOUNTED)
        return total


def _recursion(cycle: list[Key]) -> Problem:
    chain = " -> ".join(quoted(key.name) for key in cycle)
    fact = "calls itself" if len(cycle) == 2 else f"calls itself ({chain})"
    return Problem(
        Kind.FUNCTION_DEFINITION,
        f"function {quoted(cycle[0].name)}",
        fact,
        "ONNX functions cannot be recursive",
    )


def _excess(size: Size) -> Iterator[Problem]:
    if size.nodes > MAX_NODES:
        count = f"{size.nodes:,}" if size.nodes < _UNCOUNTED else "more than 10^15"
        fact = f"function calls expand to {count} nodes; the limit is {MAX_NODES:,}"
        yield Problem(Kind.FUNCTIONS_TOO_LARGE, "model", fact, "export without functions")
    if size.calls > MAX_CALL_DEPTH:
        fact = f"function calls nest {size.calls} deep; the limit is {MAX_CALL_DEPTH}"
        yield Problem(Kind.FUNCTIONS_TOO_LARGE, "model", fact)
    if size.graphs > MAX_GRAPH_DEPTH:
        fact = f"graphs in attributes nest {size.graphs} deep; the limit is {MAX_GRAPH_DEPTH}"
        yield Problem(Kind.NESTING_TOO_DEEP, "model", fact)


def opset_versions(
    imports: Iterable[onnx.OperatorSetIdProto], place: str, newest: int, problems: list[Problem]
) -> Mapping[str, int]:
    """Version by domain, "" for ai.onnx; at most `newest` of that."""
    versions: dict[str, int] = {}
    for entry in imports:
        domain, name = standard_domain(entry.domain), entry.domain or "ai.onnx"
        fact, remedy = "", ""
        if versions.get(domain, entry.version) != entry.version:
            fact = f"imports domain {quoted(name)} as {versions[domain]} and as {entry.version}"
            remedy = "'' and 'ai.onnx' are one domain" if domain == "" else ""
        elif entry.version < 1:
            fact = f"opset {entry.version} of {quoted(name)} does not exist"
        elif domain == "" and entry.version > newest:
            fact = f"opset {entry.version} of ai.onnx needs a newer onnxc"
            remedy = f"re-export with opset <= {newest}"
        if fact:
            problems.append(Problem(Kind.OPSET_VERSION, place, fact, remedy))
        versions.setdefault(domain, entry.version)
    return versions
