"""Checks the attributes of one node, except the graphs in them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import onnx

from onnxc.diagnostics import Kind
from onnxc.protobuf.sparse import Densifier
from onnxc.protobuf.tensors import Fault, tensor_faults
from onnxc.protobuf.where import quoted, standard_domain

_Type = onnx.AttributeProto
_FIELDS: Final = {
    _Type.FLOAT: "f",
    _Type.INT: "i",
    _Type.STRING: "s",
    _Type.TENSOR: "t",
    _Type.GRAPH: "g",
    _Type.SPARSE_TENSOR: "sparse_tensor",
    _Type.TYPE_PROTO: "tp",
    _Type.FLOATS: "floats",
    _Type.INTS: "ints",
    _Type.STRINGS: "strings",
    _Type.TENSORS: "tensors",
    _Type.GRAPHS: "graphs",
    _Type.SPARSE_TENSORS: "sparse_tensors",
    _Type.TYPE_PROTOS: "type_protos",
}
_MUST_BE_SET: Final = ("t", "g", "sparse_tensor", "tp")
_OTHER_FIELDS: Final = ("name", "ref_attr_name", "doc_string", "type")
_SPARSE_CONSTANT_SINCE: Final = 11


def attribute_faults(
    node: onnx.NodeProto,
    declared: Collection[str] | None,
    opset: int,
    densifier: Densifier,
) -> Iterator[Fault]:
    """What is wrong with a node's attributes; makes a Constant's sparse_value dense.

    declared   the attributes of the function around the node, None in the main graph
    opset      the version of the node's domain
    """
    seen: set[str] = set()
    for attribute in node.attribute:
        name = quoted(attribute.name)
        if attribute.name in seen:
            yield Kind.ATTRIBUTE_ENCODING, f"attribute {name} is given twice", ""
        seen.add(attribute.name)
        if not attribute.name:
            yield Kind.ATTRIBUTE_ENCODING, "an attribute has no name", ""
        elif attribute.ref_attr_name:
            yield from _reference_faults(attribute, declared)
        else:
            for kind, fact, remedy in _value_faults(attribute, densifier):
                yield kind, f"attribute {name} {fact}", remedy
    for attribute in node.attribute:
        if attribute.type in (_Type.SPARSE_TENSOR, _Type.SPARSE_TENSORS):
            yield from _sparse_faults(node, attribute, opset, densifier)


def _reference_faults(
    attribute: onnx.AttributeProto, declared: Collection[str] | None
) -> Iterator[Fault]:
    name, referred = quoted(attribute.name), quoted(attribute.ref_attr_name)
    if declared is None:
        fact = f"attribute {name} refers to {referred}, but only a function has attributes"
        yield Kind.ATTRIBUTE_ENCODING, fact, ""
    elif attribute.ref_attr_name not in declared:
        fact = f"attribute {name} refers to {referred}, which the function does not declare"
        yield Kind.ATTRIBUTE_ENCODING, fact, ""


def _value_faults(attribute: onnx.AttributeProto, densifier: Densifier) -> Iterator[Fault]:
    own_field = _FIELDS.get(attribute.type)
    if own_field is None:
        yield Kind.ATTRIBUTE_ENCODING, "has no type", "re-export the model"
        return
    used = [field.name for field, _ in attribute.ListFields() if field.name not in _OTHER_FIELDS]
    wrong = [field for field in used if field != own_field]
    type_name = onnx.AttributeProto.AttributeType.Name(attribute.type)
    if wrong:
        yield Kind.ATTRIBUTE_ENCODING, f"has the type {type_name} but a value in {wrong[0]!r}", ""
    elif own_field in _MUST_BE_SET and not used:
        yield Kind.ATTRIBUTE_ENCODING, f"has the type {type_name} but no value", ""
    for text in (attribute.s, *attribute.strings):
        if not _is_utf8(text):
            yield (
                Kind.ATTRIBUTE_ENCODING,
                "is not valid UTF-8",
                "use a tensor for bytes that are no text",
            )
            break
    if attribute.type == _Type.TENSOR:
        yield from tensor_faults(attribute.t, densifier.folder)
    for position, tensor in enumerate(attribute.tensors):
        for kind, fact, remedy in tensor_faults(tensor, densifier.folder):
            yield kind, f"tensor {position}: {fact}", remedy


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _sparse_faults(
    node: onnx.NodeProto, attribute: onnx.AttributeProto, opset: int, densifier: Densifier
) -> Iterator[Fault]:
    """Turns a Constant's sparse_value into its value; nothing else takes a sparse tensor."""
    constant = node.op_type == "Constant" and standard_domain(node.domain) == ""
    if not constant or attribute.name != "sparse_value" or opset < _SPARSE_CONSTANT_SINCE:
        fact = f"attribute {quoted(attribute.name)} is sparse, which this operator does not take"
        yield Kind.ATTRIBUTE_TYPE, fact, ""
    elif any(other.name == "value" for other in node.attribute):
        yield Kind.ATTRIBUTES_CONFLICT, "has both 'value' and 'sparse_value'", "keep one of them"
    else:
        faults: list[Fault] = []
        dense = densifier.dense(attribute.sparse_tensor, faults)
        for kind, fact, remedy in faults:
            yield kind, f"attribute 'sparse_value' {fact}", remedy
        attribute.Clear()
        attribute.name, attribute.type = "value", _Type.TENSOR
        attribute.t.CopyFrom(dense)
