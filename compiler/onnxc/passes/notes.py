"""What passes say of nodes that have no kernel of their own; the report reads it again."""

from __future__ import annotations

import re
from typing import Final

FOLDED: Final = "computed at compile time"
NO_CODE: Final = "needs no code"
NOT_NEEDED: Final = "no output needs it"
_PART: Final = re.compile(r"part of (the weights of )?\w+ '(.*)'", re.DOTALL)


def part_of(operator: str, label: str, *, weights: bool = False) -> str:
    """Of a node that became part of another one, or of its weights."""
    return f"part of {'the weights of ' if weights else ''}{operator} '{label}'"


def whole_of(note: str) -> str | None:
    """The label of the node that `part_of` says another became part of."""
    found = _PART.fullmatch(note)
    return found[2] if found and not found[1] else None


def joined_weights(note: str) -> bool:
    """Whether `part_of` says so of the weights of another node."""
    found = _PART.fullmatch(note)
    return found is not None and found[1] is not None
