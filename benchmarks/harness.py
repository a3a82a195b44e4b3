"""What the benchmarks share: buffers, the clock, interleaved runs, tables.

What is compared runs in one pinned thread of one process, in turn, for many rounds. The figure is
the median of the CPU time of that thread, so that other jobs on the machine cost little; the best
wall time stands beside it where a script says so.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import multiprocessing
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper
from rich.console import Console
from rich.table import Table

Arrays = Mapping[str, NDArray[Any]]
Result = TypeVar("Result")
SAMPLE_NS: Final = 2_000_000
"""About how long one sample of one candidate takes, where a single call is not longer."""
LEAST_ROUNDS: Final = 5
WIDTH: Final = 240


@dataclass(frozen=True)
class Sample:
    """Nanoseconds of some calls in a row: CPU time of the thread, and wall time."""

    cpu: int
    wall: int


@dataclass(frozen=True)
class Figures:
    """Nanoseconds of one call: the median of the thread's CPU time, and the best wall time."""

    cpu: float
    wall: float


Call = Callable[[], object]
Run = Callable[[int], Sample]
"""Calls something that many times."""


@dataclass(frozen=True)
class Candidate:
    """Something to be timed that computes a model on inputs bound before.

    run      calls it
    outputs  what the last call left, by the model's output names: numpy arrays as C holds them,
             packed bytes for the types below a byte, object arrays of str for strings
    kept     what the call reads by its address
    """

    run: Run
    outputs: Callable[[], dict[str, NDArray[Any]]]
    kept: object = None


class UnavailableError(Exception):
    """Why a candidate cannot be timed here: not installed, or it cannot run the model."""


def looped(call: Call, clock: Callable[[], int] = time.thread_time_ns) -> Run:
    """A Python function as a Run; the loop around it counts too, some 20 ns a call.

    clock  nanoseconds of CPU time: of the process for what has threads of its own
    """

    def run(times: int) -> Sample:
        turns = range(times)
        wall, cpu = time.perf_counter_ns(), clock()
        for _ in turns:
            call()
        return Sample(clock() - cpu, time.perf_counter_ns() - wall)

    return run


def interleaved(
    runs: Mapping[str, Run], rounds: int, seconds: float = float("inf")
) -> dict[str, Figures]:
    """One sample of each in turn, `rounds` times; fewer, but 5 at least, after so many seconds."""
    repeats = {name: _repeats(run) for name, run in runs.items()}
    samples: dict[str, list[Sample]] = {name: [] for name in runs}
    end = time.monotonic() + seconds
    for done in range(rounds):
        if done >= LEAST_ROUNDS and time.monotonic() > end:
            break
        for name, run in runs.items():
            samples[name].append(run(repeats[name]))
    return {name: _figures(found, repeats[name]) for name, found in samples.items()}


def _repeats(run: Run) -> int:
    """How many calls take about SAMPLE_NS; what is started for it warms the caches."""
    quickest = run(1).cpu
    for _ in range(2):
        if quickest > SAMPLE_NS:
            return 1
        quickest = min(quickest, run(1).cpu)
    return max(1, round(SAMPLE_NS / max(quickest, 1)))


def _figures(samples: Sequence[Sample], repeats: int) -> Figures:
    cpu = statistics.median(sample.cpu for sample in samples)
    return Figures(cpu / repeats, min(sample.wall for sample in samples) / repeats)


def isolated(function: Callable[[], Result], seconds: float) -> Result:
    """What the function returns, in a process of its own, a copy of this one.

    Raises UnavailableError where it raises anything, crashes, or takes longer than so many seconds.
    """
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)

    def told() -> None:
        try:
            there.send(function())
        except Exception as error:
            there.send(UnavailableError(f"{type(error).__name__}: {error}"))

    process = context.Process(target=told)
    process.start()
    there.close()
    try:
        if not here.poll(seconds):
            process.kill()
            raise UnavailableError(f"not done after {seconds:.0f} s")
        result: Result | UnavailableError = here.recv()
        if isinstance(result, UnavailableError):
            raise result
        return result
    except EOFError:
        process.join()
        raise UnavailableError(f"its process ended with status {process.exitcode}") from None
    finally:
        process.join()
        here.close()


def pin(core: int | None = None) -> None:
    """Keeps this process on one core, by default the last that it may use; Linux only."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0)) if core is None else core})


def model(
    operator: str, inputs: Sequence[tuple[int, ...]], output: tuple[int, ...], kind: int
) -> onnx.ModelProto:
    """One node; inputs a, b, ... of type `kind`, output y, which Equal makes bool."""
    names = [chr(ord("a") + n) for n in range(len(inputs))]
    told = [helper.make_tensor_value_info(n, kind, s) for n, s in zip(names, inputs, strict=True)]
    result = TensorProto.BOOL if operator == "Equal" else kind
    graph = helper.make_graph(
        [helper.make_node(operator, names, ["y"])],
        operator,
        told,
        [helper.make_tensor_value_info("y", result, output)],
    )
    opsets = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, ir_version=10, opset_imports=opsets)


def aligned(shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Zeros at the start of a cache line."""
    size = int(np.prod(shape)) * dtype.itemsize
    room = np.zeros(size + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + size].view(dtype).reshape(shape)


def aligned_copy(array: NDArray[Any]) -> NDArray[Any]:
    """The same values at the start of a cache line; strings as they are."""
    if array.dtype.hasobject or array.dtype.kind in "US":
        return array
    copy = aligned(array.shape, array.dtype)
    copy[...] = array
    return copy


def memcpy(size: int) -> Run:
    """Moves `size` bytes in all: reads one half of them and writes the other."""
    source, target = (aligned((size // 2,), np.dtype(np.uint8)) for _ in range(2))
    source[:] = 1  # pages that nobody wrote are all the same zeros
    to, here = (array.ctypes.data_as(ctypes.c_void_p) for array in (target, source))
    count = source.nbytes
    return looped(lambda: ctypes.memmove(to, here, count))  # data_as keeps its array alive


def machine(compiler: Sequence[str]) -> str:
    """Processor, C compiler and versions, for the line under a table."""
    told = subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=True)
    versions = [
        f"{name} {importlib.metadata.version(name)}" for name in ("onnxruntime", "numpy", "onnxc")
    ]
    return "; ".join([_processor(), told.stdout.splitlines()[0], *versions])


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def show(title: str, rows: Sequence[Sequence[str]], *, markdown: bool) -> None:
    """A table; the first row is its head, the first column text and the others figures."""
    head, *body = rows
    if markdown:
        rule = ["---", *["--:"] * (len(head) - 1)]
        print(f"**{title}**\n")
        print("\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *body)), end="\n\n")
        return
    table = Table(title=title, title_justify="left")
    for number, name in enumerate(head):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    for row in body:
        table.add_row(*row)
    Console(width=WIDTH).print(table)
