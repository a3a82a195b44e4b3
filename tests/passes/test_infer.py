"""infer: types and shapes in one walk, constants folded within a limit, every problem told."""

import numpy as np
import onnx_ir as ir
import pytest
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from onnxc.errors import ModelError
from onnxc.op import REGISTRY, Operator
from onnxc.passes.infer import FOLD_LIMIT, infer
from onnxc.passes.load import load
from onnxc.tensor import Tensor
from onnxc.values import values_of
from tests.models import model, stored

FLOAT, BOOL, INT64 = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64
tensor = helper.make_tensor_value_info


def graph(
    nodes: list[NodeProto],
    inputs: list[ValueInfoProto],
    outputs: list[ValueInfoProto],
    constants: dict[str, np.ndarray] | None = None,
) -> GraphProto:
    data = [stored(name, array) for name, array in (constants or {}).items()]
    return helper.make_graph(nodes, "g", inputs, outputs, data)


def inferred(proto: GraphProto | ModelProto) -> dict[str, ir.Value]:
    """Every value that a node makes, by name."""
    found = load(model(proto) if isinstance(proto, GraphProto) else proto)
    infer(found)
    return {str(value.name): value for node in found.graph for value in node.outputs}


def known(value: ir.Value) -> list[object]:
    assert value.const_value is not None
    array = values_of(value.const_value)
    return list(array.reshape(-1).tolist())


def test_types_and_shapes_of_what_is_not_declared() -> None:
    nodes = [
        helper.make_node("Equal", ["a", "b"], ["c"]),
        helper.make_node("Identity", ["c"], ["d"]),
        helper.make_node("Size", ["d"], ["n"]),
    ]
    inputs = [tensor("a", FLOAT, [3, 1, 5]), tensor("b", FLOAT, [4, 1])]
    values = inferred(graph(nodes, inputs, [tensor("n", INT64, [])]))
    assert [(v.dtype, v.shape) for v in values.values()] == [
        (ir.DataType.BOOL, ir.Shape([3, 4, 5])),
        (ir.DataType.BOOL, ir.Shape([3, 4, 5])),
        (ir.DataType.INT64, ir.Shape([])),
    ]


def test_what_does_not_depend_on_inputs_is_folded() -> None:
    """Size of an input does not: only its shape is asked for."""
    nodes = [
        helper.make_node("Equal", ["v", "w"], ["same"]),
        helper.make_node("Identity", ["same"], ["again"]),
        helper.make_node("Size", ["x"], ["n"]),
        helper.make_node("Equal", ["n", "m"], ["known"]),
        helper.make_node("Equal", ["x", "v"], ["open"]),
    ]
    constants = {
        "v": np.array([1, np.nan, 0], np.float32),
        "w": np.array([1, np.nan, -0.0], np.float32),
        "m": np.array(6),
    }
    outputs = [tensor("open", BOOL, [2, 3]), tensor("again", BOOL, [3]), tensor("known", BOOL, [])]
    values = inferred(graph(nodes, [tensor("x", FLOAT, [2, 3])], outputs, constants))
    assert known(values["again"]) == [True, False, True]
    assert known(values["n"]) == [6]
    assert known(values["known"]) == [True]
    assert values["open"].const_value is None


@pytest.mark.parametrize(("extent", "folded"), [(200, True), (300, False)])
def test_results_that_would_swell_the_output_are_not_folded(extent: int, folded: bool) -> None:
    assert (extent**2 - 8 * extent > FOLD_LIMIT) is not folded
    constants = {
        "v": np.zeros((extent, 1), np.float32),
        "w": np.zeros((1, extent), np.float32),
    }
    node = helper.make_node("Equal", ["v", "w"], ["y"])
    values = inferred(graph([node], [], [tensor("y", BOOL, [extent, extent])], constants))
    assert (values["y"].const_value is not None) is folded


def test_every_problem_is_told_once() -> None:
    """Also those behind a node that is refused, but not what only follows from it."""
    nodes = [
        helper.make_node("Equal", ["a", "b"], ["c"], name="first"),
        helper.make_node("Identity", ["c"], ["d"], name="follows"),
        helper.make_node("Equal", ["a", "i"], ["e"], name="second"),
        helper.make_node("Size", [], ["n"], name="third"),
    ]
    inputs = [tensor("a", FLOAT, [2]), tensor("b", FLOAT, [3]), tensor("i", INT64, [2])]
    outputs = [tensor("d", BOOL, [2]), tensor("e", BOOL, [2]), tensor("n", INT64, [])]
    with pytest.raises(ModelError) as caught:
        inferred(graph(nodes, inputs, outputs))
    told = [problem.where.split("'")[1] for problem in caught.value.problems]
    assert told == ["first", "second", "third"]


def test_a_node_keeps_the_types_of_its_own_version() -> None:
    """Equal-7 takes no floats, Equal-11 does."""
    node = helper.make_node("Equal", ["a", "a"], ["y"], name="n")
    proto = graph([node], [tensor("a", FLOAT, [2])], [tensor("y", BOOL, [2])])
    assert inferred(model(proto, 11))["y"].dtype is ir.DataType.BOOL
    with pytest.raises(ModelError, match=r"node 'n' \(Equal-7\)"):
        inferred(model(proto, 7))


def test_dequantized_constants_are_not_folded() -> None:
    """Later passes want the small weights."""
    node = helper.make_node("DequantizeLinear", ["q", "s"], ["y"])
    constants: dict[str, np.ndarray] = {
        "q": np.array([1, 2], np.int8),
        "s": np.array(0.5, np.float32),
    }
    values = inferred(graph([node], [], [tensor("y", FLOAT, [2])], constants))
    assert values["y"].const_value is None


@pytest.mark.parametrize(("limit", "folded"), [(63, False), (64, True)])
def test_what_takes_too_many_points_is_not_folded(
    limit: int, folded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxc.passes.infer.POINT_LIMIT", limit)
    node = helper.make_node("Equal", ["v", "w"], ["y"])
    constants = {"v": np.zeros((8, 1), np.float32), "w": np.zeros((1, 8), np.float32)}
    values = inferred(graph([node], [], [tensor("y", BOOL, [8, 8])], constants))
    assert (values["y"].const_value is not None) is folded


@pytest.mark.parametrize(
    ("opset", "operator", "inputs", "newest"),
    [
        (10, "Upsample", ["x", "scales"], "Resize"),
        (11, "Scatter", ["x", "places", "x"], "ScatterElements"),
    ],
)
def test_deprecated_operators_become_what_replaced_them(
    opset: int, operator: str, inputs: list[str], newest: str
) -> None:
    constants: dict[str, np.ndarray] = {
        "scales": np.array([2], np.float32),
        "places": np.array([1, 0]),
    }
    node = helper.make_node(operator, inputs, ["y"], name="n")
    used = {name: array for name, array in constants.items() if name in inputs}
    proto = graph([node], [tensor("x", FLOAT, [2])], [tensor("y", FLOAT, None)], used)
    found = load(model(proto, opset))
    infer(found)
    assert [node.op_type for node in found.graph] == [newest]
    assert found.graph.outputs[0].shape == ir.Shape([4 if operator == "Upsample" else 2])


def test_nodes_that_replace_one_have_names_of_their_own() -> None:
    """Two nodes of the same name, and a value that is called as one of the new would be."""
    nodes = [
        helper.make_node("Softmax", ["x"], ["n/output"], name="n", axis=0),
        helper.make_node("Softmax", ["x"], ["y"], name="n", axis=0),
    ]
    outputs = [tensor("n/output", FLOAT, [2, 3]), tensor("y", FLOAT, [2, 3])]
    values = inferred(model(graph(nodes, [tensor("x", FLOAT, [2, 3])], outputs), 12))
    assert list(values) == [
        "n/input/Reshape",
        "n/output_2",
        "n/output",
        "n/input/Reshape_2",
        "n/output_3",
        "y",
    ]


@pytest.mark.parametrize(("axis", "fine"), [(-1, True), (0, False)])
def test_an_attribute_that_says_the_default_is_no_problem(
    axis: int, fine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function that does not take an attribute does what its default says."""

    def function(input: Tensor) -> Tensor:
        return input

    monkeypatch.setitem(REGISTRY, ("", "Softmax"), Operator("", "Softmax", function, True))
    node = helper.make_node("Softmax", ["x"], ["y"], name="n", axis=axis)
    proto = graph([node], [tensor("x", FLOAT, [2])], [tensor("y", FLOAT, [2])])
    if fine:
        inferred(proto)
        return
    with pytest.raises(ModelError, match="attribute axis is not supported"):
        inferred(proto)


def test_a_result_of_another_shape_than_inferred_is_a_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def function(tensor: Tensor) -> Tensor:
        return tensor.unsqueeze([0])

    monkeypatch.setitem(REGISTRY, ("", "Neg"), Operator("", "Neg", function, True))
    node = helper.make_node("Neg", ["x"], ["y"], name="n")
    with pytest.raises(ModelError, match=r"has shape \[2\] but is computed as \[1, 2\]"):
        inferred(graph([node], [tensor("x", FLOAT, [2])], [tensor("y", FLOAT, [2])]))
