"""The least time that this machine needs for a kernel, and what sets it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from onnxc.kernel import Branch, Program, Repeat, Step
from onnxc.kernel_numbers import numbered
from onnxc.report.effort import Effort, effort
from onnxc.report.machine import Bandwidth, Machine

AS: Final = {
    "float16": "float32",
    "bfloat16": "float32",
    "complex64": "float32",
    "complex128": "float64",
    "int4": "int8",
    "int2": "int8",
    "int16": "float32",
    "int32": "float32",
    "int64": "float64",
}
"""Whose rate stands for the products of an arithmetic that has none of its own."""
FACTORS: Final = {"complex64": 4, "complex128": 4}
"""Multiplications of numbers in one of complex ones."""


@dataclass(frozen=True)
class Limit:
    """Nanoseconds of one execution of a kernel, by what they are for."""

    products: float
    operations: float
    memory: float
    functions: float

    @property
    def bound_by(self) -> str:
        parts = vars(self)
        return max(parts, key=lambda name: parts[name])

    @property
    def ns(self) -> float:
        return max(self.products, self.operations, self.memory, self.functions)


def efforts(program: Program) -> dict[Step, Effort]:
    """Of every kernel that is one call."""
    steps = (step for step in numbered(program) if not isinstance(step, Branch | Repeat))
    return {step: effort(step) for step in steps}


def functions_of(found: Iterable[Effort]) -> set[str]:
    """The functions whose rates are needed for a limit."""
    return {name for one in found for name in one.functions}


def limit(asked: Effort, machine: Machine, footprint: int, before: int = 0) -> Limit:
    """The least time for a kernel.

    Each part alone: products at the highest rate; activations over the working set of the kernel,
    or over the `before` bytes of the one before it, which left them so near; constants over the
    `footprint`, the bytes that a run of the model touches, as it has been through all else since
    they were read.
    """
    own, run = machine.bandwidth(asked.bytes), machine.bandwidth(footprint)
    near = machine.bandwidth(max(asked.bytes, before))
    return Limit(
        1e9 * sum(n / _rate(name, machine) for name, n in asked.products.items()),
        1e9 * asked.operations / machine.macs["float32"],
        1e9
        * (
            _moved(asked.read, asked.written, near)
            + asked.constants / run.read
            + asked.again / own.read
        ),
        1e9 * sum(n / machine.functions[name] for name, n in asked.functions.items()),
    )


def footprint_of(program: Program, sizes: Iterable[int]) -> int:
    """Bytes that a run touches: the workspace, and `sizes` of constants, inputs and outputs."""
    return program.workspace_size + sum(sizes)


def _rate(arithmetic: str, machine: Machine) -> float:
    known = arithmetic if arithmetic in machine.macs else AS.get(arithmetic, "float32")
    return machine.macs[known] / FACTORS.get(arithmetic, 1)


def _moved(read: int, written: int, bandwidth: Bandwidth) -> float:
    """Seconds: what is read and written is copied, the rest only read, or only written."""
    both = min(read, written)
    alone = (read - both) / bandwidth.read + (written - both) / bandwidth.write
    return 2 * both / bandwidth.copy + alone
