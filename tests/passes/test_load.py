"""load: what a sound model becomes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import AttributeProto, TensorProto, helper

from onnxc.dtypes import ELEMENT_TYPES, ElementType
from onnxc.passes.load import load
from tests.malformed import parse, sound, sparse_tensor, with_initializer


def operators(model: ir.Model) -> list[str]:
    return [f"{node.op_type}-{node.version}" for node in model.graph.all_nodes()]


def wiring(model: ir.Model) -> list[str]:
    """Each node as "name: inputs -> outputs"."""
    return [
        f"{node.name}: {', '.join(v.name or '' if v else '-' for v in node.inputs)}"
        f" -> {', '.join(v.name or '-' for v in node.outputs)}"
        for node in model.graph
    ]


def initializer(model: ir.Model, name: str = "w") -> ir.TensorProtocol:
    tensor = model.graph.initializers[name].const_value
    assert tensor is not None
    return tensor


def strings(tensor: ir.TensorProtocol) -> list[bytes]:
    assert isinstance(tensor, ir.StringTensor)
    return list(tensor.string_data())


# Files and messages


def test_a_dimension_of_minus_one_or_of_no_name_is_unknown() -> None:
    """Exporters write so; two dimensions named "?" are not one."""
    model = parse("g (float[N, N, 3, 4] x) => (float[N, N, 3, 4] y) { y = Identity(x) }")
    for value in (*model.graph.input, *model.graph.output):
        first, second, third, _ = value.type.tensor_type.shape.dim
        first.dim_param = second.dim_param = "?"
        third.dim_value = -1
    before = model.SerializeToString(deterministic=True)
    (x,) = load(model).graph.inputs
    assert x.shape is not None
    assert [isinstance(extent, int) for extent in x.shape] == [False, False, False, True]
    assert all(extent.value is None for extent in x.shape if isinstance(extent, ir.SymbolicDim))
    assert model.SerializeToString(deterministic=True) == before


def test_a_message_is_not_changed() -> None:
    model = with_initializer(helper.make_tensor("x", TensorProto.FLOAT, [2], [1.0, 2.0]))
    model.graph.sparse_initializer.append(sparse_tensor([0], [1], [2], [1.0]))
    before = model.SerializeToString(deterministic=True)
    load(model)
    assert model.SerializeToString(deterministic=True) == before


def test_both_spellings_of_the_standard_domain() -> None:
    model = parse(
        '<ir_version: 10, opset_import: ["ai.onnx": 13, "": 13]>'
        "g (float x) => (float y) { a = ai.onnx.Identity(x) y = Identity(a) }"
    )
    model.graph.node[0].domain = "ai.onnx"
    loaded = load(model)
    assert operators(loaded) == ["Identity-13", "Identity-13"]
    assert loaded.graph.opset_imports == {"": 13}


@pytest.mark.parametrize("version", range(3, onnx.IR_VERSION + 1))
def test_ir_versions(version: int) -> None:
    model = sound()
    model.ir_version = version
    assert operators(load(model)) == ["Identity-21"]


def test_names_that_are_not_utf8() -> None:
    data = sound().SerializeToString().replace(b"\x0a\x01x", b"\x0a\x01\xff")
    loaded = load(onnx.ModelProto.FromString(data))
    assert wiring(loaded) == [r"n: \xff -> y"]


# Graph forms


def test_outputs_that_no_node_makes_and_one_output_twice() -> None:
    model = parse(
        "g (float x, float unused) => (float x, float w, float y, float y) <float w = {1}>"
        " { y = Identity(x) }"
    )
    loaded = load(model)
    assert [value.name for value in loaded.graph.outputs] == ["x", "w", "y", "y"]
    assert loaded.graph.outputs[0] is loaded.graph.inputs[0]
    assert loaded.graph.outputs[1] is loaded.graph.initializers["w"]
    assert loaded.graph.outputs[2] is loaded.graph.outputs[3]
    assert [value.name for value in loaded.graph.inputs] == ["x", "unused"]


def test_an_input_with_an_initializer_is_a_constant() -> None:
    model = with_initializer(helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0]))
    model.ir_version = 3
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, ["N"]))
    loaded = load(model)
    assert [value.name for value in loaded.graph.inputs] == ["x"]
    assert loaded.graph.initializers["w"].shape == [2]


@pytest.mark.parametrize("declared", ["float[N]", "float[]", "float[?]", "float"])
def test_an_initializer_settles_what_its_output_leaves_open(declared: str) -> None:
    model = parse(
        f"g (float x) => ({declared} w, float y) <float[2] w = {{1, 2}}> {{ y = Identity(x) }}"
    )
    if declared == "float[]":
        model.graph.output[0].type.tensor_type.ClearField("shape")
    if declared == "float":
        model.graph.output[0].ClearField("type")
    loaded = load(model)
    assert loaded.graph.outputs[0].shape == [2]
    assert loaded.graph.outputs[0].type == ir.TensorType(ir.DataType.FLOAT)


def test_devices_are_nobodys_business() -> None:
    """onnx_ir refuses a node's device configuration that is not whole."""
    model = sound()
    model.ir_version = 11
    model.graph.node[0].device_configurations.add(pipeline_stage=1)
    assert not load(model).graph.node(0).device_configurations


def test_missing_optional_inputs_and_outputs() -> None:
    model = parse('g (float[4] x) => (float[4] y) { [n] y, "" = Dropout(x, "", "") }')
    model.graph.node[0].input[:] = ["x", "", ""]
    model.graph.node[0].output[:] = ["y", ""]
    assert wiring(load(model)) == ["n: x, -, - -> y, -"]


def test_types_other_than_tensors_are_left_to_later_passes() -> None:
    model = sound()
    sequence = helper.make_sequence_type_proto(model.graph.input[0].type)
    model.graph.input[0].type.CopyFrom(helper.make_optional_type_proto(sequence))
    model.graph.output[0].type.map_type.key_type = TensorProto.INT64
    loaded = load(model)
    assert isinstance(loaded.graph.inputs[0].type, ir.OptionalType)
    assert loaded.graph.outputs[0].type is None


def test_nodes_in_subgraphs_have_versions_too() -> None:
    model = parse(
        "g (bool c, float x) => (float y) { y = If(c)"
        " <then_branch = t () => (float u) { u = Identity(x) },"
        " else_branch = e () => (float u) { u = Neg(x) }> }"
    )
    assert operators(load(model)) == ["If-21", "Identity-21", "Neg-21"]


# Constants


@pytest.mark.parametrize("dtype", ELEMENT_TYPES, ids=repr)
@pytest.mark.parametrize("raw", [False, True], ids=["typed", "raw"])
def test_every_element_type(dtype: ElementType, raw: bool) -> None:
    """Five values of all-zero bits but the first, from each place where ONNX may store them."""
    if dtype.kind == "string":
        return
    data = bytes([1]) + bytes(dtype.packed_bytes(5) - 1)
    tensor = TensorProto(name="w", data_type=dtype.code, dims=[5])
    if raw:
        tensor.raw_data = data
    elif dtype.name in ("float", "complex64"):
        tensor.float_data[:] = np.frombuffer(data, "<f4").tolist()
    elif dtype.name in ("double", "complex128"):
        tensor.double_data[:] = np.frombuffer(data, "<f8").tolist()
    elif dtype.name == "int64":
        tensor.int64_data[:] = [1, 0, 0, 0, 0]
    elif dtype.name in ("uint32", "uint64"):
        tensor.uint64_data[:] = [1, 0, 0, 0, 0]
    else:
        tensor.int32_data[:] = [1] + [0] * (dtype.packed_bytes(5) // dtype.size - 1)
    assert initializer(load(with_initializer(tensor))).tobytes() == data


def test_string_bytes_stay_whole() -> None:
    texts = [b"", b"a\0", b"\0", b"a\0b", "\u00e9".encode(), b"\xff"]
    tensor = TensorProto(name="w", data_type=TensorProto.STRING, dims=[6], string_data=texts)
    assert strings(initializer(load(with_initializer(tensor)))) == texts


@pytest.mark.parametrize(
    ("indices", "shape"), [([1, 5], [2]), ([0, 1, 1, 2], [2, 2])], ids=["flat", "by axis"]
)
def test_sparse_initializer(indices: list[int], shape: list[int]) -> None:
    model = sound()
    model.graph.sparse_initializer.append(sparse_tensor(indices, shape, [2, 3], [7.0, 8.0]))
    dense = initializer(load(model)).numpy()
    assert dense.tolist() == [[0, 7, 0], [0, 0, 8]]


def test_sparse_strings_and_sparse_nibbles() -> None:
    model = sound()
    sparse = sparse_tensor([1], [1], [3], [1.0])
    sparse.values.CopyFrom(TensorProto(name="s", data_type=8, dims=[1], string_data=[b"a\0"]))
    model.graph.sparse_initializer.append(sparse)
    sparse.values.CopyFrom(TensorProto(name="q", data_type=22, dims=[1], raw_data=b"\x0f"))
    model.graph.sparse_initializer.append(sparse)
    loaded = load(model)
    assert strings(initializer(loaded, "s")) == [b"", b"a\0", b""]
    assert initializer(loaded, "q").numpy().tolist() == [0, -1, 0]


def test_sparse_constant() -> None:
    model = sound()
    node = model.graph.node[0]
    node.op_type, node.input[:] = "Constant", []
    sparse = sparse_tensor([1], [1], [2], [5.0])
    node.attribute.append(helper.make_attribute("sparse_value", sparse))
    loaded = load(model)
    assert loaded.graph[0].attributes["value"].as_tensor().numpy().tolist() == [0, 5]


# External data


def external(location: str, data_type: int, dims: list[int], offset: int) -> TensorProto:
    tensor = TensorProto(name="w", data_type=data_type, dims=dims)
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    tensor.external_data.add(key="offset", value=str(offset))
    return tensor


def test_external_data_whatever_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "w.bin").write_bytes(b"\0\0\0" + np.array([1, 2], np.float32).tobytes())
    model = with_initializer(external("data/w.bin", TensorProto.FLOAT, [2], 3))
    model.graph.node.add(op_type="Constant", output=["c"]).attribute.append(
        helper.make_attribute("value", external("data/w.bin", TensorProto.INT4, [2], 10))
    )
    onnx.save_model(model, folder / "m.onnx")
    monkeypatch.chdir(tmp_path)
    loaded = load(Path("model/m.onnx"))
    monkeypatch.chdir("/")
    assert initializer(loaded).numpy().tolist() == [1, 2]
    assert initializer(loaded).name == "w"
    constant = loaded.graph[1].attributes["value"].as_tensor()
    assert constant.numpy().tolist() == [0, 4]


def test_external_data_through_links_inside_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "w.bin").write_bytes(np.array([1], np.float32).tobytes())
    (folder / "link.bin").symlink_to("w.bin")
    os.link(folder / "w.bin", folder / "hard.bin")
    (tmp_path / "linked").symlink_to(folder)
    for location in ("link.bin", "hard.bin"):
        model = with_initializer(external(location, TensorProto.FLOAT, [], 0))
        onnx.save_model(model, folder / "m.onnx")
        assert initializer(load(tmp_path / "linked" / "m.onnx")).numpy() == 1


def test_external_data_of_no_elements(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"")
    model = with_initializer(external("w.bin", TensorProto.FLOAT, [0, 2], 0))
    onnx.save_model(model, tmp_path / "m.onnx")
    assert initializer(load(tmp_path / "m.onnx")).numpy().shape == (0, 2)


def test_external_files_are_opened_once(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(4000))
    model = sound()
    for number in range(1000):
        tensor = external("w.bin", TensorProto.FLOAT, [1], 4 * number)
        tensor.name = f"w{number}"
        model.graph.initializer.append(tensor)
    onnx.save_model(model, tmp_path / "m.onnx")
    before = len(os.listdir("/proc/self/fd"))
    loaded = load(tmp_path / "m.onnx")
    assert sum(float(initializer(loaded, f"w{n}").numpy()[0]) for n in range(1000)) == 0
    assert len(os.listdir("/proc/self/fd")) <= before + 1


# Functions

HEADER = '<ir_version: 10, opset_import: ["": 21, "f": 1]> g'
FUNCTION = '<domain: "f", opset_import: ["": 18, "f": 1]>'


def test_inlined_nodes_keep_the_opset_of_their_function() -> None:
    model = parse(
        f"{HEADER} (float x) => (float y) {{ [c] a = f.F(x) y = Identity(a) }}"
        f" {FUNCTION} F (p) => (q) {{ [inner] t = Neg(p) q = Identity(t) }}"
    )
    loaded = load(model)
    assert operators(loaded) == ["Neg-18", "Identity-18", "Identity-21"]
    assert wiring(loaded) == ["c/inner: x -> c/t", "c/Identity: c/t -> a", ": a -> y"]
    assert len(loaded.functions) == 0


def test_nested_calls_and_repeated_calls() -> None:
    model = parse(
        f"{HEADER} (float x) => (float y) {{ a = f.F(x) y = f.F(a) }}"
        f" {FUNCTION} F (p) => (q) {{ [g] t = f.G(p) q = Identity(t) }}"
        f" {FUNCTION} G (p) => (q) {{ [n] t = Neg(p) q = Abs(t) }}"
    )
    assert wiring(load(model)) == [
        "F/g/n: x -> F/g/t",
        "F/g/Abs: F/g/t -> F/t",
        "F/Identity: F/t -> a",
        "F_1/g/n: a -> F_1/g/t",
        "F_1/g/Abs: F_1/g/t -> F_1/t",
        "F_1/Identity: F_1/t -> y",
    ]


def test_inner_names_avoid_those_of_the_model() -> None:
    model = parse(
        f'{HEADER} (float "F/t") => (float y) {{ y = f.F("F/t") }}'
        f" {FUNCTION} F (p) => (q) {{ t = Neg(p) q = Identity(t) }}"
    )
    assert [node.outputs[0].name for node in load(model).graph] == ["F/t_1", "y"]


def test_optional_inputs_and_outputs_of_functions() -> None:
    model = parse(
        f"{HEADER} (float x) => (float y) {{ [c] y = f.F(x) }}"
        f" {FUNCTION} F (p, low, high) => (q, r) {{ [n] q = Clip(p, low, high) r = Neg(p) }}"
    )
    assert wiring(load(model)) == ["c/n: x, -, - -> y", "c/Neg: x -> c/r"]


def test_outputs_that_are_inputs_or_listed_twice() -> None:
    model = parse(
        f"{HEADER} (float x) => (float y, float z, float u) {{ [c] y, z, u = f.F(x) }}"
        f" {FUNCTION} F (p) => (p, q, q) {{ [n] q = Neg(p) }}"
    )
    loaded = load(model)
    assert wiring(loaded) == ["c/n: x -> z", "c/Identity: x -> y", "c/Identity_1: z -> u"]
    assert operators(loaded) == ["Neg-18", "Identity-28", "Identity-28"]


@pytest.mark.parametrize(
    ("given", "alpha"),
    [("<alpha: float = 0.5>", 0.5), ("", 0.25)],
    ids=["given", "default"],
)
def test_attribute_references_through_two_functions(given: str, alpha: float) -> None:
    model = parse(
        f"{HEADER} (float x) => (float y) {{ y = f.F{given}(x) }}"
        f" {FUNCTION} F <alpha: float = 0.25> (p) => (q) {{ q = f.G<a: float = @alpha>(p) }}"
        f" {FUNCTION} G <a> (p) => (q) {{ q = LeakyRelu<alpha: float = @a>(p) }}"
    )
    assert load(model).graph[0].attributes["alpha"].as_float() == alpha


def test_an_attribute_that_nobody_gives_is_left_out() -> None:
    model = parse(
        f"{HEADER} (float x) => (float y) {{ y = f.F(x) }}"
        f" {FUNCTION} F <a> (p) => (q) {{ q = LeakyRelu<alpha: float = @a>(p) }}"
    )
    assert len(load(model).graph[0].attributes) == 0


def test_overloads_and_shadowed_operators() -> None:
    """A function wins for its own domain, name and overload, and for nothing else."""
    model = parse(
        f"{HEADER} (float x) => (float y)"
        " { a = f.Neg(x) b = f.Neg:two(a) c = Neg(b) y = Abs(c) }"
        f" {FUNCTION} Neg (p) => (q) {{ q = Sin(p) }}"
        f" {FUNCTION} Neg (p) => (q) {{ q = Cos(p) }}"
        ' <domain: "", opset_import: ["": 18]> Abs (p) => (q) { q = Exp(p) }'
    )
    model.functions[1].overload = "two"
    assert operators(load(model)) == ["Sin-18", "Cos-18", "Neg-21", "Exp-18"]


def test_subgraphs_in_functions_are_renamed_with_what_they_capture() -> None:
    model = parse(
        f"{HEADER} (bool c, float x) => (float y) {{ y = f.F(c, x) }}"
        f" {FUNCTION} F (c, p) => (q) {{ t = Neg(p) q = If(c)"
        " <then_branch = a () => (float u) { u = Identity(t) },"
        " else_branch = b () => (float u) { v = f.G(p) u = Add(v, t) }> }"
        f" {FUNCTION} G (p) => (q) {{ q = Abs(p) }}"
    )
    loaded = load(model)
    assert operators(loaded) == ["Neg-18", "If-18", "Identity-18", "Abs-18", "Add-18"]
    assert [
        [value.name for value in (*node.inputs, *node.outputs) if value]
        for node in loaded.graph.all_nodes()
    ] == [
        ["x", "F/t"],
        ["c", "y"],
        ["F/t", "F/u"],
        ["x", "F/v"],
        ["F/v", "F/t", "F/u"],
    ]
    branch = loaded.graph[1].attributes["then_branch"].as_graph()
    assert branch[0].inputs[0] is loaded.graph[0].outputs[0]


def test_calls_in_a_subgraph_of_the_main_graph() -> None:
    model = parse(
        f"{HEADER} (bool c, float x) => (float y) {{ y = If(c)"
        " <then_branch = a () => (float u) { u = f.F(x) },"
        " else_branch = b () => (float u) { u = Neg(x) }> }"
        f" {FUNCTION} F (p) => (q) {{ t = Abs(p) q = Exp(t) }}"
    )
    assert operators(load(model)) == ["If-21", "Abs-18", "Exp-18", "Neg-21"]


def test_a_function_that_nobody_calls_may_be_wrong() -> None:
    model = parse(
        f"{HEADER} (float x) => (float y) {{ y = Identity(x) }}"
        ' <domain: "f", opset_import: ["": 99]> F (p) => (q) { q = Nothing(r) }'
    )
    assert operators(load(model)) == ["Identity-21"]


def test_a_reference_keeps_the_name_of_its_own_attribute() -> None:
    model = parse(
        f"{HEADER} () => (float y) {{ y = f.F<number: float = 2.0>() }}"
        f" {FUNCTION} F <number> () => (q) {{ q = Constant<value_float: float = @number>() }}"
    )
    attribute = load(model).graph[0].attributes["value_float"]
    assert (attribute.name, attribute.as_float()) == ("value_float", 2.0)
    assert int(attribute.type) == AttributeProto.FLOAT
