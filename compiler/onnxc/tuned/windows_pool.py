"""The greatest of each window of an image with channels last: vectors of channels."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from typing import Final

from onnxc.dtypes import FLOAT
from onnxc.expression import Apply, Axis, Expr, Fold, Guard, Index, Load, literal
from onnxc.kernel import Loops, Micro
from onnxc.target import Target, Variant
from onnxc.traversal import replace_subexpression, walk
from onnxc.tuned.geometry import Step
from onnxc.tuned.product import in_vectors
from onnxc.tuned.walks import within_int32

WIDTH: Final = 16
"""Channels from which on every variant fills a vector; of fewer the plain loops stay."""
LEAST: Final = 1024
"""Results below which they stay too."""
LITTLE: Final = 8
"""Operations that may follow the maximum."""
REACH: Final = 32
"""Columns that a tile may read: its loop over them is written out."""
LOWEST: Final = literal(FLOAT, -math.inf)


@dataclass(frozen=True)
class Direction:
    """Windows along one dimension of an image.

    outputs   how many there are, each `stride` after the one before
    taps      of a window, `dilation` apart
    before    how far before the first element the first window begins
    extent    elements that there are: taps elsewhere are none of the window
    """

    outputs: int
    taps: int
    stride: int
    dilation: int
    before: int
    extent: int

    def held(self, window: int) -> range:
        """The taps of a window that are elements."""
        begin = window * self.stride - self.before
        last = (self.extent - 1 - begin) // self.dilation
        return range(max(0, -(begin // self.dilation)), min(self.taps - 1, last) + 1)

    @property
    def whole(self) -> range:
        """The windows of which every tap is an element."""
        found = [n for n in range(self.outputs) if len(self.held(n)) == self.taps]
        return range(found[0], found[-1] + 1) if found else range(0)

    @property
    def reach(self) -> int:
        """Elements from the first to the last tap of a window, both included."""
        return (self.taps - 1) * self.dilation + 1


@dataclass(frozen=True)
class Pitch:
    """Floats from one image to the next, from one row, and from one column."""

    image: int
    row: int
    column: int


@dataclass(frozen=True)
class Pool:
    """What kernels/pool_windows.c.j2 writes: of each channel, y = the greatest of a window of x.

    addends   of each load of the epilogue
    positive  whether no element is below +0, unless it is NaN: then bits compare as integers
    above     rows from the top of the first window down to the one that x points at; None: x points
              at the top of that window which is asked for first
    counted   whether the caller says how many rows there are, and the number of the first one
    """

    rows: Direction
    columns: Direction
    channels: int
    images: int
    x: Pitch
    y: Pitch
    addends: tuple[Step, ...]
    positive: bool
    above: int | None
    counted: bool = False

    @property
    def numbered(self) -> bool:
        """Whether the number of the first row tells which taps are elements."""
        return len(self.rows.whole) < self.rows.outputs


@dataclass(frozen=True)
class _Walk:
    """The axes of a kernel; those that there are not are None."""

    image: Axis | None
    row: Axis | None
    column: Axis | None
    lane: Axis


def pool(loops: Loops, twin: Loops, target: Target, *, positive: bool) -> Micro | None:
    """The Micro of a kernel, `twin` once merged; None where it is no maximum of windows.

    positive  whether no element that it reads is below +0, unless it is NaN
    """
    fold = only_maximum(loops)
    if fold is None or target.variants[-1].lanes == 1 or target.small or loops.partial:
        return None
    bounds, source = _window(fold)
    place = None if source is None else _walk_of(loops, fold, source)
    if source is None or place is None:
        return None
    addends = _addends(loops.value, fold, source)
    if addends is None or not all(_is_walked(load.flat, place) for load in addends):
        return None
    if not within_int32(source.buffer, loops.out):
        return None
    rows = _direction(source.indices[-3], place.row, fold, bounds)
    columns = _direction(source.indices[-2], place.column, fold, bounds)
    if rows is None or columns is None or bounds or columns.reach > REACH:
        return None
    parameters = _parameters(loops, source, place, rows, columns, addends, positive=positive)
    begin = rows.before * parameters.x.row + columns.before * parameters.x.column
    start, stop = source.flat.const + begin, twin.where[0].const
    return Micro(
        "pool_windows",
        twin,
        (source.buffer,),
        parameters,
        loops.value,
        fold,
        addends,
        starts=(start, *(load.flat.const for load in addends), stop),
        in_place=_keeps_order(loops, place, parameters, start - stop),
    )


def only_maximum(loops: Loops) -> Fold | None:
    """The one Fold of a kernel, if that is a maximum."""
    folds = [node for node in walk(*loops.roots()) if isinstance(node, Fold)]
    if len(folds) != 1 or (folds[0].operation, folds[0].hint) != ("max", ""):
        return None
    return folds[0]


def _addends(value: Expr, fold: Fold, source: Load) -> tuple[Load, ...] | None:
    """What is loaded after the maximum; None where that is no little work for vectors."""
    if not in_vectors(replace_subexpression(value, fold, source)):
        return None
    nodes = [*walk(value, inner=False)]
    found = tuple(node for node in nodes if isinstance(node, Load))
    little = sum(isinstance(node, Apply) for node in nodes) <= LITTLE
    return found if little and not any(load.flat.dynamic for load in found) else None


def _is_walked(index: Index, place: _Walk) -> bool:
    """Whether what the epilogue loads is one value or a vector, and the same for every image."""
    return index.stride(place.lane) in (0, 1) and not _stride(place.image, index)


def _parameters(
    loops: Loops,
    source: Load,
    walk: _Walk,
    rows: Direction,
    columns: Direction,
    addends: tuple[Load, ...],
    *,
    positive: bool,
) -> Pool:
    pixel, place = source.buffer.shape[-1], loops.out.flat(loops.where)
    return Pool(
        rows,
        columns,
        walk.lane.extent,
        _extent(walk.image),
        Pitch(_stride(walk.image, source.flat), pixel * source.buffer.shape[-2], pixel),
        Pitch(*(_stride(axis, place) for axis in (walk.image, walk.row, walk.column))),
        tuple(
            Step(*(_stride(axis, load.flat) for axis in (walk.row, walk.column, walk.lane)))
            for load in addends
        ),
        positive,
        rows.before,
    )


def _window(fold: Fold) -> tuple[dict[Index, int], Load | None]:
    """The extents of the indices that are checked, and what is read where they are in range."""
    value = fold.value
    if not isinstance(value, Guard):
        return {}, _of_floats(value)
    return dict(value.bounds), _of_floats(value.value) if value.otherwise is LOWEST else None


def _of_floats(value: object) -> Load | None:
    return value if isinstance(value, Load) and value.dtype is FLOAT else None


def _walk_of(loops: Loops, fold: Fold, source: Load) -> _Walk | None:
    """None where a dimension of what is read is not walked as one of an image is."""
    shape, indices = source.buffer.shape, source.indices
    if len(shape) < 3 or len(indices) != len(shape) or loops.out.dtype is not FLOAT:
        return None
    if any(index.dynamic for index in (*loops.where, *indices)):
        return None
    *outer, row, column, lane = ([a for a, _ in i.terms if a in loops.axes] for i in indices)
    images = [axis for axes in outer for axis in axes]
    walked = [*images, *row, *column, *lane]
    looping = [axis for axis in loops.axes if axis.extent > 1]
    if max(len(images), len(row), len(column)) > 1 or len(lane) != 1:
        return None
    if len({*walked}) != len(walked) or {*looping} - {*walked}:
        return None
    taps = [[a for a, _ in index.terms if a in fold.axes] for index in indices]
    if any(taps[n] for n in range(-len(taps), 0) if n not in (-3, -2)) or {*taps[-3]} & {*taps[-2]}:
        return None
    if indices[-1].stride(lane[0]) != 1:
        return None
    if loops.out.flat(loops.where).stride(lane[0]) != 1 or loops.out.elements < LEAST:
        return None
    if lane[0].extent < WIDTH:
        return None
    image, down, across = (axes[0] if axes else None for axes in (images, row, column))
    return _Walk(image, down, across, lane[0])


def _direction(
    index: Index, axis: Axis | None, fold: Fold, bounds: dict[Index, int]
) -> Direction | None:
    """How windows lie along one index; its bound, if it has one, is taken from `bounds`.

    None where a step is backwards, or a window holds no element.
    """
    taps = [(tap, stride) for tap, stride in index.terms if tap in fold.axes]
    bound = next((checked for checked in bounds if checked.terms == index.terms), None)
    stride = _stride(axis, index) if axis else 1
    tap, dilation = taps[0] if taps else (None, 1)
    if len(taps) > 1 or stride < 1 or dilation < 1:
        return None
    outputs, count = _extent(axis), _extent(tap)
    reach = (outputs - 1) * stride + (count - 1) * dilation + 1
    before, extent = (0, reach) if bound is None else (-bound.const, bounds.pop(bound))
    found = Direction(outputs, count, stride, dilation, before, extent)
    return found if all(found.held(n) for n in range(outputs)) else None


def _keeps_order(loops: Loops, walk: _Walk, p: Pool, apart: int) -> bool:
    """Whether each channel's windows are stored in the order in which the plain loops do, and only
    where that channel is read: then the result may take the place of the operand.

    apart  floats from where y begins to where x does, if they begin at the same place
    """
    order = [axis for axis in (walk.image, walk.row, walk.column, walk.lane) if axis]
    looping = [axis for axis in loops.axes if axis.extent > 1]
    steps = (*astuple(p.x), *astuple(p.y), apart)
    alone = p.y.column > 0 and all(step % p.y.column == 0 for step in steps) and not p.addends
    return alone and looping == [axis for axis in order if axis.extent > 1]


def _extent(axis: Axis | None) -> int:
    return 1 if axis is None else axis.extent


def _stride(axis: Axis | None, index: Index) -> int:
    return 0 if axis is None else index.stride(axis)


def pixels_of(parameters: Pool, variant: Variant) -> int:
    """How many windows of a row at once: of an even part of it, if one is near the best."""
    columns = parameters.columns
    room = (REACH - columns.reach) // columns.stride + 1
    most = min(room, len(columns.whole), 7 if variant.registers >= 32 else 4)
    even = (n for n in range(most, most // 2, -1) if len(columns.whole) % n == 0)
    return next(even, max(1, most))
