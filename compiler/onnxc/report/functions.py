"""The C function of each kernel, as text and by its line in the .c."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from onnxc.pipeline import Compiled
from onnxc.report.kernels import Kernel

MOST: Final = 1_500_000
"""Characters of all functions together, beyond which their text is left out."""
TOO_LONG: Final = "the functions are too long to be shown here: see the line of the .c"
HEAD: Final = 60
"""Lines that the head of a function may take."""
_VARIANT: Final = re.compile(r"(.+)_(avx512|avx2)")
"""A function for processors with such registers, and what it is called without."""
_NAME: Final = re.compile(r"\b(\w+)\(")


@dataclass(frozen=True)
class _Piece:
    """A function of the C with its comment; `line` is its first, from 0."""

    name: str
    line: int
    text: str


def function_facts(compiled: Compiled, kernels: Sequence[Kernel]) -> list[dict[str, Any]]:
    """Each function of kernels once, in the order of the C.

    Of a tuned kernel with a form for each variant of the target the text is the plainest one's.
    """
    calls = compiled.module.calls
    users: dict[str, list[int]] = {}
    for kernel in kernels:
        if kernel.step in calls:
            users.setdefault(calls[kernel.step], []).append(kernel.number)
    source = compiled.module.opening()
    found, variants = _of_functions(source, users), _variants(source, users)
    shown = sum(len(piece.text) for pieces in found.values() for piece in pieces) <= MOST
    facts = [
        {
            "name": name,
            "line": 1 + min(piece.line for piece in pieces),
            "c": "\n\n".join(piece.text for piece in pieces) if shown else "",
            "variants": variants[name],
            "kernels": users[name],
        }
        for name, pieces in found.items()
        if pieces
    ]
    return sorted(facts, key=lambda fact: fact["line"])


def _of_functions(source: str, users: Mapping[str, Sequence[int]]) -> dict[str, list[_Piece]]:
    """Of each function its own text, before it those of its parts: `conv_3_tile` of `conv_3`."""
    found: dict[str, list[_Piece]] = {name: [] for name in users}
    seen: set[str] = set()
    for piece in _pieces(source):
        owner = _owner(piece.name, found)
        if owner is not None and piece.name not in seen:
            seen.add(piece.name)
            found[owner].append(piece)
    return found


def _variants(source: str, users: Mapping[str, Sequence[int]]) -> dict[str, list[str]]:
    """Of each function the registers that it has forms of its own for."""
    found: dict[str, set[str]] = {name: set() for name in users}
    for piece in _pieces(source):
        variant = _VARIANT.fullmatch(piece.name)
        owner = _owner(variant[1], found) if variant else None
        if variant and owner is not None:
            found[owner].add(variant[2])
    return {name: sorted(of_it) for name, of_it in found.items()}


def _owner(name: str, functions: Mapping[str, object]) -> str | None:
    """The function that one belongs to: itself, or the longest name that it goes on."""
    if _VARIANT.fullmatch(name):
        return None
    while name:
        if name in functions:
            return name
        name = name.rpartition("_")[0]
    return None


def _pieces(source: str) -> Iterator[_Piece]:
    """The static functions of a C text, each with the comment right above it."""
    lines = source.split("\n")
    start: int | None = None
    for number, line in enumerate(lines):
        if start is None and line.startswith("static ") and _opens(lines, number):
            start = number
        elif start is not None and line == "}":
            name = _NAME.search(" ".join(lines[start : start + HEAD]))
            first = _comment_above(lines, start)
            if name:
                yield _Piece(name[1], first, "\n".join(lines[first : number + 1]))
            start = None


def _opens(lines: Sequence[str], number: int) -> bool:
    """Whether a definition begins there: the line of its brace follows its parameters."""
    for line in lines[number : number + HEAD]:
        if line == "{":
            return True
        if ";" in line:
            return False
    return False


def _comment_above(lines: Sequence[str], start: int) -> int:
    if start == 0 or not lines[start - 1].endswith("*/"):
        return start
    first = start - 1
    while first > 0 and not lines[first].startswith("/*"):
        first -= 1
    return first
