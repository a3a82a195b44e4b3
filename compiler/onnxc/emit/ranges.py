"""Between what numbers an integer expression lies: where its arithmetic fits, C's own is enough."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from onnxc.dtypes import ElementType, numpy_dtype
from onnxc.expression import Apply, At, Const, Expr, Index, static

Range = tuple[int, int]
"""The least and the greatest value, both included."""

INTEGERS = ("signed", "unsigned", "bool")


def limits(dtype: ElementType) -> Range:
    """Of an integer type or bool."""
    if dtype.kind == "bool":
        return 0, 1
    if dtype.kind == "unsigned":
        return 0, 2**dtype.bits - 1
    return -(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1


def arithmetic_range(node: Apply, known: Mapping[Expr, Range]) -> Range | None:
    """Of the exact result of add, sub, mul or neg of integers; None of everything else."""
    match node.operation, *(known.get(arg) for arg in node.args):
        case "add", (a, b), (c, d):
            return a + c, b + d
        case "sub", (a, b), (c, d):
            return a - d, b - c
        case "mul", (a, b), (c, d):
            ends = (a * c, a * d, b * c, b * d)
            return min(ends), max(ends)
        case "neg", (a, b):
            return -b, -a
    return None


def fits(found: Range | None, dtype: ElementType) -> bool:
    """Whether an integer type holds all of a range."""
    if found is None:
        return False
    least, greatest = limits(dtype)
    return least <= found[0] and found[1] <= greatest


def range_of(node: Expr, known: Mapping[Expr, Range]) -> Range | None:
    """Of an integer or bool node, from those of its operands; None of other types."""
    if node.dtype.kind not in INTEGERS:
        return None
    match node:
        case Const(dtype, raw):
            value = int(np.frombuffer(raw, numpy_dtype(dtype))[0])
            found: Range | None = (value, value)
        case At(_, index):
            found = _index_range(index, known)
        case Apply():
            found = _operation_range(node, known)
        case _:
            found = None
    return found if found is not None and fits(found, node.dtype) else limits(node.dtype)


def _index_range(index: Index, known: Mapping[Expr, Range]) -> Range | None:
    least, greatest = Index(index.const, index.terms).span() or (0, 0)
    for expr, stride in index.dynamic:
        inner = known.get(expr)
        if inner is None:
            return None
        ends = sorted(end * static(stride) for end in inner)
        least, greatest = least + ends[0], greatest + ends[1]
    return least, greatest


def _operation_range(node: Apply, known: Mapping[Expr, Range]) -> Range | None:
    if node.operation == "cast":
        return known.get(node.args[0])
    match node.operation, *(known.get(arg) for arg in node.args):
        case "where", _, (a, b), (c, d):
            return min(a, c), max(b, d)
        case "max", (a, b), (c, d):
            return max(a, c), max(b, d)
        case "min", (a, b), (c, d):
            return min(a, c), min(b, d)
        case "div", (a, b), (c, d) if c == d > 0:
            return _quotient(a, c), _quotient(b, c)
        case "remainder", (a, b), (c, d) if c > 0:
            return (0 if a >= 0 else 1 - d), (0 if b <= 0 else d - 1)
    return arithmetic_range(node, known)


def _quotient(value: int, divisor: int) -> int:
    """Toward zero, as C has it, by a positive divisor."""
    return value // divisor if value >= 0 else -(-value // divisor)
