"""Checked: the value is safe, the code is reported, the run goes on."""

import numpy as np

from onnxc.expression import Axis, Checked, Expr, Index, along, at, compare, load
from onnxc.kernel import Program
from onnxc.status import Status
from tests.kernels.programs import (
    BOOL,
    FLOAT,
    INT32,
    INT64,
    buffer,
    built,
    check_in_c,
    const,
    emitted,
    evaluated,
    over,
)

BAD_INDEX, BAD_DIVISION = Status.INDEX_OUT_OF_RANGE, Status.DIVISION_BY_ZERO


def test_an_index_from_data_is_clamped_and_reported() -> None:
    """Here every index but 0 and 1 is bad, and becomes 0."""
    x, n = buffer("x", "input", FLOAT, 2, 3), buffer("n", "input", INT32, 4)
    y = buffer("y", "output", FLOAT, 4, 3)
    i, j = Axis(4), Axis(3)
    given = load(n, [along(i)])
    is_one = compare("equal", given, const(1, INT32))
    is_zero = compare("equal", given, const(0, INT32))
    neither = compare("equal", is_one, is_zero)
    fine = compare("equal", neither, const(False, BOOL))
    safe = Checked(BOOL, is_one, fine, BAD_INDEX)
    value = load(x, [Index(0, (), ((safe, 1),)), along(j)])
    program = Program((x, n), (y,), (over(y, value, i, j),))
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    ready = built(program)
    for numbers, wanted in (([0, 1, 1, 0], Status.OK), ([0, 7, 1, -1], BAD_INDEX)):
        inputs = {x: array, n: np.array(numbers, np.int32)}
        status, outputs = ready.run(inputs)
        assert status == evaluated(program, inputs)[0] == wanted
        assert outputs[y].tolist() == evaluated(program, inputs)[1][y].tolist()
        assert outputs[y].tolist() == [array[int(n == 1)].tolist() for n in numbers]


def test_of_one_kernel_the_lowest_code_of_the_first_bad_kernel_wins() -> None:
    flags = buffer("flags", "input", BOOL, 3)
    y, z = buffer("y", "output", BOOL), buffer("z", "output", INT64)
    one, two, three = (
        compare("equal", load(flags, [Index(n)]), const(True, BOOL)) for n in range(3)
    )
    both = compare(
        "equal",
        Checked(INT64, const(1, INT64), one, BAD_DIVISION),
        Checked(INT64, const(2, INT64), two, BAD_INDEX),
    )
    last = Checked(INT64, const(3, INT64), three, BAD_INDEX)
    program = Program((flags,), (y, z), (over(y, both), over(z, last)))
    ready = built(program)
    expected = {
        (True, True, True): Status.OK,
        (False, True, True): BAD_DIVISION,
        (True, False, True): BAD_INDEX,
        (False, False, True): BAD_INDEX,
        (False, True, False): BAD_DIVISION,
        (True, True, False): BAD_INDEX,
    }
    for given, wanted in expected.items():
        inputs = {flags: np.array(given)}
        assert ready.run(inputs)[0] == evaluated(program, inputs)[0] == wanted
        assert ready.run(inputs)[1][z] == 3


def test_a_checked_value_used_often_is_written_once() -> None:
    """Else each level of such a chain would double the text."""
    x, y, i = buffer("x", "input", BOOL, 4), buffer("y", "output", BOOL, 4), Axis(4)
    value: Expr = compare("equal", load(x, [along(i)]), const(True, BOOL))
    for _ in range(20):
        checked = Checked(BOOL, value, value, BAD_INDEX)
        value = compare("equal", compare("equal", checked, const(False, BOOL)), checked)
    program = Program((x,), (y,), (over(y, value, i),))
    assert len(emitted(program).body) < 8000
    check_in_c(program, {x: np.array([True, False, True, True])})


def test_no_iteration_no_report() -> None:
    y, i = buffer("y", "output", INT64, 0), Axis(0)
    value = Checked(INT64, at(along(i)), const(False, BOOL), BAD_INDEX)
    program = Program((), (y,), (over(y, value, i),))
    assert built(program).run({})[0] == evaluated(program, {})[0] == Status.OK


def test_two_checks_of_one_value_compare_without_a_warning() -> None:
    """They are two expressions and one text; clang warns of v == v."""
    x, y = buffer("x", "input", INT64, 2), buffer("y", "output", BOOL)
    v = load(x, [Index(0)])
    first, second = (
        Checked(INT64, v, compare("equal", v, const(n, INT64)), code)
        for n, code in ((1, BAD_INDEX), (2, BAD_DIVISION))
    )
    program = Program((x,), (y,), (over(y, compare("equal", first, second)),))
    status, outputs = built(program, "clang").run({x: np.array([1, 2])})
    assert (status, outputs[y].item()) == (BAD_DIVISION, True)
