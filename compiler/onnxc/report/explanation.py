"""What `onnxc explain` says of a code, and the page that lists them all."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from itertools import groupby
from typing import Final

from onnxc.diagnostics import Kind, texts
from onnxc.errors import UsageError

PAGE: Final = "docs/diagnostics.md"
GROUPS: Final = {
    0: "onnxc itself",
    1: "The file",
    2: "The graph",
    3: "A node and its schema",
    4: "Attributes and shapes",
    5: "What is not supported",
    6: "Sizes and fixed inputs",
    7: "The command line, and calls from Python",
    8: "The C compiler and files",
    9: "Runs and verification",
}
"""The titles of the groups, by the hundreds of the number."""


def find(text: str) -> Kind:
    """The kind of "ONNXC0403", "0403" or "403", in any case. Raises UsageError."""
    number = re.fullmatch(r"(?:ONNXC)?(\d{1,4})", text.strip().strip("[]"), re.IGNORECASE)
    known = {kind.value: kind for kind in Kind}
    if number is None or int(number[1]) not in known:
        fact = f"there is no code {text!r}; codes are like {Kind.SHAPES_DO_NOT_BROADCAST.code}"
        raise UsageError(Kind.UNKNOWN_CODE, f"{fact}, and {PAGE} lists them")
    return known[int(number[1])]


def title(kind: Kind) -> str:
    """As in "shapes do not broadcast"."""
    return kind.name.lower().replace("_", " ")


def terminal(kind: Kind) -> str:
    """The explanation for a terminal."""
    text = texts()[kind]
    wrapped = (textwrap.fill(paragraph, 79) for paragraph in (text.meaning, text.remedy))
    return "\n\n".join([f"{kind.code}: {title(kind)}", *wrapped])


def markdown() -> str:
    """The sections of the page: a table for each group."""
    return "\n".join(_sections())


def _sections() -> Iterator[str]:
    for group, kinds in groupby(Kind, key=lambda kind: kind.value // 100):
        yield f"## {GROUPS[group]}\n"
        yield "| code | what | meaning | what to do |"
        yield "|---|---|---|---|"
        for kind in kinds:
            text = texts()[kind]
            yield f"| {kind.code} | {title(kind)} | {text.meaning} | {text.remedy} |"
        yield ""
