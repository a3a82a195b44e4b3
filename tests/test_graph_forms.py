"""Graphs of every form that ONNX allows, compiled, run, and those that it forbids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, SparseTensorProto, TensorProto, helper

import onnxc
from onnxc.errors import ModelError, UsageError
from onnxc.pipeline import compile_model
from tests.malformed import parse
from tests.models import Array, assert_same, model, refusal, run, stored, strings

pytestmark = pytest.mark.usefixtures("strict_c")

F = np.float32


def floats(*values: float) -> Array:
    return np.array(values, F)


Values = dict[str, Any]

# The model as text (opset 21, IR 10), what it is given, what it gives.
FORMS: dict[str, tuple[str, Values, Values]] = {
    "an input that is an output": (
        "g (float[2] x) => (float[2] x) {}",
        {"x": floats(1, 2)},
        {"x": floats(1, 2)},
    ),
    "an input that is an output and is computed with": (
        "g (float[2] x) => (float[2] x, bool[2] y) { y = Equal(x, x) }",
        {"x": floats(1, np.nan)},
        {"x": floats(1, np.nan), "y": np.array([True, False])},
    ),
    "an initializer that is an output": (
        "g () => (float[2] w) <float[2] w = {3, 4}> {}",
        {},
        {"w": floats(3, 4)},
    ),
    "an initializer that is an output and is computed with": (
        "g (float[2] x) => (bool[2] y, float[2] w) <float[2] w = {3, 4}> { y = Equal(x, w) }",
        {"x": floats(3, 3)},
        {"y": np.array([True, False]), "w": floats(3, 4)},
    ),
    "one tensor as two outputs": (
        "g (float[2] x) => (float[2] y, float[2] y) { y = Identity(x) }",
        {"x": floats(1, 2)},
        {"y": floats(1, 2), "y_2": floats(1, 2)},
    ),
    "an input as two outputs, and a third that has the name of the second": (
        "g (float[1] y) => (float[1] y, float[1] y, float[1] y_2)"
        " <float[1] w = {5}> { y_2 = Identity(w) }",
        {"y": floats(1)},
        {"y": floats(1), "y_3": floats(1), "y_2": floats(5)},
    ),
    "an initializer as two outputs": (
        "g () => (float[2] w, float[2] w) <float[2] w = {3, 4}> {}",
        {},
        {"w": floats(3, 4), "w_2": floats(3, 4)},
    ),
    "two outputs of one value under two names": (
        "g (int4[3] x) => (int4[3] y, int4[3] z) { y = Identity(x) z = Identity(y) }",
        {"x": np.array([-8, 0, 7]).astype("int4")},
        {name: np.array([-8, 0, 7]).astype("int4") for name in "yz"},
    ),
    "the same input twice": (
        "g (bool[2] x) => (bool[2] y) { y = Equal(x, x) }",
        {"x": np.array([True, False])},
        {"y": np.array([True, True])},
    ),
    "inputs and nodes that nothing reads": (
        "g (float[2] x, string[3] unused, float[0] none) => (float[2] y)"
        " { a = Identity(unused) b = Equal(a, unused) y = Identity(x) c = Size(b) }",
        {"x": floats(1, 2), "unused": strings(b"a", b"b", b"c"), "none": floats()},
        {"y": floats(1, 2)},
    ),
    "a chain": (
        "g (float[2] x) => (float[2] z)"
        " { a = Identity(x) b = Identity(a) c = Identity(b) z = Identity(c) }",
        {"x": floats(-0.0, 2)},
        {"z": floats(-0.0, 2)},
    ),
    "outputs in the middle of a chain": (
        "g (int32[2] x) => (bool[2] c, bool[2] a)"
        " { a = Equal(x, x) b = Identity(a) c = Equal(b, a) }",
        {"x": np.array([1, 2], np.int32)},
        {"c": np.array([True, True]), "a": np.array([True, True])},
    ),
    "outputs in another order than nodes": (
        "g (float[2] x) => (int64 n, float[2] y, bool[2] e)"
        " { e = Equal(x, x) y = Identity(x) n = Size(e) }",
        {"x": floats(1, 2)},
        {"n": np.array(2), "y": floats(1, 2), "e": np.array([True, True])},
    ),
    "no inputs": (
        "g () => (bool[2] y) <int32[2] a = {1, 2}, int32[1] b = {2}> { y = Equal(a, b) }",
        {},
        {"y": np.array([False, True])},
    ),
    "inputs of no elements": (
        "g (float[0, 3] x, float[3] w) => (bool[0, 3] y, float[0, 3] z)"
        " { y = Equal(x, w) z = Identity(x) }",
        {"x": np.zeros((0, 3), F), "w": floats(1, 2, 3)},
        {"y": np.zeros((0, 3), bool), "z": np.zeros((0, 3), F)},
    ),
    "an output without a shape": (
        "g (float[2, 1] x, float[3] w) => (bool y) { y = Equal(x, w) }",
        {"x": np.array([[1], [2]], F), "w": floats(1, 2, 3)},
        {"y": np.array([[True, False, False], [False, True, False]])},
    ),
    "an output whose dimensions have names": (
        "g (float[2] x) => (float[N] y) { y = Identity(x) }",
        {"x": floats(1, 2)},
        {"y": floats(1, 2)},
    ),
}


def proto(name: str) -> ModelProto:
    source = parse(FORMS[name][0])
    if name == "an output without a shape":
        source.graph.output[0].type.tensor_type.ClearField("shape")
    return source


@pytest.mark.parametrize("plain", [False, True], ids=["fused", "realised"])
@pytest.mark.parametrize("name", FORMS)
def test_form(name: str, plain: bool) -> None:
    _, given, wanted = FORMS[name]
    assert_same(run(proto(name), given, plain=plain), wanted)


# Initializers that are inputs: IR 3 had no others, and called them defaults.


LISTED = [(ir, True) for ir in range(3, onnx.IR_VERSION + 1)]
NOT_LISTED = [(ir, False) for ir in range(4, onnx.IR_VERSION + 1)]


@pytest.mark.parametrize(("ir", "listed"), [*LISTED, *NOT_LISTED])
def test_an_initializer_is_a_constant(ir: int, listed: bool) -> None:
    default = helper.make_tensor_value_info("w", TensorProto.FLOAT, [2])
    graph = helper.make_graph(
        [helper.make_node("Equal", ["x", "w"], ["y"])],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2]),
            *([default] if listed else []),
        ],
        [
            helper.make_tensor_value_info("y", TensorProto.BOOL, [2]),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, [2]),
        ],
        [stored("w", floats(1, 2))],
    )
    compiled = onnxc.compile(model(graph, 11, ir=ir))
    assert [value.name for value in compiled.inputs] == ["x"]
    found = compiled.run({"x": floats(1, 1)})
    assert {name: value.tolist() for name, value in found.items()} == {
        "y": [True, False],
        "w": [1, 2],
    }


def test_sparse_initializers() -> None:
    """Like dense ones, also as an output."""
    graph = helper.make_graph(
        [helper.make_node("Equal", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [
            helper.make_tensor_value_info("y", TensorProto.BOOL, [2, 3]),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, [2, 3]),
        ],
    )
    sparse = SparseTensorProto(dims=[2, 3])
    sparse.values.CopyFrom(stored("w", floats(7, 8)))
    sparse.indices.CopyFrom(stored("", np.array([1, 5])))
    graph.sparse_initializer.append(sparse)
    dense = np.array([[0, 7, 0], [0, 0, 8]], F)
    found = run(model(graph), {"x": np.array([[0, 7, 7], [1, 0, 8]], F)})
    assert found["w"].tobytes() == dense.tobytes()
    assert found["y"].tolist() == [[True, True, False], [False, True, True]]


@pytest.mark.parametrize("directory", ["model", "beside", "root"])
def test_external_data_lies_beside_the_model(
    directory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the current directory is, and a file of the same name in it."""
    folder, beside = tmp_path / "model", tmp_path / "beside"
    folder.mkdir()
    beside.mkdir()
    w = np.arange(5000, dtype=F)
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=w.shape)
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    (folder / "w.bin").write_bytes(w.tobytes())
    (beside / "w.bin").write_bytes(bytes(w.nbytes))
    graph = helper.make_graph(
        [helper.make_node("Equal", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [5000])],
        [
            helper.make_tensor_value_info("y", TensorProto.BOOL, [5000]),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, [5000]),
        ],
        [tensor],
    )
    onnx.save_model(model(graph), folder / "m.onnx")
    current = {"model": folder, "beside": beside, "root": Path("/")}[directory]
    monkeypatch.chdir(current)
    path = {"model": Path("m.onnx"), "beside": Path("../model/m.onnx")}.get(directory)
    found = onnxc.compile(path or folder / "m.onnx").run({"x": w})
    assert found["w"].tobytes() == w.tobytes()
    assert found["y"].all()


# Model-local functions

HEADER = '<ir_version: 10, opset_import: ["": 21, "f": 1]> g'
BODY = '<domain: "f", opset_import: ["": 21, "f": 1]>'
OLD_BODY = '<domain: "f", opset_import: ["": 6]>'

FUNCTIONS: dict[str, tuple[str, Values, Values]] = {
    "nested": (
        f"{HEADER} (int32[2] x) => (bool[2] y) {{ a = f.Twice(x) y = f.Twice(a) }}"
        f" {BODY} Twice (p) => (q) {{ t = f.Same(p) q = f.Same(t) }}"
        f" {BODY} Same (p) => (q) {{ q = Equal(p, p) }}",
        {"x": np.array([1, 2], np.int32)},
        {"y": np.array([True, True])},
    ),
    "of another opset than the model": (
        f"{HEADER} (int32[3, 3] x, int32[3] w) => (bool[3, 3] y) {{ y = f.Rows(x, w) }}"
        f" {OLD_BODY} Rows (a, b) => (c) {{ c = Equal<axis = 0, broadcast = 1>(a, b) }}",
        {"x": np.arange(9, dtype=np.int32).reshape(3, 3), "w": np.array([0, 4, 9], np.int32)},
        {"y": np.array([[True, False, False], [False, True, False], [False, False, False]])},
    ),
    "with a reference to an attribute": (
        f"{HEADER} (float[2] x) => (bool[2] y) {{ y = f.Outer<number: float = 2.0>(x) }}"
        f" {BODY} Outer <number> (p) => (q) {{ q = f.Is<value: float = @number>(p) }}"
        f" {BODY} Is <value> (p) => (q)"
        " { c = Constant<value_float: float = @value>() q = Equal(p, c) }",
        {"x": floats(1, 2)},
        {"y": np.array([False, True])},
    ),
    "with the default of an attribute": (
        f"{HEADER} (float[2] x) => (bool[2] y) {{ y = f.Is(x) }}"
        f" {BODY} Is <value: float = 1.0> (p) => (q)"
        " { c = Constant<value_float: float = @value>() q = Equal(p, c) }",
        {"x": floats(1, 2)},
        {"y": np.array([True, False])},
    ),
    "with an input left out": (
        f"{HEADER} (float[2] x) => (float[2] y) {{ y = f.First(x) }}"
        f" {BODY} First (p, unused) => (q) {{ q = Identity(p) }}",
        {"x": floats(1, 2)},
        {"y": floats(1, 2)},
    ),
    "with an input left out in the middle": (
        f'{HEADER} (float[2] x) => (float[2] y) {{ y = f.Last(x, "", x) }}'
        f" {BODY} Last (p, unused, r) => (q) {{ q = Identity(r) }}",
        {"x": floats(1, 2)},
        {"y": floats(1, 2)},
    ),
    "with outputs that are left out": (
        f"{HEADER} (float[2] x) => (int64 n) {{ _, n = f.Both(x) }}".replace("_,", '"",')
        + f" {BODY} Both (p) => (q, n) {{ q = Equal(p, p) n = Size(q) }}",
        {"x": floats(1, 2)},
        {"n": np.array(2)},
    ),
    "that returns its input": (
        f"{HEADER} (float[2] x) => (float[2] y, float[2] z) {{ y, z = f.Pass(x) }}"
        f" {BODY} Pass (p) => (p, p) {{ }}",
        {"x": floats(1, 2)},
        {"y": floats(1, 2), "z": floats(1, 2)},
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name: str) -> None:
    text, given, wanted = FUNCTIONS[name]
    assert_same(run(parse(text), given), wanted)


# Shapes: what is inferred, what is declared, and what is left open


def test_dimensions_are_fixed_by_name_or_place() -> None:
    """A name means the same size everywhere; results follow."""
    source = parse("g (float[N, M] x, float[M] w) => (bool[N, M] y) { y = Equal(x, w) }")
    x = np.arange(6, dtype=F).reshape(2, 3)
    for dims in ({"N": 2, "M": 3}, {"x:0": 2, "M": 3}):
        compiled = onnxc.compile(source, dims=dims)
        assert compiled.outputs[0].shape == (2, 3)
        assert compiled.run({"x": x, "w": x[0]})["y"].tolist() == [[True] * 3, [False] * 3]


def test_open_dimensions_are_listed() -> None:
    source = parse("g (float[N, 3] x, float[M] w) => (bool[N, 3] y) { y = Equal(x, w) }")
    assert refusal(source) == [
        "model: input dimensions without a size: 'N' (axis 0 of input 'x'), "
        "'M' (axis 0 of input 'w'); give each one: --dim N=1 --dim M=1"
    ]
    with pytest.raises(ModelError, match=r"'M' \(axis 0 of input 'w'\).*--dim M=1$"):
        compile_model(source, dims={"N": 2})
    with pytest.raises(UsageError, match="K"):
        compile_model(source, dims={"K": 2})


def test_sizes_that_do_not_go_together() -> None:
    source = parse("g (float[N] x, float[M] w) => (bool[K] y) { [n] y = Equal(x, w) }")
    with pytest.raises(ModelError) as caught:
        compile_model(source, dims={"N": 2, "M": 3})
    assert str(caught.value) == (
        "node 'n' (Equal-19): Incompatible dimensions (inputs 'x' float[2], 'w' float[3])"
    )


WRONG: list[tuple[str, list[str]]] = [
    (
        "g (float[2] x) => (int32[2] y) { [n] y = Identity(x) }",
        ["node 'n' (Identity-21): output 'y' is tensor(float); the model declares tensor(int32)"],
    ),
    (
        "g (float[2] x) => (float[2] y) { [n] y = Equal(x, x) }",
        ["node 'n' (Equal-19): output 'y' is tensor(bool); the model declares tensor(float)"],
    ),
    (
        "g (float[2] x) => (float[3] y) { [n] y = Identity(x) }",
        ["node 'n' (Identity-21): output 'y' has shape [2]; the model declares [3]"],
    ),
    (
        "g (float[2] x) => (float[2, 1] y) { [n] y = Identity(x) }",
        ["node 'n' (Identity-21): output 'y' has shape [2]; the model declares [2,1]"],
    ),
    (
        "g (float[2] x) => (int64[1] y) { [n] y = Size(x) }",
        ["node 'n' (Size-21): output 'y' has shape []; the model declares [1]"],
    ),
    (
        "g (float[2] x) => (float[2] y) <float[4] a> { [n] a = Identity(x) [m] y = Identity(a) }",
        ["node 'n' (Identity-21): output 'a' has shape [2]; the model declares [4]"],
    ),
    (
        "g (float[2] x, float[3] w) => (bool[3] y, int32[2] z, bool[2] u)"
        " { [n] y = Equal(x, w) [m] z = Identity(x) [k] u = Equal(x, x) }",
        [
            "node 'n' (Equal-19): Incompatible dimensions (inputs 'x' float[2], 'w' float[3])",
            "node 'm' (Identity-21): output 'z' is tensor(float); the model declares tensor(int32)",
        ],
    ),
    (
        "g (float[2] x) => (float[2] y) { [n] y = Identity(a) [m] a = Identity(x) }",
        [
            "node 'n' (Identity-21): input 'a' is only made later, by node 'm' (Identity-21); "
            "sort the nodes topologically"
        ],
    ),
    (
        "g (float[2] x) => () { y = Identity(x) }",
        [
            "model: has no outputs, so there is nothing to compute; "
            + "name its results as graph outputs"
        ],
    ),
]


@pytest.mark.parametrize(("text", "says"), WRONG)
def test_what_contradicts_itself(text: str, says: list[str]) -> None:
    assert refusal(parse(text)) == says


def test_a_refusal_stays_on_one_line_whatever_the_names() -> None:
    source = parse("g (float[2] a, float[3] b) => (float[3] y) { z = Equal(a, b) y = Identity(a) }")
    source.graph.input[0].name = source.graph.node[0].input[0] = "a\nb"
    source.graph.node[1].input[0] = "a\nb"
    source.graph.output[0].name = source.graph.node[1].output[0] = "c\nd"
    assert refusal(source) == [
        r"node #0 (Equal-19): Incompatible dimensions (inputs 'a\nb' float[2], 'b' float[3])",
        r"node #1 (Identity-21): output 'c\nd' has shape [2]; the model declares [3]",
    ]
