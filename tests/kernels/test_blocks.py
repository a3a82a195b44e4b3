"""Folds of neighbouring outputs side by side, ranges without conditions, tiles; C as evaluate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from onnxc.dtypes import BY_NAME, ElementType, numpy_dtype
from onnxc.emit.pieces import block_lanes, pieces, restricted, tiled_axis
from onnxc.expression import (
    Axis,
    Expr,
    Fold,
    Guard,
    Index,
    affine,
    along,
    apply,
    fold,
    guard,
    load,
)
from onnxc.kernel import Loops, Program
from onnxc.passes.merge_axes import merged
from onnxc.summation import runs_across
from tests.kernels.programs import FLOAT, INT32, buffer, check_in_c, const, emitted, over

DOUBLE, INT8 = BY_NAME["double"], BY_NAME["int8"]
Array = NDArray[Any]


def filled(shape: tuple[int, ...], dtype: ElementType) -> Array:
    generator = np.random.default_rng(sum(shape))
    return (generator.standard_normal(shape) * 50).astype(numpy_dtype(dtype))


def columns(operation: str, dtype: ElementType, rows: int, width: int) -> Program:
    """y[j] = the fold of x[:, j]."""
    x, y = buffer("x", "input", dtype, rows, width), buffer("y", "output", dtype, width)
    j = Axis(width)
    value = fold(operation, [rows], lambda k: load(x, [k, along(j)]))
    return Program((x,), (y,), (over(y, value, j),))


def in_c(program: Program, compiler: str = "cc") -> tuple[Array, Array]:
    """The input, and the output that C and evaluate agree on."""
    (x,), (y,) = program.inputs, program.outputs
    array = filled(x.shape, x.dtype)
    return array, check_in_c(program, {x: array}, compiler)[y]


# Across the innermost axis.


@pytest.mark.parametrize("width", [4, 7, 16, 33, 64, 65, 100, 131])
@pytest.mark.parametrize("rows", [3, 16, 17, 70])
def test_columns_of_any_width_and_number(width: int, rows: int) -> None:
    """Plain up to 16 terms, in groups of 4 with their errors beyond."""
    array, found = in_c(columns("sum", FLOAT, rows, width))
    exact = array.astype(np.float64).sum(0)
    assert (np.abs(found - exact) <= 2**-22 * np.abs(array).sum(0)).all()


@pytest.mark.parametrize("operation", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", [FLOAT, DOUBLE, INT8, INT32], ids=str)
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_every_operation(operation: str, dtype: ElementType, compiler: str, tool: Any) -> None:
    tool(compiler)
    array, found = in_c(columns(operation, dtype, 5, 70), compiler)
    if operation in ("max", "min"):
        assert (found == getattr(array, operation)(0)).all()


def test_a_column_keeps_its_nan_and_its_zero() -> None:
    program = columns("max", FLOAT, 3, 40)
    array = np.full((3, 40), -0.0, np.float32)
    array[1, ::2], array[2, 5] = 0.0, np.nan
    found = check_in_c(program, {program.inputs[0]: array})[program.outputs[0]]
    assert np.isnan(found).nonzero()[0].tolist() == [5]
    assert np.signbit(np.delete(found, 5)).tolist() == [bool(n % 2) for n in range(40) if n != 5]


def test_equal_terms_add_up_exactly() -> None:
    """A thousand tenths: each group of 4 is exact, and what rounding takes is carried along."""
    x, y, j = buffer("x", "input", FLOAT, 1000, 8), buffer("y", "output", FLOAT, 8), Axis(8)
    value = fold("sum", [1000], lambda k: load(x, [k, along(j)]))
    program = Program((x,), (y,), (over(y, value, j),))
    found = check_in_c(program, {x: np.full((1000, 8), 0.1, np.float32)})[y]
    assert (found == np.float32(float(np.float32(0.1)) * 1000)).all()


def rows_of(width: int, *strides: int) -> Loops:
    """A fold of 5 elements, at each of `width` outputs, whose loads walk with `strides`."""
    out, j, k = buffer("y", "output", FLOAT, width), Axis(width), Axis(5)
    value: Expr = const(1, FLOAT)
    for stride in strides:
        x = buffer("x", "input", FLOAT, 1000)
        value = value * load(x, [affine(0, [(j, stride), (k, 7)])])
    return merged(over(out, Fold(FLOAT, "sum", (k,), value), j))


def test_which_folds_run_across() -> None:
    """Where neighbours read neighbours; a fold that is the same for all of them is not repeated."""
    assert runs_across(rows_of(8, 1))
    assert runs_across(rows_of(8, 1, 0))
    assert runs_across(rows_of(8, 2))
    assert not runs_across(rows_of(8, 0))
    assert not runs_across(rows_of(8, 5))
    assert not runs_across(rows_of(3, 1))


@pytest.mark.parametrize(
    ("extent", "stride", "lanes"),
    [(8, 1, 8), (23, 1, 23), (54, 1, 32), (64, 1, 64), (65, 1, 40), (768, 1, 64), (54, 2, 54)],
)
def test_lanes_of_a_block(extent: int, stride: int, lanes: int) -> None:
    assert block_lanes(extent, rows_of(extent, stride)) == lanes


def test_in_place_no_output_is_computed_twice() -> None:
    """70 outputs in blocks of 40: what is left is a block of its own, for x is overwritten."""
    x, s = buffer("x", "input", FLOAT, 70), buffer("s", "input", FLOAT, 3, 70)
    copy, y = buffer("copy", "workspace", FLOAT, 70), buffer("y", "output", FLOAT, 70)
    out = buffer("out", "workspace", FLOAT, 70)
    i, j, n = Axis(70), Axis(70), Axis(70)
    total = fold("sum", [3], lambda k: load(s, [k, along(j)]))
    program = Program(
        (x, s),
        (y,),
        (
            over(copy, load(x, [along(i)]) * const(2, FLOAT), i),
            over(out, load(copy, [along(j)]) + total, j),
            over(y, load(out, [along(n)]) * const(3, FLOAT), n),
        ),
    )
    arrays = {b: filled(b.shape, FLOAT) for b in (x, s)}
    found = check_in_c(program, arrays)[y]
    assert np.allclose(found, 3 * (2 * arrays[x] + arrays[s].sum(0)), rtol=1e-5)


# Ranges between which conditions change.


def window(width: int, taps: int, stride: int, begin: int, outputs: int) -> Loops:
    """The largest of `taps` elements at each output, -1000 outside of x."""
    x, y = buffer("x", "input", FLOAT, width), buffer("y", "output", FLOAT, outputs)
    j, k = Axis(outputs), Axis(taps)
    place = affine(-begin, [(j, stride), (k, 1)])
    value = guard([(place, width)], load(x, [place]), const(-1000, FLOAT))
    return Loops(y, (along(j),), (j,), Fold(FLOAT, "max", (k,), value))


@pytest.mark.parametrize(
    ("loops", "ranges"),
    [
        (window(20, 3, 1, 1, 20), [(0, 1), (1, 19), (19, 20)]),
        (window(40, 3, 2, 1, 20), [(0, 1), (1, 20)]),
        (window(40, 5, 2, 3, 21), [(0, 2), (2, 20), (20, 21)]),
        (window(20, 3, 1, 0, 18), [(0, 18)]),
        (window(5, 3, 1, 1, 5), [(0, 5)]),
    ],
)
def test_the_inner_range_has_no_condition(loops: Loops, ranges: list[tuple[int, int]]) -> None:
    assert pieces(loops) == ranges
    inner = max(ranges, key=lambda ends: ends[1] - ends[0])
    value = restricted(loops, *inner).value
    assert isinstance(value, Fold)
    assert isinstance(value.value, Guard) == (len(ranges) == 1 and inner == (0, 5))


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("begin", [0, 1, 4])
def test_windows_at_the_border(stride: int, begin: int) -> None:
    loops = window(61, 5, stride, begin, 20)
    (x,) = loops.reads()
    array = filled((61,), FLOAT)
    found = check_in_c(Program((x,), (loops.out,), (loops,)), {x: array})[loops.out]
    padded = np.full(200, -1000, np.float32)
    padded[begin : begin + 61] = array
    assert found.tolist() == [padded[stride * j : stride * j + 5].max() for j in range(20)]


def test_an_identity_is_left_out() -> None:
    """Rows that the window leaves are skipped, not folded as -infinity one by one."""
    x, y = buffer("x", "input", FLOAT, 9, 16), buffer("y", "output", FLOAT, 9, 16)
    i, j, k = Axis(9), Axis(16), Axis(3)
    row = affine(-1, [(i, 1), (k, 1)])
    least = const(-np.inf, FLOAT)
    value = Fold(FLOAT, "max", (k,), guard([(row, 9)], load(x, [row, along(j)]), least))
    program = Program((x,), (y,), (over(y, value, i, j),))
    assert "continue;" in emitted(program).body
    array = filled((9, 16), FLOAT)
    found = check_in_c(program, {x: array})[y]
    assert (found == [array[max(0, r - 1) : r + 2].max(0) for r in range(9)]).all()


@pytest.mark.parametrize("taps", [1, 3, 16, 40, 200])
@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("operation", ["sum", "max", "prod"])
def test_a_condition_of_outer_loops_alone(operation: str, rows: int, taps: int) -> None:
    """Of rows 0 to 6 only 2 to 4 are there, whatever the fold's own loops are."""
    x, y = buffer("x", "input", FLOAT, 3, taps * rows), buffer("y", "output", FLOAT, 7)
    i = Axis(7)
    row = affine(-2, [(i, 1)])
    nothing = const({"sum": 0, "prod": 1, "max": -np.inf}[operation], FLOAT)

    def element(*walks: Index) -> Expr:
        place = walks[-1] if rows == 1 else walks[0] * taps + walks[1]
        return guard([(row, 3)], load(x, [row, place]), nothing)

    value = fold(operation, [rows, taps] if rows > 1 else [taps], element)
    array = filled((3, taps * rows), FLOAT) / 50
    program = Program((x,), (y,), (over(y, value, i),))
    found = check_in_c(program, {x: array})[y]
    assert (found[[0, 1, 5, 6]] == np.frombuffer(nothing.raw, np.float32)[0]).all()


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_every_second_element_in_place(compiler: str, tool: Any) -> None:
    """gcc 12 dropped the call: it found that such a kernel, seen from outside, stores nothing."""
    x, y = buffer("x", "input", FLOAT, 1936, 48), buffer("y", "output", FLOAT, 1936, 48)
    twice, halves = (buffer(name, "workspace", FLOAT, 1936, 48) for name in ("twice", "halves"))
    i, j, k = Axis(1936), Axis(48), Axis(24)
    steps = (
        over(twice, load(x, [along(i), along(j)]) * 2.0, i, j),
        Loops(halves, (along(i), along(k)), (i, k), load(twice, [along(i), along(k) * 2])),
        Loops(halves, (along(i), along(k) + 24), (i, k), load(x, [along(i), along(k)])),
        over(y, load(halves, [along(i), along(j)]) + 1.0, i, j),
    )
    program = Program((x,), (y,), steps)
    array = filled((1936, 48), FLOAT)
    found = check_in_c(program, {x: array}, tool(compiler))[y]
    assert (found == np.hstack([array[:, ::2] * 2, array[:, :24]]) + 1).all()


# Tiles.


@pytest.mark.parametrize("dtype", [FLOAT, DOUBLE, INT8], ids=str)
@pytest.mark.parametrize(("rows", "width"), [(16, 16), (8, 100), (37, 50), (64, 33)])
def test_a_transpose_runs_by_tiles(rows: int, width: int, dtype: ElementType) -> None:
    x, y = buffer("x", "input", dtype, rows, width), buffer("y", "output", dtype, width, rows)
    i, j = Axis(width), Axis(rows)
    program = Program((x,), (y,), (over(y, load(x, [along(j), along(i)]), i, j),))
    assert "i_first" in emitted(program).body
    array = filled((rows, width), dtype)
    assert (check_in_c(program, {x: array})[y] == array.T).all()


def test_what_needs_no_tiles() -> None:
    """What is read in the order in which it is written, and loops of few iterations."""
    x, y, i, j = (
        buffer("x", "input", FLOAT, 9, 9),
        buffer("y", "output", FLOAT, 9, 9),
        *map(Axis, (9, 9)),
    )
    straight = over(y, load(x, [along(i), along(j)]), i, j)
    turned = over(y, load(x, [along(j), along(i)]), i, j)
    assert tiled_axis(turned) is None  # not merged: its indices are not flat
    assert tiled_axis(merged(straight)) is None
    assert tiled_axis(merged(turned)) is i
    small = buffer("z", "output", FLOAT, 9, 3)
    few = Axis(3)
    assert tiled_axis(merged(over(small, load(x, [along(few), along(i)]), i, few))) is None


# Bounds that are literals.


@pytest.mark.parametrize("operation", ["max", "min"])
@pytest.mark.parametrize("bound", [0.0, -0.0, 1.5, -np.inf, np.inf, np.nan])
def test_a_literal_bound(operation: str, bound: float) -> None:
    x, y, i = buffer("x", "input", FLOAT, 8), buffer("y", "output", FLOAT, 8), Axis(8)
    value = apply(operation, load(x, [along(i)]), bound)
    array = np.array([0.0, -0.0, 1.5, 2, -3, np.nan, np.inf, -np.inf], np.float32)
    check_in_c(Program((x,), (y,), (over(y, value, i),)), {x: array})


def test_the_index_is_that_of_the_whole_axis() -> None:
    assert restricted(window(20, 3, 1, 1, 20), 19, 20).where == (Index(19),)
