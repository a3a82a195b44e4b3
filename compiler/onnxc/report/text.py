"""Text for people: whatever a model or a path holds, a terminal can show it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

LONGEST_LIST: Final = 100


def printable(text: str) -> str:
    """The text with control characters and undecodable bytes as escapes; newlines stay."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else _escape(c) for c in text)


def _escape(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        # A byte that is not UTF-8, as Python passes it through (surrogateescape).
        return f"\\x{code - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()


def some(items: Sequence[object]) -> Iterator[str]:
    """The first hundred as text, then how many there are besides."""
    yield from (printable(str(item)) for item in items[:LONGEST_LIST])
    if len(items) > LONGEST_LIST:
        yield f"and {len(items) - LONGEST_LIST:,} more"


def count(number: int, unit: str) -> str:
    """1,234 bytes; 1 byte."""
    return f"{number:,} {unit}" + ("" if number == 1 else "s")


def columns(rows: Iterable[Sequence[str]], indent: str = "  ") -> Iterator[str]:
    """Rows of cells, each column as wide as its widest cell."""
    cells = list(rows)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield f"{indent}{'  '.join(padded)}".rstrip()
