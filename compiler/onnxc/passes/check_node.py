"""Checks of one node against the schema of its own version, for load and infer."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from functools import cache
from typing import Final

import onnx_ir as ir
from onnx import defs

from onnxc.diagnostics import Kind
from onnxc.errors import Problem
from onnxc.op import load_operators, schema_at, schemas
from onnxc.passes.expand_function import expandable
from onnxc.passes.fixable import with_inputs
from onnxc.passes.upgrade import replacement, rules_for
from onnxc.protobuf.where import quoted, shown
from onnxc.values import shape_text, static_shape, type_text

_OPERANDS_TOLD: Final = 8
_Option = defs.OpSchema.FormalParameterOption


def operator_problems(domain: str, name: str, version: int, where: str) -> Iterator[Problem]:
    """The operator is unknown, too young, deprecated or not supported."""
    known = schemas(domain, name)
    schema = schema_at(domain, name, version)
    if not known and domain not in _domains():
        fact = f"the domain {quoted(domain)} is not ONNX's but a runtime's or a vendor's own"
        remedy = "export without that runtime's optimisations, quantised in the QDQ format"
        yield Problem(Kind.CUSTOM_DOMAIN, where, fact, remedy)
    elif not known:
        fact = f"domain {shown(domain or 'ai.onnx')} has no such operator"
        yield Problem(Kind.UNKNOWN_OPERATOR, where, fact, _meant(domain, name))
    elif schema is None:
        fact = f"the operator came with opset {known[0].since_version}"
        yield Problem(Kind.OPERATOR_TOO_NEW, where, fact, "re-export with that or newer")
    elif schema.deprecated and not rules_for(schema):
        yield Problem(
            Kind.OPERATOR_DEPRECATED,
            where,
            "the operator is deprecated at this opset",
            "re-export the model",
        )
    elif not is_supported(domain, name):
        yield Problem(
            Kind.OPERATOR_NOT_SUPPORTED,
            where,
            "the operator is not supported yet",
            "see `onnxc ops`",
        )


@cache
def _domains() -> frozenset[str]:
    """Those of ONNX's own operators."""
    return frozenset(schema.domain for schema in defs.get_all_schemas())


def _meant(domain: str, name: str) -> str:
    """An operator that a name may have been meant for, as a remedy."""
    names = {schema.name for schema in defs.get_all_schemas() if schema.domain == domain}
    close = difflib.get_close_matches(name, sorted(names), n=1, cutoff=0.8)
    return f"did you mean {close[0]}?" if close else "see `onnxc ops`"


def branch_problem(node: ir.Node, where: str) -> Problem:
    """Of an If whose condition is not known at compile time."""
    condition = node.inputs[0] if node.inputs else None
    name = quoted(condition.name or "") if condition is not None else "its condition"
    fact = f"the condition {name} is known at run time only, and one branch can be compiled"
    remedy = "make it a constant of the model, or export the model without the If"
    problem = Problem(Kind.RUN_TIME_BRANCH, where, fact, remedy)
    return problem if condition is None else with_inputs(problem, [condition], ())


def is_supported(domain: str, name: str) -> bool:
    """Whether an operator has a function, or one that takes its place has, or a body of such."""
    key = (domain, replacement(domain, name))
    return key in load_operators() or key in expandable()


def unsupported_problem(node: ir.Node, where: str) -> Problem:
    """Of a node that a supported one became: there is no function for it, nor a body."""
    named = "the operator" if f"({node.op_type}-" in where else f"its part {node.op_type}"
    return Problem(
        Kind.OPERATOR_NOT_SUPPORTED, where, f"{named} is not supported yet", "see `onnxc ops`"
    )


def unknown_shape_problem(node: ir.Node, value: ir.Value, where: str) -> Problem:
    """A result has no size before the run: which operands, that come with it, may decide."""
    operator = load_operators()[node.domain, node.op_type]
    asked = operator.constant_inputs or range(len(node.inputs))
    late = {
        f"{formal.name} ({quoted(v.name or '')})": v
        for n, (formal, v) in enumerate(zip(operator.inputs, node.inputs, strict=False))
        if n in asked and v is not None and v.const_value is None and len(v.shape or ()) <= 1
    }
    fact = f"the shape of output {quoted(value.name or '')} is unknown at compile time"
    if late:
        fact += f": it may depend on {', '.join(late)}"
    problem = Problem(
        Kind.SHAPE_UNKNOWN,
        where,
        fact,
        "declare it in the model, or make what decides it a constant",
    )
    first = static_shape(node.inputs[0]) if node.inputs and node.inputs[0] is not None else None
    return with_inputs(problem, late.values(), first or ())


def late_problem(node: ir.Node, problem: Problem) -> Problem:
    """The problem of an operand that a node wants at compile time, with the inputs to fix."""
    late = [
        value
        for value in node.inputs
        if value is not None and value.const_value is None and not _is_data(value)
    ]
    return with_inputs(problem, late, ())


def _is_data(value: ir.Value) -> bool:
    """Whether a value is what a node works on, as far as its type tells."""
    return value.dtype is None or value.dtype.is_floating_point()


def operands(node: ir.Node, kind: Kind) -> str:
    """The inputs of a node with types and shapes, where a fault of that kind is about them."""
    if kind.value // 100 != 4 and kind is not Kind.INFERENCE_FAILED:
        return ""
    told = [f"{quoted(v.name or '')} {shape_text(v)}" for v in node.inputs if v is not None]
    if len(told) > _OPERANDS_TOLD:
        told[_OPERANDS_TOLD:] = [f"and {len(told) - _OPERANDS_TOLD:,} more"]
    return f"input{'s' if len(told) > 1 else ''} {', '.join(told)}" if told else ""


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
            yield Problem(
                Kind.OPERAND_COUNT, where, fact, f"the schema has {needed} {what}{plural}"
            )
    for formal, value in zip(schema.inputs, node.inputs, strict=False):
        if value is None and formal.option == _Option.Single:
            yield Problem(
                Kind.OPERAND_LEFT_OUT, where, f"input {formal.name} is required but left out"
            )


def attribute_problems(node: ir.Node, schema: defs.OpSchema, where: str) -> Iterator[Problem]:
    """Attributes that the version does not have, of a wrong type, or missing."""
    for name, attribute in node.attributes.items():
        formal = schema.attributes.get(name)
        if formal is None:
            known = ", ".join(sorted(schema.attributes)) or "none"
            fact = f"attribute {quoted(name)} does not exist at this version"
            yield Problem(Kind.UNKNOWN_ATTRIBUTE, where, fact, f"the schema has {known}")
        elif attribute.type.name != str(formal.type).rpartition(".")[2]:
            fact = f"attribute {quoted(name)} is {attribute.type.name}"
            yield Problem(
                Kind.ATTRIBUTE_TYPE,
                where,
                fact,
                f"the schema says {str(formal.type).rpartition('.')[2]}",
            )
    for name, formal in schema.attributes.items():
        if formal.required and name not in node.attributes:
            yield Problem(
                Kind.ATTRIBUTE_MISSING, where, f"attribute '{name}' is required but missing"
            )


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
            yield Problem(
                Kind.OPERAND_TYPES_DIFFER, where, fact, "both must have one type: cast one of them"
            )


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
    return Problem(Kind.OPERAND_TYPE, where, fact, f"this version allows {allowed}")
