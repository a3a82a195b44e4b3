"""GridSample reads the input where a tensor of positions says; AffineGrid makes such positions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add, and_, mul
from typing import TYPE_CHECKING, Final

import numpy as np

from onnxc.diagnostics import Kind
from onnxc.dtypes import DOUBLE, INT32, INT64, numpy_dtype
from onnxc.errors import RefusalError
from onnxc.expression import Expr, Index, apply, at, cast, compare, fold, literal, where
from onnxc.op import Declared, Ints, op
from onnxc.ops.agreement import agreed, declared_shape
from onnxc.ops.checks import require_table
from onnxc.tensor import Shape, Tensor, compute, constant, dynamic, full, zero

if TYPE_CHECKING:
    from numpy.typing import NDArray

TAPS: Final = {"nearest": 1, "linear": 2, "cubic": 4}
CUBIC: Final = -0.75
"""The free coefficient of the cubic filter."""
UNROLLED: Final = 8
"""Sums of more terms are loops."""
INT32_MAX: Final = 2**31 - 1
PADDINGS: Final = ("zeros", "border", "reflection")


@op("GridSample")
def grid_sample(
    X: Tensor, grid: Tensor, *, align_corners: int, mode: str, padding_mode: str
) -> Tensor:
    """A NaN or infinite position counts as one outside, and reads what the padding has there.

    Positions have the type of the grid. Integers are computed in double, then cast. An element
    whose weight is 0 is not looked at, be it infinite.
    """
    _check_modes(X, mode, padding_mode)
    if X.rank < 3 or grid.rank != X.rank or grid.shape[-1] != X.rank - 2:
        raise RefusalError(
            Kind.OPERAND_SHAPE, f"X has shape {list(X.shape)} and grid {list(grid.shape)}"
        )
    shape = (*X.shape[:2], *grid.shape[1:-1])
    if math.prod(shape) == 0 or X.elements == 0:
        return full(shape, zero(X.dtype))
    outside = _Outside(padding_mode, bool(align_corners), max(1, TAPS[mode] // 2))
    positions = _positions(grid, X.shape[2:], outside, whole=mode == "nearest")
    if X.shape[1] > 1:
        positions = [place.stored("where in X each element comes from") for place in positions]
    if mode == "nearest":
        return _picked(X, positions, shape, outside)
    integers = X.dtype.kind in ("signed", "unsigned")
    values = X.cast(DOUBLE) if integers else X
    result = _interpolated(values.shared("the values sampled"), positions, shape, mode, outside)
    return result.cast(X.dtype) if integers else result


@dataclass(frozen=True)
class _Outside:
    """What stands outside of the input: `padding` is one of PADDINGS.

    aligned   whether the border runs through the centers of the outermost elements, or around them
    reach     how far from a position elements count: 2 for cubic, else 1
    """

    padding: str
    aligned: bool
    reach: int

    def position(self, x: Expr, length: int) -> Expr:
        """The position to read instead: finite, and no more than 2 outside."""
        low, high = (0.0, length - 1.0) if self.aligned else (-0.5, length - 0.5)
        if self.padding == "border" and self.reach == 1:
            return _within(x, 0.0, length - 1.0)
        if self.padding != "reflection":
            return _within(x, -2.0, length + 1.0)
        across = high - low
        rest = apply("mod", apply("abs", x - low), 2 * across)
        reflected = where(rest <= across, rest, 2 * across - rest) + low
        return where((x >= low) & (x <= high), x, _within(reflected, low, high))

    def element(self, place: Expr, length: int) -> Expr:
        """The element to read instead of one up to 2 outside; of zeros it does not matter which."""
        if self.padding != "reflection":
            return apply("min", apply("max", place, 0), length - 1)
        period = 2 * (length - 1) if self.aligned else 2 * length
        if period == 0:
            return literal(place.dtype, 0)
        rest = apply("remainder", place + period, period)
        return where(rest < length, rest, period - (0 if self.aligned else 1) - rest)


def _within(x: Expr, low: float, high: float) -> Expr:
    """Clamped; a NaN is `low`."""
    return where(x >= low, where(x <= high, x, high), low)


def _check_modes(X: Tensor, mode: str, padding_mode: str) -> None:
    if mode not in TAPS:
        raise RefusalError(
            Kind.ATTRIBUTE_VALUE, f"mode is {mode!r}", f"give one of {', '.join(TAPS)}"
        )
    if padding_mode not in PADDINGS:
        raise RefusalError(
            Kind.ATTRIBUTE_VALUE, f"padding_mode is {padding_mode!r}", f"give one of {PADDINGS}"
        )
    if mode != "nearest" and X.dtype.kind not in ("float", "signed", "unsigned"):
        raise RefusalError(
            Kind.TYPE_NOT_SUPPORTED,
            f"{mode} is not defined for {X.dtype}",
            "cast X to a number type",
        )


def _positions(
    grid: Tensor, spatial: Sequence[int], outside: _Outside, *, whole: bool
) -> list[Tensor]:
    """For each spatial dimension of X the positions in elements from its first; whole numbers."""
    rank = len(spatial)

    def along_dimension(d: int) -> Tensor:
        def element(*indices: Index) -> Expr:
            found = _denormalized(grid[[*indices, Index(rank - 1 - d)]], spatial[d], outside)
            return outside.position(apply("round", found) if whole else found, spatial[d])

        return compute(grid.shape[:-1], element)

    grid = grid.shared("the positions given")
    return [along_dimension(d) for d in range(rank)]


def _denormalized(position: Expr, length: int, outside: _Outside) -> Expr:
    """-1 and 1 are the centers of the outermost elements where aligned, else their outer edges."""
    if outside.aligned:
        return (position + 1) / 2.0 * float(length - 1)
    return ((position + 1) * float(length) - 1) / 2.0


def _picked(X: Tensor, positions: Sequence[Tensor], shape: Shape, outside: _Outside) -> Tensor:
    def place(n: Index, *places: Index) -> Expr:
        """Counted in elements of a channel; outside of zeros -1."""
        here = [cast(position[[n, *places]], INT32) for position in positions]
        pairs = list(zip(here, X.shape[2:], strict=True))
        found = _flat([outside.element(*pair) for pair in pairs], X.shape[2:])
        if outside.padding != "zeros":
            return found
        return where(reduce(and_, (_is_inside(*pair) for pair in pairs)), found, -1)

    table = compute((shape[0], *shape[2:]), place)
    if X.shape[1] > 1:
        table = table.stored("which element each is")
    channels = X.reshape((*X.shape[:2], math.prod(X.shape[2:])))

    def element(n: Index, c: Index, *places: Index) -> Expr:
        found = table[[n, *places]]
        if outside.padding != "zeros":
            return channels[[n, c, dynamic(found)]]
        value = channels[[n, c, dynamic(apply("max", found, 0))]]
        return where(found >= 0, value, zero(X.dtype))

    return compute(shape, element)


def _is_inside(place: Expr, length: int) -> Expr:
    return (place >= 0) & (place < length)


def _flat(places: Sequence[Expr], spatial: Sequence[int]) -> Expr:
    """Which element of a channel is at int32 places along its dimensions."""
    wide = math.prod(spatial) > INT32_MAX
    result = cast(places[0], INT64) if wide else places[0]
    for place, length in zip(places[1:], spatial[1:], strict=True):
        result = result * length + (cast(place, INT64) if wide else place)
    return result


def _interpolated(
    X: Tensor, positions: Sequence[Tensor], shape: Shape, mode: str, outside: _Outside
) -> Tensor:
    """The sum of the elements around each position, by weights that fall with the distance.

    All are read, even without weight, so that nothing is in the way of vectors. What many channels
    need of each position is stored: in at most twice the memory of the result.
    """
    taps, rank = TAPS[mode], len(positions)
    lines = [
        _taps_of(position, length, mode, X, outside)
        for position, length in zip(positions, X.shape[2:], strict=True)
    ]

    def weight(n: Index, *indices: Index) -> Expr:
        places = (n, *indices[rank:])
        parts = zip(lines, indices[:rank], strict=True)
        return reduce(mul, (line.weight(places, tap) for line, tap in parts))

    def place(n: Index, *indices: Index) -> Expr:
        places = (n, *indices[rank:])
        parts = zip(lines, indices[:rank], strict=True)
        return _flat([line.place(places, tap) for line, tap in parts], X.shape[2:])

    around = (shape[0], *(taps,) * rank, *shape[2:])
    weights, elements = compute(around, weight), compute(around, place)
    if X.shape[1] >= taps**rank and taps**rank <= UNROLLED:
        elements = elements.stored("the elements around each position")
        weights = weights.stored("the weights of these")
    channels = X.reshape((*X.shape[:2], math.prod(X.shape[2:])))

    def element(n: Index, c: Index, *places: Index) -> Expr:
        def term(*offsets: Index) -> Expr:
            value = channels[[n, c, dynamic(elements[[n, *offsets, *places]])]]
            share = weights[[n, *offsets, *places]]
            return where(compare("equal", share, 0), 0, value * share)

        if taps**rank > UNROLLED:
            return fold("sum", (taps,) * rank, term, "contraction")
        every = itertools.product(range(taps), repeat=rank)
        return reduce(add, (term(*map(Index, offsets)) for offsets in every))

    return compute(shape, element)


def _first(position: Expr, taps: int) -> Expr:
    """The first of the elements around a position, as a float."""
    below = apply("floor", position)
    return below if taps == 2 else below - float(taps // 2 - 1)


@dataclass(frozen=True)
class _Taps:
    """Along one dimension, by the indices of a position and the tap: an element and its weight.

    place   int32, inside; of one outside that counts as 0 it is another, without weight
    weight  of the type of X
    """

    place: Callable[[Sequence[Index], Index], Expr]
    weight: Callable[[Sequence[Index], Index], Expr]


def _taps_of(position: Tensor, length: int, mode: str, X: Tensor, outside: _Outside) -> _Taps:
    """Weights of cubic are stored where several channels need them; of many the elements, too."""

    def given(places: Sequence[Index], tap: Index) -> Expr:
        first = cast(_first(position[places], TAPS[mode]), INT32)
        return first if tap == Index() else first + cast(at(tap), INT32)

    def place(places: Sequence[Index], tap: Index) -> Expr:
        return outside.element(given(places, tap), length)

    def weight(places: Sequence[Index], tap: Index) -> Expr:
        found = cast(_weight(position[places], tap, mode), X.dtype)
        if outside.padding != "zeros":
            return found
        return where(_is_inside(given(places, tap), length), found, 0)

    if mode != "cubic" or X.shape[1] == 1:
        return _Taps(place, weight)
    shape = (*position.shape, TAPS[mode])
    elements, weights = (
        compute(shape, lambda *indices, of=of: of(indices[:-1], indices[-1]))
        for of in (place, weight)
    )
    weights = weights.stored("the weights of the elements around")
    if X.shape[1] >= UNROLLED:
        elements = elements.stored("the elements around")
    return _Taps(
        lambda places, tap: elements[[*places, tap]], lambda places, tap: weights[[*places, tap]]
    )


def _weight(position: Expr, tap: Index, mode: str) -> Expr:
    """Of the element `tap` from the first one, by its distance."""
    element = _first(position, TAPS[mode])
    if tap != Index():
        element = element + cast(at(tap), element.dtype)
    distance = apply("abs", element - position)
    if mode == "linear":
        return 1 - distance
    near = ((CUBIC + 2) * distance - (CUBIC + 3)) * distance * distance + 1
    far = ((CUBIC * distance - 5 * CUBIC) * distance + 8 * CUBIC) * distance - 4 * CUBIC
    return where(distance <= 1, near, far)


@op("AffineGrid")
def affine_grid(
    theta: Tensor, size: Ints | Tensor, *, align_corners: int, declared: Declared
) -> Tensor:
    """Of one element along a dimension, its center is 0."""
    shape = declared_shape(declared)
    spatial = shape[1:-1]
    rank = len(spatial)
    if theta.shape != (shape[0], rank, rank + 1) or rank not in (2, 3):
        raise RefusalError(
            Kind.OPERAND_SHAPE, f"theta has shape {list(theta.shape)} for a grid of {list(shape)}"
        )
    dtype = numpy_dtype(theta.dtype)
    tables = [
        constant(_centers(n, bool(align_corners)).astype(dtype), theta.dtype) for n in spatial
    ]
    values = theta.shared("the matrices")

    def element(n: Index, *indices: Index) -> Expr:
        *places, row = indices
        total = values[[n, row, Index(rank)]]
        for d in range(rank):
            total = total + values[[n, row, Index(rank - 1 - d)]] * tables[d][[places[d]]]
        return total

    result = compute(shape, element)
    if not isinstance(size, Tensor):
        return result
    return agreed(result, _same_size(size, shape))


def _same_size(size: Tensor, shape: Shape) -> Expr:
    """Whether a run-time size is that of the grid; the number of channels does not matter."""
    numbers = [size[[Index(n)]] for n in range(size.elements) if n != 1]
    extents = (shape[0], *shape[1:-1])
    conditions = [compare("equal", a, b) for a, b in zip(numbers, extents, strict=True)]
    return reduce(and_, conditions)


def _centers(count: int, aligned: bool) -> NDArray[np.float64]:
    """Of `count` elements side by side from -1 to 1: the outermost centers there, or the edges."""
    require_table(count)
    steps = 2.0 * np.arange(count) - (count - 1)
    return np.asarray(steps / max(1, count - 1 if aligned else count))
