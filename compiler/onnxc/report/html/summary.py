"""The summary of a report's page: what a model takes and computes, in numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onnxc.report.html.look import Fact


@dataclass(frozen=True)
class Amount:
    """Bytes under a name, as a bar among others."""

    name: str
    bytes: int
    colour: str


def values(facts: Fact) -> dict[str, Any]:
    sections = facts["sections"]
    return {
        "arithmetics": arithmetics(facts["summary"]["macs_by_arithmetic"]),
        "amounts": amounts(facts["summary"]),
        "measured": [entry for entry in sections if "text" in entry],
        "not_measured": [entry for entry in sections if "text" not in entry],
    }


def arithmetics(by_arithmetic: dict[str, int]) -> list[tuple[str, int, float]]:
    """Name, multiply-accumulates and share of all, of each arithmetic, most first."""
    total = sum(by_arithmetic.values())
    ordered = sorted(by_arithmetic.items(), key=lambda item: -item[1])
    return [(name, macs, macs / total) for name, macs in ordered if macs]


def amounts(summary: Fact) -> list[Amount]:
    """What the workspace is to be compared with, least first."""
    return [
        Amount("Least of any plan", summary["workspace_bound_bytes"], "sky"),
        Amount("Workspace, as planned", summary["workspace_bytes"], "blue"),
        Amount("All its tensors, if none shared memory", summary["tensors_bytes"], "orange"),
    ]
