"""Operators of one element each: exact values, special values, types, and what traps in C."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from onnxc.dtypes import BY_NAME, numpy_dtype
from onnxc.pipeline import compile_model, evaluate_model
from tests.models import Array, any_bits, refusal
from tests.ops.node_batch import NodeBatch
from tests.ops.run_time import (
    allowed_types,
    assert_refused,
    assert_status,
    check_fused_and_plain,
    one_node,
)

INF, NAN = math.inf, math.nan
SPECIAL = np.array([-INF, -3.5, -2.5, -1.0, -0.5, -0.0, 0.0, 0.25, 0.5, 1.5, 2.5, 9.0, INF, NAN])


def floats(*values: float) -> Array:
    return np.array(values, np.float32)


# Exactly, in float: the operator, its attributes, some x and what it makes of it.
EXACT: list[tuple[str, dict[str, Any], list[float], list[float]]] = [
    ("Abs", {}, [-INF, -2, -0.0, 3, NAN], [INF, 2, 0, 3, NAN]),
    ("Neg", {}, [-INF, -0.0, 0.0, 3, NAN], [INF, 0.0, -0.0, -3, NAN]),
    ("Sign", {}, [-INF, -2, -0.0, 0.0, 3, NAN], [-1, -1, 0.0, 0.0, 1, NAN]),
    ("Relu", {}, [-INF, -2, -0.0, 3, INF, NAN], [0, 0, 0.0, 3, INF, NAN]),
    ("Ceil", {}, [-1.5, -0.5, 0.5, INF, NAN], [-1, -0.0, 1, INF, NAN]),
    ("Floor", {}, [-1.5, -0.5, -0.0, 0.5, -INF], [-2, -1, -0.0, 0, -INF]),
    ("Round", {}, [-2.5, -0.5, 0.5, 1.5, 2.5, NAN], [-2, -0.0, 0, 2, 2, NAN]),
    ("Sqrt", {}, [0.0, -0.0, 4, 2.25, INF, -1], [0.0, -0.0, 2, 1.5, INF, NAN]),
    ("Reciprocal", {}, [0.0, -0.0, 4, INF], [INF, -INF, 0.25, 0]),
    ("LeakyRelu", {"alpha": 0.25}, [-8, -0.0, 3, NAN], [-2, -0.0, 3, NAN]),
    ("ThresholdedRelu", {"alpha": 2.0}, [1, 2, 3, -INF], [0, 0, 3, 0]),
    ("HardSigmoid", {"alpha": 0.5, "beta": 0.5}, [-4, 0, 0.5, 4, NAN], [0, 0.5, 0.75, 1, NAN]),
    ("HardSwish", {}, [-4, 0, 3, 6, NAN], [-0.0, 0, 3, 6, NAN]),
    ("Shrink", {"bias": 1.0, "lambd": 1.5}, [-2, -1.5, 1, 1.5, 2], [-1, 0, 0, 0, 1]),
    ("Softsign", {}, [-1, 0, 3], [-0.5, 0, 0.75]),
    ("Elu", {"alpha": 2.0}, [-INF, -0.0, 0.0, 3, NAN], [-2, -0.0, 0, 3, NAN]),
    ("Selu", {"alpha": 2.0, "gamma": 0.5}, [-INF, -0.0, 4, NAN], [-1, -0.0, 2, NAN]),
    ("Celu", {"alpha": 2.0}, [-INF, -0.0, 4, NAN], [-2, -0.0, 4, NAN]),
    ("Sigmoid", {}, [-INF, 0, INF, NAN], [0, 0.5, 1, NAN]),
    ("Tanh", {}, [-INF, -0.0, 0.0, INF, NAN], [-1, -0.0, 0, 1, NAN]),
    ("Exp", {}, [-INF, -0.0, INF, NAN], [0, 1, INF, NAN]),
    ("Log", {}, [0, -1, 1, INF], [-INF, NAN, 0, INF]),
    ("Softplus", {}, [-INF, INF, 100, NAN], [0, INF, 100, NAN]),
    ("Erf", {}, [-INF, -0.0, 0.0, INF, NAN], [-1, -0.0, 0, 1, NAN]),
    ("Mish", {}, [0, INF, NAN], [0, INF, NAN]),
    ("Swish", {"alpha": 2.0}, [0, INF, NAN], [0, INF, NAN]),
    ("Gelu", {}, [0, INF, NAN], [0, INF, NAN]),
    ("Gelu", {"approximate": "tanh"}, [0, INF, NAN], [0, INF, NAN]),
]


def test_exact_values() -> None:
    batch = NodeBatch()
    for operator, attributes, x, y in EXACT:
        batch.add(operator, [floats(*x)], floats(*y), **attributes)
    batch.check_within(0)
    for name, found in evaluate_model(batch.model(), batch.given).items():
        wanted = batch.wanted[name]
        assert np.array_equal(np.signbit(found[wanted == 0]), np.signbit(wanted[wanted == 0])), name


SMOOTH: dict[str, Callable[[Array], Array]] = {
    "Acos": np.arccos,
    "Acosh": np.arccosh,
    "Asin": np.arcsin,
    "Asinh": np.arcsinh,
    "Atan": np.arctan,
    "Atanh": np.arctanh,
    "Cos": np.cos,
    "Cosh": np.cosh,
    "Erf": np.vectorize(math.erf, otypes=[np.float64]),
    "Exp": np.exp,
    "Log": np.log,
    "Sigmoid": lambda x: np.where(x < 0, np.exp(x), 1) / (1 + np.exp(-np.abs(x))),
    "Sin": np.sin,
    "Sinh": np.sinh,
    "Softplus": lambda x: np.logaddexp(x, 0),
    "Sqrt": np.sqrt,
    "Tan": np.tan,
    "Tanh": np.tanh,
}


@pytest.mark.parametrize(("name", "ulps"), [("float", 2), ("double", 4), ("float16", 1)])
def test_functions_of_mathematics(name: str, ulps: int) -> None:
    """Against numpy in double, rounded once; 16-bit floats are computed in float."""
    dtype = numpy_dtype(BY_NAME[name])
    x = np.concatenate([SPECIAL, np.linspace(-8, 8, 101), np.geomspace(1e-4, 80, 20)])
    batch = NodeBatch()
    with np.errstate(all="ignore"):
        for operator, function in SMOOTH.items():
            given = x.astype(dtype)
            batch.add(operator, [given], function(given.astype(np.float64)).astype(dtype))
    batch.check_within(ulps)


WRAPS = [BY_NAME[name] for name in ("int8", "uint8", "int16", "uint16", "int32", "uint32")]
INTEGERS = [*WRAPS, BY_NAME["int64"], BY_NAME["uint64"]]


def test_integers_wrap() -> None:
    """For any bits, as numpy's do; ONNX is silent, and C must not be undefined."""
    batch = NodeBatch()
    for dtype in INTEGERS:
        a, b = any_bits(dtype, 40), any_bits(dtype, 2, 40)
        for operator, function in (("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply)):
            batch.add(operator, [a, b], function(a, b))
        if dtype.kind == "signed":
            least = np.full(3, np.iinfo(a.dtype).min, a.dtype)
            batch.add("Neg", [least], least)
            batch.add("Abs", [least], least)
            batch.add("Div", [least, np.full(3, -1, a.dtype)], least)
            batch.add("Mod", [least, np.full(3, -1, a.dtype)], np.zeros(3, a.dtype))
    check_fused_and_plain(batch)


def test_integer_division_and_remainder() -> None:
    """Toward zero; Mod has the sign of the divisor, with fmod of the dividend."""
    batch = NodeBatch()
    a, b = np.array([-7, -7, 7, 7, 6]), np.array([2, -2, 2, -2, 3])
    for dtype in (np.int8, np.int16, np.int32, np.int64):
        given = [a.astype(dtype), b.astype(dtype)]
        batch.add("Div", given, np.array([-3, 3, 3, -3, 2], dtype))
        batch.add("Mod", given, np.array([1, -1, 1, -1, 0], dtype))
        batch.add("Mod", given, np.array([-1, -1, 1, 1, 0], dtype), fmod=1)
    check_fused_and_plain(batch)


@pytest.mark.parametrize("operator", ["Div", "Mod"])
def test_integer_division_by_zero(operator: str) -> None:
    x = np.array([1, 2], np.int32)
    assert_status("DIVISION_BY_ZERO", one_node(operator, [x, np.array([1, 0], np.int32)], x))


def test_mod_of_floats() -> None:
    """Both forms, with the special values that the page names."""
    a, b = floats(-4.5, 4.5, -0.0, 5, -5, 0.0), floats(2, -2, 3, INF, INF, -3)
    batch = NodeBatch()
    batch.add("Mod", [a, b], floats(-0.5, 0.5, -0.0, 5, -5, 0.0), fmod=1)
    batch.add("Mod", [a, b], floats(1.5, -1.5, 0.0, 5, INF, -0.0))
    bad = [floats(INF, 1, NAN), floats(2, 0, 2)]
    batch.add("Mod", bad, floats(NAN, NAN, NAN), fmod=1)
    batch.add("Mod", bad, floats(NAN, NAN, NAN))
    batch.check_within(0)


def test_pow() -> None:
    """In the base's type. Integers wrap; a negative exponent is the value in double, converted."""
    batch = NodeBatch()
    batch.add("Pow", [floats(2, 4, -2, 0, NAN), floats(3, 0.5, 2, 0, 0)], floats(8, 2, 4, 1, 1))
    batch.add("Pow", [floats(2, 3), np.array([3, -1])], floats(8, 1 / 3))
    base = np.array([3, 2, -1, -1, 0, 2, 0], np.int32)
    exponent = np.array([40, -1, -1, -2, -1, 31, 0], np.int32)
    wanted = [689956897, 0, -1, 1, 2**31 - 1, -(2**31), 1]
    batch.add("Pow", [base, exponent], np.array(wanted, np.int32))
    batch.add("Pow", [np.array([9, 2]), floats(0.5, 0.5)], np.array([3, 1]))
    batch.check_within(0)


def test_small_constant_powers_are_products() -> None:
    """They wrap, and keep NaN and the sign of a zero, as powers do."""
    batch = NodeBatch()
    x, whole = floats(1.1, -3, -0.0, 1e30, INF, -INF, NAN), np.array([3, -7, 2**20], np.int32)
    for power in (1, 2, 3):
        exponent = [floats(power), np.array(power)]
        with np.errstate(over="ignore"):
            batch.add_node("Pow", [x, exponent[0]], [x**power], constants=[1])
            batch.add_node("Pow", [whole, exponent[1]], [whole**power], constants=[1])
    assert "onnxc_pow" not in compile_model(batch.model()).c_source
    batch.check_within(1)


def test_shifts() -> None:
    """By the width or more, or less than nothing, what the sign alone fills is left."""
    batch = NodeBatch()
    unsigned: list[type[Any]] = [np.uint8, np.uint32, np.uint64]
    for dtype in unsigned:
        x, by = np.array([1, 255, 255], dtype), np.array([3, 4, 200], dtype)
        batch.add("BitShift", [x, by], np.array([0, 15, 0], dtype), direction="RIGHT")
        left = [8, 240 if dtype is np.uint8 else 4080, 0]
        batch.add("BitShift", [x, by], np.array(left, dtype), direction="LEFT")
    signed: list[type[Any]] = [np.int8, np.int32, np.int64]
    for dtype in signed:
        x, by = np.array([-4, -4, 4, -4], dtype), np.array([1, 100, 100, -1], dtype)
        batch.add("BitShift", [x, by], np.array([-2, -1, 0, -1], dtype), direction="RIGHT")
        batch.add("BitShift", [x, by], np.array([-8, 0, 0, 0], dtype), direction="LEFT")
    check_fused_and_plain(batch)


def test_bits() -> None:
    batch = NodeBatch()
    for dtype in INTEGERS:
        a, b = any_bits(dtype, 20), any_bits(dtype, 3, 20)
        batch.add("BitwiseAnd", [a, b], a & b)
        batch.add("BitwiseOr", [a, b], a | b)
        batch.add("BitwiseXor", [a, b], a ^ b)
        batch.add("BitwiseNot", [a], ~a)
    check_fused_and_plain(batch)


def test_logic() -> None:
    a, b = np.array([[True], [False]]), np.array([True, False])
    batch = NodeBatch()
    batch.add("And", [a, b], a & b)
    batch.add("Or", [a, b], a | b)
    batch.add("Xor", [a, b], a ^ b)
    batch.add("Not", [a], ~a)
    check_fused_and_plain(batch)


@pytest.mark.parametrize("operator", ["Less", "LessOrEqual", "Greater", "GreaterOrEqual"])
def test_comparisons(operator: str) -> None:
    """Of every allowed type, a NaN being in no order and -0 equal to 0."""
    functions = {
        "Less": np.less,
        "LessOrEqual": np.less_equal,
        "Greater": np.greater,
        "GreaterOrEqual": np.greater_equal,
    }
    batch = NodeBatch()
    for dtype in allowed_types(operator):
        x = (
            SPECIAL.astype(numpy_dtype(dtype))
            if dtype.kind in ("float", "half")
            else any_bits(dtype, 14)
        )
        wanted = functions[operator](x[:, None].astype(np.float64), x.astype(np.float64))
        if dtype.bits == 64 and dtype.kind != "float":
            wanted = functions[operator](x[:, None], x)
        batch.add(operator, [x[:, None], x], wanted)
    check_fused_and_plain(batch)


def test_is_nan_and_is_inf() -> None:
    batch = NodeBatch()
    for name in ("float", "double", "float16", "bfloat16"):
        x = SPECIAL.astype(numpy_dtype(BY_NAME[name]))
        batch.add("IsNaN", [x], np.isnan(SPECIAL))
        batch.add("IsInf", [x], np.isinf(SPECIAL))
        batch.add("IsInf", [x], SPECIAL == INF, detect_negative=0)
        batch.add("IsInf", [x], SPECIAL == -INF, detect_positive=0)
        none: dict[str, Any] = {"detect_positive": 0, "detect_negative": 0}
        batch.add("IsInf", [x], np.zeros(x.shape, np.bool_), **none)
    check_fused_and_plain(batch)


def test_max_and_min() -> None:
    """A NaN stays, wherever it is; of two zeros Max takes +0 and Min -0."""
    a, b = floats(NAN, 1, -0.0, 0.0, -INF), floats(1, NAN, 0.0, -0.0, INF)
    batch = NodeBatch()
    batch.add("Max", [a, b], floats(NAN, NAN, 0.0, 0.0, INF))
    batch.add("Min", [a, b], floats(NAN, NAN, -0.0, -0.0, -INF))
    for dtype in INTEGERS:
        x, y = any_bits(dtype, 20), any_bits(dtype, 2, 20)
        batch.add("Max", [x, y, x[:1]], np.maximum(np.maximum(x, y), x[:1]))
        batch.add("Min", [x, y], np.minimum(x, y))
    batch.check_within(0)


def test_sum_and_mean_of_several() -> None:
    """Broadcast, from the left to the right."""
    a, b, c = floats(1, 2, 3), np.array([[1], [2]], np.float32), np.float32(0.5)
    batch = NodeBatch()
    batch.add("Sum", [a], a)
    batch.add("Sum", [a, b, np.asarray(c)], a + b + c)
    batch.add("Mean", [a, b, np.asarray(c)], ((a + b + c) / np.float32(3)))
    check_fused_and_plain(batch)


def test_clip() -> None:
    """Min(max, Max(x, min)): the greatest where the bounds cross, NaN where a bound is one."""
    x = floats(-INF, -2, 0.5, 7, NAN)
    low, high = np.asarray(np.float32(-1)), np.asarray(np.float32(1))
    batch = NodeBatch()
    batch.add_node("Clip", [x], [x])
    batch.add_node("Clip", [x, low], [floats(-1, -1, 0.5, 7, NAN)])
    batch.add_node("Clip", [x, None, high], [floats(-INF, -2, 0.5, 1, NAN)])
    batch.add_node("Clip", [x, low, high], [floats(-1, -1, 0.5, 1, NAN)])
    batch.add_node("Clip", [x, high, low], [floats(-1, -1, -1, -1, NAN)])
    nan = np.asarray(np.float32(NAN))
    batch.add_node("Clip", [x, nan, high], [np.full(5, NAN, np.float32)])
    for dtype in INTEGERS:
        values = np.arange(20).astype(numpy_dtype(dtype))
        bounds = [np.asarray(values[n]) for n in (5, 9)]
        batch.add_node("Clip", [values, *bounds], [np.clip(values, 5, 9)])
    batch.check_within(0)


def test_prelu_and_swiglu() -> None:
    x, slope = np.array([[-2, 4], [-6, -0.0]], np.float32), floats(0.5, 0.25)
    batch = NodeBatch()
    batch.add("PRelu", [x, slope], np.array([[-1, 4], [-3, -0.0]], np.float32))
    gate, value = floats(0, INF, -0.0), floats(3, 2, 1)
    batch.add("SwiGLU", [gate, value], floats(0, INF, -0.0))
    batch.check_within(0)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (1, 1, 2)])
def test_prelu_does_not_broadcast_to_its_slope(shape: tuple[int, ...]) -> None:
    x = np.ones((3, 2) if len(shape) < 3 else (3, 2)[:1], np.float32)
    batch = one_node("PRelu", [x, np.ones(shape, np.float32)], x)
    assert "does not broadcast to X" in refusal(batch.model())[0]


def test_halves_are_computed_in_float_and_rounded_once() -> None:
    """x·x·0.044715 and the like would lose digits if every step were rounded to 11 bits."""
    x = np.linspace(-4, 4, 257).astype(np.float16)
    wide = x.astype(np.float64)
    tanh = np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3))
    batch = NodeBatch()
    batch.add("Gelu", [x], (0.5 * wide * (1 + tanh)).astype(np.float16), approximate="tanh")
    batch.add("Mish", [x], (wide * np.tanh(np.log1p(np.exp(wide)))).astype(np.float16))
    batch.check_within(1)


@pytest.mark.parametrize(
    ("operator", "attributes", "fact"),
    [
        ("Gelu", {"approximate": "sigmoid"}, "approximate is 'sigmoid'; give one of none, tanh"),
        ("BitShift", {"direction": "UP"}, "direction is 'UP'; give one of LEFT, RIGHT"),
    ],
)
def test_refused(operator: str, attributes: dict[str, Any], fact: str) -> None:
    x = floats(1, 2) if operator == "Gelu" else np.array([1, 2], np.uint8)
    inputs = [x] if operator == "Gelu" else [x, x]
    assert_refused(fact, one_node(operator, inputs, x, **attributes))


def test_no_elements_and_rank_zero() -> None:
    batch = NodeBatch()
    for shape in ((0, 3), ()):
        x = np.ones(shape, np.float32)
        batch.add("Add", [x, x], x + x)
        batch.add("Sqrt", [x], x)
    check_fused_and_plain(batch)
