"""The header: what a model's users see."""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from onnxc.emit.literals import Constant
from onnxc.emit.text import WIDTH, comment, render
from onnxc.kernel import Buffer, Program
from onnxc.names import comment_text


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
    def comment(self) -> list[str]:
        return comment([f"{self.direction} {self.label}"])

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


def signature(banner: Banner, ports: Sequence[Port], suffix: str, *, workspace: bool) -> str:
    """The declaration of `<model>_<suffix>`, without the semicolon."""
    parameters = [port.declaration for port in ports]
    parameters += [f"{banner.name}_workspace *workspace"] if workspace else []
    return f"onnxc_status {banner.name}_{suffix}({', '.join(parameters) or 'void'})"


def header(
    program: Program, banner: Banner, ports: Sequence[Port], constants: Sequence[Constant]
) -> tuple[str, str]:
    """The text of the .h, and the hash of it that the .c checks."""
    size = program.workspace_size
    buffers = [port.buffer for port in ports] + [constant.buffer for constant in constants]
    values = {
        **vars(banner),
        "NAME": banner.name.upper(),
        "manual": _manual(program, banner, ports, constants),
        "types": {buffer.dtype.name for buffer in buffers},
        "ports": ports,
        "workspace_size": size,
        "alignment": program.alignment,
        "run": signature(banner, ports, "run", workspace=True),
        "run_static": signature(banner, ports, "run_static", workspace=False),
    }
    interface_hash = f"0x{hashlib.sha256(_facts(program, banner, ports)).hexdigest()[:8]}u"
    return render("model.h.j2", **values, interface_hash=interface_hash), interface_hash


def _facts(program: Program, banner: Banner, ports: Sequence[Port]) -> bytes:
    """All that a caller relies on, and nothing of where the model came from."""
    run = signature(banner, ports, "run", workspace=True)
    shapes = [(port.direction, str(port.buffer.dtype), port.buffer.shape) for port in ports]
    return repr((run, shapes, program.workspace_size)).encode()


def _manual(
    program: Program, banner: Banner, ports: Sequence[Port], constants: Sequence[Constant]
) -> list[str]:
    arguments = ", ".join(port.c_name for port in ports)
    call = f"onnxc_status status = {banner.name}_run_static({arguments});"
    constant_bytes = sum(constant.buffer.bytes for constant in constants)
    return [
        *(f"    {line}" for line in textwrap.wrap(call, WIDTH - 8)),
        "",
        *comment(f"{port.direction:7} {port.label}" for port in ports),
        f"workspace {program.workspace_size} bytes, constants {constant_bytes} bytes",
    ]
