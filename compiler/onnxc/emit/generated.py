"""What emit makes: the text of a model, which is written in pieces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from onnxc.emit.interface import Port
from onnxc.emit.literals import Constant
from onnxc.emit.text import WIDTH, render
from onnxc.emit.weights import ByteSink, Weights
from onnxc.kernel import Step

ALIGNED_FROM: Final = 1024
"""Bytes of a constant from which on it begins a cache line."""


class TextSink(Protocol):
    def write(self, text: str, /) -> object: ...


@dataclass(frozen=True)
class Module:
    """The text of a model.

    body     the kernels and the run functions, the part of the .c that people read
    weights  the file of constants beside the .c, where there is one
    values   what else model.c.j2 asks for; the constants follow it, piece by piece
    calls    the C function of each step that is one call, in nested programs too
    """

    name: str
    header: str
    body: str
    constants: tuple[Constant, ...]
    ports: tuple[Port, ...]
    weights: Weights | None
    values: dict[str, Any] = field(repr=False)
    calls: Mapping[Step, str] = field(default_factory=dict, repr=False)

    def write_c(self, stream: TextSink, header_file: str = "", *, single: bool = False) -> None:
        """The .c, in pieces; it includes `header_file` or, with `single`, holds the header."""
        stream.write(self.opening(header_file, single=single))
        for item in self.constants:
            if item.form == "outside":
                continue
            start = f"static const {item.reference}"
            aligned = "ONNXC_ALIGNED " if self.aligns(item) else ""
            attribute = f"{aligned}{self.name.upper()}_CONST_ATTR = "
            gap = " " if len(start) + len(attribute) < WIDTH else "\n    "
            stream.write(f"\n{start}{gap}{attribute}")
            for chunk in item.chunks():
                stream.write(chunk)
            stream.write(";\n")

    def opening(self, header_file: str = "", *, single: bool = False) -> str:
        """The .c up to its constants."""
        header_file = header_file or f"{self.name}.h"
        weights_file = f"{header_file.removesuffix('.h')}.bin"
        outside = self.weights.declarations(weights_file) if self.weights else ""
        return render(
            "model.c.j2",
            **self.values,
            body=self.body,
            weights=outside,
            inlined_header=self.header if single else "",
            header_file=header_file,
        )

    def aligns(self, constant: Constant) -> bool:
        """Whether a constant begins a cache line: one that vectors may read, and that is large."""
        return "#define ONNXC_ALIGNED" in self.values["dispatch"] and (
            constant.buffer.bytes >= ALIGNED_FROM
        )

    def write_weights(self, stream: ByteSink) -> None:
        """The file of constants beside the .c, in pieces; only where there is one."""
        assert self.weights is not None
        self.weights.write(stream)
