"""inference: what ONNX's own shape inference says of a node's outputs, or why it says nothing."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import numpy as np
import onnx
import onnx_ir as ir
from onnx import shape_inference

from onnxc.diagnostics import Kind
from onnxc.dtypes import numpy_dtype
from onnxc.errors import RefusalError
from onnxc.op import OPSET, newest_schema
from onnxc.passes.taken_for_granted import check_taken_for_granted
from onnxc.values import element_type_of, static_shape, tensor_of

DATA_LIMIT: Final = 64 * 1024
"""Bytes of a constant that onnx gets to see."""
_OF_OPERATORS: Final = {
    "Einsum": Kind.EINSUM_EQUATION,
    "Split": Kind.SPLIT_SIZES,
    "Transpose": Kind.PERMUTATION,
}
_OF_WORDS: Final = (
    (r"duplicate", Kind.AXIS_TWICE),
    (r"\bax[ei]s\b.*\b(range|rank|in \[)|range for rank", Kind.AXIS_OUT_OF_RANGE),
    (r"matrix multiplication", Kind.INNER_DIMENSIONS),
    (r"incompatible dimensions|broadcast", Kind.SHAPES_DO_NOT_BROADCAST),
    (r"incorrect (number|size)|number of (axes|spatial)", Kind.ENTRY_COUNT),
    (r"step' cannot be", Kind.NUMBER_OUT_OF_RANGE),
    (r"\brank\b|\d-dimensional|dimensionality|\d-?D tensor", Kind.OPERAND_RANK),
    (r"unification|dimensions? .* (differ|mismatch|not match)", Kind.OPERAND_SHAPE),
)
"""By words of the text, the first that is found."""
_MERGED: Final = re.compile(r".* differ\. Inferred=(\d+) Declared=(\d+) Dimension=(\d+)")


class Told(NamedTuple):
    """What ONNX says of an output; None for what it does not know."""

    type: ir.TypeProtocol | None
    extents: tuple[int | ir.SymbolicDim, ...] | None


def inferred_outputs(node: ir.Node) -> list[Told]:
    """What ONNX's inference for the newest schema says of each output; raises RefusalError.

    Names are by position: those of the model may be anything, and onnx tells values apart by them.
    """
    check_taken_for_granted(node)
    inputs = {f"i{n}": value for n, value in enumerate(node.inputs) if value is not None}
    types = {name: _type_proto(value) for name, value in inputs.items()}
    data = {
        name: ir.serde.serialize_tensor(tensor)
        for name, value in inputs.items()
        if (tensor := _known(value)) is not None and tensor.nbytes <= DATA_LIMIT
    }
    if node.op_type == "Pad" and "i3" in data and inputs["i3"].dtype is ir.DataType.INT32:
        # onnx reads axes as int64, whatever their type is.
        axes = inputs["i3"].const_value
        assert axes is not None
        data["i3"] = ir.serde.serialize_tensor(ir.tensor(axes.numpy().astype("int64"), name="i3"))
        types["i3"].tensor_type.elem_type = onnx.TensorProto.INT64
    proto = ir.serde.serialize_node(node)
    proto.input[:] = [f"i{n}" if f"i{n}" in inputs else "" for n in range(len(node.inputs))]
    # Of Attention onnx forgets the past in the scores' shape unless the present is asked for too.
    every = node.op_type == "Attention" and "i4" in inputs
    proto.output[:] = [f"o{n}" if v.name or every else "" for n, v in enumerate(node.outputs)]
    version = node.version or OPSET
    opset = [onnx.helper.make_opsetid(node.domain, version if node.domain else OPSET)]
    schema = newest_schema(node.domain, node.op_type)
    if not schema.has_type_and_shape_inference_function:  # two, that keep type and shape
        return [_told(types["i0"])]
    try:
        found = shape_inference.infer_node_outputs(schema, proto, types, data, opset_imports=opset)
    except (shape_inference.InferenceError, onnx.checker.ValidationError, ValueError) as error:
        raise _fault(node, str(error)) from None
    return [_told(found.get(f"o{n}", onnx.TypeProto())) for n in range(len(node.outputs))]


def _known(value: ir.Value) -> ir.TensorProtocol | None:
    """The constant; a list without elements is one, also where it comes at run time."""
    if value.const_value is None and value.dtype is not None and static_shape(value) == (0,):
        dtype = element_type_of(value.dtype)
        return tensor_of(np.empty(0, numpy_dtype(dtype)), dtype)
    return value.const_value


def _told(proto: onnx.TypeProto) -> Told:
    if not proto.WhichOneof("value"):
        return Told(None, None)
    shape = ir.serde.deserialize_type_proto_for_shape(proto)
    kind = ir.serde.deserialize_type_proto_for_type(proto)
    return Told(kind, None if shape is None else tuple(shape))


def _type_proto(value: ir.Value) -> onnx.TypeProto:
    proto = onnx.TypeProto()
    assert value.type is not None
    ir.serde.serialize_type_into(proto, value.type)
    if value.shape is not None:
        ir.serde.serialize_shape_into(proto, value.shape)
    return proto


def _fault(node: ir.Node, text: str) -> RefusalError:
    """The refusal of a node of which onnx says `text`."""
    operator = node.op_type
    fact = text.rpartition("Error]")[2].strip().rstrip(".")
    if merged := _MERGED.fullmatch(fact):
        # onnx speaks of its own way of working; nothing was declared
        other, one, axis = merged.groups()
        return RefusalError(Kind.OPERAND_SHAPE, f"dimension {axis} is {one} here and {other} there")
    if operator in _OF_OPERATORS:
        return RefusalError(_OF_OPERATORS[operator], fact)
    found = (kind for words, kind in _OF_WORDS if re.search(words, fact, re.IGNORECASE))
    kind = next(found, Kind.INFERENCE_FAILED)
    if kind is Kind.AXIS_OUT_OF_RANGE:
        fact = _axis_fact(node) or fact
    return RefusalError(kind, fact)


def _axis_fact(node: ir.Node) -> str:
    """Which axis it is, of which onnx tells the allowed ones only; "" where that is not clear."""
    axis, first = node.attributes.get("axis"), node.inputs[0] if node.inputs else None
    if axis is None or axis.type is not ir.AttributeType.INT or first is None:
        return ""
    rank = len(first.shape or ())
    if -rank <= axis.as_int() < rank:
        return ""
    return f"axis {axis.as_int()} is not in a tensor of {rank} dimensions"
