"""What counts as work: multiply-accumulates, bytes, and the arithmetic of a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from tests.models import model, stored
from tests.report.facts_checks import facts_of


def found(text: str, opset: int = 19) -> dict[str, Any]:
    """The facts of a model in ONNX's text form."""
    imports = f'<ir_version: 8, opset_import: ["" : {opset}]>'
    return facts_of(onnx.parser.parse_model(f"{imports} m {text}"))


def macs(text: str, opset: int = 19) -> dict[str, int]:
    """Multiply-accumulates by arithmetic."""
    by_arithmetic: dict[str, int] = found(text, opset)["summary"]["macs_by_arithmetic"]
    return by_arithmetic


def only(text: str) -> dict[str, Any]:
    """The only kernel of a model."""
    (kernel,) = found(text)["kernels"]
    assert isinstance(kernel, dict)
    return kernel


PRODUCTS = {
    "a matrix product": (
        "(float[3, 5] a, float[5, 7] b) => (float[3, 7] y) { y = MatMul(a, b) }",
        {"float32": 3 * 5 * 7},
    ),
    "of doubles": (
        "(double[3, 5] a, double[5, 7] b) => (double[3, 7] y) { y = MatMul(a, b) }",
        {"float64": 3 * 5 * 7},
    ),
    "of bytes": (
        "(uint8[3, 5] a, int8[5, 7] b) => (int32[3, 7] y) { y = MatMulInteger(a, b) }",
        {"int8": 3 * 5 * 7},
    ),
    "of bytes with zero points": (
        "(uint8[3, 5] a, int8[5, 7] b, uint8 z) => (int32[3, 7] y) { y = MatMulInteger(a, b, z) }",
        {"int8": 3 * 5 * 7},
    ),
    "of integers": (
        "(int64[3, 5] a, int64[5, 7] b) => (int64[3, 7] y) { y = MatMul(a, b) }",
        {"int64": 3 * 5 * 7},
    ),
    "a convolution, its padding counted": (
        "(float[1, 3, 8, 8] x, float[4, 3, 3, 3] w) => (float[1, 4, 8, 8] y)"
        " { y = Conv<pads = [1, 1, 1, 1]>(x, w) }",
        {"float32": 4 * 8 * 8 * 3 * 3 * 3},
    ),
    "in groups": (
        "(float[1, 6, 8, 8] x, float[6, 1, 3, 3] w) => (float[1, 6, 6, 6] y)"
        " { y = Conv<group = 6>(x, w) }",
        {"float32": 6 * 6 * 6 * 3 * 3},
    ),
    "a mean": ("(float[3, 5] x) => (float[3, 1] y) { y = ReduceMean<axes = [1]>(x) }", {}),
    "squares": (
        "(float[3, 5] x) => (float[3, 1] y) { y = ReduceSumSquare<axes = [1]>(x) }",
        {"float32": 15},
    ),
    "a sum of halves": (
        "(float[3, 5] x, float h) => (float[3, 1] y)"
        " { d = Mul(x, h) y = ReduceSum<axes = [1]>(d) }",
        {"float32": 15},
    ),
    "a sum of sums, each times a factor": (
        "(float[3, 5] x, float[3] h) => (float[1] y)"
        " { s = ReduceSum<axes = [1], keepdims = 0>(x) p = Mul(s, h)"
        " y = ReduceMean<axes = [0]>(p) }",
        {"float32": 3},
    ),
    "elementwise": ("(float[9] x, float[9] z) => (float[9] y) { y = Mul(x, z) }", {}),
    "an LSTM": (
        "(float[7, 2, 5] x, float[1, 24, 5] w, float[1, 24, 6] r) => (float[7, 1, 2, 6] y)"
        " { y, h, c = LSTM<hidden_size = 6>(x, w, r) }",
        {"float32": 7 * 2 * 24 * (5 + 6)},
    ),
    "a GRU": (
        "(float[7, 2, 5] x, float[1, 18, 5] w, float[1, 18, 6] r) => (float[7, 1, 2, 6] y)"
        " { y, h = GRU<hidden_size = 6>(x, w, r) }",
        {"float32": 7 * 2 * 18 * (5 + 6)},
    ),
    "determinants": (
        "(float[2, 4, 4] x) => (float[2] y) { y = Det(x) }",
        {"float64": 2 * (9 + 4 + 1)},
    ),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str) -> None:
    text, expected = PRODUCTS[name]
    assert macs(text, opset=12 if "axes" in text else 19) == expected


def test_a_recurrent_kernel_counts_as_its_loops() -> None:
    """The tuned kernel stands for a loop over the times, with weights that are constants."""
    graph = onnx.parser.parse_graph(
        "m (float[7, 2, 5] x) => (float[7, 1, 2, 32] y)"
        " { y, h, c = LSTM<hidden_size = 32>(x, w, r) }"
    )
    values = np.random.default_rng(1)
    for name, width in (("w", 5), ("r", 32)):
        weights = values.standard_normal((1, 128, width), np.float32)
        graph.initializer.append(stored(name, weights))
    facts = facts_of(model(graph))
    products = {kernel["kind"]: kernel["macs"] for kernel in facts["kernels"] if kernel["macs"]}
    assert products["recurrent"] == 7 * 2 * 128 * 32
    assert sum(products.values()) == 7 * 2 * 128 * (32 + 5)


def test_a_loop_counts_its_trips() -> None:
    facts = found(
        "(float[7, 1, 2] x, float[1, 8, 2] w, float[1, 8, 2] r) => (float[7, 1, 1, 2] y)"
        " { y, h, c = LSTM<hidden_size = 2>(x, w, r) }"
    )
    (loop,) = (kernel for kernel in facts["kernels"] if kernel["kind"] == "repeat")
    inside = [k for k in facts["kernels"] if k["inside"] == loop["number"]]
    assert loop["repeats"] == 1
    assert {kernel["repeats"] for kernel in inside} == {7}
    assert sum(kernel["macs"] for kernel in inside) == 7 * 8 * 2
    assert facts["summary"]["macs_note"] == ""


BYTES = {
    "each element": ("(float[9, 4] x) => (float[9, 4] y) { y = Neg(x) }", 144, 144),
    "turned": ("(float[9, 4] x) => (float[4, 9] y) { y = Transpose(x) }", 144, 144),
    "broadcast": ("(float[9, 4] x, float[4] z) => (float[9, 4] y) { y = Add(x, z) }", 160, 144),
    "twice": ("(float[9, 4] x) => (float[9, 4] y) { y = Add(x, x) }", 144, 144),
    "rows": ("(float[9, 4] x, int64[2] i) => (float[2, 4] y) { y = Gather(x, i) }", 32 + 2 * 4, 32),
    "the largest": ("(float[9, 4] x) => (float[1, 4] y) { y = ReduceMax(x, zero) }", 144, 16),
    "a part": (
        "(float[9, 4] x) => (float[2, 4] y) { s = Slice(x, three, five) y = Neg(s) }",
        32,
        32,
    ),
}


@pytest.mark.parametrize("name", BYTES)
def test_each_byte_counts_once(name: str) -> None:
    text, read, written = BYTES[name]
    graph = onnx.parser.parse_graph(f"m {text}")
    for number, value in (("zero", 0), ("three", 3), ("five", 5)):
        graph.initializer.append(stored(number, np.array([value])))
    kernel = facts_of(model(graph))["kernels"][-1]
    assert (kernel["bytes_read"], kernel["bytes_written"]) == (read, written)


def test_constants_are_counted_apart() -> None:
    kernel = only(
        "(float[9, 4] x) => (float[9, 4] y) <float[4] z = {1.0, 2.0, 3.0, 4.0}> { y = Add(x, z) }"
    )
    sizes = kernel["bytes_read"], kernel["bytes_written"], kernel["bytes_constants"]
    assert sizes == (144, 144, 16)


RESCALED = {
    "sums that are stored": (
        "(uint8[3, 5] a, int8[5, 7] b) => (int32[3, 7] y) { y = MatMulInteger(a, b) }",
        (0, ""),
    ),
    "sums times a scale": (
        "(uint8[3, 5] a, int8[5, 7] b, float s) => (float[3, 7] y)"
        " { i = MatMulInteger(a, b) f = Cast<to = 1>(i) y = Mul(f, s) }",
        (3 * 7, "float32"),
    ),
    "floats": ("(float[3, 5] a, float[5, 7] b) => (float[3, 7] y) { y = MatMul(a, b) }", (0, "")),
    "integers without sums": ("(int8[9] x) => (int8[9] y) { y = Neg(x) }", (0, "")),
}


@pytest.mark.parametrize("name", RESCALED)
def test_integer_sums_that_are_scaled_in_floats_are_counted(name: str) -> None:
    text, expected = RESCALED[name]
    kernel = only(text)
    assert (kernel["rescaled"], kernel["rescaled_in"]) == expected


@pytest.mark.parametrize(
    ("text", "arithmetic", "integer"),
    [
        ("(float[9] x) => (float[9] y) { y = Exp(x) }", "float32", False),
        ("(double[9] x) => (double[9] y) { y = Exp(x) }", "float64", False),
        ("(float16[9] x) => (float16[9] y) { y = Exp(x) }", "float32", False),
        ("(int8[9] x) => (int8[9] y) { y = Neg(x) }", "int8", True),
        ("(int32[9] x, int32[9] z) => (int32[9] y) { y = Add(x, z) }", "int32", True),
        ("(float[9, 2] x) => (float[2, 9] y) { y = Transpose(x) }", "none", True),
        ("(float[9] x) => (int8[9] y) { y = Cast<to = 3>(x) }", "float32", False),
        ("(float[9] x, float[9] z) => (bool[9] y) { y = Less(x, z) }", "float32", False),
        ("(bool[9] x, bool[9] z) => (bool[9] y) { y = And(x, z) }", "bool", True),
    ],
)
def test_arithmetic(text: str, arithmetic: str, integer: bool) -> None:
    kernel = only(text)
    assert (kernel["arithmetic"], kernel["integer"]) == (arithmetic, integer)
