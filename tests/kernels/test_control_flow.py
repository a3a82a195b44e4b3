"""Branch and Repeat, two deep: evaluate, the memory plan and the C against plain Python."""

from typing import Any

import numpy as np
import pytest

from onnxc.dtypes import BY_NAME, UINT8, numpy_dtype
from onnxc.expression import (
    Axis,
    Buffer,
    Checked,
    Fold,
    Index,
    Load,
    along,
    apply,
    at,
    compare,
    load,
)
from onnxc.kernel import Branch, Loops, Program, Repeat, Step
from onnxc.status import Status
from tests.kernels.programs import (
    BOOL,
    INT64,
    Built,
    buffer,
    built,
    const,
    constant,
    copy,
    element,
    evaluated,
    over,
    peak,
)

COMPILERS = ["gcc", "clang"]


def temporary(name: str, *shape: int) -> Buffer:
    return buffer(name, "workspace", INT64, *shape)


def number(value: int) -> Buffer:
    return constant(np.asarray(value, np.int64), INT64)


def total(source: Buffer) -> Fold:
    k = Axis(source.elements)
    return Fold(INT64, "sum", (k,), load(source, [along(k)]))


def store(out: Buffer, position: int, value: Any) -> Loops:
    return Loops(out, (Index(position),), (), value)


def fibonacci(pair: Buffer, following: Buffer) -> tuple[Step, ...]:
    """following = (b, a + b) of pair = (a, b), by way of a buffer of its own."""
    both = temporary("both")
    return (
        over(both, total(pair)),
        store(following, 0, element(pair, 1)),
        store(following, 1, load(both, [])),
    )


def check(ready: Built, inputs: dict[Buffer, Any]) -> list[Any]:
    """What the C and evaluate agree on."""
    status, outputs = ready.run(inputs)
    assert (status, evaluated(ready.program, inputs)[0]) == (Status.OK, Status.OK)
    for key, array in evaluated(ready.program, inputs)[1].items():
        assert outputs[key].tolist() == array.tolist()
    return [array.tolist() for array in outputs.values()]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_repeat_counts(compiler: str, tool: Any) -> None:
    tool(compiler)
    count, y = buffer("count", "input", INT64), buffer("y", "output", INT64, 2)
    pair, following = temporary("pair", 2), temporary("following", 2)
    start = constant(np.array([0, 1]), INT64)
    loop = Repeat(
        count, None, None, Program(steps=fibonacci(pair, following)), ((pair, following),)
    )
    program = Program((count,), (y,), (copy(pair, start), loop, copy(y, pair)))
    ready = built(program, compiler)
    found = [check(ready, {count: np.asarray(n)})[0] for n in (0, 1, 2, 10, -3)]
    assert found == [[0, 1], [1, 1], [1, 2], [55, 89], [0, 1]]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_repeat_while_a_state_says_so(compiler: str, tool: Any) -> None:
    """Powers of two until one is reached; the condition is carried like any state."""
    tool(compiler)
    wanted, y = buffer("wanted", "input", INT64), buffer("y", "output", INT64, 2)
    go, more = (buffer(name, "workspace", BOOL) for name in ("go", "more"))
    power, double, counter = temporary("power"), temporary("double"), temporary("counter")
    twice = Index(0, (), ((load(power, []), 2),))
    reached = compare("equal", load(double, []), load(wanted, []))
    body = Program(
        steps=(
            over(double, at(twice)),
            over(more, compare("equal", reached, const(False, BOOL))),
        )
    )
    loop = Repeat(number(40), go, counter, body, ((power, double), (go, more)))
    steps = (
        over(power, const(1, INT64)),
        over(counter, const(-1, INT64)),
        over(go, const(True, BOOL)),
        loop,
        store(y, 0, load(power, [])),
        store(y, 1, load(counter, [])),
    )
    ready = built(Program((wanted,), (y,), steps), compiler)
    assert check(ready, {wanted: np.asarray(1024)}) == [[1024, 9]]
    assert check(ready, {wanted: np.asarray(3)}) == [[2**40, 39]]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_branch_in_a_repeat_in_a_repeat_in_a_branch(compiler: str, tool: Any) -> None:
    """`otherwise` copies; `then` runs i inner rounds in round i, of which the first swaps."""
    tool(compiler)
    flag, count = buffer("flag", "input", BOOL), buffer("count", "input", INT64)
    y = buffer("y", "output", INT64, 2)
    pair, following, again = (temporary(name, 2) for name in ("pair", "following", "again"))
    i, j = temporary("i"), temporary("j")
    first = buffer("first", "workspace", BOOL)
    axis = Axis(2)
    swap = over(following, load(pair, [along(axis) * -1 + 1]), axis)
    choice = Branch(first, Program(steps=(swap,)), Program(steps=fibonacci(pair, following)))
    is_first = over(first, compare("equal", load(j, []), const(0, INT64)))
    inner = Repeat(i, None, j, Program(steps=(is_first, choice)), ((pair, following),))
    body = Program(steps=(inner, copy(again, pair)))
    outer = Repeat(count, None, i, body, ((pair, again),))
    start = constant(np.array([3, 8]), INT64)
    then = Program(steps=(copy(pair, start), outer, copy(y, pair)))
    otherwise = Program(steps=(copy(y, start),))
    ready = built(Program((flag, count), (y,), (Branch(flag, then, otherwise),)), compiler)

    def plain(rounds: int) -> list[int]:
        a, b = 3, 8
        for n in range(rounds):
            for m in range(n):
                a, b = (b, a) if m == 0 else (b, a + b)
        return [a, b]

    for rounds in range(6):
        inputs = {flag: np.asarray(True), count: np.asarray(rounds)}
        assert check(ready, inputs) == [plain(rounds)]
    assert check(ready, {flag: np.asarray(False), count: np.asarray(5)}) == [[3, 8]]


def test_states_are_carried_at_once() -> None:
    """Two states change places through their followers."""
    count, y = buffer("count", "input", INT64), buffer("y", "output", INT64, 2)
    a, b, new_a, new_b = (temporary(name, 3) for name in ("a", "b", "new_a", "new_b"))
    body = Program(steps=(copy(new_a, b), copy(new_b, a)))
    starts = (copy(a, constant(np.full(3, 1), INT64)), copy(b, constant(np.full(3, 2), INT64)))
    ends = (store(y, 0, element(a, 2)), store(y, 1, element(b, 2)))
    loop = Repeat(count, None, None, body, ((a, new_a), (b, new_b)))
    ready = built(Program((count,), (y,), (*starts, loop, *ends)))
    assert [check(ready, {count: np.asarray(n)})[0] for n in (0, 1, 2)] == [[1, 2], [2, 1], [1, 2]]


def test_packed_states() -> None:
    """A state that is an output of a sub-byte type is copied by its bytes."""
    kind = BY_NAME["int4"]
    y, other = buffer("y", "output", kind, 4), buffer("z", "output", kind, 4)
    x, count = buffer("x", "input", kind, 4), buffer("count", "input", INT64)

    def packed(out: Buffer, source: Buffer) -> Loops:
        axis = Axis(2)
        pair = [load(source, [along(axis) * 2 + n]) for n in range(2)]
        return Loops(out, (along(axis),), (axis,), apply("pack", *pair, dtype=UINT8))

    zeros = constant(np.zeros(4, numpy_dtype(kind)), kind)
    body = Program(steps=(packed(other, x),))
    loop = Repeat(count, None, None, body, ((y, other),))
    program = Program((x, count), (y, other), (packed(y, zeros), packed(other, zeros), loop))
    values = np.array([1, -2, 7, -8]).astype(numpy_dtype(kind))
    ready = built(program)
    assert check(ready, {x: values, count: np.asarray(0)})[0] == [0, 0, 0, 0]
    assert check(ready, {x: values, count: np.asarray(1)})[0] == [1, -2, 7, -8]


def test_the_first_bad_kernel_decides_the_status() -> None:
    """Inside a round its lowest code; the rounds and steps after it go on and change nothing."""
    x, count = buffer("x", "input", INT64, 2), buffer("count", "input", INT64)
    y = buffer("y", "output", INT64)
    i = temporary("i")

    def checked(position: int, code: Status) -> Checked:
        fine = compare("equal", element(x, position), load(i, []))
        return Checked(INT64, load(i, []), fine, code)

    both = compare(
        "equal", checked(0, Status.DIVISION_BY_ZERO), checked(1, Status.INDEX_OUT_OF_RANGE)
    )
    body = Program(steps=(over(y, at(Index(0, (), ((both, 1), (load(i, []), 10))))),))
    first = over(y, const(7, INT64))
    program = Program((x, count), (y,), (first, Repeat(count, None, i, body, ())))
    ready = built(program)
    for given, rounds, wanted in [
        ((5, 5), 0, Status.OK),
        ((0, 0), 1, Status.OK),
        ((0, 1), 1, Status.INDEX_OUT_OF_RANGE),
        ((1, 0), 1, Status.DIVISION_BY_ZERO),
        ((1, 1), 1, Status.INDEX_OUT_OF_RANGE),
        ((1, 0), 2, Status.DIVISION_BY_ZERO),
        ((0, 0), 2, Status.INDEX_OUT_OF_RANGE),
    ]:
        inputs = {x: np.array(given), count: np.asarray(rounds)}
        status, outputs = ready.run(inputs)
        expected_status, expected = evaluated(program, inputs)
        assert status == expected_status == wanted
        assert outputs[y] == expected[y]


def test_the_sides_of_a_branch_share_memory() -> None:
    """Only one of them runs."""
    flag, y = buffer("flag", "input", BOOL), buffer("y", "output", INT64, 100)

    def side(value: int) -> Program:
        inside = temporary("inside", 100)
        axis = Axis(100)
        turned = load(inside, [along(axis) * -1 + 99])
        return Program(steps=(over(inside, at(along(axis) * value), axis), over(y, turned, axis)))

    program = Program((flag,), (y,), (Branch(flag, side(1), side(2)),))
    assert peak(program).planned == 800
    ready = built(program)
    assert check(ready, {flag: np.asarray(True)})[0][:2] == [99, 98]
    assert check(ready, {flag: np.asarray(False)})[0][:2] == [198, 196]


def test_a_condition_is_true_for_any_bit() -> None:
    flag, y = buffer("flag", "input", BOOL), buffer("y", "output", INT64)
    then, otherwise = (Program(steps=(over(y, const(n, INT64)),)) for n in (1, 2))
    ready = built(Program((flag,), (y,), (Branch(flag, then, otherwise),)))
    for byte in (0, 1, 2, 255):
        array = np.asarray(byte, np.uint8).view(np.bool_)
        assert check(ready, {flag: array}) == [1 if byte else 2]


def test_reads_and_writes_reach_into_nested_programs() -> None:
    flag, x, y = buffer("f", "input", BOOL), temporary("x"), buffer("y", "output", INT64)
    inner = Branch(flag, Program(steps=(copy(y, x),)), Program())
    loop = Repeat(number(2), None, None, Program(steps=(inner,)), ())
    assert set(loop.reads()) == {flag, x, loop.count}
    assert loop.writes() == (y,)
    assert isinstance(load(x, []), Load)
