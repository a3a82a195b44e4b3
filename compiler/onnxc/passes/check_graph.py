"""A checker of graphs between passes, for tests and for ONNXC_DEBUG=1."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from onnxc.op import OPSET, load_operators, schema_at
from onnxc.values import shape_text, static_shape


class InvalidGraphError(AssertionError):
    """A pass left a graph that later ones cannot rely on; the message lists every place."""


def check_graph(model: ir.Model, *, simplified: bool = False) -> None:
    """Raises InvalidGraphError unless the graph is what infer, or simplify, promises.

    Every value has a type and a static shape and is made once, before it is read; names are
    unique; every node is of a known version of an operator that has a function. When simplified,
    every node is needed.
    """
    faults = list(_faults(model.graph))
    if simplified:
        faults += _unused(model.graph)
    if faults:
        raise InvalidGraphError("\n".join(faults))


def _faults(graph: ir.Graph) -> Iterator[str]:
    made: set[ir.Value] = set(graph.inputs)
    names = {value.name for value in graph.inputs}
    for value in graph.inputs:
        yield from _value_faults(value, "input")
    for node in graph:
        where = f"{node.op_type} {node.name!r}"
        if (node.domain, node.op_type) not in load_operators():
            yield f"{where}: there is no function for it"
        if schema_at(node.domain, node.op_type, node.version or OPSET) is None:
            yield f"{where}: it has no version {node.version}"
        for source in node.inputs:
            if source is not None and source not in made and source.const_value is None:
                yield f"{where}: reads {source.name!r} before it is made"
        for value in node.outputs:
            if value.name:
                yield from _value_faults(value, where)
                if value.name in names:
                    yield f"{where}: another value is called {value.name!r} as well"
                names.add(value.name)
            made.add(value)
    for value in graph.outputs:
        if value not in made and value.const_value is None:
            yield f"output {value.name!r}: nothing makes it"


def _value_faults(value: ir.Value, where: str) -> Iterator[str]:
    if value.dtype is None or static_shape(value) is None:
        yield f"{where}: {value.name!r} has no type or no static shape ({shape_text(value)})"
    elif value.const_value is not None:
        constant = value.const_value
        if tuple(constant.shape) != tuple(value.shape or ()) or constant.dtype is not value.dtype:
            yield f"{where}: the constant of {value.name!r} is {constant.dtype}{constant.shape}"


def _unused(graph: ir.Graph) -> Iterator[str]:
    outputs = set(graph.outputs)
    for node in graph:
        if not any(value.uses() or value in outputs for value in node.outputs):
            yield f"{node.op_type} {node.name!r}: nothing needs it"
