"""The tensors of a compiled model: where each lies, and from which kernel to which it is needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onnxc.expression import Buffer
from onnxc.kernel import Micro, Origin, Placed, Program, Repeat
from onnxc.report.kernels import Kernel


@dataclass
class Life:
    """Of one tensor, by numbers of kernels.

    first, last  between which it holds something; None of a tensor that no kernel uses
    writers, readers  kernels that fill it, or work in it, and those that read it
    """

    first: int | None = None
    last: int | None = None
    writers: list[int] = field(default_factory=list)
    readers: list[int] = field(default_factory=list)

    def within(self, begin: int, end: int) -> bool:
        """Whether nothing outside of some kernels needs it."""
        return self.first is not None and self.first >= begin and (self.last or 0) <= end

    def reaches(self, number: int) -> None:
        self.first = number if self.first is None else min(self.first, number)
        self.last = number if self.last is None else max(self.last, number)


def numbered_tensors(program: Program, constants: Iterable[Buffer]) -> dict[Buffer, int]:
    """The number of each tensor: inputs, outputs, those of the workspace, constants of the C."""
    found = (*program.inputs, *program.written, *program.offsets, *constants)
    return {buffer: number for number, buffer in enumerate(dict.fromkeys(found))}


def lives(kernels: Sequence[Kernel], tensors: Iterable[Buffer]) -> dict[Buffer, Life]:
    """What a loop carries from trip to trip, or finds and leaves, lives through all of it."""
    found = {buffer: Life() for buffer in tensors}
    ends = _ends(kernels)
    for kernel in kernels:
        for buffer in kernel.operands:
            if buffer in found:
                found[buffer].readers.append(kernel.number)
                if not isinstance(kernel.step, Repeat):
                    found[buffer].reaches(kernel.number)
        for buffer in (*kernel.results, *kernel.scratch):
            if buffer in found:
                found[buffer].writers.append(kernel.number)
                found[buffer].reaches(kernel.number)
    for kernel in reversed(kernels):
        if isinstance(kernel.step, Repeat):
            _stretch(kernel, ends[kernel.number], found)
    return found


def _ends(kernels: Sequence[Kernel]) -> dict[int, int]:
    """The number of the last kernel inside of each control-flow step."""
    ends = {kernel.number: kernel.number for kernel in kernels}
    for kernel in reversed(kernels):
        if kernel.inside is not None:
            ends[kernel.inside] = max(ends[kernel.inside], ends[kernel.number])
    return ends


def _stretch(kernel: Kernel, end: int, found: Mapping[Buffer, Life]) -> None:
    """All of a loop needs what it names itself, and what comes from outside or goes there."""
    assert isinstance(kernel.step, Repeat)
    ends = {value for _, value in kernel.step.carried}
    named = {*kernel.operands, *kernel.results} - ends
    for buffer in (*kernel.step.reads(), *kernel.step.writes()):
        life = found.get(buffer)
        if life is None:
            continue
        if buffer in ends:
            life.reaches(end)
        if buffer in named or not life.within(kernel.number, end):
            life.reaches(kernel.number)
            life.reaches(end)


def tensor_facts(
    tensors: Mapping[Buffer, int],
    lives: Mapping[Buffer, Life],
    kernels: Sequence[Kernel],
    program: Program,
) -> list[dict[str, Any]]:
    """The facts of each tensor; of several that hold one value, labels say which is which."""
    makers = {kernel.number: kernel for kernel in kernels}
    found = [_facts(b, n, lives[b], makers, program) for b, n in tensors.items()]
    seen: set[str] = set()
    for tensor in found:
        if tensor["name"] and tensor["name"] in seen:
            tensor["label"] += f" ({tensor['layout'] or 'copy'})"
        seen.add(tensor["name"])
    return found


def _facts(
    buffer: Buffer, number: int, life: Life, kernels: Mapping[int, Kernel], program: Program
) -> dict[str, Any]:
    name, shape = _held(buffer, program)
    makers, readers = ([kernels[n] for n in numbers] for numbers in (life.writers, life.readers))
    placed = program.placed.get(buffer)
    origins = dict.fromkeys(o.number for k in makers for o in _makers(k, name) if o.number >= 0)
    return {
        "number": number,
        "name": name,
        "label": name or _label(buffer, makers),
        "dtype": buffer.dtype.name,
        "shape": [*shape],
        "bytes": buffer.bytes,
        "place": buffer.kind,
        "offset": program.offsets.get(buffer),
        "first": life.first,
        "last": life.last,
        "producer": life.writers[-1] if life.writers else None,
        "writers": [*dict.fromkeys(life.writers)],
        "readers": life.readers,
        "nodes": [*origins],
        "layout": layout_text(buffer, placed) if placed else _packing(buffer, readers),
    }


def _held(buffer: Buffer, program: Program) -> tuple[str, Sequence[int]]:
    """The name and the shape of the value that a buffer holds; a name of "" where that has none."""
    name, shape = program.held.get(buffer, (buffer.name, buffer.shape))
    if buffer in program.placed:
        shape = program.placed[buffer].whole or program.placed[buffer].shape
    return buffer.name or name, shape


def _makers(kernel: Kernel, name: str) -> Iterable[Origin]:
    """The nodes of a kernel that make a tensor: that which gives it its name, else all."""
    made = ((o, f", {o.signature.rpartition('-> ')[2]}") for o in kernel.origins)
    ours = [origin for origin, results in made if name and f", {name} " in results]
    return ours[-1:] or kernel.origins


def _label(buffer: Buffer, makers: Sequence[Kernel]) -> str:
    """Of a tensor that has no name: what it is for."""
    for kernel in makers:
        if buffer in kernel.scratch:
            return f"work area of kernel {kernel.number}"
    for kernel in makers:
        return f"{kernel.role or 'part'} of kernel {kernel.number}"
    return "unnamed constant" if buffer.kind == "constant" else "unnamed"


def _packing(buffer: Buffer, readers: Sequence[Kernel]) -> str:
    """Of a constant that tuned kernels read otherwise than plain loops would."""
    steps = [kernel.step for kernel in readers if isinstance(kernel.step, Micro)]
    packed = any(all(buffer not in part.reads() for part in step.steps) for step in steps)
    return "packed for its kernel" if packed and buffer.kind == "constant" else ""


def layout_text(buffer: Buffer, placed: Placed) -> str:
    """Of a value that lies otherwise than ONNX has it: "channels last, padded to 34 x 34 x 16"."""
    inside = tuple(placed.shape[d] for d in placed.order)
    rank, parts = len(inside), []
    if rank > 2 and placed.order == (0, *range(2, rank), 1):
        parts.append("channels last")
    elif placed.order != tuple(range(rank)):
        parts.append(f"dimensions in the order {', '.join(map(str, placed.order))}")
    if tuple(buffer.shape) != inside:
        sizes = " x ".join(str(extent) for extent in buffer.shape[1:])
        parts.append(f"padded to {sizes}")
    return ", ".join(parts)
