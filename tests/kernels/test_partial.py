"""Kernels that store a part: accumulation and run-time places, in one buffer and in order."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from onnxc.dtypes import BY_NAME, numpy_dtype
from onnxc.expression import Axis, Buffer, Expr, along, at, load
from onnxc.kernel import Loops, Program
from onnxc.status import Status
from onnxc.tensor import checked_index, dynamic
from tests.kernels import reference
from tests.kernels.programs import (
    FLOAT,
    INT32,
    INT64,
    Values,
    assert_same_bits,
    buffer,
    built,
    check_in_c,
    const,
    copy,
    emitted,
    evaluated,
    over,
)

Array = NDArray[Any]
OPERATIONS = ["", "add", "mul", "max", "min"]


def scatter(accumulate: str, out: Buffer, data: Buffer, places: Buffer, updates: Buffer) -> Program:
    """out = data; out[places[i]] = or op= updates[i], in order."""
    axis = Axis(updates.elements)
    place = dynamic(load(places, [along(axis)]))
    value = load(updates, [along(axis)])
    step = Loops(out, (place,), (axis,), value, role="updates", accumulate=accumulate)
    return Program((data, places, updates), (out,), (copy(out, data), step))


@pytest.mark.parametrize("accumulate", OPERATIONS)
@pytest.mark.parametrize("name", ["float", "double", "int8", "uint16", "int32", "int64", "uint64"])
def test_equal_places_are_visited_in_order(accumulate: str, name: str) -> None:
    """The last wins, sums wrap and round in this order, max and min keep a NaN."""
    dtype = BY_NAME[name]
    data, out = buffer("d", "input", dtype, 3), buffer("o", "output", dtype, 3)
    places, updates = buffer("p", "input", INT64, 9), buffer("u", "input", dtype, 9)
    program = scatter(accumulate, out, data, places, updates)
    of_numpy = numpy_dtype(dtype)
    if dtype.kind == "float":
        values = np.array([0.1, 1e8, -1e8, 3, -0.0, 0.0, np.nan, 0.3, np.inf], of_numpy)
        start = np.array([-0.0, 1, 2], of_numpy)
    else:
        values = np.array([100, 100, 1, 2, 3, 127, 7, 90, 111], of_numpy)
        start = np.array([100, 3, 0], of_numpy)
    inputs = {data: start, places: np.array([0, 1, 1, 1, 0, 0, 2, 0, 1]), updates: values}
    wanted = start.copy()
    kernel = program.steps[1]
    assert isinstance(kernel, Loops)
    reference.store(kernel, inputs, wanted)
    assert_same_bits(check_in_c(program, inputs)[out], wanted)


@pytest.mark.parametrize("compiler", ["clang", "tcc"])
def test_other_compilers(compiler: str, tool: Any) -> None:
    tool(compiler)
    for name, accumulate in itertools.product(("int8", "float"), OPERATIONS):
        dtype = BY_NAME[name]
        data, out = buffer("d", "input", dtype, 2), buffer("o", "output", dtype, 2)
        places, updates = buffer("p", "input", INT64, 3), buffer("u", "input", dtype, 3)
        program = scatter(accumulate, out, data, places, updates)
        start, values = np.array([3, 4], dtype.numpy), np.array([100, 2, 100], dtype.numpy)
        check_in_c(program, {data: start, places: np.array([1, 0, 1]), updates: values}, compiler)


@given(st.data())
@settings(max_examples=60)
def test_of_two_dimensions_by_the_slow_reference(data: st.DataObject) -> None:
    """A row from data, an affine column; strides that meet others' places."""
    rows, columns, count = 4, 5, data.draw(st.integers(0, 6))
    accumulate = data.draw(st.sampled_from(OPERATIONS))
    chosen = data.draw(st.lists(st.integers(0, rows - 1), min_size=count, max_size=count))
    out, base = (
        buffer("o", "output", FLOAT, rows, columns),
        buffer("d", "input", FLOAT, rows, columns),
    )
    places, updates = buffer("p", "input", INT64, count), buffer("u", "input", FLOAT, count, 3)
    i, j = Axis(count), Axis(3)
    shift = data.draw(st.integers(0, 2))
    place = (dynamic(load(places, [along(i)])), along(j) + shift)
    value = load(updates, [along(i), along(j)])
    step = Loops(out, place, (i, j), value, accumulate=accumulate)
    program = Program((base, places, updates), (out,), (copy(out, base), step))
    generator = np.random.default_rng(count + shift)
    inputs: Values = {
        base: generator.standard_normal((rows, columns)).astype(np.float32),
        places: np.array(chosen, np.int64),
        updates: generator.standard_normal((count, 3)).astype(np.float32),
    }
    wanted = inputs[base].copy()
    reference.store(step, inputs, wanted)
    assert_same_bits(evaluated(program, inputs)[1][out], wanted)


def test_an_affine_place_may_accumulate_too() -> None:
    """Overlapping windows added up: what convolution transposed does."""
    x, y = buffer("x", "input", FLOAT, 4, 3), buffer("y", "output", FLOAT, 6)
    i, k, n = Axis(4), Axis(3), Axis(6)
    steps = (
        over(y, const(0, FLOAT), n),
        Loops(y, (along(i) + along(k),), (i, k), load(x, [along(i), along(k)]), accumulate="add"),
    )
    array = np.arange(12, dtype=np.float32).reshape(4, 3)
    wanted = np.zeros(6, np.float32)
    for row, column in np.ndindex(4, 3):
        wanted[row + column] += array[row, column]
    assert check_in_c(Program((x,), (y,), steps), {x: array})[y].tolist() == wanted.tolist()


def test_a_checked_place_stays_inside() -> None:
    """A bad one becomes the first, and is reported."""
    n, y = buffer("n", "input", INT32, 3), buffer("y", "output", INT64, 4)
    i, all_of_it = Axis(3), Axis(4)
    place = checked_index(load(n, [along(i)]), 4)
    steps = (
        over(y, const(0, INT64), all_of_it),
        Loops(y, (place,), (i,), at(along(i)) + 1, accumulate="add"),
    )
    program = Program((n,), (y,), steps)
    ready = built(program)
    for numbers, status, wanted in (
        ([1, -1, 1], Status.OK, [0, 4, 0, 2]),
        ([1, 4, -5], Status.INDEX_OUT_OF_RANGE, [5, 1, 0, 0]),
    ):
        given_n = {n: np.array(numbers, np.int32)}
        for result in (ready.run(given_n), evaluated(program, given_n)):
            assert (result[0], result[1][y].tolist()) == (status, wanted)


def test_what_a_part_is_stored_into_is_kept_until_then() -> None:
    """Between the fill and the update lives another buffer: the plan gives it another place."""
    x, y = buffer("x", "input", FLOAT, 64), buffer("y", "output", FLOAT, 64)
    a, b = buffer("a", "workspace", FLOAT, 64), buffer("b", "workspace", FLOAT, 64)
    i, one = Axis(64), Axis(2)
    update = Loops(a, (dynamic(at(along(one) * 3)),), (one,), load(b, [along(one) * 5]))
    turned = over(b, load(x, [along(i) * -1 + 63]), i)
    total = over(y, load(a, [along(i) * -1 + 63]), i)
    program = Program((x,), (y,), (copy(a, x), turned, update, total))
    array = np.arange(64, dtype=np.float32)
    wanted = array.copy()
    wanted[[0, 3]] = array[::-1][[0, 5]]
    assert check_in_c(program, {x: array})[y].tolist() == wanted[::-1].tolist()


def test_an_update_reads_the_buffer_that_it_changes() -> None:
    """Element after element: each sees what the ones before have stored."""
    y, i, n = buffer("y", "output", INT64, 5), Axis(5), Axis(4)
    before: Expr = load(y, [along(n)])
    place = dynamic(at(along(n) + 1))
    steps = (over(y, const(1, INT64), i), Loops(y, (place,), (n,), before, accumulate="add"))
    program = Program((), (y,), steps)
    assert built(program).run({})[1][y].tolist() == [1, 2, 3, 4, 5]


def test_of_no_dimension() -> None:
    x, y, k = buffer("x", "input", FLOAT, 5), buffer("y", "output", FLOAT), Axis(5)
    steps = (
        over(y, const(0, FLOAT)),
        Loops(y, (), (k,), load(x, [along(k)]), accumulate="max"),
    )
    array = np.array([1, 5, -3, 4, 2], np.float32)
    assert check_in_c(Program((x,), (y,), steps), {x: array})[y] == 5


def test_a_part_is_no_plain_copy() -> None:
    """memcpy would overwrite the rest."""
    x, y, i = buffer("x", "input", FLOAT, 4), buffer("y", "output", FLOAT, 4), Axis(4)
    steps = (
        over(y, const(1, FLOAT), i),
        Loops(y, (along(i),), (i,), load(x, [along(i)]), accumulate="add"),
    )
    program = Program((x,), (y,), steps)
    assert "memcpy" not in emitted(program).body
    given = {x: np.arange(4, dtype=np.float32)}
    assert check_in_c(program, given)[y].tolist() == [1, 2, 3, 4]


def test_partial_says_what_keeps_the_rest() -> None:
    y, i = buffer("y", "output", FLOAT, 4), Axis(4)
    whole = over(y, const(1, FLOAT), i)
    assert not whole.partial
    assert whole.reads() == ()
    added = Loops(y, (along(i),), (i,), const(1, FLOAT), accumulate="add")
    placed = Loops(y, (dynamic(at(along(i))),), (i,), const(1, FLOAT))
    for step in (added, placed):
        assert step.partial
        assert step.reads() == (y,)
