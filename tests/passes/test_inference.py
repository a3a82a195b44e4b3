"""inference: what onnx says of a node's outputs, and the kind and fact of what it refuses."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from onnxc.diagnostics import Kind
from onnxc.errors import ModelError
from onnxc.passes.infer import infer
from onnxc.passes.load import load
from tests.malformed import parse

TWO = "(float[2, 3] x, float[2, 4] z) => (float[N, M] y)"


@pytest.mark.parametrize(
    ("text", "kind", "fact"),
    [
        (
            "y = Softmax <axis = 5> (x)",
            Kind.AXIS_OUT_OF_RANGE,
            "axis 5 is not in a tensor of 2 dimensions",
        ),
        (
            "y = Softmax <axis = -3> (x)",
            Kind.AXIS_OUT_OF_RANGE,
            "axis -3 is not in a tensor of 2 dimensions",
        ),
        (
            "a = Constant <value_ints = [7]> () y = ReduceSum (x, a)",
            Kind.AXIS_OUT_OF_RANGE,
            "axis must be in [-rank, rank-1]. Input rank was 2",
        ),
        (
            "a = Constant <value_ints = [7]> () y = Unsqueeze (x, a)",
            Kind.AXIS_OUT_OF_RANGE,
            "Unexpected axis value: 7. Expected range [-3, 3)",
        ),
        (
            "y = Concat <axis = 0> (x, z)",
            Kind.OPERAND_SHAPE,
            "dimension 1 is 3 here and 4 there",
        ),
        (
            "y = MatMul (x, z)",
            Kind.INNER_DIMENSIONS,
            "Incompatible dimensions for matrix multiplication",
        ),
        ("y = Add (x, z)", Kind.SHAPES_DO_NOT_BROADCAST, "Incompatible dimensions"),
        (
            "y = Transpose <perm = [0, 2]> (x)",
            Kind.PERMUTATION,
            "Invalid attribute perm {0, 2}, input shape = {2, 3}",
        ),
        (
            "y = DepthToSpace <blocksize = 2> (x)",
            Kind.OPERAND_RANK,
            "Input tensor must be 4-dimensional",
        ),
    ],
)
def test_what_does_not_fit(text: str, kind: Kind, fact: str) -> None:
    with pytest.raises(ModelError) as caught:
        infer(load(parse(f"g {TWO} {{ {text} }}")))
    (problem,) = caught.value.problems
    assert (problem.kind, problem.fact) == (kind, fact)


def shape(text: str) -> ir.Shape | None:
    """Of the output y."""
    model = load(parse(text))
    infer(model)
    return model.graph.outputs[0].shape


@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_axes_of_either_type_are_padded(kind: str) -> None:
    constants = f"<int64[2] p = {{1, 2}}, {kind}[1] a = {{1}}, float c = {{0}}>"
    text = f"g (float[2, 3] x) => (float[N, M] y) {constants} {{ y = Pad (x, p, c, a) }}"
    assert shape(text) == ir.Shape([2, 6])


def test_a_list_without_elements_is_known() -> None:
    text = "g (float[1] x, int64[0] s) => (float y) { y = Reshape (x, s) }"
    assert shape(text) == ir.Shape([])


def test_outputs_that_are_left_out_are_passed_over() -> None:
    text = "g (float[4, 2] x) => (float[2, 2] y, float[1, 2] z) <int64[3] s = {2, 1, 1}>"
    model = load(parse(text + " { y, u, z = Split <axis = 0> (x, s) }"))
    infer(model)
    assert [value.shape for value in model.graph.outputs] == [ir.Shape([2, 2]), ir.Shape([1, 2])]


@pytest.mark.parametrize(
    ("operator", "remedy"),
    [
        ("Convolve", "see `onnxc ops`"),
        ("Con", "did you mean Conv?"),
        ("Softmaxx", "did you mean Softmax?"),
        ("Foo", "see `onnxc ops`"),
    ],
)
def test_an_operator_that_may_have_been_meant(operator: str, remedy: str) -> None:
    with pytest.raises(ModelError) as caught:
        infer(load(parse(f"g {TWO} {{ y = {operator} (x, z) }}")))
    (problem,) = caught.value.problems
    assert (problem.kind, problem.remedy) == (Kind.UNKNOWN_OPERATOR, remedy)
