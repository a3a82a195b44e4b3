"""Which nodes of a quantised model are computed in float."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from onnxc.expression import Fold
from onnxc.kernel import Loops, Micro, Program, Step, every_step
from onnxc.traversal import walk

CONTRACTIONS: Final = ("Conv", "ConvTranspose", "Gemm", "MatMul")
"""Operators that a quantised model states as DequantizeLinear, the operator, QuantizeLinear."""


def in_float(program: Program) -> list[dict[str, Any]]:
    """Operators whose operands are dequantised and then multiplied in float, most frequent first.

    Each with the number of its nodes, those in loops and branches once.
    """
    counts = Counter(name for step in every_step(program) for name in _dequantised(step))
    return [{"operator": name, "count": number} for name, number in counts.most_common()]


def _dequantised(step: Step) -> Iterator[str]:
    """The contractions among the nodes of a kernel that sums in float, after a DequantizeLinear."""
    if not isinstance(step, Loops | Micro) or not _sums_in_float(step):
        return
    names = [origin.operator.partition("-")[0] for origin in step.origins]
    if "DequantizeLinear" in names:
        after = names[names.index("DequantizeLinear") :]
        yield from (name for name in after if name in CONTRACTIONS)


def _sums_in_float(step: Loops | Micro) -> bool:
    loops = step.twin if isinstance(step, Micro) else step
    folds = (node for node in walk(loops.value) if isinstance(node, Fold))
    return any(fold.operation == "sum" and fold.dtype.kind == "float" for fold in folds)
