"""How the folds of a kernel run: what the C and evaluate.py agree on, bit for bit.

A fold runs either along its own axes, a float sum in lanes of the innermost of them, or across the
innermost axis of the kernel: then neighbouring outputs are folded side by side, each in the order
of the fold's loops. Either way compilers find vectors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from onnxc.expression import Axis, Fold, Load, static
from onnxc.kernel import Loops
from onnxc.traversal import axes_read, walk

PLAIN: Final = 16
"""So many terms a lane adds at most without their rounding errors."""
GROUP: Final = 4
"""So many terms are added before their sum, and its error, joins a long one: of equal terms exact.

So many lanes then do, too.
"""
WIDEST: Final = 256
"""Bytes of all lanes of a sum."""
SHORT: Final = 16
"""Loops of fewer iterations are not worth lanes of their own."""
FEWEST: Final = 4
"""Outputs that are worth to be folded side by side."""
IN_ORDER: Final = "products in order"
"""The hint of a sum in the order of its loops, whatever their lengths."""
LONGEST_STEP: Final = 4
"""Elements between the operands of neighbouring outputs, of which most are of use to others."""


@dataclass(frozen=True)
class Summation:
    """Of a float sum; at its end halves of the lanes are added until one is left.

    lanes        partial sums: lane n takes elements n, n + lanes ... of the innermost axis; 1 is
                 the order of the loops
    compensated  whether it has `totals` lanes of two parts instead, to which sums of groups are
                 added, and elements of the innermost axis that fill no whole lanes alone: element n
                 to total n % totals
    """

    lanes: int
    compensated: bool

    @property
    def grouped(self) -> bool:
        """Whether GROUP terms of each lane, which are neighbours or in neighbouring blocks, are one
        sum before; few lanes have none, and every element is alone.
        """
        return self.lanes == 1 or self.lanes > SHORT

    @property
    def totals(self) -> int:
        """Quarters of many lanes, whose sums are added by halves, too."""
        return self.lanes // GROUP if self.lanes > SHORT else self.lanes


def summation(fold: Fold, *, across: bool) -> Summation:
    """How a float sum runs; a sum of products, which has a hint, is never compensated."""
    length = math.prod(static(axis.extent) for axis in fold.axes)
    lanes = 1 if across else fold_lanes(fold)
    return Summation(lanes, not fold.hint and length > PLAIN * lanes)


def fold_lanes(fold: Fold) -> int:
    """In how many lanes a fold along its own axes runs: a power of two."""
    if fold.hint == IN_ORDER:
        return 1
    last = static(fold.axes[-1].extent)
    widest = WIDEST // fold.dtype.size
    if last >= 2 * widest:
        return widest
    if last >= widest:
        return widest // 2
    return min(SHORT, 1 << max(0, last - 1).bit_length())


def runs_across(loops: Loops) -> bool:
    """Whether the folds of a merged kernel run across its innermost axis."""
    if not loops.axes or loops.partial or static(loops.axes[-1].extent) < FEWEST:
        return False
    folds = [node for node in walk(*loops.roots()) if isinstance(node, Fold)]
    outside = {node for node in walk(*loops.roots(), inner=False) if isinstance(node, Fold)}
    axis = loops.axes[-1]
    return bool(folds) and set(folds) == outside and all(_walks(fold, axis) for fold in folds)


def _walks(fold: Fold, axis: Axis) -> bool:
    """Whether neighbours along `axis` fold neighbouring elements, and nothing folds twice."""
    loads = [node for node in walk(fold.value) if isinstance(node, Load)]
    if any(isinstance(node, Fold) for node in walk(fold.value)):
        return False
    if any(_is_scattered(load, axis) for load in loads):
        return False
    steps = {abs(static(load.flat.stride(axis))) for load in loads}
    if not steps - {0}:
        return False
    short = static(fold.axes[-1].extent) < SHORT
    return max(steps) <= (LONGEST_STEP if short else 1)


def _is_scattered(load: Load, axis: Axis) -> bool:
    """Whether neighbours along `axis` may be read from anywhere, or bit by bit."""
    dynamic = load.flat.dynamic
    return load.buffer.packed or any(axis in axes_read(place) for place, _ in dynamic)
