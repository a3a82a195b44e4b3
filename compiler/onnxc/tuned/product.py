"""A Loops that is a sum of products, read as such: its operands, and how each loop walks them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from onnxc.dtypes import DOUBLE, FLOAT, ElementType
from onnxc.expression import Apply, Axis, Const, Expr, Fold, Index, Load
from onnxc.kernel import Loops
from onnxc.traversal import walk


@dataclass(frozen=True)
class Product:
    """out[where] = epilogue(sum over `folds` of left * right), in float or double.

    panel     the operand that the innermost axis of the output walks: its rows become vectors
    rows      the other operand, whose elements are broadcast
    lanes     the innermost axis of the output, along which its elements are neighbours
    shared    axes of the output that walk both operands: groups, batches, heads
    blocks    the other axes of the output that walk the panel operand only
    points    those that walk the rows operand only, the innermost last
    addends   the other loads of the epilogue
    """

    loops: Loops
    fold: Fold
    rows: Load
    panel: Load
    lanes: Axis
    shared: tuple[Axis, ...]
    blocks: tuple[Axis, ...]
    points: tuple[Axis, ...]
    addends: tuple[Load, ...]

    @property
    def dtype(self) -> ElementType:
        return self.fold.dtype

    @property
    def where(self) -> Index:
        return self.loops.where[0]

    @property
    def length(self) -> int:
        """Of the sums."""
        return math.prod(axis.extent for axis in self.fold.axes)


def product_of(loops: Loops) -> Product | None:
    """Of a merged kernel; None where it is not one sum of products of two plain operands."""
    fold = only_fold(loops)
    if fold is None or loops.partial or fold.dtype is not loops.out.dtype:
        return None
    if fold.dtype not in (FLOAT, DOUBLE):
        return None
    value = fold.value
    if not (isinstance(value, Apply) and value.operation == "mul"):
        return None
    left, right = value.args
    if not (isinstance(left, Load) and isinstance(right, Load)):
        return None
    if any(load.buffer.dtype is not fold.dtype or load.flat.dynamic for load in (left, right)):
        return None
    addends = _addends(loops.value, fold)
    return None if addends is None else product_between(loops, fold, left, right, addends)


def product_between(
    loops: Loops, fold: Fold, left: Load, right: Load, addends: tuple[Load, ...]
) -> Product | None:
    """Of two operands in either order; None where no axis of the output has a stride of 1."""
    where = loops.where[0]
    lanes = next((axis for axis in reversed(loops.axes) if where.stride(axis) == 1), None)
    walked = [] if lanes is None else [bool(load.flat.stride(lanes)) for load in (left, right)]
    if lanes is None or walked == [False, False]:
        return None
    constants = [load.buffer.data is not None for load in (left, right)]
    second = walked[1] if walked != [True, True] else constants[1]
    rows, panel = (left, right) if second else (right, left)
    others = [axis for axis in loops.axes if axis is not lanes and axis.extent > 1]
    shared: list[Axis] = []
    blocks: list[Axis] = []
    points: list[Axis] = []
    for axis in others:
        in_rows, in_panel = rows.flat.stride(axis), panel.flat.stride(axis)
        (shared if in_rows and in_panel else blocks if in_panel else points).append(axis)
    return Product(
        loops,
        fold,
        rows,
        panel,
        lanes,
        tuple(shared),
        tuple(blocks),
        tuple(sorted(points, key=lambda axis: -abs(where.stride(axis)))),
        addends,
    )


def only_fold(loops: Loops) -> Fold | None:
    """The one Fold, with the hint of a contraction; None where there are others too."""
    folds = [node for node in walk(*loops.roots()) if isinstance(node, Fold)]
    if len(folds) != 1:
        return None
    return folds[0] if folds[0].hint and folds[0].operation == "sum" else None


def in_vectors(value: Expr) -> bool:
    """Whether vectors can compute a function of floats lane by lane."""
    return all(
        _in_vectors(node, FLOAT)
        if isinstance(node, Apply)
        else isinstance(node, Load | Const) and node.dtype is FLOAT
        for node in walk(value)
    )


def _addends(value: Expr, fold: Fold) -> tuple[Load, ...] | None:
    """The loads of the epilogue; None where it holds what vectors cannot compute."""
    found = []
    for node in walk(value, inner=False):
        match node:
            case Load(_, buffer, (index,)) if buffer.dtype is fold.dtype and not index.dynamic:
                found.append(node)
            case Apply() if not _in_vectors(node, fold.dtype):
                return None
            case Fold() | Apply():
                continue
            case Const() if node.dtype is fold.dtype:
                continue
            case _:
                return None
    return tuple(found)


FUNCTIONS: Final = (
    *("exp", "expm1", "log", "log1p", "softplus", "sigmoid", "sinh", "cosh", "tanh", "atan", "erf"),
    *("round", "floor", "ceil", "trunc"),
    *("as_float16", "as_bfloat16"),
)
"""Of one float, that are functions of vectors too."""
IN_VECTORS: Final = frozenset(
    {"add", "sub", "mul", "div", "neg", "max", "min", "abs", "sqrt", "where", *FUNCTIONS}
)
OF_DOUBLES: Final = frozenset({"add", "sub", "mul", "div", "neg"})
"""That are functions of vectors of doubles too."""
COMPARISONS: Final = frozenset({"less", "less_equal", "equal", "is_nan"})
"""Of floats, to a mask."""
CONDITIONS: Final = frozenset({"and", "or", "xor", "not"})
"""Of masks."""


def _in_vectors(node: Apply, dtype: ElementType) -> bool:
    if dtype is DOUBLE:
        return node.operation in OF_DOUBLES and node.dtype is DOUBLE
    if node.operation in COMPARISONS:
        return all(arg.dtype is FLOAT for arg in node.args)
    if node.operation in CONDITIONS:
        return True
    return node.operation in IN_VECTORS and node.dtype is FLOAT
