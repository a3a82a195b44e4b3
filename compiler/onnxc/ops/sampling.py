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

from onnxc.dtypes import DOUBLE, INT32, numpy_dtype
from onnxc.errors import RefusalError
from onnxc.expression import Expr, Index, apply, at, cast, compare, fold, literal, where
from onnxc.op import Declared, Ints, op
from onnxc.ops.agreement import agreed, declared_shape
from onnxc.tensor import Shape, Tensor, compute, constant, dynamic, full, guarded, zero

if TYPE_CHECKING:
    from numpy.typing import NDArray

TAPS: Final = {"nearest": 1, "linear": 2, "cubic": 4}
CUBIC: Final = -0.75
"""The free coefficient of the cubic filter."""
UNROLLED: Final = 8
"""Sums of more terms are loops."""
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
        raise RefusalError(f"X has shape {list(X.shape)} and grid {list(grid.shape)}")
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
        """The element to read instead of one up to 2 outside; of zeros, still outside."""
        if self.padding == "zeros":
            return place
        if self.padding == "border":
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
        raise RefusalError(f"mode is {mode!r}", f"give one of {', '.join(TAPS)}")
    if padding_mode not in PADDINGS:
        raise RefusalError(f"padding_mode is {padding_mode!r}", f"give one of {PADDINGS}")
    if mode != "nearest" and X.dtype.kind not in ("float", "signed", "unsigned"):
        raise RefusalError(f"{mode} is not defined for {X.dtype}", "cast X to a number type")


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
    def element(n: Index, c: Index, *places: Index) -> Expr:
        here = [cast(position[[n, *places]], INT32) for position in positions]
        return _read(X, n, c, here, outside)

    return compute(shape, element)


def _read(X: Tensor, n: Index, c: Index, places: Sequence[Expr], outside: _Outside) -> Expr:
    """The element at int32 places of which each may lie up to 2 outside."""
    pairs = zip(places, X.shape[2:], strict=True)
    indices = [n, c, *(dynamic(outside.element(place, length)) for place, length in pairs)]
    return guarded(X, indices, zero(X.dtype)) if outside.padding == "zeros" else X[indices]


def _interpolated(
    X: Tensor, positions: Sequence[Tensor], shape: Shape, mode: str, outside: _Outside
) -> Tensor:
    """The sum of the elements around each position, by weights that fall with the distance."""
    taps, rank = TAPS[mode], len(positions)
    weights = [_weight_tables(position, mode, X) for position in positions]

    def element(n: Index, c: Index, *places: Index) -> Expr:
        firsts = [cast(_first(position[[n, *places]], taps), INT32) for position in positions]

        def term(*offsets: Index) -> Expr:
            here = [
                first if offset == Index() else first + cast(at(offset), INT32)
                for first, offset in zip(firsts, offsets, strict=True)
            ]
            factors = (
                of((n, *places), offset) for of, offset in zip(weights, offsets, strict=True)
            )
            weight = reduce(mul, factors)
            product = _read(X, n, c, here, outside) * weight
            return where(compare("equal", weight, 0), 0, product)

        if taps**rank > UNROLLED:
            return fold("sum", (taps,) * rank, term, "contraction")
        every = itertools.product(range(taps), repeat=rank)
        return reduce(add, (term(*map(Index, offsets)) for offsets in every))

    return compute(shape, element)


def _first(position: Expr, taps: int) -> Expr:
    """The first of the elements around a position, as a float."""
    below = apply("floor", position)
    return below if taps == 2 else below - float(taps // 2 - 1)


def _weight_tables(
    position: Tensor, mode: str, X: Tensor
) -> Callable[[Sequence[Index], Index], Expr]:
    """The weight of an element around a position: by the indices of the position, and the tap.

    Cubic ones are stored where several channels need them.
    """

    def weight(places: Sequence[Index], tap: Index) -> Expr:
        return cast(_weight(position[places], tap, mode), X.dtype)

    if mode != "cubic" or X.shape[1] == 1:
        return weight
    shape = (*position.shape, TAPS[mode])
    table = compute(shape, lambda *indices: weight(indices[:-1], indices[-1]))
    table = table.stored("the weights of the elements around")
    return lambda places, tap: table[[*places, tap]]


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
        raise RefusalError(f"theta has shape {list(theta.shape)} for a grid of {list(shape)}")
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
    steps = 2.0 * np.arange(count) - (count - 1)
    return np.asarray(steps / max(1, count - 1 if aligned else count))
