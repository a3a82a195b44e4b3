"""What `onnxc ops` says: the table of supported operators, and the page of one version of one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from onnx.defs import OpSchema

from onnxc import op, pipeline
from onnxc.dtypes import ELEMENT_TYPES
from onnxc.errors import UsageError
from onnxc.report import examples
from onnxc.report.differences import allowed_types, default, differences, kind, option, plain

DEFAULT_DOMAIN: Final = "ai.onnx"


def table() -> list[dict[str, Any]]:
    """One row for each supported operator: {domain, name, versions, types}, sorted by name.

    `types` are those of the first input (without inputs: output) in the newest version.
    """
    op.load_operators()
    return [
        {
            "domain": domain or DEFAULT_DOMAIN,
            "name": name,
            "versions": list(versions),
            "types": _element_types(op.newest_schema(domain, name)),
        }
        for domain, name, versions in op.supported()
    ]


def types_text(types: list[str]) -> str:
    return "all" if len(types) == len(ELEMENT_TYPES) else ", ".join(types)


def table_markdown() -> str:
    rows = [
        f"| {row['name']} | {', '.join(map(str, row['versions']))} | {types_text(row['types'])} |"
        for row in table()
    ]
    return "\n".join(["| Operator | Versions | Element types |", "|---|---|---|", *rows])


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
    supported = (domain, name) in op.load_operators()
    runs = [_run(example, schema) for example in examples.stored(name)] if supported else []
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
        "examples": [run for run in runs if run is not None],
        "differences": _differences(schema),
        "c": _c_source(schema) if supported else None,
    }


def _find(words: str) -> tuple[str, str, int | None]:
    """(domain, name, version) of what the user typed."""
    names = {name: domain for domain, name in sorted(op.operator_names(), reverse=True)}
    *parts, rest = re.split(r"::|[.:/](?=[A-Za-z])", words)
    if parts and (domain := ".".join(parts)) != DEFAULT_DOMAIN:
        raise UsageError(f"domain {domain!r}: onnxc knows the operators of {DEFAULT_DOMAIN} only")
    name, dash, version = rest.rpartition("-")
    if not dash:
        name, version = rest, ""
    if name not in names:
        folded = {known.casefold(): known for known in names}
        close = difflib.get_close_matches(name.casefold(), folded, n=1)
        hint = f"; did you mean {folded[close[0]]}?" if close else ""
        raise UsageError(f"ONNX has no operator {name!r}{hint}")
    if dash and not (version.isascii() and version.isdigit() and len(version) < 10):
        raise UsageError(f"{version!r} is no version; write {name}-VERSION, as in Equal-19")
    return names[name], name, int(version) if dash else None


def _version(domain: str, name: str, asked: int) -> OpSchema:
    schema = op.schema_at(domain, name, asked)
    versions = ", ".join(str(schema.since_version) for schema in op.schemas(domain, name))
    if schema is None:
        raise UsageError(f"opset {asked} has no {name}; its versions are {versions}")
    if not domain and asked > op.OPSET:
        raise UsageError(f"opset {asked} is newer than {op.OPSET}; {name} has {versions}")
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


def _run(example: Mapping[str, Any], schema: OpSchema) -> dict[str, Any] | None:
    """The example with the outputs that it has now; None where the version does not allow it."""
    if not examples.fits(example, schema):
        return None
    inputs = examples.inputs(example)
    outputs = pipeline.evaluate_model(examples.model(example, schema), inputs)
    node = example["node"]
    return {
        "name": example["name"],
        "node": {**node, "attributes": plain_attributes(node.get("attributes", {}))},
        "inputs": [examples.tensor(name, array) for name, array in inputs.items()],
        "outputs": [examples.tensor(name, array) for name, array in outputs.items()],
    }


def plain_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The values as numbers, strings, lists, and tensors {dtype, shape, values}."""
    return {
        name: value if isinstance(value, Mapping) else plain(value)
        for name, value in attributes.items()
    }


def _c_source(schema: OpSchema) -> dict[str, str] | None:
    """What the first example becomes, without banner and runtime."""
    for example in examples.stored(schema.name):
        if examples.fits(example, schema):
            compiled = pipeline.compile_model(examples.model(example, schema))
            return {"example": example["name"], "source": compiled.body}
    return None


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
