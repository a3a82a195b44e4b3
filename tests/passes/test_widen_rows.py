"""widen_rows: long rows where they pay, the same values everywhere."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxc.dtypes import BOOL, BY_NAME, ElementType
from onnxc.expression import Axis, Buffer, Checked, Expr, along, apply, at, compare, load
from onnxc.kernel import Loops, Program
from onnxc.passes.merge_axes import merge_axes
from onnxc.passes.widen_rows import SHORT, WIDEST, widen_rows
from onnxc.status import Status
from onnxc.tensor import Tensor, compute, elementwise, of_buffer
from tests.kernels.programs import (
    FLOAT,
    INT64,
    Values,
    assert_same_bits,
    buffer,
    check_in_c,
    evaluated,
    over,
)
from tests.kernels.strategies import COMPARED, some_values


def source(b: Buffer) -> Tensor:
    if b.dtype is BOOL and b.kind == "input":
        return compute(b.shape, lambda *indices: apply("truth", load(b, indices)))
    return of_buffer(b)


def equal(dtype: ElementType, *shapes: tuple[int, ...], kinds: str = "ii") -> Program:
    """Of inputs, or, by `kinds`, of constants."""
    operands = [
        Buffer(f"x{n}", s, dtype, "input")
        if kinds[n] == "i"
        else Buffer(f"x{n}", s, dtype, "constant", some_values(dtype, s, n))
        for n, s in enumerate(shapes)
    ]
    result = elementwise(lambda a, b: compare("equal", a, b), *map(source, operands))
    y = buffer("y", "output", BOOL, *result.shape)
    loops = Loops(y, tuple(map(along, result.axes)), result.axes, result.value)
    return Program(tuple(b for b in operands if b.kind == "input"), (y,), (loops,))


def values_for(program: Program) -> Values:
    return {b: some_values(b.dtype, b.shape, n + 5) for n, b in enumerate(program.inputs)}


def widened(program: Program) -> list[Loops]:
    steps = widen_rows(merge_axes(program)).steps
    return [step for step in steps if isinstance(step, Loops)]


def extents(program: Program) -> list[list[int]]:
    return [[axis.extent for axis in loops.axes] for loops in widened(program)]


def test_a_row_of_three() -> None:
    """Filled 64 times into 192 elements, whole rows of that, then what is left."""
    assert extents(equal(FLOAT, (1000, 3), (3,))) == [[64, 3], [15, 192], [40, 3]]
    roles = [loops.role for loops in widened(equal(FLOAT, (1000, 3), (3,)))]
    assert roles == [
        "the row of 3, repeated 64 times",
        "64 rows at a time, against the repeated row",
        "the rows left over",
    ]


def test_nothing_is_left_over() -> None:
    assert extents(equal(FLOAT, (1024, 3), (3,))) == [[64, 3], [16, 192]]


def test_outer_loops_stay() -> None:
    """The row is filled once for all of them."""
    assert extents(equal(FLOAT, (2, 1000, 3), (2, 1, 1))) == [[2, 3000]]
    found = extents(equal(FLOAT, (5, 2, 512, 4), (5, 1, 1, 4)))
    assert found == [[5, 1024, 4]]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((1000, SHORT), (SHORT,)),
        ((255, 3), (3,)),
        ((1000, 3), (1000, 1)),
        ((1000, 3), (1000, 3)),
        ((1000, 3), ()),
        ((3,), (3,)),
    ],
)
def test_where_it_does_not_pay(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    assert len(widened(equal(FLOAT, left, right))) == 1


def test_rows_stay_short_enough() -> None:
    for extent in range(2, SHORT):
        rows = [loops for loops in widened(equal(FLOAT, (9000, extent), (extent,)))]
        assert rows[0].out.elements <= WIDEST
        assert rows[0].out.elements >= WIDEST // 4 or rows[0].out.elements % SHORT == 0


def program_of(value: Expr, out: Buffer, i: Axis, j: Axis, *inputs: Buffer) -> Program:
    return Program(inputs, (out,), (over(out, value, i, j),))


def test_only_rows_that_repeat_are_widened() -> None:
    """A Checked keeps its kernel, so that the lowest of all its codes is still the one told."""
    i, j = Axis(1000), Axis(3)
    x, row = buffer("x", "input", FLOAT, 1000, 3), buffer("row", "input", FLOAT, 3)
    y = buffer("y", "output", BOOL, 1000, 3)
    same = compare("equal", load(x, [along(i), along(j)]), load(row, [along(j)]))
    assert len(widened(program_of(same, y, i, j, x, row))) == 3
    checked = Checked(BOOL, same, same, Status.INDEX_OUT_OF_RANGE)
    assert len(widened(program_of(checked, y, i, j, x, row))) == 1
    z = buffer("z", "output", INT64, 1000, 3)
    assert len(widened(program_of(at(along(j)), z, i, j))) == 1


def test_a_result_that_is_stored_transposed_is_left_alone() -> None:
    i, j = Axis(1000), Axis(3)
    x, row = buffer("x", "input", FLOAT, 1000, 3), buffer("row", "input", FLOAT, 3)
    y = buffer("y", "output", BOOL, 3, 1000)
    same = compare("equal", load(x, [along(i), along(j)]), load(row, [along(j)]))
    program = Program((x, row), (y,), (Loops(y, (along(j), along(i)), (i, j), same),))
    assert len(widened(program)) == 1


def test_two_reads_of_one_row() -> None:
    """Forwards and backwards: each has a wide row of its own."""
    i, j = Axis(1000), Axis(3)
    x, row = buffer("x", "input", FLOAT, 1000, 3), buffer("row", "input", FLOAT, 3)
    y = buffer("y", "output", BOOL, 1000, 3)
    here = load(x, [along(i), along(j)])
    sides = [load(row, [along(j)]), load(row, [along(j) * -1 + 2])]
    first, second = (compare("equal", here, side) for side in sides)
    program = program_of(compare("equal", first, second), y, i, j, x, row)
    assert len(widened(program)) == 4
    check_in_c(program, values_for(program))


@st.composite
def broadcasts(draw: st.DrawFn) -> Program:
    """[..., N, C] against [C] and the like, either side first, either a constant."""
    outer = draw(st.lists(st.integers(1, 3), max_size=2))
    count, width = draw(st.sampled_from([1, 7, 255, 256, 300, 511])), draw(st.integers(1, 70))
    wide = (*outer, count, width)
    narrow = draw(st.sampled_from([(width,), (1, width), (count, width), (count, 1), ()]))
    pair = [wide, narrow] if draw(st.booleans()) else [narrow, wide]
    kinds = draw(st.sampled_from(["ii", "ic", "ci"]))
    return equal(draw(st.sampled_from(COMPARED)), *pair, kinds=kinds)


@given(broadcasts())
@settings(max_examples=40)
def test_the_values_stay(program: Program) -> None:
    inputs = values_for(program)
    (y,) = program.outputs
    expected = evaluated(program, inputs)[1][y]
    assert_same_bits(evaluated(widen_rows(merge_axes(program)), inputs)[1][y], expected)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_the_c_agrees_for_every_type(compiler: str, tool: Any) -> None:
    tool(compiler)
    inputs: Values = {}
    outputs: list[Buffer] = []
    steps: list[Loops] = []
    for number, dtype in enumerate(COMPARED):
        one = equal(dtype, (300, 3), (3,), kinds="ic" if number % 2 else "ii")
        (kernel,) = one.steps
        assert isinstance(kernel, Loops)
        steps.append(kernel)
        outputs.extend(one.outputs)
        inputs |= values_for(one)
    check_in_c(Program(tuple(inputs), tuple(outputs), tuple(steps)), inputs, compiler)


def test_strings_are_copied_as_they_are() -> None:
    program = equal(BY_NAME["string"], (300, 3), (3,))
    found = check_in_c(program, values_for(program))
    x, row = values_for(program).values()
    assert (found[program.outputs[0]] == np.equal(x, row)).all()
