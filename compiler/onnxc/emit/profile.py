"""What the header of a profiled model tells of its kernels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from onnxc.emit.text import ORIGINS_SHOWN, WIDTH, node_text
from onnxc.kernel import Branch, Repeat, Step

LITERAL: Final = 84
"""Characters of a string literal, so that its line does not pass the width."""


@dataclass(frozen=True)
class ListedKernel:
    """A kernel, or control flow, whose function is "".

    literals  its label, as string literals of C that follow each other
    """

    number: int
    function: str
    literals: tuple[str, ...]

    @property
    def lines(self) -> list[str]:
        """Of the macro that lists the kernels, without the backslashes at their ends."""
        start = f'    X({self.number}, "{self.function}",'
        *most, last = self.literals
        if not most and len(start) + len(last) + len(" ) \\") < WIDTH:
            return [f"{start} {last})"]
        return [start, *(f"        {literal}" for literal in most), f"        {last})"]


def listed_kernels(numbers: Mapping[Step, int], calls: Mapping[Step, str]) -> list[ListedKernel]:
    """Every kernel, by its number; `calls` are the C functions of those that have one."""
    return [
        ListedKernel(number, calls.get(step, ""), _literals(kernel_label(step)))
        for step, number in sorted(numbers.items(), key=lambda item: item[1])
    ]


def kernel_label(step: Step) -> str:
    """The ONNX nodes of a step on one ASCII line, and its part of their work."""
    names = ", ".join(map(node_text, step.origins[:ORIGINS_SHOWN])) or "of no node"
    more = len(step.origins) - ORIGINS_SHOWN
    names += f" and {more} more" if more > 0 else ""
    role = "" if isinstance(step, Branch | Repeat) else step.role
    return f"{names}: {role}" if role else names


def _literals(text: str) -> tuple[str, ...]:
    """The text as string literals, broken after words where that is possible."""
    escaped = re.sub(r'(["\\])', r"\\\1", text)
    parts: list[str] = []
    for word in re.findall(r"\S+\s*", escaped):
        for piece in re.findall(r"(?:\\.|[^\\]){1,40}", word):
            if parts and len(parts[-1]) + len(piece) <= LITERAL:
                parts[-1] += piece
            else:
                parts.append(piece)
    return tuple(f'"{part}"' for part in parts)
