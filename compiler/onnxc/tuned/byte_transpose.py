"""A copy of bytes that reads along one axis and writes along another."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from onnxc.expression import Load
from onnxc.kernel import Loops, Micro
from onnxc.target import Target
from onnxc.tuned.walks import within_int32

SIDE: Final = 16
"""Of a square of bytes."""
LEAST: Final = 2048
"""Elements below which the plain loops stay."""


@dataclass(frozen=True)
class ByteTranspose:
    """What kernels/byte_transpose.c.j2 writes: y[j][i] = x[i][j], the rows i and the columns j.

    outer         (extent, stride of x, stride of y) of the loops around
    x_row, y_row  bytes from one row of x, and of y, to the next
    c_type        of an element
    """

    outer: tuple[tuple[int, int, int], ...]
    rows: int
    columns: int
    x_row: int
    y_row: int
    c_type: str


def byte_transpose(loops: Loops, target: Target) -> Micro | None:
    """The Micro of a merged kernel that copies bytes; None of others, and where sides are short."""
    value = loops.value
    if not isinstance(value, Load) or loops.partial or len(loops.where) != 1:
        return None
    source, where = value.flat, loops.where[0]
    if value.dtype.bits != 8 or source.dynamic or target.variants[-1].lanes == 1:
        return None
    row = next((axis for axis in loops.axes if where.stride(axis) == 1), None)
    column = next((axis for axis in loops.axes if source.stride(axis) == 1), None)
    if row is None or column is None or row is column:
        return None
    if min(row.extent, column.extent) < SIDE or min(source.stride(row), where.stride(column)) < 1:
        return None
    if math.prod(axis.extent for axis in loops.axes) < LEAST:
        return None
    if not within_int32(value.buffer, loops.out):
        return None
    others = [axis for axis in loops.axes if axis not in (row, column)]
    parameters = ByteTranspose(
        tuple((axis.extent, source.stride(axis), where.stride(axis)) for axis in others),
        row.extent,
        column.extent,
        source.stride(row),
        where.stride(column),
        value.dtype.c_type,
    )
    starts = (source.const, where.const)
    return Micro("byte_transpose", loops, (value.buffer,), parameters, value, value, starts=starts)
