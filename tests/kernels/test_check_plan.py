"""check_plan on plans that are given by hand: the steps whose results destroy what is still needed.

All buffers have four floats, 16 bytes, unless the test says otherwise.
"""

from __future__ import annotations

import pytest

from onnxc.check import InvalidProgramError
from onnxc.check_plan import Account, Peak, account, check_plan
from onnxc.dtypes import BY_NAME
from onnxc.expression import Axis, Buffer, Expr, Index, along, at, load
from onnxc.kernel import Branch, Loops, Micro, Program, Repeat, Routine, Rows, Step
from tests.kernels.programs import BOOL, FLOAT, INT32, INT64, buffer, const, copy, element, over

X, Y = buffer("x", "input", FLOAT, 4), buffer("y", "output", FLOAT, 4)
A, B, C, D = (buffer(name, "workspace", FLOAT, 4) for name in "abcd")
FLAG, COUNT = buffer("flag", "workspace", BOOL), buffer("count", "workspace", INT64)
GIVEN_FLAG, GIVEN_COUNT = buffer("if", "input", BOOL), buffer("times", "input", INT64)


def plan(places: dict[Buffer, int], *steps: Step) -> Program:
    size = max((offset + b.bytes for b, offset in places.items()), default=0)
    return Program((X, GIVEN_FLAG, GIVEN_COUNT), (Y,), steps, offsets=places, workspace_size=size)


def faults(places: dict[Buffer, int], *steps: Step) -> list[str]:
    try:
        check_plan(plan(places, *steps))
    except InvalidProgramError as error:
        return str(error).split("\n")
    return []


def bound(*steps: Step) -> int:
    """Of a plan in which nothing shares memory."""
    used = {b: None for step in steps for b in (*step.reads(), *step.writes())}
    places = {b: 64 * n for n, b in enumerate(used) if b.kind == "workspace"}
    return check_plan(plan(places, *steps)).bound


def turned(out: Buffer, *sources: Buffer) -> Loops:
    """May not run in place: every point reads elsewhere."""
    axis = Axis(out.elements)
    value: Expr = const(0, FLOAT)
    for source in sources:
        value = value + load(source, [along(axis) * -1 + (out.elements - 1)])
    return over(out, value, axis)


def twice(out: Buffer, source: Buffer) -> Loops:
    """May run in place."""
    axis = Axis(out.elements)
    return over(out, load(source, [along(axis)]) * 2.0, axis)


def half(out: Buffer, source: Buffer, start: int) -> Loops:
    axis = Axis(2)
    return Loops(out, (along(axis) + start,), (axis,), load(source, [along(axis)]))


def body(*steps: Step) -> Program:
    return Program(steps=steps)


def repeat(*steps: Step, carried: tuple[tuple[Buffer, Buffer], ...] = ()) -> Repeat:
    return Repeat(GIVEN_COUNT, None, None, body(*steps), carried)


@pytest.mark.parametrize(("place", "lost"), [(-16, 0), (-12, 1), (0, 1), (12, 1), (16, 0)])
def test_buffers_overlap_where_they_have_a_byte_in_common(place: int, lost: int) -> None:
    steps = (copy(A, X), copy(B, X), turned(Y, A, B))
    assert faults({A: 16, B: 16 + place}, *steps) == ["step 1: writing 'b' destroys 'a'"] * lost


def test_of_several_faults_all_are_told() -> None:
    steps = (copy(A, X), copy(B, X), copy(C, X), turned(Y, A, B, C))
    assert sorted(faults({A: 0, B: 0, C: 0}, *steps)) == [
        "step 1: writing 'b' destroys 'a'",
        "step 2: writing 'c' destroys 'a'",
        "step 2: writing 'c' destroys 'b'",
    ]


def test_in_place() -> None:
    assert faults({A: 0, B: 0}, copy(A, X), twice(B, A), copy(Y, B)) == []
    lost = ["step 1: writing 'b' destroys 'a'"]
    assert faults({A: 0, B: 4}, copy(A, X), twice(B, A), copy(Y, B)) == lost
    assert faults({A: 0, B: 0}, copy(A, X), turned(B, A), copy(Y, B)) == lost
    assert faults({A: 0, B: 0}, copy(A, X), copy(B, A), copy(Y, B)) == lost
    assert faults({A: 0, B: 0}, copy(A, X), twice(B, A), turned(Y, A, B)) == lost


def test_another_type_of_c_does_not_run_in_place() -> None:
    numbers = buffer("n", "workspace", INT64, 4)
    axis = Axis(4)
    step = over(numbers, at(along(axis)) + load(COUNTS, [along(axis)]), axis)
    last = over(Y, element(A, 0), Axis(4))
    assert faults({A: 0, COUNTS: 16, numbers: 16}, copy(A, X), zeroed(COUNTS), step, last) == []
    floats = over(B, load(COUNTS, [along(axis)]), axis)  # for the checker of plans only
    lost = ["step 1: writing 'b' destroys 'counts'"]
    assert faults({COUNTS: 0, B: 0}, zeroed(COUNTS), floats, copy(Y, B)) == lost


COUNTS = buffer("counts", "workspace", INT64, 4)


def zeroed(out: Buffer) -> Loops:
    return over(out, const(0, out.dtype), Axis(out.elements))


def test_a_kernel_may_not_read_what_it_stores_elsewhere() -> None:
    lost = ["step 1: writing 'a' destroys 'a'"]
    assert faults({A: 0}, copy(A, X), turned(A, A), copy(Y, A)) == lost
    assert faults({A: 0}, copy(A, X), twice(A, A), copy(Y, A)) == []
    axis = Axis(4)
    added = Loops(A, (along(axis),), (axis,), load(X, [along(axis)]), accumulate="add")
    assert faults({A: 0}, copy(A, X), added, copy(Y, A)) == []


def test_what_is_filled_in_parts_is_needed_from_the_first_part_on() -> None:
    parts = (half(A, X, 0), copy(B, X), half(A, X, 2), turned(Y, A))
    assert faults({A: 0, B: 0}, *parts) == ["step 1: writing 'b' destroys 'a'"]
    before = (copy(B, X), half(A, X, 0), half(A, X, 2), turned(Y, A))
    assert faults({A: 0, B: 0}, *before) == []
    assert faults({A: 0, B: 0}, copy(B, X), half(A, X, 0), half(A, B, 2), turned(Y, A)) == [
        "step 2: writing 'a' destroys 'b'",
        "step 1: writing 'a' destroys 'b'",
    ]


def test_elements_of_one_type_of_c() -> None:
    """As wide as they may be, those of another are not overwritten; two indices are one place."""
    narrow, rows, columns = buffer("narrow", "workspace", INT32, 4), Axis(2), Axis(2)
    axis = Axis(4)
    step = over(B, load(narrow, [along(axis)]) + const(1, INT32), axis)
    lost = ["step 1: writing 'b' destroys 'narrow'"]
    assert faults({narrow: 0, B: 0}, zeroed(narrow), step, copy(Y, B)) == lost
    square, other = (buffer(n, "workspace", FLOAT, 2, 2) for n in ("square", "other"))
    doubled = over(other, load(square, map(along, (rows, columns))) * 2.0, rows, columns)
    first = over(square, const(0, FLOAT), *map(Axis, square.shape))
    assert faults({square: 0, other: 0}, first, doubled, over(Y, element(other, 1, 1), axis)) == []


def test_what_is_read_at_a_place_that_data_choose_is_not_overwritten() -> None:
    axis = Axis(4)
    chosen = Index(4, (), ((load(COUNTS, [along(axis)]), 1),))
    long = buffer("long", "workspace", FLOAT, 9)
    step = over(B, load(long, [chosen]) * 2.0, axis)
    lost = ["step 2: writing 'b' destroys 'long'"]
    steps = (zeroed(COUNTS), zeroed(long), step, copy(Y, B))
    assert faults({COUNTS: 64, long: 0, B: 0}, *steps) == lost


def test_two_points_that_store_to_one_element_do_not_run_in_place() -> None:
    """The second reads what the first has stored."""
    rows, columns = Axis(2), Axis(4)
    wide, made = (buffer(name, "workspace", FLOAT, 8) for name in ("wide", "made"))
    for stride, lost in (4, 0), (3, 1), (0, 1):
        place = along(rows) * stride + along(columns)
        step = Loops(made, (place,), (rows, columns), load(wide, [place]) * 2.0)
        found = faults({wide: 0, made: 0}, zeroed(wide), step, over(Y, element(made, 0), Axis(4)))
        assert found == ["step 1: writing 'made' destroys 'wide'"] * lost


def test_three_loops_that_store_to_one_element_do_not_run_in_place() -> None:
    """The outermost steps over what each of the others reaches, but not over both."""
    axes = Axis(2), Axis(2), Axis(4)
    wide, made = (buffer(name, "workspace", FLOAT, 20) for name in ("wide", "made"))
    for stride, lost in (9, 0), (7, 1):
        place = along(axes[0]) * stride + along(axes[1]) * 5 + along(axes[2])
        step = Loops(made, (place,), axes, load(wide, [place]) * 2.0)
        found = faults({wide: 0, made: 0}, zeroed(wide), step, over(Y, element(made, 0), Axis(4)))
        assert found == ["step 1: writing 'made' destroys 'wide'"] * lost


def test_what_a_routine_reads_and_stores_lies_apart() -> None:
    sort = Routine("r", (A,), (B, C), (), (D,))
    steps = (copy(A, X), sort, turned(Y, B, C))
    assert faults({A: 0, B: 16, C: 32, D: 48}, *steps) == []
    assert faults({A: 0, B: 0, C: 32, D: 48}, *steps) == ["step 1: writing 'b' destroys 'a'"]
    assert faults({A: 0, B: 16, C: 32, D: 0}, *steps) == ["step 1: writing 'd' destroys 'a'"]
    assert faults({A: 0, B: 16, C: 16, D: 48}, *steps) == [
        "step 1: writing 'b' destroys 'c'",
        "step 1: writing 'c' destroys 'b'",
    ]
    assert faults({A: 0, B: 16, C: 32, D: 32}, *steps) == [
        "step 1: writing 'c' destroys 'd'",
        "step 1: writing 'd' destroys 'c'",
    ]


def test_what_a_routine_stores_is_not_needed_before() -> None:
    steps = (copy(C, X), turned(A, C), Routine("r", (A,), (B,)), turned(Y, B))
    assert faults({A: 0, B: 16, C: 16}, *steps) == []
    again = (copy(B, X), turned(A, B), Routine("r", (A,), (B,)), turned(Y, A, B))
    assert faults({A: 0, B: 16}, *again) == []
    assert faults({A: 0, B: 16, D: 0}, *again[:3], copy(D, B), turned(Y, A, B)) == [
        "step 3: writing 'd' destroys 'a'"
    ]


def test_each_way_of_a_branch_for_itself() -> None:
    then, otherwise = body(turned(C, A)), body(copy(B, X), turned(C, B))
    steps = (copy(A, X), Branch(GIVEN_FLAG, then, otherwise), turned(Y, C))
    assert faults({A: 0, B: 0, C: 16}, *steps) == []
    assert faults({A: 0, B: 16, C: 0}, *steps) == ["step 2: writing 'c' destroys 'a'"]
    assert faults({A: 0, B: 16, C: 16}, *steps) == ["step 4: writing 'c' destroys 'b'"]
    kept = (*steps[:2], turned(Y, C, A))
    assert faults({A: 0, B: 0, C: 16}, *kept) == ["step 3: writing 'b' destroys 'a'"]


def test_what_either_way_of_a_branch_reads_is_needed_before_it() -> None:
    for one, other in ((A, X), (X, A)):
        branch = Branch(GIVEN_FLAG, body(copy(C, one)), body(copy(C, other)))
        steps = (copy(A, X), copy(B, X), branch, turned(Y, B, C))
        assert faults({A: 0, B: 0, C: 16}, *steps) == ["step 1: writing 'b' destroys 'a'"]


def test_a_condition_is_needed_until_the_branch() -> None:
    steps = (zeroed(FLAG), copy(A, X), Branch(FLAG, body(copy(C, X)), body(copy(C, X))))
    assert faults({FLAG: 0, A: 0, C: 16}, *steps, turned(Y, A, C)) == [
        "step 1: writing 'a' destroys 'flag'"
    ]
    assert faults({FLAG: 0, A: 16, C: 0}, *steps, turned(Y, A, C)) == []


def test_count_and_condition_of_a_loop_are_needed_all_the_time() -> None:
    loop = Repeat(COUNT, FLAG, None, body(copy(A, X)), ())
    steps = (zeroed(COUNT), zeroed(FLAG), zeroed(A), loop, turned(Y, A))
    assert faults({COUNT: 0, FLAG: 8, A: 16}, *steps) == []
    assert faults({COUNT: 0, FLAG: 16, A: 0}, *steps) == [
        "step 4: writing 'a' destroys 'count'",
        "step 2: writing 'a' destroys 'count'",
    ]
    assert faults({COUNT: 16, FLAG: 0, A: 0}, *steps) == [
        "step 4: writing 'a' destroys 'flag'",
        "step 2: writing 'a' destroys 'flag'",
    ]


def test_what_an_iteration_reads_is_needed_through_those_before() -> None:
    steps = (copy(A, X), repeat(turned(B, A), turned(C, B)), turned(Y, C))
    assert faults({A: 0, B: 16, C: 32}, *steps) == []
    assert faults({A: 0, B: 16, C: 0}, *steps) == ["step 3: writing 'c' destroys 'a'"]
    own = (copy(C, X), repeat(copy(A, X), turned(B, A), turned(C, B)), turned(Y, C))
    assert faults({A: 0, B: 16, C: 0}, *own) == []


def test_what_a_loop_leaves_may_come_from_before_it() -> None:
    """It may run no iteration."""
    steps = (copy(A, X), copy(B, X), repeat(copy(A, X)), turned(Y, A, B))
    assert faults({A: 0, B: 0}, *steps) == [
        "step 3: writing 'a' destroys 'b'",
        "step 1: writing 'b' destroys 'a'",
    ]


OVER = (copy(B, X), turned(A, C), turned(C, A))
"""B is stored before C, which the iteration before has left, is read."""


@pytest.mark.parametrize(
    ("nested", "number"),
    [
        pytest.param(repeat(*OVER), 1, id="a loop"),
        pytest.param(repeat(repeat(*OVER)), 2, id="a loop in a loop"),
        pytest.param(repeat(Branch(GIVEN_FLAG, body(*OVER), body())), 2, id="one way in a loop"),
        pytest.param(repeat(Branch(GIVEN_FLAG, body(), body(*OVER))), 2, id="the other way"),
    ],
)
def test_what_an_iteration_leaves_is_there_from_the_first_step_on(
    nested: Repeat, number: int
) -> None:
    steps = (nested, turned(Y, C))
    assert faults({A: 0, B: 16, C: 32}, *steps) == []
    lost = [f"step {number}: writing 'b' destroys 'c'"]
    assert faults({A: 0, B: 32, C: 32}, *steps) == lost


def test_a_loop_that_only_an_outer_one_runs_again_leaves_it_too() -> None:
    """The inner loop stores C, which the outer body reads before."""
    outer = repeat(copy(B, X), turned(A, C), repeat(turned(C, A)))
    lost = ["step 1: writing 'b' destroys 'c'"]
    assert faults({A: 0, B: 32, C: 32}, outer, turned(Y, C)) == lost


def test_what_no_step_stores_cannot_be_lost() -> None:
    assert faults({A: 0, B: 0}, copy(B, X), turned(Y, A, B)) == []


def test_states_are_copied_in_order_after_the_body() -> None:
    pairs = ((A, C), (B, D))
    steps = (copy(A, X), copy(B, X), repeat(turned(C, A), turned(D, B), carried=pairs))
    assert faults({A: 0, B: 16, C: 32, D: 48}, *steps, turned(Y, A, B)) == []
    assert faults({A: 0, B: 16, C: 32, D: 0}, *steps, turned(Y, A, B)) == [
        "step 2: writing 'a' destroys 'd'"
    ]
    assert faults({A: 0, B: 16, C: 16, D: 48}, *steps, turned(Y, A, B)) == [
        "step 3: writing 'c' destroys 'b'"
    ]
    assert faults({A: 0, B: 16, C: 32, D: 32}, *steps, turned(Y, A, B)) == [
        "step 4: writing 'd' destroys 'c'"
    ]


def test_a_counter_is_stored_before_the_body() -> None:
    axis = Axis(4)
    counted = over(B, load(A, [along(axis) * -1 + 3]) + load(COUNTER_AS_FLOAT, [Index()]), axis)
    loop = Repeat(GIVEN_COUNT, None, COUNTER_AS_FLOAT, body(counted, turned(C, B)), ())
    steps = (copy(A, X), copy(C, X), loop, turned(Y, C))
    assert faults({A: 0, B: 16, C: 32, COUNTER_AS_FLOAT: 48}, *steps) == []
    assert faults({A: 0, B: 16, C: 32, COUNTER_AS_FLOAT: 0}, *steps) == [
        "step 2: writing 'counter' destroys 'a'"
    ]
    assert faults({A: 0, B: 48, C: 32, COUNTER_AS_FLOAT: 48}, *steps) == [
        "step 3: writing 'b' destroys 'counter'"
    ]
    assert faults({A: 0, B: 16, C: 32, COUNTER_AS_FLOAT: 32}, *steps) == []


COUNTER_AS_FLOAT = buffer("counter", "workspace", FLOAT)
"""Of a type that the kernels here can load: the checker of plans does not look at it."""


def test_a_tuned_kernel_reads_to_the_end_what_it_reads() -> None:
    twin = twice(B, A)
    step = Micro("m", twin, (A,), None, twin.value, twin.value, scratch=(C,))
    steps = (copy(A, X), step, turned(Y, B))
    assert faults({A: 0, B: 16, C: 32}, *steps) == []
    assert faults({A: 0, B: 0, C: 32}, *steps) == ["step 1: writing 'b' destroys 'a'"]
    assert faults({A: 0, B: 16, C: 0}, *steps) == ["step 1: writing 'c' destroys 'a'"]


def test_a_tuned_kernel_may_fill_a_part() -> None:
    twin = half(A, X, 2)
    part = Micro("m", twin, (X,), None, twin.value, twin.value)
    lost = ["step 1: writing 'b' destroys 'a'"]
    assert faults({A: 0, B: 0}, half(A, X, 0), copy(B, X), part, turned(Y, A)) == lost
    assert faults({A: 0, B: 0}, copy(B, X), half(A, X, 0), part, turned(Y, A)) == []


@pytest.mark.parametrize("first", [True, False])
def test_what_one_way_of_a_branch_reads_is_needed_in_all_its_parts(first: bool) -> None:
    ways = (body(turned(C, A)), body(copy(C, X)))
    branch = Branch(GIVEN_FLAG, *(ways if first else ways[::-1]))
    steps = (half(A, X, 0), copy(B, X), half(A, X, 2), branch, turned(Y, C))
    assert faults({A: 0, B: 0, C: 16}, *steps) == ["step 1: writing 'b' destroys 'a'"]


R, P = Axis(2), Axis(2)
PLACE, MIRRORED = along(R) * 2 + along(P), along(R) * 2 + along(P) * -1 + 1


def by_rows(out: Buffer, source: Buffer, place: Index = PLACE) -> Loops:
    return Loops(out, (PLACE,), (R, P), load(source, [place]) * 2.0)


def test_rows_may_overwrite_the_same_rows() -> None:
    part = buffer("part", "workspace", FLOAT, 1, 2)
    step = Rows(R, 1, (by_rows(C, A, MIRRORED), by_rows(B, C)), {C: part})
    steps = (copy(A, X), step, turned(Y, B))
    assert faults({A: 0, B: 0, part: 16}, *steps) == []
    assert faults({A: 0, B: 4, part: 32}, *steps) == ["step 1: writing 'b' destroys 'a'"]
    assert faults({A: 0, B: 16, part: 0}, *steps) == ["step 1: writing 'part' destroys 'a'"]
    assert faults({A: 16, B: 0, part: 8}, *steps) == [
        "step 1: writing 'b' destroys 'part'",
        "step 1: writing 'part' destroys 'b'",
    ]
    alone = Rows(R, 1, (by_rows(B, A, MIRRORED),), {})
    lost = ["step 1: writing 'b' destroys 'a'"]
    assert faults({A: 0, B: 0}, copy(A, X), alone, turned(Y, B)) == lost
    read_after = Rows(R, 1, (by_rows(B, X), by_rows(B, A)), {})
    assert faults({A: 0, B: 0}, copy(A, X), read_after, turned(Y, B)) == lost
    two = Rows(R, 1, (by_rows(B, A), by_rows(D, B)), {})
    assert faults({A: 0, B: 0, D: 16}, copy(A, X), two, turned(Y, B, D)) == lost


@pytest.mark.parametrize(
    ("name", "offset", "fits"),
    [
        ("string", 8, True),
        ("string", 4, False),
        ("complex64", 4, True),
        ("complex64", 2, False),
        ("complex128", 8, True),
        ("complex128", 4, False),
        ("double", 8, True),
        ("double", 4, False),
        ("float16", 2, True),
        ("float16", 1, False),
        ("bool", 1, True),
    ],
)
def test_alignment_is_what_the_parts_of_an_element_need(name: str, offset: int, fits: bool) -> None:
    made = buffer("made", "workspace", BY_NAME[name], 4)
    found = faults({made: offset}, Routine("r", (X,), (made,)), Routine("r", (made,), (Y,)))
    assert found == ([] if fits else [f"'made' is at {offset}"])


def test_the_bound_is_what_lives_at_the_fullest_step() -> None:
    assert bound(copy(Y, X)) == 0
    assert bound(copy(A, X), turned(Y, A)) == 16
    assert bound(copy(A, X), turned(B, A), turned(Y, B)) == 32
    assert bound(copy(A, X), copy(B, X), turned(C, A), turned(Y, B, C)) == 48
    assert bound(copy(A, X), twice(B, A), turned(Y, B)) == 16


def test_of_what_may_run_in_place_the_smaller_counts_once() -> None:
    long = buffer("long", "workspace", FLOAT, 10)
    assert bound(over(long, const(0, FLOAT), Axis(10)), twice(A, long), turned(Y, A)) == 40
    axis = Axis(4)
    both = over(C, load(A, [along(axis)]) + load(B, [along(axis)]), axis)
    assert bound(copy(A, X), copy(B, X), both, turned(Y, C)) == 32


def test_the_bound_of_control_flow() -> None:
    then, otherwise = body(copy(B, X), copy(C, X), turned(D, B, C)), body(turned(D, A))
    assert bound(copy(A, X), Branch(GIVEN_FLAG, then, otherwise), turned(Y, D)) == 48
    loop = repeat(turned(B, A), turned(C, B))
    assert bound(copy(A, X), copy(C, X), loop, turned(Y, C)) == 48


def test_a_checked_plan_says_what_it_needs() -> None:
    steps = (copy(A, X), turned(B, A), turned(Y, B))
    assert check_plan(plan({A: 0, B: 100}, *steps)) == Peak(116, 32)


def test_where_the_bytes_go() -> None:
    long, short = (buffer(n, "workspace", FLOAT, size) for n, size in (("long", 10), ("short", 2)))
    axis = Axis(4)
    value = load(long, [along(axis) * -1 + 3]) + element(short, 0)
    steps = (zeroed(short), zeroed(long), over(A, value, axis))
    places = {short: 0, long: 8, A: 48, D: 64}
    for rest, live in ((turned(Y, A),), [16]), ((zeroed(D), turned(Y, A, D, short)), [40, 40]):
        every = (*steps, *rest)
        used = {b: n for b, n in places.items() if any(b in step.writes() for step in every)}
        found = account(plan(used, *every))
        assert [found.live[step] for step in every] == [8, 48, 64, *live]
        assert (found.at, found.buffers, found.spared) == (steps[2], (long, A, short), 0)


def test_of_steps_that_need_as_much_the_first_is_told() -> None:
    steps = (copy(A, X), turned(B, A), turned(C, B), turned(Y, C))
    found = account(plan({A: 0, B: 16, C: 0}, *steps))
    assert (found.at, {*found.buffers}) == (steps[1], {A, B})


def test_what_runs_in_place_is_spared() -> None:
    steps = (copy(A, X), twice(B, A), turned(Y, B))
    found = account(plan({A: 0, B: 0}, *steps))
    assert (found.at, found.buffers, found.spared) == (steps[0], (A,), 0)
    alone = account(plan({A: 0, B: 0}, twice(B, A), turned(Y, B)))
    assert ({*alone.buffers}, alone.spared) == ({A, B}, 16)
    assert account(Program()) == Account({}, None, (), 0)
    step = copy(Y, X)
    assert account(plan({}, step)).live == {step: 0}
