"""Lazy tensors that read others: views, what is stored and shared, run-time indices."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from onnxc.dtypes import BY_NAME
from onnxc.evaluate import constant_value
from onnxc.expression import Buffer, Const, Index, Load, apply, at, fold
from onnxc.kernel import Loops, Program, pending
from onnxc.status import Status
from onnxc.tensor import (
    Tensor,
    broadcast_shape,
    checked_index,
    compute,
    constant,
    dynamic,
    elementwise,
    full,
    guarded,
    of_buffer,
)
from onnxc.traversal import walk
from tests.kernels.programs import (
    BOOL,
    FLOAT,
    INT32,
    INT64,
    Values,
    buffer,
    built,
    check_in_c,
    const,
    evaluated,
    over,
)

Array = NDArray[Any]
Shape = tuple[int, ...]


def known(array: Array) -> Tensor:
    """As a buffer, even where all elements are equal."""
    return of_buffer(Buffer("", array.shape, INT64, "constant", array))


def numbers(*shape: int) -> Array:
    return np.arange(math.prod(shape), dtype=np.int64).reshape(shape)


def assert_is(tensor: Tensor, wanted: Array) -> None:
    found = constant_value(tensor)
    assert found is not None
    assert found.shape == tensor.shape == wanted.shape
    assert found.tolist() == wanted.tolist()


def is_view(tensor: Tensor) -> bool:
    """Whether nothing has to be stored before it can be read."""
    return not any(isinstance(node, Load) and node.buffer.made_by for node in walk(tensor.value))


VIEWS: list[tuple[Shape, Shape]] = [
    ((6,), (2, 3)),
    ((2, 3), (6,)),
    ((2, 3, 4), (6, 4)),
    ((2, 3, 4), (2, 12)),
    ((2, 6), (3, 4)),
    ((4, 6), (2, 2, 3, 2)),
    ((2, 1, 3), (1, 2, 3, 1)),
    ((1, 1), ()),
    ((), (1, 1, 1)),
    ((2, 3, 5, 7), (6, 35)),
]


@pytest.mark.parametrize(("old", "new"), VIEWS)
def test_reshape_of_a_buffer_is_a_view(old: Shape, new: Shape) -> None:
    tensor = known(numbers(*old)).reshape(new)
    assert is_view(tensor)
    assert_is(tensor, numbers(*new))


def test_reshape_of_a_whole_buffer_is_that_buffer() -> None:
    """So that a copy is none."""
    source = known(numbers(2, 3, 4))
    assert source.reshape((6, 4)).buffer is source.buffer
    assert source.reshape((2, 3, 4)) is source
    assert source.transpose([0, 2, 1]).buffer is None
    assert source.transpose([0, 2, 1]).transpose([0, 2, 1]).reshape((24,)).buffer is source.buffer


TURNED: list[tuple[str, Callable[[Any], Any], Shape, bool]] = [
    ("the two that move stay apart", lambda x: x.transpose([1, 0, 2]), (3, 2, 2, 2), True),
    ("the two that move are joined", lambda x: x.transpose([1, 0, 2]), (6, 4), False),
    ("neighbours move together", lambda x: x.transpose([1, 2, 0]), (12, 2), True),
    ("neighbours move and are split again", lambda x: x.transpose([1, 2, 0]), (4, 3, 2), True),
    ("all in one", lambda x: x.transpose([2, 1, 0]), (24,), False),
]


@pytest.mark.parametrize(("_", "turn", "new", "view"), TURNED)
def test_reshape_of_a_transposition(
    _: str, turn: Callable[[Any], Any], new: Shape, view: bool
) -> None:
    """A view where each group of dimensions is walked as one, else stored."""
    array = numbers(2, 3, 4)
    tensor = turn(known(array)).reshape(new)
    assert is_view(tensor) == view
    assert_is(tensor, turn(array).reshape(new))


def test_reshape_of_computed_values() -> None:
    """All reads must allow it: of a sum of a tensor and its transposition none does."""
    array = numbers(3, 3)
    x = known(array)
    double = elementwise(lambda a: a * 2, x).reshape((9,))
    assert is_view(double)
    assert_is(double, (array * 2).reshape(9))
    mixed = elementwise(lambda a, b: a + b, x, x.transpose([1, 0])).reshape((9,))
    assert not is_view(mixed)
    assert_is(mixed, (array + array.T).reshape(9))
    places = compute((3, 3), lambda i, j: at(i * 3 + j)).reshape((9,))
    assert is_view(places)
    assert_is(places, np.arange(9))
    turned = compute((3, 3), lambda i, j: at(j * 3 + i)).reshape((9,))
    assert_is(turned, numbers(3, 3).T.reshape(9))


def test_reshape_of_what_is_broadcast_folded_or_guarded() -> None:
    array = numbers(4)
    wide = known(array).expand((3, 4))
    assert is_view(wide.reshape((3, 2, 2)))
    assert not is_view(wide.reshape((12,)))
    assert_is(wide.reshape((12,)), np.broadcast_to(array, (3, 4)).reshape(12))
    assert_is(full((2, 3), const(5, INT64)).reshape((6,)), np.full(6, 5))
    cube = numbers(2, 3, 4)
    sums = compute((2, 3), lambda i, j: fold("sum", [4], lambda k: known(cube)[[i, j, k]]))
    assert_is(sums.reshape((6,)), cube.sum(2).reshape(6))
    outer = compute((2, 4), lambda i, j: fold("sum", [3], lambda k: known(cube)[[i, k, j]]))
    assert_is(outer.reshape((8,)), cube.sum(1).reshape(8))
    padded = compute(
        (2, 5), lambda i, j: guarded(known(numbers(2, 4)), [i, j + -1], const(-1, INT64))
    )
    wanted = np.pad(numbers(2, 4), [(0, 0), (1, 0)], constant_values=-1)
    assert_is(padded.reshape((10,)), wanted.reshape(10))


def test_reshape_of_no_elements() -> None:
    empty = known(numbers(0, 3))
    for shape in ((0,), (3, 0), (0, 7), (2, 0, 5)):
        tensor = empty.reshape(shape)
        assert (tensor.shape, tensor.elements) == (shape, 0)
        assert not list(walk(tensor.value))[1:]


@st.composite
def chains(draw: st.DrawFn) -> tuple[Tensor, Array]:
    """A tensor through some views, and the array through the same by numpy."""
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), max_size=4)))
    array = numbers(*shape)
    tensor = known(array)
    for _ in range(draw(st.integers(1, 5))):
        match draw(
            st.sampled_from(["transpose", "reshape", "slice", "unsqueeze", "expand", "add"])
        ):
            case "transpose":
                order = draw(st.permutations(range(tensor.rank)))
                tensor, array = tensor.transpose(order), array.transpose(order)
            case "reshape":
                new = draw(factors(array.size))
                tensor, array = tensor.reshape(new), array.reshape(new)
            case "slice" if array.ndim and array.shape[0] > 1:
                tensor = compute(
                    (array.shape[0] - 1, *array.shape[1:]),
                    lambda i, *rest, t=tensor: t[[i + 1, *rest]],
                )
                array = array[1:]
            case "unsqueeze":
                place = draw(st.integers(0, tensor.rank))
                tensor, array = tensor.unsqueeze([place]), np.expand_dims(array, place)
            case "expand" if array.size < 200:
                tensor, array = tensor.expand((2, *array.shape)), np.stack([array, array])
            case "add" if array.ndim:
                turned = tensor.transpose(range(tensor.rank))
                tensor, array = elementwise(lambda a, b: a + b * 3, tensor, turned), array * 4
    return tensor, array


@st.composite
def factors(draw: st.DrawFn, size: int) -> Shape:
    shape = []
    while size > 1:
        divisors = [n for n in range(1, size + 1) if size % n == 0]
        shape.append(draw(st.sampled_from(divisors)))
        size //= shape[-1]
        if len(shape) == 4:
            shape.append(size)
            break
    return tuple(shape)


@given(chains())
@settings(max_examples=150)
def test_any_chain_of_views_is_what_numpy_makes(case: tuple[Tensor, Array]) -> None:
    assert_is(*case)


# Stored and shared.


def test_stored_makes_a_buffer_with_the_kernel_that_fills_it() -> None:
    x = known(numbers(3))
    double = elementwise(lambda a: a * 2, x)
    stored = double.stored("twice")
    assert stored.buffer is not None
    (step,) = stored.buffer.made_by
    assert isinstance(step, Loops)
    assert (step.out, step.role) == (stored.buffer, "twice")
    assert stored.stored() is stored
    assert x.stored() is x
    assert_is(stored, numbers(3) * 2)
    empty = known(numbers(0))
    assert elementwise(lambda a: a * 2, empty).stored().buffer is None


def test_packed_values_are_unpacked_when_stored() -> None:
    packed = of_buffer(Buffer("p", (4,), BY_NAME["int4"], "input"))
    stored = packed.stored()
    assert stored.buffer is not packed.buffer
    assert stored.buffer is not None
    assert not stored.buffer.packed


def test_shared_stores_what_is_costly() -> None:
    """A function, a sum, a Guard, packed values, or many nodes; not an element or a little more."""
    x = of_buffer(buffer("x", "input", FLOAT, 8))
    cheap = elementwise(lambda a: a * 2 + 1, x)
    assert x.shared() is x
    assert cheap.shared() is cheap
    long = x
    for n in range(9):
        long = elementwise(lambda a, n=n: a * n + 1, long)
    sums = compute((2,), lambda i: fold("sum", [4], lambda k: x[[i * 4 + k]]))
    costly = [
        elementwise(lambda a: apply("exp", a), x),
        sums,
        compute((8,), lambda i: guarded(x, [i + 1], const(0, FLOAT))),
        of_buffer(Buffer("p", (4,), BY_NAME["int4"], "input")),
        long,
    ]
    for tensor in costly:
        shared = tensor.shared()
        assert shared.buffer is not None
        assert shared.buffer.made_by
        assert list(pending(*shared.buffer.made_by)) == []


# Constants.


def test_a_uniform_constant_is_a_literal() -> None:
    """By its bits; not NaN or infinity, for which C has no literal, nor a long string."""
    for array, dtype in (
        (np.full((2, 3), 1.5, np.float32), FLOAT),
        (np.full(4, -0.0, np.float32), FLOAT),
        (np.array(7, np.int64), INT64),
        (np.full(3, True), BOOL),
    ):
        tensor = constant(array, dtype)
        assert isinstance(tensor.value, Const)
        assert tensor.value.raw == array.reshape(-1)[:1].tobytes()
        assert tensor.shape == array.shape
    for array, dtype in (
        (np.array([0.0, -0.0], np.float32), FLOAT),
        (np.array([1, 2], np.int64), INT64),
        (np.full(3, np.nan, np.float32), FLOAT),
        (np.full(3, np.inf, np.float32), FLOAT),
        (np.zeros(0, np.float32), FLOAT),
    ):
        assert constant(array, dtype).buffer is not None
    text = BY_NAME["string"]
    for length, literal in ((64, True), (65, False)):
        one = np.empty(1, object)
        one[0] = b"a" * length
        assert isinstance(constant(one, text).value, Const) is literal


# Run-time indices.


def test_checked_index_wraps_and_reports() -> None:
    """-3 .. 2 into 3 elements; beyond them it is 0 and the run ends with the status."""
    x, n = buffer("x", "input", FLOAT, 3), buffer("n", "input", INT64, 6)
    y = buffer("y", "output", FLOAT, 6)
    given_n, source = of_buffer(n), of_buffer(x)
    result = compute((6,), lambda i: source[[checked_index(given_n[[i]], 3)]])
    program = Program((x, n), (y,), (over(y, result.value, *result.axes),))
    array, ready = np.array([5, 6, 7], np.float32), built(program)
    good = np.array([0, 1, 2, -1, -2, -3], np.int64)
    for places, status in (
        (good, Status.OK),
        (np.array([0, 1, 2, 3, -2, -3], np.int64), Status.INDEX_OUT_OF_RANGE),
        (np.array([0, 1, 2, -4, -2, -3], np.int64), Status.INDEX_OUT_OF_RANGE),
        (np.array([0, 2**62, 2, 2**63 - 1, -(2**63), -3], np.int64), Status.INDEX_OUT_OF_RANGE),
    ):
        inputs: Values = {x: array, n: places}
        wanted = [array[p] if -3 <= p < 3 else array[0] for p in places.tolist()]
        for found_status, outputs in (ready.run(inputs), evaluated(program, inputs)):
            assert found_status == status
            assert outputs[y].tolist() == wanted


@pytest.mark.parametrize("name", ["int8", "uint8", "int32", "uint64"])
def test_an_index_of_any_integer_type(name: str) -> None:
    dtype = BY_NAME[name]
    n, y = buffer("n", "input", dtype, 4), buffer("y", "output", INT64, 4)
    table, given_n = known(numbers(4) * 10), of_buffer(n)
    result = compute((4,), lambda i: table[[checked_index(given_n[[i]], 4)]])
    program = Program((n,), (y,), (over(y, result.value, *result.axes),))
    places = np.array([3, 0, 2, 1], name)
    assert check_in_c(program, {n: places})[y].tolist() == [30, 0, 20, 10]


def test_a_known_run_time_index_is_none() -> None:
    assert dynamic(const(3, INT32)) == Index(3)
    assert checked_index(const(-1, INT64), 5) == Index(4)
    assert checked_index(const(2, INT32), 5) == Index(2)
    assert checked_index(const(7, INT64), 5).dynamic  # left to the run, which reports it


def test_broadcast_shapes_of_any_rank() -> None:
    assert broadcast_shape((3, 1), (4,), ()) == (3, 4)
    assert broadcast_shape((0, 1), (1, 5)) == (0, 5)
    assert broadcast_shape((1,) * 40, (2,)) == (*(1,) * 39, 2)
    for shapes in (((2,), (3,)), ((0,), (2,)), ((2, 3), (2, 4))):
        with pytest.raises(ValueError, match="do not broadcast"):
            broadcast_shape(*shapes)
