"""Folds: sums in lanes and a fixed tree, wrapping integers, NaN, empty ranges; C as evaluate."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from onnxc.dtypes import BY_NAME, ElementType, numpy_dtype
from onnxc.expression import Axis, Checked, Expr, Fold, Index, along, apply, at, compare, load
from onnxc.kernel import Program
from onnxc.status import Status
from tests.kernels.programs import (
    BOOL,
    FLOAT,
    INT64,
    buffer,
    built,
    check_in_c,
    const,
    emitted,
    evaluated,
    over,
)
from tests.kernels.strategies import NUMBERS

FLOATS = [BY_NAME["float"], BY_NAME["double"]]
INTEGERS = [t for t in NUMBERS if t.kind != "float"]


def fold_of(operation: str, dtype: ElementType, rows: int, *shape: int, name: str = "") -> Program:
    """y[i] = the fold of x[i][...]."""
    x = buffer(f"x{name}", "input", dtype, rows, *shape)
    y = buffer(f"y{name}", "output", dtype, rows)
    i, axes = Axis(rows), tuple(map(Axis, shape))
    value = load(x, [along(i), *map(along, axes)])
    return Program((x,), (y,), (over(y, Fold(dtype, operation, axes, value), i),))


def result(program: Program, x: NDArray[Any]) -> NDArray[Any]:
    return check_in_c(program, {program.inputs[0]: x})[program.outputs[0]]


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_sums_are_accurate_and_the_same_bits(dtype: ElementType, compiler: str, tool: Any) -> None:
    """Over 1 to 3 axes of lengths around 16 lanes."""
    tool(compiler)
    generator = np.random.default_rng(0)
    shapes = [(1,), (15,), (16,), (17,), (1000,), (7, 33), (3, 5, 18)]
    folds = [fold_of("sum", dtype, 3, *shape, name=str(n)) for n, shape in enumerate(shapes)]
    program = Program(
        tuple(fold.inputs[0] for fold in folds),
        tuple(fold.outputs[0] for fold in folds),
        tuple(step for fold in folds for step in fold.steps),
    )
    inputs = {
        x: generator.standard_normal(x.shape).astype(numpy_dtype(dtype)) for x in program.inputs
    }
    found = check_in_c(program, inputs, compiler)
    for y, x in zip(program.outputs, inputs.values(), strict=True):
        exact = [math.fsum(row.reshape(-1)) for row in x]
        bound = np.finfo(x.dtype).eps * 12 * np.abs(x).reshape(3, -1).sum(-1)
        assert (np.abs(found[y] - exact) <= bound).all()


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap(dtype: ElementType) -> None:
    x = np.full((2, 33), np.iinfo(numpy_dtype(dtype)).max, numpy_dtype(dtype))
    x[1, ::2] = 3
    with np.errstate(over="ignore"):
        assert (result(fold_of("sum", dtype, 2, 33), x) == x.sum(1, dtype=x.dtype)).all()
        assert (result(fold_of("prod", dtype, 2, 33), x) == x.prod(1, dtype=x.dtype)).all()


@pytest.mark.parametrize("dtype", NUMBERS)
def test_empty_ranges_give_the_identity(dtype: ElementType) -> None:
    of_numpy = numpy_dtype(dtype)
    lowest: Any = -np.inf if dtype.kind == "float" else np.iinfo(of_numpy).min
    highest: Any = np.inf if dtype.kind == "float" else np.iinfo(of_numpy).max
    wanted = {"sum": 0, "prod": 1, "max": lowest, "min": highest}
    axis = Axis(0)
    x = buffer("x", "input", dtype, 0, 1)
    outputs = [buffer(operation, "output", dtype) for operation in wanted]
    values = [
        Fold(dtype, operation, (axis, Axis(4)), load(x, [along(axis), Index()]))
        for operation in wanted
    ]
    steps = tuple(over(y, value) for y, value in zip(outputs, values, strict=True))
    found = check_in_c(Program((x,), tuple(outputs), steps), {x: np.zeros((0, 1), of_numpy)})
    assert {y.name: array.item() for y, array in found.items()} == wanted


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("operation", ["max", "min", "sum", "prod"])
def test_one_nan_is_enough(dtype: ElementType, operation: str) -> None:
    x = np.ones((3, 40), numpy_dtype(dtype))
    x[0, 17] = x[1, 0] = x[2, 39] = np.nan
    assert np.isnan(result(fold_of(operation, dtype, 3, 40), x)).all()


def test_a_value_used_inside_and_outside_of_folds() -> None:
    """Names of a fold's body end with it: two folds over one axis, and what is around them."""
    x, y = buffer("x", "input", FLOAT, 4), buffer("y", "output", BOOL, 4)
    i, k = Axis(4), Axis(4)
    flag = compare("equal", load(x, [along(i)]), const(1, FLOAT))
    inner = compare("equal", load(x, [along(k)]), load(x, [along(i)]))
    number = at(Index(0, (), ((inner, 1), (flag, 2), (inner, 4))))
    high, low = (Fold(INT64, operation, (k,), number) for operation in ("max", "min"))
    value = compare("equal", compare("equal", high, low), compare("equal", flag, inner_of(flag)))
    found = check_in_c(
        Program((x,), (y,), (over(y, value, i),)), {x: np.array([1, 2, 1, 1], np.float32)}
    )
    assert found[y].tolist() == [False, False, False, False]


def inner_of(flag: Expr) -> Expr:
    return compare("equal", flag, const(True, BOOL))


def test_a_fold_in_a_fold() -> None:
    """The largest row sum: the inner sum runs once a row."""
    x, y = buffer("x", "input", FLOAT, 5, 20), buffer("y", "output", FLOAT)
    i, k = Axis(5), Axis(20)
    row = Fold(FLOAT, "sum", (k,), load(x, [along(i), along(k)]))
    program = Program((x,), (y,), (over(y, Fold(FLOAT, "max", (i,), row)),))
    array = np.arange(100, dtype=np.float32).reshape(5, 20)
    assert check_in_c(program, {x: array})[y] == array.sum(1).max()


def test_a_check_in_a_fold() -> None:
    """One bad element is enough; the others do not hide it."""
    x, y = buffer("x", "input", FLOAT, 2, 20), buffer("y", "output", FLOAT, 2)
    i, k = Axis(2), Axis(20)
    element = load(x, [along(i), along(k)])
    good = compare("equal", element, element)
    checked = Checked(FLOAT, element, good, Status.DIVISION_BY_ZERO)
    program = Program((x,), (y,), (over(y, Fold(FLOAT, "sum", (k,), checked), i),))
    array = np.ones((2, 20), np.float32)
    ready = built(program)
    assert ready.run({x: array})[0] == evaluated(program, {x: array})[0] == Status.OK
    array[1, 7] = np.nan
    assert ready.run({x: array})[0] == Status.DIVISION_BY_ZERO
    assert evaluated(program, {x: array})[0] == Status.DIVISION_BY_ZERO


def test_more_iterations_than_an_int32_counts() -> None:
    """Only looked at, not run."""
    y, k = buffer("y", "output", FLOAT), Axis(2**31)
    program = Program((), (y,), (over(y, Fold(FLOAT, "prod", (k,), const(1, FLOAT))),))
    assert "for (int64_t i = 0; i < 2147483648; i++)" in emitted(program).body


def test_bool_inputs_in_a_fold_are_true_for_any_bit() -> None:
    x, y, k = buffer("x", "input", BOOL, 20), buffer("y", "output", INT64), Axis(20)
    flag = apply("truth", load(x, [along(k)]))
    value = Fold(INT64, "sum", (k,), at(Index(0, (), ((flag, 1),))))
    array = np.array([0, 1, 2, 255] * 5, np.uint8).view(np.bool_)
    assert check_in_c(Program((x,), (y,), (over(y, value),)), {x: array})[y] == 15
