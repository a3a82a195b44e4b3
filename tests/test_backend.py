"""The backend interface: devices, inputs in every form, open dimensions, single nodes."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

from onnxc import backend
from onnxc.errors import ModelError, UsageError

X = np.array([[1, 2, 3]], np.float32)
Y = np.array([[1], [3]], np.float32)
EQUAL = [[True, False, False], [False, False, True]]


def equal_model() -> onnx.ModelProto:
    x = make_tensor_value_info("x", onnx.TensorProto.FLOAT, X.shape)
    y = make_tensor_value_info("y", onnx.TensorProto.FLOAT, Y.shape)
    z = make_tensor_value_info("z", onnx.TensorProto.BOOL, (2, 3))
    graph = make_graph([make_node("Equal", ["x", "y"], ["z"])], "g", [x, y], [z])
    return make_model(graph, opset_imports=[make_opsetid("", 19)])


@pytest.mark.parametrize("inputs", [[X, Y], (X, Y), {"y": Y, "x": X}])
def test_prepare_and_run(inputs: Any) -> None:
    outputs: Any = backend.prepare(equal_model()).run(inputs)
    assert outputs[0].tolist() == EQUAL
    assert outputs["z"].tolist() == EQUAL
    assert backend.run_model(equal_model(), inputs)[0].tolist() == EQUAL


def test_a_wrong_number_of_inputs() -> None:
    with pytest.raises(UsageError, match=r"1 inputs given; the model has 2: x, y"):
        backend.run_model(equal_model(), X)


def open_model() -> onnx.ModelProto:
    """Equal with the named dimensions N and M and one that has no name."""
    model = equal_model()
    x, y = (value.type.tensor_type.shape.dim for value in model.graph.input)
    x[0].dim_param, x[1].dim_param, y[0].dim_param = "N", "M", "N"
    y[1].Clear()
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "N"
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_param = "M"
    return model


@pytest.mark.parametrize("inputs", [[X, X], {"y": X, "x": X}])
@pytest.mark.parametrize("dims", [None, {"N": 1}, {"y:1": 3, "M": 3}])
def test_open_dimensions_take_the_sizes_of_the_arrays(inputs: Any, dims: Any) -> None:
    assert backend.is_compatible(open_model(), dims=dims)
    (output,) = backend.prepare(open_model(), dims=dims).run(inputs)
    assert output.tolist() == [[True] * 3]


def test_open_dimensions_may_have_other_sizes_in_each_run() -> None:
    prepared: Any = backend.prepare(open_model())
    for rows, columns in ((2, 3), (4, 1), (2, 3), (0, 5)):
        x = np.zeros((rows, columns), np.float32)
        assert prepared.run([x, x])["z"].tolist() == [[True] * columns] * rows


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([X, Y], r"input 'y': expected float32\[1,1\], got float32\[2,1\]"),
        ([X, X[0]], "axis 1 of input 'y' needs a size; the array has rank 1"),
        ({"x": X}, "input 'y': missing"),
        ([X], "1 inputs given; the model has 2: x, y"),
    ],
)
def test_arrays_that_do_not_fit_the_open_dimensions(inputs: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        backend.prepare(open_model()).run(inputs)


def test_sizes_that_the_model_cannot_have() -> None:
    prepared = backend.prepare(open_model())
    with pytest.raises(ModelError, match="Equal"):
        prepared.run([np.zeros((2, 3), np.float32), np.zeros((2, 2), np.float32)])


def test_other_problems_are_told_before_any_array_comes() -> None:
    model = open_model()
    model.graph.node[0].op_type = "Unheard"
    assert not backend.is_compatible(model)
    with pytest.raises(ModelError, match="Unheard"):
        backend.prepare(model)


@pytest.mark.parametrize("inputs", [[X, Y], {"y": Y, "x": X}])
@pytest.mark.parametrize("outputs_info", [None, [(np.dtype(np.bool_), (2, 3))]])
def test_run_node(inputs: Any, outputs_info: Any) -> None:
    node = make_node("Equal", ["x", "y"], ["z"])
    (output,) = backend.run_node(node, inputs, outputs_info=outputs_info)
    assert output.tolist() == EQUAL


def test_run_node_of_an_older_opset() -> None:
    node = make_node("Equal", ["x", "y"], ["z"], axis=0, broadcast=1)
    x = np.array([[1, 2], [3, 4]], np.int32)
    (output,) = backend.run_node(node, [x, np.array([1, 4], np.int32)], opset_version=1)
    assert output.tolist() == [[True, False], [False, True]]


def test_run_node_with_strings_and_one_array() -> None:
    node = make_node("Identity", ["x"], ["y"])
    (output,) = backend.run_node(node, [np.array(["a", "é"])])
    assert output.tolist() == ["a", "é"]
    (output,) = backend.run_node(make_node("Size", ["x"], ["y"]), {"x": X})
    assert output == 3


def test_devices() -> None:
    assert backend.supports_device("CPU")
    assert not backend.supports_device("CUDA")
    assert backend.is_compatible(equal_model())
    assert not backend.is_compatible(equal_model(), "CUDA:1")
    with pytest.raises(UsageError, match="device 'CUDA' is not supported; use 'CPU'"):
        backend.prepare(equal_model(), "CUDA")


def test_an_unknown_operator_is_not_compatible() -> None:
    model = equal_model()
    model.graph.node[0].op_type = "Unheard"
    assert not backend.is_compatible(model)
