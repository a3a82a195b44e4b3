"""keep_borders: zeros that are still there need not be stored again.

Layers of one shape take turns in the same memory: the padding that the first one's buffer got is
that of the next one's too, if nothing in between has stored anything else there.
"""

from __future__ import annotations

from dataclasses import replace

from onnxc.expression import Buffer
from onnxc.kernel import Program, Routine, Step


def keep_borders(program: Program) -> Program:
    """The planned program whose needless border routines store nothing.

    They stay as steps, so that what a buffer holds is said before it is read.
    """
    borders = [step for step in program.steps if _is_border(step)]
    padded = {step.outputs[0]: step for step in borders if isinstance(step, Routine)}
    steps: list[Step] = []
    intact: dict[Buffer, Routine] = {}
    for step in program.steps:
        if isinstance(step, Routine) and step.outputs and padded.get(step.outputs[0]) is step:
            buffer = step.outputs[0]
            if any(_same(program, buffer, step, old, made) for old, made in intact.items()):
                step = replace(step, parameters=_without_runs(step))
            else:
                intact = _untouched(program, intact, buffer, padded)
            intact[buffer] = padded[buffer]
        else:
            for buffer in step.writes():
                intact = _untouched(program, intact, buffer, padded)
        steps.append(step)
    return replace(program, steps=tuple(steps))


def stores_nothing(step: Step) -> bool:
    """Whether it is a border that is there already."""
    return _is_border(step) and isinstance(step, Routine) and not dict(step.parameters)["runs"]


def _is_border(step: Step) -> bool:
    return isinstance(step, Routine) and step.name == "border"


def _without_runs(step: Routine) -> tuple[tuple[str, object], ...]:
    return tuple((name, () if name == "runs" else value) for name, value in step.parameters)


def _same(program: Program, one: Buffer, step: Routine, other: Buffer, made: Routine) -> bool:
    return (
        program.offsets[one] == program.offsets[other]
        and one.shape == other.shape
        and one.dtype is other.dtype
        and step.parameters == made.parameters
    )


def _untouched(
    program: Program, intact: dict[Buffer, Routine], written: Buffer, padded: dict[Buffer, Routine]
) -> dict[Buffer, Routine]:
    """The borders that storing into a buffer leaves: a padded one is stored inside of its own."""
    if written not in program.offsets:
        return intact
    inside = padded.get(written)
    start, end = program.offsets[written], program.offsets[written] + written.bytes
    return {
        buffer: made
        for buffer, made in intact.items()
        if program.offsets[buffer] >= end
        or program.offsets[buffer] + buffer.bytes <= start
        or (inside is not None and _same(program, written, inside, buffer, made))
    }
