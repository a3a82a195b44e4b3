"""The schema of the report's JSON, and the table of its fields for the documents."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def schema() -> Mapping[str, Any]:
    """report.schema.json, a JSON Schema of draft 2020-12."""
    text = files("onnxc.report").joinpath("report.schema.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def markdown() -> str:
    """A table of all fields."""
    rows = {name: f"| `{name}` | {kind} | {text} |" for name, kind, text in _rows(schema(), "")}
    return "\n".join(["| Field | Type | What it says |", "|---|---|---|", *rows.values()])


def _rows(part: Mapping[str, Any], path: str) -> Iterator[tuple[str, str, str]]:
    """Each field with its path, such as kernels[].macs; of alternatives the fields of each."""
    told = ["reason"] if _is_reason(part) else []
    for name, field in part.get("properties", {}).items():
        if name in told:
            continue
        own = f"{path}.{name}" if path else name
        yield own, _type(field), field["description"]
        for inner in (field, *field.get("oneOf", ())):
            yield from _rows(inner, own)
            for entry in _entries(inner):
                yield from _rows(entry, f"{own}[]")


def _entries(part: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The forms that the elements of an array have."""
    items = part.get("items", {})
    found: list[Mapping[str, Any]] = items.get("oneOf", [items])
    return found


def _is_reason(part: Mapping[str, Any]) -> bool:
    return list(part.get("properties", ())) == ["reason"]


def _type(field: Mapping[str, Any]) -> str:
    if "oneOf" in field:
        kinds = ["an object with a reason" if _is_reason(f) else _type(f) for f in field["oneOf"]]
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in field:
        return ", ".join(f'"{word}"' for word in field["enum"])
    if "const" in field:
        return str(field["const"])
    kinds = field["type"] if isinstance(field["type"], list) else [field["type"]]
    if kinds == ["array"]:
        return f"list of {_plural(field['items'])}"
    return " or ".join(kinds)


def _plural(items: Mapping[str, Any]) -> str:
    return f"{items['type']}s" if "type" in items else "objects"
