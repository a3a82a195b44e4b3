"""A planned program to one .c and one .h."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol

from onnxc.emit.interface import Banner, Port, header, signature
from onnxc.emit.literals import Constant, constant
from onnxc.emit.loops import Kernel, Parameter, kernel_of
from onnxc.emit.text import (
    WIDTH,
    buffer_text,
    comment,
    listing,
    node_text,
    render,
    signature_text,
)
from onnxc.kernel import LANES, Branch, Buffer, Loops, Program, Repeat, Step
from onnxc.names import Names, unique_names
from onnxc.resources import runtime_text

ORIGINS_SHOWN: Final = 8
"""In a kernel's comment; the run function names every node."""
OWN_LOCALS: Final = ("arena", "over")
"""Variables of the run function, besides those that no name of a model ever becomes."""


class TextSink(Protocol):
    def write(self, text: str, /) -> object: ...


@dataclass(frozen=True)
class Call:
    kind: ClassVar[str] = "call"
    text: str
    checked: bool
    comment: list[str]


@dataclass(frozen=True)
class Note:
    kind: ClassVar[str] = "note"
    comment: list[str]


@dataclass(frozen=True)
class BranchView:
    kind: ClassVar[str] = "branch"
    condition: str
    then: list[Any]
    otherwise: list[Any]


@dataclass(frozen=True)
class RepeatView:
    kind: ClassVar[str] = "repeat"
    variable: str
    condition: str
    counter: str
    body: list[Any]
    carried: list[tuple[str, str, str]]


@dataclass(frozen=True)
class Module:
    """The text of a model.

    body    the kernels and the run functions, the part of the .c that people read
    values  what else model.c.j2 asks for; the constants follow it, piece by piece
    """

    name: str
    header: str
    body: str
    constants: tuple[Constant, ...]
    ports: tuple[Port, ...]
    values: dict[str, Any] = field(repr=False)

    def write_c(self, stream: TextSink, header_file: str = "", *, single: bool = False) -> None:
        """The .c, in pieces; it includes `header_file` or, with `single`, holds the header."""
        stream.write(
            render(
                "model.c.j2",
                **self.values,
                body=self.body,
                inlined_header=self.header if single else "",
                header_file=header_file or f"{self.name}.h",
            )
        )
        for item in self.constants:
            start = f"static const {item.reference}"
            attribute = f"{self.name.upper()}_CONST_ATTR = "
            gap = " " if len(start) + len(attribute) < WIDTH else "\n    "
            stream.write(f"\n{start}{gap}{attribute}")
            for chunk in item.chunks():
                stream.write(chunk)
            stream.write(";\n")


def emit(program: Program, banner: Banner) -> Module:
    """The module of a program that plan_memory has planned."""
    return _Emission(program, banner).module()


class _Emission:
    def __init__(self, program: Program, banner: Banner) -> None:
        self.program = program
        self.banner = banner
        buffers = [*program.inputs, *program.outputs]
        names = unique_names([b.name for b in buffers], OWN_LOCALS, banner.name)
        self.ports = tuple(
            Port(buffer, c_name, buffer.kind, banner.name)
            for buffer, c_name in zip(buffers, names, strict=True)
        )
        self.names = Names([*names, *OWN_LOCALS], banner.name)
        self.pointers: dict[Buffer, str] = {port.buffer: port.c_name for port in self.ports}
        self.constants: dict[Buffer, Constant] = {}
        self.functions: dict[Kernel, str] = {}
        self.texts: list[str] = []
        self.runtime: set[str] = set()
        self.includes: set[str] = set()
        self.checked = False

    def module(self) -> Module:
        program, banner = self.program, self.banner
        for buffer in program.offsets:
            self.pointers[buffer] = self.names.add(buffer.name or "row")
        notes = [Note(comment([f"{node_text(origin)}: {fact}"])) for origin, fact in program.notes]
        steps = [*notes, *self.steps(program.steps)]
        constants = tuple(self.constants.values())
        text, interface_hash = header(program, banner, self.ports, constants)
        if self.checked:
            self.runtime.add("onnxc_first")
        values = {
            **vars(banner),
            "NAME": banner.name.upper(),
            "interface_hash": interface_hash,
            "workspace_size": program.workspace_size,
            "includes": sorted(self.includes),
            "full_rows": any(c.has_full_rows for c in constants),
            "byte_images": any(c.form == "image" and c.buffer.dtype.size > 1 for c in constants),
            "runtime": runtime_text(self.runtime),
            "constants": [
                {"declaration": c.declaration, "text": buffer_text(c.buffer)} for c in constants
            ],
        }
        return Module(banner.name, text, self.body(steps), constants, self.ports, values)

    def body(self, steps: list[Any]) -> str:
        name, size = self.banner.name, self.program.workspace_size
        used = {buffer for step in self.program.steps for buffer in (*step.reads(), *step.writes())}
        unused = [port.c_name for port in self.ports if port.buffer not in used]
        return render(
            "body.c.j2",
            name=name,
            NAME=name.upper(),
            functions=self.texts,
            compares_floats=any(kernel.compares_floats for kernel in self.functions),
            run=signature(self.banner, self.ports, "run", workspace=True),
            run_static=signature(self.banner, self.ports, "run_static", workspace=False),
            workspace_size=size,
            alignment=self.program.alignment,
            pointers=[
                (buffer.dtype.c_type, self.pointers[buffer], offset, buffer_text(buffer))
                for buffer, offset in self.program.offsets.items()
            ],
            checked=self.checked,
            unused=[*unused, *([] if size else ["workspace"])],
            steps=steps,
            forwarded="".join(f"{port.c_name}, " for port in self.ports),
        )

    def steps(self, steps: Sequence[Step]) -> list[Any]:
        return [self.step(step) for step in steps]

    def step(self, step: Step) -> Any:
        match step:
            case Loops():
                return self.call(step)
            case Branch(condition, then, otherwise):
                test = f"{self.pointer(condition)}[0] != 0"
                return BranchView(test, self.steps(then.steps), self.steps(otherwise.steps))
            case Repeat():
                return self.repeat(step)

    def repeat(self, step: Repeat) -> RepeatView:
        variable = self.names.add("round")
        tests = []
        if step.count is not None:
            tests.append(f"{variable} < {self.pointer(step.count)}[0]")
        if step.condition is not None:
            tests.append(f"{self.pointer(step.condition)}[0] != 0")
        self.includes.add("string.h")
        return RepeatView(
            variable,
            " && ".join(tests),
            "" if step.counter is None else self.pointer(step.counter),
            self.steps(step.body.steps),
            [self.copied(state, value) for state, value in step.carried if state.elements],
        )

    def copied(self, state: Buffer, value: Buffer) -> tuple[str, str, str]:
        target = self.pointer(state)
        count = state.bytes if state.packed else state.elements
        return target, self.pointer(value), f"{count} * sizeof *{target}"

    def call(self, loops: Loops) -> Call:
        kernel, arguments = kernel_of(loops, self.program.offsets)
        if kernel not in self.functions:
            function = self.names.add(_function_name(loops, len(self.functions)))
            self.functions[kernel] = function
            self.texts.append(self.function(loops, kernel, function, arguments))
        self.checked |= kernel.checked
        text = f"{self.functions[kernel]}({', '.join(map(self.pointer, arguments))})"
        return Call(text, kernel.checked, comment(_listed(loops)))

    def function(
        self, loops: Loops, kernel: Kernel, function: str, arguments: Sequence[Buffer]
    ) -> str:
        self.runtime |= kernel.functions
        if kernel.needs_string_h:
            self.includes.add("string.h")
        if kernel.needs_math_h:
            self.includes.add("math.h")
        lines = [signature_text(origin) for origin in loops.origins[:ORIGINS_SHOWN]]
        if len(loops.origins) > ORIGINS_SHOWN:
            lines.append(f"and {len(loops.origins) - ORIGINS_SHOWN} more nodes")
        if not lines:
            lines = [f"copy {buffer_text(arguments[0])} -> {buffer_text(loops.out)}"]
        if loops.role:
            lines.append(f"here: {loops.role}")
        return render(
            "kernels/loops.c.j2",
            lanes=LANES,
            kernel=kernel,
            function=function,
            parameters=", ".join(map(_declared, kernel.parameters)),
            comment=comment(lines),
        )

    def pointer(self, buffer: Buffer) -> str:
        if buffer.data is None:
            return self.pointers[buffer]
        if buffer not in self.constants:
            name = self.names.add(f"w_{buffer.name or 'value'}")
            self.constants[buffer] = constant(buffer, name)
        found = self.constants[buffer]
        return found.name + found.member


def _declared(parameter: Parameter) -> str:
    const = "" if parameter.written else "const "
    return f"{const}{parameter.c_type} *restrict {parameter.name}"


def _function_name(loops: Loops, number: int) -> str:
    operators = dict.fromkeys(origin.operator.partition("-")[0] for origin in loops.origins)
    words = [re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", operator).lower() for operator in operators]
    return f"{'_'.join(words[:3]) or 'copy'}_{number}"


def _listed(loops: Loops) -> list[str]:
    names = listing(map(node_text, loops.origins))
    role = f": {loops.role}" if loops.role else ""
    return [names + role] if names else []
