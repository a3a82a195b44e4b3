"""A copy that reads along one axis and writes along another."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from onnxc.dtypes import BY_NAME, FLOAT
from onnxc.expression import Load
from onnxc.kernel import Loops, Micro
from onnxc.target import Target
from onnxc.tuned.walks import within_int32

INTEGERS: Final = (BY_NAME["int32"], BY_NAME["uint32"])
LEAST: Final = 1024
"""Elements below which the plain loops stay."""
BAND: Final = 64
LONG: Final = 256
"""Columns; no more are one band."""


@dataclass(frozen=True)
class Transpose:
    """What kernels/transpose.c.j2 writes: y[j][i] = x[i][j], the rows i and the columns j.

    outer         (extent, stride of x, stride of y) of the loops around
    x_row, y_row  elements from one row of x, and of y, to the next
    band          columns that are turned for all rows before the next
    c_type        of an element, of 32 bits
    """

    outer: tuple[tuple[int, int, int], ...]
    rows: int
    columns: int
    x_row: int
    y_row: int
    band: int
    c_type: str


def transpose(loops: Loops, target: Target) -> Micro | None:
    """The Micro of a merged kernel that copies; None of others, and of what has short sides."""
    value = loops.value
    if not isinstance(value, Load) or loops.partial or len(loops.where) != 1:
        return None
    source, where = value.flat, loops.where[0]
    if value.dtype not in (FLOAT, *INTEGERS) or source.dynamic or target.variants[-1].lanes == 1:
        return None
    row = next((axis for axis in loops.axes if where.stride(axis) == 1), None)
    column = next((axis for axis in loops.axes if source.stride(axis) == 1), None)
    if row is None or column is None or row is column or source.stride(row) < 1:
        return None
    lanes = max(variant.lanes for variant in target.variants)
    elements = math.prod(axis.extent for axis in loops.axes)
    if min(row.extent, column.extent) < lanes or where.stride(column) < 1 or elements < LEAST:
        return None
    if not within_int32(value.buffer, loops.out):
        return None
    others = [axis for axis in loops.axes if axis not in (row, column)]
    return Micro(
        "transpose",
        loops,
        (value.buffer,),
        Transpose(
            tuple((axis.extent, source.stride(axis), where.stride(axis)) for axis in others),
            row.extent,
            column.extent,
            source.stride(row),
            where.stride(column),
            BAND if column.extent > LONG else column.extent,
            value.dtype.c_type,
        ),
        value,
        value,
        starts=(source.const, where.const),
    )
