"""Reductions: what folds all elements along some axes into one, and the search for the extreme one.

`folded` is what the other families reduce with: it keeps the axes, with an extent of 1.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable
from typing import Final

import numpy as np

from onnxc.diagnostics import Kind
from onnxc.dtypes import BOOL, DOUBLE, INT64, UINT8, UINT64, ElementType, numpy_dtype
from onnxc.errors import RefusalError
from onnxc.expression import Checked, Expr, Index, apply, at, compare, fold, guard, literal, where
from onnxc.op import Declared, Ints, op
from onnxc.ops.checks import distinct_axes, positive_axis, require_flag
from onnxc.ops.elementwise import magnitude
from onnxc.status import Status
from onnxc.tensor import Shape, Tensor, compute, dynamic, elementwise, full, zero

MOST_CHOICES: Final = 8
"""Of axes that are known only at run time, so many sets may fit the declared shape."""

MOST_SETS: Final = 10_000
"""So many sets are tried."""

Axes = tuple[int, ...]
"""Dimensions counted from 0, ascending, each once."""


def count(data: Tensor, axes: Axes) -> int:
    """How many elements a reduction folds into one."""
    return math.prod(data.shape[axis] for axis in axes)


def folded(
    operation: str,
    data: Tensor,
    axes: Axes,
    element: Callable[[Expr], Expr] = lambda x: x,
    hint: str = "",
) -> Tensor:
    """`element` of each element, folded over the axes, which stay with an extent of 1."""
    shape = tuple(1 if axis in axes else extent for axis, extent in enumerate(data.shape))
    if count(data, axes) == 0:
        return full(shape, _identity(operation, element(data.value).dtype))
    looped = [axis for axis in axes if data.shape[axis] != 1]

    def value(*indices: Index) -> Expr:
        def inner(*walks: Index) -> Expr:
            place = list(indices)
            for axis, walk in zip(looped, walks, strict=True):
                place[axis] = walk
            return element(data[place])

        return fold(operation, [data.shape[axis] for axis in looped], inner, hint)

    return compute(shape, value)


def _identity(operation: str, dtype: ElementType) -> Expr:
    """What a fold of no elements gives."""
    if operation in ("sum", "prod"):
        return literal(dtype, 0 if operation == "sum" else 1)
    if dtype.kind == "float":
        return literal(dtype, -np.inf if operation == "max" else np.inf)
    limits = np.iinfo(numpy_dtype(dtype))
    return literal(dtype, limits.min if operation == "max" else limits.max)


def mean(data: Tensor, axes: Axes) -> Tensor:
    """Of floats; of no elements NaN."""
    number = count(data, axes)
    return elementwise(lambda total: total / number, folded("sum", data, axes))


# Each of these takes the data and the axes, which stay with an extent of 1.


def _sum(data: Tensor, axes: Axes) -> Tensor:
    return folded("sum", data, axes)


def _product(data: Tensor, axes: Axes) -> Tensor:
    return folded("prod", data, axes)


def _mean(data: Tensor, axes: Axes) -> Tensor:
    """Of integers the exact mean, toward zero; of no integers 0."""
    if data.dtype.kind == "float":
        return mean(data, axes)
    wide = INT64 if data.dtype.kind == "signed" else UINT64
    if data.dtype.bits == wide.bits:
        return _mean_of_widest(data, axes)
    number = count(data, axes)
    total = folded("sum", data.cast(wide), axes)
    return elementwise(lambda x: x / number, total).cast(data.dtype)


def _mean_of_widest(data: Tensor, axes: Axes) -> Tensor:
    """Quotients and remainders apart, because no type holds the sum.

    The sum is n * q + r with |r| < n; toward zero where q and r differ in sign.
    """
    number = count(data, axes)
    if number == 0:
        return folded("sum", data, axes)
    data = data.shared("the elements")
    quotients = folded("sum", data, axes, lambda x: x / number)
    rests = folded("sum", data, axes, lambda x: apply("remainder", x, number))

    def total(quotient: Expr, rest: Expr) -> Expr:
        q, r = quotient + rest / number, apply("remainder", rest, number)
        if data.dtype.kind == "unsigned":
            return q
        down, up = (q > 0) & (r < 0), (q < 0) & (r > 0)
        return where(down, q - 1, where(up, q + 1, q))

    return elementwise(total, quotients.stored("sum of quotients"), rests.stored("of remainders"))


def _extreme(operation: str) -> Callable[[Tensor, Axes], Tensor]:
    def reduced(data: Tensor, axes: Axes) -> Tensor:
        """Of bools: whether any, or every one, is true."""
        if data.dtype is BOOL:
            return folded(operation, data.cast(UINT8), axes).cast(BOOL)
        return folded(operation, data, axes)

    return reduced


def _sum_of_magnitudes(data: Tensor, axes: Axes) -> Tensor:
    return folded("sum", data, axes, magnitude)


def _sum_of_squares(data: Tensor, axes: Axes) -> Tensor:
    return folded("sum", data, axes, lambda x: x * x)


def _root_of_squares(data: Tensor, axes: Axes) -> Tensor:
    """Of integers in double, toward zero."""
    if data.dtype.kind != "float":
        return _root_of_squares(data.cast(DOUBLE), axes).cast(data.dtype)
    return elementwise(lambda total: apply("sqrt", total), _sum_of_squares(data, axes))


def _logarithm_of_sum(data: Tensor, axes: Axes) -> Tensor:
    return elementwise(lambda total: apply("log", total), folded("sum", data, axes))


def _logarithm_of_exponentials(data: Tensor, axes: Axes) -> Tensor:
    """Relative to the largest element, so that no exponential overflows.

    An infinite one is no reference: then the exponentials are 0 or infinite, as they should be.
    """
    if count(data, axes) == 1:
        return data
    data = data.shared("the elements")
    largest = folded("max", data, axes)
    finite = elementwise(lambda x: where(apply("is_inf", x), 0, x), largest).stored(
        "largest element"
    )
    powers = elementwise(lambda x, top: apply("exp", x - top), data, finite)
    total = folded("sum", powers, axes)
    return elementwise(lambda x, top: apply("log", x) + top, total, finite)


REDUCTIONS: Final[dict[str, Callable[[Tensor, Axes], Tensor]]] = {
    "ReduceSum": _sum,
    "ReduceMean": _mean,
    "ReduceMax": _extreme("max"),
    "ReduceMin": _extreme("min"),
    "ReduceProd": _product,
    "ReduceL1": _sum_of_magnitudes,
    "ReduceL2": _root_of_squares,
    "ReduceSumSquare": _sum_of_squares,
    "ReduceLogSum": _logarithm_of_sum,
    "ReduceLogSumExp": _logarithm_of_exponentials,
}


def _register(name: str, reduced: Callable[[Tensor, Axes], Tensor]) -> None:
    @op(name)
    def reduction(
        data: Tensor,
        axes: Ints | Tensor | None,
        *,
        keepdims: int,
        noop_with_empty_axes: int,
        declared: Declared,
    ) -> Tensor:
        """Without axes over all of them or, with noop_with_empty_axes, of each element alone."""
        require_flag("keepdims", keepdims)
        if isinstance(axes, Tensor):
            return _over_asked_axes(reduced, data, axes, keepdims, declared)
        known = tuple(sorted(distinct_axes(axes or (), data.rank)))
        if not known and not noop_with_empty_axes:
            known = tuple(range(data.rank))
        found = reduced(data, known)
        return found if keepdims else found.squeeze(known)


for _name, _reduced in REDUCTIONS.items():
    _register(_name, _reduced)


def _over_asked_axes(
    reduced: Callable[[Tensor, Axes], Tensor],
    data: Tensor,
    axes: Tensor,
    keepdims: int,
    declared: Declared,
) -> Tensor:
    """Over axes that are known only at run time: those that fit the declared shape, if asked for.

    Whether dimensions of 1 are among them makes no difference. Where several sets fit, the axes
    choose; where they are of another set, the kernel reports it.
    """
    shape = declared[0].shape if declared[0] is not None else None
    if shape is None:
        fact = "input axes and the shape of the output are unknown at compile time"
        raise RefusalError(Kind.CONSTANT_REQUIRED, fact, "make axes an initializer")
    too_many = math.comb(data.rank, axes.elements) > MOST_SETS
    choices = {} if too_many else _fitting(data.shape, axes.elements, shape, keepdims)
    if not 0 < len(choices) <= MOST_CHOICES:
        number = "too many" if too_many else len(choices) or "no"
        fact = f"{number} sets of {axes.elements} axes give the declared shape {list(shape)}"
        raise RefusalError(Kind.CONSTANT_REQUIRED, fact, "make axes an initializer")
    data = data.shared("the elements") if len(choices) > 1 else data
    asked = _bits_of(axes.reshape((axes.elements,)).shared(), data.shape).stored(
        "the set of axes, a bit each"
    )
    results = [
        (bits, found if keepdims else found.squeeze(chosen))
        for bits, chosen in choices.items()
        for found in [reduced(data, chosen)]
    ]

    def value(*indices: Index) -> Expr:
        chosen = asked[()]
        (first, result), *others = results
        fits = compare("equal", chosen, first)
        if not others:
            return Checked(result.dtype, result[indices], fits, Status.SHAPE_MISMATCH)
        found: Expr = zero(result.dtype)
        for bits, result in results:
            found = guard([(dynamic(chosen - bits), 1)], result[indices], found)
            fits = fits | compare("equal", chosen, bits)
        return Checked(found.dtype, found, fits, Status.SHAPE_MISMATCH)

    return compute(shape, value)


def _fitting(extents: Shape, number: int, shape: Shape, keepdims: int) -> dict[int, Axes]:
    """The sets of so many axes that turn `extents` into `shape`, by their bits (_bits)."""
    found: dict[int, Axes] = {}
    if number > len(extents):  # combinations would make a list of so many numbers
        return found
    for axes in itertools.combinations(range(len(extents)), number):
        kept = [1 if d in axes else n for d, n in enumerate(extents) if keepdims or d not in axes]
        if tuple(kept) == shape:
            found.setdefault(sum(1 << axis for axis in axes if extents[axis] != 1), axes)
    return found


def _bits_of(axes: Tensor, extents: Shape) -> Tensor:
    """A scalar: bit d where axis d is in `axes`, without those of extent 1.

    -1 for a wrong axis or one that is named twice.
    """
    rank, number = len(extents), axes.elements

    def any_of(test: Callable[[Expr], Expr], bits: int) -> Expr:
        return fold("max", [number], lambda n: where(test(axes[[n]]), literal(INT64, bits), 0))

    def is_axis(axis: int) -> Callable[[Expr], Expr]:
        return lambda x: compare("equal", x, axis) | compare("equal", x, axis - rank)

    wrong = any_of(lambda x: (x < -rank) | (x >= rank), 1)
    sets = [any_of(is_axis(d), 1 << d) for d, extent in enumerate(extents) if extent != 1]
    total = functools.reduce(operator.or_, sets) if sets else literal(INT64, 0)
    if number > 1:
        named = [any_of(is_axis(d), 1) for d in range(rank)]
        distinct = functools.reduce(operator.add, named)
        wrong = where(distinct < number, literal(INT64, 1), wrong)
    return full((), where(wrong > 0, -1, total))


@op("ArgMax")
def arg_max(data: Tensor, *, axis: int, keepdims: int, select_last_index: int) -> Tensor:
    return _found("max", data, axis, keepdims, select_last_index)


@op("ArgMin")
def arg_min(data: Tensor, *, axis: int, keepdims: int, select_last_index: int) -> Tensor:
    return _found("min", data, axis, keepdims, select_last_index)


def _found(operation: str, data: Tensor, axis: int, keepdims: int, last: int) -> Tensor:
    require_flag("keepdims", keepdims)
    along = positive_axis(axis, data.rank)
    found = extreme_index(operation, data, along, last=bool(last))
    return found if keepdims else found.squeeze((along,))


def extreme_index(operation: str, data: Tensor, axis: int, *, last: bool) -> Tensor:
    """Where along the axis, which stays, the first or last extreme element is; a NaN is one."""
    extent = data.shape[axis]
    if extent == 0:
        raise RefusalError(
            Kind.NO_ELEMENTS, f"axis {axis} has no elements, of which none is the {operation}imum"
        )
    data = data.shared("the elements")
    best = folded(operation, data, (axis,)).stored(f"{operation}imum")

    def index(*indices: Index) -> Expr:
        def candidate(walk: Index) -> Expr:
            x = data[[walk if d == axis else i for d, i in enumerate(indices)]]
            wanted = compare("equal", x, best[indices])
            if data.dtype.kind == "float":
                wanted = wanted | apply("is_nan", x)
            return where(wanted, at(walk), -1 if last else extent)

        return fold("max" if last else "min", [extent], candidate)

    return compute(best.shape, index)
