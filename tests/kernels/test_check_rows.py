"""check_rows: what makes kernels that run row by row differ from one after the other.

Two rows of four elements.
"""

from __future__ import annotations

import pytest

from onnxc.check_rows import rows_faults, same_rows
from onnxc.expression import Axis, Buffer, Checked, Expr, Index, along, at, compare, load
from onnxc.kernel import Loops, Rows
from onnxc.status import Status
from tests.kernels.programs import FLOAT, INT32, buffer, const

X, Y = buffer("x", "input", FLOAT, 8), buffer("y", "output", FLOAT, 8)
A, B, C = (buffer(name, "workspace", FLOAT, 8) for name in "abc")
R, P = Axis(2), Axis(4)
PLACE = along(R) * 4 + along(P)
PART = buffer("part", "workspace", FLOAT, 1, 4)


def step(out: Buffer, value: Expr, where: Index = PLACE) -> Loops:
    return Loops(out, (where,), (R, P), value)


def read(source: Buffer, place: Index = PLACE) -> Expr:
    return load(source, [place]) * 2.0


def reporting(source: Buffer, code: Status) -> Expr:
    value = load(source, [PLACE])
    return Checked(FLOAT, value, compare("equal", value, value), code)


def faults(*steps: Loops, inside: dict[Buffer, Buffer] | None = None, count: int = 1) -> list[str]:
    return [*rows_faults(Rows(R, count, steps, inside or {}))]


def test_sound_rows() -> None:
    assert faults(step(A, read(X)), step(Y, read(A)), inside={A: PART}) == []


def test_every_kernel_begins_with_the_rows() -> None:
    turned = Loops(Y, (PLACE,), (P, R), read(A))
    assert faults(step(A, read(X)), turned) == ["a kernel does not begin with the loop over rows"]


def test_of_several_statuses_it_is_not_known_which_comes_first() -> None:
    one, other = (reporting(X, Status(code)) for code in (2, 3))
    assert faults(step(A, one), step(Y, read(A))) == []
    assert faults(step(A, one), step(B, one), step(Y, read(A))) == []
    fault = ["several kernels report a status, not all the same"]
    assert faults(step(A, one), step(Y, other)) == fault
    assert faults(step(A, one), step(B, one), step(Y, other)) == fault
    both = Checked(FLOAT, other, compare("equal", one, one), Status(2))
    assert faults(step(A, both), step(Y, read(A))) == []


@pytest.mark.parametrize(
    ("place", "fault"),
    [
        (PLACE, False),
        (along(R) * 4 + along(P) * -1 + 3, False),
        (along(R) * 4 + 3, False),
        (along(R) * 4 + 4, True),
        (PLACE + 1, True),
        (PLACE + -1, True),
        (along(R) * 4 + along(P) * -1 + 2, True),
        (along(R) * 4 + along(P) * -1 + 4, True),
        (along(R) * -4 + along(P) + 4, True),
        (along(R) * 3 + along(P), True),
        (along(P), True),
        (Index(0, (), ((at(along(R)), 4),)), True),
    ],
)
def test_a_row_needs_no_other_row(place: Index, fault: bool) -> None:
    wanted = ["a row of 'a' is used by another row"] if fault else []
    assert faults(step(A, read(X)), step(Y, read(A, place))) == wanted
    assert faults(step(A, read(X), place), step(Y, read(A))) == wanted


def test_what_no_kernel_stores_is_read_anywhere() -> None:
    assert faults(step(Y, read(X, along(P)))) == []
    assert faults(step(A, read(X), along(R) + along(P)), step(Y, read(X))) == []


def test_rows_of_a_part_of_the_elements() -> None:
    odd = buffer("odd", "workspace", FLOAT, 9)
    assert faults(step(odd, read(X)), step(Y, read(odd))) == [
        "a row of 'odd' is used by another row"
    ]


@pytest.mark.parametrize(
    ("part", "count", "found"),
    [
        (PART, 1, []),
        (buffer("", "workspace", FLOAT, 2, 4), 2, []),
        (PART, 2, ["2 rows do not fit into what holds them"]),
        (buffer("", "workspace", FLOAT, 1, 5), 1, ["1 rows do not fit into what holds them"]),
        (buffer("", "output", FLOAT, 1, 4), 1, ["rows are held by what is of another type"]),
        (buffer("", "workspace", INT32, 1, 4), 1, ["rows are held by what is of another type"]),
    ],
)
def test_what_holds_rows(part: Buffer, count: int, found: list[str]) -> None:
    steps = (step(A, read(X)), step(Y, read(A)))
    assert faults(*steps, inside={A: part}, count=count) == found


def test_only_workspace_is_held_by_rows() -> None:
    assert faults(step(Y, read(X)), step(A, read(Y)), inside={Y: PART}) == [
        "'y' is not only used inside"
    ]


def same(source: Buffer, *steps: Loops) -> bool:
    return same_rows(Rows(R, 1, steps, {}), source)


def test_a_row_of_the_result_takes_the_place_of_the_same_row() -> None:
    assert same(A, step(B, read(A)))
    assert same(A, step(B, read(A, along(R) * 4)))
    assert not same(A, step(B, read(A, PLACE + 1)))
    assert not same(A, step(B, read(A), PLACE + 1))
    assert not same(A, step(B, read(A)), step(C, read(B)))
    assert not same(X, step(B, read(X)))
    assert not same(A, step(Y, read(A)))
    numbers = buffer("n", "workspace", INT32, 8)
    assert not same(numbers, step(B, const(0, FLOAT)))
    assert same(A, step(B, const(0, FLOAT)))


def test_rows_of_another_length_are_not_the_same() -> None:
    long = buffer("long", "workspace", FLOAT, 16)
    assert not same(long, step(B, read(long, along(R) * 8 + along(P))))
    assert same(long, step(B, read(long)))
