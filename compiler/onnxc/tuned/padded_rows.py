"""A copy of whole rows, with padding before and after each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from onnxc.dtypes import FLOAT, ElementType
from onnxc.expression import Axis, Const, Expr, Guard, Index, Load, static
from onnxc.kernel import Loops, Micro
from onnxc.target import Target
from onnxc.tuned.walks import within_int32

PADDED: Final = "padded"
"""The role of such a copy."""


@dataclass(frozen=True)
class PaddedRows:
    """What kernels/padded_rows.c.j2 writes: rows of `columns`, `before` and `after` them the fill.

    outer    (extent, stride of x, stride of y) of the loops around a row, in the order of y
    fill     each byte of the padding: 0 but for 8-bit numbers
    c_type   of an element
    counted  whether the caller says how often the outermost loop runs
    """

    outer: tuple[tuple[int, int, int], ...]
    columns: int
    before: int
    after: int
    fill: int
    c_type: str
    counted: bool = False

    @property
    def row(self) -> int:
        """Elements of y."""
        return self.before + self.columns + self.after


def padded_rows(loops: Loops, target: Target) -> Micro | None:
    """The Micro of a merged kernel that copies so for a convolution; None of others."""
    value = loops.value
    if not isinstance(value, Guard) or loops.role != PADDED or target.variants[-1].lanes == 1:
        return None
    source, fill = value.value, fill_of(value.otherwise)
    if not isinstance(source, Load) or fill is None or loops.partial or len(loops.where) != 1:
        return None
    found = _row(value, source.flat, loops.where[0])
    if found is None or not within_int32(source.buffer, loops.out):
        return None
    axis, before, columns = found
    outer = sorted(
        (
            (other.extent, source.flat.stride(other), loops.where[0].stride(other))
            for other in loops.axes
            if other is not axis
        ),
        key=lambda walk: -walk[2],
    )
    parameters = PaddedRows(
        tuple(outer),
        columns,
        before,
        static(axis.extent) - before - columns,
        fill,
        source.dtype.c_type,
    )
    starts = (source.flat.const + before, loops.where[0].const)
    inputs = (source.buffer,)
    return Micro("padded_rows", loops, inputs, parameters, value, value, starts=starts)


def fill_of(value: Expr) -> int | None:
    """The byte that all of a constant consists of; None where memset cannot store it."""
    if not isinstance(value, Const) or not _is_plain(value.dtype):
        return None
    found = {*value.raw}
    return found.pop() if len(found) == 1 else None


def _is_plain(dtype: ElementType) -> bool:
    return dtype is FLOAT or dtype.bits == 8


def _row(value: Guard, source: Index, where: Index) -> tuple[Axis, int, int] | None:
    """The axis that walks a row and its padding, how many elements lie before it, and its own."""
    if len(value.bounds) != 1 or source.dynamic or where.dynamic:
        return None
    ((index, extent),) = value.bounds
    if index.dynamic or len(index.terms) != 1:
        return None
    ((axis, step),) = index.terms
    before, columns = -index.const, static(extent)
    within = before >= 0 and before + columns <= static(axis.extent)
    neighbours = step == source.stride(axis) == where.stride(axis) == 1
    return (axis, before, columns) if within and neighbours else None
