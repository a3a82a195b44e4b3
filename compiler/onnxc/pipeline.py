"""The passes, as two visible tuples, and what runs them."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import onnx
import onnx_ir as ir

import onnxc
from onnxc import evaluate
from onnxc.check import check_program
from onnxc.check_plan import check_plan
from onnxc.diagnostics import Kind
from onnxc.dtypes import ElementType
from onnxc.dump import dump
from onnxc.emit.generated import Module, TextSink
from onnxc.emit.interface import Banner, Port
from onnxc.emit.module import emit
from onnxc.emit.weights import ByteSink
from onnxc.errors import ModelError, UsageError
from onnxc.kernel import Program
from onnxc.names import check_model_name, comment_text, model_name
from onnxc.passes.bind import bind_dims
from onnxc.passes.check_graph import check_graph
from onnxc.passes.choose import choose
from onnxc.passes.choose_windows import choose_windows
from onnxc.passes.fix import Fix, fix_inputs
from onnxc.passes.fix import text as fix_text
from onnxc.passes.fold_across import fold_across
from onnxc.passes.fuse_bands import fuse_bands
from onnxc.passes.fuse_rows import fuse_rows
from onnxc.passes.hold_floats import hold_floats
from onnxc.passes.infer import infer
from onnxc.passes.join_dimensions import join_dimensions
from onnxc.passes.keep_borders import keep_borders
from onnxc.passes.layout import layout
from onnxc.passes.load import load
from onnxc.passes.lower import lower
from onnxc.passes.merge_axes import merge_axes
from onnxc.passes.plan_memory import plan_memory
from onnxc.passes.propose import improved
from onnxc.passes.simplify import simplify
from onnxc.passes.split_axes import split_axes
from onnxc.passes.widen_rows import widen_rows
from onnxc.target import target_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

GRAPH_PASSES: Final[tuple[Callable[[ir.Model], None], ...]] = (infer, simplify)
PROGRAM_PASSES: Final[tuple[Callable[[Program], Program], ...]] = (
    hold_floats,
    join_dimensions,
    layout,
    choose,
    choose_windows,
    fuse_bands,
    split_axes,
    merge_axes,
    fold_across,
    widen_rows,
    fuse_rows,
    plan_memory,
    keep_borders,
)
PASS_NAMES: Final = (
    "load",
    *(step.__name__ for step in GRAPH_PASSES),
    "lower",
    *(step.__name__ for step in PROGRAM_PASSES),
)

Observe = Callable[[str, ir.Model | Program], None]


@dataclass(frozen=True)
class Interface:
    """An input or output; `name` is ONNX's, with a number where an output is listed again.

    actual  of an output whose size the data decides, the int64 array that receives its shape;
            `shape` is then the maximum, and the first elements of that array are the output
    """

    name: str
    c_name: str
    dtype: ElementType
    shape: tuple[int, ...]
    actual: Interface | None = None


@dataclass(frozen=True)
class Compiled:
    """A compiled model: its interface and its C. Sizes are in bytes.

    fixed   the arrays of inputs that were made constants, by name
    """

    module: Module
    program: Program
    inputs: tuple[Interface, ...]
    outputs: tuple[Interface, ...]
    fixed: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.module.name

    @property
    def banner(self) -> Banner:
        """What the first lines of the C say."""
        values = self.module.values
        return Banner(**{entry.name: values[entry.name] for entry in fields(Banner)})

    @property
    def header(self) -> str:
        return self.module.header

    @property
    def c_source(self) -> str:
        text = io.StringIO()
        self.write_c(text)
        return text.getvalue()

    @property
    def body(self) -> str:
        """The kernels and the run functions, without banner, runtime and constants."""
        return self.module.body

    @property
    def workspace_size(self) -> int:
        return self.program.workspace_size

    @property
    def workspace_alignment(self) -> int:
        return self.program.alignment

    @property
    def constants_size(self) -> int:
        return sum(constant.buffer.bytes for constant in self.module.constants)

    @property
    def has_weights_file(self) -> bool:
        """Whether a file of constants belongs to the C."""
        return self.module.weights is not None

    def write_weights(self, stream: ByteSink) -> None:
        """The file of constants that belongs to the C, in pieces; only where there is one."""
        self.module.write_weights(stream)

    def write_c(self, stream: TextSink, header_file: str = "") -> None:
        """The .c file, in pieces: large constants are never one string.

        It includes `header_file`, by default the model's name with .h.
        """
        self.module.write_c(stream, header_file)

    def write_single(self, stream: TextSink) -> None:
        """One text that needs no header beside it."""
        self.module.write_c(stream, single=True)


def compile_model(
    source: Path | onnx.ModelProto,
    *,
    dims: Mapping[str, int] | None = None,
    fix: Mapping[str, Fix] | None = None,
    name: str | None = None,
    license: str = "LicenseRef-Model",
    plain: bool = False,
    target: str = "generic",
    optimize: str = "speed",
    portable_bits: bool = False,
    weights: str = "inline",
    profile: bool = False,
    observe: Observe | None = None,
) -> Compiled:
    """Runs every pass. Raises ModelError with all problems of the model, or UsageError.

    dims      values for open dimensions, by the keys of the command line's --dim
    fix       values for inputs that become constants, by name; each fills its input
    name      prefix of the C names; by default from the file's stem
    plain     realises every value in plain loops: the slow build that tests the fast one
    target    whom it is for, a name of target.TARGETS
    optimize  for what, one of target.OPTIMIZE: fast code, or little code
    weights   where constants stand, one of output.WEIGHTS: in the C or in a file beside it
    portable_bits   whether float results have the same bits with every compiler and processor
    profile   whether the C has hooks around the calls of its kernels, for who measures them
    observe   is called with the name of each pass and what it left

    The memory plan is proved by a checker of its own (check_plan.py); with ONNXC_DEBUG=1 in the
    environment another one follows every pass. What they raise is a fault of onnxc.
    """
    if name is not None:
        check_model_name(name)
    shown = observe or (lambda _name, _thing: None)
    stem = source.stem if isinstance(source, Path) else "model"
    debug = os.environ.get("ONNXC_DEBUG") == "1"
    model = load(source)
    bind_dims(model, dims or {})
    fixed = fix_inputs(model, fix or {})
    shown("load", model)
    for graph_pass in GRAPH_PASSES:
        try:
            graph_pass(model)
        except ModelError as error:
            raise improved(error, source, dims or {}, fix or {}) from None
        shown(graph_pass.__name__, model)
        if debug:
            check_graph(model, simplified=graph_pass is simplify)
    program = lower(model, plain=plain)
    wanted = target_of(target, optimize, portable=portable_bits)
    program = replace(program, target=None if plain else wanted)
    program = planned(program, shown)
    options = [f"--dim {key}={value}" for key, value in (dims or {}).items()]
    options += [f"--fix {key}={fix_text(value)}" for key, value in (fix or {}).items()]
    options += [f"--target {target}"] if target != "generic" else []
    options += [f"--optimize {optimize}"] if optimize != "speed" else []
    options += ["--portable-bits"] if portable_bits else []
    options += [f"--weights {weights}"] if weights != "inline" else []
    options += ["--profile"] if profile else []
    banner = Banner(
        name=model_name(stem) if name is None else name,
        version=onnxc.__version__,
        source=comment_text(source.name) if isinstance(source, Path) else "a model in memory",
        license=license,
        options=" ".join(map(comment_text, options)) or "none",
    )
    return replace(emit_program(program, banner, weights, profile=profile), fixed=fixed)


def planned(program: Program, observe: Observe = lambda _name, _thing: None) -> Program:
    """What lower left, through all passes that follow, for the target that it names."""
    debug = os.environ.get("ONNXC_DEBUG") == "1"
    observe("lower", program)
    if debug:
        check_program(program)
    for program_pass in PROGRAM_PASSES:
        program = program_pass(program)
        observe(program_pass.__name__, program)
        if debug:
            check_program(program)
    check_plan(program)
    return program


def emit_program(
    program: Program, banner: Banner, weights: str = "inline", *, profile: bool = False
) -> Compiled:
    """The last step: a planned program as C."""
    module = emit(program, banner, weights, profile=profile)
    inputs = [port for port in module.ports if port.direction == "input"]
    outputs = [port for port in module.ports if port.direction == "output"]
    return Compiled(module, program, _interfaces(inputs), _interfaces(outputs))


def _interfaces(ports: Sequence[Port]) -> tuple[Interface, ...]:
    """A name that is listed again gets a number, but never the name of another port."""
    own = {port.buffer.name for port in ports if not port.shape_of}
    taken: set[str] = set()

    def interface(port: Port, wanted: str, actual: Interface | None = None) -> Interface:
        name, number = wanted, 1
        while name in taken or (name in own and (number > 1 or port.shape_of)):
            number += 1
            name = f"{wanted}_{number}"
        taken.add(name)
        return Interface(name, port.c_name, port.buffer.dtype, port.buffer.shape, actual)

    found = {port.c_name: interface(port, port.buffer.name) for port in ports if not port.shape_of}
    shapes = {port.shape_of: port for port in ports if port.shape_of}
    for c_name, port in shapes.items():
        value = found[c_name]
        found[c_name] = replace(value, actual=interface(port, f"{value.name}_shape"))
    return tuple(found.values())


def evaluate_model(
    source: Path | onnx.ModelProto, inputs: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """The outputs, computed in numpy from the kernel IR without any C compiler.

    `inputs` by name, in the dtypes of dtypes.numpy_dtype, strings as bytes. Raises UsageError where
    one is missing.
    """
    compiled = compile_model(source)
    program = compiled.program
    if missing := [b.name for b in program.inputs if b.name not in inputs]:
        raise UsageError(Kind.INPUT_ARRAYS, f"no value for input {', '.join(missing)}")
    results = evaluate.run(program, {b: inputs[b.name] for b in program.inputs})
    named = zip(compiled.outputs, program.outputs, strict=True)
    return {interface.name: results[buffer] for interface, buffer in named}


__all__ = ["PASS_NAMES", "Compiled", "Interface", "compile_model", "dump", "evaluate_model"]
