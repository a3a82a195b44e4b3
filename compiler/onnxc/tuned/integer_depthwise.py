"""Sums of products of 8-bit numbers where each channel has a filter of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from onnxc.centred import Centred
from onnxc.dtypes import INT32
from onnxc.expression import Axis, Buffer, Fold, Index
from onnxc.kernel import Loops, Micro
from onnxc.target import Target
from onnxc.traversal import axes_read
from onnxc.tuned.integer_product import (
    LEAST_WORK,
    constant_zeros,
    epilogue_of,
    factors_of,
)
from onnxc.tuned.product import only_fold
from onnxc.tuned.scalar import is_scalar
from onnxc.tuned.walks import gathered

WIDTH: Final = 16
"""To a multiple of how many channels constants are padded: the widest vector."""
MOST_TAPS: Final = 64
"""Of a filter, whose loops are unrolled."""


@dataclass(frozen=True)
class IntegerDepthwise:
    """What kernels/integer_depthwise.c.j2 writes.

    outer     extents of loops around that of `columns`
    channels  the innermost axis of the output; `width` of the constants
    folds     (extent, stride of the source) of the loops of a filter
    source    (start, stride of each outer loop, stride of a column), and so the result
    signed    whether the source is int8
    addends   the stride of a channel of each load of the epilogue
    """

    outer: tuple[int, ...]
    columns: int
    channels: int
    width: int
    folds: tuple[tuple[int, int], ...]
    source: tuple[int, tuple[int, ...], int]
    result: tuple[int, tuple[int, ...], int]
    signed: bool
    addends: tuple[int, ...]


def integer_depthwise(loops: Loops, target: Target) -> Micro | None:
    """The Micro of a merged kernel of filters known at compile time; None where it is no such."""
    fold = only_fold(loops)
    if fold is None or fold.dtype is not INT32 or loops.partial or is_scalar(target):
        return None
    lanes = next((a for a in reversed(loops.axes) if loops.where[0].stride(a) == 1), None)
    found = None if lanes is None else _operands(fold, lanes)
    epilogue = epilogue_of(loops.value, fold)
    if lanes is None or found is None or epilogue is None:
        return None
    pixels, filters = found
    points = [axis for axis in loops.axes if axis is not lanes and axis.extent > 1]
    if any(filters.source.flat.stride(axis) for axis in points):
        return None
    if any(
        not axes_read(load) <= {lanes} or load.flat.stride(lanes) not in (0, 1)
        for load in epilogue.loads
    ):
        return None
    taps = math.prod(axis.extent for axis in fold.axes)
    if taps > MOST_TAPS or taps * math.prod(a.extent for a in loops.axes) < LEAST_WORK:
        return None
    constants = _constants(pixels, filters, fold.axes, lanes)
    if constants is None:
        return None
    source, where = pixels.source.flat, loops.where[0]
    points.sort(key=lambda axis: -abs(where.stride(axis)))
    outer, column = points[:-1], points[-1] if points else None

    def walked(index: Index) -> tuple[int, tuple[int, ...], int]:
        strides = tuple(index.stride(axis) for axis in outer)
        return index.const, strides, index.stride(column) if column else 0

    parameters = IntegerDepthwise(
        outer=tuple(axis.extent for axis in outer),
        columns=column.extent if column else 1,
        channels=lanes.extent,
        width=constants.shape[1],
        folds=tuple((axis.extent, source.stride(axis)) for axis in fold.axes),
        source=walked(source),
        result=walked(where),
        signed=pixels.source.dtype.kind == "signed",
        addends=tuple(load.flat.stride(lanes) for load in epilogue.loads),
    )
    inputs = (pixels.source.buffer, constants)
    return Micro(
        "integer_depthwise",
        loops,
        inputs,
        parameters,
        loops.value,
        fold,
        epilogue.loads,
        starts=(0, 0, *(load.flat.const for load in epilogue.loads), 0),
    )


def _operands(fold: Fold, lanes: Axis) -> tuple[Centred, Centred] | None:
    """What is read at run time, with neighbours along the lanes, and the constant."""
    factors = factors_of(fold)
    if factors is None:
        return None
    known = [factor.source.buffer.data is not None for factor in factors]
    if known not in ([False, True], [True, False]):
        return None
    pixels, filters = factors if known[1] else factors[::-1]
    inside = pixels.source.flat.stride(lanes) == 1 and filters.source.flat.stride(lanes) != 0
    return (pixels, filters) if inside and pixels.constant is not None else None


def _constants(
    pixels: Centred, filters: Centred, taps: tuple[Axis, ...], lanes: Axis
) -> Buffer | None:
    """[1 + taps][width]: what a sum begins with, then the filter less its zero point."""
    zeros = constant_zeros(filters.zero, lanes)
    if zeros is None or pixels.constant is None:
        return None
    values = gathered(filters.source, (*taps, lanes)).astype(np.int64)
    values = values.reshape(-1, lanes.extent) - zeros
    start = -pixels.constant * values.sum(0, keepdims=True)
    rows = np.concatenate([start, values]).astype(np.int32)
    padded = np.pad(rows, ((0, 0), (0, -lanes.extent % WIDTH)))
    return Buffer(filters.source.buffer.name, padded.shape, INT32, "constant", padded)
