"""Functions of vectors from the text of those of floats in runtime_c/: one text, the same bits.

The float functions of runtime_c/ have no branch, so that they become functions of vectors when
their types and words are replaced: float by vf, uint32_t by vu, a condition by a mask vm. Where a
vector is one float, they are the functions of floats again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from onnxc.resources import runtime_functions

WORDS: Final = {
    "onnxc_bits_of_float": "vf_bits",
    "onnxc_float_of_bits": "vf_of_bits",
    "onnxc_select_float": "vf_where",
    "onnxc_abs_float": "vf_abs",
    "onnxc_sqrt_float": "vf_sqrt",
    "onnxc_min_float": "vf_min",
    "onnxc_max_float": "vf_max",
}
"""What templates/vector.c.j2 has already."""
_COMMENT: Final = re.compile(r"\s*(?:/\*.*?\*/\n)?", re.DOTALL)
_REFUSED: Final = re.compile(
    r"\b(?:if|for|while|return [^;]*\?|sqrtf|fmodf|isnan|isinf|double)\b|&&|\|\|"
)
_CALL: Final = re.compile(r"\bonnxc_\w+(?=\()")
_FLOAT: Final = r"-?\d[\d.]*(?:e[-+]?\d+)?f"
_CHANGES: Final = tuple(
    (re.compile(pattern), text)
    for pattern, text in (
        (r"\bstatic inline ", "static INLINE "),
        (r"\(float\)(?=\()", "vf_of_integers"),
        (r"\(int32_t\)", "(vm)"),
        (r"\bfloat\b", "vf"),
        (r"\buint32_t\b", "vu"),
        (r"\bint(?= \w)", "vm"),
        (rf"((?:\w\(|, ))({_FLOAT})(?=[,)])", r"\1vf_set(\2)"),
        (rf"(\bvf \w+ = )({_FLOAT});", r"\1vf_set(\2);"),
        (r"\bvf_of_bits\((0x[0-9a-f]+u)\)", r"vf_of_bits(vu_set(\1))"),
        (r"= ([^;?]+) \? ([^;?:]+) : ([^;?]+);", r"= vf_where(\1, \2, \3);"),
    )
)


def vector_functions(names: Iterable[str]) -> str:
    """The functions vf_<name>, and what they call, callees first.

    Raises ValueError for a function whose text has a branch or a double or calls a library.
    """
    found: dict[str, str] = {}
    for name in names:
        _add(f"onnxc_{name}_float", runtime_functions(), found)
    return "\n".join(found.values())


def vector_name(function: str) -> str:
    """The word for a function of runtime_c/."""
    return WORDS.get(function) or "vf_" + function.removeprefix("onnxc_").removesuffix("_float")


def _add(name: str, known: Mapping[str, str], found: dict[str, str]) -> None:
    if name in WORDS or name in found or name not in known:
        return
    text = known[name]
    place = _COMMENT.match(text)
    assert place
    comment, code = text[: place.end()], text[place.end() :]
    for callee in dict.fromkeys(_CALL.findall(code)):
        if callee != name:
            _add(callee, known, found)
    if _REFUSED.search(code):
        raise ValueError(f"{name} has a branch or a double or calls a library")
    code = _CALL.sub(lambda call: vector_name(call[0]), code)
    for pattern, replacement in _CHANGES:
        code = pattern.sub(replacement, code)
    if "?" in code:
        raise ValueError(f"{name} has a branch")
    found[name] = comment + code
