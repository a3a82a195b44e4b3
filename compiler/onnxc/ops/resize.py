"""Resize: every output is a weighted sum of inputs near a position of its own, axis by axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from operator import and_
from typing import Final

from onnxc.diagnostics import Kind
from onnxc.dtypes import DOUBLE, ElementType
from onnxc.errors import RefusalError
from onnxc.expression import Const, Expr, Index, apply, cast, compare, guard, literal, where
from onnxc.op import Declared, Floats, Ints, op
from onnxc.ops.agreement import agreed, declared_shape
from onnxc.ops.checks import dimensions, require_rank
from onnxc.ops.resampling import RADIUS, Options, Plan, ResizedAxis, plan_of
from onnxc.tensor import Tensor, compute, dynamic, full, zero

MODES: Final = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "tf_half_pixel_for_nn",
    "asymmetric",
    "align_corners",
    "tf_crop_and_resize",
)
ROUNDING: Final = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
EXACT: Final = 2.0**32
"""Sums of integers are right to one part of so many; weights of 1/3 and the like are rounded."""
POLICIES: Final = ("stretch", "not_larger", "not_smaller")


@op("Resize")
def resize(
    X: Tensor,
    roi: Floats | Tensor | None,
    scales: Floats | Tensor | None,
    sizes: Ints | Tensor | None,
    *,
    antialias: int,
    axes: tuple[int, ...] | None,
    coordinate_transformation_mode: str,
    cubic_coeff_a: float,
    exclude_outside: int,
    extrapolation_value: float,
    keep_aspect_ratio_policy: str,
    mode: str,
    nearest_mode: str,
    declared: Declared,
) -> Tensor:
    """Of a run-time size or scale, the output must still have the shape that is declared."""
    _check_names(mode, coordinate_transformation_mode, nearest_mode, keep_aspect_ratio_policy)
    options = Options(
        mode,
        DOUBLE if X.dtype.kind in ("signed", "unsigned") else X.dtype,
        coordinate_transformation_mode,
        nearest_mode,
        bool(antialias),
        cubic_coeff_a,
        bool(exclude_outside),
    )
    cropped = coordinate_transformation_mode == "tf_crop_and_resize"
    _check_type(X.dtype, mode, cropped)
    shape = declared_shape(declared)
    if math.prod(shape) == 0:
        return full(shape, zero(X.dtype))
    if X.elements == 0:
        raise RefusalError(Kind.NO_ELEMENTS, "no element can be made of an empty input")
    if X.rank == 0:
        return X
    by_scale, values = _given(scales, sizes)
    lengths = [(d, X.shape[d], shape[d]) for d in dimensions(axes, len(values), X.rank)]
    policy = "scales" if by_scale else keep_aspect_ratio_policy
    kept = set(range(X.rank)) - {d for d, _, _ in lengths}
    if any(X.shape[d] != shape[d] for d in kept):
        raise RefusalError(
            Kind.OPERAND_SHAPE,
            f"{list(X.shape)} becomes {list(shape)}, where other axes are resized",
        )
    factors, fits = _factors(lengths, values, policy)
    if cropped:
        factors = _with_region(factors, roi)
    return agreed(_resampled(X, factors, options, extrapolation_value), fits)


def _check_names(mode: str, coordinates: str, rounding: str, policy: str) -> None:
    known = (
        ("mode", mode, ("nearest", *RADIUS)),
        ("coordinate_transformation_mode", coordinates, MODES),
        ("nearest_mode", rounding, ROUNDING),
        ("keep_aspect_ratio_policy", policy, POLICIES),
    )
    for name, value, values in known:
        if value not in values:
            raise RefusalError(
                Kind.ATTRIBUTE_VALUE, f"{name} is {value!r}", f"give one of {', '.join(values)}"
            )


def _check_type(dtype: ElementType, mode: str, cropped: bool) -> None:
    if dtype.kind in ("string", "complex", "bool") and (mode != "nearest" or cropped):
        way = "tf_crop_and_resize" if cropped else mode
        raise RefusalError(
            Kind.TYPE_NOT_SUPPORTED,
            f"{way} is not defined for {dtype}",
            "cast the input to a number type",
        )


def _given(scales: Floats | Tensor | None, sizes: Ints | Tensor | None) -> tuple[bool, list[Expr]]:
    """Whether scales are given, not sizes; and the numbers. An empty operand is none."""
    by_scale, by_size = (_values(given) for given in (scales, sizes))
    if bool(by_scale) == bool(by_size):
        given = "both" if by_scale else "neither of"
        raise RefusalError(
            Kind.ATTRIBUTES_CONFLICT, f"{given} scales and sizes are given", "give one of them"
        )
    return bool(by_scale), by_scale or by_size


def _factors(
    lengths: Sequence[tuple[int, int, int]], values: Sequence[Expr], policy: str
) -> tuple[list[ResizedAxis], Expr]:
    """Every resampled axis; and what must hold for the output to have its declared shape.

    lengths   of each axis its dimension, and its extents before and after
    policy    of sizes, or "scales"
    """
    numbers = list(zip(lengths, values, strict=True))
    if policy == "stretch":
        axes = [
            ResizedAxis(d, length, out, literal(DOUBLE, out), literal(DOUBLE, length), False)
            for d, length, out in lengths
        ]
        conditions = [compare("equal", size, out) for (_, _, out), size in numbers]
    elif policy == "scales":
        axes = [
            ResizedAxis(*extents, scale, literal(DOUBLE, 1), True) for extents, scale in numbers
        ]
        conditions = [axis.is_scaled() for axis in axes]
    else:
        factor, divisor = _extreme(numbers, least=policy == "not_larger")
        axes = [ResizedAxis(*extents, factor, divisor, False) for extents in lengths]
        conditions = [axis.is_rounded() for axis in axes]
    fits = reduce(and_, conditions)
    if isinstance(fits, Const) and fits.raw == b"\0":
        shape = [out for _, _, out in lengths]
        raise RefusalError(
            Kind.RESULT_SHAPE,
            f"the output would not have its shape of {shape} along the axes resized",
        )
    return axes, fits


def _values(given: Floats | Ints | Tensor | None) -> list[Expr]:
    """Each of the numbers, as a double."""
    if given is None:
        return []
    if isinstance(given, Tensor):
        require_rank("an operand of the sizes", given, 1)
        return [cast(given[[Index(n)]], DOUBLE) for n in range(given.elements)]
    return [literal(DOUBLE, value) for value in given]


def _extreme(
    numbers: Sequence[tuple[tuple[int, int, int], Expr]], *, least: bool
) -> tuple[Expr, Expr]:
    """The one factor of all axes, exact: the least or greatest of size / length."""
    pairs: list[tuple[Expr, Expr]] = [
        (size, literal(DOUBLE, length)) for (_, length, _), size in numbers
    ]
    best = pairs[0]
    for size, length in pairs[1:]:
        left, right = size * best[1], best[0] * length
        better = left < right if least else right < left
        best = where(better, size, best[0]), where(better, length, best[1])
    return best


def _with_region(axes: list[ResizedAxis], roi: Floats | Tensor | None) -> list[ResizedAxis]:
    values = _values(roi)
    if len(values) != 2 * len(axes):
        raise RefusalError(Kind.ENTRY_COUNT, f"roi has {len(values)} values for {len(axes)} axes")
    return [
        ResizedAxis(a.dimension, a.length, a.out, a.numerator, a.denominator, a.rounded, start, end)
        for a, start, end in zip(axes, values[: len(axes)], values[len(axes) :], strict=True)
    ]


def _resampled(
    X: Tensor, axes: Sequence[ResizedAxis], options: Options, extrapolation: float
) -> Tensor:
    """Axes that lose most elements come first; what is only picked computes nothing."""
    plans = [plan_of(axis, options) for axis in axes]
    weighted = any(plan.weights is not None for plan in plans)
    integers = X.dtype.kind in ("signed", "unsigned")
    result = X.cast(options.dtype) if weighted else X
    left = sum(plan.weights is not None for plan in plans)
    for plan in sorted(plans, key=lambda plan: plan.axis.out / plan.axis.length):
        result = plan.applied(result)
        left -= plan.weights is not None
        if plan.weights is not None and left:
            result = result.stored(f"resampled along axis {plan.axis.dimension}")
    if options.coordinates == "tf_crop_and_resize":
        result = _extrapolated(result, plans, extrapolation)
    if weighted and integers:
        result = compute(result.shape, _rounding(result, X.dtype))
    return result


def _rounding(values: Tensor, dtype: ElementType) -> Callable[..., Expr]:
    """To the nearest integer, halfway to even: halfway, too, is what only rounding made not so."""

    def element(*indices: Index) -> Expr:
        steps = apply("round", values[indices] * EXACT)
        return cast(apply("round", steps * (1 / EXACT)), dtype)

    return element


def _extrapolated(result: Tensor, plans: Sequence[Plan], value: float) -> Tensor:
    """`value` at every output that lies outside of the input on some axis."""
    wide: Expr = literal(DOUBLE, value)
    whole = result.dtype.kind in ("signed", "unsigned")
    otherwise = cast(apply("round", wide) if whole else wide, result.dtype)

    def element(*indices: Index) -> Expr:
        bounds = [
            (dynamic(plan.outside[[indices[plan.axis.dimension]]]), 1)
            for plan in plans
            if plan.outside is not None
        ]
        return guard(bounds, result[indices], otherwise)

    return compute(result.shape, element)
