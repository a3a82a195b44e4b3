"""The table of tensors of a report's page."""

from __future__ import annotations

from typing import Any

from onnxc.report.html.kernels import LONG
from onnxc.report.html.look import Fact


def values(facts: Fact) -> dict[str, Any] | None:
    """None where there is none."""
    tensors = facts["tensors"]
    return {"long": len(tensors) > LONG} if tensors else None
