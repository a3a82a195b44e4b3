"""What infer and lower do for operator functions, shown by operators that onnxc has not yet."""

from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxc import op as operators
from onnxc.dtypes import BOOL
from onnxc.errors import ModelError
from onnxc.expression import Axis, Const, Fold, Index, along
from onnxc.kernel import Loops
from onnxc.pipeline import compile_model, evaluate_model
from onnxc.tensor import Tensor, compute

X = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 3])


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    operators.load_operators()
    before = dict(operators.REGISTRY)
    yield
    operators.REGISTRY.clear()
    operators.REGISTRY.update(before)


def test_signatures_are_those_of_the_schemas() -> None:
    for (domain, name), operator in operators.load_operators().items():
        schema = operators.newest_schema(domain, name)
        formal = [parameter.name for parameter in schema.inputs]
        actual = [parameter.name for parameter in operator.inputs]
        assert actual == formal[: len(actual)], name
        assert len(actual) >= schema.min_input, name
        assert operator.attributes <= set(schema.attributes), name


def row_max(data: Tensor) -> Tensor:
    rows, length = data.shape

    def element(row: Index, _: Index) -> Fold:
        axis = Axis(length)
        return Fold(data.dtype, "max", (axis,), data[[row, along(axis)]])

    return compute((rows, 1), element)


def model_of(
    nodes: list[onnx.NodeProto], *outputs: str, opset: int = 13, kind: int = TensorProto.FLOAT
) -> onnx.ModelProto:
    made = [helper.make_tensor_value_info(name, kind, None) for name in outputs]
    graph = helper.make_graph(nodes, "g", [X], made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


MAX = helper.make_node("ReduceMax", ["x"], ["m"], axes=[1])


@pytest.fixture
def with_reduce_max() -> None:
    def function(data: Tensor, axes: Tensor | None, *, keepdims: int | None) -> Tensor:
        return row_max(data)

    operators.op("ReduceMax")(function)


@pytest.mark.usefixtures("with_reduce_max")
def test_a_fold_that_a_larger_reader_would_repeat_gets_a_buffer() -> None:
    model = model_of([MAX, helper.make_node("Equal", ["x", "m"], ["y"])], "y", kind=9)
    first, second = compile_model(model).program.steps
    assert isinstance(first, Loops)
    assert isinstance(second, Loops)
    assert first.out.elements == 4
    assert first.out in second.reads()
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    assert evaluate_model(model, {"x": x})["y"].tolist() == [[False, False, True]] * 4


@pytest.mark.usefixtures("with_reduce_max")
def test_a_fold_that_one_reader_takes_as_it_is_has_none() -> None:
    model = model_of([MAX, helper.make_node("Equal", ["m", "m"], ["y"])], "y", kind=9)
    (step,) = compile_model(model).program.steps
    assert isinstance(step, Loops)
    assert [buffer.name for buffer in step.reads()] == ["x"]


@pytest.mark.usefixtures("with_reduce_max")
def test_an_attribute_becomes_an_input_with_its_own_type() -> None:
    """`axes` is int64 in ReduceMax-18, whatever type the data have."""
    assert evaluate_model(model_of([MAX], "m"), {"x": np.ones((4, 3), np.float32)})["m"].all()


@pytest.mark.parametrize(("names", "count"), [(["y"], 1), (["y", "mask"], 2), (["y", ""], 1)])
def test_optional_outputs_may_be_left_out(names: list[str], count: int) -> None:
    def function(
        data: Tensor, ratio: Tensor | None, training_mode: Tensor | None, *, seed: int | None
    ) -> tuple[Tensor, Tensor]:
        return data, compute(data.shape, lambda *_: Const(BOOL, b"\1"))

    operators.op("Dropout")(function)
    model = model_of([helper.make_node("Dropout", ["x"], names)], *(n for n in names if n))
    for output in model.graph.output:
        output.type.tensor_type.elem_type = 9 if output.name == "mask" else 1
    assert len(compile_model(model).outputs) == count


def test_an_output_that_the_function_does_not_make_is_refused() -> None:
    def function(data: Tensor, ratio: Tensor | None, training_mode: Tensor | None) -> Tensor:
        return data

    operators.op("Dropout")(function)
    model = model_of([helper.make_node("Dropout", ["x"], ["y", "mask"])], "y", "mask")
    model.graph.output[1].type.tensor_type.elem_type = 9
    with pytest.raises(ModelError, match="has 2 outputs of which 1 are supported"):
        compile_model(model)


def test_a_constant_node_is_a_constant_however_large() -> None:
    values = np.arange(40_000, dtype=np.float32)
    node = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(values))
    model = model_of([node, helper.make_node("Identity", ["c"], ["y"])], "y")
    compiled = compile_model(model)
    assert compiled.constants_size == values.nbytes
    assert (evaluate_model(model, {"x": np.zeros((4, 3), np.float32)})["y"] == values).all()


@pytest.mark.parametrize("name", ["Equal/Unsqueeze/expanded", "Equal/Unsqueeze/axes", "i0", "o0"])
def test_names_that_the_compiler_uses_itself_are_free(name: str) -> None:
    a = helper.make_tensor_value_info(name, TensorProto.INT32, [2, 3, 4])
    b = helper.make_tensor_value_info("b", TensorProto.INT32, [3])
    y = helper.make_tensor_value_info("y", TensorProto.BOOL, [2, 3, 4])
    node = helper.make_node("Equal", [name, "b"], ["y"], axis=1, broadcast=1)
    graph = helper.make_graph([node], "g", [a, b], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 1)], ir_version=8)
    left = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    right = np.array([1, 5, 9], np.int32)
    got = evaluate_model(model, {name: left, "b": right})["y"]
    assert (got == (left == right[:, None])).all()
