"""Which buffers depend on the order of a sum of floats.

With infinities or values near the largest one, another order gives another result: inf - inf is
NaN, and a partial sum may overflow. Every engine has an order of its own, so such results prove
nothing.
"""

from __future__ import annotations

from typing import Final

from onnxc.expression import Buffer, Fold
from onnxc.kernel import Branch, Loops, Micro, Program, Repeat, Routine, Rows, Step
from onnxc.traversal import walk

FLOATS: Final = ("float", "half", "complex")
SUMMING_ROUTINES: Final = ("cumulate", "determinant")


def depending_on_order(program: Program) -> set[Buffer]:
    """Every buffer into which a sum or product of several floats goes, directly or not."""
    found: set[Buffer] = set()
    for step in program.steps:
        if _sums(step) or any(buffer in found for buffer in step.reads()):
            found.update(step.writes())
    return found


def _sums(step: Step) -> bool:
    match step:
        case Micro() | Rows():
            return any(map(_sums, step.steps))
        case Loops():
            adds = step.accumulate in ("add", "mul") and step.out.dtype.kind in FLOATS
            return adds or any(
                isinstance(node, Fold)
                and node.operation in ("sum", "prod")
                and node.dtype.kind in FLOATS
                for node in walk(*step.roots())
            )
        case Routine():
            return step.name in SUMMING_ROUTINES
        case Branch():
            return any(map(_sums, (*step.then.steps, *step.otherwise.steps)))
        case Repeat():
            return any(map(_sums, step.body.steps))
