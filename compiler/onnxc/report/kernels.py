"""The kernels of a compiled model: which nodes each computes, how, and how much work it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from onnxc.expression import Buffer
from onnxc.kernel import Branch, Micro, Origin, Program, Repeat, Routine, Rows, Step
from onnxc.kernel_numbers import numbered
from onnxc.report import choices, work

MAIN: Final = frozenset(
    {"Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "DeformConv"}
    | {"Gemm", "MatMul", "MatMulInteger", "QLinearMatMul", "Einsum"}
    | {"Attention", "LSTM", "GRU", "RNN"}
)
"""Operators that a kernel is named after, whatever else it computes."""

MOVEMENTS: Final = frozenset(
    {"Transpose", "Slice", "Pad", "Expand", "Tile", "Concat", "Split", "Gather", "DepthToSpace"}
    | {"SpaceToDepth", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "ReverseSequence"}
)
"""Operators that change where elements are, not what they are."""


@dataclass(frozen=True, eq=False)
class Kernel:
    """One numbered step.

    inside   the number of the control-flow step around it
    repeats  how often a run of the model executes it; None where that is decided at run time
    origins  the nodes that it computes, in the order of the graph
    main     the one of them that it is named after
    """

    number: int
    step: Step
    inside: int | None
    repeats: int | None
    origins: tuple[Origin, ...]
    main: Origin | None

    @property
    def times(self) -> int:
        """By which the work of one execution is multiplied: what nobody knows counts once."""
        return 1 if self.repeats is None else self.repeats

    @cached_property
    def products(self) -> int:
        """Multiply-accumulates of one execution."""
        return work.products(self.step).total()

    @property
    def kind(self) -> str:
        match self.step:
            case Micro(name) | Routine(name):
                return name
        return type(self.step).__name__.lower()

    @property
    def role(self) -> str:
        return "" if isinstance(self.step, Branch | Repeat) else self.step.role

    @property
    def scratch(self) -> tuple[Buffer, ...]:
        """Buffers that it only works in."""
        return self.step.scratch if isinstance(self.step, Micro | Routine | Rows) else ()

    @property
    def results(self) -> tuple[Buffer, ...]:
        """What it fills for others."""
        match self.step:
            case Micro():
                return self.step.results
            case Routine() | Rows():
                return self.step.outputs
            case Branch():
                return ()
            case Repeat():
                states = (state for state, _ in self.step.carried)
                return tuple(b for b in (self.step.counter, *states) if b is not None)
        return self.step.writes()

    @property
    def operands(self) -> tuple[Buffer, ...]:
        """What it reads itself: nested kernels stand for themselves."""
        return tuple(work.bytes_read(self.step))


def kernels_of(program: Program) -> list[Kernel]:
    """Every step that has a number, in that order."""
    return [*_Numbered(program).inside(program, None, 1)]


class _Numbered:
    """`easy` are the nodes that are no work: others in a kernel come first."""

    def __init__(self, program: Program) -> None:
        self.numbers = numbered(program)
        self.easy = program.known | program.views

    def inside(self, program: Program, around: int | None, repeats: int | None) -> Iterator[Kernel]:
        for step in program.steps:
            if step not in self.numbers:
                continue
            number, main = self.numbers[step], self.main(step.origins)
            yield Kernel(number, step, around, repeats, step.origins, main)
            match step:
                case Branch():
                    yield from self.inside(step.then, number, repeats)
                    yield from self.inside(step.otherwise, number, repeats)
                case Repeat():
                    trips = work.trips(step)
                    known = None if trips is None or repeats is None else trips * repeats
                    yield from self.inside(step.body, number, known)

    def main(self, origins: Sequence[Origin]) -> Origin | None:
        named = (o for o in origins if o.operator.rpartition("-")[0] in MAIN)
        working = [o for o in origins if o not in self.easy]
        computing = [o for o in working if o.operator.rpartition("-")[0] not in MOVEMENTS]
        return next((o for group in (named, computing, working, origins) for o in group), None)


def kernel_facts(
    kernels: Sequence[Kernel],
    program: Program,
    calls: Mapping[Step, str],
    tensors: Mapping[Buffer, int],
) -> list[dict[str, Any]]:
    """The facts of each kernel; `tensors` has the numbers of those that have one."""
    return [_facts(kernel, program, calls, tensors) for kernel in kernels]


def _facts(
    kernel: Kernel, program: Program, calls: Mapping[Step, str], tensors: Mapping[Buffer, int]
) -> dict[str, Any]:
    step, times, target = kernel.step, kernel.times, program.target
    read, written = work.bytes_read(step), work.bytes_written(step)
    arithmetic = work.arithmetic(step)
    rescaled, rescaled_in = work.rescaled(step)
    nodes = (origin.number for origin in kernel.origins if origin.number >= 0)

    def numbers(buffers: Sequence[Buffer]) -> list[int]:
        return [tensors[b] for b in dict.fromkeys(buffers) if b in tensors]

    return {
        "number": kernel.number,
        "function": calls.get(step, ""),
        "kind": kernel.kind,
        "why": "" if target is None else choices.reason(step),
        "tiles": [] if target is None else choices.tiles_of(step, target),
        "role": kernel.role,
        "nodes": [*dict.fromkeys(nodes)],
        "inside": kernel.inside,
        "repeats": kernel.repeats,
        "reads": numbers(tuple(read)),
        "writes": numbers(kernel.results),
        "scratch": numbers(kernel.scratch),
        "macs": kernel.products * times,
        "bytes_read": work.total(read, constants=False) * times,
        "bytes_written": work.total(written) * times,
        "bytes_constants": work.total(read, constants=True) * times,
        "arithmetic": arithmetic,
        "integer": not work.is_float(arithmetic),
        "rescaled": rescaled * times,
        "rescaled_in": rescaled_in,
        "time": None,
    }


def products(kernels: Sequence[Kernel]) -> work.Products:
    """Multiply-accumulates of a run of the model, by arithmetic."""
    total = work.Products()
    for kernel in kernels:
        for arithmetic, count in work.products(kernel.step).items():
            total[arithmetic] += count * kernel.times
    return total
