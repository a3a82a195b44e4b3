"""The table of kernels of a report's page."""

from __future__ import annotations

from typing import Any, Final

from onnxc.report.html.look import Fact, Look

LONG: Final = 60
"""Rows from which on a table has a height of its own, and is drawn when it comes into sight."""


def values(facts: Fact) -> dict[str, Any] | None:
    """None of a model that runs no code."""
    kernels = facts["kernels"]
    if not kernels:
        return None
    look = Look(facts)
    slowest = look.slowest()
    return {
        "timed": slowest is not None,
        "most_time": slowest["time"]["ns"] if slowest else 0,
        "most_macs": max(kernel["macs"] or 0 for kernel in kernels),
        "most_bytes": max(map(look.bytes_moved, kernels)),
        "long": len(kernels) > LONG,
    }
