"""Checks graphs and function bodies: names, order, operators, attributes and constants."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field
from typing import Final

import onnx

from onnxc.diagnostics import Kind
from onnxc.errors import Problem
from onnxc.protobuf.attributes import attribute_faults
from onnxc.protobuf.declared import constant_faults, contradictions, input_faults, other_faults
from onnxc.protobuf.functions import Function, Library, subgraphs, walk_nodes
from onnxc.protobuf.ordering import components
from onnxc.protobuf.sparse import Densifier
from onnxc.protobuf.tensors import Fault, tensor_faults
from onnxc.protobuf.where import Place, quoted, standard_domain

_INPUT: Final = -1
_INITIALIZER: Final = -2
_HINTS: Final = 10
"""So many problems may have a name that was meant; comparing names takes time."""
_NAMES_COMPARED: Final = 2000
_NAMELESS: Final[Fault] = (Kind.NAME_MISSING, "has no name", "")

_Declarations = MutableSequence[onnx.ValueInfoProto]


@dataclass
class _Late:
    """A use of a value before its node: who uses it (by position) and where that is."""

    consumer: int
    name: str
    where: str


@dataclass
class _Level:
    """One graph under inspection, or one function body.

    place       what its nodes are called
    nodes       in the model's order
    attributes  of the function around it, None in the main graph
    defined     the names known so far: the position of the producing node, _INPUT, _INITIALIZER
    producers   the position of the node that makes a name, also of nodes yet to come
    current     the position of the node under inspection
    """

    place: Place
    nodes: Sequence[onnx.NodeProto]
    attributes: Collection[str] | None
    defined: dict[str, int] = field(default_factory=dict)
    producers: dict[str, int] = field(default_factory=dict)
    current: int = 0
    late: list[_Late] = field(default_factory=list)

    def __post_init__(self) -> None:
        for position, node in enumerate(self.nodes):
            for name in node.output:
                self.producers.setdefault(name, position)

    def node(self, position: int) -> str:
        return self.place.node(self.nodes[position], position)

    def definition(self, name: str) -> str:
        """What a known name is, in words."""
        position = self.defined[name]
        if position == _INPUT:
            return "an input"
        return "an initializer" if position == _INITIALIZER else f"made by {self.node(position)}"


class Inspector:
    """Collects the problems of a model's graphs in `problems`.

    On the way it settles what later code need not know: sparse constants become dense, external
    files get absolute paths, an input with an initializer is an input no more.
    """

    def __init__(self, library: Library, densifier: Densifier, problems: list[Problem]) -> None:
        self._library = library
        self._densifier = densifier
        self._problems = problems
        self._domains_told: set[tuple[str, str]] = set()

    def check_model(self, graph: onnx.GraphProto, place: Place) -> None:
        """The main graph; its inputs need types."""
        for info in graph.input:
            self._tell(f"input {quoted(info.name)}", input_faults(info))
        self._check_graph(graph, place, None, [])

    def check_function(self, function: Function, place: Place) -> None:
        proto = function.proto
        level = _Level(place, proto.node, function.attributes)
        defaults = onnx.NodeProto(attribute=proto.attribute_proto)
        self._tell(function.label, attribute_faults(defaults, None, 0, self._densifier))
        for attribute in proto.attribute_proto:
            if any(True for _ in subgraphs(onnx.NodeProto(attribute=[attribute]))):
                fact = f"attribute {quoted(attribute.name)} has a graph as its default"
                fault = (Kind.FUNCTION_DEFINITION, fact, "inline that function")
                self._tell(function.label, [fault])
        for name in proto.input:
            self._define(name, _INPUT, f"{place.inside}input", level, [])
        self._check_nodes(level, [])
        self._check_outputs(proto.output, level, [])

    def _tell(self, where: str, faults: Iterable[Fault]) -> None:
        self._problems.extend(Problem(kind, where, fact, remedy) for kind, fact, remedy in faults)

    def _check_graph(
        self,
        graph: onnx.GraphProto,
        place: Place,
        attributes: Collection[str] | None,
        outer: list[_Level],
    ) -> None:
        level = _Level(place, graph.node, attributes)
        for info in (*(graph.input if outer else ()), *graph.output, *graph.value_info):
            self._tell(f"{place.inside}value {quoted(info.name)}", other_faults(info))
        declared: dict[str, list[onnx.ValueInfoProto]] = {}
        for info in (*graph.input, *graph.output, *graph.value_info):
            declared.setdefault(info.name, []).append(info)
        for name, infos in declared.items():
            if len(infos) > 1:
                self._tell(f"{place.inside}value {quoted(name)}", contradictions(infos))
        for info in graph.input:
            self._define(info.name, _INPUT, f"{place.inside}input", level, outer)
        self._check_initializers(graph, declared, level, outer)
        self._check_nodes(level, outer)
        self._check_outputs([info.name for info in graph.output], level, outer)

    def _define(self, name: str, kind: int, what: str, level: _Level, outer: list[_Level]) -> None:
        where = f"{what} {quoted(name)}"
        if not name:
            self._tell(what, [_NAMELESS])
        elif name in level.defined:
            fact = f"the name is already {level.definition(name)}"
            self._tell(where, [(Kind.NAME_TAKEN, fact, "rename one")])
        elif any(name in around.defined for around in outer):
            fact = "hides a value of the same name outside the graph"
            self._tell(where, [(Kind.NAME_TAKEN, fact, "rename one")])
        level.defined.setdefault(name, kind)

    def _check_initializers(
        self,
        graph: onnx.GraphProto,
        declared: Mapping[str, Sequence[onnx.ValueInfoProto]],
        level: _Level,
        outer: list[_Level],
    ) -> None:
        """Checks the initializers against their data and declarations; sparse ones become dense."""
        checked = [(t, list(tensor_faults(t, self._densifier.folder))) for t in graph.initializer]
        for sparse in graph.sparse_initializer:
            faults: list[Fault] = []
            checked.append((self._densifier.dense(sparse, faults), faults))
        what = f"{level.place.inside}initializer"
        for position, (tensor, faults) in enumerate(checked):
            where = f"{what} {quoted(tensor.name) if tensor.name else f'#{position}'}"
            if not tensor.name:
                faults.insert(0, _NAMELESS)
            elif level.defined.get(tensor.name) == _INPUT and not outer:
                level.defined[tensor.name] = _INITIALIZER  # an input may have a default
            else:
                self._define(tensor.name, _INITIALIZER, what, level, outer)
            infos = declared.get(tensor.name, ())
            if not faults:
                found = (fault for info in infos for fault in constant_faults(info, tensor))
                faults.extend(dict.fromkeys(found))
            if not faults:  # an output's declaration may leave open what the tensor says
                for info in infos:
                    told = onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
                    info.type.CopyFrom(told)
            self._tell(where, faults)
        graph.initializer.extend(tensor for tensor, _ in checked[len(graph.initializer) :])
        graph.ClearField("sparse_initializer")
        if not outer:
            _drop_declarations(graph.input, graph.initializer)
        _drop_declarations(graph.value_info, graph.initializer)

    def _check_nodes(self, level: _Level, outer: list[_Level]) -> None:
        levels = [*outer, level]
        for position, node in enumerate(level.nodes):
            level.current = position
            self._check_operator(node, level)
            node.ClearField("device_configurations")  # where to run it; onnx_ir wants them whole
            for name in node.input:
                if name and name not in level.defined:
                    self._check_use(name, level, levels)
            opset = level.place.opsets.get(standard_domain(node.domain), 0)
            if node.attribute:
                faults = attribute_faults(node, level.attributes, opset, self._densifier)
                self._tell_lazily(level, faults)
                self._check_subgraphs(node, level, levels)
            for name in node.output:
                if name:
                    if name in level.defined or any(name in around.defined for around in outer):
                        self._define(
                            name, position, f"{level.node(position)}: output", level, outer
                        )
                    level.defined.setdefault(name, position)
        self._tell_late(level)

    def _tell_lazily(self, level: _Level, faults: Iterable[Fault]) -> None:
        found = list(faults)
        if found:
            self._tell(level.node(level.current), found)

    def _check_operator(self, node: onnx.NodeProto, level: _Level) -> None:
        domain = standard_domain(node.domain)
        function = self._library.get(node)
        if not node.op_type:
            fault = (Kind.NAME_MISSING, "has no operator (op_type)", "re-export the model")
            self._tell(level.node(level.current), [fault])
        elif function is not None:
            self._tell_lazily(level, function.call_faults(node))
        elif level.place.opsets and domain not in level.place.opsets:
            told = (level.place.inside, domain)
            if told not in self._domains_told:
                fact = f"the model has no opset import for the domain {quoted(domain or 'ai.onnx')}"
                self._tell(level.node(level.current), [(Kind.OPSET_MISSING, fact, "")])
            self._domains_told.add(told)
        elif node.overload:
            fact = f"the model has no function with the overload {quoted(node.overload)}"
            self._tell(level.node(level.current), [(Kind.FUNCTION_CALL, fact, "")])

    def _check_subgraphs(self, node: onnx.NodeProto, level: _Level, levels: list[_Level]) -> None:
        for name, graph in subgraphs(node):
            inside = f"{level.node(level.current)} {name} "
            place = Place(inside, level.place.opsets)
            self._check_graph(graph, place, level.attributes, levels)

    def _check_use(self, name: str, level: _Level, levels: list[_Level]) -> None:
        """A name that this graph has not defined yet: is it outside, later, or nowhere?"""
        where = level.node(level.current)
        for around in reversed(levels):
            if name in around.defined:
                return
            if name in around.producers:
                around.late.append(_Late(around.current, name, where))
                return
        fact = f"input {quoted(name)} is not defined"
        names = _visible(levels) if len(self._problems) < _HINTS else ()
        close = difflib.get_close_matches(name, names[:_NAMES_COMPARED], n=1)
        remedy = "no input, initializer or node has that name"
        remedy = f"did you mean {quoted(close[0])}?" if close else remedy
        self._tell(where, [(Kind.VALUE_UNDEFINED, fact, remedy)])

    def _tell_late(self, level: _Level) -> None:
        if not level.late:
            return
        component = components(_successors(level))
        for late in level.late:
            producer = level.producers[late.name]
            name, maker = quoted(late.name), level.node(producer)
            if producer == late.consumer:
                fact = f"input {name} is its own output: the graph has a cycle"
                fault = (Kind.CYCLE, fact, "")
            elif component[producer] == component[late.consumer]:
                fact = f"input {name} comes from {maker}, which depends on this node itself"
                fault = (Kind.CYCLE, f"{fact}: the graph has a cycle", "")
            else:
                fact = f"input {name} is only made later, by {maker}"
                fault = (Kind.NODES_UNSORTED, fact, "sort the nodes topologically")
            self._tell(late.where, [fault])

    def _check_outputs(self, names: Iterable[str], level: _Level, outer: list[_Level]) -> None:
        what = f"{level.place.inside}output"
        for position, name in enumerate(names):
            if not name:
                self._tell(f"{what} #{position}", [_NAMELESS])
            elif name not in level.defined:
                visible = any(name in around.defined for around in outer)
                fact = "lies outside the graph" if visible else "is made by no node"
                remedy = "pass it through an Identity" if visible else ""
                self._tell(f"{what} {quoted(name)}", [(Kind.OUTPUT_UNMADE, fact, remedy)])


def _visible(levels: Iterable[_Level]) -> list[str]:
    """The names that a node of the last of these graphs may read."""
    return [name for level in levels for name in (*level.defined, *level.producers)]


def _drop_declarations(infos: _Declarations, constants: Iterable[onnx.TensorProto]) -> None:
    """Takes constants off the inputs or the declared values: their tensors say it all."""
    names = {tensor.name for tensor in constants}
    kept = [info for info in infos if info.name not in names]
    if len(kept) < len(infos):
        del infos[:]
        infos.extend(kept)


def _successors(level: _Level) -> list[list[int]]:
    """For each node those that use its outputs, also in their subgraphs."""
    successors: list[list[int]] = [[] for _ in level.nodes]
    for position, node in enumerate(level.nodes):
        for user, _ in walk_nodes([node]):
            for name in user.input:
                producer = level.producers.get(name)
                if producer is not None:
                    successors[producer].append(position)
    return successors
