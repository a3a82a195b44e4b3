"""Expressions to statements: what is used twice or is long gets a name; folds and guards loops."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from onnxc.dtypes import ElementType
from onnxc.emit.expr import Scope, bounds_text, expression, outside_text
from onnxc.emit.statements import Block, Check, Local, Loop, Reduce, Statement, When
from onnxc.emit.text import unwrapped
from onnxc.expression import (
    Apply,
    At,
    Axis,
    Checked,
    Const,
    Expr,
    Extent,
    Fold,
    Guard,
    Index,
    literal,
)
from onnxc.summation import IN_ORDER, SHORT, fold_lanes, summation
from onnxc.traversal import axes_read, walk

LONG: Final = 1024
"""Elements whose largest is found in many lanes; with NaNs, the lanes of fewer count themselves."""
LONGEST_TEXT: Final = 60
"""A longer expression is given a name, so that lines stay readable."""


def uses_of(*roots: Expr) -> Counter[Expr]:
    """How often the text of each node is needed; a Checked has that of its value."""
    uses = Counter(operand for node in walk(*roots) for operand in node.operands())
    for node in walk(*roots):
        if isinstance(node, Checked | Fold | Guard):
            uses[node.value] += 1
        if isinstance(node, Apply) and _is_extreme_integer(node):
            uses.update(node.args)
    return uses


def _is_sign(node: Expr) -> bool:
    """Whether it is little more than its operand, and what it is part of may have a form for it."""
    return isinstance(node, Apply) and node.operation in ("abs", "neg")


def _is_extreme_integer(node: Apply) -> bool:
    """Whether the text has the operands twice: x > y ? x : y."""
    return node.operation in ("max", "min") and node.dtype.kind != "float"


class Writer:
    """Writes expressions, naming what is used twice or is long; `folds` counts those around."""

    def __init__(self, scope: Scope, uses: Counter[Expr]) -> None:
        self.scope = scope
        self.uses = uses
        self.statements: list[Statement] = []
        self.checks: frozenset[Check] = frozenset()
        self.count = 0
        self.folds = 0

    def text(self, root: Expr) -> str:
        for node in walk(root, inner=False):
            if node not in self.scope.texts:
                self.scope.texts[node] = self._node(node, root)
        return self.scope.texts[root]

    def _node(self, node: Expr, root: Expr) -> str:
        match node:
            case Fold():
                reduce = self.reduced(node)
                self.statements.append(reduce)
                return f"{reduce.name}[0]" if reduce.lanes else reduce.name
            case Guard():
                return self._guard(node)
            case Checked(_, value, condition, code):
                self._check(Check(self.scope.texts[condition], int(code)))
                return self.scope.texts[value]
        text = expression(node, self.scope)
        named = self.uses[node] > 1 or (len(text) > LONGEST_TEXT and not _is_sign(node))
        if node is root or isinstance(node, Const | At) or not named:
            return text
        local = Local(node.dtype.c_type, self._name("v"), unwrapped(text))
        self.statements.append(local)
        return local.name

    def _check(self, check: Check) -> None:
        """Once is enough, also for what is computed inside."""
        if check not in self.checks:
            self.checks |= {check}
            self.statements.append(check)

    def _guard(self, guard: Guard) -> str:
        """What only the guarded value needs is computed inside the condition."""
        name = self._name("v")
        outer, self.statements = self.statements, []
        outside, checks = dict(self.scope.texts), self.checks
        value = self.text(guard.value)
        body, self.statements = tuple(self.statements), outer
        self.scope.texts, self.checks = outside, checks
        condition = bounds_text(guard.bounds, self.scope)
        otherwise = self.scope.texts[guard.otherwise]
        if body:
            value, otherwise = unwrapped(value), unwrapped(otherwise)
        self.statements.append(When(guard.dtype.c_type, name, condition, body, value, otherwise))
        return name

    def reduced(self, fold: Fold, axis: Axis | None = None, block: Block | None = None) -> Reduce:
        """The loops of a Fold along its own axes; with `axis` across that, with `block` so many
        points of it side by side.
        """
        name = self._name("sum" if fold.operation == "sum" else "acc")
        self.scope.axes |= dict(zip(fold.axes, self._free_loops(), strict=False))
        element, bounds = _unguarded(fold, axis or fold.axes[-1])
        how = summation(fold, across=axis is not None)
        long = how if _is_float_sum(fold) and how.compensated else None
        lane = f"lane{self.folds}" if self.folds else "lane"
        self.folds += 1
        body, value = self._tap(fold, element)
        self.folds -= 1
        loops = _loops(fold.axes, bounds, self.scope)
        for inner in fold.axes:
            del self.scope.axes[inner]
        self._note(fold, compensated=long is not None)
        return Reduce(
            _start(fold.operation, fold.dtype),
            fold.operation,
            fold.dtype,
            name,
            loops,
            body,
            value,
            _lanes(fold, axis, block),
            block,
            (axis or fold.axes[-1]) in axes_read(element),
            long,
            fold.hint == "numbers",
            lane,
        )

    def _tap(self, fold: Fold, element: Expr) -> tuple[tuple[Statement, ...], str]:
        """The statements and the text of what one iteration folds; their names end with it."""
        outer, self.statements = self.statements, []
        outside, checks = dict(self.scope.texts), self.checks
        value = self.text(element)
        body, self.statements = tuple(self.statements), outer
        self.scope.texts, self.checks = outside, checks
        multiplies = fold.operation in ("sum", "prod") and fold.dtype.kind != "float"
        return body, value if multiplies else unwrapped(value)

    def _free_loops(self) -> Iterator[str]:
        """Names that no loop around has."""
        taken = set(self.scope.axes.values())
        return (name for n in itertools.count() if (name := loop_name(n)) not in taken)

    def _note(self, fold: Fold, *, compensated: bool) -> None:
        """What the text of a fold needs besides its value's."""
        if compensated:
            self.scope.functions.add(f"onnxc_add_exactly_{fold.dtype.name}")
        if fold.dtype.kind == "float" and fold.operation in ("max", "min"):
            self.scope.needs_math_h = True
            if fold.hint != "numbers":
                self.scope.functions.add(f"onnxc_{fold.operation}_{fold.dtype.name}")

    def _name(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count - 1}"


def _is_float_sum(fold: Fold) -> bool:
    return fold.operation == "sum" and fold.dtype.kind == "float"


def _lanes(fold: Fold, axis: Axis | None, block: Block | None) -> int:
    """Of a product along its own axes there are none: its bits are those of the loops' order."""
    if axis is not None:
        return block.lanes if block else 0
    if fold.hint == IN_ORDER:
        return 0
    if _is_float_sum(fold):
        return fold_lanes(fold)
    extreme = fold.operation in ("max", "min") and fold.dtype.kind == "float"
    if not extreme or fold.axes[-1].extent <= SHORT:
        return 0
    lanes = fold_lanes(fold)
    narrow = fold.hint != "numbers" and lanes > SHORT and fold.axes[-1].extent < LONG
    return lanes // 2 if narrow else lanes


def _unguarded(fold: Fold, axis: Axis) -> tuple[Expr, list[tuple[Index, Extent]]]:
    """The value without the bounds that no step along `axis` changes, and these bounds.

    Elsewhere such a fold takes its identity, which changes nothing: that is left out. The loop that
    is cut into lanes has no place for bounds, so that it keeps those of all that is around it.
    """
    value = fold.value
    if not isinstance(value, Guard) or value.otherwise is not _identity(fold):
        return value, []
    if fold.axes == (axis,):
        return value, []
    apart = [b for b in value.bounds if not b[0].dynamic and not b[0].stride(axis)]
    rest = tuple(bound for bound in value.bounds if bound not in apart)
    inner = value.value
    return Guard(value.dtype, rest, inner, value.otherwise) if rest else inner, apart


def _identity(fold: Fold) -> Const:
    """What a fold of nothing is."""
    dtype = fold.dtype
    if fold.operation in ("sum", "prod"):
        return literal(dtype, 0 if fold.operation == "sum" else 1)
    least = fold.operation == "max"
    if dtype.kind == "float":
        return literal(dtype, float("-inf") if least else float("inf"))
    lowest = 0 if dtype.kind == "unsigned" else -(2 ** (dtype.bits - 1))
    return literal(dtype, lowest if least else lowest + 2**dtype.bits - 1)


def _start(operation: str, dtype: ElementType) -> str:
    """The text of the identity of a fold."""
    if operation in ("sum", "prod"):
        return "0" if operation == "sum" else "1"
    if dtype.kind == "float":
        infinity = "INFINITY" if dtype.bits == 32 else "(double)INFINITY"
        return f"-{infinity}" if operation == "max" else infinity
    limit = "MIN" if operation == "max" else "MAX"
    if dtype.kind == "unsigned":
        return "0" if operation == "max" else f"UINT{dtype.bits}_MAX"
    return f"INT{dtype.bits}_{limit}"


def _loops(
    axes: tuple[Axis, ...], bounds: Iterable[tuple[Index, Extent]], scope: Scope
) -> tuple[Loop, ...]:
    """The loops, with the bounds at the outermost loop that knows them."""
    unless: dict[Axis, list[tuple[Index, Extent]]] = {}
    for index, extent in bounds:
        walks = [axis for axis in axes if index.stride(axis)]
        unless.setdefault(walks[-1] if walks else axes[0], []).append((index, extent))
    return tuple(
        Loop(scope.axes[axis], axis.extent, outside_text(unless.get(axis, ()), scope))
        for axis in axes
    )


def loop_name(n: int) -> str:
    return "ijkmn"[n] if n < 5 else f"i{n}"
