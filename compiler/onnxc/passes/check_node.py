"""Checks of one node against the schema of its own version, for load and infer."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir
from onnx import defs

from onnxc.errors import Problem
from onnxc.op import load_operators, schema_at, schemas
from onnxc.passes.expand_function import expandable
from onnxc.passes.upgrade import replacement, rules_for
from onnxc.protobuf.where import quoted
from onnxc.values import type_text

_Option = defs.OpSchema.FormalParameterOption


def operator_problems(domain: str, name: str, version: int, where: str) -> Iterator[Problem]:
    """The operator is unknown, too young, deprecated or not supported."""
    known = schemas(domain, name)
    schema = schema_at(domain, name, version)
    if not known:
        shown = domain or "ai.onnx"
        yield Problem(where, f"domain {shown} has no such operator", "see `onnxc ops`")
    elif schema is None:
        fact = f"the operator came with opset {known[0].since_version}"
        yield Problem(where, fact, "re-export with that or newer")
    elif schema.deprecated and not rules_for(schema):
        yield Problem(where, "the operator is deprecated at this opset", "re-export the model")
    elif not is_supported(domain, name):
        yield Problem(where, "the operator is not supported yet", "see `onnxc ops`")


def is_supported(domain: str, name: str) -> bool:
    """Whether an operator has a function, or one that takes its place has, or a body of such."""
    key = (domain, replacement(domain, name))
    return key in load_operators() or key in expandable()


def unsupported_problem(node: ir.Node, where: str) -> Problem:
    """Of a node that a supported one became: there is no function for it, nor a body."""
    named = "the operator" if f"({node.op_type}-" in where else f"its part {node.op_type}"
    return Problem(where, f"{named} is not supported yet", "see `onnxc ops`")


def unknown_shape_problem(node: ir.Node, value: ir.Value, where: str) -> Problem:
    """A result has no size before the run: which operands, that come with it, may decide."""
    operator = load_operators()[node.domain, node.op_type]
    asked = operator.constant_inputs or range(len(node.inputs))
    late = [
        f"{formal.name} ({quoted(v.name or '')})"
        for n, (formal, v) in enumerate(zip(operator.inputs, node.inputs, strict=False))
        if n in asked and v is not None and v.const_value is None and len(v.shape or ()) <= 1
    ]
    fact = f"the shape of output {quoted(value.name or '')} is unknown at compile time"
    if late:
        fact += f": it may depend on {', '.join(late)}"
    return Problem(where, fact, "declare it in the model, or make what decides it a constant")


def arity_problems(node: ir.Node, schema: defs.OpSchema, where: str) -> Iterator[Problem]:
    """Too few or too many inputs or outputs, and required inputs that are left out."""
    counts = (
        ("input", len(node.inputs), schema.min_input, schema.max_input),
        ("output", len(node.outputs), schema.min_output, schema.max_output),
    )
    for what, count, least, most in counts:
        if not least <= count <= most:
            needed = str(least) if least == most else f"{least} to {most}"
            plural = "" if needed == "1" else "s"
            fact = f"has {count} {what}{'' if count == 1 else 's'}"
            yield Problem(where, fact, f"the schema has {needed} {what}{plural}")
    for formal, value in zip(schema.inputs, node.inputs, strict=False):
        if value is None and formal.option == _Option.Single:
            yield Problem(where, f"input {formal.name} is required but left out")


def attribute_problems(node: ir.Node, schema: defs.OpSchema, where: str) -> Iterator[Problem]:
    """Attributes that the version does not have, of a wrong type, or missing."""
    for name, attribute in node.attributes.items():
        formal = schema.attributes.get(name)
        if formal is None:
            known = ", ".join(sorted(schema.attributes)) or "none"
            fact = f"attribute '{name}' does not exist at this version"
            yield Problem(where, fact, f"the schema has {known}")
        elif attribute.type.name != str(formal.type).rpartition(".")[2]:
            fact = f"attribute '{name}' is {attribute.type.name}"
            yield Problem(where, fact, f"the schema says {str(formal.type).rpartition('.')[2]}")
    for name, formal in schema.attributes.items():
        if formal.required and name not in node.attributes:
            yield Problem(where, f"attribute '{name}' is required but missing")


def type_problems(node: ir.Node, schema: defs.OpSchema, where: str) -> Iterator[Problem]:
    """Input types that the version does not allow, and inputs that must share one but do not."""
    bound: dict[str, tuple[str, str]] = {}
    for position, value in enumerate(node.inputs):
        if value is None or not schema.inputs:
            continue
        formal = schema.inputs[min(position, len(schema.inputs) - 1)]
        actual = type_text(value.type)
        if actual not in formal.types:
            yield _type_problem("input", formal, value, where)
            continue
        first, kind = bound.setdefault(formal.type_str, (formal.name, actual))
        if kind != actual and formal.is_homogeneous:
            fact = f"input {first} is {kind} but input {formal.name} is {actual}"
            yield Problem(where, fact, "both must have one type: cast one of them")


def output_type_problems(node: ir.Node, schema: defs.OpSchema, where: str) -> Iterator[Problem]:
    """Inferred output types that the version does not allow, such as those of an old Constant."""
    for position, value in enumerate(node.outputs):
        formal = schema.outputs[min(position, len(schema.outputs) - 1)]
        if value.type is not None and type_text(value.type) not in formal.types:
            yield _type_problem("output", formal, value, where)


def _type_problem(
    side: str, formal: defs.OpSchema.FormalParameter, value: ir.Value, where: str
) -> Problem:
    fact = f"{side} {formal.name} ({quoted(value.name or '')}) is {type_text(value.type)}"
    allowed = ", ".join(sorted(t for t in formal.types if t.startswith("tensor")))
    return Problem(where, fact, f"this version allows {allowed}")
