"""upgrade: one node of any version to the newest form of its operator.

What the schemas say is done by them: attributes that became inputs, defaults of the node's own
version. What they do not say is in the table of upgrade_rules.py. An attribute that neither knows
is refused by name, never dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

import onnx_ir as ir
from onnx import defs

from onnxc.diagnostics import Kind
from onnxc.dtypes import BY_NAME, ElementType
from onnxc.errors import RefusalError
from onnxc.op import newest_schema
from onnxc.passes.rewriting import Rewriting
from onnxc.passes.upgrade_rules import HINTS, RULES, Rule
from onnxc.values import element_type_of

_OF_ATTRIBUTE: Final = {
    defs.OpSchema.AttrType.INT: "tensor(int64)",
    defs.OpSchema.AttrType.INTS: "tensor(int64)",
    defs.OpSchema.AttrType.FLOAT: "tensor(float)",
    defs.OpSchema.AttrType.FLOATS: "tensor(float)",
}


def upgrade(node: ir.Node, schema: defs.OpSchema) -> list[ir.Node]:
    """The nodes that replace `node`, which is of the version of `schema`, in order.

    All are of the newest form, with every default filled in. `node` is one of them, changed in
    place, and alone where it meant the same all along; the others belong to no graph yet. Raises
    RefusalError where the newest form cannot say what the node means.
    """
    rewriting = Rewriting(node, schema)
    for rule in rules_for(schema):
        for name, default in _defaults(schema).items():
            if name in rule.handles and name not in node.attributes:
                node.attributes[name] = default
        rule.apply(rewriting)
    newest = newest_schema(node.domain, node.op_type)
    if schema.since_version != newest.since_version:
        for name in HINTS & set(node.attributes):
            del node.attributes[name]
        _promote_attributes(rewriting, newest)
        _refuse_unknown(node, schema, newest)
    _fill_defaults(node, schema, newest)
    for new in rewriting.nodes:
        if new is not node:
            for name, default in _defaults(newest_schema("", new.op_type)).items():
                new.attributes.setdefault(name, default)
    return rewriting.nodes


def rules_for(schema: defs.OpSchema) -> list[Rule]:
    """The rules that a node of this version needs, in order."""
    rules = RULES.get(schema.name, ()) if schema.domain == "" else ()
    return [rule for rule in rules if schema.since_version < rule.before]


def replacement(domain: str, name: str) -> str:
    """The operator that takes the place of a deprecated one; else the name itself."""
    found = [rule.becomes for rule in RULES.get(name, ()) if domain == "" and rule.becomes]
    return found[0] if found else name


def default_of(node: ir.Node, name: str) -> object:
    """An attribute's default in the newest version; None where it has none."""
    default = _defaults(newest_schema(node.domain, node.op_type)).get(name)
    return None if default is None else default.value


@cache
def _defaults(schema: defs.OpSchema) -> Mapping[str, ir.Attr]:
    return {
        name: ir.serde.deserialize_attribute(formal.default_value)
        for name, formal in schema.attributes.items()
        if formal.default_value.name
    }


def _fill_defaults(node: ir.Node, schema: defs.OpSchema, newest: defs.OpSchema) -> None:
    """Defaults of the node's own version, and of the newest for what that did not have."""
    own = _defaults(schema)
    for name, default in _defaults(newest).items():
        if name not in node.attributes:
            if name not in schema.attributes or node.op_type != schema.name:
                node.attributes[name] = default
            elif name in own:
                node.attributes[name] = own[name]


def _promote_attributes(rewriting: Rewriting, newest: defs.OpSchema) -> None:
    """Attributes that a later version turned into an input of the same name become constants."""
    node, schema = rewriting.node, rewriting.schema
    for position, formal in enumerate(newest.inputs):
        name = formal.name
        if name not in schema.attributes or name in newest.attributes:
            continue
        attribute = node.attributes.pop(name, _defaults(schema).get(name))
        if attribute is None:
            continue
        if rewriting.input(position) is not None:
            raise RefusalError(
                Kind.ATTRIBUTES_CONFLICT,
                f"{name} is given as attribute and as input",
                "give one of them",
            )
        dtype = _formal_dtype(node, newest, formal, schema.attributes[name].type)
        rewriting.set_input(position, rewriting.constant(attribute.value, name, dtype))


def _formal_dtype(
    node: ir.Node,
    newest: defs.OpSchema,
    formal: defs.OpSchema.FormalParameter,
    kind: defs.OpSchema.AttrType,
) -> ElementType:
    """The type of an input that an attribute becomes: that of an input it goes with, or its own."""
    for other, value in zip(newest.inputs, node.inputs, strict=False):
        if other.type_str == formal.type_str and value is not None and value.dtype is not None:
            return element_type_of(value.dtype)
    name = _OF_ATTRIBUTE[kind]
    assert name in formal.types
    return BY_NAME[name.removeprefix("tensor(").removesuffix(")")]


def _refuse_unknown(node: ir.Node, schema: defs.OpSchema, newest: defs.OpSchema) -> None:
    """Raises RefusalError for what the newest form would not take: nothing is dropped."""
    for name, attribute in node.attributes.items():
        formal = newest.attributes.get(name)
        if formal is None:
            fact = f"attribute {name} of version {schema.since_version} is not supported"
            raise RefusalError(
                Kind.OLD_VERSION, fact, f"re-export with opset {newest.since_version} or newer"
            )
        if attribute.type.name != str(formal.type).rpartition(".")[2]:
            fact = f"attribute {name} of version {schema.since_version} is {attribute.type.name}"
            raise RefusalError(
                Kind.OLD_VERSION, fact, f"re-export with opset {newest.since_version} or newer"
            )
    for name, formal in newest.attributes.items():
        if formal.required and name not in node.attributes:
            raise RefusalError(
                Kind.OLD_VERSION, f"attribute {name} is missing", "newer versions require it"
            )
    for position, parameter in enumerate(newest.inputs):
        single = parameter.option == defs.OpSchema.FormalParameterOption.Single
        if single and (position >= len(node.inputs) or node.inputs[position] is None):
            raise RefusalError(
                Kind.OLD_VERSION, f"{parameter.name} is missing", "newer versions require it"
            )
