"""The schema of the report's JSON says of every field what it means, and allows no others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
import onnx
import pytest

from onnxc.report.schema import markdown, schema
from tests.memory_models import TEXTS
from tests.report.facts_checks import facts_of


def fields(part: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, field in part.get("properties", {}).items():
        yield f"{path}.{name}", field
        yield from fields(field, f"{path}.{name}")
    for form in part.get("oneOf", ()):
        yield from fields(form, path)
    if isinstance(part.get("items"), Mapping):
        yield from fields(part["items"], f"{path}[]")


def test_every_field_is_described() -> None:
    found = dict(fields(schema()))
    assert len(found) > 100
    assert [path for path, field in found.items() if not field["description"].endswith(".")] == []
    table = markdown()
    assert all(f"| `{path[1:]}` |" in table for path in found if not path.endswith(".reason"))


def test_every_object_is_closed() -> None:
    for path, field in fields(schema()):
        for form in (field, field.get("items", {}), *field.get("oneOf", ())):
            if "properties" in form:
                assert form["additionalProperties"] is False, path


@pytest.mark.parametrize("part", ["schema", "kernels", "nodes", "memory"])
def test_what_is_missing_is_no_report(part: str) -> None:
    found = facts_of(onnx.parser.parse_model(TEXTS["sorting"]))
    del found[part]
    with pytest.raises(jsonschema.ValidationError, match=f"'{part}' is a required property"):
        jsonschema.validate(found, schema())


def test_what_is_unknown_is_no_report() -> None:
    found = facts_of(onnx.parser.parse_model(TEXTS["sorting"]))
    found["kernels"][0]["other"] = 1
    with pytest.raises(jsonschema.ValidationError, match="'other' was unexpected"):
        jsonschema.validate(found, schema())
