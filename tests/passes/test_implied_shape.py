"""infer: shapes that follow from what is declared of values further on."""

import numpy as np
import onnx
import pytest
from onnx import helper, shape_inference

from onnxc.compiled import compile
from onnxc.errors import ModelError, RunError
from onnxc.op import schemas
from onnxc.passes.implied_shape import _AS_FIRST, _BROADCAST
from onnxc.passes.infer import infer
from onnxc.passes.load import load
from tests.malformed import parse

OPEN = "is unknown at compile time"


def shape_of(name: str, text: str) -> list[int]:
    """Of a value of the model that nodes make."""
    found = load(parse(text))
    infer(found)
    (value,) = (v for node in found.graph for v in node.outputs if v.name == name)
    assert value.shape is not None
    return list(value.shape.numpy())


@pytest.mark.parametrize(
    ("kind", "nodes", "shape"),
    [
        ("float[2]", "t = ReduceSum <keepdims = 0> (x, a) u = Sqrt(t) y = Neg(u)", [2]),
        ("float16[2, 1]", "t = ReduceSum(x, a) u = Log(t) y = CastLike(u, h)", [2, 1]),
        ("float[2]", "t = ReduceSum <keepdims = 0> (x, a) y = Mul(t, t)", [2]),
        ("float[2]", "t = ReduceSum <keepdims = 0> (x, a) y = Mul(s, t)", [2]),
        ("float[2]", "t = ReduceSum <keepdims = 0> (x, a) y = Where(b, t, t)", [2]),
        ("float[2]", "t = ReduceSum <keepdims = 0> (x, a) y = PRelu(t, l)", [2]),
        (
            "float[2]",
            "t = ReduceSum <keepdims = 0> (x, a) c = Constant <value_float = 2.0> () y = Add(c, t)",
            [2],
        ),
        (
            "float[2]",
            "t = ReduceSum <keepdims = 0> (x, a) u = Cos(t) v = Mul(s, t) y = Sub(u, v)",
            [2],
        ),
        ("float[5]", "t = Range(s, n, s) y = Cos(t)", [5]),
        ("float[5]", "t = Range(s, n, s) y = Add(t, l)", [5]),
        ("float[2, 3]", "t = Reshape(x, r) y = Add(t, m)", [2, 3]),
    ],
)
def test_what_later_values_must_share_with_a_value_is_its_shape(
    kind: str, nodes: str, shape: list[int]
) -> None:
    operands = "float[2, 3] x, int64[1] a, float s, float n, bool b, int64[2] r, float16[1] h"
    operands += ", float[1] l, float[1, 1] m"
    assert shape_of("t", f"g ({operands}) => ({kind} y) {{ {nodes} }}") == shape


@pytest.mark.parametrize(
    "nodes",
    [
        "t = ReduceSum <keepdims = 0> (x, a) y = Mul(t, v)",  # t may be a scalar, or [1]
        "t = ReduceSum <keepdims = 0> (x, a) y = Mul(t, l)",
        "t = ReduceSum <keepdims = 0> (x, a) u = Sqrt(t) y = PRelu(v, u)",
        "t = Range(s, s, s) y = Add(t, v)",
        "t = Range(s, s, s) u = Range(s, s, s) y = Add(t, u)",
        "t = Reshape(x, r) y = Flatten(t)",
    ],
)
def test_what_leaves_a_choice_says_nothing(nodes: str) -> None:
    operands = "float[2, 3] x, int64[1] a, float s, int64[2] r, float[2] v, float[1] l"
    text = f"g ({operands}) => (float[2] y) {{ {nodes} }}"
    with pytest.raises(ModelError, match=f"output 't' {OPEN}"):
        shape_of("t", text)


def test_old_broadcasts_say_nothing() -> None:
    """In Add-6 B may have fewer dimensions than the result."""
    header = '<ir_version: 4, opset_import: ["": 6]>'
    body = "t = Reshape(x, r) y = Add <broadcast = 1> (v, t)"
    text = f"{header} g (float[6] x, int64[2] r, float[2, 3] v) => (float[2, 3] y) {{ {body} }}"
    with pytest.raises(ModelError, match=f"output 't' {OPEN}"):
        shape_of("t", text)


def test_a_branch_that_may_not_be_taken_says_nothing() -> None:
    text = """
    g (float[4] x, int64[2] r, bool c) => (float[2, 2] y) {
        t = Reshape(x, r)
        y = If (c) <then_branch = a () => (float[2, 2] p) { p = Neg(t) },
                    else_branch = b () => (float[2, 2] q) { q = Relu(t) }>
    }
    """
    with pytest.raises(ModelError, match=f"output 't' {OPEN}"):
        shape_of("t", text)


def test_declarations_that_contradict_are_an_error() -> None:
    text = """
    g (float[2, 3] x, int64[1] a) => (float[2] y, float[3] z) {
        t = ReduceSum <keepdims = 0> (x, a) y = Neg(t) [n] z = Relu(t)
    }
    """
    with pytest.raises(ModelError, match=r"output 'z' has shape \[2\]; the model declares \[3\]"):
        shape_of("t", text)


@pytest.mark.parametrize(
    ("operator", "shape"),
    [("Reshape", "2, N"), ("Reshape", "N, 3"), ("Unsqueeze", "1, N, 3"), ("Squeeze", "2, N")],
)
def test_one_open_extent_follows_from_the_number_of_elements(operator: str, shape: str) -> None:
    extents = "1, 2, 3" if operator == "Squeeze" else "2, 3"
    text = f"g (float[{extents}] x, int64[A] a) => (float[{shape}] y) {{ y = {operator}(x, a) }}"
    rank = 1 if operator != "Reshape" else 2
    wanted = {"2, N": [2, 3], "N, 3": [2, 3], "1, N, 3": [1, 2, 3]}[shape]
    assert shape_of("y", text.replace("A", str(rank))) == wanted


def test_elements_that_fill_no_whole_number_of_rows_are_an_error() -> None:
    text = "g (float[2, 3] x, int64[2] r) => (float[4, N] y) { [n] y = Reshape(x, r) }"
    with pytest.raises(ModelError) as caught:
        shape_of("y", text)
    assert str(caught.value) == (
        "node 'n' (Reshape-21): input 'x' is float[2][3] (inputs 'x' float[2][3], 'r' int64[2]); "
        "its elements do not fill the declared [4,N]"
    )


@pytest.mark.parametrize("shape", ["M, N", "0, N"])
def test_more_open_extents_than_the_elements_decide_are_an_error(shape: str) -> None:
    size = "0" if shape[0] == "0" else "6"
    text = f"g (float[{size}] x, int64[2] r) => (float[{shape}] y) {{ y = Reshape(x, r) }}"
    with pytest.raises(ModelError, match=OPEN):
        shape_of("y", text)


@pytest.mark.parametrize(("noop", "shape"), [(0, [1, 1]), (1, [2, 3])])
def test_a_list_without_elements_is_known(noop: int, shape: list[int]) -> None:
    text = f"""
    g (float[2, 3] x, int64[0] a) => (float[M, N] y) {{
        y = ReduceSum <noop_with_empty_axes = {noop}> (x, a)
    }}
    """
    assert shape_of("y", text) == shape


def test_the_run_compares_the_operand_with_the_shape() -> None:
    text = "g (float n) => (float[4] y) { s = Constant <value_float = 1.0> () t = Range(s, n, s)"
    model = compile(parse(f"{text} y = Mul(t, t) }}"))
    result = model.run({"n": np.asarray(4.5, np.float32)})["y"]
    assert result.tolist() == [1, 4, 9, 16]
    with pytest.raises(RunError):
        model.run({"n": np.asarray(4, np.float32)})


def extents_by_onnx(schema: onnx.defs.OpSchema, shapes: list[list[str]]) -> list[str] | None:
    """Of the first output; None where ONNX does not tell."""
    names = [f"x{n}" for n in range(len(shapes))]
    node = helper.make_node(schema.name, names, ["y", *"zuvw"[: schema.min_output - 1]])
    for name, attribute in schema.attributes.items():
        if attribute.required:
            kind = str(attribute.type).rpartition(".")[2]
            given = {"INT": 1, "INTS": [0], "STRING": "FLOAT"}[kind]
            node.attribute.append(helper.make_attribute(name, given))
    formal = [schema.inputs[min(n, len(schema.inputs) - 1)] for n in range(len(shapes))]
    kinds = [_kind(parameter) for parameter in formal]
    types = {
        name: helper.make_tensor_type_proto(kind, shape)
        for name, kind, shape in zip(names, kinds, shapes, strict=True)
    }
    opsets = [helper.make_opsetid("", schema.since_version)]
    found = shape_inference.infer_node_outputs(schema, node, types, opset_imports=opsets)
    if "y" not in found or not found["y"].tensor_type.HasField("shape"):
        return None
    return [dim.dim_param for dim in found["y"].tensor_type.shape.dim]


def _kind(parameter: onnx.defs.OpSchema.FormalParameter) -> int:
    for name, code in (("float", 1), ("int64", 7), ("bool", 9), ("uint8", 2), ("uint64", 13)):
        if f"tensor({name})" in parameter.types:
            return code
    raise AssertionError(parameter.types)


VERSIONS = [
    (schema.name, schema.since_version)
    for name in sorted(_AS_FIRST)
    for schema in schemas("", name)
    if not schema.deprecated
]


@pytest.mark.parametrize(("name", "version"), VERSIONS)
def test_onnx_gives_the_first_output_the_shape_of_the_first_input(name: str, version: int) -> None:
    (schema,) = (s for s in schemas("", name) if s.since_version == version)
    others = [["c"]] * (max(schema.min_input, 1) - 1)
    assert extents_by_onnx(schema, [["a", "c", "b"], *others]) in (["a", "c", "b"], None)


@pytest.mark.parametrize("name", sorted(_BROADCAST))
def test_onnx_broadcasts_all_inputs(name: str) -> None:
    schema = schemas("", name)[-1]
    count = max(schema.min_input, 2)
    assert extents_by_onnx(schema, [["a", "b"]] * count) == ["a", "b"]
    assert extents_by_onnx(schema, [["a", "b"], *[[]] * (count - 1)]) == ["a", "b"]


def test_every_name_is_an_operator() -> None:
    assert all(schemas("", name) for name in _AS_FIRST | _BROADCAST)
