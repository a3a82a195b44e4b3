"""The page of an operator as text: for a terminal, or as Markdown."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxc.report import examples

Page = Mapping[str, Any]


@dataclass(frozen=True)
class Heading:
    level: int
    text: str


@dataclass(frozen=True)
class Prose:
    text: str


@dataclass(frozen=True)
class Items:
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Code:
    language: str
    text: str


Block = Heading | Prose | Items | Code


def terminal(page: Page) -> str:
    return "\n\n".join(map(_terminal_block, _blocks(page)))


def markdown(page: Page) -> str:
    return "\n\n".join(map(_markdown_block, _blocks(page)))


def _terminal_block(block: Block) -> str:
    match block:
        case Heading(level, text):
            return text if level == 3 else f"{text}\n{'=-'[level - 1] * len(text)}"
        case Prose(text):
            return text
        case Items(lines):
            return "\n".join(lines)
        case Code(_, text):
            return textwrap.indent(text, "    ")


def _markdown_block(block: Block) -> str:
    match block:
        case Heading(level, text):
            return f"{'#' * level} {text}"
        case Prose(text):
            return text
        case Items(lines):
            return "\n".join(f"* {line}" for line in lines)
        case Code(language, text):
            return f"```{language}\n{text}\n```"


def _blocks(page: Page) -> Iterator[Block]:
    yield Heading(1, f"{page['operator']}-{page['since_version']}")
    if not page["supported"]:
        yield Prose("not supported yet: onnxc refuses models with this operator")
    yield Items(tuple(_facts(page)))
    yield Prose(_without_dead_links(page["summary"]))
    for title, lines in (
        ("Attributes", [_attribute(attribute) for attribute in page["attributes"]]),
        ("Inputs", [_formal(formal) for formal in page["inputs"]]),
        ("Outputs", [_formal(formal) for formal in page["outputs"]]),
        ("Type Constraints", [_constraint(c) for c in page["type_constraints"]]),
    ):
        if lines:
            yield Heading(2, title)
            yield Items(tuple(lines))
    if page["c"] is not None:
        data = "" if page["inputs"] else " (the result is data)"
        yield Heading(2, f"The C of {page['c']['example']}{data}")
        yield Code("c", page["c"]["source"].strip("\n"))
    yield from _examples(page)
    yield from _differences(page)


def _facts(page: Page) -> Iterator[str]:
    yield f"Domain: {page['domain']}"
    yield f"Since version: {page['since_version']}"
    yield f"Latest version: {page['latest_version']}"
    if page["asked_version"] not in (None, page["since_version"]):
        since, asked = page["since_version"], page["asked_version"]
        yield f"Opset {asked} has {page['operator']}-{since}"
    if page["deprecated"]:
        yield "Deprecated: yes"


def _attribute(attribute: Page) -> str:
    if attribute["default"] is not None:
        presence = f"default {attribute['default']!r}"
    else:
        presence = "required" if attribute["required"] else "optional"
    description = _one_line(attribute["description"])
    return f"{attribute['name']} ({attribute['type']}, {presence}): {description}"


def _formal(formal: Page) -> str:
    mark = "" if formal["option"] == "required" else f", {formal['option']}"
    return f"{formal['name']} ({formal['type']}{mark}): {_one_line(formal['description'])}"


def _constraint(constraint: Page) -> str:
    allowed = ", ".join(constraint["allowed_types"])
    description = _one_line(constraint["description"])
    return f"{constraint['name']}: {description} Allowed types: {allowed}."


def _one_line(text: str) -> str:
    return " ".join(_without_dead_links(text).split())


def _without_dead_links(text: str) -> str:
    """The text of links to files beside the page in ONNX's own documentation."""
    return re.sub(r"\[([^\]]+)\]\((?!https?://)[^)\s]+\)", r"\1", text)


def _examples(page: Page) -> Iterator[Block]:
    if page["examples"]:
        yield Heading(2, "Examples")
    elif page["supported"]:
        yield Prose(f"No example is of version {page['since_version']}.")
    for example in page["examples"]:
        yield Heading(3, example["name"])
        yield Code("text", "\n".join(_example_lines(example)))


def _example_lines(example: Page) -> Iterator[str]:
    node = example["node"]
    given = [f"{name}={_value(value)}" for name, value in node["attributes"].items()]
    arguments = ", ".join([*node["inputs"], *given])
    yield "Node:"
    yield f"  {node['operator']}({arguments}) -> ({', '.join(node['outputs'])})"
    for side in ("inputs", "outputs"):
        if not example[side]:
            continue
        yield f"{side.capitalize()}:"
        for tensor in example[side]:
            shape, dtype = tuple(tensor["shape"]), tensor["dtype"]
            yield f"  {tensor['name']}: shape={shape}, dtype={dtype}"
            yield textwrap.indent(np.array2string(examples.array(tensor), separator=", "), "    ")


def _value(value: object) -> str:
    """An attribute's value; of a tensor type, shape and values."""
    if not isinstance(value, Mapping):
        return repr(value)
    return f"{value['dtype']}{value['shape']} {value['values']}"


def _differences(page: Page) -> Iterator[Block]:
    found = page["differences"]
    if found is None:
        return
    yield Heading(2, f"Differences with previous version ({found['old_version']})")
    yield Items(
        (
            f"old version: {found['old_version']}",
            f"new version: {found['new_version']}",
            f"breaking: {'yes' if found['breaking'] else 'no'}",
        )
    )
    if not found["changes"]:
        yield Prose("The same types, attributes, inputs and outputs.")
    for heading, changes in found["changes"].items():
        yield Prose(f"{heading}:")
        yield Items(tuple(change["text"] for change in changes))
