"""What the outputs along one resized axis read: tables of elements and of their weights.

Positions are computed in double and with one rounded division, so that those which the formula
puts on an element, or halfway between two, are found there. What is known at compile time becomes
constants; a factor or region that arrives at run time fills the same tables then.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxc.dtypes import DOUBLE, FLOAT, INT32, ElementType, numpy_dtype
from onnxc.evaluate import constant_value
from onnxc.expression import (
    Const,
    Expr,
    Index,
    apply,
    at,
    cast,
    compare,
    fold,
    lift,
    literal,
    where,
)
from onnxc.ops.checks import require_table
from onnxc.tensor import Tensor, compute, constant, dynamic

if TYPE_CHECKING:
    from numpy.typing import NDArray

RADIUS: Final = {"linear": 1, "cubic": 2}
"""How far from a position, in elements, the weights reach."""
UNROLLED: Final = 4
"""Sums of more terms are loops."""


@dataclass(frozen=True)
class Options:
    """What says how an axis is resampled: attributes, and the type that sums are computed in."""

    mode: str
    dtype: ElementType
    coordinates: str
    rounding: str
    antialias: bool
    coefficient: float
    exclude_outside: bool


@dataclass(frozen=True)
class ResizedAxis:
    """One axis: `length` elements become `out`; the factor is numerator / denominator, doubles.

    rounded      whether the factor is a float: then so are quotients, lest 3 / (1/3) falls short
    start, end   the region of interest; None but for tf_crop_and_resize
    """

    dimension: int
    length: int
    out: int
    numerator: Expr
    denominator: Expr
    rounded: bool
    start: Expr | None = None
    end: Expr | None = None

    def positions(self, options: Options) -> Tensor:
        """double[out]: where in the input each output lies."""
        nearest = options.mode == "nearest"
        return compute(
            (self.out,),
            lambda i: self._position(cast(at(i), DOUBLE), options.coordinates, nearest),
        )

    def _position(self, x: Expr, coordinates: str, nearest: bool) -> Expr:
        factor, divisor = self.numerator, self.denominator

        def quotient(left: Expr, right: Expr) -> Expr:
            exact = left / right
            return cast(cast(exact, FLOAT), DOUBLE) if nearest and self.rounded else exact

        match coordinates:
            case "half_pixel":
                return quotient((x + 0.5) * divisor, factor) - 0.5
            case "half_pixel_symmetric":
                middle = (self.length - 1) / 2
                return quotient((x * 2 + (1 - self.out)) * divisor, factor * 2) + middle
            case "pytorch_half_pixel":
                if self.out == 1:
                    return literal(DOUBLE, 0)
                return quotient((x + 0.5) * divisor, factor) - 0.5
            case "tf_half_pixel_for_nn":
                return quotient((x + 0.5) * divisor, factor)
            case "asymmetric":
                return quotient(x * divisor, factor)
            case "align_corners":
                reach = factor * self.length - divisor
                return where(reach > 0, quotient(x * (self.length - 1) * divisor, reach), 0)
        assert self.start is not None
        assert self.end is not None
        if self.out == 1:
            return (self.start + self.end) * ((self.length - 1) / 2)
        walked = x * (self.end - self.start) * (self.length - 1)
        return self.start * (self.length - 1) + walked / literal(DOUBLE, self.out - 1)

    def is_scaled(self) -> Expr:
        """Whether the factor makes `length` elements `out`, rounded down.

        The product is rounded where shapes are inferred, and is not where the formula is read.
        """
        exact = self.numerator * self.length
        at_least = cast(cast(exact, FLOAT), DOUBLE) >= float(self.out)
        return at_least & (exact < float(self.out + 1))

    def is_rounded(self) -> Expr:
        """Whether the factor makes `length` elements `out`, rounded to nearest, halfway up."""
        twice = self.numerator * self.length * 2 + self.denominator
        rounded = apply("floor", twice / (self.denominator * 2))
        return compare("equal", rounded, self.out)


@dataclass(frozen=True)
class Plan:
    """What to read along one axis.

    elements   int32[out], or int32[out][taps] where there are weights [out][taps]
    skips      whether a weight may be 0, whose element is then not looked at
    outside    int32[out], 1 where the position lies outside; None where that does not matter
    """

    axis: ResizedAxis
    elements: Tensor
    weights: Tensor | None
    skips: bool
    outside: Tensor | None

    def applied(self, source: Tensor) -> Tensor:
        d = self.axis.dimension
        shape = (*source.shape[:d], self.axis.out, *source.shape[d + 1 :])
        weights = self.weights
        if weights is None:
            place = _walk(self.elements)
            return compute(shape, lambda *i: source[[*i[:d], place(i[d]), *i[d + 1 :]]])
        values = source.shared(f"the values before axis {d} is resampled")
        taps = weights.shape[1]
        few = taps <= UNROLLED
        places, factors = (
            map(_by_taps, (self.elements, weights)) if few else (self.elements, weights)
        )

        def element(*indices: Index) -> Expr:
            def term(tap: Index) -> Expr:
                entry = [tap, indices[d]] if few else [indices[d], tap]
                place, weight = dynamic(places[entry]), factors[entry]
                product = values[[*indices[:d], place, *indices[d + 1 :]]] * weight
                return where(compare("equal", weight, 0), 0, product) if self.skips else product

            if not few:
                return fold("sum", (taps,), term, "contraction")
            total = term(Index(0))
            for tap in range(1, taps):
                total = total + term(Index(tap))
            return total

        return compute(shape, element)


def _by_taps(table: Tensor) -> Tensor:
    """[taps][out] of [out][taps], so that neighbouring outputs read neighbouring entries."""
    known = constant_value(table)
    if known is not None:
        return constant(np.ascontiguousarray(known.T), table.dtype)
    return compute(table.shape[::-1], lambda tap, i: table[[i, tap]])


def _walk(elements: Tensor) -> Any:
    """The index that a table of elements says; without the table where that is affine."""
    known = constant_value(elements)
    if known is not None:
        steps = np.diff(known)
        if steps.size == 0 or (steps == steps[0]).all():
            stride = int(steps[0]) if steps.size else 0
            return lambda index: index * stride + int(known[0])
    return lambda index: dynamic(elements[[index]])


def plan_of(axis: ResizedAxis, options: Options) -> Plan:
    cropped = options.coordinates == "tf_crop_and_resize"
    require_table(axis.out)
    if axis.length == 1 and not cropped:
        return Plan(axis, constant(np.zeros(axis.out, np.int32), INT32), None, False, None)
    positions = _settled(axis.positions(options), f"positions along axis {axis.dimension}")
    outside = _outside(positions, axis) if cropped else None
    if options.mode == "nearest":
        elements = compute((axis.out,), lambda i: _nearest(positions[[i]], axis, options.rounding))
        return Plan(axis, _settled(elements, _which(axis)), None, False, outside)
    return _weighted_plan(axis, positions, options, outside)


def _which(axis: ResizedAxis) -> str:
    return f"elements read along axis {axis.dimension}"


def _outside(positions: Tensor, axis: ResizedAxis) -> Tensor:
    def element(i: Index) -> Expr:
        inside = (positions[[i]] >= 0) & (positions[[i]] <= float(axis.length - 1))
        return where(inside, literal(INT32, 0), 1)

    table = compute((axis.out,), element)
    return _settled(table, f"which outputs lie outside along axis {axis.dimension}")


def _nearest(position: Expr, axis: ResizedAxis, rounding: str) -> Expr:
    match rounding:
        case "round_prefer_floor":
            found = apply("ceil", position - 0.5)
        case "round_prefer_ceil":
            found = apply("floor", position + 0.5)
        case _:
            found = apply(rounding, position)
    return _inside(found, axis)


def _inside(place: Expr, axis: ResizedAxis) -> Expr:
    """A whole double as an int32 index of the input; of a NaN, 0."""
    return cast(apply("min", apply("max", place, 0), float(axis.length - 1)), INT32)


def _weighted_plan(
    axis: ResizedAxis, positions: Tensor, options: Options, outside: Tensor | None
) -> Plan:
    """The taps of each output: the elements less than the filter's radius from its position."""
    radius, stretch = RADIUS[options.mode], lift(1, DOUBLE)
    if options.antialias:
        stretch = apply("max", axis.denominator / axis.numerator, 1)
    taps = _tap_count(axis, radius, stretch)
    simple = options.mode == "linear" and not options.antialias
    shape = (axis.out, taps)

    def position(i: Index) -> Expr:
        """Between the outermost elements linear weights are those of the nearer one, all 1."""
        found = positions[[i]]
        if not simple:
            return found
        return apply("min", apply("max", found, 0), float(axis.length - 1))

    def place(i: Index, tap: Index) -> Expr:
        first = apply("floor", position(i) - stretch * radius) + 1
        return first + cast(at(tap), DOUBLE)

    def weight(i: Index, tap: Index) -> Expr:
        distance = apply("abs", place(i, tap) - position(i)) / stretch
        found = _filter(distance, options)
        if not options.exclude_outside or simple:
            return found
        inside = (place(i, tap) >= 0) & (place(i, tap) <= float(axis.length - 1))
        return where(inside, found, 0)

    elements = _settled(compute(shape, lambda i, tap: _inside(place(i, tap), axis)), _which(axis))
    weights = compute(shape, weight)
    if options.antialias or (options.exclude_outside and not simple):
        weights = _normalized(weights, axis)
    role = f"their weights along axis {axis.dimension}"
    weights = _settled(weights.cast(options.dtype), role)
    return _simplified(axis, elements, weights, outside)


def _tap_count(axis: ResizedAxis, radius: int, stretch: Expr) -> int:
    """At most; a factor of run time is at least one that gives half an output less."""
    if isinstance(stretch, Const):
        return max(1, math.ceil(2 * radius * float(np.frombuffer(stretch.raw, np.float64)[0])))
    return math.ceil(2 * radius * max(1.0, axis.length / (axis.out - 0.5))) + 1


def _filter(distance: Expr, options: Options) -> Expr:
    """The weight at a distance of 0 or more."""
    if options.mode == "linear":
        return apply("max", 1 - distance, 0)
    a = float(np.float32(options.coefficient))
    d = distance
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return where(d < 1, near, where(d < 2, far, 0))


def _normalized(weights: Tensor, axis: ResizedAxis) -> Tensor:
    """Divided by the sum of each output's, if that is not 0."""
    out, taps = weights.shape
    weights = _settled(weights, f"weights along axis {axis.dimension}, of any sum")
    sums = compute((out,), lambda i: fold("sum", (taps,), lambda tap: weights[[i, tap]]))
    total = _settled(sums, f"the sums of weights along axis {axis.dimension}")
    return compute(
        weights.shape,
        lambda i, tap: weights[[i, tap]] / where(compare("equal", total[[i]], 0), 1, total[[i]]),
    )


def _simplified(
    axis: ResizedAxis, elements: Tensor, weights: Tensor, outside: Tensor | None
) -> Plan:
    """Known tables without the taps that no output needs; without weights where all are 1."""
    known, places = constant_value(weights), constant_value(elements)
    if known is None or places is None:
        return Plan(axis, elements, weights, True, outside)
    used = known != 0
    if (used.sum(1) == 1).all() and (known[used] == 1).all():
        return Plan(axis, constant(places[used], INT32), None, False, outside)
    order = np.argsort(~used, axis=1, kind="stable")[:, : max(1, used.sum(1).max())]
    kept = np.take_along_axis(known, order, 1)
    places = _without_strays(np.take_along_axis(places, order, 1), kept)
    return Plan(
        axis,
        constant(places, INT32),
        constant(kept, weights.dtype),
        bool((kept == 0).any()),
        outside,
    )


def _without_strays(places: NDArray[Any], weights: NDArray[Any]) -> NDArray[Any]:
    """The elements, where a weight is 0 the first of the row: no memory is read for nothing."""
    return np.where(weights == 0, places[:, :1], places)


def _settled(table: Tensor, role: str) -> Tensor:
    """As a constant where its values are known, else stored once for all that read it."""
    known = constant_value(table)
    if known is None:
        return table.stored(role)
    return constant(np.asarray(known, numpy_dtype(table.dtype)), table.dtype)
