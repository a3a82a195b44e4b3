"""Taps: the tensors between the kernels of the very C that ships.

The run function is replaced by one that, after the step that completes a buffer, also copies it to
the memory at `onnxc_taps`; kernels, constants and memory plan stay as they are, to the byte. A
value is tapped where the plan realises it: one that a kernel has dissolved into another exists
nowhere.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxc.conversion import convert
from onnxc.diagnostics import Kind
from onnxc.dtypes import BY_CODE, FLOAT, ElementType, numpy_dtype
from onnxc.emit.module import emit
from onnxc.emit.views import Tap
from onnxc.errors import UsageError
from onnxc.expression import Buffer
from onnxc.kernel import Placed, Program, Step
from onnxc.verify.source import Subject

if TYPE_CHECKING:
    from numpy.typing import NDArray

POINTER: Final = "onnxc_taps"
ALIGNMENT: Final = 64


@dataclass(frozen=True)
class Tapped:
    """One value that is copied.

    name      of ONNX
    shape     of the buffer, in elements, which holds the value as `placed` says; without it, of
              the value
    stored    the type of the buffer: floats may hold a value of 16-bit floats
    offset    in the memory of all taps, in bytes
    nodes     the ONNX nodes whose work the kernel is, as text
    function  the C function of the kernel; "" of control flow
    """

    name: str
    dtype: ElementType
    shape: tuple[int, ...]
    placed: Placed | None
    stored: ElementType
    offset: int
    bytes: int
    nodes: tuple[str, ...]
    function: str

    def value(self, memory: NDArray[np.uint8]) -> NDArray[Any]:
        """The tensor in its own layout."""
        raw = memory[self.offset : self.offset + self.bytes]
        array = raw.view(numpy_dtype(self.stored)).reshape(self.shape)
        array = convert(array, self.stored, self.dtype)
        if self.placed is None:
            return array.copy()
        order, begin = self.placed.order, self.placed.begin
        inside = tuple(slice(begin[d], begin[d] + self.placed.shape[d]) for d in order)
        value = np.ascontiguousarray(array[inside].transpose(np.argsort(order)))
        return value.reshape(self.placed.whole or self.placed.shape)


@dataclass(frozen=True)
class TappedC:
    """The C with taps, `c_file` with its header beside it.

    taps    in the order of the steps
    inner   those that are no outputs: an output is looked at as such
    bytes   of the memory of all taps
    values  how many values the nodes of the main graph make
    """

    c_file: Path
    taps: tuple[Tapped, ...]
    inner: tuple[Tapped, ...]
    bytes: int
    values: int


def write_tapped(subject: Subject, folder: Path) -> TappedC:
    """Writes the C with taps into `folder`.

    Raises UsageError where the run function of the file is not the one that onnxc wrote.
    """
    compiled = subject.compiled
    names = {name for node in subject.graph().graph.node for name in node.output if name}
    copied: dict[Step, list[Tap]] = {}
    chosen: list[tuple[Step, Tap]] = []
    size = 0
    for step, buffer in _completed(subject, names):
        tap = Tap(buffer, size)
        copied.setdefault(step, []).append(tap)
        chosen.append((step, tap))
        size += -(-buffer.bytes // ALIGNMENT) * ALIGNMENT
    weights = compiled.module.weights
    form = "inline" if weights is None else "file" if weights.given else "incbin"
    module = emit(compiled.program, compiled.banner, form, copied)
    c_file = folder / (subject.c_file.name if subject.c_file else f"{compiled.name}.c")
    _write(subject, module.body, c_file)
    taps = tuple(_tapped(step, tap, module.calls, subject) for step, tap in chosen)
    outputs = {output.name for output in compiled.outputs}
    inner = tuple(tap for tap in taps if tap.name not in outputs)
    return TappedC(c_file, taps, inner, size, len(names))


def _completed(subject: Subject, names: set[str]) -> Iterator[tuple[Step, Buffer]]:
    """Each buffer that holds a whole named value, with the step that is the last to write it."""
    program = subject.compiled.program
    last = {buffer: step for step in program.steps for buffer in step.writes()}
    taken: set[str] = set()
    for step in program.steps:
        for buffer in step.writes():
            known = buffer in subject.logical or buffer in program.placed
            name = _name(buffer, program)
            if (
                last[buffer] is step
                and known
                and name in names
                and name not in taken
                and buffer.elements
                and buffer not in program.actual
                and buffer.dtype.kind in ("float", "signed", "unsigned", "bool", "half")
                and not buffer.dtype.packed
                and _type(name, buffer, subject).name != "bfloat16"
            ):
                taken.add(name)
                yield step, buffer


def _name(buffer: Buffer, program: Program) -> str:
    """Of the value that it holds."""
    return buffer.name or program.held.get(buffer, ("", ()))[0]


def _type(name: str, buffer: Buffer, subject: Subject) -> ElementType:
    """Of a value that a buffer holds; floats may hold 16-bit floats."""
    found = BY_CODE.get(subject.types.get(name, 0), buffer.dtype)
    return found if found.kind == "half" and buffer.dtype is FLOAT else buffer.dtype


def _tapped(step: Step, tap: Tap, calls: Mapping[Step, str], subject: Subject) -> Tapped:
    buffer, program = tap.buffer, subject.compiled.program
    name = _name(buffer, program)
    shape = buffer.shape if buffer.name else program.held[buffer][1]
    nodes = tuple(f"{origin.operator} '{origin.name}'" for origin in step.origins)
    return Tapped(
        name,
        _type(name, buffer, subject),
        tuple(shape),
        program.placed.get(buffer),
        buffer.dtype,
        tap.offset,
        buffer.bytes,
        nodes,
        calls.get(step, ""),
    )


def _write(subject: Subject, tapped_body: str, c_file: Path) -> None:
    """The C with its run function replaced, the header, and the file of weights."""
    compiled, given = subject.compiled, subject.c_file
    if given is None:
        text, header = compiled.c_source, compiled.header
        if compiled.has_weights_file:
            with c_file.with_suffix(".bin").open("wb") as stream:
                compiled.write_weights(stream)
    else:
        text = given.read_text(encoding="utf-8")
        header = given.with_suffix(".h").read_text(encoding="utf-8")
        if given.with_suffix(".bin").is_file():
            shutil.copyfile(given.with_suffix(".bin"), c_file.with_suffix(".bin"))
    name = compiled.name
    own, found = _run_function(compiled.body, name), _run_function(text, name)
    if not found or found.split() != own.split():
        raise UsageError(
            Kind.WRONG_SOURCE,
            f"{given}: the function {name}_run is not as onnxc writes it for this model; to look"
            " between its kernels, --per-node needs that one",
        )
    memory = f"#include <string.h>\n\nunsigned char *{POINTER};\n\n"
    text = text.replace(found, memory + _run_function(tapped_body, name))
    c_file.write_text(text, encoding="utf-8")
    for other in re.findall(r'^#include "([^"/]+)"', text, re.MULTILINE) if given else ():
        if given and (given.parent / other).is_file():
            shutil.copyfile(given.parent / other, c_file.parent / other)
    declared = f"{header}\nextern unsigned char *{POINTER};\n"
    c_file.with_suffix(".h").write_text(declared, encoding="utf-8")


def _run_function(text: str, name: str) -> str:
    """The definition of <name>_run, which is the last that begins so; "" where there is none."""
    before, start, rest = text.rpartition(f"\nonnxc_status {name}_run(")
    end = rest.find("\n}\n")
    return start[1:] + rest[: end + 3] if before and end >= 0 else ""
