"""plan_memory: no live data is lost, in place where that is safe, close to the least memory."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxc.diagnostics import Kind
from onnxc.errors import ModelError, Problem
from onnxc.expression import Axis, Buffer, Checked, Fold, Index, affine, along, at, compare, load
from onnxc.kernel import Branch, Loops, Program, Repeat, Step
from onnxc.passes.merge_axes import merge_axes
from onnxc.passes.plan_memory import plan_memory
from onnxc.status import Status
from tests.kernels.programs import (
    BOOL,
    FLOAT,
    INT64,
    buffer,
    check_in_c,
    const,
    constant,
    copy,
    element,
    emitted,
    evaluated,
    over,
    peak,
    planned,
)

SIZES = (2, 5, 40)


def mixed(out: Buffer, one: Buffer, two: Buffer, factor: int) -> Loops:
    """out[i] = i * factor + 2 * (one[i] == two[i]): fit to run in place of either."""
    axis = Axis(out.elements)
    same = compare("equal", load(one, [along(axis)]), load(two, [along(axis)]))
    return over(out, at(affine(1, [(axis, factor)], [(same, 2)])), axis)


@dataclass
class Writer:
    """Draws steps over int64 vectors. `defined` are those that hold something by now."""

    draw: st.DrawFn
    count: int = 0
    inputs: list[Buffer] = field(default_factory=list)

    def new(self, size: int) -> Buffer:
        self.count += 1
        return buffer(f"t{self.count}", "workspace", INT64, size)

    def pick(self, defined: list[Buffer], size: int | None = None) -> Buffer:
        fitting = [b for b in defined if size in (None, b.elements)]
        return self.draw(st.sampled_from(fitting))

    def compute(self, out: Buffer, defined: list[Buffer]) -> list[Step]:
        """Steps that fill `out`: in place, reversed, halves by two kernels, sums, or a choice.

        Or with elements of a vector that is longer, which may be in place too.
        """
        size, axis = out.elements, Axis(out.elements)
        one, two = self.pick(defined, size), self.pick(defined, size)
        other = self.pick(defined)
        kinds = ["mixed", "mixed", "picked", "picked", "turned", "halves", "sum", "chosen"]
        match self.draw(st.sampled_from(kinds)):
            case "mixed":
                return [mixed(out, one, two, self.draw(st.integers(0, 3)))]
            case "picked":
                longer = self.pick([b for b in defined if b.elements >= size])
                stride = self.draw(st.integers(1, longer.elements // size))
                start = self.draw(st.integers(0, longer.elements - stride * (size - 1) - 1))
                chosen = load(longer, [along(axis) * stride + start])
                return [over(out, chosen + load(longer, [along(axis)]), axis)]
            case "turned":
                return [over(out, load(one, [along(axis) * -1 + (size - 1)]), axis)]
            case "halves":
                half = Axis(size - 1)
                first = Loops(out, (along(half),), (half,), load(one, [along(half) + 1]))
                last = Loops(out, (Index(size - 1),), (), element(other, 0))
                return [first, last]
            case "sum":
                inner = Axis(other.elements)
                return [over(out, Fold(INT64, "sum", (inner,), load(other, [along(inner)])), axis)]
        same = compare("equal", element(one, 0), element(other, 1))
        return [over(out, load(two, [affine(0, [], [(same, 1)])]), axis)]

    def block(self, defined: list[Buffer], depth: int) -> list[Step]:
        """Leaves what it has made in `defined`."""
        steps: list[Step] = []
        for _ in range(self.draw(st.integers(1, 5))):
            kind = self.draw(st.sampled_from(["new"] * 4 + ["branch", "repeat"] * bool(depth)))
            if kind == "new":
                out = self.new(self.draw(st.sampled_from(SIZES)))
                steps += self.compute(out, defined)
                defined.append(out)
            elif kind == "branch":
                steps += self.branch(defined, depth - 1)
            else:
                steps += self.repeat(defined, depth - 1)
        return steps

    def branch(self, defined: list[Buffer], depth: int) -> list[Step]:
        condition = buffer(f"if{self.count}", "workspace", BOOL)
        pair = [element(self.pick(defined), n) for n in range(2)]
        out = self.new(self.draw(st.sampled_from(SIZES)))
        sides = []
        for _ in range(2):
            inside = list(defined)
            steps = self.block(inside, depth)
            sides.append(Program(steps=(*steps, *self.compute(out, inside))))
        defined.append(out)
        test = over(condition, Checked(BOOL, compare("equal", *pair), const(True, BOOL), Status(2)))
        return [test, Branch(condition, sides[0], sides[1])]

    def repeat(self, defined: list[Buffer], depth: int) -> list[Step]:
        size = self.draw(st.sampled_from(SIZES))
        states = [self.new(size) for _ in range(self.draw(st.integers(1, 2)))]
        starts = [step for state in states for step in self.compute(state, defined)]
        counter = self.new(1) if self.draw(st.booleans()) else None
        inside = [*defined, *states]
        steps = self.block(inside, depth)
        following = [self.new(size) for _ in states]
        steps += [step for out in following for step in self.compute(out, inside)]
        count = constant(np.array([self.draw(st.integers(0, 3))]), INT64)
        pairs = tuple(zip(states, following, strict=True))
        defined.extend(states)
        return [*starts, Repeat(count, None, counter, Program(steps=tuple(steps)), pairs)]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Over one input of each size, with one to three results as outputs."""
    writer = Writer(draw)
    inputs = [buffer(f"x{size}", "input", INT64, size) for size in SIZES]
    defined = list(inputs)
    steps = writer.block(defined, 2)
    results = [writer.pick(defined) for _ in range(draw(st.integers(1, 3)))]
    outputs = [buffer(f"y{n}", "output", INT64, *b.shape) for n, b in enumerate(results)]
    copies = [copy(y, b) for y, b in zip(outputs, results, strict=True)]
    return Program(tuple(inputs), tuple(outputs), (*steps, *copies))


INPUTS = {2: [3, 1], 5: [1, 1, 3, 5, 9], 40: [n % 7 for n in range(40)]}


@given(programs())
@settings(max_examples=40)
def test_random_programs_have_a_valid_plan(program: Program) -> None:
    """The checker runs in `peak`."""
    found = peak(program)
    assert found.bound <= found.planned


@given(programs())
@settings(max_examples=12)
def test_random_programs_in_c(program: Program) -> None:
    """With a workspace of garbage; a buffer overwritten too early would show."""
    check_in_c(program, {b: np.array(INPUTS[b.elements]) for b in program.inputs})


# Small programs whose plan is known. A buffer's place is a multiple of 64 bytes.

X, Y = buffer("x", "input", FLOAT, 100), buffer("y", "output", FLOAT, 100)


def temporaries(count: int) -> list[Buffer]:
    return [buffer(f"t{n}", "workspace", FLOAT, 100) for n in range(count)]


def checked(out: Buffer, source: Buffer) -> Loops:
    axis = Axis(100)
    value = load(source, [along(axis)])
    return over(out, Checked(FLOAT, value, compare("equal", value, value), Status(2)), axis)


def turned(out: Buffer, source: Buffer) -> Loops:
    axis = Axis(100)
    return over(out, load(source, [along(axis) * -1 + 99]), axis)


def chain_of(kernel: Callable[[Buffer, Buffer], Loops], length: int) -> Program:
    buffers = [X, *temporaries(length), Y]
    pairs = itertools.pairwise(buffers)
    return Program((X,), (Y,), tuple(kernel(out, source) for source, out in pairs))


def test_a_chain_that_runs_in_place_needs_one_buffer() -> None:
    assert peak(chain_of(checked, 10)).planned == 400


def test_a_chain_that_cannot_needs_two() -> None:
    assert peak(chain_of(turned, 10)).planned == 400 + 400


def test_a_copy_is_not_in_place() -> None:
    """It is memcpy, which needs two places."""
    program = chain_of(copy, 3)
    assert peak(program).planned == 400 + 400
    check_in_c(program, {X: np.arange(100, dtype=np.float32)})


def test_in_place_kernels_take_one_pointer() -> None:
    program = chain_of(checked, 3)
    body = emitted(program).body
    assert body.count("float *restrict out)") == 2
    assert "(float *restrict out)" in body
    check_in_c(program, {X: np.arange(100, dtype=np.float32)})


def test_inputs_and_constants_are_never_overwritten() -> None:
    (t,) = temporaries(1)
    w = constant(np.arange(100, dtype=np.float32), FLOAT)
    program = Program((X,), (Y,), (checked(t, w), checked(Y, t)))
    assert peak(program).planned == 400


def test_an_operand_that_is_needed_later_stays() -> None:
    a, b = temporaries(2)
    axis = Axis(100)
    both = compare("equal", load(a, [along(axis)]), load(b, [along(axis)]))
    z = buffer("z", "output", BOOL, 100)
    program = Program((X,), (z,), (checked(a, X), checked(b, a), over(z, both, axis)))
    assert peak(program).planned == 400 + 400


def test_an_operand_that_is_read_elsewhere_too_stays() -> None:
    """Each element and its mirror."""
    a, b = temporaries(2)
    axis = Axis(100)
    here, there = load(a, [along(axis)]), load(a, [along(axis) * -1 + 99])
    step = over(b, Checked(FLOAT, here, compare("equal", here, there), Status(2)), axis)
    program = Program((X,), (Y,), (checked(a, X), step, checked(Y, b)))
    assert peak(program).planned == 400 + 400


def test_a_place_that_is_stored_twice_is_not_in_place() -> None:
    """The second round of the outer loop would read what the first one stored."""
    a, b = temporaries(2)
    outer, axis = Axis(2), Axis(100)
    value = load(a, [along(axis)])
    guarded = Checked(FLOAT, value, compare("equal", value, value), Status(2))
    step = Loops(b, (along(axis),), (outer, axis), guarded)
    program = Program((X,), (Y,), (checked(a, X), step, checked(Y, b)))
    assert peak(program).planned == 400 + 400


def test_a_smaller_type_does_not_take_over() -> None:
    (a,) = temporaries(1)
    b, z = buffer("b", "workspace", BOOL, 100), buffer("z", "output", BOOL, 100)
    axis = Axis(100)
    step = over(b, compare("equal", load(a, [along(axis)]), const(1, FLOAT)), axis)
    again = over(z, compare("equal", load(b, [along(axis)]), const(True, BOOL)), axis)
    assert peak(Program((X,), (z,), (checked(a, X), step, again))).planned == 400 + 100


def test_large_gaps_are_filled() -> None:
    """The plan of three buffers of different size, two of which never live together."""
    small, large = buffer("s", "workspace", FLOAT, 10), buffer("l", "workspace", FLOAT, 1000)
    k, axis = Axis(100), Axis(1000)
    total = Fold(FLOAT, "sum", (k,), load(X, [along(k)]))
    spread = over(large, element(small, 0), axis)
    ten, hundred = Axis(10), Axis(100)
    steps = (
        over(small, total, ten),
        spread,
        over(Y, load(large, [along(hundred) * 10]), hundred),
    )
    found = peak(Program((X,), (Y,), steps))
    assert (found.planned, found.bound) == (64 + 4000, 4040)


def first_of(out: Buffer, *sources: Buffer) -> Loops:
    """The sum of their first elements, in every element: never in place."""
    total = element(sources[0], 0)
    for source in sources[1:]:
        total = total + element(source, 0)
    return over(out, total, Axis(out.elements))


FLAG, COUNT = buffer("flag", "input", BOOL), buffer("count", "input", INT64)
Way = tuple[Loops, ...]


def branch(condition: Buffer, then: Way, otherwise: Way) -> Branch:
    return Branch(condition, Program(steps=then), Program(steps=otherwise))


def test_the_two_ways_of_a_branch_use_the_same_memory() -> None:
    a, b, c, d = temporaries(4)
    ways = (first_of(a, X), first_of(d, a)), (first_of(b, X), first_of(c, b), first_of(d, c))
    found = peak(Program((X, FLAG), (Y,), (branch(FLAG, *ways), first_of(Y, d))))
    assert found.planned == 400 * 3


def test_what_a_way_of_a_branch_does_not_read_it_may_not_overwrite() -> None:
    a, b, d = temporaries(3)
    ways = (first_of(b, X), first_of(d, a, b)), (first_of(b, X), first_of(d, b))
    steps = (first_of(a, X), branch(FLAG, *ways), first_of(Y, d))
    assert peak(Program((X, FLAG), (Y,), steps)).planned == 400 * 3


def test_what_only_the_body_of_a_loop_uses_takes_turns() -> None:
    state, a, b, c, d = temporaries(5)
    body = (first_of(a, state), first_of(b, a), first_of(c, b), first_of(d, c), first_of(state, d))
    loop = Repeat(COUNT, None, None, Program(steps=body), ())
    steps = (first_of(state, X), loop, first_of(Y, state))
    assert peak(Program((X, COUNT), (Y,), steps)).planned == 400 * 3


def test_the_next_state_is_kept_to_the_end_of_the_body() -> None:
    state, a, b, c = temporaries(4)
    body = (first_of(a, state), first_of(b, a), first_of(c, b))
    loop = Repeat(COUNT, None, None, Program(steps=body), ((state, a),))
    found = planned(
        Program((X, COUNT), (Y,), (first_of(state, X), loop, first_of(Y, state)))
    ).offsets
    assert len({found[buffer] for buffer in (state, a, b, c)}) == 4


def test_a_condition_in_the_workspace_lies_beside_what_the_ways_use() -> None:
    flag = buffer("made", "workspace", BOOL)
    a, d = temporaries(2)
    ways = (first_of(a, X), first_of(d, a)), (first_of(d, X),)
    made = over(flag, const(True, BOOL))
    found = planned(Program((X,), (Y,), (made, branch(flag, *ways), first_of(Y, d))))
    assert found.workspace_size == 400 + 400 + 1


def test_programs_without_workspace() -> None:
    found = planned(Program((X,), (Y,), (checked(Y, X),)))
    assert (dict(found.offsets), found.workspace_size) == ({}, 0)


@pytest.mark.parametrize(("elements", "alignment"), [(1, 4), (100, 16), (1001, 64)])
def test_offsets_are_multiples_of_as_much_as_costs_next_to_nothing(
    elements: int, alignment: int
) -> None:
    axis = Axis(elements)
    kept = [buffer(f"t{n}", "workspace", FLOAT, elements) for n in range(3)]
    x, y = buffer("x", "input", FLOAT, elements), buffer("y", "output", FLOAT, elements)
    one, two, three = (load(b, [along(axis) * -1 + (elements - 1)]) for b in kept)
    found = planned(
        Program((x,), (y,), (*(copy(b, x) for b in kept), over(y, one + two + three, axis)))
    )
    room = -(-elements * 4 // alignment) * alignment
    assert sorted(found.offsets.values()) == [0, room, 2 * room]
    assert found.workspace_size == 2 * room + elements * 4


@pytest.mark.parametrize("size", [1, 63, 64, 65])
def test_little_models_need_little_alignment(size: int) -> None:
    byte = buffer("b", "workspace", BOOL, size)
    z = buffer("z", "output", BOOL, size)
    axis = Axis(size)
    flags = compare("equal", at(along(axis)), const(0, INT64))
    flip = load(byte, [along(axis) * -1 + (size - 1)])
    program = Program((), (z,), (over(byte, flags, axis), over(z, flip, axis)))
    compiled = emitted(program)
    assert compiled.workspace_size == size
    assert compiled.workspace_alignment == (16 if size <= 64 else 64)
    found = check_in_c(program, {})[z]
    assert found.tolist() == [n == size - 1 for n in range(size)]


def test_plans_do_not_change_values() -> None:
    program = chain_of(turned, 4)
    after = plan_memory(merge_axes(program))
    inputs = {X: np.arange(100, dtype=np.float32)}
    assert (evaluated(program, inputs)[1][Y] == evaluated(after, inputs)[1][Y]).all()


def test_more_memory_than_there_are_addresses() -> None:
    x = buffer("x", "input", BOOL, 2**62)
    kept = [buffer(f"t{n}", "workspace", BOOL, 2**62) for n in range(2)]
    axis = Axis(2**62)
    one, other = (load(b, [along(axis)]) for b in kept)
    y = buffer("y", "output", BOOL, 2**62)
    steps = (*(copy(b, x) for b in kept), over(y, compare("equal", one, other), axis))
    with pytest.raises(ModelError) as caught:
        plan_memory(merge_axes(Program((x,), (y,), steps)))
    fact = "the values between its nodes need more memory than C can address"
    (problem,) = caught.value.problems
    assert problem == Problem(Kind.MEMORY_TOO_LARGE, "model", fact, "use smaller dimensions")
