"""C text as its tokens, so that two texts can be compared with only names and comments changed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_TOKEN: Final = re.compile(
    r"""
      (?P<comment> /\*(?:[^*]|\*(?!/))*\*/ )
    | (?P<string>  "(?:[^"\\\n]|\\[^\n])*" )
    | (?P<character> '(?:[^'\\\n]|\\[^\n])+' )
    | (?P<number>  \.?[0-9](?:[eEpP][+-]|[\w.])* )
    | (?P<name>    [A-Za-z_]\w* )
    | (?P<joined>  \\\n )
    | (?P<line>    \n )
    | (?P<space>   [ ]+ )
    | (?P<mark>    [!\#%&()*+,./:;<=>?\[\]^{|}~-] )
    """,
    re.VERBOSE | re.ASCII,
)
_HASH: Final = re.compile(r"(?<=_INTERFACE )(?:!= )?0x[0-9a-f]{8}u")
"""Of the interface, of which names are part."""
_TRIGRAPH: Final = re.compile(r"\?\?[=/'()!<>-]")


class Token(NamedTuple):
    """`kind` is the name of a group of the pattern above."""

    kind: str
    text: str


def tokens(text: str) -> Iterator[Token]:
    """Every token, comments too, spaces and line ends not. Raises ValueError at what C has not.

    Nor has it a trigraph here, `/*` in a comment, `//`, or characters that are not printable ASCII.
    """
    if trigraph := _TRIGRAPH.search(text):
        raise ValueError(f"a trigraph: {_around(text, trigraph.start())}")
    position, last = 0, ""
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None or found.lastgroup is None:
            raise ValueError(f"no token: {_around(text, position)}")
        kind, spelled = found.lastgroup, found[0]
        if kind == "comment":
            _check_comment(spelled)
        elif last == spelled == "/":
            raise ValueError(f"a comment to the end of the line: {_around(text, position)}")
        if kind not in ("space", "line"):
            yield Token(kind, spelled)
        position, last = found.end(), spelled


def _check_comment(comment: str) -> None:
    if "/*" in comment[1:] or not all(c == "\n" or " " <= c <= "~" for c in comment):
        raise ValueError(f"an odd comment: {comment!r}")
    if "\\\n" in comment:
        raise ValueError(f"a backslash at the end of a line: {comment!r}")


def _around(text: str, position: int) -> str:
    return repr(text[max(0, position - 40) : position + 40])


def difference(one: str, other: str) -> str:
    """Where two texts differ by more than comments and identifiers; "" if nowhere.

    An identifier of `one` must have one counterpart. Two may share theirs: in different scopes,
    which a compiler has to say.
    """
    counterparts: dict[str, str] = {}
    left, right = (
        [token for token in tokens(_HASH.sub("HASH", text)) if token.kind != "comment"]
        for text in (one, other)
    )
    if len(left) != len(right):
        return f"{len(left)} tokens and {len(right)}"
    for a, b in zip(left, right, strict=True):
        if a.kind == b.kind == "name":
            known = counterparts.setdefault(a.text, b.text)
            if known != b.text:
                return f"{a.text} is {known} and {b.text}"
        elif a != b:
            return f"{a.text} is {b.text}"
    return ""
