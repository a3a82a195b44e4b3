"""What ONNX's shape inference takes for granted: else it ends the process, or finds nonsense."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import onnx_ir as ir

from onnxc.diagnostics import Kind
from onnxc.errors import RefusalError


def check_taken_for_granted(node: ir.Node) -> None:
    """Of a node of the newest form. Raises RefusalError."""
    check = _CHECKS.get(node.op_type) if node.domain == "" else None
    if check is not None:
        check(node)


def _number(node: ir.Node, name: str) -> int | None:
    attribute = node.attributes.get(name)
    return None if attribute is None else int(attribute.value)


def _rank(node: ir.Node, position: int) -> int | None:
    value = node.inputs[position] if position < len(node.inputs) else None
    return None if value is None or value.shape is None else len(value.shape)


def _extent(node: ir.Node, position: int, axis: int) -> int | None:
    rank = _rank(node, position)
    if rank is None or not -rank <= axis < rank:
        return None
    value = node.inputs[position]
    assert value is not None
    assert value.shape is not None
    extent = value.shape[axis]
    return extent if isinstance(extent, int) else None


def _axis(node: ir.Node) -> None:
    axis, rank = _number(node, "axis"), _rank(node, 0)
    if axis is not None and rank is not None and not -rank <= axis < rank:
        raise RefusalError(
            Kind.AXIS_OUT_OF_RANGE, f"axis {axis} is not in a tensor of {rank} dimensions"
        )


def _split(node: ir.Node) -> None:
    parts = _number(node, "num_outputs")
    if parts is not None and parts != len(node.outputs):
        raise RefusalError(
            Kind.SPLIT_SIZES, f"num_outputs is {parts}, and there are {len(node.outputs)} outputs"
        )
    extent = _extent(node, 0, _number(node, "axis") or 0)
    if parts and extent is not None:
        each = -(-extent // parts)
        sizes = [each] * (parts - 1) + [extent - each * (parts - 1)]
        if sizes[-1] < 0:
            fact = f"{sizes} are no {parts} parts of {extent} elements"
            raise RefusalError(Kind.SPLIT_SIZES, fact, "give a size for each output")


def _gather_nd(node: ir.Node) -> None:
    batch = _number(node, "batch_dims") or 0
    ranks = [rank for n in range(2) if (rank := _rank(node, n)) is not None]
    if batch < 0 or any(batch >= rank for rank in ranks):
        raise RefusalError(
            Kind.ATTRIBUTE_VALUE, f"batch_dims is {batch} for tensors of {ranks} dimensions"
        )


_CHECKS: Final[dict[str, Callable[[ir.Node], None]]] = {
    "GatherND": _gather_nd,
    "LayerNormalization": _axis,
    "RMSNormalization": _axis,
    "Split": _split,
}
