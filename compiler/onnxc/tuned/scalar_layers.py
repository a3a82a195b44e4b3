"""Which tuned kernel computes a kernel of loops on a processor without vectors."""

from __future__ import annotations

from typing import Final

from onnxc.kernel import Loops, Micro
from onnxc.target import Target
from onnxc.tuned.scalar import layer_of
from onnxc.tuned.scalar_depthwise import sliding
from onnxc.tuned.scalar_shared import shared
from onnxc.tuned.scalar_windows import windows

LEAST_WORK: Final = 256
"""Multiplications below which the plain loops stay."""


def scalar(loops: Loops, target: Target) -> Micro | None:
    """The Micro of a merged kernel, in code of its own or, for little code, in shared code."""
    layer = layer_of(loops, target)
    if layer is None or layer.work < LEAST_WORK:
        return None
    own = sliding if layer.is_depthwise else windows
    ways = (shared, own) if target.small else (own, shared)
    return next((found for way in ways if (found := way(layer, loops))), None)
