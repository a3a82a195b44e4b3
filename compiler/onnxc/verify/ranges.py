"""Which integers make sense as an input: one that indexes has a range that the model knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import onnx_ir as ir

from onnxc.values import static_shape
from onnxc.verify.inputs import Bounds

MOVES: Final = (
    *("Cast", "Concat", "Expand", "Flatten", "Identity", "Reshape"),
    *("Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"),
)
"""Operators whose result has the values of their first operand; of Concat, of all."""
INDEXES: Final = {"Gather": 0, "GatherElements": 0, "ScatterElements": 0, "Scatter": 0}
"""Operators that index the dimension `axis` with their second operand, and its default."""
INTEGERS: Final = (ir.DataType.INT32, ir.DataType.INT64)


def index_ranges(model: ir.Model) -> dict[str, Bounds]:
    """Of each integer input that ends up as an index, the range that is right for every use.

    model  with its types and shapes inferred
    """
    found = {}
    for value in model.graph.inputs:
        if value.dtype in INTEGERS and value.name:
            extents = [extent for extent in _extents(value) if extent > 0]
            if extents:
                found[value.name] = (0.0, float(min(extents) - 1))
    return found


def _extents(value: ir.Value) -> Iterator[int]:
    """The sizes of the dimensions that the values of `value` index."""
    stack, visited = [value], {value}
    while stack:
        for node, position in stack.pop().uses():
            if node.op_type in INDEXES and position == 1:
                yield from _indexed(node)
            if node.op_type in MOVES and (position == 0 or node.op_type == "Concat"):
                stack += [output for output in node.outputs if output not in visited]
                visited.update(node.outputs)


def _indexed(node: ir.Node) -> Iterator[int]:
    data = node.inputs[0]
    shape = None if data is None else static_shape(data)
    attribute = node.attributes.get("axis")
    axis = INDEXES[node.op_type] if attribute is None else attribute.as_int()
    if shape and -len(shape) <= axis < len(shape):
        yield shape[axis]
