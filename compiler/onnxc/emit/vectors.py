"""The epilogue of a tuned kernel as C on vectors: the words of templates/vector.c.j2."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from onnxc.dtypes import BOOL
from onnxc.emit.literals import literal
from onnxc.emit.text import unwrapped
from onnxc.expression import Apply, Const, Expr, Load
from onnxc.traversal import walk

_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_COMPARISONS = {"less": "<", "less_equal": "<=", "and": "&", "or": "|", "xor": "^"}


def vector_lines(value: Expr, total: Expr, loads: Mapping[Load, str]) -> list[str]:
    """Statements that turn the vector `v`, which stands for `total`, into `value`.

    `loads` has the text of each load.
    """
    texts: dict[Expr, str] = {total: "v"}
    lines: list[str] = []
    nodes = [node for node in walk(value, inner=False) if node is not total]
    needed = _needed(value, total)
    uses = Counter(operand for node in needed for operand in node.operands())
    for node in nodes:
        if node not in needed:
            continue
        text = loads[node] if isinstance(node, Load) else _text(node, texts)
        if uses[node] > 1 and not isinstance(node, Const):
            name = f"v{len(lines)}"
            lines.append(f"const {'vm' if node.dtype is BOOL else 'vf'} {name} = {text};")
            text = name
        texts[node] = text
    result = texts[value]
    return lines if result == "v" else [*lines, f"v = {unwrapped(result)};"]


def operations_in(value: Expr, total: Expr) -> int:
    """Of an epilogue."""
    return sum(isinstance(node, Apply) for node in _needed(value, total))


def _needed(value: Expr, total: Expr) -> set[Expr]:
    """What `value` is computed from, where `total` is there already."""
    found: set[Expr] = set()
    stack = [value]
    while stack:
        node = stack.pop()
        if node not in found and node is not total:
            found.add(node)
            stack.extend(node.operands())
    return found


def _text(node: Expr, texts: Mapping[Expr, str]) -> str:
    match node:
        case Const(dtype, raw):
            return f"vf_set({literal(dtype, raw)})"
        case Apply(_, "neg", (arg,)):
            return f"(-{texts[arg]})"
        case Apply(_, "not", (arg,)):
            return f"vm_not({unwrapped(texts[arg])})"
        case Apply(_, "max" | "min" as operation, (left, right)):
            return _bounded(operation, left, right, texts)
        case Apply(_, operation, (left, right)) if operation in _SIGNS:
            return f"({texts[left]} {_SIGNS[operation]} {texts[right]})"
        case Apply(_, operation, (left, right)) if operation in _COMPARISONS:
            return f"({texts[left]} {_COMPARISONS[operation]} {texts[right]})"
        case Apply(_, operation, args):
            return f"vf_{operation}({', '.join(unwrapped(texts[arg]) for arg in args)})"
    raise AssertionError(f"no vector text for {node}")


def _bounded(operation: str, left: Expr, right: Expr, texts: Mapping[Expr, str]) -> str:
    """By a constant that needs no care of the sign of zero, in fewer instructions."""
    if isinstance(right, Const):
        bound = np.frombuffer(right.raw, np.float32)[0]
        careless = not (bound == 0 and np.signbit(bound) == (operation == "max"))
        if careless and not np.isnan(bound):
            word = "vf_at_least" if operation == "max" else "vf_at_most"
            return f"{word}({unwrapped(texts[left])}, {texts[right]})"
    return f"vf_{operation}({unwrapped(texts[left])}, {unwrapped(texts[right])})"
