"""upgrade: one node of any version to the newest form of its operator."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx import defs

from onnxc.dtypes import BY_NAME, INT64, ElementType
from onnxc.errors import RefusalError
from onnxc.op import OPSET, newest_schema
from onnxc.values import element_type_of, static_shape, tensor_of


def upgrade(node: ir.Node, schema: defs.OpSchema) -> list[ir.Node]:
    """Rewrites `node`, which is of the version of `schema`; raises RefusalError where it cannot.

    Returns nodes that were put before it. A node that meant the same all along stays as it is.
    """
    newest = newest_schema(node.domain, node.op_type)
    legacy = schema.since_version < 7 and {"axis", "broadcast"} <= set(schema.attributes)
    known = {*newest.attributes, *(formal.name for formal in newest.inputs)}
    _fill_defaults(node, schema, known | {"broadcast"} if legacy else known)
    before = _align_legacy_broadcast(node) if legacy else []
    _promote_attributes(node, schema, newest)
    return before


def _fill_defaults(node: ir.Node, schema: defs.OpSchema, known: set[str]) -> None:
    """Defaults of the node's own version, where the newest still asks: it may have others."""
    for name, formal in schema.attributes.items():
        if name in known and name not in node.attributes and formal.default_value.name:
            node.attributes[name] = ir.serde.deserialize_attribute(formal.default_value)


def _promote_attributes(node: ir.Node, schema: defs.OpSchema, newest: defs.OpSchema) -> None:
    """Attributes that a later version turned into an input of the same name become constants."""
    for position, formal in enumerate(newest.inputs):
        if formal.name not in schema.attributes or formal.name in newest.attributes:
            continue
        attribute = node.attributes.pop(formal.name, None)
        if attribute is None:
            continue
        name = f"{node.name or node.op_type}/{formal.name}"
        value = _constant(attribute.value, name, _formal_dtype(node, newest, formal))
        if position >= len(node.inputs):
            node.resize_inputs(position + 1)
        node.replace_input_with(position, value)


def _formal_dtype(
    node: ir.Node, newest: defs.OpSchema, formal: defs.OpSchema.FormalParameter
) -> ElementType:
    """The type of an input that an attribute becomes: named, or that of an input it goes with."""
    for other, value in zip(newest.inputs, node.inputs, strict=False):
        if other.type_str == formal.type_str and value is not None and value.dtype is not None:
            return element_type_of(value.dtype)
    (name, *_) = sorted(formal.types)
    return BY_NAME[name.removeprefix("tensor(").removesuffix(")")]


def _align_legacy_broadcast(node: ir.Node) -> list[ir.Node]:
    """Before opset 7, B broadcast to A only when told to, and from the dimension `axis` on.

    With `broadcast`, B has one element or its shape is a run of A's dimensions that starts at
    `axis` (by default the last ones); without, the shapes are equal.
    """
    left, right = node.inputs
    assert left is not None
    assert right is not None
    wide, narrow = static_shape(left), static_shape(right)
    if wide is None or narrow is None:
        raise RefusalError("the shapes must be known for a broadcast of this version")
    broadcast = node.attributes.pop("broadcast").value
    axis_attribute = node.attributes.pop("axis", None)
    if not broadcast:
        if wide != narrow:
            fact = f"shapes {list(wide)} and {list(narrow)} differ and broadcast is 0"
            raise RefusalError(fact, "set broadcast, or re-export with opset 7 or newer")
        return []
    spare = len(wide) - len(narrow)
    axis = spare if axis_attribute is None else int(axis_attribute.value)
    axis += len(wide) if axis < 0 else 0
    single = all(extent == 1 for extent in narrow) and spare >= 0
    if not single and not (0 <= axis <= spare and wide[axis : axis + len(narrow)] == narrow):
        fact = f"the shape {list(narrow)} of B is no run of A's {list(wide)} from axis {axis} on"
        raise RefusalError(fact, "re-export with opset 7 or newer")
    if single or axis == spare:
        return []
    return [_unsqueeze(node, 1, range(len(narrow), len(narrow) + spare - axis))]


def _unsqueeze(node: ir.Node, position: int, axes: range) -> ir.Node:
    """An Unsqueeze put before one input of `node`."""
    value = node.inputs[position]
    label = f"{node.name or node.op_type}/Unsqueeze"
    new = ir.Node("", "Unsqueeze", [value, _constant(axes, f"{label}/axes")], name=label)
    new.outputs[0].name = f"{label}/expanded"
    new.version = OPSET
    node.prepend(new)
    node.replace_input_with(position, new.outputs[0])
    return new


def _constant(values: object, name: str, dtype: ElementType = INT64) -> ir.Value:
    array = np.asarray(values, dtype.numpy)
    return ir.Value(
        name=name,
        type=ir.TensorType(ir.DataType(dtype.code)),
        shape=ir.Shape(array.shape),
        const_value=tensor_of(array, dtype, name),
    )
