"""The facts of the report: what a model becomes, as values that JSON has.

report.schema.json says what each field means. The page is rendered from these facts alone, and
`onnxc info` prints its table from the same functions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import onnx
import onnx_ir as ir

import onnxc
from onnxc.check_plan import account
from onnxc.expression import Buffer
from onnxc.kernel import Program, Step, every_step
from onnxc.passes.fix import Fix
from onnxc.pipeline import Compiled, Interface, Observe, compile_model, emit_program, planned
from onnxc.report import memory, quantized, sections
from onnxc.report.functions import function_facts
from onnxc.report.kernels import Kernel, kernel_facts, kernels_of
from onnxc.report.summary import summary
from onnxc.report.tensors import lives, numbered_tensors, tensor_facts
from onnxc.report.ways import Loaded, loaded_nodes, node_facts, not_integer
from onnxc.target import target_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

SCHEMA: Final = 1
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Subject:
    """A compiled model, how it was compiled, and what the passes no longer know of it.

    lowered  the program before the passes that depend on the target
    opsets   by domain, "ai.onnx" that of ONNX itself
    nodes    as loaded
    """

    source: Path | onnx.ModelProto
    dims: Mapping[str, int]
    fix: Mapping[str, Fix]
    target: str
    optimize: str
    portable_bits: bool
    compiled: Compiled
    lowered: Program
    ir_version: int
    opsets: Mapping[str, int]
    nodes: tuple[Loaded, ...]

    @property
    def program(self) -> Program:
        return self.compiled.program

    def compiled_for(self, target: str) -> Compiled:
        """The same model for another target; its banner says nothing of that."""
        wanted = target_of(target, self.optimize, portable=self.portable_bits)
        return emit_program(planned(replace(self.lowered, target=wanted)), self.compiled.banner)


def subject(
    source: Path | onnx.ModelProto,
    dims: Mapping[str, int] | None = None,
    fix: Mapping[str, Fix] | None = None,
    *,
    target: str = "generic",
    optimize: str = "speed",
    portable_bits: bool = False,
    observe: Observe | None = None,
) -> Subject:
    """Compiles the model. Raises what compile_model does."""
    found: dict[str, Any] = {}

    def seen(name: str, thing: ir.Model | Program) -> None:
        if name == "load" and isinstance(thing, ir.Model):
            found["nodes"] = tuple(loaded_nodes(thing))
            found["ir_version"] = thing.ir_version
            opsets = thing.graph.opset_imports.items()
            found["opsets"] = {domain or "ai.onnx": version for domain, version in opsets}
        if name == "lower":
            found["lowered"] = thing
        if observe is not None:
            observe(name, thing)

    compiled = compile_model(
        source,
        dims=dims,
        fix=fix,
        target=target,
        optimize=optimize,
        portable_bits=portable_bits,
        observe=seen,
    )
    return Subject(
        source, dims or {}, fix or {}, target, optimize, portable_bits, compiled, **found
    )


def facts(subject: Subject, tell: Tell = lambda _: None, *, others: bool = True) -> dict[str, Any]:
    """What can be said without running anything but C compilers.

    `tell` is told what is being done. "times" and "accuracy" are for those who measure. Without
    `others` the code is built for the subject's target alone.
    """
    compiled, program = subject.compiled, subject.program
    kernels = kernels_of(program)
    constants = [constant.buffer for constant in compiled.module.constants]
    tensors = numbered_tensors(program, constants)
    tell("count the work of the kernels")
    of_kernels = kernel_facts(kernels, program, compiled.module.calls, tensors)
    spans = lives(kernels, tensors)
    tell("build the C for every compiler that is here" if others else "build the C")
    of_sections, of_stack = sections.measure(
        compiled, subject.target, subject.compiled_for, others=others
    )
    return {
        "schema": SCHEMA,
        "onnxc": onnxc.__version__,
        "model": _model(subject),
        "inputs": [_interface(value) for value in compiled.inputs],
        "outputs": [_interface(value) for value in compiled.outputs],
        "summary": {**summary(compiled, kernels), "stack": of_stack},
        "sections": of_sections,
        "kernels": of_kernels,
        "functions": function_facts(compiled, kernels),
        "tensors": tensor_facts(tensors, spans, kernels, program),
        "memory": memory_facts(program, kernels, tensors),
        "nodes": node_facts(subject.nodes, kernels, program),
        "int8_as_float": quantized.in_float(program),
        "not_integer": not_integer(subject.nodes, kernels, of_kernels),
        "times": None,
        "accuracy": None,
    }


def _model(subject: Subject) -> dict[str, Any]:
    options, source = subject.compiled.module.values["options"], subject.source
    return {
        "file": source.name if isinstance(source, Path) else "",
        "ir_version": subject.ir_version,
        "opsets": dict(subject.opsets),
        "nodes": len(subject.nodes),
        "target": subject.target,
        "optimize": subject.optimize,
        "portable_bits": subject.portable_bits,
        "options": "" if options == "none" else options,
    }


def _interface(value: Interface) -> dict[str, Any]:
    """The shape is the largest one, of an output whose size the data decides."""
    return {
        "name": value.name,
        "dtype": value.dtype.name,
        "shape": [*value.shape],
        "bytes": memory.bytes_of(value),
        "maximum": value.actual is not None,
    }


def memory_facts(
    program: Program, kernels: Sequence[Kernel], tensors: Mapping[Buffer, int]
) -> dict[str, Any]:
    """Bytes that live at each kernel, and the kernel where they are the most.

    A step without a number counts to the next that has one, and control flow has the most of what
    is inside of it.
    """
    found = account(program)
    numbers = {kernel.step: kernel.number for kernel in kernels}
    live = [0] * len(kernels)
    peak, before = None, set[Step]()
    for step in every_step(program):
        before.add(step)
        if step in numbers:
            number = numbers[step]
            live[number] = max(found.live.get(each, 0) for each in before)
            peak = number if found.at in before else peak
            before.clear()
    for kernel in reversed(kernels):
        if kernel.inside is not None:
            live[kernel.inside] = max(live[kernel.inside], live[kernel.number])
    return {
        "live": live,
        "peak": {
            "kernel": peak,
            "bytes": max(live, default=0),
            "shared": found.spared,
            "tensors": [tensors[buffer] for buffer in found.buffers],
        },
    }


def add_times(
    found: dict[str, Any],
    subject: Subject,
    *,
    values: Mapping[str, NDArray[Any]] | None = None,
    seed: int = 0,
    tell: Tell = lambda _: None,
) -> None:
    """Measures the kernels on this machine, on these values of the inputs or on random ones."""
    from onnxc.report import times

    tell("measure the kernels")
    times.attach(found, subject.compiled, values=values, seed=seed)


def add_accuracy(
    found: dict[str, Any],
    subject: Subject,
    *,
    inputs: Path | None = None,
    against: str = "auto",
    seed: int = 0,
    tell: Tell = lambda _: None,
) -> None:
    """Compares the results with a reference. Raises UsageError as verify_model does."""
    from onnxc.report import accuracy

    found["accuracy"] = accuracy.measure(
        subject.source,
        found,
        subject.dims,
        subject.fix,
        target=subject.target,
        optimize=subject.optimize,
        portable_bits=subject.portable_bits,
        inputs=inputs,
        against=against,
        seed=seed,
        tell=tell,
    )


def _line(value: Any) -> str:
    return json.dumps(value, allow_nan=False)


def text(found: Mapping[str, Any]) -> str:
    """As JSON in ASCII, which holds any text of a model; an entry of a list takes one line."""
    return _members(found, inner=_members) + "\n"


def _members(found: Mapping[str, Any], inner: Callable[[Mapping[str, Any]], str] = _line) -> str:
    parts = []
    for key, value in found.items():
        nested = isinstance(value, dict) and any(isinstance(v, list) for v in value.values())
        if isinstance(value, list) and value and isinstance(value[0], dict):
            shown = "[\n" + ",\n".join(map(_line, value)) + "\n]"
        else:
            shown = inner(value) if nested else _line(value)
        parts.append(f"{_line(key)}: {shown}")
    return "{\n" + ",\n".join(parts) + "\n}"
