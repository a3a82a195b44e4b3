"""in_place: an operand is overwritten only where nothing that is still to be read gets lost.

Small kernels are run point by point with the operand and the result in one memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxc.check_plan import check_plan
from onnxc.dtypes import BY_NAME
from onnxc.expression import Axis, Buffer, Expr, Fold, Index, Load, affine, along, at, load
from onnxc.kernel import Loops, Program, Routine, Rows, Step
from onnxc.passes.in_place import overwritable
from onnxc.traversal import walk
from tests.kernels.programs import BOOL, FLOAT, INT32, INT64, buffer, const

A, B = buffer("a", "workspace", FLOAT, 12), buffer("b", "workspace", FLOAT, 12)
AXES = (Axis(3), Axis(4), Axis(2))


def loses_data(step: Loops, operand: Buffer) -> bool:
    """Whether some point reads an element after it, or another point, has been stored over."""
    folded = [n for n in walk(step.value) if isinstance(n, Fold)]
    inner = tuple(axis for fold in folded for axis in fold.axes)
    loads = [n for n in walk(step.value) if isinstance(n, Load) and n.buffer is operand]
    destroyed: set[int] = set()
    for point in points(step.axes):
        for place in points(inner):
            if any(value(one.flat, point | place) in destroyed for one in loads):
                return True
        destroyed.add(value(step.where[0], point))
    return False


def points(axes: tuple[Axis, ...]) -> Iterator[dict[Axis, int]]:
    for numbers in itertools.product(*(range(axis.extent) for axis in axes)):
        yield dict(zip(axes, numbers, strict=True))


def value(index: Index, point: dict[Axis, int]) -> int:
    return index.const + sum(stride * point[axis] for axis, stride in index.terms)


@st.composite
def kernels(draw: st.DrawFn) -> Loops:
    """Of one to three loops in any order, that load twice or fold; all indices are in range."""
    axes = tuple(draw(st.permutations(AXES))[: draw(st.integers(1, 3))])

    def index(*more: Axis) -> Index:
        strides = [(axis, draw(st.integers(-4, 12))) for axis in (*axes, *more)]
        free = affine(0, strides)
        least, _ = free.span() or (0, 0)
        return free + (draw(st.integers(0, 3)) - least)

    row_major = affine(0, zip(axes, [12, 4, 1][-len(axes) :], strict=True))
    where = draw(st.sampled_from([row_major, index()]))
    inner = Axis(2)
    body = Fold(FLOAT, "sum", (inner,), load(A, [draw(st.just(where)) + along(inner)]))
    loads = [load(A, [draw(st.sampled_from([where, where + 1, index()]))]) for _ in range(2)]
    result = draw(st.sampled_from([loads[0] + loads[1], loads[0] * 2.0, loads[0], body]))
    return Loops(B, (where,), axes, result)


@given(kernels())
def test_random_kernels(step: Loops) -> None:
    if A in overwritable(step):
        assert not loses_data(step, A)


@given(kernels())
def test_the_checker_agrees(step: Loops) -> None:
    """It has a proof of its own: a plan that puts both at 0 is refused, or nothing gets lost."""
    size = max(A.bytes, B.bytes)
    plan = Program((), (), (step,), offsets={A: 0, B: 0}, workspace_size=size)
    try:
        check_plan(plan)
    except AssertionError:
        assert A not in overwritable(step)
    else:
        assert not loses_data(step, A)


# What may be overwritten, kernel by kernel.

C, LONG = buffer("c", "workspace", FLOAT, 12), buffer("long", "workspace", FLOAT, 30)
COUNTS = buffer("counts", "workspace", INT32, 12)
X, Y = buffer("x", "input", FLOAT, 12), buffer("y", "output", FLOAT, 12)
N, R, P = Axis(12), Axis(3), Axis(4)
"""Elements; rows and what is in a row."""
FORTH, BACK, BY_ROWS = along(N), along(N) * -1 + 11, along(R) * 4 + along(P)
NARROW = along(R) * 3 + along(P)
CUBE = (Axis(2), Axis(2), P)
NINE, SEVEN = (along(CUBE[0]) * n + along(CUBE[1]) * 5 + along(P) for n in (9, 7))
ROUNDS, ONE = Axis(2), Axis(1)


def read(*indices: Index, source: Buffer = A) -> Expr:
    """The sum of what lies there, twice: no copy."""
    total: Expr = const(0, FLOAT)
    for index in indices:
        total = total + load(source, [index])
    return total


def at_run_time(index: Index) -> Index:
    return Index(0, (), ((at(index), 1),))


@pytest.mark.parametrize(
    ("where", "axes", "value", "taken"),
    [
        pytest.param(FORTH, (N,), read(FORTH), [A], id="each its own"),
        pytest.param(BACK, (N,), read(BACK), [A], id="each its own, downwards"),
        pytest.param(FORTH, (N,), load(A, [FORTH]), [], id="a copy is memcpy"),
        pytest.param(FORTH, (N,), load(LONG, [FORTH + 1]), [LONG], id="a copy from further up"),
        pytest.param(FORTH, (N,), read(FORTH, FORTH + 3, source=LONG), [LONG], id="and above"),
        pytest.param(FORTH + 1, (N,), read(FORTH), [], id="below"),
        pytest.param(FORTH, (N,), read(FORTH * 2, source=LONG), [LONG], id="every other"),
        pytest.param(FORTH * 2, (N,), read(FORTH), [], id="what is stored by then"),
        pytest.param(BACK, (N,), read(BACK + 1, source=LONG), [], id="above, downwards"),
        pytest.param(FORTH, (N,), read(BACK), [], id="mirrored"),
        pytest.param(FORTH, (N,), read(at_run_time(FORTH)), [], id="somewhere"),
        pytest.param(at_run_time(FORTH), (N,), read(FORTH), [], id="stored somewhere"),
        pytest.param(BY_ROWS, (R, P), read(BY_ROWS), [A], id="two loops"),
        pytest.param(BY_ROWS, (P, R), read(BY_ROWS), [A], id="two loops, column by column"),
        pytest.param(BY_ROWS, (P, R), read(BY_ROWS + 1, source=LONG), [], id="columns, above"),
        pytest.param(FORTH, (ROUNDS, N), read(FORTH), [], id="stored twice"),
        pytest.param(FORTH, (ROUNDS, N), read(FORTH + 1, source=LONG), [], id="twice, above"),
        pytest.param(FORTH, (ONE, N), read(FORTH), [A], id="one round"),
        pytest.param(FORTH, (ONE, N), read(FORTH + 1, source=LONG), [LONG], id="once, above"),
        pytest.param(along(R) + along(P), (R, P), read(along(R) + along(P)), [], id="overlapping"),
        pytest.param(NARROW, (R, P), read(NARROW), [], id="rows with an element in common"),
        pytest.param(NARROW, (R, P), read(NARROW + 1), [], id="such rows, and above"),
        pytest.param(NINE, CUBE, read(NINE, source=LONG), [LONG], id="three loops"),
        pytest.param(SEVEN, CUBE, read(SEVEN, source=LONG), [], id="three loops that overlap"),
        pytest.param(FORTH, (N,), read(FORTH, source=X), [], id="an input"),
        pytest.param(FORTH, (N,), read(FORTH) + read(BACK, source=C), [A], id="one of two"),
        pytest.param(FORTH, (N,), read(FORTH) + read(FORTH, source=C), [A, C], id="both"),
        pytest.param(FORTH, (N,), read(FORTH, BACK), [], id="both ways"),
    ],
)
def test_an_operand_may_be_overwritten(
    where: Index, axes: tuple[Axis, ...], value: Expr, taken: list[Buffer]
) -> None:
    assert overwritable(Loops(B, (where,), axes, value)) == taken


def test_only_memory_of_elements_of_one_type_is_taken() -> None:
    counted = Loops(COUNTS, (FORTH,), (N,), load(COUNTS, [FORTH]) + const(1, INT32))
    assert overwritable(counted) == []  # itself
    assert overwritable(Loops(COUNTS, (FORTH,), (N,), read(FORTH))) == []
    assert overwritable(Loops(Y, (FORTH,), (N,), read(FORTH))) == []
    nibbles = buffer("n", "workspace", BY_NAME["int4"], 12)
    assert overwritable(Loops(nibbles, (FORTH,), (N,), read(FORTH))) == []
    flags = buffer("f", "workspace", BOOL, 12)
    bytes_ = buffer("u", "workspace", BY_NAME["uint8"], 12)
    both = Loops(flags, (FORTH,), (N,), load(bytes_, [FORTH]) + const(1, BY_NAME["uint8"]))
    assert overwritable(both) == [bytes_]


def test_what_is_not_merged_or_keeps_elements_takes_nothing() -> None:
    table = buffer("t", "workspace", FLOAT, 3, 4)
    value = load(A, [BY_ROWS]) + 1.0
    assert overwritable(Loops(table, (along(R), along(P)), (R, P), value)) == []
    assert overwritable(Loops(B, (FORTH,), (N,), read(FORTH), accumulate="add")) == []
    assert overwritable(Routine("r", (A,), (B,))) == []


D = buffer("d", "workspace", FLOAT, 12)


def by_rows(out: Buffer, *values: Expr) -> Loops:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return Loops(out, (BY_ROWS,), (R, P), total)


def rows(*steps: Loops, inside: Buffer | None = None) -> Rows:
    part = buffer("", "workspace", FLOAT, 1, 4)
    return Rows(R, 1, steps, {} if inside is None else {inside: part})


OWN, ABOVE = load(A, [BY_ROWS]) * 2.0, load(A, [BY_ROWS + 4]) * 2.0
IN_ROW = load(A, [along(R) * 4 + along(P) * -1 + 3]) * 2.0
FIRST = load(A, [along(R) * 4])


@pytest.mark.parametrize(
    ("step", "taken"),
    [
        pytest.param(rows(by_rows(B, OWN)), [A], id="each its own"),
        pytest.param(rows(by_rows(B, IN_ROW)), [], id="each its row's"),
        pytest.param(
            rows(by_rows(C, IN_ROW), by_rows(B, load(C, [BY_ROWS])), inside=C),
            [A],
            id="the row's before any is stored",
        ),
        pytest.param(
            rows(by_rows(C, FIRST), by_rows(B, load(C, [BY_ROWS])), inside=C),
            [A],
            id="the row's first",
        ),
        pytest.param(
            rows(by_rows(C, OWN), by_rows(B, OWN, load(C, [BY_ROWS])), inside=C),
            [A],
            id="by the kernel that stores too",
        ),
        pytest.param(
            rows(by_rows(C, OWN), by_rows(B, IN_ROW, load(C, [BY_ROWS])), inside=C),
            [],
            id="by the kernel that stores, elsewhere",
        ),
        pytest.param(
            rows(by_rows(B, const(1, FLOAT)), by_rows(B, load(A, [BY_ROWS]))), [], id="later"
        ),
        pytest.param(rows(by_rows(B, ABOVE)), [], id="another row"),
        pytest.param(rows(by_rows(B, OWN), by_rows(D, load(B, [BY_ROWS]))), [], id="two results"),
        pytest.param(rows(by_rows(Y, OWN)), [], id="an output"),
        pytest.param(
            rows(by_rows(C, OWN), by_rows(Y, load(C, [BY_ROWS])), inside=C),
            [],
            id="an output, later",
        ),
        pytest.param(
            rows(by_rows(C, OWN, load(B, [BY_ROWS])), by_rows(B, load(C, [BY_ROWS])), inside=C),
            [],
            id="what is filled already",
        ),
    ],
)
def test_a_row_may_overwrite_the_same_row_of_an_operand(step: Step, taken: list[Buffer]) -> None:
    assert overwritable(step) == taken


def test_rows_of_another_length_are_not_the_same() -> None:
    assert overwritable(rows(by_rows(B, load(LONG, [along(R) * 10 + along(P)]) * 2.0))) == []
    wide = buffer("w", "workspace", FLOAT, 13)
    assert overwritable(rows(Loops(wide, (BY_ROWS,), (R, P), OWN))) == []
    counts = buffer("k", "workspace", INT64, 12)
    assert overwritable(rows(Loops(counts, (BY_ROWS,), (R, P), OWN))) == []
