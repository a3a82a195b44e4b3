"""Running a compiled model from Python: numpy arrays in, numpy arrays out."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from onnxc import arrays, library, output
from onnxc.arrays import Memory
from onnxc.diagnostics import Kind
from onnxc.emit.weights import ALIGNMENT
from onnxc.errors import (
    ModelError,
    OptionError,
    RunError,
    ToolError,
    UsageError,
    WordedProblem,
)
from onnxc.names import check_model_name
from onnxc.passes.fix import Fix
from onnxc.pipeline import compile_model
from onnxc.target import OPTIMIZE, TARGETS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnxc.pipeline import Compiled, Interface


def compile(
    model: str | os.PathLike[str] | onnx.ModelProto,
    *,
    dims: Mapping[str, int] | None = None,
    fix: Mapping[str, Fix] | None = None,
    name: str | None = None,
    target: str = "generic",
    optimize: str = "speed",
    portable_bits: bool = False,
    weights: str = "inline",
    profile: bool = False,
) -> CompiledModel:
    """Compiles an ONNX file or an onnx.ModelProto to C.

    dims  sizes of open dimensions, by dimension name or "INPUT:AXIS"
    fix   values of inputs that become constants, by name: one number, which fills the input, or
          one for each element
    name  the C prefix; default: the file's stem, or "model"
    target    whom the fast kernels are for: "generic", "x86-64", "aarch64" or "cortex-m4"
    optimize  for "speed", or for "size": little code
    portable_bits  whether float results have the same bits with every C compiler and processor
    weights  where constants stand: "inline" in the C, "incbin" or "file" in a file beside it
    profile  whether the C has macros around the calls of its kernels, for who measures them

    The shared library is built on the first run. Raises UsageError (no such file, no model, a wrong
    `dims`, `fix`, `name` or other option) and ModelError with every reason why the model is invalid
    or not supported.
    """
    source = _source(model)
    if dims is not None and not isinstance(dims, Mapping):
        raise UsageError(
            Kind.ARGUMENT, f'dims={dims!r:.60}: give sizes by name, such as dims={{"batch": 1}}'
        )
    if fix is not None and not isinstance(fix, Mapping):
        raise UsageError(
            Kind.ARGUMENT, f'fix={fix!r:.60}: give values by name, such as fix={{"rate": 16000}}'
        )
    if name is not None:
        check_model_name(name)
    _check_choice("target", target, TARGETS)
    _check_choice("optimize", optimize, OPTIMIZE)
    _check_choice("weights", weights, output.WEIGHTS)
    try:
        compiled = compile_model(
            source,
            dims=dims or {},
            fix=fix or {},
            name=name,
            target=target,
            optimize=optimize,
            portable_bits=portable_bits,
            weights=weights,
            profile=profile,
        )
    except OptionError as error:
        raise error.in_python() from None
    except ModelError as error:
        problems = (p.in_python() if isinstance(p, WordedProblem) else p for p in error.problems)
        raise ModelError(problems) from None
    return CompiledModel(compiled, source=source if isinstance(source, Path) else None)


def _check_choice(name: str, value: object, known: Collection[str]) -> None:
    if value not in known:
        raise UsageError(Kind.ARGUMENT, f"{name}={value!r:.60}: give one of {', '.join(known)}")


def _source(model: object) -> Path | onnx.ModelProto:
    """What compile_model takes. Raises UsageError for what is no model."""
    if isinstance(model, bytes | bytearray | memoryview):
        raise UsageError(
            Kind.ARGUMENT,
            "the model is bytes; give a path or a message: onnx.load_model_from_string(model)",
        )
    if isinstance(model, str | os.PathLike):
        return Path(model)
    if isinstance(model, onnx.ModelProto):
        return model
    raise UsageError(
        Kind.ARGUMENT,
        f"the model is of type {type(model).__name__}; give a path or an onnx.ModelProto",
    )


class CompiledModel:
    """A model as C, and as a function on numpy arrays.

    Of the arrays, dtype and shape must be those of `inputs`; nothing is converted silently. Small
    types are those of ml_dtypes, one value an element (int4, uint4, int2, uint2 and float4_e2m1fn
    too). A string tensor is an array of str or bytes and comes back as an object array of str;
    bytes that are no UTF-8 survive as surrogate escapes. Rank 0 is a 0-d array.

    Sequences and optionals will be values of other Python types (list, None) in the same
    dictionaries, as their Interface says.
    """

    def __init__(
        self, compiled: Compiled, c_file: Path | None = None, source: Path | None = None
    ) -> None:
        """
        c_file  this generated C, its header beside it, is built in place of compiled's own
        source  the file of the model, which `save` must not replace
        """
        self.compiled = compiled
        self._c_file = c_file
        self._source = source
        self._lock = Lock()
        self._library: library.Library | None = None

    @property
    def name(self) -> str:
        """The prefix of the C names."""
        return self.compiled.name

    @property
    def inputs(self) -> tuple[Interface, ...]:
        return self.compiled.inputs

    @property
    def outputs(self) -> tuple[Interface, ...]:
        return self.compiled.outputs

    @property
    def _written(self) -> tuple[Interface, ...]:
        """What the C writes, in the order of its parameters."""
        pairs = ((output, output.actual) for output in self.outputs)
        return tuple(interface for pair in pairs for interface in pair if interface is not None)

    @property
    def workspace_size(self) -> int:
        """Bytes of memory that a run needs besides inputs and outputs."""
        return self.compiled.workspace_size

    @property
    def header(self) -> str:
        return self.compiled.header

    @property
    def c_source(self) -> str:
        """The whole C file; with large constants a large string."""
        return self.compiled.c_source

    def __repr__(self) -> str:
        return f"<onnxc.CompiledModel {self.name}>"

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Writes the C file `path`, which must end in .c, the header and any weights beside it.

        As the command line does: all or none, and over files that onnxc did not write only with
        `force`. Raises UsageError, and ToolError where that cannot be.
        """
        weights = "file" if self.compiled.has_weights_file else "inline"
        paths = output.files(Path(path), self.name, option="", weights=weights)
        output.check(paths, self._source, force, option="force=True")
        output.write_model(self.compiled, paths)

    def build(self) -> library.Library:
        """The shared library, built on the first call. Raises ToolError."""
        with self._lock:
            if self._library is None:
                file = self._c_file
                self._library = (
                    library.build(self.compiled) if file is None else library.build_file(file)
                )
            return self._library

    def run(self, inputs: Mapping[str, NDArray[Any] | np.generic]) -> dict[str, NDArray[Any]]:
        """Runs the model once; one array for each of `inputs`, by name, gives all `outputs`.

        May be called from many threads at once. An input that is not contiguous is copied.
        An output whose size the data decides comes in its actual shape.
        Raises UsageError with all that is wrong with the inputs, ToolError when the library cannot
        be built, RunError when the data made the run fail.
        """
        check_inputs(self.inputs, inputs)
        read = [arrays.to_memory(i, inputs[i.name]) for i in self.inputs]
        written = {o.name: arrays.new_memory(o) for o in self._written}
        self._caller([*read, *written.values()])()
        ffi = self.build().ffi
        shapes = {o.name: written[o.actual.name].data for o in self.outputs if o.actual}
        return {
            o.name: arrays.from_memory(o, written[o.name], ffi, shapes.get(o.name))
            for o in self.outputs
        }

    def bind(
        self, inputs: Mapping[str, NDArray[Any]], outputs: Mapping[str, NDArray[Any]]
    ) -> Callable[[], None]:
        """A function that runs the model on these very arrays, as often as it is called.

        The arrays are kept alive and must be as C takes them: dtype and shape of the interface,
        C-contiguous, aligned, outputs writable and apart from all others; a sub-byte type is a
        one-dimensional uint8 array of packed bytes, low bits first. Strings need `run`. An output
        whose size the data decides takes an array of the maximum shape, of which the run fills the
        first elements, and one more, named by its interface's `actual`, that receives the shape.
        The function owns one workspace: one call at a time; bind once per thread.
        Raises UsageError and ToolError; the function raises RunError.
        """
        _check(self.inputs, inputs, "input", _bind_mismatch)
        _check(self._written, outputs, "output", _output_mismatch)
        _check_apart(inputs, outputs)
        read = [Memory(inputs[i.name]) for i in self.inputs]
        written = [Memory(outputs[o.name]) for o in self._written]
        return self._caller([*read, *written])

    def _caller(self, memories: Sequence[Memory]) -> Callable[[], None]:
        """The call with ready pointers; what they point into lives as long as it does."""
        built = self.build()
        ffi = built.ffi
        try:
            function = getattr(built.lib, f"{self.name}_run")
        except AttributeError:  # a user's own file
            place = self._c_file or built.path
            raise ToolError(
                Kind.LIBRARY_UNUSABLE, f"{place} has no function {self.name}_run"
            ) from None
        workspace = _aligned(self.workspace_size, self.compiled.workspace_alignment)
        types = ffi.typeof(function).args
        if len(types) == len(memories) + 2:
            memories = [*memories, self._weights]
        addresses = [memory.address for memory in (*memories, workspace)]
        pointers = tuple(ffi.cast(t, a) for t, a in zip(types, addresses, strict=True))
        kept = (built, memories, workspace)

        def call() -> None:
            status = function(*pointers)
            if status:
                raise RunError(Kind.RUN_STATUS, _status_text(kept[0], status))

        return call

    @cached_property
    def _weights(self) -> Memory:
        """The file of weights as the C takes it. Raises UsageError where it is not the right one.

        It is checked once, here; a run compares its header only.
        """
        if self._c_file is None:
            stream = io.BytesIO()
            self.compiled.write_weights(stream)
            path, stored = None, stream.getvalue()
        else:
            path = self._c_file.with_suffix(".bin")
            if not path.is_file():
                raise UsageError(Kind.NO_SUCH_FILE, f"no such file: {path}")
            stored = path.read_bytes()
        memory = _aligned(len(stored), ALIGNMENT)
        memory.data[: len(stored)] = np.frombuffer(stored, np.uint8)
        built = self.build()
        check = getattr(built.lib, f"{self.name}_weights_check")
        if check(built.ffi.cast("const void *", memory.address), len(stored)):
            raise UsageError(
                Kind.WRONG_WEIGHTS,
                f"'{path}' is not the file that was written with '{self._c_file}'",
            )
        return memory


def _aligned(size: int, alignment: int) -> Memory:
    """Bytes for a workspace, at an address that C accepts."""
    room = np.empty(size + alignment, np.uint8)
    return Memory(room[-Memory(room).address % alignment :], room)


def _status_text(built: library.Library, status: int) -> str:
    names: dict[int, str] = built.ffi.typeof("onnxc_status").elements
    return f"the run returned status {status} ({names.get(status, 'unknown')})"


def check_inputs(interfaces: Sequence[Interface], values: Mapping[str, Any]) -> None:
    """Raises UsageError with all that is wrong with the inputs of a run."""
    _check(interfaces, values, "input", arrays.mismatch)


def _check(
    interfaces: Sequence[Interface],
    values: Mapping[str, Any],
    role: str,
    mismatch: Callable[[Interface, Any], str],
) -> None:
    """Raises UsageError with everything that is wrong with the arrays of one side of a call."""
    if not isinstance(values, Mapping):
        names = ", ".join(f"{interface.name!r}: ..." for interface in interfaces)
        raise UsageError(
            Kind.INPUT_ARRAYS,
            f"the {role}s must be a dictionary of arrays by name, {{{names}}},"
            f" not {type(values).__name__}",
        )
    known = {interface.name: interface for interface in interfaces}
    problems = [
        f"{role} '{name}': the model has no such {role}; it has {', '.join(known) or 'none'}"
        for name in values
        if name not in known
    ]
    for name, interface in known.items():
        if name not in values:
            problems.append(f"{role} '{name}': missing; expected {arrays.expected(interface)}")
        elif fact := mismatch(interface, values[name]):
            problems.append(f"{role} '{name}': {fact}")
    if problems:
        raise UsageError(Kind.INPUT_ARRAYS, *problems)


def _bind_mismatch(interface: Interface, value: object) -> str:
    """Why C cannot work on the array as it is; "" when it can."""
    if interface.dtype.kind == "string":
        return "strings cannot be bound; use run()"
    packed = interface.dtype.packed
    fact = arrays.packed_mismatch(interface, value) if packed else arrays.mismatch(interface, value)
    if fact:
        return fact
    if not isinstance(value, np.ndarray):
        return f"expected a numpy array, got the scalar {type(value).__name__}"
    if not value.flags.c_contiguous or not value.flags.aligned:
        return "the array is not C-contiguous and aligned; use numpy.array(value, order='C')"
    return ""


def _output_mismatch(interface: Interface, value: Any) -> str:
    fact = _bind_mismatch(interface, value)
    return fact if fact or value.flags.writeable else "the array is read-only"


def _check_apart(inputs: Mapping[str, NDArray[Any]], outputs: Mapping[str, NDArray[Any]]) -> None:
    """Raises UsageError where an output shares memory with an input or another output."""
    others = [(f"input '{name}'", array) for name, array in inputs.items()]
    problems = []
    for name, array in outputs.items():
        problems += [
            f"output '{name}' shares memory with {other}; C may not write there"
            for other, taken in others
            if np.may_share_memory(array, taken)
        ]
        others.append((f"output '{name}'", array))
    if problems:
        raise UsageError(Kind.ARRAYS_OVERLAP, *problems)
