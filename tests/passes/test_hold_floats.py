"""hold_floats: 16-bit floats that kernels compute with are floats in memory, of the same values."""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, helper

from onnxc.conversion import convert
from onnxc.dtypes import BY_NAME, FLOAT, ElementType
from onnxc.expression import Axis, Expr, Fold, Load, along, apply, cast, guard, holds, literal, load
from onnxc.kernel import Micro, Program
from onnxc.operations import HALVES
from onnxc.pipeline import Compiled, compile_model
from tests.kernels.programs import assert_same_bits, buffer, check_in_c, over
from tests.models import assert_same, declared, model, run, stored
from tests.runtime.math_inputs import float_inputs

Array = NDArray[Any]
TYPES: Final = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
HALF: Final = BY_NAME["float16"]


def numbers(kind: str, *shape: int) -> Array:
    """Small whole numbers, so that sums of products are exact in any order."""
    return np.random.default_rng([*shape]).integers(-3, 4, shape).astype(TYPES[kind])


def of_nodes(nodes: list[NodeProto], x: Array, *y: Array, **constants: Array) -> ModelProto:
    """A model from x to y, or to y0, y1 and so on."""
    names = ["y"] if len(y) == 1 else [f"y{n}" for n in range(len(y))]
    outputs = [declared(name, array) for name, array in zip(names, y, strict=True)]
    weights = [stored(name, array) for name, array in constants.items()]
    return model(helper.make_graph(nodes, "halves", [declared("x", x)], outputs, weights))


def two_products(kind: str = "float16") -> ModelProto:
    """Convolution, bias and Relu, then a convolution that reads what they leave."""
    nodes = [
        helper.make_node("Conv", ["x", "v", "b"], ["h"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Conv", ["r", "w"], ["y"]),
    ]
    x, y = numbers(kind, 1, 3, 6, 6), numbers(kind, 1, 40, 6, 6)
    v, b, w = numbers(kind, 8, 3, 3, 3), numbers(kind, 8), numbers(kind, 40, 8, 1, 1)
    return of_nodes(nodes, x, y, v=v, b=b, w=w)


def constants(compiled: Compiled) -> set[ElementType]:
    return {constant.buffer.dtype for constant in compiled.module.constants}


@pytest.mark.parametrize("kind", TYPES)
def test_nothing_is_converted_between_products(kind: str) -> None:
    """The input is, and the output; constants are floats; a kernel rounds the sums it stores."""
    compiled = compile_model(two_products(kind))
    steps = compiled.program.steps
    named = {b.name: b.dtype for step in steps for b in (*step.reads(), *step.writes()) if b.name}
    half = BY_NAME[kind]
    assert named == {"x": half, "v": FLOAT, "b": FLOAT, "r": FLOAT, "w": FLOAT, "y": half}
    rounding = [s for s in steps if isinstance(s, Micro) and f"as_{kind}" in str(s.epilogue)]
    assert [step.twin.out.name for step in rounding] == ["r"]


@pytest.mark.parametrize("kind", TYPES)
def test_the_values_are_those_of_16_bits(kind: str) -> None:
    """Here sums are exact, but need not fit: nothing else rounds."""
    given = {"x": numbers(kind, 1, 3, 6, 6) * TYPES[kind](37)}
    source = two_products(kind)
    assert_same(run(source, given), run(source, given, plain=True))


@pytest.mark.parametrize(
    ("target", "optimize"), [("cortex-m4", "speed"), ("generic", "size"), ("cortex-m4", "size")]
)
def test_constants_keep_16_bits_where_flash_is_small(target: str, optimize: str) -> None:
    compiled = compile_model(two_products(), target=target, optimize=optimize)
    assert constants(compiled) == {HALF}


def test_a_table_of_which_rows_are_read_keeps_16_bits() -> None:
    """Floats would take twice the memory and save no time."""
    nodes = [
        helper.make_node("Gather", ["table", "x"], ["row"]),
        helper.make_node("Mul", ["row", "row"], ["y"]),
    ]
    table = numbers("float16", 50, 4)
    source = of_nodes(nodes, np.zeros(3, np.int64), numbers("float16", 3, 4), table=table)
    assert constants(compile_model(source)) == {HALF}


def test_what_is_an_output_too_has_16_bits() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y0"]),
        helper.make_node("MatMul", ["y0", "w"], ["y1"]),
    ]
    x, w = numbers("float16", 5, 7), numbers("float16", 7, 7)
    source = of_nodes(nodes, x, x, x, w=w)
    given = {"x": x}
    assert_same(run(source, given), run(source, given, plain=True))


@pytest.mark.parametrize("operator", ["MaxPool", "Pad", "Slice", "Transpose", "Concat"])
def test_elements_that_only_move_between_products(operator: str) -> None:
    between = {
        "MaxPool": helper.make_node("MaxPool", ["h"], ["m"], kernel_shape=[2, 2]),
        "Pad": helper.make_node("Pad", ["h", "pads"], ["m"]),
        "Slice": helper.make_node("Slice", ["h", "starts", "ends"], ["m"]),
        "Transpose": helper.make_node("Transpose", ["h"], ["m"], perm=[0, 1, 3, 2]),
        "Concat": helper.make_node("Concat", ["h", "h"], ["m"], axis=2),
    }[operator]
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["h"]),
        between,
        helper.make_node("Conv", ["m", "w"], ["y"]),
    ]
    rows, columns = {"MaxPool": (5, 5), "Pad": (8, 8), "Slice": (4, 6), "Concat": (12, 6)}.get(
        operator, (6, 6)
    )
    source = of_nodes(
        nodes,
        x := numbers("float16", 1, 3, 6, 6),
        numbers("float16", 1, 5, rows, columns),
        v=numbers("float16", 8, 3, 1, 1),
        w=numbers("float16", 5, 8, 1, 1),
        pads=np.array([0, 0, 1, 1, 0, 0, 1, 1]),
        starts=np.array([0, 0, 2]),
        ends=np.array([1, 8, 6]),
    )
    given = {"x": x * np.float16(29)}
    assert_same(run(source, given), run(source, given, plain=True))


@pytest.mark.parametrize("half", HALVES, ids=str)
def test_rounding_is_a_cast_there_and_back(half: ElementType) -> None:
    """Of a stride of all floats, NaNs and infinities, in C and in numpy."""
    x = float_inputs()
    given, axis = buffer("x", "input", FLOAT, x.size), Axis(x.size)
    y = buffer("y", "output", FLOAT, x.size)
    program = Program(
        (given,), (y,), (over(y, apply(f"as_{half}", load(given, [along(axis)])), axis),)
    )
    with np.errstate(over="ignore"):
        wanted = convert(convert(x, FLOAT, half), half, FLOAT)
    assert_same_bits(check_in_c(program, {given: x})[y], wanted)


def loaded(dtype: ElementType) -> tuple[Load, Axis]:
    axis = Axis(4)
    read = load(buffer("b", "workspace", dtype, 4), [along(axis)])
    assert isinstance(read, Load)
    return read, axis


def test_which_floats_are_of_16_bits_for_certain() -> None:
    read, axis = loaded(HALF)
    other, _ = loaded(FLOAT)
    half, half_number, number = cast(read, FLOAT), literal(FLOAT, 0.5), literal(FLOAT, 0.1)
    certain: list[Expr] = [
        half,
        half_number,
        apply("max", half, half_number),
        Fold(FLOAT, "max", (axis,), half),
        guard([(along(axis) + 1, 4)], half, half_number),
        apply("as_float16", other),
    ]
    assert [holds(HALF, value) for value in certain] == [True] * len(certain)
    uncertain: list[Expr] = [
        number,
        other,
        apply("add", half, half),
        apply("min", half, number),
        Fold(FLOAT, "sum", (axis,), half),
        guard([(along(axis) + 1, 4)], half, number),
        apply("as_bfloat16", other),
        cast(loaded(BY_NAME["bfloat16"])[0], FLOAT),
    ]
    assert [holds(HALF, value) for value in uncertain] == [False] * len(uncertain)
    assert holds(HALF, other, {other.buffer})
