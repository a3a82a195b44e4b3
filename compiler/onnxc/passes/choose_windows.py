"""choose_windows: a tuned kernel in place of the plain loops that find the greatest of windows.

It is another where no element is below zero, as behind a Relu: that shows in all who write them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from onnxc.dtypes import FLOAT
from onnxc.expression import Apply, Buffer, Const, Expr, Load
from onnxc.kernel import Loops, Micro, Program, Routine, Step, map_loops
from onnxc.passes.merge_axes import merged
from onnxc.traversal import walk
from onnxc.tuned.windows_pool import only_maximum, pool


def choose_windows(program: Program) -> Program:
    target = program.target
    if target is None:
        return program
    positive = positive_buffers(program)

    def chosen(loops: Loops) -> list[Step]:
        if only_maximum(loops) is None:
            return [loops]
        return [pool(loops, merged(loops), target, positive=positive >= {*loops.reads()}) or loops]

    return map_loops(program, chosen)


def positive_buffers(program: Program) -> set[Buffer]:
    """Those of which each value that the steps leave is +0, above, or NaN."""
    found: dict[Buffer, bool] = {}
    for step in program.steps:
        for buffer in step.writes():
            found[buffer] = found.get(buffer, True) and _leaves_positive(step, buffer, found)
    return {buffer for buffer, positive in found.items() if positive}


def _leaves_positive(step: Step, buffer: Buffer, known: Mapping[Buffer, bool]) -> bool:
    """Whether a step stores such values to the buffer; `known` of those that are written before."""
    match step:
        case Routine("border", outputs=(out,)):
            return out is buffer
        case Loops(accumulate=""):
            return _is_positive(step.value, known)
        case Micro():
            return step.twin.out is buffer and _is_positive(step.twin.value, known)
    return False


def _is_positive(value: Expr, known: Mapping[Buffer, bool]) -> bool:
    found: dict[Expr, bool] = {}
    for node in walk(value, inner=False):
        match node:
            case Const(dtype, raw) if dtype is FLOAT:
                positive = not np.signbit(np.frombuffer(raw, np.float32)[0])
            case Load(dtype, buffer) if dtype is FLOAT:
                positive = known.get(buffer, False)
            case Apply(_, "max", args):
                positive = any(found[arg] for arg in args)
            case Apply(_, "min" | "as_float16" | "as_bfloat16", args):
                positive = all(found[arg] for arg in args)
            case _:
                positive = False
        found[node] = positive
    return found[value]
