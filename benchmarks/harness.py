"""What the benchmarks share: models, buffers, calls of both compilers, and the clock.

Calls that are compared run in one thread of one process, in turn, many rounds; the figure is the
median of the CPU time of that thread, so that other jobs on the machine cost little.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
import shlex
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel
from rich.console import Console
from rich.table import Table

import onnxc

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[Any]]

Call = Callable[[], object]
SAMPLE_NS: Final = 2_000_000
"""About how long one sample of one call takes."""
PLAIN: Final = {"x86_64": "-march=x86-64", "aarch64": "-march=armv8-a"}.get(platform.machine(), "")
"""Takes -march=native back."""


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


def aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Zeros at the start of a cache line."""
    size = int(np.prod(shape)) * dtype.itemsize
    room = np.zeros(size + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + size].view(dtype).reshape(shape)


def one_thread() -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return options


def runtime_call(proto: onnx.ModelProto, inputs: Arrays, outputs: Arrays) -> Call | None:
    """onnxruntime on these very buffers, or None where it has no kernel for the type."""
    try:
        session = ort.InferenceSession(proto.SerializeToString(), one_thread())
    except NoKernel:
        return None
    binding = session.io_binding()
    for told, array in zip(proto.graph.input, inputs.values(), strict=True):
        binding.bind_input(told.name, "cpu", 0, *_type_and_shape(told), array.ctypes.data)
    for told, array in zip(proto.graph.output, outputs.values(), strict=True):
        binding.bind_output(told.name, "cpu", 0, *_type_and_shape(told), array.ctypes.data)
    return lambda: session.run_with_iobinding(binding)


def _type_and_shape(told: onnx.ValueInfoProto) -> tuple[int, list[int]]:
    tensor = told.type.tensor_type
    return tensor.elem_type, [dim.dim_value for dim in tensor.shape.dim]


def memcpy(size: int) -> Call:
    """Moves `size` bytes in all: reads one half of them and writes the other."""
    source, target = (aligned((size // 2,), np.dtype(np.uint8)) for _ in range(2))
    source[:] = 1  # pages that nobody wrote are all the same zeros
    to, here = (array.ctypes.data_as(ctypes.c_void_p) for array in (target, source))
    return lambda: ctypes.memmove(to, here, source.nbytes)  # data_as keeps its array alive


@contextmanager
def c_flags(flags: str) -> Iterator[None]:
    """More flags for the C compiler, after onnxc's own."""
    before = os.environ.get("ONNXC_CFLAGS")
    os.environ["ONNXC_CFLAGS"] = f"{before or ''} {flags}"
    try:
        yield
    finally:
        if before is None:
            del os.environ["ONNXC_CFLAGS"]
        else:
            os.environ["ONNXC_CFLAGS"] = before


def c_call(proto: onnx.ModelProto, inputs: Arrays, outputs: Arrays, flags: str = "") -> Call:
    """onnxc's C on these very buffers."""
    with c_flags(flags):
        return onnxc.compile(proto).bind(inputs, outputs)


def medians(calls: Mapping[str, Call], rounds: int) -> dict[str, float]:
    """Nanoseconds of one call of each, measured in turn."""
    repeats = {name: max(1, SAMPLE_NS // max(_quickest(call), 1)) for name, call in calls.items()}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            samples[name].append(_sample(call, repeats[name]) / repeats[name])
    return {name: statistics.median(found) for name, found in samples.items()}


def _quickest(call: Call) -> int:
    return min(_sample(call, 1) for _ in range(3))


def _sample(call: Call, repeats: int) -> int:
    turns = range(repeats)
    start = time.clock_gettime_ns(time.CLOCK_THREAD_CPUTIME_ID)
    for _ in turns:
        call()
    return time.clock_gettime_ns(time.CLOCK_THREAD_CPUTIME_ID) - start


def machine() -> str:
    """Processor, C compiler and versions, for the line under a table."""
    compiler = shlex.split(os.environ.get("CC") or "cc")
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
    Console(width=120).print(table)
