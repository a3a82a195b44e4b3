"""Where the nodes of a model went, each with a reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.models import model, stored
from tests.report.facts_checks import facts_of

FUSED = "applied to each result of"
READ = "as MatMul 'p' reads it, and stored nowhere"


def nodes(text: str, opset: int = 19, **constants: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
    """The nodes of a graph in ONNX's text form with some constants."""
    graph = onnx.parser.parse_graph(f"m {text}")
    graph.initializer.extend(stored(name, value) for name, value in constants.items())
    given = model(graph)
    given.opset_import[0].version = opset
    found: list[dict[str, Any]] = facts_of(given)["nodes"]
    return found


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(3).standard_normal(shape, np.float32)


def fates(found: list[dict[str, Any]]) -> list[str]:
    return [node["fate"] for node in found]


def test_a_convolution_takes_what_follows_it() -> None:
    convolution, relu, mean = nodes(
        "(float[1, 3, 9, 9] x) => (float[1, 8, 1, 1] y)"
        " { [c] a = Conv(x, w) [r] b = Relu(a) [m] y = GlobalAveragePool(b) }",
        w=floats(8, 3, 3, 3),
    )
    assert fates([convolution, relu, mean]) == ["kernel", "fused", "kernel"]
    assert relu["why"] == f"{FUSED} Conv 'c' before that is stored"
    assert relu["kernels"] == convolution["kernels"]
    assert convolution["why"].startswith("contraction: each value that is read meets")
    assert mean["why"].startswith("loops: no sum of products")
    assert convolution["operator"] == "Conv-11"
    assert (convolution["inputs"], convolution["outputs"]) == (["x", "w"], ["a"])


def test_what_comes_first_is_computed_as_it_is_read() -> None:
    found = nodes(
        "(float[3, 5] x, float[5, 7] w) => (float[3, 7] y)"
        " { [n] a = Neg(x) [t] b = Transpose(w) [u] c = Transpose(b) [p] y = MatMul(a, c) }"
    )
    assert fates(found) == ["fused", "dissolved", "dissolved", "kernel"]
    assert found[0]["why"] == f"computed {READ}"
    assert found[1]["why"] == "moves nothing: MatMul 'p' reads what it needs in that order"


def test_normalisation_becomes_part_of_the_weights() -> None:
    text = (
        "(float[1, 3, 9, 9] x) => (float[1, 8, 7, 7] y)"
        " { [k] s = Constant<value_floats = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]>()"
        " [c] a = Conv(x, w) [b] y = BatchNormalization(a, s, t, m, v) }"
    )
    eight = {name: np.abs(floats(8)) for name in ("t", "m", "v")}
    found = nodes(text, w=floats(8, 3, 3, 3), **eight)
    assert fates(found) == ["folded", "kernel", "folded"]
    assert found[0]["why"] == "used up at compile time, by BatchNormalization 'b'"
    assert found[2]["why"] == "part of the weights of Conv 'c'"


def test_what_is_known_is_computed_at_compile_time() -> None:
    found = nodes(
        "(float[4, 5] x) => (float[20] y, int64[2] s)"
        " { s = Shape(x) a = Size(x) b = Unsqueeze(a, zero) [r] c = Reshape(x, b) y = Exp(c) }",
        zero=np.array([0]),
    )
    assert fates(found) == ["folded", "folded", "folded", "aliased", "kernel"]
    known = "computed at compile time: it asks no more than what is known then, such as shapes"
    assert found[1]["why"] == known
    assert found[2]["why"].startswith("computed at compile time: all its inputs are constants")
    assert found[3]["why"].startswith("needs no code: its result is the memory of its operand")


def test_a_reshape_that_is_an_output_has_a_kernel() -> None:
    (reshape,) = nodes("(float[4, 5] x) => (float[20] y) { y = Reshape(x, s) }", s=np.array([20]))
    assert (reshape["fate"], reshape["kernels"]) == ("kernel", [0])


def test_what_nobody_needs_is_dropped() -> None:
    unused, _ = nodes("(float[4] x) => (float[4] y) { a = Exp(x) y = Neg(x) }")
    assert (unused["fate"], unused["why"]) == ("dropped", "no output needs it")


def test_a_branch_that_is_known_stands_in_the_place_of_its_if() -> None:
    found = nodes(
        """
        (float[4] x) => (float[4] y) {
            size = Size(x) small = Less(size, nine)
            [choice] y = If(small) <
                then_branch = g () => (float[4] e) { [then] e = Neg(x) },
                else_branch = h () => (float[4] f) { [else] f = Abs(x) }
            >
        }
        """,
        nine=np.array(9),
    )
    by_name = {node["name"] or node["operator"]: node for node in found}
    assert fates(found) == ["folded", "folded", "folded", "kernel", "dropped"]
    assert by_name["choice"]["why"].startswith("its condition is known")
    assert by_name["then"]["kernels"] == [0]
    assert by_name["else"]["why"] == "it is in a branch of If 'choice' that is never taken"


def test_nodes_of_a_function_are_nodes_of_the_model() -> None:
    text = """
        <ir_version: 8, opset_import: ["" : 19, "own" : 1]>
        m (float[4] x) => (float[4] y) { [call] y = own.Twice(x) }
        <domain: "own", opset_import: ["" : 19]>
        Twice (a) => (b) { [first] t = Exp(a) [second] b = Neg(t) }
    """
    found = facts_of(onnx.parser.parse_model(text))["nodes"]
    assert [node["name"] for node in found] == ["call/first", "call/second"]
    assert fates(found) == ["kernel", "fused"]


def test_a_node_that_becomes_several_has_the_kernels_of_all() -> None:
    """A LayerNormalization-like operator that has a body instead of a function of its own."""
    graph = helper.make_graph(
        [helper.make_node("MeanVarianceNormalization", ["x"], ["y"], "m", axes=[1])],
        "body",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [3, 40])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [3, 40])],
    )
    facts = facts_of(model(graph))
    (node,) = facts["nodes"]
    assert node["operator"] == "MeanVarianceNormalization-13"
    assert node["fate"] == "kernel"
    assert node["kernels"] == [kernel["number"] for kernel in facts["kernels"]]


def test_an_old_version_that_is_upgraded_stays_itself() -> None:
    (node,) = nodes("(float[3, 4] x) => (float[3, 4] y) { [s] y = Softmax<axis = 1>(x) }", 11)
    assert node["operator"] == "Softmax-11"
    assert node["fate"] == "kernel"


QUANTISED = """
    m (float[3, 40] x) => (float[3, 50] y) {
        [q] a = QuantizeLinear(x, s, z) [d] b = DequantizeLinear(a, s, z)
        [w] c = DequantizeLinear<axis = 0>(v, t, o) [p] d = MatMul(b, c) [e] y = Exp(d)
    }
"""


def quantised(scales: int) -> dict[str, Any]:
    """A product of dequantised values; of the weights each row has a scale, or all have one."""
    graph = onnx.parser.parse_graph(QUANTISED)
    shape = (scales,) if scales > 1 else ()
    values: dict[str, np.ndarray[Any, Any]] = {
        "s": np.array(0.5, np.float32),
        "z": np.array(0, np.int8),
        "t": np.full(shape, 0.25, np.float32) + np.arange(scales, dtype=np.float32).reshape(shape),
        "o": np.zeros(shape, np.int8),
        "v": np.arange(2000).astype(np.int8).reshape(40, 50),
    }
    graph.initializer.extend(stored(name, value) for name, value in values.items())
    return facts_of(model(graph))


def test_products_of_dequantised_values_are_of_integers() -> None:
    facts = quantised(1)
    assert facts["int8_as_float"] == []
    assert facts["summary"]["macs_by_arithmetic"] == {"int8": 6000}
    quantise, dequantise, weights, product, exp = facts["nodes"]
    assert fates([quantise, product, exp]) == ["kernel", "kernel", "fused"]
    assert product["operator"] == "MatMul-13"
    assert product["why"].startswith("it becomes MatMulInteger, Cast, Mul; ")
    assert dequantise["fate"] == "fused"
    assert dequantise["kernels"] == product["kernels"]
    assert dequantise["why"].startswith("part of MatMul 'p', which computes with the integers")
    assert weights["why"] == "part of MatMul 'p', whose constants it is in"
    assert [entry["why"] for entry in facts["not_integer"]] == [
        "QuantizeLinear: rounds floats to integers",
        "MatMul, Exp: what follows the sums, which are scaled to floats",
    ]


def test_float_kernels_of_a_quantised_model_are_told() -> None:
    """Scales along what is summed are no factor of the sums."""
    facts = quantised(40)
    assert facts["int8_as_float"] == [{"operator": "MatMul", "count": 1}]
    assert facts["summary"]["macs_by_arithmetic"] == {"float32": 6000}
    (product,) = (k["number"] for k in facts["kernels"] if k["macs"])
    told = {entry["kernel"]: entry["why"] for entry in facts["not_integer"]}
    assert told[product].startswith("MatMul, Exp: its operands are dequantised, but not of 8 bits")


@pytest.mark.parametrize("product", ["Neg(x)", "Exp(x)"])
def test_a_model_without_quantised_nodes_tells_nothing_of_integers(product: str) -> None:
    graph = onnx.parser.parse_graph(f"m (float[9] x) => (float[9] y) {{ y = {product} }}")
    facts = facts_of(model(graph))
    assert facts["int8_as_float"] == facts["not_integer"] == []
