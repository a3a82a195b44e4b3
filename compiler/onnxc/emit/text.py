"""Lines of generated text: comments, long lines, names of nodes and buffers."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from onnxc.expression import Buffer
from onnxc.kernel import Loops, Micro, Origin, Program, Routine, Rows, Step, every_step
from onnxc.names import comment_text
from onnxc.resources import environment

if TYPE_CHECKING:
    import jinja2

ORIGINS_SHOWN: Final = 8
"""In a kernel's comment; the run function names every node."""
WIDTH: Final = 100
"""Columns that no line but data passes."""
LONGEST_ROLE: Final = 24
"""Characters."""
LONGEST_PIECE: Final = 64
"""Columns of what is not broken unless it must."""
DEEP: Final = 24
"""Columns from which on what would not fit begins further left."""


def render(template: str, **values: Any) -> str:
    """A template's text. For statements templates have the filters wrap and comment."""
    return _environment().get_template(template).render(**values)


def render_routine(template: str, **values: Any) -> tuple[str, str]:
    """The body of a routine's function, and what its template's macro `functions` puts before."""
    module: Any = _environment().get_template(template).make_module(values)
    functions = getattr(module, "functions", None)
    return str(module), functions() if functions else ""


@cache
def _environment() -> jinja2.Environment:
    jinja = environment()
    jinja.filters |= {"wrap": wrapped, "comment": commented}
    return jinja


def role_name(role: str) -> str:
    """What a role calls the buffer that a kernel fills, in small letters, digits and lines."""
    words = re.sub(r"[^a-z0-9]+", "_", role.partition(",")[0].lower()).strip("_")
    return words.removeprefix("the_")[:LONGEST_ROLE].strip("_")


def node_text(origin: Origin) -> str:
    return f"{origin.operator} '{comment_text(origin.name)}'"


def signature_text(origin: Origin) -> str:
    return f"{node_text(origin)}: {origin.signature}"


def origin_lines(step: Step) -> list[str]:
    """Of a comment: the nodes that a step came from."""
    return comment(map(signature_text, step.origins))


def buffer_text(buffer: Buffer) -> str:
    shape = "".join(f"[{extent}]" for extent in buffer.shape)
    name = f'"{comment_text(buffer.name)}" ' if buffer.name else ""
    return f"{name}{buffer.dtype}{shape}"


def listing(items: Iterable[str]) -> str:
    """Items that `comment` breaks only in between, unless one is too long for a line."""
    return ", ".join(item.replace(" ", "\0") if len(item) < WIDTH - 14 else item for item in items)


def function_name(step: Loops | Micro | Rows, number: int) -> str:
    """From the operators of a step, at most three, and a number."""
    operators = dict.fromkeys(origin.operator.partition("-")[0] for origin in step.origins)
    plain = (operator.replace("NaN", "Nan") for operator in operators)
    words = [re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", operator).lower() for operator in plain]
    return f"{'_'.join(words[:3]) or 'copy'}_{number}"


def named_by_role(program: Program) -> dict[Buffer, str]:
    """What a kernel says of its part of the work names the buffer that it is the first to write."""
    names: dict[Buffer, str] = {}
    for step in every_step(program):
        inside = step.inside if isinstance(step, Rows) else {}
        for loops in step.steps if isinstance(step, Rows) else (step,):
            if isinstance(loops, Loops) and loops.role:
                names.setdefault(inside.get(loops.out, loops.out), role_name(loops.role))
    return names


def explained(step: Loops | Micro | Routine | Rows, otherwise: list[str]) -> list[str]:
    """The comment above the function of a kernel."""
    lines = [signature_text(origin) for origin in step.origins[:ORIGINS_SHOWN]]
    if len(step.origins) > ORIGINS_SHOWN:
        lines.append(f"and {len(step.origins) - ORIGINS_SHOWN} more nodes")
    return [*(lines or otherwise), *([f"here: {step.role}"] if step.role else [])]


def listed(loops: Loops | Micro | Routine | Rows) -> list[str]:
    """The nodes of a step and its part of their work, on one line; nothing where it has none."""
    names = listing(map(node_text, loops.origins))
    role = f": {loops.role}" if loops.role else ""
    return [names + role] if names else []


def comment(lines: Iterable[str]) -> list[str]:
    """Wrapped, so that with its marks and indentation no line passes the width."""
    wrapper = textwrap.TextWrapper(WIDTH - 12, break_on_hyphens=False)
    parts = (part for line in lines for part in wrapper.wrap(line) or [""])
    return [part.replace("\0", " ") for part in parts]


def commented(statement: str, note: str) -> str:
    """A statement with a comment behind it or, where the line would be too long, before it."""
    if len(statement) + len(note) + len(" /*  */") < WIDTH:
        return f"{statement} /* {note} */"
    indent = statement[: len(statement) - len(statement.lstrip())]
    lines = f"\n{indent} * ".join(comment([note]))
    return f"{indent}/* {lines} */\n{wrapped(statement)}"


def wrapped(line: str) -> str:
    """A C line broken after commas and before operators; what follows is indented by 8 more.

    A line of a comment is broken between words, into others of the same comment.
    """
    if len(line) < WIDTH:
        return line
    if note := _COMMENT.match(line):
        margin = note[1] + " * "
        words = textwrap.TextWrapper(WIDTH, subsequent_indent=margin, break_on_hyphens=False)
        return words.fill(line.replace(" */", "\0*/")).replace("\0", " ")
    indent = " " * (len(line) - len(line.lstrip()) + 8)
    out: list[str] = []
    for piece in _pieces(line, min(LONGEST_PIECE, WIDTH - len(indent) - 1)):
        if out and len(out[-1]) + 1 + len(piece) < WIDTH:
            out[-1] += f" {piece}"
        else:
            left = min(len(indent), max(DEEP, WIDTH - 1 - len(piece)))
            out.append(" " * left + piece if out else piece)
    return "\n".join(out)


def unwrapped(text: str) -> str:
    """Without parentheses around the whole, which a statement or an argument does not need."""
    if not (text.startswith("(") and text.endswith(")")) or '"' in text:
        return text
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0 and position < len(text) - 1:
            return text
    return text[1:-1]


_COMMENT: Final = re.compile(r"((?:    )*)(?:/| )\* ")
"""A line that begins or goes on with a comment: a product that goes on has no space more."""
_TOKENS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]]| ')
_BREAKS: Final = (
    re.compile(r"(?<=[,;=]) | (?=(?:[?:]|&&|\|\|) )"),
    re.compile(r"(?<=[,;=]) | (?=(?:[-+?:*]|==|&&|\|\|) )|(?<=\bvoid) (?=\w)"),
)
"""Where a line may break: preferably, and where a piece is too long for a line of its own."""


def _pieces(line: str, longest: int, level: int = 0) -> Iterator[str]:
    """The parts between the places where a line may break: not in a string.

    Nor in a subscript or an operation, unless that has more than `longest` columns.
    """
    start = depth = 0
    parts = []
    for found in _TOKENS.finditer(line):
        depth += (found[0] == "[") - (found[0] == "]")
        place = _BREAKS[min(level, 1)].match(line, found.start())
        if found[0] == " " and place and (level > 1 or not depth):
            parts.append(line[start : found.start()])
            start = found.end()
    for part in (*parts, line[start:]):
        if len(part) > longest and level < 2:
            yield from _pieces(part, longest, level + 1)
        else:
            yield part
