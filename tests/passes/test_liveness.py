"""liveness: when buffers hold something, which take over which, and the bytes that live at once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from onnxc.expression import Axis, Buffer, along, load
from onnxc.kernel import Loops, Routine, Rows
from onnxc.passes.liveness import (
    Span,
    Use,
    Uses,
    bytes_live,
    least_peak,
    lifetimes,
    taken_over,
)
from tests.kernels.programs import FLOAT, buffer, copy, over


def row(name: str, size: int = 10) -> Buffer:
    return buffer(name, "workspace", FLOAT, size)


X, Y = buffer("x", "input", FLOAT, 10), buffer("y", "output", FLOAT, 10)
A, B, C = map(row, "abc")


def twice(out: Buffer, source: Buffer) -> Loops:
    """May run in place."""
    axis = Axis(out.elements)
    return over(out, load(source, [along(axis)]) * 2.0, axis)


def use(reads: Sequence[Buffer], results: Sequence[Buffer]) -> Use:
    """A step that may overwrite all that it reads."""
    step = Routine("r", tuple(reads), tuple(results))
    memory = (*reads, *results)
    return Use(step, tuple(reads), tuple(results), tuple(results), memory, tuple(reads))


def test_a_buffer_lives_from_the_first_step_that_uses_it_to_the_last() -> None:
    assert lifetimes([[A], [A, B], [], [B, A]]) == {A: Span(0, 3), B: Span(1, 3)}
    assert lifetimes([]) == {}


def test_what_a_step_does_with_buffers() -> None:
    (found,) = Uses().of([twice(B, A)])
    assert (found.reads, found.writes, found.results) == ((A,), (B,), (B,))
    assert (found.memory, found.overwritable) == ((A, B), (A,))
    (found,) = Uses().of([Routine("r", (X, A, X), (Y,), (), (B,))])
    assert (found.reads, found.writes, found.results) == ((X, A), (Y, B), (Y, B))
    assert (found.memory, found.overwritable) == ((A, B), ())


def test_what_rows_only_work_in_is_no_result() -> None:
    axis, column = Axis(2), Axis(5)
    place = along(axis) * 5 + along(column)

    def step(out: Buffer, source: Buffer) -> Loops:
        return Loops(out, (place,), (axis, column), load(source, [place]) * 2.0)

    inside = buffer("", "workspace", FLOAT, 1, 5)
    (found,) = Uses().of([Rows(axis, 1, (step(B, X), step(C, B)), {B: inside})])
    assert (found.writes, found.results) == ((C, inside), (C,))


def test_a_step_is_looked_at_once() -> None:
    uses, step = Uses(), copy(A, X)
    (one,), (two,) = uses.of([step]), uses.of([step])
    assert one is two


def spans_of(uses: Sequence[Use]) -> dict[Buffer, Span]:
    return lifetimes(use.memory for use in uses)


def test_a_result_takes_over_an_operand_that_is_read_for_the_last_time() -> None:
    uses = [use([], [A]), use([A], [B]), use([A, B], [C])]
    assert taken_over(uses, spans_of(uses)) == {C: A}
    uses = [use([], [A]), use([A], [B]), use([B], [C])]
    assert taken_over(uses, spans_of(uses)) == {B: A, C: B}


def test_only_a_new_result_takes_over() -> None:
    uses = [use([], [A, B]), use([A], [B]), use([B], [])]
    assert taken_over(uses, spans_of(uses)) == {}


def test_of_two_results_none_takes_over() -> None:
    uses = [use([], [A]), use([A], [B, C]), use([B, C], [])]
    assert taken_over(uses, spans_of(uses)) == {}


def test_buffers_that_are_planned_elsewhere_take_no_part() -> None:
    uses = [use([], [A]), use([A], [B])]
    spans = spans_of(uses)
    assert taken_over(uses, {B: spans[B]}) == {}
    assert taken_over(uses, {A: spans[A]}) == {}


@pytest.mark.parametrize(
    ("operands", "result", "taken"),
    [
        ((10, 30, 50), 20, 30),
        ((50, 30, 10), 20, 30),
        ((10, 15), 20, 15),
        ((20, 10), 20, 20),
        ((40, 20), 20, 20),
    ],
)
def test_of_several_operands_one_shares_most_and_is_the_smallest_of_those(
    operands: tuple[int, ...], result: int, taken: int
) -> None:
    given = [row(f"t{size}", size) for size in operands]
    made = row("made", result)
    uses = [use([], given), use(given, [made])]
    assert taken_over(uses, spans_of(uses))[made].elements == taken


def test_bytes_live_at_each_step() -> None:
    large = row("large", 100)
    spans = {A: Span(0, 2), large: Span(2, 3), B: Span(4, 4)}
    assert bytes_live(spans, {}) == [40, 40, 440, 400, 40]
    assert bytes_live(spans, {large: A}) == [40, 40, 400, 400, 40]
    assert bytes_live({}, {}) == []


def test_what_a_smaller_result_shares_counts_once() -> None:
    small = row("small", 1)
    spans = {A: Span(0, 1), small: Span(1, 2)}
    assert bytes_live(spans, {small: A}) == [40, 40, 4]


def test_the_least_peak() -> None:
    assert least_peak([]) == 0
    assert least_peak([*Uses().of([copy(A, X), twice(B, A), twice(Y, B)])]) == 40
    assert least_peak([*Uses().of([copy(A, X), copy(B, A), twice(Y, B)])]) == 80
