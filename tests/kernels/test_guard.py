"""Guard: a value that is computed only where its indices are in range."""

from __future__ import annotations

import numpy as np
import pytest

from onnxc.expression import Axis, Checked, Expr, Guard, Index, along, apply, at, fold, guard, load
from onnxc.kernel import Program
from onnxc.status import Status
from onnxc.tensor import compute, constant, dynamic, guarded, of_buffer
from tests.kernels.programs import (
    FLOAT,
    INT32,
    INT64,
    Values,
    buffer,
    built,
    check_in_c,
    const,
    emitted,
    evaluated,
    over,
)
from tests.toolchains import Tool

BAD = Status.INDEX_OUT_OF_RANGE


def test_bounds_that_always_hold_are_left_out() -> None:
    x, i = buffer("x", "input", FLOAT, 4), Axis(4)
    value, other = load(x, [along(i)]), const(7, FLOAT)
    assert guard([(along(i), 4)], value, other) is value
    assert guard([], value, other) is value
    kept = guard([(along(i), 4), (along(i) + 1, 4)], value, other)
    assert isinstance(kept, Guard)
    assert kept.bounds == ((along(i) + 1, 4),)


def test_bounds_that_never_hold_give_the_other_value() -> None:
    x, i = buffer("x", "input", FLOAT, 4), Axis(4)
    value, other = load(x, [along(i)]), const(7, FLOAT)
    for index in (along(i) + 4, along(i) + -4):
        assert guard([(index, 4)], value, other) is other
    known = guard([(Index(0, (), ((at(along(i)), 1),)), 4), (along(i) + 9, 4)], value, other)
    assert known is other


def test_padding_reads_nothing_outside() -> None:
    """Of two dimensions, before and after; the input ends where its page may end."""
    x, y = buffer("x", "input", FLOAT, 2, 3), buffer("y", "output", FLOAT, 5, 6)
    source = of_buffer(x)
    padded = compute((5, 6), lambda i, j: guarded(source, [i + -1, j + -2], const(-1, FLOAT)))
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    wanted = np.pad(array, [(1, 2), (2, 1)], constant_values=-1)
    program = Program((x,), (y,), (over(y, padded.value, *padded.axes),))
    assert check_in_c(program, {x: array})[y].tolist() == wanted.tolist()


def test_the_other_value_is_any_expression() -> None:
    """It may read elsewhere and hold a Guard of its own."""
    x, y, z = (buffer(n, k, FLOAT, 4) for n, k in (("x", "input"), ("y", "output"), ("z", "input")))
    i = Axis(4)
    last = guard([(along(i) + -3, 1)], load(x, [along(i) + -3]), load(z, [along(i)]))
    value = guard([(along(i) + 2, 4)], load(x, [along(i) + 2]) * 10, last)
    given = {x: np.array([1, 2, 3, 4], np.float32), z: np.array([5, 6, 7, 8], np.float32)}
    program = Program((x, z), (y,), (over(y, value, i),))
    assert check_in_c(program, given)[y].tolist() == [30, 40, 7, 1]


def test_a_guard_in_a_fold_and_a_fold_in_a_guard() -> None:
    """A window's sum, of the elements that there are; and the sums of the rows that there are."""
    x, y, i = buffer("x", "input", FLOAT, 5), buffer("y", "output", FLOAT, 5), Axis(5)
    window = fold("sum", [3], lambda k: guarded(of_buffer(x), [along(i) + k + -1], const(0, FLOAT)))
    array = np.array([1, 2, 4, 8, 16], np.float32)
    program = Program((x,), (y,), (over(y, window, i),))
    assert check_in_c(program, {x: array})[y].tolist() == [3, 7, 14, 28, 24]
    square = buffer("s", "input", FLOAT, 3, 20)
    row = fold("sum", [20], lambda k: load(square, [along(i) + -1, k]))
    value = guard([(along(i) + -1, 3)], row, const(-1, FLOAT))
    rows = np.arange(60, dtype=np.float32).reshape(3, 20)
    program = Program((square,), (y,), (over(y, value, i),))
    assert check_in_c(program, {square: rows})[y].tolist() == [-1, *rows.sum(1).tolist(), -1]


def test_a_check_counts_only_inside() -> None:
    """Also in a Fold below; what would fail outside is not reported."""
    x, y, i = buffer("x", "input", FLOAT, 3), buffer("y", "output", FLOAT, 4), Axis(4)
    element = load(x, [along(i)])
    positive = Checked(FLOAT, element, element > 0, BAD)
    total = fold("sum", [2], lambda k: Checked(FLOAT, element, element > 0, BAD))
    value = guard([(along(i), 3)], positive + total, const(0, FLOAT))
    program = Program((x,), (y,), (over(y, value, i),))
    ready = built(program)
    for numbers, status in (([1, 2, 3], Status.OK), ([1, 2, -3], BAD)):
        given = {x: np.array(numbers, np.float32)}
        assert ready.run(given)[0] == evaluated(program, given)[0] == status


def test_a_run_time_place_is_guarded() -> None:
    """Whatever the data says: no element outside is read, no index overflows."""
    x, n = buffer("x", "input", FLOAT, 3), buffer("n", "input", INT64, 6)
    y, i = buffer("y", "output", FLOAT, 6), Axis(6)
    place = dynamic(load(n, [along(i)]))
    program = Program((x, n), (y,), (over(y, guarded(of_buffer(x), [place], const(9, FLOAT)), i),))
    numbers = np.array([0, 2, 3, -1, 2**62, -(2**63)], np.int64)
    given: Values = {x: np.array([1, 2, 3], np.float32), n: numbers}
    assert check_in_c(program, given)[y].tolist() == [1, 3, 9, 9, 9, 9]


def test_two_values_share_what_is_outside_and_not_what_is_inside() -> None:
    """A name that a Guard's body makes ends with it."""
    x, y, i = buffer("x", "input", FLOAT, 4), buffer("y", "output", FLOAT, 4), Axis(4)
    inside = apply("sqrt", load(x, [along(i) + 1])) + 1
    twice = inside * inside
    first = guard([(along(i) + 1, 4)], twice, const(0, FLOAT))
    second = guard([(along(i) + 1, 4)], twice + 1, const(5, FLOAT))
    shared = apply("sqrt", load(x, [along(i)]))
    value = first * shared + second * shared
    program = Program((x,), (y,), (over(y, value, i),))
    given = np.array([1, 4, 9, 16], np.float32)
    assert check_in_c(program, {x: given})[y].tolist() == [19, 66, 153, 20]


def test_guards_in_a_chain_are_written_once() -> None:
    x, y, i = buffer("x", "input", FLOAT, 9), buffer("y", "output", FLOAT, 9), Axis(9)
    value: Expr = load(x, [along(i)])
    for distance in range(1, 20):
        value = guard([(along(i) + distance % 5, 9)], value + value, value)
    program = Program((x,), (y,), (over(y, value, i),))
    assert len(emitted(program).body) < 12_000
    check_in_c(program, {x: np.arange(9, dtype=np.float32)})


def test_of_an_empty_tensor_only_the_other_value_is_left() -> None:
    empty = of_buffer(buffer("x", "input", FLOAT, 0, 3))
    other = const(2, FLOAT)
    assert guarded(empty, [Index(), Index()], other) is other


@pytest.mark.parametrize("compiler", ["clang", "tcc"])
def test_other_compilers(compiler: str, tool: Tool) -> None:
    tool(compiler)
    x, y, i = buffer("x", "input", INT32, 4), buffer("y", "output", INT32, 4), Axis(4)
    value = guard([(along(i) * -1 + 2, 2)], load(x, [along(i) * -1 + 2]), const(-7, INT32))
    program = Program((x,), (y,), (over(y, value, i),))
    given = {x: np.array([1, 2, 3, 4], np.int32)}
    assert check_in_c(program, given, compiler)[y].tolist() == [-7, 2, 1, -7]


def test_a_table_says_the_place() -> None:
    """A constant index table that points outside of the tensor in places."""
    x, y = buffer("x", "input", FLOAT, 3), buffer("y", "output", FLOAT, 5)
    table = constant(np.array([2, -1, 0, 3, 1], np.int32), INT32)
    result = compute((5,), lambda i: guarded(of_buffer(x), [dynamic(table[[i]])], const(0, FLOAT)))
    program = Program((x,), (y,), (over(y, result.value, *result.axes),))
    given = {x: np.array([5, 6, 7], np.float32)}
    assert check_in_c(program, given)[y].tolist() == [7, 0, 5, 0, 6]
