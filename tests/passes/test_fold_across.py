"""fold_across: the innermost loop is the one along which windows are neighbours."""

import numpy as np

from onnxc.expression import Axis, Expr, Index, along, fold, guard, literal, load
from onnxc.kernel import Loops, Program
from onnxc.passes.fold_across import fold_across
from onnxc.passes.merge_axes import merged
from onnxc.summation import runs_across
from tests.kernels.programs import FLOAT, Array, assert_same_bits, buffer, check_in_c, evaluated

X = buffer("x", "input", FLOAT, 12, 12, 16)
SMALL = buffer("small", "input", FLOAT, 12, 12, 4)
Y = buffer("y", "output", FLOAT, 16, 4, 4)


def pool(operation: str = "max", window: int = 3, channels_last: bool = True) -> Loops:
    """Windows that move on by 3 over x[row][column][channel]; y has the channel first."""
    c, i, j = Axis(16), Axis(4), Axis(4)
    value = fold(
        operation,
        [window, window],
        lambda m, n: load(X, [along(i) * 3 + m, along(j) * 3 + n, along(c)]),
    )
    axes = (i, j, c) if channels_last else (c, i, j)
    return Loops(Y, (along(c), along(i), along(j)), axes, value)


def turned(loops: Loops) -> Loops:
    program = fold_across(Program((X,), (Y,), (loops,)))
    (step,) = program.steps
    assert isinstance(step, Loops)
    return step


def values(loops: Loops) -> Array:
    x = np.random.default_rng(0).standard_normal(X.shape).astype(np.float32)
    _, found = evaluated(Program((X,), (Y,), (loops,)), {X: x})
    return found[Y]


def test_channels_are_innermost_where_they_are_neighbours() -> None:
    before = merged(pool(channels_last=False))
    after = turned(before)
    assert [axis.extent for axis in before.axes] == [16, 4, 4]
    assert [axis.extent for axis in after.axes] == [4, 4, 16]
    assert (runs_across(before), runs_across(after)) == (False, True)


def test_the_greatest_of_each_window_stays() -> None:
    loops = pool(channels_last=False)
    assert_same_bits(values(turned(loops)), values(loops))


def test_sums_are_those_of_the_loops_in_that_order() -> None:
    loops = merged(pool("sum", channels_last=False))
    assert_same_bits(values(turned(loops)), values(merged(pool("sum"))))


def test_the_c_agrees() -> None:
    x = np.random.default_rng(0).standard_normal(X.shape).astype(np.float32)
    for operation in ("max", "sum"):
        loops = turned(merged(pool(operation, channels_last=False)))
        check_in_c(Program((X,), (Y,), (loops,)), {X: x})


def test_padding_goes_along() -> None:
    loops = turned(merged(padded()))
    assert [axis.extent for axis in loops.axes] == [4, 4, 16]
    assert_same_bits(values(loops), values(merged(padded())))


def padded() -> Loops:
    c, i, j = Axis(16), Axis(4), Axis(4)

    def tap(m: Index, n: Index) -> Expr:
        row = along(i) * 3 + m + -1
        inside = load(X, [row, along(j) * 3 + n, along(c)])
        return guard([(row, 12)], inside, literal(FLOAT, -np.inf))

    return Loops(Y, (along(c), along(i), along(j)), (c, i, j), fold("max", [3, 3], tap))


def test_what_stays() -> None:
    in_order, unfolded = pool(), pool(window=1, channels_last=False)
    for loops in map(merged, (in_order, unfolded, of_rows(), of_few_channels())):
        assert turned(loops) is loops


def of_rows() -> Loops:
    """Sums of rows as they lie: neighbours are read along the fold's own axis."""
    c, i, j = Axis(16), Axis(4), Axis(4)
    value = fold("sum", [16], lambda n: load(X, [along(i), along(j), n]))
    return Loops(Y, (along(c), along(i), along(j)), (c, i, j), value)


def of_few_channels() -> Loops:
    y = buffer("y", "output", FLOAT, 4, 4, 4)
    c, i, j = Axis(4), Axis(4), Axis(4)
    value = fold(
        "max",
        [3, 3],
        lambda m, n: load(SMALL, [along(i) * 3 + m, along(j) * 3 + n, along(c)]),
    )
    return Loops(y, (along(c), along(i), along(j)), (c, i, j), value)
