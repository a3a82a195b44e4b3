"""infer: sizes that a declaration, --dim or only the data decides."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper

from onnxc.diagnostics import Kind
from onnxc.errors import ModelError, RefusalError
from onnxc.passes.bind import bind_dims
from onnxc.passes.data_sizes import MAXIMUM, maximum_shape, value_of_known, varying_outputs
from onnxc.passes.infer import infer
from onnxc.passes.load import load
from onnxc.values import values_of
from tests.malformed import parse
from tests.models import Array, model, stored


def node(
    operator: str, shapes: list[tuple[int, ...]], outputs: int = 1, **attributes: Any
) -> ir.Node:
    """A node of the newest form with float inputs of these shapes."""
    values = [
        ir.Value(name=f"x{n}", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(shape))
        for n, shape in enumerate(shapes)
    ]
    given = ir.convenience.convert_attributes(attributes)
    return ir.Node("", operator, values, given, num_outputs=outputs)


@pytest.mark.parametrize(
    ("found", "shapes"),
    [
        (node("NonZero", [(2, 3, 4)]), [(3, 24)]),
        (node("NonZero", [()]), [(0, 1)]),
        (node("Compress", [(2, 3), (9,)]), [(6,)]),
        (node("Compress", [(2, 3), (4,)]), [(4,)]),
        (node("Compress", [(2, 3), (3,)], axis=-1), [(2, 3)]),
        (node("Compress", [(2, 3), (1,)], axis=0), [(1, 3)]),
        (node("Unique", [(2, 3)], 4), [(6,), (6,), (6,), (6,)]),
        (node("Unique", [(2, 3)], 2, axis=1), [(2, 3), (3,), (3,), (3,)]),
        (node("NonMaxSuppression", [(2, 5, 4), (2, 3, 5), (1,)]), [(30, 3)]),
        (node("NonMaxSuppression", [(2, 5, 4), (2, 3, 5)]), [(0, 3)]),
        (node("Relu", [(2, 3)]), None),
    ],
)
def test_maximum_shape(found: ir.Node, shapes: list[tuple[int, ...]] | None) -> None:
    assert maximum_shape(found) == shapes


@pytest.mark.parametrize(("limit", "rows"), [(2, 12), (0, 0), (-1, 0), (9, 30)])
def test_the_boxes_asked_for_limit_a_suppression(limit: int, rows: int) -> None:
    found = node("NonMaxSuppression", [(2, 5, 4), (2, 3, 5), (1,)])
    value = found.inputs[2]
    assert value is not None
    value.const_value = ir.tensor(np.array([limit]))
    assert maximum_shape(found) == [(rows, 3)]


@pytest.mark.parametrize("operator", ["Compress", "Unique"])
@pytest.mark.parametrize("axis", [2, -3])
def test_an_axis_that_is_not_there(operator: str, axis: int) -> None:
    found = node(operator, [(2, 3), (1,)][: 2 if operator == "Compress" else 1], axis=axis)
    with pytest.raises(RefusalError) as caught:
        maximum_shape(found)
    assert caught.value.kind is Kind.AXIS_OUT_OF_RANGE
    assert caught.value.fact == f"axis {axis} is not in a tensor of 2 dimensions"


def test_no_maximum_where_that_is_not_known() -> None:
    unknown = node("NonZero", [(2,)])
    value = unknown.inputs[0]
    assert value is not None
    value.shape = None
    assert maximum_shape(unknown) is None
    assert maximum_shape(ir.Node("", "NonZero", [None])) is None
    assert maximum_shape(ir.Node("own", "NonZero", node("NonZero", [(2,)]).inputs)) is None
    assert varying_outputs(ir.Node("own", "NonZero", [])) == set()
    for shapes in ([(2, 5, 4), (3, 5), (1,)], [(5, 4), (2, 3, 5), (1,)]):
        assert maximum_shape(node("NonMaxSuppression", [*shapes])) == []


def known(operator: str, *arrays: Array, **attributes: Any) -> Array | None:
    """What it makes of constants."""
    found = node(operator, [array.shape for array in arrays], **attributes)
    for value, array in zip(found.inputs, arrays, strict=True):
        assert value is not None
        value.const_value = ir.tensor(array)
    return value_of_known(found)


def test_what_is_left_of_constants() -> None:
    square, second = np.array([[1, 2], [3, 4]]), np.array([False, True])

    def left(condition: Array, **attributes: Any) -> Any:
        found = known("Compress", square, condition, **attributes)
        return None if found is None else found.tolist()

    assert left(second) == [2]
    assert left(second, axis=0) == [[3, 4]]
    assert left(second, axis=1) == left(second, axis=-1) == [[2], [4]]
    assert left(np.array([True] * 4)) == [1, 2, 3, 4]
    assert left(np.array([True] * 5)) is None
    assert left(np.array([True] * 2), axis=0) == [[1, 2], [3, 4]]
    assert left(np.array([True] * 3), axis=0) is None
    assert left(np.array([second])) is None
    assert known("Relu", square) is None
    assert value_of_known(ir.Node("", "NonZero", [None])) is None
    assert value_of_known(node("NonZero", [(2,)])) is None


def test_which_outputs_vary() -> None:
    assert varying_outputs(node("Unique", [(2,)])) == {0, 1, 3}
    assert varying_outputs(node("Relu", [(2,)])) == set()


def inferred(text: str, **dims: int) -> dict[str, ir.Value]:
    """Every value of the model that nodes make, by name."""
    found = load(parse(text))
    bind_dims(found, dims)
    infer(found)
    return {str(value.name): value for made in found.graph for value in made.outputs}


def refusal(text: str, **dims: int) -> str:
    with pytest.raises(ModelError) as caught:
        inferred(text, **dims)
    (problem,) = caught.value.problems
    return str(problem)


def test_a_bound_dim_reaches_every_value() -> None:
    values = inferred(
        "g (float[N, 3] x) => (float[N, M] y) <float[N, 3] t> { t = Relu(x) y = Neg(t) }", N=4
    )
    assert [value.shape for value in values.values()] == [ir.Shape([4, 3])] * 2


def test_a_declaration_fills_what_is_not_inferred() -> None:
    values = inferred("g (float[4] x, int64[2] s) => (float[2, 2] y) { y = Reshape(x, s) }")
    assert values["y"].shape == ir.Shape([2, 2])


def test_a_declaration_with_a_bound_dim_fills_as_well() -> None:
    values = inferred("g (float[N] x, int64[2] s) => (float[2, N] y) { y = Expand(x, s) }", N=4)
    assert values["y"].shape == ir.Shape([2, 4])


def test_a_declaration_that_contradicts_is_an_error() -> None:
    text = "g (float[2] x) => (float[3] y) { [n] y = Relu(x) }"
    assert refusal(text) == "node 'n' (Relu-14): output 'y' has shape [2]; the model declares [3]"
    text = "g (float[N] x) => (float[M, 3] y) { [n] y = Relu(x) }"
    assert refusal(text, N=3) == (
        "node 'n' (Relu-14): output 'y' has shape [3]; the model declares [M,3]"
    )


def problems(text: str) -> list[str]:
    with pytest.raises(ModelError) as caught:
        inferred(text)
    return [str(problem) for problem in caught.value.problems]


def test_a_result_that_is_too_large() -> None:
    """Its readers are not told apart for it."""
    text = "g (float[1048576] x) => (float[A, B] y) <int64[2] s = {2199023255552, 1048576}>"
    large = "shape [2199023255552, 1048576]"
    assert problems(text + " { [n] t = Expand(x, s) y = Neg(t) }") == [
        f"node 'n' (Expand-13): {large} has more bytes than C can address"
    ]


def test_what_is_no_tensor_is_told_once() -> None:
    text = "g (seq(float[2]) s) => (seq(float[2]) y) { t = Identity(s) y = Identity(t) }"
    assert problems(text)[0] == "input 's': seq(tensor(float)) is not supported; only tensors are"
    assert len(problems(text)) == 1


@pytest.mark.parametrize(("operator", "known"), [("Neg", "none"), ("Softmax", "axis")])
def test_an_attribute_that_is_not_known(operator: str, known: str) -> None:
    text = f"g (float[2] x) => (float[2] y) {{ [n] y = {operator} <foo = 1> (x) }}"
    assert problems(text) == [
        f"node 'n' ({operator}-13): attribute 'foo' does not exist at this version;"
        f" the schema has {known}"
    ]


def test_nodes_that_differ_in_what_is_declared_only_are_told_apart() -> None:
    made = "y = ReduceSum <keepdims = 0> (x, a) [n] z = ReduceSum <keepdims = 0> (x, a)"
    text = f"g (float[2, 3] x, int64[1] a) => (float[2] y, float[5] z) {{ {made} }}"
    assert refusal(text).startswith("node 'n' (ReduceSum-13): no sets of 1 axes give the declared")


def test_a_size_that_a_bound_dim_contradicts_is_an_error() -> None:
    text = "g (float[N] x) => (float[N] y) { t = Concat <axis = 0> (x, x) [n] y = Relu(t) }"
    assert refusal(text, N=3) == (
        "node 'n' (Relu-14): output 'y' has shape [6]; the model declares [3]"
    )


def test_an_unknown_size_tells_what_may_decide_it() -> None:
    assert refusal("g (float[4] x, int64[2] s) => (float[A, B] y) { [n] y = Reshape(x, s) }") == (
        "node 'n' (Reshape-21): the shape of output 'y' is unknown at compile time: it may depend "
        "on shape ('s'); declare it in the model, or make what decides it a constant"
    )


# Sizes that the data decides


@pytest.mark.parametrize(("declared", "shape"), [("2, N", [2, 6]), ("2, 4", [2, 4])])
def test_the_maximum_is_declared_or_inferred(declared: str, shape: list[int]) -> None:
    values = inferred(f"g (float[2, 3] x) => (int64[{declared}] y) {{ y = NonZero(x) }}")
    assert values["y"].shape == ir.Shape(shape)
    assert values["y"].meta[MAXIMUM] is True


def test_each_of_many_such_nodes_is_marked() -> None:
    text = "g (float[2] x) => (int64[1, N] a, int64[1, M] b) { a = NonZero(x) b = NonZero(x) }"
    assert [value.meta[MAXIMUM] for value in inferred(text).values()] == [True, True]


def test_such_values_have_no_readers() -> None:
    assert refusal("g (float[2] x) => (int64[1, N] y) { t = NonZero(x) [n] y = Neg(t) }") == (
        "node 'n' (Neg-13): the size of input 't' depends on run-time data; "
        "onnxc gives such values as outputs of the model only"
    )


@pytest.mark.parametrize(
    ("operator", "arrays", "wanted"),
    [
        ("NonZero", [np.array([[1, 0], [0, np.nan]], np.float32)], np.array([[0, 1], [0, 1]])),
        ("NonZero", [np.array([False, False])], np.empty((1, 0), np.int64)),
        ("NonZero", [np.array(2, np.int32)], np.empty((0, 1), np.int64)),
        ("NonZero", [np.array(0, np.int32)], np.empty((0, 0), np.int64)),
        ("NonZero", [np.array([b"a", b""], object)], None),
        ("Compress", [np.array([[1, 2], [3, 4]]), np.array([True])], np.array([1])),
    ],
)
def test_of_constants_the_size_is_known(
    operator: str, arrays: list[Array], wanted: Array | None
) -> None:
    names = [f"c{n}" for n in range(len(arrays))]
    graph = helper.make_graph(
        [helper.make_node(operator, names, ["y"])],
        "g",
        [],
        [helper.make_empty_tensor_value_info("y")],
        [stored(name, array) for name, array in zip(names, arrays, strict=True)],
    )
    found = load(model(graph, 13))
    infer(found)
    (y,) = found.graph.outputs
    if wanted is None:
        assert y.const_value is None
        return
    assert y.const_value is not None
    assert MAXIMUM not in y.meta
    array = values_of(y.const_value)
    assert (array.dtype, array.shape) == (wanted.dtype, wanted.shape)
    assert array.tolist() == wanted.tolist()
    assert y.shape == ir.Shape(wanted.shape)
