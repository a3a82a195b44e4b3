"""Running the C as a program: for another compiler or target, with sanitizers, between guard pages.

The program reads its inputs from a file and writes its outputs to one, so that all it needs of its
target is what C's stdio asks for; verify_main.c.j2 says how the files look.
"""

from __future__ import annotations

import math
import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxc.arrays import object_array, text, text_bytes
from onnxc.compiled import check_inputs
from onnxc.diagnostics import Kind
from onnxc.dtypes import numpy_dtype
from onnxc.errors import CrashError, ToolError, UsageError
from onnxc.library import assembler_flags, write_sources
from onnxc.packing import pack_elements, unpack_elements
from onnxc.resources import environment
from onnxc.status import Status
from onnxc.verify.execute import Outcome
from onnxc.verify.inputs import Case
from onnxc.verify.source import Subject
from onnxc.verify.taps import Tapped, TappedC

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnxc.pipeline import Interface

SANITIZERS: Final = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
MESSAGE_LINES: Final = 25


@dataclass(frozen=True)
class Build:
    """How the C is built and run; without any of it, as a library in this process.

    cc        the compiler's command; "" is CC, or cc
    cflags    its flags; "" is -O2, or those of the sanitizers
    sanitize  with AddressSanitizer and UndefinedBehaviorSanitizer
    runner    what starts the program, such as "qemu-aarch64 -L /usr/aarch64-linux-gnu"
    guard     exactly the stated bytes of every buffer between pages without access, the workspace
              and the outputs filled with two poisons: no difference may show
    """

    cc: str = ""
    cflags: str = ""
    sanitize: bool = False
    runner: str = ""
    guard: bool = False

    @property
    def asked(self) -> bool:
        return self != Build()

    def command(self) -> list[str]:
        """The compiler with its flags. Raises UsageError for what is no command line."""
        words = _words("--cc", self.cc or os.environ.get("CC", "")) or ["cc"]
        flags = _words("--cflags", self.cflags) or ([] if self.sanitize else ["-O2"])
        return [*words, "-std=c99", *(SANITIZERS if self.sanitize else ()), *flags]

    def __str__(self) -> str:
        facts = [shlex.join(self.command())]
        facts += [f"run by {self.runner}"] if self.runner else []
        facts += ["between guard pages, with two poisons"] if self.guard else []
        return ", ".join(facts)


def run_program(
    subject: Subject,
    build: Build,
    cases: Sequence[Case],
    tapped: TappedC | None = None,
    done: Callable[[], None] = lambda: None,
) -> list[Outcome]:
    """The outcome of each case; `done` is called after each.

    Raises CrashError where the program does not end well, ToolError where it cannot be built or
    started, UsageError for wrong inputs.
    """
    for case in cases:
        check_inputs(subject.compiled.inputs, case.values)
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="onnxc-verify-") as name:
        program = _built(subject, build, tapped, Path(name))
        for case in cases:
            outcomes.append(program.outcome(case))
            done()
    return outcomes


@dataclass(frozen=True)
class _Program:
    subject: Subject
    build: Build
    tapped: TappedC | None
    folder: Path
    weights: Path | None

    def outcome(self, case: Case) -> Outcome:
        interfaces = self.subject.compiled.inputs
        inputs, outputs = self.folder / "inputs.bin", self.folder / "outputs.bin"
        with inputs.open("wb") as stream:
            for interface in interfaces:
                stream.write(_stored(interface, np.asarray(case.values[interface.name])))
        outputs.unlink(missing_ok=True)
        words = [self.folder / "program", inputs, outputs]
        words += [self.weights] if self.weights else []
        self._run([*_words("--runner", self.build.runner), *map(str, words)], case, outputs)
        reader = _Reader(outputs.read_bytes())
        runs = [self._read(reader) for _ in range(2 if self.build.guard else 1)]
        if not all(_same(runs[0], other) for other in runs[1:]):
            fact = "depends on what the workspace held before, or on where it lies"
            raise CrashError(Kind.CRASH, f"on {case.label} inputs, the result {fact}")
        return runs[0]

    def _run(self, command: Sequence[str], case: Case, outputs: Path) -> None:
        """Runs the program, whose main begins with opening the file of outputs."""
        try:
            ended = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                env={"ASAN_OPTIONS": "detect_leaks=0", **os.environ},  # main.c frees nothing
            )
        except OSError as error:
            fact = f"'{command[0]}' cannot be started: {error.strerror}"
            raise ToolError(Kind.COMPILER_OPTIONS, fact) from None
        code = ended.returncode
        how = signal.Signals(-code).name if code < 0 else f"status {code}"
        said = ended.stderr.decode("utf-8", "replace").strip().splitlines()[:MESSAGE_LINES]
        if not outputs.exists():
            fact = f"'{command[0]}' ended with {how} and did not run the program; see --runner"
            raise ToolError(Kind.COMPILER_OPTIONS, fact, said="\n".join(said))
        if code:
            guard = ", between guard pages" if self.build.guard else ""
            fact = f"the program ended with {how} on {case.label} inputs{guard}"
            raise CrashError(Kind.CRASH, fact, said="\n".join(said))

    def _read(self, reader: _Reader) -> Outcome:
        status = reader.number()
        if status:
            name = next((s.name for s in Status if s.value == status), "unknown")
            return Outcome(status=f"the run returned status {status} (ONNXC_{name})")
        compiled = self.subject.compiled
        values: list[NDArray[Any]] = []
        for interface in compiled.outputs:
            array = reader.array(interface)
            if interface.actual is not None:
                shape = tuple(map(int, reader.array(interface.actual)))
                array = array.reshape(-1)[: math.prod(shape)].reshape(shape)
            values.append(array)
        taps = self.tapped.inner if self.tapped else ()
        return Outcome((*values, *(reader.tap(tap) for tap in taps)))


def _built(subject: Subject, build: Build, tapped: TappedC | None, folder: Path) -> _Program:
    """The program in `folder`."""
    compiled = subject.compiled
    c_file = tapped.c_file if tapped else subject.c_file
    if c_file is None:
        c_file = write_sources(compiled, folder)
    given = compiled.module.weights is not None and compiled.module.weights.given
    (folder / "main.c").write_text(_main(subject, build, tapped, c_file, given), encoding="utf-8")
    include = ["-I", str(c_file.parent)]
    if not given:
        include += assembler_flags(c_file)
    files = [str(folder / "main.c"), str(c_file)]
    _compile([*build.command(), *include, "-o", str(folder / "program"), *files, "-lm"])
    return _Program(subject, build, tapped, folder, c_file.with_suffix(".bin") if given else None)


def _compile(command: Sequence[str]) -> None:
    try:
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError as error:
        fact = f"the C compiler '{command[0]}' cannot be started: {error.strerror}; see --cc"
        raise ToolError(Kind.NO_COMPILER, fact) from None
    if ended.returncode:
        said = ended.stderr.decode("utf-8", "replace").strip().splitlines()[:MESSAGE_LINES]
        fact = f"the C compiler failed with status {ended.returncode}; see --cc and --cflags"
        printed = "\n".join([f"$ {shlex.join(command)}", *said])
        raise ToolError(Kind.COMPILER_FAILED, fact, said=printed)


def _main(
    subject: Subject, build: Build, tapped: TappedC | None, c_file: Path, weights: bool
) -> str:
    compiled = subject.compiled
    written = [v for o in compiled.outputs for v in (o, o.actual) if v is not None]
    interfaces = (*compiled.inputs, *written)
    return (
        environment()
        .get_template("verify_main.c.j2")
        .render(
            name=compiled.name,
            NAME=compiled.name.upper(),
            header_file=c_file.with_suffix(".h").name,
            inputs=[_facts(value) for value in compiled.inputs],
            outputs=[_facts(value, n) for n, value in enumerate(written)],
            strings=any(value.dtype.kind == "string" for value in interfaces),
            guard=build.guard,
            weights=weights,
            taps=[
                {"offset": t.offset, "bytes": t.bytes, "size": t.dtype.size, "count": _count(t)}
                for t in (tapped.inner if tapped else ())
            ],
            taps_bytes=tapped.bytes if tapped else 0,
        )
    )


def _count(tap: Tapped) -> int:
    return tap.bytes // tap.dtype.size


def _facts(value: Interface, number: int = 0) -> dict[str, Any]:
    """What the template needs of a parameter; `number` is that of an output."""
    dtype, count = value.dtype, math.prod(value.shape)
    strings = dtype.kind == "string"
    size = dtype.size // 2 if dtype.kind == "complex" else dtype.size
    bytes_ = dtype.packed_bytes(count)
    shape = f"((const int64_t *)(const void *)out{number + 1})"
    extents = [f"(size_t){shape}[{d}]" for d in range(len(value.shape))]
    return {
        "strings": strings,
        "size": size,
        "count": count if strings else bytes_ // size,
        "actual": " * ".join(extents) if value.actual is not None else count,
        "bytes": bytes_,
        "memory": f"{count} * sizeof(onnxc_string)" if strings else bytes_,
        "alignment": "sizeof(void *)" if strings else min(size, 8),
    }


def _stored(interface: Interface, array: NDArray[Any]) -> bytes:
    """An input as the file has it."""
    dtype = interface.dtype
    flat = np.ascontiguousarray(array).reshape(-1)
    if dtype.kind == "string":
        texts = [text_bytes(value) for value in flat.tolist()]
        return b"".join(len(value).to_bytes(8, "little") + value for value in texts)
    raw = pack_elements(flat, dtype) if dtype.packed else flat
    return _little(raw).tobytes()


def _little(array: NDArray[Any]) -> NDArray[Any]:
    """The array with its bytes in little-endian order, on any host."""
    return array if np.little_endian or array.dtype.kind == "V" else array.byteswap()


class _Reader:
    """Reads a file of outputs from its beginning."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.place = 0

    def take(self, count: int) -> bytes:
        self.place += count
        taken = self.data[self.place - count : self.place]
        if len(taken) < count:
            raise CrashError(Kind.CRASH, "the program wrote too short a file of outputs")
        return taken

    def number(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def array(self, interface: Interface) -> NDArray[Any]:
        """An output, unpacked; one of strings whose size the data decides, its actual elements."""
        dtype, count = interface.dtype, math.prod(interface.shape)
        if dtype.kind == "string":
            strings = [text(self.take(self.number())) for _ in range(self.number())]
            shape = interface.shape if interface.actual is None else (len(strings),)
            return object_array(strings, shape)
        raw = np.frombuffer(self.take(dtype.packed_bytes(count)), np.uint8)
        if dtype.packed:
            return unpack_elements(raw, count, dtype).reshape(interface.shape)
        return _little(raw.view(numpy_dtype(dtype))).reshape(interface.shape)

    def tap(self, tap: Tapped) -> NDArray[Any]:
        raw = np.frombuffer(self.take(tap.bytes), np.uint8)
        native = _little(raw.view(numpy_dtype(tap.dtype))).view(np.uint8)
        return replace(tap, offset=0).value(native)


def _same(one: Outcome, other: Outcome) -> bool:
    """To the bit."""
    if one.status != other.status:
        return False
    pairs: Iterator[tuple[NDArray[Any], NDArray[Any]]] = zip(one.values, other.values, strict=True)
    return all(
        a.shape == b.shape
        and (a.tolist() == b.tolist() if a.dtype.kind == "O" else a.tobytes() == b.tobytes())
        for a, b in pairs
    )


def _words(option: str, value: str) -> list[str]:
    try:
        return shlex.split(value)
    except ValueError as error:
        raise UsageError(Kind.COMPILER_OPTIONS, f"{option} {value}: {error}") from None
