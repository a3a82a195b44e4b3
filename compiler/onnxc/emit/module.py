"""A planned program to one .c and one .h."""

from __future__ import annotations

import hashlib
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from onnxc.emit.literals import Constant, constant
from onnxc.emit.loops import Kernel, Parameter, kernel_of
from onnxc.kernel import (
    Branch,
    Buffer,
    Fold,
    Loops,
    Origin,
    Program,
    Repeat,
    Step,
    walk,
)
from onnxc.names import Names, comment_text, unique_names
from onnxc.passes.plan_memory import alignment
from onnxc.resources import environment, runtime_text

if TYPE_CHECKING:
    import jinja2

WIDTH: Final = 100
ORIGINS_SHOWN: Final = 8
"""In a kernel's comment; the run function names every node."""
OWN_LOCALS: Final = ("arena", "over")
"""Variables of the run function, besides those that no name of a model ever becomes."""


class TextSink(Protocol):
    def write(self, text: str, /) -> object: ...


@dataclass(frozen=True)
class Banner:
    """What the first comment of both files says: `source` is a file name, without its folder."""

    name: str
    version: str
    source: str
    license: str
    options: str


@dataclass(frozen=True)
class Port:
    """An input or output as the header shows it."""

    buffer: Buffer
    c_name: str
    direction: str
    model: str

    @property
    def c_type(self) -> str:
        return "uint8_t" if self.buffer.packed else self.buffer.dtype.c_type

    @property
    def declaration(self) -> str:
        buffer = self.buffer
        const = "const " if self.direction == "input" else ""
        count = buffer.bytes if buffer.packed else buffer.elements
        if count == 0:
            return f"{const}{self.c_type} *{self.c_name}"
        return f"{const}{self.c_type} {self.c_name}[{count}]"

    @property
    def label(self) -> str:
        shape = "".join(f"[{extent}]" for extent in self.buffer.shape)
        return f'{self.c_name}: {self.buffer.dtype}{shape} "{comment_text(self.buffer.name)}"'

    @property
    def macro(self) -> str:
        return f"{self.model.upper()}_{self.direction.upper()}_{self.c_name.upper()}"

    @property
    def elements(self) -> int:
        return self.buffer.elements

    @property
    def bytes(self) -> str:
        if self.buffer.dtype.kind == "string":
            return f"({self.buffer.elements} * sizeof(onnxc_string))"
        return str(self.buffer.bytes)

    @property
    def rank(self) -> int:
        return len(self.buffer.shape)

    @property
    def shape(self) -> str:
        return "{" + ", ".join(map(str, self.buffer.shape or (1,))) + "}"


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
    """The text of a model: `head` and `constants` make the .c."""

    name: str
    header: str
    body: str
    constants: tuple[Constant, ...]
    ports: tuple[Port, ...]
    values: dict[str, Any] = field(repr=False)

    def write_c(self, stream: TextSink, header_file: str = "", *, single: bool = False) -> None:
        """The .c, in pieces; it includes `header_file` or, with `single`, holds the header."""
        template = environment_with_wrap().get_template("model.c.j2")
        inlined = self.header if single else ""
        stream.write(
            template.render(
                **self.values,
                body=self.body,
                inlined_header=inlined,
                header_file=header_file or f"{self.name}.h",
            )
        )
        for item in self.constants:
            stream.write(f"\nstatic const {item.reference} {self.name.upper()}_CONST_ATTR = ")
            for chunk in item.chunks():
                stream.write(chunk)
            stream.write(";\n")


def environment_with_wrap() -> jinja2.Environment:
    jinja = environment()
    jinja.filters.setdefault("wrap", wrapped)
    return jinja


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
        notes = [Note(_comment([f"{_short(origin)}: {fact}"])) for origin, fact in program.notes]
        steps = [*notes, *self.steps(program.steps)]
        header, interface_hash = self.header()
        constants = tuple(self.constants.values())
        if self.checked:
            self.runtime.add("onnxc_first")
        values = {
            **vars(banner),
            "NAME": banner.name.upper(),
            "interface_hash": interface_hash,
            "includes": sorted(self.includes),
            "byte_images": any(c.form == "image" and c.buffer.dtype.size > 1 for c in constants),
            "runtime": runtime_text(self.runtime),
            "constants": [
                {"declaration": c.declaration, "comment": f" /* {_buffer_text(c.buffer)} */"}
                for c in constants
            ],
        }
        return Module(banner.name, header, self.body(steps), constants, self.ports, values)

    def body(self, steps: list[Any]) -> str:
        name, size = self.banner.name, self.program.workspace_size
        used = {buffer for step in self.program.steps for buffer in (*step.reads(), *step.writes())}
        unused = [port.c_name for port in self.ports if port.buffer not in used]
        return (
            environment_with_wrap()
            .get_template("body.c.j2")
            .render(
                name=name,
                NAME=name.upper(),
                functions=self.texts,
                run=self.signature("run", True),
                run_static=self.signature("run_static", False),
                workspace_size=size,
                alignment=alignment(size),
                pointers=[
                    {
                        "text": self.pointer_text(buffer, offset),
                        "comment": f" /* {_buffer_text(buffer)} */",
                    }
                    for buffer, offset in self.program.offsets.items()
                ],
                checked=self.checked,
                unused=[*unused, *([] if size else ["workspace"])],
                steps=steps,
                forwarded="".join(f"{port.c_name}, " for port in self.ports),
            )
        )

    def pointer_text(self, buffer: Buffer, offset: int) -> str:
        c_type, name = buffer.dtype.c_type, self.pointers[buffer]
        return f"    {c_type} *const {name} = ({c_type} *)(void *)(arena + {offset});"

    def signature(self, suffix: str, workspace: bool) -> str:
        name = self.banner.name
        parameters = [port.declaration for port in self.ports]
        parameters += [f"{name}_workspace *workspace"] if workspace else []
        return f"onnxc_status {name}_{suffix}({', '.join(parameters) or 'void'})"

    def header(self) -> tuple[str, str]:
        size = self.program.workspace_size
        rule = "workspace may be NULL." if not size else "workspace: see the macros above."
        template = environment_with_wrap().get_template("model.h.j2")
        values = {
            **vars(self.banner),
            "NAME": self.banner.name.upper(),
            "manual": self.manual(),
            "types": {port.buffer.dtype.name for port in self.ports} | self.constant_types(),
            "ports": self.ports,
            "workspace_size": size,
            "alignment": alignment(size),
            "workspace_rule": rule,
            "run": self.signature("run", True),
            "run_static": self.signature("run_static", False),
        }
        text = template.render(**values, interface_hash="")
        interface_hash = f"0x{hashlib.sha256(text.encode()).hexdigest()[:8]}u"
        return template.render(**values, interface_hash=interface_hash), interface_hash

    def constant_types(self) -> set[str]:
        return {buffer.dtype.name for buffer in self.constants}

    def manual(self) -> list[str]:
        name = self.banner.name
        ports = [f"{port.direction:7} {port.label}" for port in self.ports]
        constants = sum(c.buffer.bytes for c in self.constants.values())
        arguments = ", ".join(port.c_name for port in self.ports)
        call = textwrap.wrap(f"onnxc_status status = {name}_run_static({arguments});", WIDTH - 8)
        return [
            *(f"    {line}" for line in call),
            "",
            *ports,
            f"workspace {self.program.workspace_size} bytes, constants {constants} bytes",
        ]

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
        return Call(text, kernel.checked, _comment(_listed(loops)))

    def function(
        self, loops: Loops, kernel: Kernel, function: str, arguments: Sequence[Buffer]
    ) -> str:
        self.runtime |= kernel.functions
        if kernel.needs_string_h:
            self.includes.add("string.h")
        if any(isinstance(n, Fold) and n.dtype.kind == "float" for n in walk(loops.value)):
            self.includes.add("math.h")
        lines = [str_of(origin) for origin in loops.origins[:ORIGINS_SHOWN]]
        if len(loops.origins) > ORIGINS_SHOWN:
            lines.append(f"and {len(loops.origins) - ORIGINS_SHOWN} more nodes")
        if not lines:
            lines = [f"copy {_buffer_text(arguments[0])} -> {_buffer_text(loops.out)}"]
        if loops.role:
            lines.append(f"here: {loops.role}")
        return (
            environment_with_wrap()
            .get_template("kernels/loops.c.j2")
            .render(
                kernel=kernel,
                function=function,
                parameters=", ".join(map(_declared, kernel.parameters)),
                comment=_comment(lines),
            )
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


def _short(origin: Origin) -> str:
    return f"{origin.operator} '{comment_text(origin.name)}'"


def str_of(origin: Origin) -> str:
    return f"{_short(origin)}: {origin.signature}"


def _listed(loops: Loops) -> list[str]:
    names = ", ".join(_short(origin) for origin in loops.origins)
    role = f": {loops.role}" if loops.role else ""
    return [names + role] if names else []


def _buffer_text(buffer: Buffer) -> str:
    shape = "".join(f"[{extent}]" for extent in buffer.shape)
    name = f'"{comment_text(buffer.name)}" ' if buffer.name else ""
    return f"{name}{buffer.dtype}{shape}"


def _comment(lines: Iterable[str]) -> list[str]:
    """Wrapped, so that with its marks and indentation no line passes the width."""
    return [part for line in lines for part in textwrap.wrap(line, WIDTH - 12) or [""]]


def wrapped(line: str) -> str:
    """A C line broken after commas and before operators; what follows is indented by 8 more."""
    if len(line) < WIDTH:
        return line
    indent = " " * (len(line) - len(line.lstrip()) + 8)
    out: list[str] = []
    for piece in _pieces(line):
        if out and len(out[-1]) + 1 + len(piece) < WIDTH:
            out[-1] += f" {piece}"
        else:
            out.append(indent + piece if out else piece)
    return "\n".join(out)


_STRING_OR_BREAK: Final = re.compile(r'"(?:[^"\\]|\\.)*"|(?<=,) | (?=(?:[-+?:]|==|&&|\|\||\*) )')


def _pieces(line: str) -> Iterator[str]:
    """The parts between the places where a line may break, none of them inside a string."""
    start = 0
    for found in _STRING_OR_BREAK.finditer(line):
        if found[0] == " ":
            yield line[start : found.start()]
            start = found.end()
    yield line[start:]
