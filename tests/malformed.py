"""Malformed models, small enough to read, each with every line that onnxc must say about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx
from onnx import AttributeProto, ModelProto, SparseTensorProto, TensorProto, helper

HEADER = '<ir_version: 10, opset_import: ["": 21]>'


def parse(text: str) -> ModelProto:
    """A model from ONNX's text form; without a header it is IR 10, opset 21."""
    return onnx.parser.parse_model(text if text.lstrip().startswith("<") else HEADER + text)


def sound() -> ModelProto:
    """The model that most of the malformed ones start from."""
    return parse("g (float[2] x) => (float[2] y) { [n] y = Identity(x) }")


def with_initializer(tensor: TensorProto) -> ModelProto:
    model = sound()
    model.graph.initializer.append(tensor)
    return model


def sparse_tensor(
    indices: list[int], shape: list[int], dims: list[int], values: list[float]
) -> SparseTensorProto:
    sparse = SparseTensorProto(dims=dims)
    sparse.values.CopyFrom(helper.make_tensor("w", TensorProto.FLOAT, [len(values)], values))
    sparse.indices.CopyFrom(helper.make_tensor("", TensorProto.INT64, shape, indices))
    return sparse


@dataclass(frozen=True)
class Malformed:
    """A model and the lines that refuse it."""

    name: str
    build: Callable[[], ModelProto]
    says: tuple[str, ...]


def written(name: str, text: str, *says: str) -> Malformed:
    """A model by its text form, and what onnxc says of it."""
    return Malformed(name, lambda: parse(text), says)


def _changed(name: str, change: Callable[[ModelProto], object], *says: str) -> Malformed:
    def build() -> ModelProto:
        model = sound()
        change(model)
        return model

    return Malformed(name, build, says)


def _tensor(name: str, tensor: TensorProto, *says: str) -> Malformed:
    lines = tuple(f"initializer 'w': {line}" for line in says)
    return Malformed(name, lambda: with_initializer(tensor), lines)


def _sparse(name: str, sparse: SparseTensorProto, *says: str) -> Malformed:
    def build() -> ModelProto:
        model = sound()
        model.graph.sparse_initializer.append(sparse)
        return model

    return Malformed(name, build, tuple(f"initializer 'w': {line}" for line in says))


def _opset(model: ModelProto, **imports: int) -> None:
    del model.opset_import[:]
    for domain, version in imports.items():
        model.opset_import.add(domain=domain.replace("_", "."), version=version)


def _set_dim(model: ModelProto, *sizes: int) -> None:
    del model.graph.input[0].type.tensor_type.shape.dim[:]
    for size in sizes:
        model.graph.input[0].type.tensor_type.shape.dim.add(dim_value=size)


HEADERS = (
    _changed(
        "no ir_version",
        lambda model: model.ClearField("ir_version"),
        "model: has no ir_version; re-export the model",
    ),
    _changed(
        "IR version of the future",
        lambda model: setattr(model, "ir_version", 99),
        f"model: IR version 99 is newer than {onnx.IR_VERSION}, the newest that onnxc reads; "
        "update onnxc, or re-export with an older IR version",
    ),
    _changed(
        "IR version before opsets",
        lambda model: setattr(model, "ir_version", 2),
        "model: IR version 2 is older than 3; re-export the model",
    ),
    _changed(
        "no graph",
        lambda model: model.ClearField("graph"),
        "model: has no graph; re-export the model",
    ),
    _changed(
        "no opset import",
        lambda model: model.ClearField("opset_import"),
        "model: has no opset import; re-export the model",
    ),
    _changed(
        "opset of the future",
        lambda model: _opset(model, ai_onnx=29),
        "model: opset 29 of ai.onnx needs a newer onnxc; re-export with opset <= 28",
    ),
    _changed(
        "opset 0",
        lambda model: _opset(model, ai_onnx=0),
        "model: opset 0 of 'ai.onnx' does not exist",
    ),
    written(
        "two opsets of one domain",
        '<ir_version: 10, opset_import: ["": 21, "ai.onnx": 20]>'
        "g (float x) => (float y) { y = Identity(x) }",
        "model: imports domain 'ai.onnx' as 21 and as 20; '' and 'ai.onnx' are one domain",
    ),
    written(
        "a domain without an opset, told once",
        "g (float x) => (float y) { a = other.Foo(x) b = other.Foo(a) y = Identity(b) }",
        "node #0 (other.Foo): the model has no opset import for the domain 'other'",
    ),
)

NAMES = (
    _changed(
        "no operator",
        lambda model: model.graph.node[0].ClearField("op_type"),
        "node 'n' (no operator): has no operator (op_type); re-export the model",
    ),
    written(
        "an undefined input, twice",
        "g (float x) => (float y) { a = Identity(p) y = Equal(a, q) }",
        "node #0 (Identity-21): input 'p' is not defined; "
        "no input, initializer or node has that name",
        "node #1 (Equal-19): input 'q' is not defined; no input, initializer or node has that name",
    ),
    written(
        "unsorted",
        "g (float x) => (float y) { [late] y = Identity(a) [early] a = Identity(x) }",
        "node 'late' (Identity-21): input 'a' is only made later, by node 'early' (Identity-21); "
        "sort the nodes topologically",
    ),
    written(
        "a cycle",
        "g (float x) => (float y) { [n] a = Equal(x, b) [m] b = Identity(a) y = Identity(b) }",
        "node 'n' (Equal-19): input 'b' comes from node 'm' (Identity-21), "
        "which depends on this node itself: the graph has a cycle",
    ),
    written(
        "a node that reads its own output",
        "g (float x) => (float y) { [n] y = Add(x, y) }",
        "node 'n' (Add-14): input 'y' is its own output: the graph has a cycle",
    ),
    written(
        "a cycle through a subgraph",
        "g (bool c) => (float y) { [n] a = If(c)"
        " <then_branch = t () => (float u) { u = Identity(b) },"
        " else_branch = e () => (float u) { u = Constant<value_float = 1.0>() }>"
        " [m] b = Identity(a) y = Identity(b) }",
        "node 'n' (If-21) then_branch node #0 (Identity-21): input 'b' comes from "
        "node 'm' (Identity-21), which depends on this node itself: the graph has a cycle",
        "node 'n' (If-21): the operator is not supported yet; see `onnxc ops`",
    ),
    written(
        "one name made twice",
        "g (float x) => (float y) { [n] y = Identity(x) [m] y = Identity(x) }",
        "node 'm' (Identity-21): output 'y': the name is already made by node 'n' (Identity-21); "
        "rename one",
    ),
    written(
        "an output named as an input",
        "g (float x) => (float x) { [n] x = Identity(x) }",
        "node 'n' (Identity-21): output 'x': the name is already an input; rename one",
    ),
    written(
        "an output named as an initializer",
        "g () => (float w) <float w = {1}> { [n] w = Identity(w) }",
        "node 'n' (Identity-21): output 'w': the name is already an initializer; rename one",
    ),
    written(
        "an input twice",
        "g (float x, float x) => (float y) { y = Identity(x) }",
        "input 'x': the name is already an input; rename one",
    ),
    _changed(
        "an initializer twice",
        lambda model: model.graph.initializer.extend(
            [helper.make_tensor("w", TensorProto.FLOAT, [1], [0.0])] * 2
        ),
        "initializer 'w': the name is already an initializer; rename one",
    ),
    _changed(
        "an initializer without a name",
        lambda model: model.graph.initializer.append(
            helper.make_tensor("", TensorProto.FLOAT, [1], [0.0])
        ),
        "initializer #0: has no name",
    ),
    written(
        "an output that nothing makes",
        "g (float x) => (float y, float z) { y = Identity(x) }",
        "output 'z': is made by no node",
    ),
    _changed(
        "an output without a name",
        lambda model: model.graph.output.add(),
        "output #1: has no name",
    ),
    _changed(
        "an input without a name",
        lambda model: model.graph.input.append(
            helper.make_tensor_value_info("", TensorProto.FLOAT, [1])
        ),
        "input: has no name",
    ),
    written(
        "a subgraph that hides a name, and one that returns a value from outside",
        "g (bool c, float x) => (float y) { [n] y = If(c)"
        " <then_branch = t () => (float x) { x = Constant<value_float = 1.0>() },"
        " else_branch = e () => (float x) {}> }",
        "node 'n' (If-21) then_branch node #0 (Constant-21): output 'x': "
        "hides a value of the same name outside the graph; rename one",
        "node 'n' (If-21) else_branch output 'x': lies outside the graph; "
        "pass it through an Identity",
        "node 'n' (If-21): the operator is not supported yet; see `onnxc ops`",
    ),
)

DECLARATIONS = (
    written(
        "an output that is an input of another shape",
        "g (float[2] x) => (float[3] x) {}",
        "value 'x': is declared with shapes [2] and [3]",
    ),
    written(
        "an output that is an input of another type",
        "g (float[2] x) => (double[2] x) {}",
        "value 'x': is declared as float and as double",
    ),
    written(
        "an output that is an initializer of another shape",
        "g () => (float[3] w) <float[2] w = {1, 2}> {}",
        "initializer 'w': is declared with shape [3] but has [2]",
    ),
    _changed(
        "an input without a type",
        lambda model: model.graph.input[0].ClearField("type"),
        "input 'x': has no type; declare the input's type",
    ),
    _changed(
        "an input of no element type",
        lambda model: model.graph.input[0].type.tensor_type.ClearField("elem_type"),
        "input 'x': has no element type; declare the input's type",
    ),
    _changed(
        "an output of an unknown type",
        lambda model: setattr(model.graph.output[0].type.tensor_type, "elem_type", 77),
        "value 'y': element type 77 is not supported",
    ),
    _changed(
        "an input that is a map",
        lambda model: model.graph.input[0].type.map_type.SetInParent(),
        "input 'x': has a type that is not supported (map); declare the input's type",
    ),
    _changed(
        "a negative dim",
        lambda model: _set_dim(model, 3, -2),
        "input 'x': dimension 1 is negative (-2); "
        "name the dimension (dim_param) or leave its value out to fix it with --dim",
    ),
    _changed(
        "dims that overflow",
        lambda model: _set_dim(model, 2**40, 0, 2**40),
        "input 'x': dimensions [1099511627776,0,1099511627776] overflow: more than 2^63 - 1 bytes",
    ),
    written(
        "an initializer that contradicts its input",
        "g (float[3] w, int64[2] v) => (float[2] y)"
        " <float[2] w = {1, 2}, float[2] v = {1, 2}> { y = Identity(w) }",
        "initializer 'w': is declared with shape [3] but has [2]",
        "initializer 'v': is declared as int64 but holds float",
    ),
)

_SEGMENT = TensorProto(name="w", data_type=1, dims=[1], segment=TensorProto.Segment(begin=0))

TENSORS = (
    _tensor(
        "no data type",
        TensorProto(name="w", dims=[1], raw_data=b"1234"),
        "has no element type",
    ),
    _tensor(
        "an unknown data type",
        TensorProto(name="w", data_type=99, dims=[1]),
        "element type 99 is not supported",
    ),
    _tensor(
        "a type that ONNX knows and onnxc does not",
        TensorProto(name="w", data_type=27, dims=[1]),
        "element type float6e2m3 is not supported",
    ),
    _tensor(
        "a negative dim",
        TensorProto(name="w", data_type=1, dims=[2, -3]),
        "dimension 1 is negative (-3)",
    ),
    _tensor(
        "dims that overflow",
        TensorProto(name="w", data_type=1, dims=[2**31, 2**31]),
        "dimensions [2147483648,2147483648] overflow: more than 2^63 - 1 bytes",
    ),
    _tensor(
        "too many dims",
        TensorProto(name="w", data_type=1, dims=[1] * 65, raw_data=b"1234"),
        "has 65 dimensions, more than 64",
    ),
    _tensor("segments", _SEGMENT, "is stored in segments, which are not supported; store it whole"),
    _tensor(
        "no data",
        TensorProto(name="w", data_type=1, dims=[2]),
        "data is too short: float[2] needs 2 values in float_data, found 0",
    ),
    _tensor(
        "raw data too short",
        TensorProto(name="w", data_type=1, dims=[2], raw_data=bytes(7)),
        "data is too short: float[2] needs 8 bytes, found 7",
    ),
    _tensor(
        "raw data too long",
        TensorProto(name="w", data_type=22, dims=[3], raw_data=bytes(3)),
        "data is too long: int4[3] needs 2 bytes, found 3",
    ),
    _tensor(
        "packed values too short",
        TensorProto(name="w", data_type=25, dims=[5], int32_data=[1]),
        "data is too short: uint2[5] needs 2 values in int32_data, found 1",
    ),
    _tensor(
        "half a complex number",
        TensorProto(name="w", data_type=14, dims=[1], float_data=[1.0]),
        "data is too short: complex64[1] needs 2 values in float_data, found 1",
    ),
    _tensor(
        "strings too long",
        TensorProto(name="w", data_type=8, dims=[1], string_data=[b"a", b"b"]),
        "data is too long: string[1] needs 1 values in string_data, found 2",
    ),
    _tensor(
        "two fields",
        TensorProto(name="w", data_type=1, dims=[1], float_data=[1.0], raw_data=bytes(4)),
        "has data in raw_data and float_data; keep one of them",
    ),
    _tensor(
        "the wrong field",
        TensorProto(name="w", data_type=7, dims=[1], int32_data=[1]),
        "is int64, which cannot be stored in int32_data; use int64_data",
    ),
    _tensor(
        "raw strings",
        TensorProto(name="w", data_type=8, dims=[1], raw_data=b"a"),
        "is string, which cannot be stored in raw_data; use string_data",
    ),
    _tensor(
        "a value that does not fit",
        TensorProto(name="w", data_type=3, dims=[2], int32_data=[1, 300]),
        "value 300 does not fit int8 (-128 to 127)",
    ),
    _tensor(
        "external data in memory",
        TensorProto(
            name="w",
            data_type=1,
            dims=[1],
            data_location=TensorProto.EXTERNAL,
            external_data=[onnx.StringStringEntryProto(key="location", value="w.bin")],
        ),
        "its data lies in the file 'w.bin', but the model was given in memory; "
        "pass the path of the model file",
    ),
)

SPARSE = (
    _sparse(
        "indices out of order",
        sparse_tensor([2, 1], [2], [4], [1.0, 2.0]),
        "sparse indices must be in strictly ascending order",
    ),
    _sparse(
        "an index twice",
        sparse_tensor([0, 1, 0, 1], [2, 2], [2, 2], [1.0, 2.0]),
        "sparse indices must be in strictly ascending order",
    ),
    _sparse(
        "an index out of range",
        sparse_tensor([0, 2], [1, 2], [2, 2], [1.0]),
        "sparse index 2 is out of range for dims [2, 2]",
    ),
    _sparse(
        "a count that does not match",
        sparse_tensor([0, 1, 2], [3], [4], [1.0]),
        "sparse indices have shape [3]; 1 values in rank 1 need [1] or [1, 1]",
    ),
    _sparse(
        "a dense form of a gigabyte",
        sparse_tensor([0], [1], [2**28], [1.0]),
        "made dense, sparse data takes more than 256 MiB (1,073,741,824 bytes)",
    ),
)


def _constant(attribute: AttributeProto, opset: int = 21) -> Callable[[ModelProto], None]:
    def change(model: ModelProto) -> None:
        node = model.graph.node[0]
        node.op_type, node.input[:] = "Constant", []
        node.attribute.append(attribute)
        model.opset_import[0].version = opset

    return change


_SPARSE_VALUE = helper.make_attribute("sparse_value", sparse_tensor([0], [1], [2], [1.0]))

ATTRIBUTES = (
    _changed(
        "a tensor too short",
        _constant(helper.make_attribute("value", TensorProto(data_type=1, dims=[2]))),
        "node 'n' (Constant-21): attribute 'value' data is too short: "
        "float[2] needs 2 values in float_data, found 0",
    ),
    _changed(
        "sparse_value before opset 11",
        _constant(_SPARSE_VALUE, opset=9),
        "node 'n' (Constant-9): attribute 'sparse_value' is sparse, "
        "which this operator does not take",
    ),
    _changed(
        "no type, given twice",
        lambda model: model.graph.node[0].attribute.extend([AttributeProto(name="a", i=1)] * 2),
        "node 'n' (Identity-21): attribute 'a' has no type; re-export the model",
        "node 'n' (Identity-21): attribute 'a' is given twice",
        "node 'n' (Identity-21): attribute 'a' has no type; re-export the model",
    ),
    _changed(
        "a value of another type",
        _constant(AttributeProto(name="value_int", type=AttributeProto.INT, f=1.0)),
        "node 'n' (Constant-21): attribute 'value_int' has the type INT but a value in 'f'",
    ),
    _changed(
        "a graph that is missing",
        _constant(AttributeProto(name="body", type=AttributeProto.GRAPH)),
        "node 'n' (Constant-21): attribute 'body' has the type GRAPH but no value",
    ),
    _changed(
        "text that is none",
        _constant(AttributeProto(name="value_string", type=AttributeProto.STRING, s=b"\xff")),
        "node 'n' (Constant-21): attribute 'value_string' is not valid UTF-8; "
        "use a tensor for bytes that are no text",
    ),
    _changed(
        "a reference outside a function",
        _constant(AttributeProto(name="value_int", type=AttributeProto.INT, ref_attr_name="alpha")),
        "node 'n' (Constant-21): attribute 'value_int' refers to 'alpha', "
        "but only a function has attributes",
    ),
)

GRAPHS = (*HEADERS, *NAMES, *DECLARATIONS, *TENSORS, *SPARSE, *ATTRIBUTES)
