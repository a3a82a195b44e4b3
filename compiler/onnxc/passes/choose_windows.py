"""choose_windows: a tuned kernel in place of the plain loops that find the greatest of windows.

It is another where no element is below zero, as behind a Relu: that shows in all who write them.
"""

from __future__ import annotations

import numpy as np

from onnxc.dtypes import FLOAT
from onnxc.expression import Apply, Buffer, Const, Expr, Load
from onnxc.kernel import Loops, Micro, Program, Routine, Step, map_loops
from onnxc.passes.merge_axes import merged
from onnxc.tuned.windows_pool import only_maximum, pool


def choose_windows(program: Program) -> Program:
    target = program.target
    if target is None:
        return program
    values = _Values(program)

    def chosen(loops: Loops) -> list[Step]:
        if only_maximum(loops) is None:
            return [loops]
        positive = all(values.are_positive(buffer) for buffer in loops.reads())
        return [pool(loops, merged(loops), target, positive=positive) or loops]

    return map_loops(program, chosen)


class _Values:
    """What is known of the values that the steps of a program leave."""

    def __init__(self, program: Program) -> None:
        self.writers: dict[Buffer, list[Step]] = {}
        for step in program.steps:
            for buffer in step.writes():
                self.writers.setdefault(buffer, []).append(step)
        self.known: dict[Buffer, bool] = {}

    def are_positive(self, buffer: Buffer) -> bool:
        """Whether each is +0, above, or NaN."""
        if buffer not in self.known:
            self.known[buffer] = False  # while that is asked
            steps = self.writers.get(buffer, [])
            self.known[buffer] = bool(steps) and all(self.leaves(step, buffer) for step in steps)
        return self.known[buffer]

    def leaves(self, step: Step, buffer: Buffer) -> bool:
        """Whether a step stores such values to the buffer."""
        match step:
            case Routine("border", outputs=(out,)):
                return out is buffer
            case Loops():
                return not step.accumulate and self.is_positive(step.value)
            case Micro():
                return step.twin.out is buffer and self.is_positive(step.twin.value)
        return False

    def is_positive(self, value: Expr) -> bool:
        match value:
            case Const(dtype, raw) if dtype is FLOAT:
                return not np.signbit(np.frombuffer(raw, np.float32)[0])
            case Load(dtype, buffer) if dtype is FLOAT:
                return self.are_positive(buffer)
            case Apply(_, "max", args):
                return any(map(self.is_positive, args))
            case Apply(_, "min" | "as_float16" | "as_bfloat16", args):
                return all(map(self.is_positive, args))
        return False
