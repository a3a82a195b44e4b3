"""Which inputs make sense: indices, lengths and places have a range that the model knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import onnx_ir as ir

from onnxc.values import static_shape
from onnxc.verify.inputs import Bounds

MOVES: Final = (
    *("Cast", "Concat", "Expand", "Flatten", "Identity", "Reshape"),
    *("Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"),
)
"""Operators whose result has the values of their first operand; of Concat, of all."""


def known_ranges(model: ir.Model) -> dict[str, Bounds]:
    """Of each input that ends up as an index, a length or a place, what is right for every use.

    model  with its types and shapes inferred
    """
    found = {}
    for value in model.graph.inputs:
        bounds = [(least, most) for least, most in _uses(value) if least <= most]
        if bounds and value.name:
            found[value.name] = (max(b[0] for b in bounds), min(b[1] for b in bounds))
    return {name: (least, most) for name, (least, most) in found.items() if least <= most}


def _uses(value: ir.Value) -> Iterator[Bounds]:
    """The least and the greatest that each use of `value`, or of what is made of it, takes."""
    stack, visited = [value], {value}
    while stack:
        for node, position in stack.pop().uses():
            if (node.op_type, position) in USES:
                yield from USES[node.op_type, position](node)
            if node.op_type in MOVES and (position == 0 or node.op_type == "Concat"):
                stack += [output for output in node.outputs if output not in visited]
                visited.update(node.outputs)


def _extent(node: ir.Node, operand: int, axis: int) -> int | None:
    """The size of a dimension of an operand of `node`, where it is known."""
    data = node.inputs[operand]
    shape = None if data is None else static_shape(data)
    return shape[axis] if shape and -len(shape) <= axis < len(shape) else None


def _integer(node: ir.Node, name: str, default: int) -> int:
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_int()


def _along_axis(node: ir.Node) -> Iterator[Bounds]:
    """Indices of the dimension `axis` of the first operand."""
    extent = _extent(node, 0, _integer(node, "axis", 0))
    if extent is not None:
        yield 0, extent - 1


def _tuples(node: ir.Node) -> Iterator[Bounds]:
    """Indices of the first dimensions behind those of the batch, side by side in the last one."""
    count, first = _extent(node, 1, -1), _integer(node, "batch_dims", 0)
    for axis in range(first, first + (count or 0)):
        extent = _extent(node, 0, axis)
        if extent is not None:
            yield 0, extent - 1


def _along(operand: int, axis: int) -> Callable[[ir.Node], Iterator[Bounds]]:
    """Indices of one dimension of one operand."""

    def bounds(node: ir.Node) -> Iterator[Bounds]:
        extent = _extent(node, operand, axis)
        if extent is not None:
            yield 0, extent - 1

    return bounds


def _times(node: ir.Node) -> Iterator[Bounds]:
    """Lengths of the rows of a recurrent operator; an empty one has no last value."""
    extent = _extent(node, 0, 1 if _integer(node, "layout", 0) else 0)
    if extent is not None:
        yield 1, extent


def _reversed(node: ir.Node) -> Iterator[Bounds]:
    extent = _extent(node, 0, _integer(node, "time_axis", 0))
    if extent is not None:
        yield 1, extent


def _written(node: ir.Node) -> Iterator[Bounds]:
    """Where an update begins, that has to end inside of the cache."""
    axis = _integer(node, "axis", -2)
    extent, length = _extent(node, 0, axis), _extent(node, 1, axis)
    if extent is not None and length is not None:
        yield 0, extent - length


def _places(node: ir.Node) -> Iterator[Bounds]:
    """Corners of regions inside of the images: the samples of a region grow with its size."""
    height, width = _extent(node, 0, 2), _extent(node, 0, 3)
    scale = node.attributes.get("spatial_scale")
    if height is not None and width is not None:
        yield 0, min(height, width) / (1.0 if scale is None else scale.as_float())


USES: Final[Mapping[tuple[str, int], Callable[[ir.Node], Iterator[Bounds]]]] = {
    **{(name, 1): _along_axis for name in ("Gather", "GatherElements")},
    **{(name, 1): _along_axis for name in ("Scatter", "ScatterElements")},
    **{(name, 1): _tuples for name in ("GatherND", "ScatterND")},
    **{(name, 4): _times for name in ("GRU", "LSTM", "RNN")},
    **{
        (name, 1): _along(0, 1) for name in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
    },
    ("ReverseSequence", 1): _reversed,
    ("RoiAlign", 1): _places,
    ("RoiAlign", 2): _along(0, 0),
    ("RotaryEmbedding", 3): _along(1, 0),
    ("TensorScatter", 2): _written,
}
"""By operator and position of an operand: the least and the greatest of its values that fit."""
