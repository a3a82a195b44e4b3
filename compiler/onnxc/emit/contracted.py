"""How much work a kernel of plain loops is, and whether its products may be fused into sums."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container

from onnxc.expression import Apply, Buffer, Expr, Fold, Load
from onnxc.kernel import Loops, Rows
from onnxc.tensor import EXPENSIVE
from onnxc.traversal import walk


def work(step: Loops | Rows) -> int:
    """How many elements it computes, those of its Folds counted too."""
    if isinstance(step, Rows):
        return sum(map(work, step.steps))
    folds = [node.axes for node in walk(*step.roots()) if isinstance(node, Fold)]
    most = max((math.prod(axis.extent for axis in axes) for axes in folds), default=1)
    return most * math.prod(axis.extent for axis in step.axes)


def may_contract(step: Loops | Rows) -> bool:
    """Whether its products may be fused into sums where the processor can.

    The functions of runtime_c/ hold their bounds both ways, and are much faster so. Of the kernel's
    own sums none may be of two products, or of one that it uses again: of equal ones the difference
    would not be 0.
    """
    kernels = step.steps if isinstance(step, Rows) else (step,)
    stored: set[Buffer] = set()
    for kernel in kernels:
        if not _sums_bear_it(kernel, stored):
            return False
        if kernel.accumulate == "mul" or _is_product(kernel.value, stored):
            stored.add(kernel.out)
    return any(
        isinstance(node, Apply) and node.operation in EXPENSIVE
        for kernel in kernels
        for node in walk(*kernel.roots())
    )


def _sums_bear_it(kernel: Loops, stored: Container[Buffer]) -> bool:
    """Of a kernel after others; what is in `stored` are products, which others may read too."""
    nodes = list(walk(*kernel.roots()))
    uses = Counter(operand for node in nodes for operand in node.operands())
    for node in nodes:
        if isinstance(node, Apply) and node.operation in ("add", "sub"):
            products = [arg for arg in node.args if _is_product(arg, stored)]
            again = any(uses[arg] > 1 or isinstance(arg, Load) for arg in products)
            if len(products) > 1 or again:
                return False
    return True


def _is_product(node: Expr, stored: Container[Buffer]) -> bool:
    while isinstance(node, Apply) and node.operation == "neg":
        (node,) = node.args
    if isinstance(node, Load):
        return node.buffer in stored
    return isinstance(node, Apply) and node.operation == "mul"
