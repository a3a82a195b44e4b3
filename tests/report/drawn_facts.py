"""A small report's facts, by hand: what the tests of the page's drawings draw."""

from __future__ import annotations

import copy
from typing import Any

KIB = 1024
HOSTILE = "</title><script>document.title='run'</script><b>&\"'"
"""A name that would be HTML if any part of the page took it for that."""


def tensor(number: int, label: str, **other: Any) -> dict[str, Any]:
    """In the workspace, float32[256] at 0 during kernel 0, unless told otherwise."""
    plain = {
        "number": number,
        "name": label,
        "label": label,
        "dtype": "float32",
        "shape": [256],
        "bytes": KIB,
        "place": "workspace",
        "offset": 0,
        "first": 0,
        "last": 0,
        "producer": 0,
        "readers": [],
        "nodes": [],
        "layout": "",
    }
    found = plain | other
    producer = found["producer"]
    return {"writers": [] if producer is None else [producer]} | found


def kernel(number: int, function: str, **other: Any) -> dict[str, Any]:
    plain = {
        "number": number,
        "function": function,
        "kind": "loops",
        "why": "no sum of products of floats",
        "tiles": [],
        "role": "",
        "nodes": [number],
        "inside": None,
        "repeats": 1,
        "reads": [],
        "writes": [],
        "scratch": [],
        "macs": 0,
        "bytes_read": KIB,
        "bytes_written": KIB,
        "bytes_constants": 0,
        "arithmetic": "float32",
        "integer": False,
        "rescaled": 0,
        "rescaled_in": "",
        "time": None,
    }
    return plain | other


def node(number: int, operator: str, name: str, **other: Any) -> dict[str, Any]:
    plain = {
        "number": number,
        "operator": operator,
        "name": name,
        "inputs": [],
        "outputs": [f"v{number}"],
        "fate": "kernel",
        "kernels": [number],
        "why": "no function of elements",
    }
    return plain | other


def facts(**other: Any) -> dict[str, Any]:
    """Four kernels of five nodes, a workspace of 100 KiB whose peak of 96 KiB is at kernel 1.

    Kernel 0 writes `large` (64 KiB at 0), kernel 1 reads it and writes HOSTILE (32 KiB at 64 KiB),
    kernel 2 reads that and writes `small` (4 KiB at 96 KiB), kernel 3 writes the output.
    """
    return copy.deepcopy(_FACTS) | other


_FACTS: dict[str, Any] = {
    "schema": 1,
    "onnxc": "0.1.0",
    "model": {
        "file": "drawn.onnx",
        "ir_version": 10,
        "opsets": {"ai.onnx": 17},
        "nodes": 5,
        "target": "generic",
        "optimize": "speed",
        "portable_bits": False,
        "options": "",
    },
    "inputs": [{"name": "x", "dtype": "float32", "shape": [1, 256], "bytes": KIB}],
    "outputs": [{"name": "y", "dtype": "float32", "shape": [1, 512], "bytes": 2 * KIB}],
    "summary": {
        "macs": 1000,
        "macs_note": "",
        "constants_bytes": 90 * KIB,
        "inputs_bytes": KIB,
        "outputs_bytes": 2 * KIB,
        "workspace_bytes": 100 * KIB,
        "workspace_bound_bytes": 96 * KIB,
        "workspace_ratio": 1.0417,
        "tensors_bytes": 100 * KIB,
        "macs_by_arithmetic": {"float32": 1000},
        "stack": {"bytes": 512, "outside": [], "command": "cc -O2"},
    },
    "sections": [
        {
            "target": "cortex-m4",
            "command": "arm-none-eabi-gcc -O2",
            "text": 10 * KIB,
            "rodata": 90 * KIB,
            "data": 0,
            "bss": 0,
        },
        {"target": "aarch64", "reason": "aarch64-linux-gnu-gcc was not found"},
    ],
    "kernels": [
        kernel(0, "conv_0", kind="contraction", macs=900, bytes_constants=80 * KIB, writes=[0]),
        kernel(1, "softmax_1", nodes=[1, 2], reads=[0], writes=[1]),
        kernel(2, "gemm_2", macs=100, bytes_constants=10 * KIB, nodes=[4], reads=[1], writes=[2]),
        kernel(3, "softmax_3", nodes=[4], reads=[2], writes=[4]),
    ],
    "functions": [],
    "tensors": [
        tensor(0, "large", bytes=64 * KIB, shape=[16384], last=1, readers=[1], nodes=[0]),
        tensor(
            1,
            HOSTILE,
            bytes=32 * KIB,
            shape=[1, 8192],
            offset=64 * KIB,
            first=1,
            last=2,
            producer=1,
            readers=[2],
            nodes=[2],
        ),
        tensor(
            2,
            "small",
            bytes=4 * KIB,
            shape=[1024],
            offset=96 * KIB,
            first=2,
            last=3,
            producer=2,
            readers=[3],
            nodes=[4],
        ),
        tensor(3, "x", place="input", offset=None, last=0, producer=None, readers=[0]),
        tensor(4, "y", bytes=2 * KIB, place="output", offset=None, first=3, last=3, producer=3),
        tensor(5, "w0", bytes=80 * KIB, place="constant", offset=None, producer=None, readers=[0]),
        tensor(6, "w2", bytes=10 * KIB, place="constant", offset=None, producer=None, readers=[2]),
    ],
    "memory": {
        "live": [64 * KIB, 96 * KIB, 36 * KIB, 4 * KIB],
        "peak": {"kernel": 1, "bytes": 96 * KIB, "shared": 0, "tensors": [0, 1]},
    },
    "nodes": [
        node(0, "Conv-11", "/conv", inputs=["x", "w0"], why="each value meets a panel"),
        node(1, "Relu-14", HOSTILE, inputs=["v0"], fate="fused", why="part of node 2's loops"),
        node(2, "Softmax-13", "/soft", inputs=["v1"], kernels=[1]),
        node(3, "Identity-16", "", inputs=["v2"], fate="aliased", kernels=[], why="the same bytes"),
        node(4, "Gemm-13", "/fc", inputs=["v3", "w2"], outputs=["y"], kernels=[2, 3]),
    ],
    "int8_as_float": [],
    "not_integer": [],
    "times": None,
    "accuracy": None,
}
_FACTS["nodes"][1]["kernels"] = [1]


def accuracy() -> dict[str, Any]:
    """Kernel 0 exact, kernel 1 close, kernel 2 not finite and wrong."""
    return {
        "reference": "ONNX Runtime 1.32",
        "unused": [],
        "inputs": "random inputs",
        "tensors_inputs": "random",
        "outputs": [_compared("y", "differs", "inf", 3.0, [1, 512])],
        "tensors": [
            _compared("large", "ok", 0.0, 0.0, [16384], tensor=0, kernel=0, nodes=[0]),
            _compared(HOSTILE, "ok", 1e-7, 2.0, [1, 8192], tensor=1, kernel=1, nodes=[2]),
            _compared("small", "differs", 1e-3, 9000.0, [1024], tensor=2, kernel=2, nodes=[4]),
        ],
        "first": "small",
    }


def _compared(
    name: str, verdict: str, scaled: float | str, ulp: float, shape: list[int], **other: Any
) -> dict[str, Any]:
    return {
        "name": name,
        "dtype": "float32",
        "shape": shape,
        "reference": "onnxruntime",
        "inputs": "random",
        "verdict": verdict,
        "max_abs_error": scaled,
        "max_rel_error": scaled,
        "max_scaled_error": scaled,
        "max_ulp_error": ulp,
        "note": "",
    } | other
