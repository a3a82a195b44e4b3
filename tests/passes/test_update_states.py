"""update_states: the next value of a loop's state in the place of the state."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from onnxc.expression import Axis, Buffer, along, load
from onnxc.kernel import Loops, Program, Repeat, Step
from onnxc.passes.update_states import update_states
from tests.kernels.programs import INT64, buffer, check_in_c, constant, copy, over, peak

X, Y = buffer("x", "input", INT64, 4), buffer("y", "output", INT64, 4)
S, T, NEXT, THEN, OTHER = (buffer(n, "workspace", INT64, 4) for n in ("s", "t", "n", "m", "o"))
THREE = constant(np.array([3]), INT64)
VALUES = {X: np.array([1, 10, 100, 1000])}


def plus(out: Buffer, *sources: Buffer) -> Loops:
    axis = Axis(4)
    total = load(sources[0], [along(axis)]) + 1
    for source in sources[1:]:
        total = total + load(source, [along(axis)])
    return over(out, total, axis)


def turned(out: Buffer, source: Buffer) -> Loops:
    axis = Axis(4)
    return over(out, load(source, [along(axis) * -1 + 3]), axis)


def program(pairs: Sequence[tuple[Buffer, Buffer]], *body: Step, result: Buffer = S) -> Program:
    starts = [copy(state, X) for state, _ in pairs]
    loop = Repeat(THREE, None, None, Program(steps=body), tuple(pairs))
    return Program((X,), (Y,), (*starts, loop, copy(Y, result)))


def carried(found: Program) -> tuple[tuple[Buffer, Buffer], ...]:
    (loop,) = (step for step in found.steps if isinstance(step, Repeat))
    return loop.carried


@pytest.mark.parametrize(
    ("copied", "pairs", "body"),
    [
        pytest.param([], [(S, NEXT)], [plus(NEXT, S)], id="element by element"),
        pytest.param([], [(S, NEXT)], [turned(OTHER, S), plus(NEXT, OTHER)], id="not read again"),
        pytest.param([S], [(S, NEXT)], [turned(NEXT, S)], id="elements that are gone are read"),
        pytest.param([S], [(S, NEXT)], [plus(NEXT, S), plus(OTHER, S)], id="read again"),
        pytest.param(
            [S], [(S, NEXT), (T, THEN)], [plus(NEXT, T), plus(THEN, S)], id="one needs the other"
        ),
        pytest.param(
            [],
            [(S, NEXT), (T, THEN)],
            [plus(NEXT, S, T), plus(THEN, NEXT, T)],
            id="one after the other",
        ),
    ],
)
def test_a_state(
    copied: list[Buffer], pairs: list[tuple[Buffer, Buffer]], body: list[Step]
) -> None:
    made = program(pairs, *body)
    assert [state for state, _ in carried(update_states(made))] == copied
    check_in_c(made, VALUES)


def test_a_value_that_is_used_after_the_loop_keeps_its_place() -> None:
    made = program([(S, NEXT)], plus(NEXT, S), result=NEXT)
    assert carried(update_states(made)) == ((S, NEXT),)


def test_a_value_of_two_states_is_copied_to_both() -> None:
    made = program([(S, NEXT), (T, NEXT)], plus(NEXT, S, T))
    assert [state for state, _ in carried(update_states(made))] == [S, T]
    check_in_c(made, VALUES)


def test_inner_loops() -> None:
    inner = Repeat(THREE, None, None, Program(steps=(plus(THEN, T),)), ((T, THEN),))
    made = program([(S, NEXT)], copy(T, S), inner, plus(NEXT, T))
    (outer,) = (step for step in update_states(made).steps if isinstance(step, Repeat))
    loops = [outer, *(step for step in outer.body.steps if isinstance(step, Repeat))]
    assert [loop.carried for loop in loops] == [(), ()]
    check_in_c(made, VALUES)


def test_it_saves_the_room_of_the_value() -> None:
    assert peak(program([(S, NEXT)], plus(NEXT, S))).planned == 32
    assert peak(program([(S, NEXT)], turned(NEXT, S))).planned == 64
