"""How long a model and each of its kernels take on this machine: the C with hooks, in a process.

The C is that of the compiled model but for the hooks of `--profile`, built with the flags that its
banner names. A run that crashes costs the times and nothing else.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxc.arrays import elements
from onnxc.errors import ToolError
from onnxc.kernel_numbers import numbered
from onnxc.library import assembler_flags, write_sources
from onnxc.packing import pack_elements
from onnxc.pipeline import Compiled, Interface, emit_program
from onnxc.resources import environment
from onnxc.status import Status
from onnxc.verify.inputs import Bounds, random_cases

if TYPE_CHECKING:
    from numpy.typing import NDArray

FLAGS: Final = ("-std=c99", "-O3")
LEAST_NS: Final = 0.3e9
"""How long is measured at least."""
MOST_NS: Final = 3e9
"""And at most, but for one sample of all."""
SAMPLES: Final = 2_000_000
"""The most that are kept, of all kernels together."""
ROUNDS: Final = 2_000
"""The most of each."""
LARGE: Final = 4 << 20
"""Bytes of constants from which on they stand in a file beside the C: that compiles sooner."""
PATIENCE: Final = 600.0
"""Seconds that the compiler and the program may take, each."""
SAID: Final = 300
"""Characters of what a failing compiler says."""


class NotMeasuredError(Exception):
    """Why there are no times."""


def measure(
    compiled: Compiled,
    *,
    values: Mapping[str, NDArray[Any]] | None = None,
    ranges: Mapping[str, Bounds] | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Times in nanoseconds: medians of many runs on warm caches.

    values  of the inputs, by name; by default random ones
    ranges  of those, for inputs that have to lie in one

    {"compiler", "flags", "processor", "runs", "total_ns": of a run without hooks, "kernels": by
    number {"ns": in one run, the hook's own time taken off, "visits": calls in a run}}, or
    {"reason"} where the model cannot be timed here.
    """
    try:
        return _measured(compiled, values, ranges, seed)
    except NotMeasuredError as error:
        return {"reason": str(error)}


def _measured(
    compiled: Compiled,
    values: Mapping[str, NDArray[Any]] | None,
    ranges: Mapping[str, Bounds] | None,
    seed: int,
) -> dict[str, Any]:
    written = [port for o in compiled.outputs for port in (o, o.actual) if port is not None]
    if any(port.dtype.kind == "string" for port in (*compiled.inputs, *written)):
        raise NotMeasuredError("models with inputs or outputs of strings are not timed")
    command = compiler()
    if values is None:
        values = random_cases(compiled.inputs, seed, ranges)[0].values
    given = [_stored(port, np.asarray(values[port.name])) for port in compiled.inputs]
    with tempfile.TemporaryDirectory(prefix="onnxc-profile-") as name:
        folder = Path(name)
        (folder / "inputs.bin").write_bytes(b"".join(given))
        program = _built(compiled, command, [len(data) for data in given], written, folder)
        words = [program, str(folder / "inputs.bin"), str(folder / f"{compiled.name}.bin")]
        lines = run_program(words).splitlines()
        if lines[0].startswith("status "):
            status = int(lines[0].removeprefix("status "))
            raise NotMeasuredError(f"a run on these inputs returned {_status_name(status)}")
    (_, runs), (_, total), *kernels = (line.split() for line in lines)
    return {
        "compiler": compiler_version(command),
        "flags": shlex.join(flags()),
        "processor": processor(),
        "runs": int(runs),
        "total_ns": float(total),
        "kernels": {
            int(number): {"ns": float(ns), "visits": float(visits)}
            for number, ns, visits in kernels
        },
    }


def compiler() -> list[str]:
    """The C compiler's command. Raises NotMeasuredError where there is none."""
    try:
        command = shlex.split(os.environ.get("CC", "")) or ["cc"]
    except ValueError as error:
        raise NotMeasuredError(f"CC is not a command line: {error}") from None
    if shutil.which(command[0]) is None:
        raise NotMeasuredError(f"no C compiler: '{command[0]}' was not found")
    return command


def flags() -> list[str]:
    """Of the C compiler: those that the banner of the C names, and ONNXC_CFLAGS."""
    try:
        return [*FLAGS, *shlex.split(os.environ.get("ONNXC_CFLAGS", ""))]
    except ValueError as error:
        raise NotMeasuredError(f"ONNXC_CFLAGS is not a command line: {error}") from None


def compiler_version(command: Sequence[str]) -> str:
    """The first line of what the compiler says of its version."""
    for option in ("--version", "-v"):
        done = subprocess.run([*command, option], capture_output=True, text=True, check=False)
        lines = f"{done.stdout}{done.stderr}".strip().splitlines()
        if done.returncode == 0 and lines:
            return lines[0]
    return shlex.join(command)


def processor() -> str:
    """The name of this machine's processor."""
    info = Path("/proc/cpuinfo")
    text = info.read_text(encoding="utf-8", errors="replace") if info.exists() else ""
    names = [
        line.partition(":")[2].strip()
        for line in text.splitlines()
        if line.startswith("model name")
    ]
    return names[0] if names else platform.processor() or platform.machine()


def run_program(command: Sequence[str]) -> str:
    """What a program prints. Raises NotMeasuredError where it does not end well."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=PATIENCE,
        )
    except OSError as error:
        raise NotMeasuredError(f"'{command[0]}' cannot be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise NotMeasuredError(f"not done after {PATIENCE:.0f} s") from None
    if done.returncode:
        places = {str(Path(word).parent) for word in command if os.path.isabs(word)}
        said = done.stderr
        for place in places:
            said = said.replace(f"{place}{os.sep}", "")
        fact = f"'{Path(command[0]).name}' ended with status {done.returncode}"
        raise NotMeasuredError(": ".join(filter(None, [fact, " ".join(said.split())[:SAID]])))
    return done.stdout


def build(command: Sequence[str], folder: Path, arguments: Sequence[str]) -> str:
    """The path of a program in `folder`, of C files there. Raises NotMeasuredError."""
    program = str(folder / "program")
    run_program([*command, *flags(), *arguments, "-o", program, "-lm"])
    return program


def _built(
    compiled: Compiled,
    command: Sequence[str],
    inputs: Sequence[int],
    written: Sequence[Interface],
    folder: Path,
) -> str:
    """The path of the program in `folder`; `inputs` are the bytes of each."""
    weights = compiled.module.weights
    form = "inline" if weights is None else weights.form
    forms = [form]
    if form == "inline" and compiled.constants_size >= LARGE:
        forms = ["incbin", "inline"]
    for number, kind in enumerate(forms):
        try:
            return _program(compiled, kind, command, inputs, written, folder)
        except NotMeasuredError:
            if number == len(forms) - 1:
                raise
    raise AssertionError("no form of constants")


def _program(
    compiled: Compiled,
    form: str,
    command: Sequence[str],
    inputs: Sequence[int],
    written: Sequence[Interface],
    folder: Path,
) -> str:
    profiled = emit_program(compiled.program, compiled.banner, form, profile=True)
    try:
        source = write_sources(profiled, folder)
    except (OSError, ToolError) as error:
        raise NotMeasuredError(str(error)) from None
    outputs = [port.dtype.packed_bytes(elements(port)) for port in written]
    facts = {
        "name": compiled.name,
        "NAME": compiled.name.upper(),
        "header_file": source.with_suffix(".h").name,
        "inputs": inputs,
        "outputs": outputs,
        "weights": form == "file" and profiled.has_weights_file,
        "least_ns": LEAST_NS,
        "most_ns": MOST_NS,
        "rounds": max(1, min(ROUNDS, SAMPLES // (len(numbered(compiled.program)) + 1))),
    }
    for template in ("profile_hooks.h", "profile_main.c"):
        text = environment().get_template(f"{template}.j2").render(facts)
        (folder / template).write_text(text, encoding="utf-8")
    hooks = str(folder / "profile_hooks.h")
    arguments = [] if facts["weights"] else assembler_flags(source)
    arguments += ["-include", hooks, "-I", str(folder), str(folder / "profile_main.c"), str(source)]
    return build(command, folder, arguments)


def _status_name(status: int) -> str:
    names = [known.name for known in Status if known.value and status & known.value]
    return " and ".join(f"ONNXC_{name}" for name in names) or f"status {status}"


def _stored(port: Interface, array: NDArray[Any]) -> bytes:
    """An input as the C takes it."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return (pack_elements(flat, port.dtype) if port.dtype.packed else flat).tobytes()
