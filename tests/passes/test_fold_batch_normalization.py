"""A BatchNormalization behind constant weights is no node any more; others stay."""

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import onnxc
from onnxc.pipeline import compile_model
from tests.models import Array, float_network

NORMALIZATION = helper.make_node(
    "BatchNormalization", ["m", "scale", "shift", "mean", "variance"], ["y"], epsilon=0.001
)
CONV = helper.make_node("Conv", ["x", "w", "b"], ["m"])
GEMM = helper.make_node("Gemm", ["x", "w", "b"], ["m"], alpha=0.5, beta=2.0)
TRANSPOSED = helper.make_node("Gemm", ["x", "w"], ["m"], transB=1)


def statistics(channels: int, variance: float = 0.0) -> dict[str, Array]:
    rng = np.random.default_rng(channels)
    found = {name: rng.uniform(0.5, 2, channels) for name in ("scale", "shift", "mean", "variance")}
    if variance:
        found |= {"variance": np.full(channels, variance)}
    return found


def case(node: NodeProto) -> ModelProto:
    rng = np.random.default_rng(7)
    if node is CONV:
        constants = {"w": rng.standard_normal((4, 3, 2, 2)), "b": rng.standard_normal(4)}
        return float_network(
            [node, NORMALIZATION], {"x": (1, 3, 5, 5)}, (1, 4, 4, 4), constants | statistics(4)
        )
    constants = {"w": rng.standard_normal((6, 6)), "b": rng.standard_normal(6)}
    return float_network([node, NORMALIZATION], {"x": (3, 6)}, (3, 6), constants | statistics(6))


@pytest.mark.parametrize("node", [CONV, GEMM, TRANSPOSED], ids=["Conv", "Gemm", "transB"])
def test_it_becomes_part_of_the_weights(node: NodeProto) -> None:
    source = case(node)
    body = compile_model(source).body
    assert "part of the weights of" in body
    shape = [d.dim_value for d in source.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    wanted = onnx_reference(source, x)
    actual = onnxc.compile(source).run({"x": x})["y"]
    np.testing.assert_allclose(actual, wanted, rtol=2e-6, atol=2e-6)


def onnx_reference(source: ModelProto, x: Array) -> Array:
    """In double: the constants converted too."""
    wide = ModelProto()
    wide.CopyFrom(source)
    for tensor in wide.graph.initializer:
        tensor.CopyFrom(
            numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name)
        )
    for value in (*wide.graph.input, *wide.graph.output):
        value.type.tensor_type.elem_type = TensorProto.DOUBLE
    from onnx.reference import ReferenceEvaluator

    (result,) = ReferenceEvaluator(wide).run(None, {"x": x.astype(np.float64)})
    return np.asarray(result)


def test_a_second_reader_keeps_it() -> None:
    source = case(CONV)
    source.graph.output.append(helper.make_tensor_value_info("m", TensorProto.FLOAT, (1, 4, 4, 4)))
    assert "part of the weights" not in compile_model(source).body


def test_weights_beyond_what_a_float_holds_keep_it() -> None:
    constants = {"w": np.full((4, 3, 2, 2), 1e38), "b": np.zeros(4)}
    source = float_network(
        [CONV, NORMALIZATION], {"x": (1, 3, 5, 5)}, (1, 4, 4, 4), constants | statistics(4, 1e-4)
    )
    assert "part of the weights" not in compile_model(source).body


def test_a_factor_that_is_not_finite_keeps_it() -> None:
    rng = np.random.default_rng(7)
    constants = {"w": rng.standard_normal((4, 3, 2, 2)), "b": rng.standard_normal(4)}
    source = float_network(
        [CONV, NORMALIZATION], {"x": (1, 3, 5, 5)}, (1, 4, 4, 4), constants | statistics(4, -1.0)
    )
    assert "part of the weights" not in compile_model(source).body
