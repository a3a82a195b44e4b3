"""Functions that have a form for vectors; some of them one that is not for all inputs.

A block of points is computed by the fast forms, which have no branch and become vectors, unless a
test of their operands finds one beyond them: then by the functions themselves.
"""

from __future__ import annotations

from typing import Final

from onnxc.dtypes import FLOAT, INT32
from onnxc.expression import Apply, Checked, Expr, Fold, Guard, static
from onnxc.kernel import Loops
from onnxc.traversal import walk

FAR: Final = {"sin": "angle", "cos": "angle", "tan": "angle", "mod": "quotient"}
"""Of operations in float, what onnxc_far_..._float tests; the fast form is onnxc_..._near_float."""
BLOCK: Final = 256
"""Points that stay in the first cache while they are tested and computed."""
FEWEST: Final = 16
"""Points that are worth a test."""
MOST: Final = 2**31 - 1 - BLOCK
"""Points up to which an int32_t may count them, and the block after the last."""


def divide_function(node: Apply) -> str:
    """What divides integers in lanes of vectors; "" where nothing does."""
    names = {"div": "divide", "remainder": "remainder"}
    small = node.dtype.kind in ("signed", "unsigned") and node.dtype.bits < 32
    if node.operation not in names or not (small or node.dtype is INT32):
        return ""
    return f"onnxc_{names[node.operation]}_lanes_{'int16' if small else 'int32'}"


def is_near(node: Expr) -> bool:
    """Whether it has a fast form."""
    return isinstance(node, Apply) and node.operation in FAR and node.dtype is FLOAT


def far_function(node: Apply) -> str:
    """What tells whether operands are beyond the fast form: 1 or 0."""
    return f"onnxc_far_{FAR[node.operation]}_{node.dtype.name}"


def near_function(node: Apply) -> str:
    return f"onnxc_{node.operation}_near_{node.dtype.name}"


def tested(loops: Loops) -> list[Apply]:
    """What a kernel tests in each block of its innermost axis; nothing where it has no blocks."""
    nodes = list(walk(*loops.roots()))
    if not loops.axes or loops.accumulate:
        return []
    if not FEWEST <= static(loops.axes[-1].extent) <= MOST:
        return []
    if loops.partial or any(isinstance(node, Fold | Guard | Checked) for node in nodes):
        return []
    return [node for node in nodes if isinstance(node, Apply) and is_near(node)]
