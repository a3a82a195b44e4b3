"""The operators whose result has a size that only the data decides, and its maximum."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx_ir as ir

from onnxc.diagnostics import Kind
from onnxc.errors import RefusalError
from onnxc.values import static_shape, values_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

Shape = tuple[int, ...]
MAXIMUM: Final = "maximum"
"""In a value's meta: its shape is the largest that it can have."""


def maximum_shape(node: ir.Node) -> list[Shape] | None:
    """For each output, the largest shape that the data can give it; None for other operators.

    The node is of the newest form, the shapes of its inputs are known. Raises RefusalError where it
    has no such axis.
    """
    rule = _RULES.get(node.op_type) if node.domain == "" else None
    if rule is None or node.inputs[0] is None:
        return None
    shape = static_shape(node.inputs[0])
    return None if shape is None else rule(node, shape)


def varying_outputs(node: ir.Node) -> frozenset[int]:
    """Positions of the outputs whose size the data decides."""
    return _VARYING.get(node.op_type, _NONE) if node.domain == "" else _NONE


def value_of_known(node: ir.Node) -> NDArray[Any] | None:
    """What NonZero and Compress make of constants, in the size that it then has."""
    known = [None if v is None or v.const_value is None else v.const_value for v in node.inputs]
    arrays = [None if tensor is None else values_of(tensor) for tensor in known]
    match node.op_type, arrays:
        case "NonZero", [array] if array is not None and array.dtype != object:
            return _positions(np.asarray(array != 0))
        case "Compress", [array, condition] if array is not None and condition is not None:
            return _compressed(array, condition, _axis(node, array.shape))
    return None


def _positions(found: NDArray[Any]) -> NDArray[Any]:
    """One row a dimension, so none for a scalar."""
    if found.ndim == 0:
        return np.empty((0, int(found)), np.int64)
    return np.stack(np.nonzero(found)).astype(np.int64)


def _compressed(
    array: NDArray[Any], condition: NDArray[Any], axis: int | None
) -> NDArray[Any] | None:
    flat = array.reshape(-1) if axis is None else array
    position = 0 if axis is None else axis
    if condition.ndim != 1 or len(condition) > flat.shape[position]:
        return None
    return np.asarray(np.take(flat, np.nonzero(condition)[0], position))


def _axis(node: ir.Node, shape: Shape) -> int | None:
    attribute = node.attributes.get("axis")
    if attribute is None:
        return None
    axis = int(attribute.value)
    if not -len(shape) <= axis < len(shape):
        raise RefusalError(
            Kind.AXIS_OUT_OF_RANGE, f"axis {axis} is not in a tensor of {len(shape)} dimensions"
        )
    return axis


def _non_zero(_: ir.Node, shape: Shape) -> list[Shape]:
    return [(len(shape), math.prod(shape))]


def _compress(node: ir.Node, shape: Shape) -> list[Shape]:
    """No more than there are conditions."""
    condition = None if node.inputs[1] is None else static_shape(node.inputs[1])
    axis = _axis(node, shape)
    most = math.prod(shape) if axis is None else shape[axis]
    kept = min(most, condition[0]) if condition else most
    return [(kept,) if axis is None else _with(shape, axis, kept)]


def _unique(node: ir.Node, shape: Shape) -> list[Shape]:
    axis = _axis(node, shape)
    most = math.prod(shape) if axis is None else shape[axis]
    return [shape if axis is not None else (most,), (most,), (most,), (most,)]


def _with(shape: Shape, axis: int, extent: int) -> Shape:
    axis %= len(shape)
    return (*shape[:axis], extent, *shape[axis + 1 :])


def _non_max_suppression(node: ir.Node, boxes: Shape) -> list[Shape]:
    scores = None if node.inputs[1] is None else static_shape(node.inputs[1])
    if scores is None or len(scores) != 3 or len(boxes) != 3:
        return []
    each = boxes[1]
    limit = node.inputs[2] if len(node.inputs) > 2 else None
    if limit is None:
        each = 0
    elif limit.const_value is not None and limit.const_value.size == 1:
        each = max(0, min(each, int(values_of(limit.const_value).reshape(-1)[0])))
    return [(scores[0] * scores[1] * each, 3)]


_RULES: Final[dict[str, Callable[[ir.Node, Shape], list[Shape]]]] = {
    "NonZero": _non_zero,
    "Compress": _compress,
    "Unique": _unique,
    "NonMaxSuppression": _non_max_suppression,
}
_NONE: Final[frozenset[int]] = frozenset()
_VARYING: Final = {
    "NonZero": frozenset({0}),
    "Compress": frozenset({0}),
    "Unique": frozenset({0, 1, 3}),
    "NonMaxSuppression": frozenset({0}),
}
