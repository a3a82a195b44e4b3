"""Replaces calls of model-local functions by the functions' nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import onnx

from onnxc.diagnostics import Kind
from onnxc.errors import ModelError, Problem
from onnxc.op import OPSET
from onnxc.protobuf.functions import Function, Key, Library, subgraphs, walk_nodes
from onnxc.protobuf.where import Place, quoted, standard_domain

MAX_BYTES: Final = 256 << 20
"""What the nodes that come out of functions may take, as protobuf."""


def inline_functions(
    model: onnx.ModelProto, library: Library, places: Mapping[Key | None, Place]
) -> list[int]:
    """Inlines every call, in place, and drops the functions.

    The model must have passed structure's checks. `places` has the opsets of each function and,
    under None, of the main graph. Returns the opset version of every node's domain, in the order
    of functions.walk_nodes. A value inside a function is called "<call>/<its name>", where <call>
    is the call's name or operator, made unique. Raises ModelError where the result is too big or a
    call uses an output that is an input left out.
    """
    main = places[None]
    if not library.functions:
        versions = [main.opsets[standard_domain(n.domain)] for n, _ in walk_nodes(model.graph.node)]
    else:
        expansion = _Expansion(library, places, _names(model.graph))
        expansion.expand_graph(model.graph, _Frame(main))
        versions = expansion.versions
    model.ClearField("functions")
    return versions


def _names(graph: onnx.GraphProto) -> set[str]:
    """Every name of a value or a node in a graph and the graphs inside it."""
    names: set[str] = set()
    graphs = [graph]
    while graphs:
        here = graphs.pop()
        for named in (*here.input, *here.output, *here.initializer):
            names.add(named.name)
        for node in here.node:
            names.update(node.output)
            names.add(node.name)
            graphs.extend(inner for _, inner in subgraphs(node))
    return names


@dataclass
class _Frame:
    """What the nodes of one call stand in.

    place       of the function, for its opsets and messages
    prefix      of every name inside; "" in the main graph, where names stay
    names       the function's own name of a value -> its name in the main graph; "" if left out
    attributes  the values of the function's attributes
    """

    place: Place
    prefix: str = ""
    names: dict[str, str] | None = None
    attributes: Mapping[str, onnx.AttributeProto] | None = None

    def name(self, name: str) -> str:
        return name if self.names is None or not name else self.names[name]


class _Expansion:
    def __init__(
        self, library: Library, places: Mapping[Key | None, Place], taken: set[str]
    ) -> None:
        self._library = library
        self._places = places
        self._taken = taken
        self._prefixes: set[str] = set()
        self._counters: dict[str, int] = {}
        self._bytes = 0
        self.versions: list[int] = []

    def expand_graph(self, graph: onnx.GraphProto, frame: _Frame) -> None:
        """Expands a graph in place; in a function's frame it gets the frame's names."""
        if frame.names is not None:
            for named in (*graph.input, *graph.initializer):
                named.name = self._define(named.name, frame)
            graph.ClearField("value_info")
        nodes: list[onnx.NodeProto] = []
        self._expand_nodes(graph.node, frame, nodes)
        del graph.node[:]
        graph.node.extend(nodes)
        for info in graph.output:
            info.name = frame.name(info.name)

    def _expand_nodes(
        self, nodes: Iterable[onnx.NodeProto], frame: _Frame, out: list[onnx.NodeProto]
    ) -> None:
        for node in nodes:
            function = self._library.get(node)
            if function is None:
                out.append(self._copy(node, frame))
            else:
                self._call(node, function, frame, out)

    def _copy(self, node: onnx.NodeProto, frame: _Frame) -> onnx.NodeProto:
        """The node as it stands in the main graph, its version noted."""
        self.versions.append(frame.place.opsets[standard_domain(node.domain)])
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        if frame.names is not None:
            self._count(node)
            copy.name = self._unique(f"{frame.prefix}/{node.name or node.op_type}")
            copy.input[:] = [frame.name(name) for name in node.input]
            copy.output[:] = [name and self._define(name, frame) for name in node.output]
            _resolve_attributes(copy, frame)
        for _, graph in subgraphs(copy):
            self.expand_graph(graph, frame)
        return copy

    def _call(
        self, call: onnx.NodeProto, function: Function, caller: _Frame, out: list[onnx.NodeProto]
    ) -> None:
        proto = function.proto
        name = call.name or call.op_type
        prefix = f"{caller.prefix}/{name}" if caller.prefix else name
        prefix = self._unique(prefix, self._prefixes)
        names = dict.fromkeys(proto.input, "")
        given = [caller.name(name) for name in call.input]
        names.update(zip(proto.input, given, strict=False))
        results = [name and self._define(name, caller) for name in call.output]
        aliases: list[tuple[str, str]] = []
        for inner, outer in zip(proto.output, results, strict=False):
            if outer and inner in names:  # an input, or an output that the function lists twice
                aliases.append((inner, outer))
            elif outer:
                names[inner] = outer
        resolved = onnx.NodeProto()
        resolved.CopyFrom(call)
        _resolve_attributes(resolved, caller)
        attributes = function.defaults | {given.name: given for given in resolved.attribute}
        frame = _Frame(self._places[function.key], prefix, names, attributes)
        self._expand_nodes(proto.node, frame, out)
        for inner, outer in aliases:
            if not names[inner]:
                fact = f"its output {quoted(outer)} is the input {quoted(inner)} of the function"
                where = f"node {quoted(prefix)}"
                raise ModelError([Problem(Kind.FUNCTION_CALL, where, f"{fact}, which is left out")])
            node = onnx.NodeProto(op_type="Identity", input=[names[inner]], output=[outer])
            node.name = self._unique(f"{prefix}/Identity")
            self.versions.append(OPSET)
            out.append(node)

    def _define(self, name: str, frame: _Frame) -> str:
        """The main graph's name for a value defined in a frame.

        Two graphs of one node may define the same name: they then share the new one as well.
        """
        if frame.names is None:
            return name
        if name not in frame.names:
            frame.names[name] = self._unique(f"{frame.prefix}/{name}")
        return frame.names[name]

    def _unique(self, name: str, taken: set[str] | None = None) -> str:
        taken = self._taken if taken is None else taken
        unique = name
        while unique in taken:
            self._counters[name] = self._counters.get(name, 0) + 1
            unique = f"{name}_{self._counters[name]}"
        taken.add(unique)
        self._bytes += len(unique)
        return unique

    def _count(self, node: onnx.NodeProto) -> None:
        self._bytes += node.ByteSize()
        if self._bytes > MAX_BYTES:
            fact = f"function calls expand to more than {MAX_BYTES >> 20} MiB"
            remedy = "export without functions, or pass their large constants as inputs"
            raise ModelError([Problem(Kind.FUNCTIONS_TOO_LARGE, "model", fact, remedy)])


def _resolve_attributes(node: onnx.NodeProto, frame: _Frame) -> None:
    """Replaces references to the function's attributes by their values, or by nothing."""
    if frame.attributes is None or not any(given.ref_attr_name for given in node.attribute):
        return
    resolved: list[onnx.AttributeProto] = []
    for given in node.attribute:
        value = frame.attributes.get(given.ref_attr_name) if given.ref_attr_name else given
        if value is not None:
            resolved.append(onnx.AttributeProto())
            resolved[-1].CopyFrom(value)
            resolved[-1].name = given.name
    del node.attribute[:]
    node.attribute.extend(resolved)
