"""What a kernel asks of a machine besides its products: functions, other operations, memory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from onnxc.dtypes import ElementType
from onnxc.expression import Apply, Expr, Fold, static
from onnxc.kernel import Loops, Micro, Repeat, Rows, Step
from onnxc.report import work
from onnxc.report.machine import MEASURED
from onnxc.traversal import walk
from onnxc.tuned.recurrent import Recurrent

FREE: Final = frozenset({"cast", "pack", "truth"})
"""Operations that are not counted: others do them on the way."""
BITS: Final = 32
"""Of the elements that operations are counted in."""


@dataclass(frozen=True)
class Effort:
    """Of one execution of a kernel.

    products    multiply-accumulates by arithmetic
    operations  others, each value computed once: as many as of 32-bit elements take as long
    functions   of floats, by name, of those whose rate is measured
    read        bytes of activations, written bytes, constants bytes that are read
    again       bytes of constants that are read once more for each time of a recurrence
    """

    products: Mapping[str, int]
    operations: float
    functions: Mapping[str, int]
    read: int
    written: int
    constants: int
    again: int = 0

    @property
    def bytes(self) -> int:
        """All that it touches."""
        return self.read + self.written + self.constants


def effort(step: Step) -> Effort:
    """Of a step that is one call."""
    functions: Counter[str] = Counter()
    operations = 0.0
    for loops, times in _loops(step, 1):
        for name, dtype, points in _operations(loops):
            if name in MEASURED and dtype.name == "float":
                functions[name] += points * times
            elif name:
                operations += points * times * dtype.bits / BITS
    read = work.bytes_read(step)
    constants = work.total(read, constants=True)
    times = step.parameters.times if isinstance(step, Micro) and _recurs(step) else 1
    return Effort(
        dict(work.products(step)),
        operations,
        dict(functions),
        work.total(read, constants=False),
        work.total(work.bytes_written(step)),
        constants,
        max(0, times - 1) * constants,
    )


def _recurs(step: Micro) -> bool:
    return isinstance(step.parameters, Recurrent)


def _loops(step: Step, times: int) -> Iterator[tuple[Loops, int]]:
    """The plain loops that a step is, or does the work of, and how often."""
    match step:
        case Loops():
            yield step, times
        case Micro() | Rows():
            for part in step.steps:
                yield from _loops(part, times)
        case Repeat(body=body):
            for part in body.steps:
                yield from _loops(part, times * (work.trips(step) or 1))


def _operations(loops: Loops) -> Iterator[tuple[str, ElementType, int]]:
    """Each operation of a kernel, and how many different values it has.

    Not a multiplication whose products are summed, nor that sum: these are multiply-accumulates.
    An addition and a multiplication may be one instruction, so that the latter count nothing.
    """
    for node in walk(loops.value):
        match node:
            case Apply(dtype, name) if name != "mul" and name not in FREE:
                yield name, dtype, work.points(node)
            case Fold(dtype, operation, axes, value) if not _is_product(value):
                yield operation, dtype, work.points(value, axes)
    if loops.accumulate:
        yield loops.accumulate, loops.out.dtype, math.prod(static(a.extent) for a in loops.axes)


def _is_product(value: Expr) -> bool:
    while isinstance(value, Apply) and value.operation in ("cast", "neg", "add", "sub"):
        value = value.args[0]
    return isinstance(value, Apply) and value.operation == "mul"
