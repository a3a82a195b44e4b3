"""The numbers of a compiled model that come first, on the report's page and in `onnxc info`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from onnxc.pipeline import Compiled
from onnxc.report import memory, stack
from onnxc.report.kernels import Kernel, products
from onnxc.report.text import columns, count, printable


def summary(compiled: Compiled, kernels: Sequence[Kernel]) -> dict[str, Any]:
    """The "summary" of the facts but for "stack", which asks a C compiler.

    Raises InvalidProgramError where the memory plan is wrong, a fault of onnxc.
    """
    found = products(kernels)
    unknown = any(kernel.repeats is None for kernel in kernels)
    return {
        "kernels": len(kernels),
        "macs": found.total(),
        "macs_note": "loops whose trips the data decides count as one trip" if unknown else "",
        "macs_by_arithmetic": dict(found.most_common()),
        **memory.sizes(compiled),
        **memory.plan(compiled),
        "tensors_bytes": sum(buffer.bytes for buffer in compiled.program.offsets),
    }


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """A table for people."""
    yield "summary:"
    yield from columns([name, printable(text)] for name, text in _rows(found))


def _rows(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "kernels", f"{found['kernels']:,}"
    yield "multiply-accumulates", _products(found)
    yield "constants", count(found["constants_bytes"], "byte")
    yield "inputs", memory.side(found, "inputs")
    yield "outputs", memory.side(found, "outputs")
    yield "workspace", count(found["workspace_bytes"], "byte")
    bound = count(found["workspace_bound_bytes"], "byte")
    yield "least workspace", f"{bound}; ratio {found['workspace_ratio']:.2f}"
    yield "tensors unshared", count(found["tensors_bytes"], "byte")
    yield "stack", stack.text(found["stack"])


def _products(found: Mapping[str, Any]) -> str:
    """As in "2,000 int8, 16 float32"."""
    parts = [f"{number:,} {name}" for name, number in found["macs_by_arithmetic"].items()]
    note = f"; {found['macs_note']}" if found["macs_note"] else ""
    return f"{', '.join(parts) or '0'}{note}"
