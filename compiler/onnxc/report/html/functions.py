"""The C functions of a report's page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from markupsafe import Markup, escape

from onnxc.report.html.look import Fact
from onnxc.report.text import printable

MOST: Final = 1_000_000
"""Characters of all functions together, which leave room for the rest of a page of 5 MB."""
_COMMENT: Final = re.compile(r"(/\*.*?\*/)", re.DOTALL)


def values(facts: Fact) -> dict[str, Any] | None:
    """None of a model that runs no code."""
    functions = facts["functions"]
    return {"texts": texts([function["c"] for function in functions])} if functions else None


def texts(found: Sequence[str], most: int = MOST) -> list[Markup | None]:
    """Each function as HTML; None where it has no text, or where there is no room for it.

    The shortest come first, so that as many as possible are there.
    """
    shown, room = set[int](), most
    for number, text in sorted(enumerate(found), key=lambda item: len(item[1])):
        room -= len(text)
        if text and room >= 0:
            shown.add(number)
    return [c_html(text) if number in shown else None for number, text in enumerate(found)]


def c_html(text: str) -> Markup:
    """C with its comments marked."""
    pieces = _COMMENT.split(printable(text))
    return Markup("").join(
        Markup("<i>{}</i>").format(piece) if number % 2 else escape(piece)
        for number, piece in enumerate(pieces)
    )
