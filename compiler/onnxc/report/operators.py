"""What `onnxc ops` says: the table of supported operators, and the page of one version of one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import asdict
from itertools import groupby
from typing import Any, Final

import numpy as np
from onnx.defs import OpSchema
from rich.table import Column, Table

from onnxc import op, pipeline
from onnxc.diagnostics import Kind
from onnxc.dtypes import ELEMENT_TYPES
from onnxc.errors import UsageError
from onnxc.passes.check_node import is_supported
from onnxc.passes.upgrade import replacement
from onnxc.report import examples
from onnxc.report.differences import allowed_types, default, differences, kind, option, plain

DEFAULT_DOMAIN: Final = "ai.onnx"


NOT_SUPPORTED: Final[dict[str, tuple[str, ...]]] = {
    "control flow; an If is, once its condition is a constant": ("If", "Loop", "Scan"),
    "sequences and optionals": (
        "ConcatFromSequence",
        "Optional",
        "OptionalGetElement",
        "OptionalHasElement",
        "SequenceAt",
        "SequenceConstruct",
        "SequenceEmpty",
        "SequenceErase",
        "SequenceInsert",
        "SequenceLength",
        "SequenceMap",
        "SplitToSequence",
    ),
    "random numbers": (
        "Bernoulli",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    ),
    "strings and text": (
        "RegexFullMatch",
        "StringConcat",
        "StringNormalizer",
        "StringSplit",
        "TfIdfVectorizer",
    ),
    "files of images": ("ImageDecoder",),
}
"""The operators of ai.onnx that onnxc refuses, by what it lacks for them."""

TYPE_GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "floats": ("float", "double", "float16", "bfloat16"),
    "integers": ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    "complex": ("complex64", "complex128"),
    "8-bit floats": ("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz"),
    "4-bit integers": ("int4", "uint4"),
    "2-bit integers": ("int2", "uint2"),
}
"""Words for element types that mostly come together."""


def table() -> list[dict[str, Any]]:
    """One row for each supported operator, by family and name.

    {domain, name, versions, types, family, becomes}: `types` are those of the first input (without
    inputs: output) in the newest version, `becomes` is the operator that takes the place of a
    deprecated one, or what ONNX's function body for it is called; else "".
    """
    rows = [_row(domain, name) for domain, name in op.operator_names()]
    return sorted(filter(None, rows), key=lambda row: (row["family"], row["name"]))


def _row(domain: str, name: str) -> dict[str, Any] | None:
    """None where the operator is not supported."""
    if not is_supported(domain, name):
        return None
    newer = replacement(domain, name)
    known = op.load_operators().get((domain, newer))
    becomes = newer if newer != name else "its function body" if known is None else ""
    return {
        "domain": domain or DEFAULT_DOMAIN,
        "name": name,
        "versions": [schema.since_version for schema in op.schemas(domain, name)],
        "types": _element_types(op.newest_schema(domain, name)),
        "family": examples.families().get(name, "other"),
        "becomes": becomes,
    }


def types_text(types: list[str]) -> str:
    """The types in few words: "all", those of TYPE_GROUPS, and the other names."""
    if len(types) == len(ELEMENT_TYPES):
        return "all"
    words, rest = [], list(types)
    for word, group in TYPE_GROUPS.items():
        if set(group) <= set(rest):
            words.append(word)
            rest = [name for name in rest if name not in group]
    return ", ".join(words + rest)


def name_text(row: Mapping[str, Any]) -> str:
    """The operator, and what it becomes if that is another."""
    return f"{row['name']} (becomes {row['becomes']})" if row["becomes"] else str(row["name"])


def terminal_table() -> Table:
    """The same for a terminal, whose width decides how it looks."""
    found = Table(Column("Operator", no_wrap=True), "Versions", "Element types")
    for family, rows in groupby(table(), key=lambda row: str(row["family"])):
        found.add_section()
        found.add_row(f"{family}:")
        for row in rows:
            versions = ", ".join(map(str, row["versions"]))
            name = name_text(row).replace(" (", "\n(")
            found.add_row(name, versions, types_text(row["types"]))
    return found


def table_markdown() -> str:
    """A table for each family, and a list of the operators that are not supported."""
    lines = []
    for family, rows in groupby(table(), key=lambda row: str(row["family"])):
        lines += [f"## {family.capitalize()}", ""]
        lines += ["| Operator | Versions | Element types |", "|---|---|---|"]
        for row in rows:
            versions = ", ".join(map(str, row["versions"]))
            lines.append(f"| {name_text(row)} | {versions} | {types_text(row['types'])} |")
        lines.append("")
    lines += ["## Not supported", "", "| Operators | For want of |", "|---|---|"]
    lines += [f"| {', '.join(names)} | {reason} |" for reason, names in NOT_SUPPORTED.items()]
    return "\n".join(lines)


def _element_types(schema: OpSchema) -> list[str]:
    formal = (*schema.inputs, *schema.outputs)[0]
    allowed = allowed_types(schema, formal)
    return [dtype.name for dtype in ELEMENT_TYPES if f"tensor({dtype.name})" in allowed]


def page(words: str) -> dict[str, Any]:
    """The page of an operator, `NAME` or `NAME-VERSION`, in plain JSON values.

    VERSION may be any opset version; the page is that of the version then in force.
    Raises UsageError where ONNX has no such operator or version.
    """
    domain, name, asked = _find(words)
    newest = op.newest_schema(domain, name)
    schema = newest if asked is None else _version(domain, name, asked)
    supported = is_supported(domain, name)
    found = [examples.at(example, schema) for example in examples.stored(name)]
    shown = [example for example in found if example is not None] if supported else []
    return {
        "operator": name,
        "domain": domain or DEFAULT_DOMAIN,
        "asked_version": asked,
        "since_version": schema.since_version,
        "latest_version": newest.since_version,
        "deprecated": schema.deprecated,
        "supported": supported,
        "summary": (schema.doc or "").strip(),
        "attributes": [_attribute(a) for _, a in sorted(schema.attributes.items())],
        "inputs": [_formal(formal) for formal in schema.inputs],
        "outputs": [_formal(formal) for formal in schema.outputs],
        "type_constraints": [
            {
                "name": constraint.type_param_str,
                "description": constraint.description.strip(),
                "allowed_types": sorted(constraint.allowed_type_strs),
            }
            for constraint in schema.type_constraints
        ],
        "examples": [_run(example, schema) for example in shown],
        "differences": _differences(schema),
        "c": _c_source(shown[0], schema) if shown else None,
    }


def _find(words: str) -> tuple[str, str, int | None]:
    """(domain, name, version) of what the user typed."""
    names = {name: domain for domain, name in sorted(op.operator_names(), reverse=True)}
    *parts, rest = re.split(r"::|[.:/](?=[A-Za-z])", words)
    if parts and (domain := ".".join(parts)) != DEFAULT_DOMAIN:
        raise UsageError(
            Kind.UNKNOWN_OPERATOR_PAGE,
            f"domain {domain!r}: onnxc knows the operators of {DEFAULT_DOMAIN} only",
        )
    name, dash, version = rest.rpartition("-")
    if not dash:
        name, version = rest, ""
    if name not in names:
        folded = {known.casefold(): known for known in names}
        close = difflib.get_close_matches(name.casefold(), folded, n=1)
        hint = f"; did you mean {folded[close[0]]}?" if close else ""
        raise UsageError(Kind.UNKNOWN_OPERATOR_PAGE, f"ONNX has no operator {name!r}{hint}")
    if dash and not (version.isascii() and version.isdigit() and len(version) < 10):
        raise UsageError(
            Kind.UNKNOWN_OPERATOR_PAGE,
            f"{version!r} is no version; write {name}-VERSION, as in Equal-19",
        )
    return names[name], name, int(version) if dash else None


def _version(domain: str, name: str, asked: int) -> OpSchema:
    schema = op.schema_at(domain, name, asked)
    versions = ", ".join(str(schema.since_version) for schema in op.schemas(domain, name))
    if schema is None:
        raise UsageError(
            Kind.UNKNOWN_OPERATOR_PAGE, f"opset {asked} has no {name}; its versions are {versions}"
        )
    if not domain and asked > op.OPSET:
        raise UsageError(
            Kind.UNKNOWN_OPERATOR_PAGE,
            f"opset {asked} is newer than {op.OPSET}; {name} has {versions}",
        )
    return schema


def _attribute(attribute: OpSchema.Attribute) -> dict[str, Any]:
    return {
        "name": attribute.name,
        "type": kind(attribute),
        "required": attribute.required,
        "default": default(attribute),
        "description": attribute.description.strip(),
    }


def _formal(formal: OpSchema.FormalParameter) -> dict[str, Any]:
    return {
        "name": formal.name,
        "type": formal.type_str,
        "option": option(formal),
        "description": formal.description.strip(),
    }


def _run(example: examples.Example, schema: OpSchema) -> dict[str, Any]:
    """The example, of the form of the version, with the outputs that it has now."""
    outputs = pipeline.evaluate_model(examples.model(example, schema), example.given)
    return {
        "name": example.name,
        "node": {
            "operator": schema.name,
            "inputs": [name if value is not None else "" for name, value in example.inputs.items()],
            "outputs": list(example.outputs),
            "attributes": {name: _plain(name, v) for name, v in example.attributes.items()},
        },
        "inputs": [examples.tensor(name, array) for name, array in example.given.items()],
        "outputs": [examples.tensor(name, array) for name, array in outputs.items()],
    }


def _plain(name: str, value: Any) -> Any:
    """An attribute as number, string, list, or tensor {dtype, shape, values}."""
    if not isinstance(value, np.ndarray):
        return plain(value)
    return {key: part for key, part in examples.tensor(name, value).items() if key != "name"}


def _c_source(example: examples.Example, schema: OpSchema) -> dict[str, str]:
    """What the example becomes, without banner and runtime."""
    compiled = pipeline.compile_model(examples.model(example, schema))
    return {"example": example.name, "source": compiled.body}


def _differences(schema: OpSchema) -> dict[str, Any] | None:
    older = [
        other
        for other in op.schemas(schema.domain, schema.name)
        if other.since_version < schema.since_version
    ]
    if not older:
        return None
    changes = differences(older[-1], schema)
    return {
        "old_version": older[-1].since_version,
        "new_version": schema.since_version,
        "breaking": any(change.breaking for group in changes.values() for change in group),
        "changes": {
            heading: [{**asdict(change), "text": str(change)} for change in group]
            for heading, group in changes.items()
        },
    }
