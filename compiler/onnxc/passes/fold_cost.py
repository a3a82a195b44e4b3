"""What it would cost to compute a tensor at compile time."""

from __future__ import annotations

import math
from typing import Final

from onnxc.evaluate import constant_steps
from onnxc.expression import Axis, Expr, Fold, Guard, Load
from onnxc.kernel import Loops
from onnxc.tensor import Tensor
from onnxc.traversal import walk

POINT_LIMIT: Final = 2**26
"""The most points that a folded tensor takes, each computed in numpy."""


def points(tensor: Tensor) -> int | None:
    """How many points of loops and folds make the tensor; None where it reads run-time data."""
    if tensor.elements == 0:
        return 0
    loads = (node.buffer for node in walk(tensor.value) if isinstance(node, Load))
    if any(buffer.data is None and not buffer.made_by for buffer in loads):
        return None
    steps = constant_steps(tensor)
    if steps is None:
        return None
    total = 0
    for step in steps:
        if isinstance(step, Loops):
            total += _points(step.axes, step.value)
        else:
            total += sum(buffer.elements for buffer in (*step.reads(), *step.writes()))
    return total


def _points(axes: tuple[Axis, ...], value: Expr) -> int:
    total = 0
    stack = [(math.prod(axis.extent for axis in axes), value)]
    while stack:
        around, root = stack.pop()
        total += around
        for node in walk(root, inner=False):
            if isinstance(node, Fold):
                inside = math.prod(axis.extent for axis in node.axes)
                stack.append((around * inside, node.value))
            elif isinstance(node, Guard):
                stack.append((around, node.value))
    return total
