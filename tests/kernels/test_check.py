"""The checker itself: each rule has a program that breaks it."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import pytest

from onnxc.check import InvalidProgramError, check_program
from onnxc.check_plan import Peak, check_plan
from onnxc.dtypes import BY_NAME, UINT8
from onnxc.expression import (
    Apply,
    Axis,
    Buffer,
    Checked,
    Expr,
    Fold,
    Guard,
    Index,
    along,
    apply,
    at,
    compare,
    guard,
    load,
)
from onnxc.kernel import Branch, Loops, Program, Repeat, Routine, Step
from onnxc.passes.plan_memory import plan_memory
from onnxc.status import Status
from tests.kernels.programs import (
    BOOL,
    FLOAT,
    INT64,
    buffer,
    const,
    constant,
    copy,
    over,
    peak,
    planned,
)

X, Y = buffer("x", "input", FLOAT, 4), buffer("y", "output", FLOAT, 4)
FLAG, COUNT = buffer("flag", "input", BOOL), buffer("count", "input", INT64)
ROW, COLUMN, TWO = Axis(4), Axis(4), Axis(2)
A, B = (buffer(name, "workspace", FLOAT, 4) for name in "ab")
HALF = buffer("half", "workspace", FLOAT, 2)
PACKED = buffer("p", "output", BY_NAME["int4"], 4)
W = constant(np.zeros(4, np.float32), FLOAT)
X_I = load(X, [along(ROW)])


def program(*steps: Step, out: Buffer = Y) -> Program:
    return Program((X, FLAG, COUNT), (out,), steps)


def repeat(*pairs: tuple[Buffer, Buffer], body: Iterable[Loops] = ()) -> Repeat:
    return Repeat(COUNT, None, None, Program(steps=tuple(body)), pairs)


def fold(axes: tuple[Axis, ...], value: Expr, operation: str = "sum") -> Fold:
    return Fold(value.dtype, operation, axes, value)


def nibbles(count: int) -> Expr:
    zero = const(0, BY_NAME["int4"])
    return apply("pack", *[zero] * count, dtype=UINT8)


ONE, NO = const(1, INT64), const(False, BOOL)
OTHERWISE = Guard(FLOAT, ((along(ROW) + 1, 4),), X_I, ONE)
AT_RUN_TIME = Index(0, (), ((at(along(ROW)), 1),))
PACKED_ROWS = buffer("q", "output", BY_NAME["int4"], 2, 2)
PART_OF_BYTES = Loops(PACKED, (Index(0, (), ((at(along(TWO)), 1),)),), (TWO,), nibbles(2))
BYTES_BY_TWO = Loops(PACKED_ROWS, (along(TWO), Index()), (TWO,), nibbles(2))


def guarded(index: Index, extent: int) -> Expr:
    """x[ROW + 1], where `index` is in range of `extent`."""
    return Guard(FLOAT, ((index, extent),), load(X, [along(ROW) + 1]), X_I)


def added(out: Buffer, shift: int = 0) -> Loops:
    return Loops(out, (along(ROW) + shift,), (ROW,), X_I, accumulate="add")


def sized(actual: dict[Buffer, Buffer]) -> Program:
    return Program((X,), (Y,), (copy(Y, X),), actual=actual)


BROKEN: list[tuple[str, Program]] = [
    ("an axis that nothing loops over", program(over(Y, load(X, [along(COLUMN)]), ROW))),
    ("an axis that nothing loops over", program(Loops(Y, (along(COLUMN),), (ROW,), X_I))),
    ("an axis loops twice", program(Loops(Y, (along(ROW),), (ROW, ROW), X_I))),
    ("bound already", program(over(Y, fold((ROW,), X_I), ROW))),
    (
        "bound already",
        program(over(Y, fold((COLUMN,), fold((COLUMN,), load(X, [along(COLUMN)]))), ROW)),
    ),
    ("an index of 1 to 4 into 4", program(over(Y, load(X, [along(ROW) + 1]), ROW))),
    ("an index of -3 to 0 into 4", program(over(Y, load(X, [along(ROW) * -1]), ROW))),
    ("an index of 0 to 6 into 4", program(Loops(Y, (along(ROW) * 2,), (ROW,), X_I))),
    (
        "an index of 0 to 4 into 4",
        program(over(Y, guard([(along(ROW), 3)], load(X, [along(ROW) * 2]), const(0, FLOAT)), ROW)),
    ),
    ("not in normal form", program(over(Y, load(X, [Index(0, ((TWO, 1), (ROW, 0)))]), ROW))),
    ("2 indices for 'x' of rank 1", program(over(Y, load(X, [along(ROW), Index()]), ROW))),
    ("an index that is no integer", program(over(Y, load(X, [Index(0, (), ((X_I, 1),))]), ROW))),
    (
        "reads 'y' before it is written",
        program(Loops(Y, (Index(0, (), ((at(along(ROW)), 1),)),), (ROW,), X_I)),
    ),
    ("stores int64 into float", program(over(Y, at(along(ROW)), ROW))),
    (
        "Checked of float by int64",
        program(over(Y, Checked(FLOAT, X_I, at(Index()), Status(2)), ROW)),
    ),
    ("a Fold of bool by sum", program(over(Y, fold((COLUMN,), const(1, BOOL)), ROW))),
    ("a Fold of float by mean", program(over(Y, fold((COLUMN,), X_I, "mean"), ROW))),
    ("equal of different types", program(over(Y, compare("equal", X_I, const(1, INT64)), ROW))),
    ("stores no packed int4", program(over(PACKED, const(0, BY_NAME["int4"]), ROW), out=PACKED)),
    ("stores no packed int4", program(Loops(PACKED, (along(TWO),), (TWO,), nibbles(4)))),
    ("an index of 0 to 3 into 2", program(Loops(PACKED, (along(ROW),), (ROW,), nibbles(2)))),
    ("writes 'x', which is of kind input", program(copy(X, X), copy(Y, X))),
    ("of kind constant", program(copy(W, X), copy(Y, X))),
    ("reads 'a' before it is written", program(copy(Y, A))),
    ("reads 'a' before it is written", program(Loops(A, (along(TWO),), (TWO,), X_I), copy(Y, A))),
    ("output 'y' is not written", program()),
    ("output 'y' is not written", program(Branch(FLAG, Program(steps=(copy(Y, X),)), Program()))),
    ("output 'y' is not written", program(repeat(body=[copy(Y, X)]))),
    ("the condition is no bool scalar", program(Branch(X, Program(), Program()), copy(Y, X))),
    ("the count is no int64", program(Repeat(FLAG, None, None, Program(), ()), copy(Y, X))),
    ("reads 'a' before it is written", program(repeat((A, X)), copy(Y, X))),
    ("both a state and what", program(copy(A, X), copy(B, X), repeat((A, B), (B, A)), copy(Y, A))),
    ("a state is carried twice", program(copy(A, X), repeat((A, X), (A, X)), copy(Y, A))),
    ("does not fit the state", program(copy(A, X), repeat((A, COUNT)), copy(Y, A))),
    ("a Guard of float, else int64", program(over(Y, OTHERWISE, ROW))),
    ("an index of 2 to 4 into 4", program(over(Y, guarded(along(ROW) + -1, 4), ROW))),
    ("an index of 1 to 4 into 4", program(over(Y, guarded(along(ROW) + 1, 5), ROW))),
    ("an index uses an axis", program(over(Y, guarded(along(COLUMN) + 1, 4), ROW))),
    ("no operation cube", program(over(Y, Apply(FLOAT, "cube", (X_I,)), ROW))),
    ("add of different types", program(over(Y, Apply(FLOAT, "add", (X_I, ONE)), ROW))),
    ("where of different types", program(over(Y, Apply(FLOAT, "where", (NO, X_I, ONE)), ROW))),
    ("shift_left of float", program(over(Y, Apply(FLOAT, "shift_left", (X_I, X_I)), ROW))),
    ("add of bool", program(over(Y, Apply(BOOL, "add", (NO, NO)), ROW))),
    ("add to int64", program(over(Y, Apply(INT64, "add", (X_I, X_I)), ROW))),
    ("less to float", program(over(Y, Apply(FLOAT, "less", (X_I, X_I)), ROW))),
    ("stores part of a packed buffer", program(PART_OF_BYTES, out=PACKED)),
    ("is stored by one index", program(BYTES_BY_TWO, out=PACKED_ROWS)),
    ("reads 'y' before it is written", program(added(Y))),
    ("output 'y' is not written", program(Loops(Y, (AT_RUN_TIME,), (ROW,), X_I))),
    ("an index of 1 to 4 into 4", program(copy(Y, X), added(Y, 1))),
    ("reads 'a' before it is written", program(Routine("r", (A,), (Y,)))),
    ("writes 'x', which is of kind input", program(Routine("r", (), (X,)), copy(Y, X))),
    ("'y' is used twice", program(copy(Y, X), Routine("r", (Y,), (Y,)))),
    ("'a' is used twice", program(Routine("r", (X,), (A,), (), (A,)), copy(Y, A))),
    ("a routine takes no packed buffer", program(Routine("r", (X,), (PACKED,)), out=PACKED)),
    ("'x' has an actual shape but is no output", sized({X: buffer("s", "output", INT64, 1)})),
    ("the actual shape of 'y' is int64[2]", sized({Y: buffer("s", "output", INT64, 2)})),
    ("the actual shape of 'y' is float[1]", sized({Y: buffer("s", "output", FLOAT, 1)})),
    ("output 's' is not written", sized({Y: buffer("s", "output", INT64, 1)})),
    ("inputs: 'y' is of kind output", Program((Y,), (), ())),
    ("outputs: 'x' is of kind input", Program((X,), (X,), ())),
    ("is no input of the program", program(copy(Y, buffer("other", "input", FLOAT, 4)))),
    ("is no output of the program", program(copy(Y, X), copy(buffer("o", "output", FLOAT, 4), X))),
]


@pytest.mark.parametrize(("fault", "broken"), BROKEN)
def test_a_broken_program(fault: str, broken: Program) -> None:
    with pytest.raises(InvalidProgramError) as caught:
        check_program(broken)
    assert fault in str(caught.value)


def test_what_a_guard_keeps_in_range_is_none() -> None:
    """Bounds that keep it in; or a flat index of several loops, which is not looked into."""
    axis, wide = Axis(4), buffer("w", "input", FLOAT, 3, 4)
    place = along(axis) + 1
    good = Guard(FLOAT, ((place, 4),), load(X, [place]), const(0, FLOAT))
    check_program(program(over(Y, good, axis)))
    check_program(program(over(Y, guarded(along(ROW) * -1 + 2, 5), ROW)))
    row = along(TWO) + 2
    flat = wide.flat((row, along(axis)))
    out = buffer("y", "output", FLOAT, 2, 4)
    value = Guard(FLOAT, ((row, 3),), load(wide, [flat]), const(0, FLOAT))
    check_program(Program((wide,), (out,), (over(out, value, TWO, axis),)))


def test_a_routine_and_a_part_of_what_is_filled_are_valid() -> None:
    work = buffer("work", "workspace", INT64, 4)
    check_program(program(Routine("r", (X,), (Y,), (), (work,))))
    check_program(program(copy(Y, X), added(Y)))
    check_program(program(copy(Y, X), Loops(Y, (AT_RUN_TIME,), (ROW,), X_I)))
    check_program(sized_and_written())


def sized_and_written() -> Program:
    shape = buffer("s", "output", INT64, 1)
    steps = (copy(Y, X), over(shape, const(4, INT64), Axis(1)))
    return Program((X,), (Y,), steps, actual={Y: shape})


def test_nothing_is_read_where_a_loop_is_empty() -> None:
    none = Axis(0)
    empty = buffer("e", "input", FLOAT, 0)
    value = Fold(FLOAT, "sum", (none,), load(empty, [along(none)]))
    check_program(Program((empty,), (Y,), (over(Y, value, ROW),)))


@pytest.mark.parametrize(("index", "extent"), [(along(ROW), 2), (along(ROW) * -1 + 1, 2)])
def test_a_guard_keeps_a_multiple_of_its_axis_in(index: Index, extent: int) -> None:
    value = guard([(index, extent)], load(X, [along(ROW) * 2 + 1]), const(0, FLOAT))
    check_program(program(over(Y, value, ROW)))


def turned(out: Buffer, source: Buffer) -> Loops:
    """Cannot run in place: it reads what it has overwritten."""
    axis = Axis(4)
    return over(out, load(source, [along(axis) * -1 + 3]), axis)


def compared(out: Buffer, source: Buffer) -> Loops:
    """Can run in place."""
    axis = Axis(4)
    one = load(source, [along(axis)])
    return over(out, Checked(FLOAT, one, compare("equal", one, one), Status(2)), axis)


def moved(offsets: dict[Buffer, int], *steps: Step) -> Program:
    """A plan with the given offsets in place of its own."""
    made = program(*steps)
    places = {**plan_memory(made).offsets, **offsets}
    size = max(offset + b.bytes for b, offset in places.items())
    return replace(made, offsets=places, workspace_size=size)


def picked(first: int, step: int) -> tuple[Loops, ...]:
    """Two elements of a: the one at `first` and the one `step` after it."""
    chosen = over(HALF, load(A, [along(TWO) * step + first]), TWO)
    return (copy(A, X), chosen, over(Y, load(HALF, [Index(1)]), ROW))


STEPS = (copy(A, X), turned(B, A), turned(Y, B))
ALIVE = (copy(A, X), copy(B, X), turned(Y, A), turned(Y, B))
ALIVE_TOO = (copy(A, X), compared(B, A), *ALIVE[2:])
BODY = (turned(B, A), turned(C := buffer("c", "workspace", FLOAT, 4), B), turned(B, A))
PART = Loops(A, (Index(0, (), ((at(along(TWO)), 1),)),), (TWO,), load(B, [along(TWO)]))
KEPT = (copy(A, X), turned(B, X), PART, turned(Y, A))
SORTED = (copy(A, X), Routine("r", (A,), (B,), (), (C,)), turned(Y, B))
LOOP = (copy(A, X), repeat((A, C), body=BODY), turned(Y, A))


@pytest.mark.parametrize(
    ("fault", "broken"),
    [
        ("writing 'b' destroys 'a'", lambda: moved({A: 0, B: 0}, *STEPS)),
        ("writing 'b' destroys 'a'", lambda: moved({A: 0, B: 0}, *ALIVE)),
        ("writing 'b' destroys 'a'", lambda: moved({A: 0, B: 0}, *ALIVE_TOO)),
        ("writing 'b' destroys 'a'", lambda: moved({A: 16, B: 4}, *ALIVE)),
        ("writing 'half' destroys 'a'", lambda: moved({A: 0, HALF: 4}, *picked(1, 2))),
        ("writing 'half' destroys 'a'", lambda: moved({A: 0, HALF: 0}, *picked(1, -1))),
        ("writing 'half' destroys 'a'", lambda: moved({A: 0, HALF: 0}, *picked(0, 0))),
        ("writing 'half' destroys 'a'", lambda: moved({A: 0, HALF: 0}, *picked(0, 1))),
        ("writing 'c' destroys 'b'", lambda: moved({A: 0, B: 64, C: 64}, *LOOP)),
        ("writing 'b' destroys 'a'", lambda: moved({A: 0, B: 0}, *KEPT)),
        ("writing 'b' destroys 'a'", lambda: moved({A: 0, B: 0}, *SORTED)),
        ("writing 'c' destroys 'a'", lambda: moved({A: 64, C: 64, B: 0}, *SORTED)),
        ("writing 'c' destroys 'b'", lambda: moved({A: 64, C: 0, B: 0}, *SORTED)),
        ("writing 'a' destroys 'c'", lambda: moved({A: 0, B: 64, C: 0}, *LOOP)),
        ("'a' is at 2", lambda: moved({A: 2, B: 64}, *STEPS)),
        ("'a' is at -4", lambda: moved({A: -4, B: 64}, *STEPS)),
        ("'x' is placed in the workspace", lambda: moved({X: 128}, *STEPS)),
        ("'a' has no place", lambda: replace(moved({}, *STEPS), offsets={B: 0})),
        ("the workspace has 7 bytes", lambda: replace(moved({}, *STEPS), workspace_size=7)),
    ],
)
def test_a_broken_plan(fault: str, broken: Callable[[], Program]) -> None:
    with pytest.raises(InvalidProgramError) as caught:
        check_plan(broken())
    assert fault in str(caught.value)


def test_peaks() -> None:
    """Bytes planned, and what no plan can do without."""
    assert peak(program(*STEPS)) == Peak(32, 32)
    assert peak(program(copy(A, X), compared(B, A), turned(Y, B))) == Peak(16, 16)
    assert peak(program(copy(Y, X))) == Peak(0, 0)


@pytest.mark.parametrize(("first", "step"), [(1, 2), (0, 2), (1, 1), (2, 1)])
def test_a_result_may_overwrite_what_no_later_point_reads(first: int, step: int) -> None:
    check_plan(moved({A: 0, HALF: 0}, *picked(first, step)))


def test_what_the_passes_make_is_valid() -> None:
    check_plan(planned(program(*LOOP)))
