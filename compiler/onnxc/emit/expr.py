"""One expression node to C text. Statements are the templates' business."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from onnxc.dtypes import INT64, ElementType, numpy_dtype
from onnxc.emit.literals import is_finite, literal
from onnxc.emit.near import divide_function, is_near, near_function
from onnxc.emit.ranges import Range, arithmetic_range, fits, range_of
from onnxc.emit.text import unwrapped
from onnxc.expression import Apply, At, Axis, Buffer, Const, Expr, Extent, Index, Load, static
from onnxc.operations import OPERATIONS, Types, plain_text


@dataclass
class Scope:
    """What the text may refer to, and what it turned out to need.

    texts     of the expressions that are written already; a name where it is a local
    ranges    of those that are integers or bools
    functions of runtime_c/ that the text calls
    terse     leaves out loops that do not move an index
    vectors   divides integers as vectors can
    near      has the fast forms of near.py
    """

    axes: dict[Axis, str]
    pointers: dict[Buffer, str]
    texts: dict[Expr, str] = field(default_factory=dict)
    ranges: dict[Expr, Range] = field(default_factory=dict)
    functions: set[str] = field(default_factory=set)
    terse: bool = False
    vectors: bool = False
    near: bool = False
    compares_floats: bool = False
    needs_math_h: bool = False


def expression(node: Expr, scope: Scope) -> str:
    """The text of a node whose operands are in scope.texts; an operand of any C operator."""
    found = range_of(node, scope.ranges)
    if found is not None:
        scope.ranges[node] = found
    match node:
        case Const(dtype, raw):
            scope.needs_math_h |= not is_finite(dtype, raw)
            return literal(dtype, raw)
        case At(_, index):
            text = index_text(index, scope)
            return f"(int64_t){text}" if text.isidentifier() else f"(int64_t)({text})"
        case Load(dtype, buffer, (index,)):
            return _load(dtype, buffer, index, scope)
        case Apply():
            return _apply(node, scope)
    raise AssertionError(f"no text for {node}")


def index_text(index: Index, scope: Scope) -> str:
    """Every loop with its stride, in loop order: a stride of 0 is where an operand broadcasts.

    In kernels with inner loops that would hide the rest: there only what moves the index.
    """
    shown = not (scope.terse or index.dynamic) and bool(index.terms or not index.const)
    parts = [
        _term(name, static(index.stride(axis)))
        for axis, name in scope.axes.items()
        if shown or index.stride(axis)
    ]
    for expr, stride in index.dynamic:
        wide = "" if expr.dtype is INT64 else "(int64_t)"
        parts.append(_term(wide + scope.texts[expr], static(stride)))
    if index.const or not parts:
        parts.append(str(index.const))
    return " + ".join(parts).replace("+ -", "- ")


Bounds = Iterable[tuple[Index, Extent]]
"""Indices, each to be in 0 .. extent - 1."""


def bounds_text(bounds: Bounds, scope: Scope) -> str:
    """The comparisons that a Guard's bounds need: those that no loop gives already."""
    return _comparisons(bounds, scope, ">= 0", "<", " && ")


def outside_text(bounds: Bounds, scope: Scope) -> str:
    """Those that hold where one of the bounds does not."""
    return _comparisons(bounds, scope, "< 0", ">=", " || ")


def _comparisons(bounds: Bounds, scope: Scope, below: str, above: str, joint: str) -> str:
    tests = []
    for index, extent in bounds:
        span, text = index.span(), index_text(index, scope)
        if span is None or span[0] < 0:
            tests.append(f"{text} {below}")
        if span is None or span[1] >= extent:
            tests.append(f"{text} {above} {extent}")
    return joint.join(tests)


def _term(name: str, stride: int) -> str:
    return name if stride == 1 else f"{name} * {stride}"


def _load(dtype: ElementType, buffer: Buffer, index: Index, scope: Scope) -> str:
    where = index_text(index, scope)
    if not buffer.packed:
        return f"{scope.pointers[buffer]}[{where}]"
    sign = "int" if dtype.kind == "signed" else "uint"
    return _call(scope, f"onnxc_load_{sign}{dtype.bits}", scope.pointers[buffer], where)


def _call(scope: Scope, function: str, *arguments: str) -> str:
    scope.functions.add(function)
    return f"{function}({', '.join(map(unwrapped, arguments))})"


def _apply(node: Apply, scope: Scope) -> str:
    types = Types(node.dtype, tuple(arg.dtype for arg in node.args))
    texts = [_operand(arg, node, scope) for arg in node.args]
    scope.compares_floats |= node.operation == "equal" and types.first.kind == "float"
    scope.needs_math_h |= node.operation in ("is_nan", "is_inf", "signbit")

    def call(function: str, *arguments: str) -> str:
        return _call(scope, function, *arguments)

    if node.operation == "not" and (unequal := _unequal(node.args[0], scope)):
        return unequal
    if node.operation in ("max", "min") and (bounded := _bounded(node, call, texts)):
        return bounded
    if scope.vectors and (divide := divide_function(node)):
        return f"({node.dtype.c_type}){call(divide, *texts)}"
    if scope.near and is_near(node):
        return call(near_function(node), *texts)
    if node.operation == "where" and node.dtype.kind == "float":
        return call(f"onnxc_select_{node.dtype.name}", *texts)
    if (
        node.operation == "exp"
        and node.dtype.bits == 32
        and texts[0].startswith(f"(-{_magnitude(node)}(")
    ):
        return call(f"onnxc_exp_below_{node.dtype.name}", texts[0][len(_magnitude(node)) + 3 : -2])
    if fits(arithmetic_range(node, scope.ranges), node.dtype):
        return plain_text(types, node.operation, texts)
    return OPERATIONS[node.operation].text(types, call, *texts)


def _magnitude(node: Apply) -> str:
    return f"onnxc_abs_{node.dtype.name}"


def _bounded(node: Apply, call: Callable[..., str], texts: list[str]) -> str:
    """max or min of a float and a literal that is never one of two zeros to tell apart; else ""."""
    literals = [n for n, arg in enumerate(node.args) if isinstance(arg, Const)]
    if node.dtype.kind != "float" or len(literals) != 1:
        return ""
    bound = node.args[literals[0]]
    assert isinstance(bound, Const)
    value = float(np.frombuffer(bound.raw, numpy_dtype(node.dtype))[0])
    largest = node.operation == "max"
    if math.isnan(value) or (value == 0 and (math.copysign(1, value) < 0) == largest):
        return ""
    function = "at_least" if largest else "at_most"
    x, limit = texts[1 - literals[0]], texts[literals[0]]
    return call(f"onnxc_{function}_{node.dtype.name}", x, limit)


def _unequal(equal: Expr, scope: Scope) -> str:
    """The opposite of a comparison that is written with C's operator and has no name; else ""."""
    if not isinstance(equal, Apply) or equal.operation != "equal":
        return ""
    left, right = (_operand(arg, equal, scope) for arg in equal.args)
    return f"({left} != {right})" if scope.texts[equal] == f"({left} == {right})" else ""


def _operand(arg: Expr, node: Apply, scope: Scope) -> str:
    """The text of an operand; of a literal plain where another operand says that it is int64."""
    typed = any(other.dtype is INT64 and not isinstance(other, Const) for other in node.args)
    if isinstance(arg, Const) and arg.dtype is INT64 and typed:
        value, _ = scope.ranges[arg]
        if abs(value) < 2**31:
            return str(value)
    return scope.texts[arg]
