"""infer: types and shapes in one walk, constants folded within a limit, every problem told."""

import numpy as np
import onnx_ir as ir
import pytest
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from onnxc.errors import ModelError
from onnxc.passes.infer import FOLD_LIMIT, infer
from onnxc.passes.load import load
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
