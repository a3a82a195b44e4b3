"""split_axes: an axis whose elements a constant repeats becomes two; the values stay."""

import numpy as np
import pytest

from onnxc.dtypes import INT32
from onnxc.expression import Checked, Expr, Index, Load, along, cast, compare, guard, literal
from onnxc.kernel import Loops, Program
from onnxc.passes.split_axes import split_axes
from onnxc.status import Status
from onnxc.tensor import Tensor, compute, constant, dynamic, of_buffer
from onnxc.traversal import walk
from tests.kernels.programs import FLOAT, assert_same_bits, buffer, evaluated
from tests.models import Array


def stored(result: Tensor, *inputs: Tensor) -> Program:
    y = buffer("y", "output", FLOAT, *result.shape)
    loops = Loops(y, tuple(map(along, result.axes)), result.axes, result.value)
    given = [tensor.buffer for tensor in inputs]
    return Program(tuple(b for b in given if b is not None), (y,), (loops,))


def picked(*tables: list[int]) -> Program:
    """One dimension a table: which element of 4 each index reads."""
    x = of_buffer(buffer("x", "input", FLOAT, *(4 for _ in tables)))
    rows = [constant(np.array(table, np.int32), INT32) for table in tables]
    shape = tuple(map(len, tables))

    def element(*indices: Index) -> Expr:
        return x[[dynamic(row[[i]]) for row, i in zip(rows, indices, strict=True)]]

    return stored(compute(shape, element), x)


def values_of(program: Program) -> Array:
    """Its output, of inputs that count up."""
    given = {b: np.arange(b.elements, dtype=np.float32).reshape(b.shape) for b in program.inputs}
    _, found = evaluated(program, given)
    return found[program.outputs[0]]


def kernel(program: Program) -> Loops:
    (step,) = program.steps
    assert isinstance(step, Loops)
    return step


TWICE = [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize(
    ("tables", "loops"),
    [
        ([TWICE], [4, 2]),
        ([[0, 0, 0, 1, 1, 1]], [2, 3]),
        ([TWICE, TWICE], [4, 2, 4, 2]),
        ([[0, 0, 0, 0, 0, 1, 1, 1, 1, 1], TWICE], [2, 5, 4, 2]),
        # No such numbers; and copies that are the innermost loop, too many for vectors.
        ([[0, 0, 1, 2, 2, 3]], [6]),
        ([[1, 1, 2, 2]], [4]),
        ([[0, 0, 0, 0, 0, 1, 1, 1, 1, 1]], [10]),
    ],
)
def test_which_axes_are_split(tables: list[list[int]], loops: list[int]) -> None:
    program = picked(*tables)
    split = split_axes(program)
    assert [axis.extent for axis in kernel(split).axes] == loops
    loads = [n for n in walk(kernel(split).value) if isinstance(n, Load)]
    tabled = any(load.buffer.kind == "constant" for load in loads)
    assert tabled == (len(loops) == len(tables))
    assert_same_bits(values_of(split), values_of(program))


def test_another_operand_keeps_its_place() -> None:
    x, other = (of_buffer(buffer(n, "input", FLOAT, e)) for n, e in (("x", 4), ("z", 8)))
    table = constant(np.array(TWICE, np.int32), INT32)
    program = stored(compute((8,), lambda i: x[[dynamic(table[[i]])]] * other[[i]]), x, other)
    split = split_axes(program)
    assert [axis.extent for axis in kernel(split).axes] == [4, 2]
    assert_same_bits(values_of(split), values_of(program))


def test_numbers_that_are_computed_with_stay() -> None:
    x = of_buffer(buffer("x", "input", INT32, 8))
    table = constant(np.array(TWICE, np.int32), INT32)
    program = stored(compute((8,), lambda i: cast(x[[i]] + table[[i]], FLOAT)), x)
    assert split_axes(program).steps == program.steps


@pytest.mark.parametrize("place", ["value", "otherwise", "checked", "condition"])
def test_numbers_that_are_stored_stay(place: str) -> None:
    """Whole or under a condition: they are no elements' places."""
    table = constant(np.array(TWICE, np.int32), INT32)
    zero = literal(INT32, 0)

    def element(i: Index) -> Expr:
        number = table[[i]]
        match place:
            case "value":
                return guard([(i, 6)], number, zero)
            case "otherwise":
                return guard([(i, 6)], zero, number)
            case "checked":
                return Checked(INT32, number, compare("less", zero, zero), Status(2))
        return Checked(INT32, zero, compare("less", number, zero), Status(2))

    result = compute((8,), element)
    y = buffer("y", "output", INT32, 8)
    loops = Loops(y, tuple(map(along, result.axes)), result.axes, result.value)
    program = Program((), (y,), (loops,))
    assert split_axes(program).steps == program.steps


def test_a_table_of_run_time_stays() -> None:
    x, table = of_buffer(buffer("x", "input", FLOAT, 4)), of_buffer(buffer("t", "input", INT32, 8))
    program = stored(compute((8,), lambda i: x[[dynamic(table[[i]])]]), x, table)
    assert split_axes(program).steps == program.steps


def test_the_beginning_of_a_table_stays() -> None:
    x = of_buffer(buffer("x", "input", FLOAT, 4))
    table = constant(np.array(TWICE, np.int32), INT32)
    program = stored(compute((3,), lambda i: x[[dynamic(table[[i]])]]), x)
    assert split_axes(program).steps == program.steps
