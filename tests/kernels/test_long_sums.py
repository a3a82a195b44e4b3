"""Sums that keep their digits, and the fewest axes of a Fold."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from onnxc.dtypes import BY_NAME, ElementType, numpy_dtype
from onnxc.expression import Axis, Fold, Index, along, at, fold, guard, load
from onnxc.kernel import Loops, Program
from onnxc.passes.merge_axes import merged
from tests.kernels.programs import (
    FLOAT,
    INT64,
    buffer,
    built,
    check_in_c,
    const,
    emitted,
    over,
)

Array = NDArray[Any]
FLOATS = [BY_NAME["float"], BY_NAME["double"]]
LONG_ROW = 16 * 64
"""The longest row of floats whose sum is plain: 16 terms in each of 64 lanes."""


def row_sums(rows: int, length: int, dtype: ElementType, hint: str = "") -> Program:
    x, y = buffer("x", "input", dtype, rows, length), buffer("y", "output", dtype, rows)
    row = Axis(rows)
    value = fold("sum", [length], lambda k: load(x, [along(row), k]), hint)
    return Program((x,), (y,), (over(y, value, row),))


def summed(array: Array, dtype: ElementType, hint: str = "") -> Array:
    """Each row's sum, in C, which evaluate agrees with bit for bit."""
    rows, length = array.shape
    program = row_sums(rows, length, dtype, hint)
    inputs = {program.inputs[0]: array.astype(numpy_dtype(dtype))}
    return check_in_c(program, inputs)[program.outputs[0]]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("count", [10**6, 10**7])
def test_millions_of_tenths(count: int, dtype: ElementType) -> None:
    """Within a unit of the last place; the mean, too. In C alone, which is fast enough."""
    tenth = numpy_dtype(dtype).type(0.1)
    program = row_sums(1, count, dtype)
    inputs = {program.inputs[0]: np.full((1, count), tenth)}
    (total,) = built(program).run(inputs)[1][program.outputs[0]]
    exact = float(Fraction(float(tenth)) * count)
    assert abs(float(total) - exact) <= np.spacing(total)
    mean = total / numpy_dtype(dtype).type(count)
    assert abs(mean - tenth) <= np.spacing(tenth)


@pytest.mark.parametrize("length", [4, 64, 128, LONG_ROW, LONG_ROW + 4, 4096])
def test_what_cancels_leaves_the_rest(length: int) -> None:
    """1e8 + 1 - 1e8 + 1 and so on: in float each 1 alone is lost beside 1e8."""
    row = np.tile([1e8, 1.0, -1e8, 1.0], length // 4)
    assert summed(row.reshape(1, -1), FLOAT).tolist() == [length / 2]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_long_sum_is_as_good_as_its_16_lanes(dtype: ElementType) -> None:
    """Each lane is nearly exact: what is left are the roundings of the last 15 sums."""
    generator = np.random.default_rng(5)
    scale = np.exp2(generator.uniform(-20, 20, (4, 30_011)))
    rows = (generator.standard_normal((4, 30_011)) * scale).astype(numpy_dtype(dtype))
    for found, row in zip(summed(rows, dtype), rows, strict=True):
        wide = row.astype(np.float64).tolist()
        lanes = [math.fsum(wide[lane::16]) for lane in range(16)]
        bound = 4 * np.finfo(row.dtype).eps * max(map(abs, lanes))
        assert abs(float(found) - math.fsum(wide)) <= bound


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("length", [20, 300])
def test_infinities_stay_and_are_no_nan(dtype: ElementType, length: int) -> None:
    rows = np.ones((6, length), numpy_dtype(dtype))
    most = np.finfo(rows.dtype).max
    rows[0, 3], rows[1, 19], rows[2, 7] = np.inf, -np.inf, np.nan
    rows[3, [1, 17]] = np.inf
    rows[4, :] = most
    rows[5, [0, 16]] = np.inf, -np.inf
    found = summed(rows, dtype)
    assert found[[0, 1, 3, 4]].tolist() == [math.inf, -math.inf, math.inf, math.inf]
    assert np.isnan(found[[2, 5]]).all()


def test_a_contraction_is_plain_and_a_short_sum_too() -> None:
    """Only long sums that are no contraction carry their errors."""
    x = buffer("x", "input", FLOAT, 5000)

    def text(length: int, hint: str) -> str:
        y = buffer("y", "output", FLOAT)
        value = fold("sum", [length], lambda k: load(x, [k]), hint)
        return emitted(Program((x,), (y,), (over(y, value),))).body

    assert "onnxc_add_exactly_float" in text(LONG_ROW + 1, "")
    assert "onnxc_add_exactly_float" not in text(LONG_ROW, "")
    assert "onnxc_add_exactly_float" not in text(5000, "contraction")


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_long_contraction(dtype: ElementType) -> None:
    generator = np.random.default_rng(1)
    rows = generator.standard_normal((3, 5000)).astype(numpy_dtype(dtype))
    for found, row in zip(summed(rows, dtype, "contraction"), rows, strict=True):
        wide = row.astype(np.float64).tolist()
        bound = np.finfo(row.dtype).eps * 16 * math.fsum(map(abs, wide))
        assert abs(float(found) - math.fsum(wide)) <= bound


# The axes of a Fold.


def axes_after(value: Any, *axes: Axis) -> tuple[int, ...]:
    """The extents that merge_axes leaves of the Fold that is the value."""
    out = buffer("y", "output", value.dtype, *(axis.extent for axis in axes))
    left = merged(Loops(out, tuple(map(along, axes)), axes, value)).value
    return tuple(axis.extent for axis in left.axes) if isinstance(left, Fold) else ()


A, B, C, ONE = Axis(4), Axis(5), Axis(6), Axis(1)
CUBE = buffer("x", "input", FLOAT, 4, 5, 6)


def test_axes_that_walk_as_one_are_one() -> None:
    def total(*order: Axis) -> Fold:
        return Fold(FLOAT, "sum", order, load(CUBE, [along(A), along(B), along(C)]))

    assert axes_after(total(B, C), A) == (30,)
    assert axes_after(total(A, B, C)) == (120,)
    assert axes_after(total(C, B), A) == (6, 5)
    assert axes_after(total(A, C), B) == (4, 6)
    assert axes_after(total(A, B), C) == (20,)


def test_every_index_in_it_counts() -> None:
    """That of another load, of At, of a Guard's bounds, and in a Fold below."""
    other = buffer("z", "input", FLOAT, 5)
    element = load(CUBE, [along(A), along(B), along(C)])
    values = [
        element * load(other, [along(B)]),
        guard([(along(C) + -1, 6)], element, const(0, FLOAT)),
        element * Fold(FLOAT, "max", (Axis(2),), load(other, [along(B)])),
    ]
    for value in values:
        assert axes_after(Fold(FLOAT, "sum", (B, C), value), A) == (5, 6)
    place = at(along(B) * 6 + along(C))
    assert axes_after(Fold(INT64, "sum", (B, C), place), A) == (30,)
    assert axes_after(Fold(INT64, "sum", (B, C), at(along(C))), A) == (5, 6)
    assert axes_after(Fold(FLOAT, "max", (B, C), const(1, FLOAT)), A) == (30,)


def test_an_axis_of_one_iteration_is_none() -> None:
    one = load(CUBE, [along(A), along(B), Index()])
    assert axes_after(Fold(FLOAT, "sum", (ONE, B), one), A) == (5,)
    alone = Fold(FLOAT, "sum", (ONE, Axis(1)), one)
    out = buffer("y", "output", FLOAT, 4, 5)
    left = merged(Loops(out, (along(A), along(B)), (A, B), alone))
    assert not isinstance(left.value, Fold)


def test_the_operation_and_the_hint_stay() -> None:
    element = load(CUBE, [along(A), along(B), along(C)])
    value = Fold(FLOAT, "sum", (B, C), element * element, "contraction")
    out = buffer("y", "output", FLOAT, 4)
    left = merged(Loops(out, (along(A),), (A,), value)).value
    assert isinstance(left, Fold)
    assert (left.operation, left.hint, left.dtype) == ("sum", "contraction", FLOAT)


def test_joined_axes_sum_in_the_lanes_of_the_longer_one() -> None:
    """The same bits as over one dimension; and right where they cannot be joined."""
    array = np.random.default_rng(3).standard_normal((2, 7, 33)).astype(np.float32)
    x, y = buffer("x", "input", FLOAT, 2, 7, 33), buffer("y", "output", FLOAT, 2)
    i, j, k = Axis(2), Axis(7), Axis(33)
    element = load(x, [along(i), along(j), along(k)])
    program = Program((x,), (y,), (over(y, Fold(FLOAT, "sum", (j, k), element), i),))
    found = check_in_c(program, {x: array})[y]
    assert found.tobytes() == summed(array.reshape(2, 231), FLOAT).tobytes()
    turned = Program((x,), (y,), (over(y, Fold(FLOAT, "sum", (k, j), element), i),))
    across = check_in_c(turned, {x: array})[y]
    exact = [math.fsum(row.reshape(-1).tolist()) for row in array]
    assert np.allclose(across, exact, rtol=1e-6)
    assert np.allclose(found, exact, rtol=1e-6)
