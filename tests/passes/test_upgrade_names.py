"""What new nodes and constants are called: after the node that they come from, and what they do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from onnxc.diagnostics import Kind
from onnxc.errors import RefusalError
from onnxc.op import schema_at
from onnxc.passes.rewriting import label_of
from onnxc.passes.upgrade import upgrade
from tests.models import Array
from tests.passes.test_upgrade_rules import loaded, upgraded


def zeros(*shapes: tuple[int, ...]) -> list[Array]:
    return [np.zeros(shape, np.float32) for shape in shapes]


def names(nodes: Sequence[ir.Node]) -> list[str]:
    """Of each node: its own, then those of the constants that it alone has."""
    found = []
    for node in nodes:
        found.append(str(node.name))
        values = [v for v in node.inputs if v is not None and v.producer() is None]
        found += [f"  {v.name}" for v in values if v.const_value is not None]
    return found


STATISTICS = zeros((2, 3, 4), (12,), (12,), (12,), (12,))


@pytest.mark.parametrize(
    ("opset", "operator", "inputs", "named", "wanted"),
    [
        (
            11,
            "Softmax",
            zeros((2, 3, 4)),
            {},
            ["n/input/Reshape", "  n/input/shape", "n", "n/Reshape", "  n/shape"],
        ),
        (
            6,
            "Add",
            zeros((2, 3), (2,)),
            {"broadcast": 1, "axis": 0},
            ["n/Unsqueeze", "  n/Unsqueeze/axes", "n"],
        ),
        (
            18,
            "GroupNormalization",
            zeros((1, 4, 2), (2,), (2,)),
            {"num_groups": 2},
            [
                *("n/scale/Reshape", "  n/scale/shape", "n/scale/Expand", "  n/scale/wide"),
                *("n/scale/channels", "  n/scale/flat"),
                *("n/bias/Reshape", "  n/bias/shape", "n/bias/Expand", "  n/bias/wide"),
                *("n/bias/channels", "  n/bias/flat"),
                "n",
            ],
        ),
        (
            9,
            "OneHot",
            [np.array([0, 1]), np.array(3), np.zeros(2, np.float32)],
            {},
            ["n/indices", "n/depth", "n/scalar", "  n/shape", "n/Less", "  n/zero", "n/Where", "n"],
        ),
        (
            8,
            "BatchNormalization",
            STATISTICS,
            {"spatial": 0},
            ["n/X/Reshape", "  n/X/shape", "n", "n/Reshape", "  n/shape"],
        ),
        (1, "Upsample", zeros((1, 1, 2, 2)), {"height_scale": 2.0, "width_scale": 3.0}, None),
        (
            10,
            "QuantizeLinear",
            [*zeros((2, 3), (1,)), np.zeros(1, np.uint8)],
            {},
            [
                *("n/y_scale/Reshape", "  n/y_scale/shape"),
                *("n/y_zero_point/Reshape", "  n/y_zero_point/shape", "n"),
            ],
        ),
        (
            10,
            "Resize",
            [*zeros((1, 1, 2, 2)), np.array([1, 1, 2, 0.5], np.float32)],
            {"constants": [1]},
            ["n/Resize", "  n/enlarge", "n", "  n/scales"],
        ),
        (9, "Erf", [np.zeros(2, np.int8)], {}, ["n/double", "n", "n/Cast"]),
        (1, "Reshape", zeros((2, 3)), {"shape": [6]}, ["n", "  n/shape"]),
        (9, "TopK", zeros((2, 3)), {"k": 2, "outputs": ["a", "b"]}, ["n", "  n/K"]),
        (2, "Pad", zeros((2,)), {"pads": [1, 1]}, ["n", "  n/pads", "  n/constant_value"]),
        (1, "Pad", zeros((2,)), {"paddings": [1, 1]}, ["n", "  n/pads", "  n/constant_value"]),
    ],
)
def test_names_of_what_is_new(
    opset: int, operator: str, inputs: list[Array], named: dict[str, Any], wanted: list[str] | None
) -> None:
    assert names(upgraded(opset, operator, inputs, **named)) == (wanted or ["n", "  n/scales"])


@pytest.mark.parametrize(
    ("opset", "operator", "inputs", "named"),
    [(11, "Softmax", zeros((2, 3, 4)), {}), (8, "BatchNormalization", STATISTICS, {"spatial": 0})],
)
def test_a_shape_with_an_extent_of_0_is_taken_as_it_is(
    opset: int, operator: str, inputs: list[Array], named: dict[str, Any]
) -> None:
    nodes = upgraded(opset, operator, inputs, **named)
    found = [node.attributes["allowzero"].value for node in nodes if node.op_type == "Reshape"]
    assert found == [1, 1]


def test_repeats_of_one_axis() -> None:
    counts = [np.array(n, np.float32) for n in (3, 1)]
    assert names(upgraded(5, "Tile", [*zeros((2, 3)), *counts], [1, 2])) == ["n", "  n/repeats"]


def test_the_result_keeps_its_name() -> None:
    softmax, reshape = upgraded(11, "Softmax", zeros((2, 3, 4)))[1:]
    assert [value.name for value in softmax.outputs] == ["n/output"]
    assert [value.name for value in reshape.outputs] == ["y"]


def test_statistics_keep_their_names() -> None:
    outputs = ["y", "mean", "var"]
    nodes = upgraded(8, "BatchNormalization", STATISTICS, outputs=outputs, spatial=0)
    assert names(nodes)[2:] == [
        *("n", "n/Reshape", "  n/shape"),
        *("n/Reshape", "  n/1/shape", "n/Reshape", "  n/2/shape"),
    ]
    assert [[value.name for value in node.outputs] for node in nodes[1:]] == [
        ["n/Y", "n/mean", "n/var"],
        *(["y"], ["mean"], ["var"]),
    ]


def test_what_a_node_without_a_name_is_called_after() -> None:
    def label(name: str | None, *outputs: str) -> str:
        made = [ir.Value(name=output) for output in outputs]
        return label_of(ir.Node("", "Relu", [], name=name, outputs=made))

    assert label("n", "y") == "n"
    assert label(None, "", "y", "z") == "y"
    assert label("", "") == "Relu"
    assert label(None) == "Relu"


@pytest.mark.parametrize(
    ("opset", "operator", "place", "name"),
    [(6, "Add", 0, "A"), (6, "Add", 1, "B"), (7, "Sum", 1, "data_0")],
)
def test_shapes_that_an_old_version_needs(opset: int, operator: str, place: int, name: str) -> None:
    node = loaded(opset, operator, zeros((2,), (2,)))
    value, schema = node.inputs[place], schema_at("", operator, opset)
    assert value is not None
    assert schema is not None
    value.shape = None
    with pytest.raises(RefusalError) as caught:
        upgrade(node, schema)
    fact = f"the shape of input {name} must be known for this version"
    assert (caught.value.kind, caught.value.fact) == (Kind.SHAPE_UNKNOWN, fact)
