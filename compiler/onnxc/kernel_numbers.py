"""The numbers of kernels: those that the report and the profile hook of the C have in common."""

from __future__ import annotations

from onnxc.kernel import Program, Step, every_step
from onnxc.passes.keep_borders import stores_nothing


def numbered(program: Program) -> dict[Step, int]:
    """Maps each step to its place, from 0, among those that the C has, in the order of the text.

    A step stands before those of its nested programs, and control flow has a number, too. Borders
    that need not be stored again have none.
    """
    written = (step for step in every_step(program) if not stores_nothing(step))
    return {step: number for number, step in enumerate(written)}
