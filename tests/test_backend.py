"""ONNX's own backend tests of the supported operators, and the rest of the backend interface."""

import importlib
import unittest
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.backend.test import BackendTest, loader
from onnx.backend.test.case.test_case import TestCase
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

from onnxc import backend
from onnxc.errors import ModelError, UsageError

OPERATORS = ("constant", "equal", "identity", "size", "unsqueeze")
TESTS = [
    "test_constant_cpu",
    "test_equal_cpu",
    "test_equal_bcast_cpu",
    "test_equal_int8_cpu",
    "test_equal_int16_cpu",
    "test_equal_string_cpu",
    "test_equal_string_broadcast_cpu",
    "test_equal_uint8_cpu",
    "test_equal_uint16_cpu",
    "test_equal_uint32_cpu",
    "test_equal_uint64_cpu",
    "test_identity_cpu",
    "test_size_cpu",
    "test_size_example_cpu",
]
# ONNX's tests of Unsqueeze have the axes as an input, so that no shape is known at compile time.
UNSQUEEZE = [
    "test_unsqueeze_axis_0_cpu",
    "test_unsqueeze_axis_1_cpu",
    "test_unsqueeze_axis_2_cpu",
    "test_unsqueeze_negative_axes_cpu",
    "test_unsqueeze_three_axes_cpu",
    "test_unsqueeze_two_axes_cpu",
    "test_unsqueeze_unsorted_axes_cpu",
]
REFUSED = {
    "test_identity_sequence_cpu": r"input 'x': seq\(.*\) is not supported; only tensors are",
    "test_identity_opt_cpu": r"input 'opt_in': optional\(.*\) is not supported; only tensors are",
    **dict.fromkeys(UNSQUEEZE, "input axes must be known at compile time"),
}


@pytest.fixture(scope="module")
def runner_cases() -> list[TestCase]:
    """The runner's cases of the operators.

    Only their modules are loaded: to make up the examples of all operators takes seconds.
    """
    for operator in OPERATORS:
        importlib.import_module(f"onnx.backend.test.case.node.{operator}")
    nodes = importlib.import_module("onnx.backend.test.case.node")
    return [case for case in nodes._NodeTestCases if case.name.split("_")[1] in OPERATORS]


@pytest.fixture(scope="module")
def runner_tests(runner_cases: list[TestCase]) -> dict[str, unittest.TestCase]:
    """The runner's tests of the operators, by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loader, "load_node_model_tests", lambda: runner_cases)
        classes = BackendTest(backend.OnnxcBackend, __name__).test_cases
    case = classes["OnnxBackendNodeModelTest"]
    return {name: case(name) for name in vars(case) if name.endswith("_cpu")}


def test_the_lists_are_complete(runner_tests: dict[str, unittest.TestCase]) -> None:
    assert runner_tests.keys() == {*TESTS, *REFUSED}


@pytest.mark.parametrize("name", TESTS)
def test_onnx(name: str, runner_tests: dict[str, unittest.TestCase]) -> None:
    runner_tests[name].debug()


@pytest.mark.parametrize("name", REFUSED)
def test_onnx_refused(name: str, runner_tests: dict[str, unittest.TestCase]) -> None:
    with pytest.raises(ModelError, match=REFUSED[name]):
        runner_tests[name].debug()


@pytest.mark.parametrize("name", UNSQUEEZE)
def test_onnx_unsqueeze_of_known_axes(name: str, runner_cases: list[TestCase]) -> None:
    """The refused cases once their axes are an initializer, as the message says."""
    (case,) = (case for case in runner_cases if f"{case.name}_cpu" == name)
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    _, axes = model.graph.input
    assert case.data_sets
    for (x, values), wanted in case.data_sets:
        del model.graph.initializer[:]
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, axes.name))
        (found,) = backend.run_model(model, [x])
        np.testing.assert_array_equal(found, wanted[0], strict=True)


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
