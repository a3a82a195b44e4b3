"""fold_across: windows are folded side by side along the axis on which they are neighbours.

A pool whose result has another layout than what it reads, as at the end of a network, would else
pick every element of a window from somewhere else, one window after the other. The loops run in the
order of what is read then, and the few results are stored apart.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from onnxc.expression import Axis, Fold, Load
from onnxc.kernel import Loops, Program, map_loops
from onnxc.passes.merge_axes import merged
from onnxc.summation import runs_across
from onnxc.traversal import walk

LEAST: Final = 8
"""Results that are neighbours, from which on they are folded side by side."""
READS: Final = 4
"""Elements of a window from which on how they are read counts more than how it is stored."""


def fold_across(program: Program) -> Program:
    """The program with the loops of such kernels in another order."""
    return map_loops(program, lambda loops: [_turned(loops)])


def _turned(loops: Loops) -> Loops:
    """A merged kernel with the axis innermost that the folds should run across, if there is one."""
    folds = [node for node in walk(*loops.roots()) if isinstance(node, Fold)]
    if not folds or loops.partial or runs_across(loops):
        return loops
    if any(_length(fold) < READS or _reads_along(fold) for fold in folds):
        return loops
    for axis in loops.axes[:-1]:
        if axis.extent >= LEAST and all(_neighbours(fold, axis) for fold in folds):
            others = [other for other in loops.axes if other is not axis]
            turned = merged(replace(loops, axes=(*others, axis)))
            return turned if runs_across(turned) else loops
    return loops


def _length(fold: Fold) -> int:
    return math.prod(axis.extent for axis in fold.axes)


def _reads_along(fold: Fold) -> bool:
    """Whether neighbours are read along the fold's own innermost axis."""
    return any(stride in (-1, 1) for stride in _strides(fold, fold.axes[-1]))


def _neighbours(fold: Fold, axis: Axis) -> bool:
    """Whether results along an axis are of neighbours, or of the same element."""
    return set(_strides(fold, axis)) in ({1}, {0, 1})


def _strides(fold: Fold, axis: Axis) -> list[int]:
    loads = (node for node in walk(fold.value) if isinstance(node, Load))
    return [load.flat.stride(axis) for load in loads]
