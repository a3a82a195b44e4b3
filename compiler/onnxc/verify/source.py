"""The C that is checked: compiled now, or a file that was made from the model before."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import onnx
import onnx_ir as ir

from onnxc.diagnostics import Kind
from onnxc.errors import UsageError
from onnxc.expression import Buffer
from onnxc.kernel import Program
from onnxc.passes.fix import Fix
from onnxc.pipeline import Compiled, compile_model
from onnxc.verify.inputs import Bounds
from onnxc.verify.ranges import known_ranges

OPTIONS: Final = {"--target": "target", "--optimize": "optimize"}
"""Of the banner of a file: those that decide what else is in it."""


@dataclass(frozen=True)
class Subject:
    """What is checked.

    source    the model
    compiled  what onnxc makes of it
    c_file    the C file in place of compiled's own
    ranges    of inputs that index, the least and greatest value that makes sense
    logical   the buffers that hold a value in its own layout
    types     of values of the main graph, as TensorProto.DataType, by name
    """

    source: Path | onnx.ModelProto
    compiled: Compiled
    c_file: Path | None
    ranges: Mapping[str, Bounds]
    logical: frozenset[Buffer]
    types: Mapping[str, int]

    def graph(self) -> onnx.ModelProto:
        """The model without the data of files beside it."""
        if isinstance(self.source, Path):
            return onnx.load(self.source, load_external_data=False)
        return self.source


@dataclass
class _Passes:
    """Follows the passes for what they know on the way."""

    ranges: dict[str, Bounds] = field(default_factory=dict)
    logical: frozenset[Buffer] = frozenset()
    types: dict[str, int] = field(default_factory=dict)

    def __call__(self, name: str, thing: ir.Model | Program) -> None:
        if name == "infer" and isinstance(thing, ir.Model):
            self.ranges = known_ranges(thing)
            made = (value for node in thing.graph for value in node.outputs)
            self.types = {v.name: int(v.dtype) for v in made if v.name and v.dtype is not None}
        if name in ("lower", "hold_floats") and isinstance(thing, Program):
            self.logical |= frozenset((*thing.outputs, *thing.writes()))

    def subject(
        self, source: Path | onnx.ModelProto, compiled: Compiled, c_file: Path | None
    ) -> Subject:
        return Subject(source, compiled, c_file, self.ranges, self.logical, self.types)


def subject(
    source: Path | onnx.ModelProto,
    c_file: Path | None,
    dims: Mapping[str, int],
    fix: Mapping[str, Fix],
    **options: Any,
) -> Subject:
    """Compiles the model as the C file was compiled, or with these `options` of compile_model.

    Raises ModelError, and UsageError for a C file that was not made from the model.
    """
    passes = _Passes()
    if c_file is None:
        compiled = compile_model(source, dims=dims, fix=fix, observe=passes, **options)
        return passes.subject(source, compiled, None)
    header = _read_header(c_file)
    prefix = re.search(r"\bonnxc_status\s+(\w+)_run\s*\(", header)
    if prefix is None:
        fact = f"{c_file.with_suffix('.h')} is no header that onnxc made"
        raise UsageError(Kind.WRONG_SOURCE, fact)
    weights = "incbin" if c_file.with_suffix(".bin").is_file() else "inline"
    if f"{prefix[1].upper()}_WEIGHTS_BYTES" in header:
        weights = "file"
    options |= _options_of(header)
    options |= {"name": prefix[1], "weights": weights}
    compiled = compile_model(source, dims=dims, fix=fix, observe=passes, **options)
    _check_header(c_file, header, compiled)
    return passes.subject(source, compiled, c_file)


def _read_header(c_file: Path) -> str:
    path = c_file.with_suffix(".h")
    for file in (c_file, path):
        if not file.is_file():
            raise UsageError(Kind.NO_SUCH_FILE, f"no such file: {file}")
    return path.read_text(encoding="utf-8", errors="replace")


def _options_of(header: str) -> dict[str, Any]:
    """What the banner says of the options that made it."""
    told = re.search(r"\bOptions: (.*?)\.\n \*\n", header, re.DOTALL)
    words = told[1].replace("\n * ", " ").split() if told else []
    found: dict[str, Any] = {OPTIONS[a]: b for a, b in pairwise(words) if a in OPTIONS}
    return found | {"portable_bits": "--portable-bits" in words, "profile": "--profile" in words}


def _check_header(c_file: Path, header: str, compiled: Compiled) -> None:
    """Raises UsageError unless the header declares what the model's own would."""
    found, wanted = _declarations(header), _declarations(compiled.header)
    if found == wanted:
        return
    pairs = zip([*found, "(its end)"], [*wanted, "(its end)"], strict=False)
    line, expected = next((f, w) for f, w in pairs if f != w)
    raise UsageError(
        Kind.WRONG_SOURCE,
        f"{c_file} was not made from this model with these options and this version of onnxc;"
        " compile the model again",
        said=f"  header has    {line}\n  expected      {expected}",
    )


def _declarations(header: str) -> list[str]:
    """The lines of a header without comments, which tell where it came from, and blanks."""
    code = re.sub(r"/\*.*?\*/", " ", header, flags=re.DOTALL)
    lines = (" ".join(line.split()) for line in code.splitlines())
    return [line for line in lines if line]
