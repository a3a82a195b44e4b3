"""onnxc's C of a model, built by a C compiler with flags of one's own, and called from C.

The compiler is the one that CC names (default cc); ONNXC_CFLAGS adds flags to whatever a script
asks for.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import harness
from onnxc import arrays
from onnxc.arrays import Memory
from onnxc.dtypes import numpy_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnxc.pipeline import Compiled, Interface

NATIVE: Final = "-std=c99 -O3 -march=native"
"""As onnxc.compile builds, where the compiler takes it."""
PLAIN: Final = "-O3"
LOOP: Final = """\
#define _POSIX_C_SOURCE 199309L
#include <time.h>
#include "{include}"

int benchmark_loop(int64_t times, void *const *at, int64_t *spent);

static int64_t now(clockid_t clock)
{{
    struct timespec read;
    clock_gettime(clock, &read);
    return (int64_t)read.tv_sec * 1000000000 + read.tv_nsec;
}}

/* spent: nanoseconds of the thread's CPU time, and of wall time. */
int benchmark_loop(int64_t times, void *const *at, int64_t *spent)
{{
    const int64_t wall = now(CLOCK_MONOTONIC);
    const int64_t cpu = now(CLOCK_THREAD_CPUTIME_ID);
    int status = 0;
    while (times-- > 0 && status == 0)
        {call};
    spent[0] = now(CLOCK_THREAD_CPUTIME_ID) - cpu;
    spent[1] = now(CLOCK_MONOTONIC) - wall;
    return status;
}}
"""


def compiler() -> list[str]:
    """The C compiler's command."""
    return shlex.split(os.environ.get("CC") or "cc")


def loaded(folder: Path, command: Sequence[str], files: Sequence[str]) -> ctypes.CDLL:
    """C files of a folder, built into a shared library there. Raises UnavailableError."""
    words = [*command, "-shared", "-fPIC", "-o", "library.so", *files, "-lm"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise harness.UnavailableError(f"{shlex.join(words)}\n{done.stderr[-2000:]}")
    return ctypes.CDLL(str(folder / "library.so"))


def write_loop(folder: Path, include: str, call: str) -> str:
    """Writes LOOP around a call; the name of its file."""
    text = LOOP.format(include=include, call=call)
    (folder / "loop.c").write_text(text, encoding="utf-8")
    return "loop.c"


def timed_loop(library: ctypes.CDLL, addresses: Sequence[int]) -> harness.Run:
    """LOOP on memory that lives as long as the caller keeps it."""
    places = (ctypes.c_void_p * len(addresses))(*addresses)
    spent = (ctypes.c_int64 * 2)()

    def run(times: int) -> harness.Sample:
        status = library.benchmark_loop(ctypes.c_int64(times), places, spent)
        if status:
            raise harness.UnavailableError(f"the run returned status {status}")
        return harness.Sample(spent[0], spent[1])

    return run


class Build:
    """A compiled model as a loaded library."""

    def __init__(
        self,
        compiled: Compiled,
        flags: str = PLAIN,
        command: Sequence[str] | None = None,
        keep: Path | None = None,
    ) -> None:
        """
        flags    of the C compiler, besides -shared -fPIC
        command  the compiler; default: compiler()
        keep     a folder where C and library stay, to be looked at

        Raises UnavailableError with what the compiler says when it fails.
        """
        self._compiled = compiled
        words = [*(command or compiler()), *shlex.split(flags)]
        words += shlex.split(os.environ.get("ONNXC_CFLAGS", ""))
        if keep is None:
            with tempfile.TemporaryDirectory() as folder:
                self._library = self._built(words, Path(folder))  # stays mapped without its file
        else:
            keep.mkdir(parents=True, exist_ok=True)
            self._library = self._built(words, keep)

    def _built(self, command: Sequence[str], folder: Path) -> ctypes.CDLL:
        compiled = self._compiled
        source, header = f"{compiled.name}.c", f"{compiled.name}.h"
        with (folder / source).open("w", encoding="utf-8") as stream:
            compiled.write_c(stream)
        (folder / header).write_text(compiled.header, encoding="utf-8")
        count = len(compiled.inputs) + len(self._written) + 1
        arguments = ", ".join(f"at[{n}]" for n in range(count))
        call = f"status = (int){compiled.name}_run({arguments})"
        return loaded(folder, command, [source, write_loop(folder, header, call)])

    @property
    def _written(self) -> list[Interface]:
        """What the C writes, in the order of its parameters."""
        pairs = ((port, port.actual) for port in self._compiled.outputs)
        return [port for pair in pairs for port in pair if port is not None]

    def candidate(self, inputs: harness.Arrays) -> harness.Candidate:
        """The model on these very arrays where C can take them as they are, else on copies."""
        read = [arrays.to_memory(port, inputs[port.name]) for port in self._compiled.inputs]
        written = [_room(port) for port in self._written]
        found = {port.name: memory for port, memory in zip(self._written, written, strict=True)}

        def outputs() -> dict[str, NDArray[Any]]:
            return {port.name: _value(port, found) for port in self._compiled.outputs}

        size = self._compiled.workspace_size
        workspace = harness.aligned((size,), np.dtype(np.uint8))
        workspace[:] = 1  # its pages are there before the clock runs
        memories = [*read, *written, Memory(workspace)]
        run = timed_loop(self._library, [memory.address for memory in memories])
        return harness.Candidate(run, outputs, memories)


def _room(port: Interface) -> Memory:
    """Room for one output; of numbers, at the start of a cache line."""
    if port.dtype.kind == "string":
        return arrays.new_memory(port)
    packed = port.dtype.packed
    shape = (port.dtype.packed_bytes(arrays.elements(port)),) if packed else port.shape
    return Memory(harness.aligned(shape, np.dtype(np.uint8) if packed else numpy_dtype(port.dtype)))


def _value(port: Interface, written: dict[str, Memory]) -> NDArray[Any]:
    """What was written to an output, in the form that Candidate says."""
    data = written[port.name].data
    if port.dtype.packed:
        return data
    if port.dtype.kind == "string":
        strings = [
            arrays.text(ctypes.string_at(address, size) if size else b"")
            for address, size in data.tolist()
        ]
        data = arrays.object_array(strings, (len(strings),))
    shape = port.shape
    if port.actual is not None:
        shape = tuple(map(int, written[port.actual.name].data))
    return data.reshape(-1)[: int(np.prod(shape))].reshape(shape)
