"""The rules of upgrade: what an old version meant, computed by ONNX from its newest form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from onnxc.errors import RefusalError
from onnxc.op import OPSET, schema_at
from onnxc.passes.load import load
from onnxc.passes.upgrade import upgrade
from tests.models import Array, declared, model, stored

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4) / 8
FLOAT = onnx.TensorProto.FLOAT


def loaded(
    opset: int,
    operator: str,
    inputs: Sequence[Array | None],
    constants: Sequence[int] = (),
    outputs: Sequence[str] = ("y",),
    **attributes: Any,
) -> ir.Node:
    names = ["" if array is None else f"x{n}" for n, array in enumerate(inputs)]
    node = helper.make_node(operator, names, list(outputs), name="n", **attributes)
    given = [(n, a) for n, a in enumerate(inputs) if a is not None]
    graph = helper.make_graph(
        [node],
        "g",
        [declared(f"x{n}", a) for n, a in given if n not in constants],
        [helper.make_empty_tensor_value_info(name) for name in outputs if name],
        [stored(f"x{n}", a) for n, a in given if n in constants],
    )
    return next(iter(load(model(graph, opset)).graph))


def upgraded(opset: int, operator: str, *args: Any, **named: Any) -> list[ir.Node]:
    node = loaded(opset, operator, *args, **named)
    schema = schema_at("", operator, opset)
    assert schema is not None
    return upgrade(node, schema)


def newest_model(nodes: Sequence[ir.Node], outputs: Sequence[str]) -> onnx.ModelProto:
    values = {v for node in nodes for v in node.inputs if v is not None}
    constants = {str(v.name): v.const_value for v in values if v.const_value is not None}
    graph = helper.make_graph(
        [ir.serde.serialize_node(node) for node in nodes],
        "g",
        [
            helper.make_empty_tensor_value_info(str(v.name))
            for v in values
            if v.producer() is None and v.const_value is None
        ],
        [helper.make_empty_tensor_value_info(name) for name in outputs if name],
    )
    for name, tensor in constants.items():
        proto = ir.serde.serialize_tensor(tensor)
        proto.name = name
        graph.initializer.append(proto)
    return model(graph, OPSET)


def computed(
    opset: int,
    operator: str,
    inputs: Sequence[Array | None],
    constants: Sequence[int] = (),
    outputs: Sequence[str] = ("y",),
    **attributes: Any,
) -> list[Array]:
    nodes = upgraded(opset, operator, inputs, constants, outputs, **attributes)
    feed = {f"x{n}": a for n, a in enumerate(inputs) if a is not None and n not in constants}
    evaluator = ReferenceEvaluator(newest_model(nodes, outputs))
    return list(evaluator.run(None, feed))


def operators(nodes: Sequence[ir.Node]) -> list[str]:
    return [node.op_type for node in nodes]


# Softmax before 13


def flat_softmax(x: Array, axis: int) -> Array:
    flat = x.reshape(int(np.prod(x.shape[:axis])), -1).astype(np.float64)
    power = np.exp(flat - flat.max(1, keepdims=True))
    return np.asarray(power / power.sum(1, keepdims=True)).reshape(x.shape)


@pytest.mark.parametrize("opset", [1, 11, 12])
@pytest.mark.parametrize("axis", [0, 1, 2, None])
def test_softmax_took_all_dimensions_from_axis_on(opset: int, axis: int | None) -> None:
    given: dict[str, Any] = {} if axis is None else {"axis": axis}
    start = 1 if axis is None else axis
    (y,) = computed(opset, "Softmax", [X], **given)
    np.testing.assert_allclose(y, flat_softmax(X, start), rtol=1e-6)
    (y,) = computed(opset, "LogSoftmax", [X], **given)
    np.testing.assert_allclose(y, np.log(flat_softmax(X, start)), rtol=1e-5)
    (y,) = computed(opset, "Hardmax", [X], **given)
    assert y.sum() == np.prod(X.shape[:start])


@pytest.mark.parametrize(
    ("shape", "axis", "newest"),
    [
        ((2, 3, 4), 2, 2),
        ((2, 3, 4), -1, 2),
        ((2, 3, 1, 1), 1, 1),
        ((2, 1, 1, 5), 1, 3),
        ((2, 1, 1), 1, 1),
    ],
)
def test_softmax_over_one_dimension_is_one_node(
    shape: tuple[int, ...], axis: int, newest: int
) -> None:
    (node,) = upgraded(11, "Softmax", [np.zeros(shape, np.float32)], axis=axis)
    assert node.attributes["axis"].value == newest


@pytest.mark.parametrize(("shape", "axis"), [((2, 3), 2), ((2, 3), -3), ((4,), 1), ((), 0)])
def test_softmax_needs_an_axis_of_its_input(shape: tuple[int, ...], axis: int) -> None:
    with pytest.raises(RefusalError, match=f"axis {axis} "):
        upgraded(11, "Softmax", [np.zeros(shape, np.float32)], axis=axis)


def test_the_node_keeps_its_name_and_version_and_the_output_its_name() -> None:
    before, node, after = upgraded(11, "Softmax", [X], axis=0)
    assert (before.op_type, node.op_type, after.op_type) == ("Reshape", "Softmax", "Reshape")
    assert (node.name, node.version) == ("n", 11)
    assert (before.name, after.name) == ("n/input/Reshape", "n/Reshape")
    assert after.outputs[0].name == "y"
    assert after.outputs[0].is_graph_output()


# Broadcasting before 7


@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul", "Div", "Pow"])
@pytest.mark.parametrize(("axis", "shape"), [(0, (2,)), (1, (3,)), (0, (2, 3)), (None, (4,))])
def test_legacy_broadcast(operator: str, axis: int | None, shape: tuple[int, ...]) -> None:
    b = np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)
    place = 3 - len(shape) if axis is None else axis
    wide = b.reshape(shape + (1,) * (3 - len(shape) - place))
    given: dict[str, Any] = {} if axis is None else {"axis": axis}
    (y,) = computed(6, operator, [X, b], broadcast=1, **given)
    function = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}
    np.testing.assert_allclose(y, function.get(operator, np.power)(X, wide), rtol=1e-6)


@pytest.mark.parametrize("operator", ["Sum", "Max", "Min", "Mean"])
@pytest.mark.parametrize("opset", [1, 7])
def test_variadic_operators_did_not_broadcast(operator: str, opset: int) -> None:
    assert len(upgraded(opset, operator, [X, X, X])) == 1
    with pytest.raises(RefusalError, match="does not broadcast"):
        upgraded(opset, operator, [X, X, X[:1]])
    assert len(upgraded(8, operator, [X, X, X[:1]])) == 1


def test_prelu_had_a_slope_a_channel() -> None:
    slope = np.array([1, 2, 3], np.float32)
    (y,) = computed(6, "PRelu", [-X, slope])
    np.testing.assert_array_equal(y, -X * slope[:, None])
    (y,) = computed(6, "PRelu", [-X, slope[1:2]])
    np.testing.assert_array_equal(y, -X * 2)
    (y,) = computed(7, "PRelu", [-X, np.arange(4, dtype=np.float32)])
    np.testing.assert_array_equal(y, -X * np.arange(4))
    with pytest.raises(RefusalError, match="4 elements for 3 channels"):
        upgraded(6, "PRelu", [X, np.zeros(4, np.float32)])


def test_gemm_broadcast_its_bias_when_told_to() -> None:
    a, b = X[0], np.ones((3, 5), np.float32)
    bias = np.arange(5, dtype=np.float32)
    (y,) = computed(6, "Gemm", [a, b, bias], transA=1, broadcast=1)
    np.testing.assert_allclose(y, a.T @ b + bias)
    (y,) = computed(6, "Gemm", [a, b, np.ones((4, 5), np.float32)], transA=1)
    np.testing.assert_allclose(y, a.T @ b + 1)
    with pytest.raises(RefusalError, match="broadcast is 0"):
        upgraded(6, "Gemm", [a, b, bias], transA=1)


# Normalisation


def statistics(*shape: int) -> list[Array]:
    generator = np.random.default_rng(1)
    return [generator.uniform(0.5, 2, shape).astype(np.float32) for _ in range(4)]


def normalised(x: Array, values: Sequence[Array]) -> Array:
    scale, bias, mean, variance = values
    return np.asarray((x - mean) / np.sqrt(variance + 1e-5) * scale + bias)


@pytest.mark.parametrize(("opset", "given"), [(1, {"is_test": 1}), (6, {"is_test": 1}), (8, {})])
def test_batch_normalization_of_each_activation(opset: int, given: dict[str, Any]) -> None:
    values = statistics(3, 4)
    (y,) = computed(opset, "BatchNormalization", [X, *values], spatial=0, **given)
    np.testing.assert_allclose(y, normalised(X, values), rtol=1e-5)
    values = statistics(3)
    (y,) = computed(opset, "BatchNormalization", [X, *values], **given)
    np.testing.assert_allclose(y, normalised(X, [v[:, None] for v in values]), rtol=1e-5)


@pytest.mark.parametrize("spatial", [0, 1])
def test_batch_normalization_in_training_gave_more_outputs(spatial: int) -> None:
    values = statistics(3, 4) if not spatial else statistics(3)
    y, mean, variance = computed(
        7,
        "BatchNormalization",
        [X, *values],
        outputs=("y", "m", "v"),
        spatial=spatial,
        momentum=0.5,
    )
    axes = (0, 2) if spatial else (0,)
    np.testing.assert_allclose(mean, values[2] / 2 + X.mean(axes) / 2, rtol=1e-5)
    np.testing.assert_allclose(variance, values[3] / 2 + X.var(axes) / 2, rtol=1e-5)
    np.testing.assert_allclose(y.mean(axes), values[1], rtol=1e-4)


@pytest.mark.parametrize(
    ("opset", "outputs", "given", "fact"),
    [
        (6, ("y",), {}, "is_test is 0, but no result"),
        (6, ("y", "m", "v"), {"is_test": 1}, "is_test is 1, but the statistics"),
        (9, ("y", "m", "v", "sm"), {}, "output saved_mean is not supported"),
    ],
)
def test_batch_normalization_that_has_no_newest_form(
    opset: int, outputs: tuple[str, ...], given: dict[str, Any], fact: str
) -> None:
    with pytest.raises(RefusalError, match=fact):
        upgraded(opset, "BatchNormalization", [X, *statistics(3)], outputs=outputs, **given)


@pytest.mark.parametrize("opset", [18, 20])
def test_group_normalization_had_a_scale_a_group(opset: int) -> None:
    x = np.random.default_rng(2).normal(size=(2, 6, 5)).astype(np.float32)
    scale, bias = np.array([2, 3], np.float32), np.array([-1, 1], np.float32)
    (y,) = computed(opset, "GroupNormalization", [x, scale, bias], num_groups=2)
    grouped = x.reshape(2, 2, -1)
    mean, variance = grouped.mean(2, keepdims=True), grouped.var(2, keepdims=True)
    wanted = (grouped - mean) / np.sqrt(variance + 1e-5) * scale[:, None] + bias[:, None]
    np.testing.assert_allclose(y, wanted.reshape(x.shape), rtol=1e-4, atol=1e-5)
    with pytest.raises(RefusalError, match="no 4 groups"):
        upgraded(18, "GroupNormalization", [x, scale, bias], num_groups=4)


@pytest.mark.parametrize("opset", [1, 6, 7])
def test_dropout(opset: int) -> None:
    """The mask was of the data's type."""
    given: dict[str, Any] = {"is_test": 1} if opset < 7 else {}
    y, mask = computed(opset, "Dropout", [X], outputs=("y", "m"), ratio=0.25, **given)
    np.testing.assert_array_equal(y, X)
    assert (mask.dtype, mask.tolist()) == (X.dtype, np.ones_like(X).tolist())
    if opset < 7:
        with pytest.raises(RefusalError, match="at random"):
            upgraded(opset, "Dropout", [X])


# Resampling


@pytest.mark.parametrize(
    ("opset", "operator", "given"),
    [
        (1, "Upsample", {"height_scale": 2.0, "width_scale": 1.5}),
        (7, "Upsample", {"scales": [1.0, 1.0, 2.0, 1.5]}),
        (9, "Upsample", None),
        (10, "Upsample", None),
        (10, "Resize", None),
    ],
)
def test_enlarging_takes_the_sample_below(
    opset: int, operator: str, given: dict[str, Any] | None
) -> None:
    x = X[None, :, :, :]
    scales = [] if given else [np.array([1, 1, 2, 1.5], np.float32)]
    (y,) = computed(opset, operator, [x, *scales], [1], **(given or {}))
    assert y.shape == (1, 2, 6, 6)
    rows, columns = np.arange(6) // 2, np.array([0, 0, 1, 2, 2, 3])
    np.testing.assert_array_equal(y, x[:, :, rows][:, :, :, columns])


@pytest.mark.parametrize(
    ("opset", "operator", "mode"),
    [(1, "Upsample", "bilinear"), (9, "Upsample", "linear"), (10, "Resize", "linear")],
)
def test_linear_samples_lie_at_multiples_of_the_inverse(
    opset: int, operator: str, mode: str
) -> None:
    x = np.array([0, 1, 3], np.float32).reshape(1, 1, 1, 3)
    scales = [] if opset == 1 else [np.array([1, 1, 1, 2], np.float32)]
    given: dict[str, Any] = {"height_scale": 1.0, "width_scale": 2.0} if opset == 1 else {}
    (y,) = computed(opset, operator, [x, *scales], [1], mode=mode, **given)
    assert y.reshape(-1).tolist() == [0, 0.5, 1, 2, 3, 3]


def test_resize_10_takes_the_sample_above_when_it_shrinks() -> None:
    """The example of that version: 1.67 is sample 2."""
    x = np.arange(1, 9, dtype=np.float32).reshape(1, 1, 2, 4)
    (y,) = computed(10, "Resize", [x, np.array([1, 1, 0.6, 0.6], np.float32)], [1])
    assert y.tolist() == [[[[1, 3]]]]
    (y,) = computed(10, "Resize", [x, np.array([1, 1, 2, 0.6], np.float32)], [1])
    assert y.tolist() == [[[[1, 3], [1, 3], [5, 7], [5, 7]]]]


def test_resize_10_needs_to_know_its_scales() -> None:
    with pytest.raises(RefusalError, match="scales must be known at compile time"):
        upgraded(10, "Resize", [X, np.ones(3, np.float32)])


@pytest.mark.parametrize("opset", [11, 13, 18])
def test_operands_of_resize_without_elements_are_left_out(opset: int) -> None:
    empty = np.zeros(0, np.float32)
    (node,) = upgraded(opset, "Resize", [X, empty, empty, np.array([2, 3, 8])])
    assert [value is None for value in node.inputs] == [False, True, True, False]
    (node,) = upgraded(opset, "Resize", [X, empty, np.ones(3, np.float32), empty])
    assert [value is None for value in node.inputs] == [False, True, False, True]


# Attributes that became inputs, and other words for the same


@pytest.mark.parametrize(
    ("opset", "operator", "given", "position", "name", "wanted"),
    [
        (1, "Reshape", {"shape": [4, 6]}, 1, "shape", np.array([4, 6])),
        (6, "Clip", {"min": 0.5}, 1, "min", np.float32(0.5)),
        (6, "Clip", {"min": 0.5}, 2, "max", np.finfo(np.float32).max),
        (2, "Pad", {"pads": [0] * 6, "value": 2.0}, 1, "pads", np.zeros(6, np.int64)),
        (2, "Pad", {"pads": [0] * 6, "value": 2.0}, 2, "constant_value", np.float32(2)),
        (1, "Pad", {"paddings": [0] * 6}, 1, "pads", np.zeros(6, np.int64)),
        (1, "Slice", {"starts": [1], "ends": [9], "axes": [2]}, 3, "axes", np.array([2])),
        (1, "TopK", {"k": 2}, 1, "K", np.array([2])),
        (12, "ReduceMean", {"axes": [0, 1]}, 1, "axes", np.array([0, 1])),
        (11, "Squeeze", {"axes": [0]}, 1, "axes", np.array([0])),
        (2, "Split", {"split": [4]}, 1, "split", np.array([4])),
        (17, "DFT", {}, 2, "axis", np.array(1)),
        (10, "Dropout", {}, 1, "ratio", np.float32(0.5)),
    ],
)
def test_inputs_that_were_attributes(
    opset: int, operator: str, given: dict[str, Any], position: int, name: str, wanted: Array
) -> None:
    outputs = ("y", "i") if operator == "TopK" else ("y",)
    (node,) = upgraded(opset, operator, [X[:1]], outputs=outputs, **given)
    value = node.inputs[position]
    assert value is not None
    assert value.name == f"n/{name}"
    assert value.const_value is not None
    array = value.const_value.numpy()
    wanted = np.asarray(wanted)
    assert (array.dtype, array.shape) == (wanted.dtype, wanted.shape)
    assert array.tolist() == wanted.tolist()


def test_such_a_constant_has_the_type_of_the_data() -> None:
    for dtype in (np.float16, np.float64):
        (node,) = upgraded(6, "Clip", [X.astype(dtype)])
        bounds = [v.const_value for v in node.inputs[1:] if v is not None]
        assert [b.numpy().dtype for b in bounds if b is not None] == [dtype, dtype]
    (node,) = upgraded(1, "Clip", [X], max=1.0)
    assert node.inputs[1] is None  # version 1 had no bound where none was given


def test_pad_has_no_value_in_other_modes() -> None:
    (node,) = upgraded(2, "Pad", [X], pads=[0] * 6, mode="edge")
    assert len(node.inputs) == 2


@pytest.mark.parametrize(
    ("opset", "operator", "inputs", "given", "wanted"),
    [
        (5, "Cast", 1, {"to": "FLOAT16"}, {"to": 10}),
        (1, "Concat", 2, {}, {"axis": 1}),
        (3, "Concat", 2, {"axis": 0}, {"axis": 0}),
        (1, "LpPool", 1, {"kernel_shape": [2], "p": 3.0}, {"p": 3}),
        (1, "GlobalLpPool", 1, {}, {"p": 2}),
        (10, "RoiAlign", 3, {}, {"coordinate_transformation_mode": "output_half_pixel"}),
        (16, "RoiAlign", 3, {}, {"coordinate_transformation_mode": "half_pixel"}),
        (16, "GridSample", 2, {}, {"mode": "linear"}),
        (16, "GridSample", 2, {"mode": "bicubic"}, {"mode": "cubic"}),
        (16, "GridSample", 2, {"mode": "nearest"}, {"mode": "nearest"}),
        (1, "GRU", 3, {"hidden_size": 2}, {"direction": "forward", "layout": 0}),
        (13, "Split", 1, {"axis": 1}, {"num_outputs": 1}),
    ],
)
def test_attributes_in_other_words(
    opset: int, operator: str, inputs: int, given: dict[str, Any], wanted: dict[str, Any]
) -> None:
    (node,) = upgraded(opset, operator, [X] * inputs, **given)
    assert {name: node.attributes[name].value for name in wanted} == wanted


@pytest.mark.parametrize("operator", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("asked", [0, 1])
def test_output_sequence_says_what_the_outputs_say(operator: str, asked: int) -> None:
    (node,) = upgraded(6, operator, [X] * 3, hidden_size=2, output_sequence=asked)
    assert "output_sequence" not in node.attributes


@pytest.mark.parametrize(
    ("opset", "operator", "inputs", "given", "fact"),
    [
        (5, "Cast", 1, {"to": "INT65"}, "to is 'INT65'"),
        (1, "LpPool", 1, {"kernel_shape": [2], "p": 1.5}, "p is 1.5"),
        (1, "LpPool", 1, {}, "attribute kernel_shape is missing"),
        (1, "Reshape", 1, {}, "shape is missing"),
        (1, "Split", 1, {}, "axis is missing"),
        (8, "Scan", 2, {"num_scan_inputs": 1, "body": helper.make_graph([], "b", [], [])}, "batch"),
    ],
)
def test_what_the_newest_form_cannot_say(
    opset: int, operator: str, inputs: int, given: dict[str, Any], fact: str
) -> None:
    with pytest.raises(RefusalError, match=fact):
        upgraded(opset, operator, [X] * inputs, **given)


def test_equal_parts_are_equal() -> None:
    (node,) = upgraded(11, "Split", [X], outputs=("a", "b"), axis=-1)
    assert node.attributes["num_outputs"].value == 2
    with pytest.raises(RefusalError, match="3 elements on axis 1 are no 2 equal parts"):
        upgraded(11, "Split", [X], outputs=("a", "b"), axis=1)
    (node,) = upgraded(18, "Split", [X], outputs=("a", "b"), axis=1, num_outputs=2)


def test_tile_repeated_along_one_axis() -> None:
    counts = [np.array(n, np.float32) for n in (3, 1)]
    (y,) = computed(5, "Tile", [X, *counts], [1, 2])
    np.testing.assert_array_equal(y, np.tile(X, (1, 3, 1)))
    with pytest.raises(RefusalError, match="tiles must be known"):
        upgraded(5, "Tile", [X, *counts])


def test_scatter_is_scatter_elements() -> None:
    for opset in (9, 11):
        (node,) = upgraded(opset, "Scatter", [X, np.zeros((1, 1, 1), np.int64), X[:1, :1, :1]])
        assert (node.op_type, node.version) == ("ScatterElements", OPSET)
        assert {n: a.value for n, a in node.attributes.items()} == {"axis": 0, "reduction": "none"}


def test_one_hot_of_negative_indices() -> None:
    """Before 11 they were out of range."""
    given: list[Array] = [np.array([0, -1, 2, 3]), np.array(3), np.array([0, 1], np.float32)]
    (y,) = computed(9, "OneHot", given)
    assert y.tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 1], [0, 0, 0]]
    (y,) = computed(11, "OneHot", given)
    assert y.tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 1], [0, 0, 0]]
    assert len(upgraded(9, "OneHot", [given[0].astype(np.uint8), *given[1:]])) == 1


def test_erf_took_integers() -> None:
    (y,) = computed(9, "Erf", [np.array([-9, 0, 9], np.int8)])
    assert y.dtype == np.int8
    assert y.tolist() == [-1, 0, 1]


def test_quantization_had_one_scale() -> None:
    scale = np.array([0.5], np.float32)
    (y,) = computed(10, "QuantizeLinear", [X, scale, np.array([1], np.uint8)])
    np.testing.assert_array_equal(y, np.rint(X * 2) + 1)
    with pytest.raises(RefusalError, match=r"y_scale has shape \[3\]"):
        upgraded(10, "QuantizeLinear", [X, np.ones(3, np.float32)])


@pytest.mark.parametrize(
    ("opset", "operator", "inputs"), [(22, "Relu", 1), (13, "Softmax", 1), (14, "Add", 2)]
)
def test_what_means_the_same_is_one_node(opset: int, operator: str, inputs: int) -> None:
    assert operators(upgraded(opset, operator, [X] * inputs)) == [operator]
