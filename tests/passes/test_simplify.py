"""simplify: the nodes that are left, and what it says of the others."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx import NodeProto, helper

from onnxc.passes.infer import infer
from onnxc.passes.load import load
from onnxc.passes.simplify import simplify
from tests.models import Array, float_network

STATISTICS = {"scale": [1, 2], "shift": [3, 4], "mean": [0, 1], "variance": [1, 1]}


def simplified(
    nodes: list[NodeProto], x: tuple[int, ...], y: tuple[int, ...], **constants: Array
) -> ir.Model:
    model = load(float_network(nodes, {"x": x}, y, constants))
    infer(model)
    simplify(model)
    return model


def names(model: ir.Model) -> list[str | None]:
    return [node.name for node in model.graph]


def gone(model: ir.Model) -> list[tuple[str | None, str]]:
    found: list[tuple[ir.Node, str]] = model.graph.meta["gone"]
    return [(node.name, fact) for node, fact in found]


def test_what_no_output_needs_is_dropped() -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["a"], name="first"),
        helper.make_node("Abs", ["a"], ["b"], name="second"),
        helper.make_node("Exp", ["x"], ["y"], name="third"),
    ]
    model = simplified(nodes, (2,), (2,))
    assert names(model) == ["third"]
    assert gone(model) == [("first", "no output needs it"), ("second", "no output needs it")]


def test_a_normalisation_becomes_part_of_the_weights() -> None:
    """w is a unit matrix: each pixel of y is (x - mean) * scale / sqrt(1 + 3) + shift."""
    constants = {name: np.array(values, np.float32) for name, values in STATISTICS.items()}
    w = np.eye(2, dtype=np.float32).reshape(2, 2, 1, 1)
    conv = helper.make_node("Conv", ["x", "w"], ["m"], name="conv")
    norm = helper.make_node(
        "BatchNormalization", ["m", *STATISTICS], ["y"], name="norm", epsilon=3.0
    )
    model = simplified([conv, norm], (1, 2, 1, 1), (1, 2, 1, 1), w=w, **constants)
    assert gone(model) == [("norm", "part of the weights of Conv 'conv'")]
    (node,) = model.graph
    given = [value for value in node.inputs if value is not None]
    assert [value.name for value in given] == ["x", "w", "shift"]
    weights, bias = (value.const_value for value in given[1:])
    assert weights is not None
    assert bias is not None
    np.testing.assert_array_equal(weights.numpy().reshape(2, 2), [[0.5, 0], [0, 1]])
    np.testing.assert_array_equal(bias.numpy(), [3, 3])
    assert [value.name for value in node.outputs] == ["y"]
    assert model.graph.outputs[0] is node.outputs[0]


def test_the_bias_of_a_gemm_is_no_longer_scaled() -> None:
    """y = (2 b + x w - mean) * scale / sqrt(1 + 3) + shift."""
    constants = {name: np.array(values, np.float32) for name, values in STATISTICS.items()}
    constants |= {"w": np.eye(2, dtype=np.float32), "b": np.array([1, 1], np.float32)}
    gemm = helper.make_node("Gemm", ["x", "w", "b"], ["m"], name="gemm", beta=2.0)
    norm = helper.make_node("BatchNormalization", ["m", *STATISTICS], ["y"], epsilon=3.0)
    (node,) = simplified([gemm, norm], (3, 2), (3, 2), **constants).graph
    assert {name: a.value for name, a in node.attributes.items()}["beta"] == 1
    weights, bias = (value.const_value for value in node.inputs[1:] if value is not None)
    assert weights is not None
    assert bias is not None
    np.testing.assert_array_equal(weights.numpy(), [[0.5, 0], [0, 1]])
    np.testing.assert_array_equal(bias.numpy(), [4, 5])


def test_a_normalisation_of_what_never_varies() -> None:
    """By default 1e-5 is added to the variance."""
    zeros, ones = np.zeros(2, np.float32), np.ones(2, np.float32)
    statistics = {"scale": ones, "shift": zeros, "mean": zeros, "variance": zeros}
    w = np.eye(2, dtype=np.float32).reshape(2, 2, 1, 1)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["m"]),
        helper.make_node("BatchNormalization", ["m", *STATISTICS], ["y"]),
    ]
    (node,) = simplified(nodes, (1, 2, 1, 1), (1, 2, 1, 1), w=w, **statistics).graph
    (weights,) = (value.const_value for value in node.inputs if value and value.name == "w")
    assert weights is not None
    np.testing.assert_allclose(weights.numpy(), w * 1e-5**-0.5, rtol=1e-6)


def test_a_model_that_needs_all_its_nodes_keeps_them() -> None:
    model = simplified([helper.make_node("Neg", ["x"], ["y"], name="n")], (2,), (2,))
    assert (names(model), gone(model)) == (["n"], [])
