"""relocate: a step with other buffers, wherever the old ones stood."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onnxc.expression import Axis, Buffer, Index, along, load
from onnxc.kernel import Branch, Loops, Program, Repeat, Routine, Step, relocate
from onnxc.tensor import dynamic
from tests.kernels.programs import BOOL, INT64, buffer, copy, over

A, B, C = (buffer(name, "workspace", INT64, 4) for name in "abc")
PLACES = {b: buffer(b.name.upper(), "workspace", INT64, 4) for b in (A, B, C)}
CONDITION, NUMBER = buffer("d", "workspace", BOOL), buffer("n", "workspace", INT64)
SINGLE = {b: replace(b, name=b.name.upper()) for b in (CONDITION, NUMBER)}
OTHER = buffer("o", "workspace", INT64, 4)


def moved(step: Step) -> tuple[set[str], set[str]]:
    """The names of what it reads and writes once every buffer has moved."""
    found = relocate(step, {**PLACES, **SINGLE})
    return ({b.name for b in found.reads()}, {b.name for b in found.writes()})


def test_loops() -> None:
    assert moved(copy(A, B)) == ({"B"}, {"A"})


@pytest.mark.parametrize("of_store", [False, True], ids=["load", "store"])
def test_what_an_index_reads(of_store: bool) -> None:
    axis = Axis(4)
    place = dynamic(load(C, [along(axis)]))
    step = over(A, load(B, [along(axis) if of_store else place]), axis)
    step = replace(step, where=(place,)) if of_store else step
    kept = {"A"} if of_store else set()  # the elements that it may not store
    assert moved(step) == ({"B", "C"} | kept, {"A"})


def test_a_routine_with_its_scratch() -> None:
    assert moved(Routine("sort", (A,), (B,), scratch=(C,))) == ({"A"}, {"B", "C"})


def test_a_branch() -> None:
    body = Program(steps=(copy(A, B),))
    step = Branch(CONDITION, body, Program(steps=(copy(C, B),)))
    assert moved(step) == ({"D", "B"}, {"A", "C"})


def test_a_loop() -> None:
    step = Repeat(NUMBER, CONDITION, None, Program(steps=(copy(B, A),)), ((A, B),))
    assert moved(step) == ({"N", "D", "A", "B"}, {"A", "B"})
    found = relocate(step, {**PLACES, **SINGLE})
    assert isinstance(found, Repeat)
    assert (found.count, found.condition) == (SINGLE[NUMBER], SINGLE[CONDITION])
    assert found.carried == ((PLACES[A], PLACES[B]),)


def test_the_counter_of_a_loop() -> None:
    step = Repeat(None, CONDITION, NUMBER, Program(steps=(copy(B, A),)), ((A, B),))
    found = relocate(step, SINGLE)
    assert isinstance(found, Repeat)
    assert (found.count, found.condition, found.counter) == (
        None,
        SINGLE[CONDITION],
        SINGLE[NUMBER],
    )


def test_a_place_of_another_shape_is_indexed_flat() -> None:
    old = buffer("a", "workspace", INT64, 2, 3)
    new = Buffer("A", (6,), INT64, "workspace")
    step = copy(old, buffer("b", "workspace", INT64, 2, 3))
    found = relocate(step, {old: new})
    assert isinstance(found, Loops)
    first, second = found.axes
    assert found.where == (Index(0, ((first, 3), (second, 1))),)


def test_a_step_that_uses_none_of_them_stays_itself() -> None:
    step = copy(OTHER, OTHER)
    assert relocate(step, PLACES) is step
