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
    render_routine,
    signature_text,
)
from onnxc.expression import Buffer
from onnxc.kernel import Branch, Loops, Program, Repeat, Routine, Step, every_step
from onnxc.names import Names, unique_names
from onnxc.resources import runtime_functions, runtime_text
from onnxc.routines import ROUTINES

ORIGINS_SHOWN: Final = 8
"""In a kernel's comment; the run function names every node."""
INCLUDES: Final = {
    "string.h": re.compile(r"\bmem(cpy|set|move|cmp)\("),
    "math.h": re.compile(r"\b(isnan|isinf|signbit|INFINITY|NAN|sqrtf?|fmodf?)\b"),
}
"""What a routine's text shows to need."""
COMMENT: Final = re.compile(r"/\*.*?\*/", re.DOTALL)
LIBM: Final = re.compile(r"\b(sqrtf?|fmodf?)\(")
STRUCTS: Final = re.compile(r"\bonnxc_(string|complex64|complex128)\b")
LONGEST_ROLE: Final = 24
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
        self.names = Names([*names, *OWN_LOCALS], banner.name)
        self.ports = tuple(
            port
            for buffer, c_name in zip(buffers, names, strict=True)
            for port in self.ports_of(buffer, c_name)
        )
        self.pointers: dict[Buffer, str] = {port.buffer: port.c_name for port in self.ports}
        self.constants: dict[Buffer, Constant] = {}
        self.functions: dict[Kernel, str] = {}
        self.routines: dict[object, tuple[str, bool]] = {}
        self.texts: list[str] = []
        self.runtime: set[str] = set()
        self.includes: set[str] = set()
        self.checked = False

    def ports_of(self, buffer: Buffer, c_name: str) -> list[Port]:
        """The parameter of an input or output, and that of its actual shape where it has one."""
        model, shape = self.banner.name, self.program.actual.get(buffer)
        if shape is None:
            return [Port(buffer, c_name, buffer.kind, model)]
        name = self.names.add(f"{c_name}_shape")
        own = Port(buffer, c_name, buffer.kind, model, sized_by=name)
        return [own, Port(shape, name, shape.kind, model, shape_of=c_name)]

    def module(self) -> Module:
        program, banner = self.program, self.banner
        roles = _named_by_role(program)
        for buffer in program.offsets:
            self.pointers[buffer] = self.names.add(buffer.name or roles.get(buffer, "part"))
        notes = [Note(comment([f"{node_text(origin)}: {fact}"])) for origin, fact in program.notes]
        steps = [*notes, *self.steps(program.steps)]
        constants = tuple(self.constants.values())
        text, interface_hash = header(program, banner, self.ports, constants, self.types())
        if self.checked:
            self.runtime.add("onnxc_first")
        runtime = runtime_text(self.runtime)
        code = COMMENT.sub("", "".join(runtime))
        self.includes |= {name for name, used in INCLUDES.items() if used.search(code)}
        values = {
            **vars(banner),
            "libm": sorted({*LIBM.findall(code)}),
            "NAME": banner.name.upper(),
            "interface_hash": interface_hash,
            "workspace_size": program.workspace_size,
            "includes": sorted(self.includes),
            "full_rows": any(c.has_full_rows for c in constants),
            "byte_images": any(c.form == "image" and c.buffer.dtype.size > 1 for c in constants),
            "runtime": runtime,
            "constants": [
                {"declaration": c.declaration, "text": buffer_text(c.buffer)} for c in constants
            ],
        }
        return Module(banner.name, text, self.body(steps), constants, self.ports, values)

    def types(self) -> set[str]:
        """The element types of every buffer, and those that only the kernels' text names."""
        named = (name for text in self.texts for name in STRUCTS.findall(text))
        buffers = (*self.pointers, *self.constants)
        return {*named, *(buffer.dtype.name for buffer in buffers)}

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
            case Routine():
                return self.call_routine(step)
            case Branch(condition, then, otherwise):
                test = f"{self.pointer(condition)}[0] != 0"
                return BranchView(test, self.steps(then.steps), self.steps(otherwise.steps))
            case Repeat():
                return self.repeat(step)

    def repeat(self, step: Repeat) -> RepeatView:
        variable = self.names.add("round")
        tests = []
        if step.count is not None:
            tests.append(f"{variable} < {self.number(step.count)}")
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

    def number(self, buffer: Buffer) -> str:
        """The one integer that a buffer holds."""
        return f"{self.pointer(buffer)}[0]" if buffer.data is None else str(buffer.data.item())

    def copied(self, state: Buffer, value: Buffer) -> tuple[str, str, str]:
        target = self.pointer(state)
        count = state.bytes if state.packed else state.elements
        return target, self.pointer(value), f"{count} * sizeof *{target}"

    def call(self, loops: Loops) -> Call:
        kernel, arguments = kernel_of(loops, self.program.offsets)
        if kernel not in self.functions:
            function = self.names.add(
                _function_name(loops, len(self.functions) + len(self.routines))
            )
            self.functions[kernel] = function
            self.texts.append(self.function(loops, kernel, function, arguments))
        self.checked |= kernel.checked
        text = f"{self.functions[kernel]}({', '.join(map(self.pointer, arguments))})"
        return Call(text, kernel.checked, comment(_listed(loops)))

    def call_routine(self, step: Routine) -> Call:
        kind = ROUTINES[step.name]
        names = (*kind.inputs[: len(step.inputs)], *kind.outputs, *kind.scratch)
        buffers = (*step.inputs, *step.outputs, *step.scratch)
        shown = dict(zip(names, buffers, strict=True))
        key = (step.name, step.parameters, *((b.dtype, b.shape) for b in buffers))
        if key not in self.routines:
            number = len(self.functions) + len(self.routines)
            function = self.names.add(f"{step.name}_{number}")
            written = {*step.outputs, *step.scratch}
            parameters = (Parameter(n, b.dtype.c_type, b in written) for n, b in shown.items())
            values = {**shown, **dict(step.parameters), "function": function}
            body, functions = render_routine(f"kernels/{step.name}.c.j2", **values)
            checked = "flags" in body
            text = render(
                "kernels/routine.c.j2",
                function=function,
                parameters=", ".join(map(_declared, parameters)),
                comment=comment(_explained(step, [])),
                checked=checked,
                body=body,
            )
            both = functions + body
            self.runtime |= set(re.findall(r"onnxc_\w+", both)) & runtime_functions().keys()
            code = COMMENT.sub("", both)
            self.includes |= {name for name, used in INCLUDES.items() if used.search(code)}
            self.texts.append(f"{functions}\n{text}" if functions else text)
            self.routines[key] = function, checked
        function, checked = self.routines[key]
        self.checked |= checked
        call = f"{function}({', '.join(map(self.pointer, buffers))})"
        return Call(call, checked, comment(_listed(step)))

    def function(
        self, loops: Loops, kernel: Kernel, function: str, arguments: Sequence[Buffer]
    ) -> str:
        self.runtime |= kernel.functions
        if kernel.needs_string_h:
            self.includes.add("string.h")
        if kernel.needs_math_h:
            self.includes.add("math.h")
        copy = [f"copy {buffer_text(arguments[0])} -> {buffer_text(loops.out)}"]
        return render(
            "kernels/loops.c.j2",
            kernel=kernel,
            function=function,
            parameters=", ".join(map(_declared, kernel.parameters)),
            comment=comment(_explained(loops, copy)),
        )

    def pointer(self, buffer: Buffer) -> str:
        if buffer.data is None:
            return self.pointers[buffer]
        if buffer not in self.constants:
            name = self.names.add(f"w_{buffer.name or 'value'}")
            self.constants[buffer] = constant(buffer, name)
        found = self.constants[buffer]
        return found.name + found.member


def _named_by_role(program: Program) -> dict[Buffer, str]:
    """What a kernel says of its part of the work names the buffer that it is the first to write."""
    names: dict[Buffer, str] = {}
    for step in every_step(program):
        if isinstance(step, Loops) and step.role:
            words = re.sub(r"[^a-z0-9]+", "_", step.role.partition(",")[0].lower()).strip("_")
            names.setdefault(step.out, words.removeprefix("the_")[:LONGEST_ROLE].strip("_"))
    return names


def _declared(parameter: Parameter) -> str:
    const = "" if parameter.written else "const "
    return f"{const}{parameter.c_type} *restrict {parameter.name}"


def _function_name(loops: Loops, number: int) -> str:
    operators = dict.fromkeys(origin.operator.partition("-")[0] for origin in loops.origins)
    plain = (operator.replace("NaN", "Nan") for operator in operators)
    words = [re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", operator).lower() for operator in plain]
    return f"{'_'.join(words[:3]) or 'copy'}_{number}"


def _explained(step: Loops | Routine, otherwise: list[str]) -> list[str]:
    """The comment above the function of a kernel."""
    lines = [signature_text(origin) for origin in step.origins[:ORIGINS_SHOWN]]
    if len(step.origins) > ORIGINS_SHOWN:
        lines.append(f"and {len(step.origins) - ORIGINS_SHOWN} more nodes")
    return [*(lines or otherwise), *([f"here: {step.role}"] if step.role else [])]


def _listed(loops: Loops | Routine) -> list[str]:
    names = listing(map(node_text, loops.origins))
    role = f": {loops.role}" if loops.role else ""
    return [names + role] if names else []
