"""order_steps: other orders of independent steps, where the values then need less room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxc.expression import Axis, Buffer, Checked, along, compare, load
from onnxc.kernel import Loops, Program, Step
from onnxc.passes.liveness import Uses, least_peak
from onnxc.passes.order_steps import _needs, order_steps
from onnxc.status import Status
from tests.kernels.programs import FLOAT, INT64, buffer, check_in_c, copy, element, evaluated, over
from tests.passes.test_plan_memory import INPUTS, SIZES, Writer

X = buffer("x", "input", FLOAT, 100)
OUTPUTS = [buffer(f"y{n}", "output", FLOAT, 100) for n in range(3)]


def ordered(program: Program) -> Program:
    return order_steps(program, Uses())


def bound(steps: Sequence[Step]) -> int:
    return least_peak(list(Uses().of(steps)))


def row(name: str, size: int = 100) -> Buffer:
    return buffer(name, "workspace", FLOAT, size)


def first_of(out: Buffer, *sources: Buffer) -> Loops:
    """The sum of their first elements, in every element: never in place."""
    total = element(sources[0], 0)
    for source in sources[1:]:
        total = total + element(source, 0)
    return over(out, total, Axis(out.elements))


def reporting(out: Buffer, source: Buffer) -> Loops:
    axis = Axis(out.elements)
    value = element(source, 0)
    good = compare("equal", value, value)
    return over(out, Checked(FLOAT, value, good, Status(2)), axis)


A, B, C = row("a"), row("b"), row("c")
EARLY = (copy(A, X), copy(B, X), copy(C, X))
USES = tuple(first_of(out, source) for out, source in zip(OUTPUTS, (A, B, C), strict=True))


def test_a_value_is_made_right_before_it_is_needed() -> None:
    """Three copies first, then what reads them: one after the other they need a third."""
    program = Program((X,), tuple(OUTPUTS), (*EARLY, *USES))
    steps = [step for pair in zip(EARLY, USES, strict=True) for step in pair]
    assert [*ordered(program).steps] == steps
    assert (bound(program.steps), bound(steps)) == (1200, 400)


def test_a_step_that_frees_much_runs_as_soon_as_it_can() -> None:
    """The sums, of one element each, before the next long row is made."""
    sums = [row(f"s{n}", 1) for n in range(3)]
    makes = [copy(A, X), first_of(B, A), first_of(C, B)]
    frees = [first_of(one, source) for one, source in zip(sums, (A, B, C), strict=True)]
    program = Program((X,), (OUTPUTS[0],), (*makes, *frees, first_of(OUTPUTS[0], *sums)))
    steps = [*ordered(program).steps]
    assert steps.index(frees[0]) < steps.index(makes[2])
    assert bound(steps) < bound(program.steps)


def test_a_step_that_frees_as_much_as_it_makes_goes_with_what_needs_it() -> None:
    """So that the long row is gone before the short ones are made."""
    long, last = row("long", 1000), row("last")
    makes = (copy(A, X), copy(long, X_THOUSAND))
    same, frees = first_of(B, A), first_of(last, long)
    end = first_of(OUTPUTS[0], B, last)
    program = Program((X, X_THOUSAND), (OUTPUTS[0],), (*makes, same, frees, end))
    assert [*ordered(program).steps] == [makes[1], frees, makes[0], same, end]
    assert bound(ordered(program).steps) == 4400


X_THOUSAND = buffer("xt", "input", FLOAT, 1000)


def test_a_program_without_steps_has_no_other_order() -> None:
    program = Program()
    assert ordered(program) is program


def test_a_little_is_not_worth_another_order() -> None:
    long, short = row("long", 10_000), row("short", 10)
    steps = (
        copy(short, X_SHORT),
        copy(long, X_LONG),
        first_of(A, long),
        first_of(OUTPUTS[0], short, A),
    )
    program = Program((X_SHORT, X_LONG), (OUTPUTS[0],), steps)
    assert ordered(program) is program


X_SHORT, X_LONG = buffer("xs", "input", FLOAT, 10), buffer("xl", "input", FLOAT, 10_000)


def test_what_may_report_a_status_stays_in_order() -> None:
    """The first status is returned."""
    makes = tuple(reporting(b, X) for b in (A, B, C))
    uses = tuple(reporting(out, b) for out, b in zip(OUTPUTS, (A, B, C), strict=True))
    program = Program((X,), tuple(OUTPUTS), (*makes, *uses))
    assert ordered(program) is program


def test_a_buffer_that_is_filled_in_parts_is_read_after_all_of_them() -> None:
    half, other = Axis(50), Axis(50)
    parts = (
        Loops(A, (along(half),), (half,), load(X, [along(half)])),
        Loops(A, (along(other) + 50,), (other,), load(X, [along(other)])),
    )
    program = Program((X,), tuple(OUTPUTS), (*parts, *EARLY[1:], *USES))
    steps = [*ordered(program).steps]
    assert steps != [*program.steps]
    assert max(map(steps.index, parts)) < steps.index(USES[0])


def test_what_a_step_overwrites_is_read_before() -> None:
    """Also where the other readers have gone far away from what makes it."""
    axis = Axis(100)
    added = Loops(A, (along(axis),), (axis,), load(X, [along(axis)]), accumulate="add")
    before, after = first_of(OUTPUTS[0], A, B), first_of(OUTPUTS[1], A)
    program = Program(
        (X,), tuple(OUTPUTS), (*EARLY, before, added, after, first_of(OUTPUTS[2], C, B))
    )
    for steps in (program.steps, (*EARLY, before, *EARLY[1:], added, after)):
        found = [*ordered(replace(program, steps=steps)).steps]
        assert found.index(before) < found.index(added) < found.index(after)
    needs = _needs([*Uses().of((EARLY[0], before, added, after))])
    assert [sorted(numbers) for numbers in needs] == [[], [0], [0, 1], [0, 2]]


@st.composite
def straight(draw: st.DrawFn) -> Program:
    """Up to 24 steps; every value is an output's."""
    writer = Writer(draw)
    inputs = [buffer(f"x{size}", "input", INT64, size) for size in SIZES]
    defined = list(inputs)
    steps: list[Loops] = []
    for _ in range(draw(st.integers(1, 12))):
        out = writer.new(draw(st.sampled_from(SIZES)))
        steps += [step for step in writer.compute(out, defined) if isinstance(step, Loops)]
        defined.append(out)
    made = defined[len(inputs) :]
    outputs = [buffer(f"y{n}", "output", INT64, *b.shape) for n, b in enumerate(made)]
    steps += [copy(y, b) for y, b in zip(outputs, made, strict=True)]
    return Program(tuple(inputs), tuple(outputs), tuple(steps))


@given(straight())
def test_random_programs_keep_their_values(program: Program) -> None:
    values = {b: np.array(INPUTS[b.elements]) for b in program.inputs}
    found = ordered(program)
    assert {*found.steps} == {*program.steps}
    assert bound(found.steps) <= bound(program.steps)
    status, wanted = evaluated(program, values)
    got_status, got = evaluated(found, values)
    assert status == got_status
    assert all((got[b] == wanted[b]).all() for b in program.outputs)


@given(straight())
@settings(max_examples=5)
def test_random_programs_in_c(program: Program) -> None:
    check_in_c(program, {b: np.array(INPUTS[b.elements]) for b in program.inputs})
