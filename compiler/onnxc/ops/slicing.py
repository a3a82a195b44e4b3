"""Operators whose result is a window on the data, which may reach beyond it: Slice, Pad and kin."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from onnxc.diagnostics import Kind
from onnxc.dtypes import INT32, INT64
from onnxc.errors import RefusalError
from onnxc.expression import Buffer, Checked, Expr, Index, along, apply, at, compare, literal, where
from onnxc.kernel import Loops, define
from onnxc.op import Declared, Ints, op
from onnxc.ops.agreement import (
    agreed,
    declared_shape,
    entries_of,
    entry_at,
    equals,
    every,
    nothing,
    table,
)
from onnxc.ops.assembly import part
from onnxc.ops.checks import dimensions, require_choice, require_table, scalar
from onnxc.status import Status
from onnxc.tensor import (
    Shape,
    Tensor,
    compute,
    constant,
    dynamic,
    from_start,
    full,
    guarded,
    of_buffer,
    zero,
)

MODES: Final = ("constant", "edge", "reflect", "wrap")


@op("Slice", exact=True)
def slice_(
    data: Tensor,
    starts: Ints | Tensor,
    ends: Ints | Tensor,
    axes: Ints | Tensor | None,
    steps: Ints | Tensor | None,
    *,
    declared: Declared,
) -> Tensor:
    if (
        isinstance(starts, Tensor)
        or isinstance(ends, Tensor)
        or isinstance(axes, Tensor)
        or isinstance(steps, Tensor)
    ):
        return _run_time_slice(data, starts, ends, axes, steps, declared_shape(declared))
    by = (1,) * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(by):
        raise RefusalError(Kind.ENTRY_COUNT, "starts, ends and steps are not of one length")
    if 0 in by:
        raise RefusalError(Kind.NUMBER_OUT_OF_RANGE, "a step is 0")
    ranges = [range(extent) for extent in data.shape]
    named = _named(axes, len(starts), data.rank)
    for dimension, start, end, step in zip(named, starts, ends, by, strict=True):
        ranges[dimension] = _steps_between(start, end, step, data.shape[dimension])

    def element(*indices: Index) -> Expr:
        pairs = zip(indices, ranges, strict=True)
        return data[[index * walk.step + walk.start for index, walk in pairs]]

    return compute(tuple(len(walk) for walk in ranges), element)


def _steps_between(start: int, end: int, step: int, extent: int) -> range:
    """As a slice of Python, but of a start before the first element, backwards: that element."""
    start, end = (bound + extent if bound < 0 else bound for bound in (start, end))
    greatest = extent - 1 if step < 0 else extent
    first = min(max(start, 0), greatest)
    return range(first, min(max(end, -1 if step < 0 else 0), greatest), step)


def _named(axes: Ints | None, entries: int, rank: int) -> tuple[int, ...]:
    """Without axes the first dimensions."""
    return dimensions(range(entries) if axes is None else axes, entries, rank)


def _vector(operand: Ints | Tensor) -> Tensor:
    return table(operand) if isinstance(operand, tuple) else operand


@dataclass(frozen=True)
class _Bounds:
    """Where a slice is in each dimension; `entries` says which element of the operands, -1 none."""

    entries: Tensor
    extents: Tensor
    starts: Tensor
    ends: Tensor
    steps: Tensor | None

    def step(self, dimension: Index) -> Expr:
        if self.steps is None:
            return literal(INT64, 1)
        return entry_at(self.steps, self.entries[[dimension]], 1)

    def start(self, dimension: Index) -> Expr:
        given = entry_at(self.starts, self.entries[[dimension]], 0)
        return self._clamped(given, dimension, 0)

    def length(self, dimension: Index) -> Expr:
        """-1 where the step is 0."""
        by, first = self.step(dimension), self.start(dimension)
        given = entry_at(self.ends, self.entries[[dimension]], self.extents[[dimension]])
        stop = self._clamped(given, dimension, where(by < 0, literal(INT64, -1), 0))
        distance = where(by < 0, first - stop, stop - first)
        parts = apply("div", distance - 1, where(by < 0, -by, by)) + 1
        return where(compare("equal", by, 0), -1, where(distance > 0, parts, 0))

    def _clamped(self, value: Expr, dimension: Index, least: Expr | int) -> Expr:
        extent = self.extents[[dimension]]
        greatest = where(self.step(dimension) < 0, extent - 1, extent)
        return apply("min", apply("max", from_start(value, extent), least), greatest)


def _run_time_slice(
    data: Tensor,
    starts: Ints | Tensor,
    ends: Ints | Tensor,
    axes: Ints | Tensor | None,
    steps: Ints | Tensor | None,
    shape: Shape,
) -> Tensor:
    """One whose shape the model declares; a step of 0 gives no shape."""
    starts, ends = _vector(starts), _vector(ends)
    steps = None if steps is None else _vector(steps)
    if not starts.shape == ends.shape == (starts if steps is None else steps).shape:
        raise RefusalError(Kind.ENTRY_COUNT, "starts, ends and steps are not of one length")
    entries, sliced = _entries(axes, starts.elements, data.shape, shape)
    if data.elements == 0:
        return nothing(shape, data.dtype, Status.SHAPE_MISMATCH)
    rank, wanted = (data.rank,), table(shape)
    bounds = _Bounds(entries, table(data.shape), starts, ends, steps)
    fine = compute(rank, lambda d: compare("equal", bounds.length(d), wanted[[d]]))
    fine = fine.stored("whether the slice has the declared length")

    def checked_start(dimension: Index) -> Expr:
        safe = where(fine[[dimension]], bounds.start(dimension), 0)
        return Checked(INT64, safe, fine[[dimension]], Status.SHAPE_MISMATCH)

    first = compute(rank, checked_start).stored("where the slice starts")
    by = compute(rank, lambda d: where(fine[[d]], bounds.step(d), 0)).stored("the steps")

    def place(dimension: int, index: Index) -> Index:
        if dimension not in sliced:
            return index
        begin = dynamic(first[[Index(dimension)]])
        if steps is not None:
            return begin + dynamic(at(index) * by[[Index(dimension)]])
        # A slice that does not fit starts at 0, and must end within the dimension.
        return begin + index if shape[dimension] <= data.shape[dimension] else begin

    result = compute(shape, lambda *indices: data[[place(d, i) for d, i in enumerate(indices)]])
    if result.elements:
        return result
    return agreed(result, every(data.rank, lambda dimension: fine[[dimension]]))


def _entries(
    axes: Ints | Tensor | None, count: int, old: Shape, new: Shape
) -> tuple[Tensor, tuple[int, ...]]:
    """For each dimension the position of its entry among `count`, or -1; those that may have one.

    Raises RefusalError where another dimension has not kept its extent.
    """
    rank = len(old)
    if len(new) != rank:
        raise RefusalError(Kind.RESULT_SHAPE, f"the declared {list(new)} has not {rank} dimensions")
    if isinstance(axes, Tensor):
        if axes.shape != (count,):
            raise RefusalError(
                Kind.ENTRY_COUNT, f"{count} entries for axes of shape {list(axes.shape)}"
            )
        return entries_of(axes, rank), tuple(range(rank))
    named = _named(axes, count, rank)
    if any(old[d] != new[d] for d in range(rank) if d not in named):
        raise RefusalError(Kind.RESULT_SHAPE, f"{list(old)} cannot become the declared {list(new)}")
    return table(named.index(d) if d in named else -1 for d in range(rank)), named


@op("Pad", exact=True)
def pad(
    data: Tensor,
    pads: Ints | Tensor,
    constant_value: Tensor | None,
    axes: Ints | Tensor | None,
    *,
    mode: str,
    declared: Declared,
) -> Tensor:
    """Negative pads crop first; what is left is padded. Reflections are repeated as needed."""
    require_choice("mode", mode, MODES)
    if isinstance(pads, Tensor) or isinstance(axes, Tensor):
        return _run_time_pad(data, pads, constant_value, axes, mode, declared_shape(declared))
    if len(pads) % 2:
        raise RefusalError(Kind.ENTRY_COUNT, f"{len(pads)} pads", "give two for each axis")
    named = dimensions(axes, len(pads) // 2, data.rank)
    before, after = [0] * data.rank, [0] * data.rank
    for n, dimension in enumerate(named):
        before[dimension], after[dimension] = pads[n], pads[n + len(named)]
    shape = tuple(sum(parts) for parts in zip(data.shape, before, after, strict=True))
    if any(extent < 0 for extent in shape):
        raise RefusalError(Kind.PADS, f"pads {list(pads)} do not fit {list(data.shape)}")
    if mode == "constant":
        return _framed(data, before, shape, constant_value)
    walks = [
        _walk(extent, first, last, mode)
        for extent, first, last in zip(data.shape, before, after, strict=True)
    ]
    source = data.shared("what is padded")

    def element(*indices: Index) -> Expr:
        return source[[walk(index) for walk, index in zip(walks, indices, strict=True)]]

    return compute(shape, element)


def _fill(data: Tensor, value: Tensor | None) -> Expr:
    return zero(data.dtype) if value is None else scalar("constant_value", value)


def _framed(data: Tensor, before: Sequence[int], shape: Shape, value: Tensor | None) -> Tensor:
    """The data from the place `before` on (what is below 0 is cropped), `value` around it.

    What is around is filled, and the data written into it: to ask at each element takes four times
    as long.
    """
    starts = [max(0, first) for first in before]
    ends = [min(n + b, m) for n, b, m in zip(data.shape, before, shape, strict=True)]
    inner = tuple(max(0, end - start) for start, end in zip(starts, ends, strict=True))

    def element(*indices: Index) -> Expr:
        places = zip(indices, starts, before, strict=True)
        return data[[index + (start - first) for index, start, first in places]]

    fill = _fill(data, value)
    if 0 in inner:
        return full(shape, fill)
    picture = compute(inner, element)
    if inner == shape:
        return picture
    out = Buffer("", shape, data.dtype, "workspace")
    around = [part(out, full(shape, fill), "what is around the data")]
    if math.prod(shape) - math.prod(inner) < math.prod(inner):
        around = [_slab(out, slab, fill) for slab in _slabs(shape, inner, starts)]
    define((*around, part(out, picture, "the data", starts)))
    return of_buffer(out)


@dataclass(frozen=True)
class _Slab:
    """A box of a frame: from `starts` on of `shape`; `again`, if not 0, so much further on, too.

    dimension   the one along which it lies beside the data
    """

    dimension: int
    starts: tuple[int, ...]
    shape: Shape
    again: int


def _slabs(shape: Shape, inner: Shape, starts: Sequence[int]) -> Iterator[_Slab]:
    """All of `shape` but a box of the shape `inner` in it."""
    for d, (whole, extent, start) in enumerate(zip(shape, inner, starts, strict=True)):
        before, after = start, whole - start - extent
        if before == after:
            ends = [(0, before, before + extent)]
        else:
            ends = [(0, before, 0), (start + extent, after, 0)]
        for first, width, again in ends:
            if width:
                corner = (*starts[:d], first, *(0 for _ in shape[d + 1 :]))
                yield _Slab(d, corner, (*inner[:d], width, *shape[d + 1 :]), again)


def _slab(out: Buffer, slab: _Slab, fill: Expr) -> Loops:
    sides = full((2 if slab.again else 1, *slab.shape), fill)
    side, *walks = (Index() if axis.extent == 1 else along(axis) for axis in sides.axes)
    places = [walk + start for walk, start in zip(walks, slab.starts, strict=True)]
    places[slab.dimension] = places[slab.dimension] + side * slab.again
    role = "what is around the data"
    return Loops(out, tuple(places), sides.axes, sides.value, role=role)


def _walk(extent: int, before: int, after: int, mode: str) -> Callable[[Index], Index]:
    """Where in a dimension the elements of its padded form come from."""
    start, length = max(0, -before), extent + min(before, 0) + min(after, 0)
    padded = before > 0 or after > 0
    if padded and length <= 0 and extent + before + after > 0:
        raise RefusalError(Kind.PADS, f"mode {mode!r} has no element to take", "crop less")
    if not padded:
        return lambda index: index + start
    require_table(extent + before + after)
    beyond = np.arange(-max(before, 0), length + max(after, 0))
    places = constant((_inside(beyond, length, mode) + start).astype(np.int32), INT32)
    return lambda index: dynamic(places[[index]])


def _inside(place: NDArray[np.int64], length: int, mode: str) -> NDArray[np.int64]:
    """Which of `length` elements stands at places that may lie before or after them."""
    if mode == "edge":
        return np.clip(place, 0, length - 1)
    if mode == "wrap":
        return place % length
    period = max(2 * (length - 1), 1)
    there = place % period
    return np.where(there < length, there, period - there)


def _run_time_pad(
    data: Tensor,
    pads: Ints | Tensor,
    value: Tensor | None,
    axes: Ints | Tensor | None,
    mode: str,
    shape: Shape,
) -> Tensor:
    given = _vector(pads)
    count = given.elements // 2
    if given.shape != (2 * count,):
        raise RefusalError(
            Kind.ENTRY_COUNT, f"pads have shape {list(given.shape)}", "give two for each axis"
        )
    entries, padded = _entries(axes, count, data.shape, shape)
    if data.elements == 0 and mode != "constant":
        return nothing(shape, data.dtype, Status.SHAPE_MISMATCH)
    pads_at = _checked_pads(given, entries, data.shape, shape, mode)
    if data.elements == 0:
        fits = every(data.rank, lambda dimension: pads_at(dimension)[1])
        return agreed(full(shape, _fill(data, value)), fits)

    def before(dimension: Index) -> Expr:
        first, fine = pads_at(dimension)
        return Checked(INT64, where(fine, first, 0), fine, Status.SHAPE_MISMATCH)

    pad_before = compute((data.rank,), before).stored("how much is padded at the start")
    firsts = {dimension: pad_before[[Index(dimension)]] for dimension in padded}
    if mode == "constant":
        fill = _fill(data, value)
        offsets = [dynamic(-firsts[d]) if d in firsts else 0 for d in range(data.rank)]
        return compute(
            shape,
            lambda *indices: guarded(
                data, [i + o for i, o in zip(indices, offsets, strict=True)], fill
            ),
        )
    source = data.shared("what is padded")

    def place(dimension: int, index: Index) -> Index:
        if dimension not in padded:
            return index
        extent, first = data.shape[dimension], firsts[dimension]
        last = (shape[dimension] - extent) - first
        start = apply("max", -first, 0)
        length = extent - start + apply("min", last, 0)
        beyond = at(index) - apply("max", first, 0)
        return dynamic(start + _run_time_inside(beyond, length, mode))

    return compute(shape, lambda *indices: source[[place(d, i) for d, i in enumerate(indices)]])


def _checked_pads(
    given: Tensor, entries: Tensor, old: Shape, new: Shape, mode: str
) -> Callable[[Index], tuple[Expr, Expr]]:
    """The pad at the start of a dimension, and whether both make `new` of `old`."""
    count = given.elements // 2
    extents, wanted = table(old), table(new)
    ends = compute((count,), lambda n: given[[n + count]])

    def pads_at(dimension: Index) -> tuple[Expr, Expr]:
        first, last = (entry_at(part, entries[[dimension]], 0) for part in (given, ends))
        extent, target = extents[[dimension]], wanted[[dimension]]
        furthest = extent + target
        fine = (first >= -furthest) & (first <= furthest)
        fine = fine & (last >= -furthest) & (last <= furthest)
        fine = fine & compare("equal", extent + first + last, target)
        if mode != "constant":
            fine = fine & (extent + apply("min", first, 0) + apply("min", last, 0) > 0)
        return first, fine

    return pads_at


def _run_time_inside(place: Expr, length: Expr, mode: str) -> Expr:
    """As _inside."""

    def wrapped(period: Expr) -> Expr:
        return from_start(apply("remainder", place, period), period)

    if mode == "edge":
        return apply("min", apply("max", place, 0), length - 1)
    if mode == "wrap":
        return wrapped(length)
    period = (length - 1) * 2
    there = wrapped(period)
    return where(there < length, there, period - there)


@op("CenterCropPad", exact=True)
def center_crop_pad(
    input_data: Tensor, shape: Ints | Tensor, *, axes: Ints | None, declared: Declared
) -> Tensor:
    """Of an odd number one more is cropped, or padded, at the end."""
    if isinstance(shape, Tensor):
        target = declared_shape(declared)
        if len(target) != input_data.rank:
            raise RefusalError(
                Kind.RESULT_SHAPE,
                f"the declared {list(target)} has not {input_data.rank} dimensions",
            )
        named = dimensions(axes, shape.elements, input_data.rank)
        fits = equals(shape, [target[d] for d in named])
    else:
        named = dimensions(axes, len(shape), input_data.rank)
        sizes = dict(zip(named, shape, strict=True))
        target = tuple(sizes.get(d, extent) for d, extent in enumerate(input_data.shape))
    others = [d for d in range(input_data.rank) if d not in named]
    if any(extent < 0 for extent in target) or any(
        target[d] != input_data.shape[d] for d in others
    ):
        raise RefusalError(
            Kind.RESULT_SHAPE, f"{list(input_data.shape)} cannot become {list(target)}"
        )
    pairs = zip(input_data.shape, target, strict=True)
    before = [-((old - new) // 2) if old > new else (new - old) // 2 for old, new in pairs]
    result = _framed(input_data, before, target, None)
    return agreed(result, fits) if isinstance(shape, Tensor) else result
