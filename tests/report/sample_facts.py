"""Facts of a made-up model, in the form of report.schema.json: a chain of Conv and Relu.

Nothing is compiled for them, so a test may ask for any size, and for names that no real model has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

HOSTILE: Final = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "<!--<script>",
    '" onmouseover="alert(3)" x="',
    "' autofocus onfocus='alert(4)",
    "</style></title></svg></pre>",
    "{{ 7 * 7 }}{% raw %}",
    "&lt;b&gt;&amp;",
    "]]><b>",
    "javascript:alert(5)",
    "\u202egnp.exe",
    "a\x00b\x1b[31m\x07\u2028\udc80",
)
"""Names that would do harm, or be shown as something else, if they were anything but text."""
SIZE: Final = 4 * 16 * 16 * 8
"""Bytes of every tensor of the workspace."""
PLAIN: Final = tuple(f"/layer{number}/out" for number in range(4))


def facts(
    kernels: int = 6,
    names: Sequence[str] = PLAIN,
    *,
    quantized: bool = False,
    timed: bool = True,
    compared: bool = True,
) -> dict[str, Any]:
    """A model of two nodes a kernel, and of two more that need none.

    names      of the nodes and tensors, round and round
    quantized  the arithmetic is of int8, but in the last kernel
    timed      every kernel has a time, the second most
    compared   there are errors of the output and of the tensors
    """
    chain = [_kernel(number, kernels, quantized, timed) for number in range(kernels)]
    tensors = _tensors(kernels, names)
    macs = sum(kernel["macs"] for kernel in chain)
    live = [2 * SIZE if 0 < number < kernels - 1 else SIZE for number in range(kernels)]
    return {
        "schema": 1,
        "onnxc": "0.1.0",
        "model": {
            "file": f"{names[0]}.onnx",
            "ir_version": 10,
            "opsets": {"ai.onnx": 21},
            "nodes": 2 * kernels + 2,
            "target": "host",
            "optimize": "speed",
            "portable_bits": False,
            "options": "--dim N=1",
        },
        "inputs": [_port(names[0])],
        "outputs": [_port(names[-1])],
        "summary": {
            "kernels": kernels,
            "macs": macs,
            "macs_by_arithmetic": _by_arithmetic(chain),
            "macs_note": "",
            "constants_bytes": 9000 * kernels,
            "inputs_bytes": SIZE,
            "inputs_strings": 0,
            "outputs_bytes": SIZE,
            "outputs_strings": 0,
            "workspace_bytes": 2 * SIZE,
            "workspace_bound_bytes": max(live),
            "workspace_ratio": 1.0,
            "tensors_bytes": SIZE * (kernels - 1),
            "stack": {"bytes": 208, "outside": ["memset"], "command": "gcc -std=c99 -O2"},
        },
        "sections": [
            {
                "target": "cortex-m4",
                "compiled_for": "cortex-m4",
                "command": "arm-none-eabi-gcc -mcpu=cortex-m4 -std=c99 -Os",
                "text": 4321,
                "rodata": 9000 * kernels,
                "data": 0,
                "bss": 2 * SIZE,
            },
            {
                "target": "aarch64",
                "compiled_for": "aarch64",
                "reason": "aarch64-linux-gnu-gcc was not found",
            },
        ],
        "kernels": chain,
        "functions": [_function(kernel, names) for kernel in chain],
        "tensors": tensors,
        "memory": {
            "live": live,
            "peak": {
                "kernel": min(1, kernels - 1),
                "bytes": max(live),
                "shared": 0,
                "tensors": [2, 3][: max(live) // SIZE],
            },
        },
        "nodes": _nodes(kernels, names),
        "int8_as_float": [{"operator": "Conv", "count": 1}] if quantized else [],
        "not_integer": [
            {"kernel": kernels - 1, "nodes": [2 * kernels - 2], "why": "its scale is no constant"}
        ]
        if quantized
        else [],
        "times": _times(chain) if timed else {"reason": "no C compiler was found"},
        "accuracy": _accuracy(kernels, names) if compared else None,
    }


def _port(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "dtype": "float",
        "shape": [1, 8, 16, 16],
        "bytes": SIZE,
        "maximum": False,
    }


def _kernel(number: int, kernels: int, quantized: bool, timed: bool) -> dict[str, Any]:
    in_integers = quantized and number < kernels - 1
    written = 1 if number == kernels - 1 else number + 2
    # The second kernel is the slowest, the others differ a little.
    share = 0.4 if number == 1 else 0.6 / max(kernels - 1, 1)
    nanoseconds = 1e6 * share + number % 7
    of_limit = 0.35 if number == 1 else 0.9
    return {
        "number": number,
        "function": f"conv_relu_{number}",
        "kind": "contraction" if number % 2 else "depthwise",
        "why": "each value that is read meets a panel of the other operand",
        "tiles": ["14 rows of 2 vectors"],
        "role": "",
        "nodes": [2 * number, 2 * number + 1],
        "inside": None,
        "repeats": 1,
        "reads": [0 if number == 0 else number + 1, kernels + 1],
        "writes": [written],
        "scratch": [],
        "macs": 10_000 * (1 + number % 5),
        "bytes_read": SIZE,
        "bytes_written": SIZE,
        "bytes_constants": 9000,
        "arithmetic": "int8" if in_integers else "float32",
        "integer": in_integers,
        "rescaled": SIZE // 4 if in_integers else 0,
        "rescaled_in": "float32" if in_integers else "",
        "time": {
            "ns": nanoseconds,
            "share": share,
            "limit_ns": nanoseconds * of_limit,
            "of_limit": of_limit,
            "bound_by": "memory" if number % 2 else "products",
            "reason": "" if of_limit >= 0.8 else "few channels: vectors are not full",
        }
        if timed
        else None,
    }


def _by_arithmetic(kernels: Sequence[dict[str, Any]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for kernel in kernels:
        name = kernel["arithmetic"]
        counts[name] = counts.get(name, 0) + int(kernel["macs"])
    return counts


def _function(kernel: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    name = names[kernel["number"] % len(names)]
    lines = [
        f"/* Conv and Relu {name} */",
        f"static void {kernel['function']}(const float *restrict a, float *restrict out)",
        "{",
        "    for (int32_t i = 0; i < 2048; i++)",
        "        out[i] = a[i] < 0.0f && a[i] > -1.0f ? 0.0f : a[i];",
        "}",
    ]
    text = "\n".join(lines)
    line = 300 + 8 * kernel["number"]
    return {
        "name": kernel["function"],
        "line": line,
        "c": text,
        "variants": ["avx512"],
        "kernels": [kernel["number"]],
    }


def _tensors(kernels: int, names: Sequence[str]) -> list[dict[str, Any]]:
    """Input, output, what lies between the kernels, and one constant that all of them read."""
    ends = [("input", None, 0), ("output", kernels - 1, None)]
    inside = [("workspace", number, number + 1) for number in range(kernels - 1)]
    places = [*ends, *inside]
    found = [
        {
            "number": number,
            "name": names[number % len(names)],
            "label": names[number % len(names)],
            "dtype": "float",
            "shape": [1, 8, 16, 16],
            "bytes": SIZE,
            "place": place,
            "offset": SIZE * (number % 2) if place == "workspace" else None,
            "first": reader if producer is None else producer,
            "last": producer if reader is None else reader,
            "producer": producer,
            "writers": [] if producer is None else [producer],
            "readers": [] if reader is None else [reader],
            "nodes": [] if producer is None else [2 * producer + 1],
            "layout": "channels last" if place == "workspace" else "",
        }
        for number, (place, producer, reader) in enumerate(places)
    ]
    constant = {
        "number": kernels + 1,
        "name": "weights",
        "label": "weights",
        "dtype": "float",
        "shape": [2250],
        "bytes": 9000,
        "place": "constant",
        "offset": None,
        "first": None,
        "last": None,
        "producer": None,
        "writers": [],
        "readers": [*range(kernels)],
        "nodes": [],
        "layout": "",
    }
    return [*found, constant]


def _nodes(kernels: int, names: Sequence[str]) -> list[dict[str, Any]]:
    def node(number: int, operator: str, fate: str, into: list[int], why: str) -> dict[str, Any]:
        name = names[number % len(names)]
        given = [f"value{number - 1}" if number else name]
        return {
            "number": number,
            "operator": operator,
            "name": name,
            "inputs": given,
            "outputs": [f"value{number}"],
            "fate": fate,
            "kernels": into,
            "why": why,
        }

    pairs = (
        (
            node(2 * k, "Conv-11", "kernel", [k], "each value meets a panel"),
            node(2 * k + 1, "Relu-14", "fused", [k], "applied to each result before it is stored"),
        )
        for k in range(kernels)
    )
    rest = [
        node(2 * kernels, "Shape-21", "folded", [], "its input has a known shape"),
        node(2 * kernels + 1, "Reshape-21", "aliased", [], "the same bytes under another shape"),
    ]
    return [*(one for pair in pairs for one in pair), *rest]


def _times(kernels: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "compiler": "gcc 12.2",
        "flags": "-std=c99 -O2",
        "processor": "a made-up processor",
        "runs": 30,
        "total_ns": 1.05 * sum(kernel["time"]["ns"] for kernel in kernels),
        "machine": {
            "macs_per_second": {"float32": 1e11, "int8": 2e11},
            "bytes_per_second": [{"bytes": 16384, "rate": 2e11, "write": 1e11, "copy": 1e11}],
            "functions_per_second": {"exp": 1e9},
        },
    }


def _accuracy(kernels: int, names: Sequence[str]) -> dict[str, Any]:
    def error(number: int) -> dict[str, Any]:
        return {
            "name": names[number % len(names)],
            "dtype": "float",
            "shape": [1, 8, 16, 16],
            "reference": "onnxruntime",
            "inputs": "random",
            "verdict": "ok",
            "max_abs_error": 1e-7 * (number + 1),
            "max_rel_error": 1e-6,
            "max_scaled_error": 1e-7,
            "max_ulp_error": number,
            "note": "",
        }

    tapped = [
        error(number) | {"tensor": number, "kernel": number - 2, "nodes": [2 * (number - 2)]}
        for number in range(2, kernels + 1)
    ]
    return {
        "reference": "onnxruntime 1.32",
        "unused": [],
        "inputs": "random, seed 0",
        "tensors_inputs": "random, seed 0",
        "outputs": [error(len(names) - 1)],
        "tensors": tapped,
        "first": "",
    }
