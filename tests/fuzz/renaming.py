"""Gives every name and text of a model others that mean the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from google.protobuf.message import Message
from onnx import ModelProto

_NAMES = {
    "NodeProto": ("name", "input", "output"),
    "ValueInfoProto": ("name",),
    "TensorProto": ("name",),
    "GraphProto": ("name",),
    "FunctionProto": ("name", "input", "output", "attribute"),
    "Dimension": ("dim_param",),
    "AttributeProto": ("ref_attr_name",),
}
"""Fields that name something; those of a model-local function's calls come on top."""
_TEXTS = ("doc_string", "producer_name", "producer_version", "key", "value", "model_version")


def renamed(model: ModelProto, rename: Callable[[str], str], text: str) -> ModelProto:
    """A copy whose every name is `rename` of the old one; `text` stands wherever text may.

    The empty name, which is no name, stays. Attributes keep their names and values.
    """
    result = ModelProto()
    result.CopyFrom(model)
    functions = {(function.domain, function.name) for function in result.functions}
    for message in list(_messages(result)):
        kind = message.DESCRIPTOR.name
        calls = kind == "NodeProto" and (message.domain, message.op_type) in functions
        own = [*_NAMES.get(kind, ()), *(("op_type",) if calls else ())]
        for field, value in message.ListFields():
            if field.name in own and field.is_repeated:
                getattr(message, field.name)[:] = [name and rename(name) for name in value]
            elif field.name in own:
                setattr(message, field.name, value and rename(value))
        if calls or kind == "FunctionProto":
            for attribute in message.attribute if calls else message.attribute_proto:
                attribute.name = rename(attribute.name)
        for field in message.DESCRIPTOR.fields:
            if field.name in _TEXTS and field.type == field.TYPE_STRING:
                setattr(message, field.name, text)
            elif field.name == "metadata_props":
                message.metadata_props.add(key=text, value=text)
    return result


def _messages(message: Message) -> Iterator[Message]:
    yield message
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for inner in value if field.is_repeated else (value,):
                yield from _messages(inner)
