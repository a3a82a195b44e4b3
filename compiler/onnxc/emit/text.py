"""Lines of generated text: comments, long lines, names of nodes and buffers."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from onnxc.kernel import Buffer, Origin
from onnxc.names import comment_text
from onnxc.resources import environment

if TYPE_CHECKING:
    import jinja2

WIDTH: Final = 100
"""Columns that no line but data passes."""


def render(template: str, **values: Any) -> str:
    """A template's text. For statements templates have the filters wrap and comment."""
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> jinja2.Environment:
    jinja = environment()
    jinja.filters |= {"wrap": wrapped, "comment": commented}
    return jinja


def node_text(origin: Origin) -> str:
    return f"{origin.operator} '{comment_text(origin.name)}'"


def signature_text(origin: Origin) -> str:
    return f"{node_text(origin)}: {origin.signature}"


def buffer_text(buffer: Buffer) -> str:
    shape = "".join(f"[{extent}]" for extent in buffer.shape)
    name = f'"{comment_text(buffer.name)}" ' if buffer.name else ""
    return f"{name}{buffer.dtype}{shape}"


def listing(items: Iterable[str]) -> str:
    """Items that `comment` breaks only in between."""
    return ", ".join(item.replace(" ", "\0") for item in items)


def comment(lines: Iterable[str]) -> list[str]:
    """Wrapped, so that with its marks and indentation no line passes the width."""
    parts = (part for line in lines for part in textwrap.wrap(line, WIDTH - 12) or [""])
    return [part.replace("\0", " ") for part in parts]


def commented(statement: str, note: str) -> str:
    """A statement with a comment behind it or, where the line would be too long, before it."""
    if len(statement) + len(note) + len(" /*  */") < WIDTH:
        return f"{statement} /* {note} */"
    indent = statement[: len(statement) - len(statement.lstrip())]
    lines = f"\n{indent} * ".join(comment([note]))
    return f"{indent}/* {lines} */\n{wrapped(statement)}"


def wrapped(line: str) -> str:
    """A C line broken after commas and before operators; what follows is indented by 8 more."""
    if len(line) < WIDTH:
        return line
    indent = " " * (len(line) - len(line.lstrip()) + 8)
    out: list[str] = []
    for piece in _pieces(line):
        if out and len(out[-1]) + 1 + len(piece) < WIDTH:
            out[-1] += f" {piece}"
        else:
            out.append(indent + piece if out else piece)
    return "\n".join(out)


_STRING_OR_BREAK: Final = re.compile(
    r'"(?:[^"\\]|\\.)*"|[\[\]]|(?<=[,;]) |(?<= =) | (?=(?:[-+?:]|==|&&|\|\||\*) )'
)


def _pieces(line: str) -> Iterator[str]:
    """The parts between the places where a line may break: not in a string nor a subscript."""
    start = depth = 0
    for found in _STRING_OR_BREAK.finditer(line):
        depth += (found[0] == "[") - (found[0] == "]")
        if found[0] == " " and not depth:
            yield line[start : found.start()]
            start = found.end()
    yield line[start:]
