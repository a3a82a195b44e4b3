"""Sums of products of 8-bit numbers where each channel has a filter of its own.

Two taps are multiplied at once, as the halves of an int32. Where pixels lie one after the other,
some of them side by side are as many channels more, so that vectors are whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxc.centred import Centred
from onnxc.dtypes import INT32
from onnxc.expression import Axis, Buffer, Fold, Index, Load
from onnxc.kernel import Loops, Micro
from onnxc.target import Target, Variant
from onnxc.traversal import axes_read
from onnxc.tuned.integer_product import (
    LEAST_WORK,
    constant_zeros,
    epilogue_of,
    factors_of,
    widened,
)
from onnxc.tuned.product import only_fold
from onnxc.tuned.scalar import is_scalar
from onnxc.tuned.walks import gathered

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

WIDTH: Final = 16
"""To a multiple of how many channels constants are padded: the widest vector."""
MOST_TAPS: Final = 64
"""Of a filter, whose loops are unrolled."""
MOST_EMPTY: Final = 1.25
"""Lanes of whole vectors for a channel, above which pixels are put side by side."""
MOST_SIDE: Final = 256
"""Channels of all pixels side by side, so that constants stay small."""
MOST_UNROLLED: Final = 32
"""Turns of one loop, as the compiler is told; and 3 times that of products of a tile."""


@dataclass(frozen=True)
class IntegerDepthwise:
    """What kernels/integer_depthwise.c.j2 writes.

    outer     extents of loops around that of `columns`
    channels  the innermost axis of the output, of `pixels` side by side; `width` of the constants
    across    (taps, stride of the source) of the taps that neighbouring columns may have in common
    down      where in the source each of the other taps begins
    source    (start, stride of each outer loop, stride of a column), and so the result
    signed    whether the source is int8
    addends   the stride of a channel of each load of the epilogue
    """

    outer: tuple[int, ...]
    columns: int
    channels: int
    pixels: int
    width: int
    across: tuple[int, int]
    down: tuple[int, ...]
    source: tuple[int, tuple[int, ...], int]
    result: tuple[int, tuple[int, ...], int]
    signed: bool
    addends: tuple[int, ...]

    @property
    def pairs(self) -> int:
        """Of the taps below one another."""
        return -(-len(self.down) // 2)


@dataclass(frozen=True)
class Tile:
    """What is summed at once: `rows` vectors, each `step` places further in the source, where a tap
    is `spread` places from the next: all read `places`, `stride` elements apart.
    """

    rows: int
    step: int
    spread: int
    places: int
    stride: int


def tile_of(p: IntegerDepthwise, variant: Variant) -> Tile:
    """As many vectors as leave registers for a filter of 3x3, and as the columns fill."""
    products = 3 * MOST_UNROLLED // (p.across[0] * p.pairs)
    most = max(1, min(products, variant.registers // 4, p.columns // p.pixels))
    units = -(-p.columns // p.pixels)
    rows = -(-units // -(-units // most))
    while rows > 1 and (rows * p.pixels > p.columns or _tile(p, rows).places > MOST_UNROLLED):
        rows -= 1
    return _tile(p, rows)


def _tile(p: IntegerDepthwise, rows: int) -> Tile:
    return _tile_of(p.across, p.source[2] * p.pixels if rows > 1 else 0, rows)


def _tile_of(across: tuple[int, int], column: int, rows: int) -> Tile:
    taps, stride = across
    unit = math.gcd(column if rows > 1 else 0, stride if taps > 1 else 0) or 1
    step, spread = column // unit if rows > 1 else 0, stride // unit if taps > 1 else 1
    return Tile(rows, step, spread, (rows - 1) * step + (taps - 1) * spread + 1, unit)


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
    source, where = pixels.source.flat, loops.where[0]
    points.sort(key=lambda axis: -abs(where.stride(axis)))
    outer, column = points[:-1], points[-1] if points else None
    if column and source.stride(column) < 0:
        return None
    shared = _shared(fold, source.stride(column) if column else 0, source)
    others = [axis for axis in fold.axes if axis is not shared]
    constants = _constants(pixels, filters, (*([shared] if shared else []), *others), lanes, shared)
    if constants is None:
        return None

    def walked(index: Index) -> tuple[int, tuple[int, ...], int]:
        strides = tuple(index.stride(axis) for axis in outer)
        return index.const, strides, index.stride(column) if column else 0

    parameters = IntegerDepthwise(
        outer=tuple(axis.extent for axis in outer),
        columns=column.extent if column else 1,
        channels=lanes.extent,
        pixels=1,
        width=0,
        across=(shared.extent, source.stride(shared)) if shared else (1, 0),
        down=tuple(_offsets(others, source)),
        source=walked(source),
        result=walked(where),
        signed=pixels.source.dtype.kind == "signed",
        addends=tuple(load.flat.stride(lanes) for load in epilogue.loads),
    )
    side = _side(parameters, epilogue.loads)
    channels = lanes.extent * side
    rows = np.pad(np.tile(constants, (1, side)), ((0, 0), (0, -channels % WIDTH)))
    packed = Buffer(filters.source.buffer.name, rows.shape, INT32, "constant", rows)
    parameters = replace(parameters, channels=channels, pixels=side, width=rows.shape[1])
    value, addends = widened(loops.value, epilogue.loads, lanes, parameters.width, side)
    return Micro(
        "integer_depthwise",
        loops,
        (pixels.source.buffer, packed),
        parameters,
        value,
        fold,
        addends,
        starts=(0, 0, *(number.flat.const for number in addends), 0),
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


def _shared(fold: Fold, column: int, source: Index) -> Axis | None:
    """The axis of the taps that neighbouring columns have in common, if loads are saved by that."""
    taps = math.prod(axis.extent for axis in fold.axes)
    rows = 4 if column else 1

    def cost(axis: Axis | None) -> int:
        across = (axis.extent, source.stride(axis)) if axis else (1, 0)
        down = taps // across[0]
        places = _tile_of(across, column, rows).places if axis else rows
        if across[1] < 0 or places > MOST_UNROLLED:
            return 2**31
        return 2 * places * down + 2 * rows * across[0] * -(-down // 2)

    return min((None, *fold.axes), key=cost)


def _offsets(axes: list[Axis], source: Index) -> Iterator[int]:
    for place in np.ndindex(*(axis.extent for axis in axes)):
        yield sum(n * source.stride(axis) for n, axis in zip(place, axes, strict=True))


def _constants(
    pixels: Centred,
    filters: Centred,
    taps: tuple[Axis, ...],
    lanes: Axis,
    shared: Axis | None,
) -> Array | None:
    """[1 + across * pairs][channels]: what a sum begins with, then the filter less its zero point,
    two taps each: int16 in the lower and the upper half.
    """
    zeros = constant_zeros(filters.zero, lanes)
    if zeros is None or pixels.constant is None:
        return None
    values = gathered(filters.source, (*taps, lanes)).astype(np.int64)
    values = values.reshape(shared.extent if shared else 1, -1, lanes.extent) - zeros
    start = -pixels.constant * values.sum((0, 1))
    padded = np.pad(values, ((0, 0), (0, values.shape[1] % 2), (0, 0)))
    halves = padded.reshape(-1, 2, lanes.extent) & 0xFFFF
    rows = np.concatenate([start[None], halves[:, 0] | halves[:, 1] << 16])
    return rows.astype(np.uint32).view(np.int32)


def _side(p: IntegerDepthwise, loads: tuple[Load, ...]) -> int:
    """How many pixels side by side fill whole vectors; 1 where they do not lie so."""
    channels, columns = p.channels, p.columns
    side = math.lcm(channels, WIDTH) // channels
    known = all(number.buffer.data is not None for number in loads)
    dense = p.source[2] == p.result[2] == channels
    if -(-channels // WIDTH) * WIDTH < MOST_EMPTY * channels or not (dense and known):
        return 1
    return side if side <= columns and side * channels <= MOST_SIDE else 1
