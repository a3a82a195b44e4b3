"""A report's kernels, tensors and nodes by number, and what its page asks of them."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from onnxc.report.html.words import kernel_text

Fact = dict[str, Any]


class Look:
    """What a section of the page looks up in the facts; all of it is in the JSON itself."""

    def __init__(self, facts: Fact) -> None:
        self.facts = facts
        self.kernels: dict[int, Fact] = {kernel["number"]: kernel for kernel in facts["kernels"]}
        self.tensors: dict[int, Fact] = {tensor["number"]: tensor for tensor in facts["tensors"]}
        self.nodes: dict[int, Fact] = {node["number"]: node for node in facts["nodes"]}

    @cached_property
    def function_ids(self) -> dict[str, str]:
        """The id in the page of each C function, by its name."""
        names = (function["name"] for function in self.facts["functions"])
        return {name: f"function-{number}" for number, name in enumerate(names)}

    def kernel_name(self, kernel: Fact) -> str:
        """Its C function; of control flow, which has none, what it is."""
        return kernel_text(kernel)

    def main_nodes(self, kernel: Fact, most: int = 4) -> list[Fact]:
        """The first of its nodes, those that only hold a constant last."""
        nodes = [self.nodes[number] for number in kernel["nodes"]]
        return sorted(nodes, key=lambda node: node["operator"].startswith("Constant-"))[:most]

    def bytes_moved(self, kernel: Fact) -> int:
        """Bytes that a run of the kernel reads and writes, constants included."""
        read, written = kernel["bytes_read"], kernel["bytes_written"]
        return int(read + written + kernel["bytes_constants"])

    def slowest(self) -> Fact | None:
        """The kernel with the longest time; None where nothing was timed."""
        timed = [kernel for kernel in self.facts["kernels"] if kernel["time"]]
        return max(timed, key=lambda kernel: float(kernel["time"]["ns"]), default=None)

    def heaviest(self) -> Fact | None:
        """The kernel with the most multiply-accumulates; None where none has any."""
        counted = [kernel for kernel in self.facts["kernels"] if kernel["macs"]]
        return max(counted, key=lambda kernel: int(kernel["macs"]), default=None)

    def peak(self) -> tuple[Fact | None, list[Fact]]:
        """The kernel at which most bytes live, and the tensors that do, largest first."""
        peak = self.facts["memory"]["peak"] or {}
        tensors = [self.tensors[number] for number in peak.get("tensors", ())]
        return self.kernels.get(peak.get("kernel", -1)), tensors
