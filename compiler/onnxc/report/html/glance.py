"""The answers at the top of a report's page: what an engineer asks first, in sentences."""

from __future__ import annotations

from typing import Any, Final

from onnxc.report.html.budget import USUAL, budget, ram_bytes, ram_parts
from onnxc.report.html.integers import is_integer, is_quantised, rescaling
from onnxc.report.html.look import Fact, Look

FATES: Final = {
    "kernel": "with a kernel of their own",
    "fused": "fused into the kernel of another",
    "folded": "computed at compile time",
    "aliased": "without code",
    "dissolved": "part of how others read or write",
    "dropped": "dropped",
}
"""What became of nodes, in the order of the sentence; a fate of no other words stands as it is."""


def values(facts: Fact) -> dict[str, Any]:
    look = Look(facts)
    kernel, tensors = look.peak()
    return {
        "peak_kernel": kernel,
        "peak_tensors": tensors,
        "slowest": look.slowest(),
        "heaviest": look.heaviest(),
        "fates": fates(facts),
        "budget": budget(facts, USUAL),
        "ram": ram_bytes(facts),
        "ram_parts": ram_parts(facts),
        "most_ram": max(ram_parts(facts), key=lambda part: part[2]),
        "workspaces": workspaces(facts),
        "kernels_ns": sum(each["time"]["ns"] for each in facts["kernels"] if each["time"]),
        "at_peak": at_peak(facts),
        "integer": integer_share(facts),
        "right": right(facts),
    }


def workspaces(facts: Fact) -> list[tuple[str, int]]:
    """Targets whose kernels need another workspace than those of the report, and its bytes."""
    known = facts["summary"]["workspace_bytes"]
    built = [section for section in facts["sections"] if "bss" in section]
    return [(s["target"], s["bss"]) for s in built if s["bss"] != known]


def at_peak(facts: Fact) -> list[int]:
    """The numbers of the kernels at which most bytes live."""
    live = facts["memory"]["live"]
    return [number for number, size in enumerate(live) if size == max(live)]


def fates(facts: Fact) -> list[tuple[int, str]]:
    """How many nodes became what."""
    counts = dict.fromkeys(FATES, 0)
    for node in facts["nodes"]:
        counts[node["fate"]] = counts.get(node["fate"], 0) + 1
    return [(number, FATES.get(fate, fate)) for fate, number in counts.items() if number]


def integer_share(facts: Fact) -> dict[str, Any]:
    """Multiply-accumulates of integers and of all; the kernels of a quantised model in float."""
    arithmetic = facts["summary"]["macs_by_arithmetic"]
    integers = {name: number for name, number in arithmetic.items() if is_integer(name) and number}
    return {
        "macs": sum(integers.values()),
        "of": sum(arithmetic.values()),
        "names": list(integers),
        "float": [entry["kernel"] for entry in facts["not_integer"]],
        "quantized": is_quantised(facts),
        "rescaling": rescaling(facts),
    }


def right(facts: Fact) -> dict[str, Any] | None:
    """Of the outputs: names of those that differ, and whether any was compared; None of none."""
    outputs = (facts["accuracy"] or {}).get("outputs")
    if not outputs:
        return None
    differing = [output["name"] for output in outputs if output["verdict"] == "differs"]
    compared = any(output["verdict"] != "not compared" for output in outputs)
    return {"differing": list(dict.fromkeys(differing)), "compared": compared}
