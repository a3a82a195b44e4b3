"""The header: what a model's users see."""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from onnxc.emit.literals import Constant
from onnxc.emit.profile import ListedKernel
from onnxc.emit.text import WIDTH, comment, render
from onnxc.emit.weights import ALIGNMENT, Weights
from onnxc.expression import Buffer
from onnxc.kernel import Program
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
    """A parameter of the run functions as the header shows it.

    direction  input or output
    sized_by   of an output whose size the data decides, the parameter that receives its shape
    shape_of   of such a parameter, that output
    """

    buffer: Buffer
    c_name: str
    direction: str
    model: str
    sized_by: str = ""
    shape_of: str = ""

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
        typed = f"{self.c_name}: {self.buffer.dtype}"
        if self.shape_of:
            return f"{typed}{shape}, the actual shape of {self.shape_of}"
        most = ", at most " if self.sized_by else ""
        return f'{typed}{most}{shape} "{comment_text(self.buffer.name)}"'

    @property
    def comment(self) -> list[str]:
        if not self.sized_by:
            return comment([f"{self.direction} {self.label}"])
        told = f"{self.sized_by} receives its actual shape, its elements are the first of the array"
        return comment([f"{self.direction} {self.label}; {told}. Of the maximum:"])

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


def signature(
    banner: Banner,
    ports: Sequence[Port],
    suffix: str,
    *,
    weights: Weights | None = None,
    workspace: bool,
) -> str:
    """The declaration of `<model>_<suffix>`, without the semicolon."""
    parameters = [port.declaration for port in ports]
    parameters += ["const void *weights"] if weights and weights.given else []
    parameters += [f"{banner.name}_workspace *workspace"] if workspace else []
    return f"onnxc_status {banner.name}_{suffix}({', '.join(parameters) or 'void'})"


def header(
    program: Program,
    banner: Banner,
    ports: Sequence[Port],
    constants: Sequence[Constant],
    types: Collection[str],
    weights: Weights | None,
    kernels: Sequence[ListedKernel] | None = None,
) -> tuple[str, str]:
    """The text of the .h, and the hash of it that the .c checks.

    types    which of the types that C lacks the .c needs: string, complex64, complex128
    kernels  what a profile calls the kernels; None where there are no hooks for one
    """
    size = program.workspace_size
    run = signature(banner, ports, "run", weights=weights, workspace=True)
    given = weights.size if weights and weights.given else 0
    values = {
        **vars(banner),
        "NAME": banner.name.upper(),
        "manual": _manual(program, banner, ports, constants, given),
        "types": types,
        "ports": ports,
        "workspace_size": size,
        "alignment": program.alignment,
        "weights_bytes": given,
        "weights_alignment": ALIGNMENT,
        "kernels": kernels,
        "run": run,
        "run_static": signature(banner, ports, "run_static", weights=weights, workspace=False),
    }
    interface_hash = f"0x{hashlib.sha256(_facts(program, run, ports, given)).hexdigest()[:8]}u"
    return render("model.h.j2", **values, interface_hash=interface_hash), interface_hash


def _facts(program: Program, run: str, ports: Sequence[Port], given: int) -> bytes:
    """All that a caller relies on, and nothing of where the model came from."""
    shapes = [(port.direction, str(port.buffer.dtype), port.buffer.shape) for port in ports]
    sizes = (program.workspace_size, given) if given else (program.workspace_size,)
    return repr((run, shapes, *sizes)).encode()


def _manual(
    program: Program,
    banner: Banner,
    ports: Sequence[Port],
    constants: Sequence[Constant],
    given: int,
) -> list[str]:
    arguments = ", ".join([*(port.c_name for port in ports), *(["weights"] if given else [])])
    call = f"onnxc_status status = {banner.name}_run_static({arguments});"
    constant_bytes = sum(constant.buffer.bytes for constant in constants)
    return [
        *(f"    {line}" for line in textwrap.wrap(call, WIDTH - 8)),
        "",
        *comment(f"{port.direction:7} {port.label}" for port in ports),
        *([f"weights {given} bytes, the file that was written with this one"] if given else []),
        f"workspace {program.workspace_size} bytes, constants {constant_bytes} bytes",
    ]
