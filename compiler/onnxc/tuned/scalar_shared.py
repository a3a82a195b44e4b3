"""Layers without vectors whose code is one for all of them: each is a table of numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from onnxc.dtypes import FLOAT, INT32
from onnxc.expression import Buffer
from onnxc.kernel import Loops, Micro
from onnxc.tuned.scalar import Layer
from onnxc.tuned.scalar_windows import PANEL, is_windowed, packed, zeros

PIXELS: Final = 4
"""Of a tile."""
SINGLE: Final = 8
"""Lanes for one pixel."""
MOST_TAPS: Final = 44
"""There is room on the stack for their pointers, of all pixels of a tile."""
LITTLE: Final = 1000
"""Multiplications for which a function of its own, for one pixel, is not worth its bytes."""


@dataclass(frozen=True)
class Shared:
    """What kernels/shared_scalar.c.j2 calls, of the functions of kernels/shared_windows.c.j2.

    numbers   the names of what its table holds
    """

    function: str
    numbers: tuple[str, ...]


def shared(layer: Layer, loops: Loops) -> Micro | None:
    """The Micro of a layer; None where what follows its sums is no second pass over them."""
    if not layer.is_dense or any(move != (layer.lanes, 1) for move in layer.moves):
        return None
    if layer.tap_count > MOST_TAPS:
        return None
    constants = _constants(layer)
    if constants is None:
        return None
    function, buffers = constants
    numbers = {**layer.numbers, "depthwise": layer.is_depthwise}
    values = np.array([*numbers.values()], np.int32)
    name = f"{layer.product.panel.buffer.name}_layer"
    table = Buffer(name, values.shape, INT32, "constant", values)
    inputs = (layer.product.rows.buffer, *buffers, table)
    return Micro(
        "shared_scalar",
        loops,
        inputs,
        Shared(function, (*numbers,)),
        layer.product.loops.value,
        layer.total,
        layer.addends,
        starts=layer.starts(len(inputs)),
    )


def _constants(layer: Layer) -> tuple[str, list[Buffer]] | None:
    """The function that computes the sums, and what it reads besides the source and the table."""
    if layer.is_depthwise:
        if layer.lanes < PANEL:
            return None
        data = np.concatenate([layer.biases()[None], layer.weights()])
        name = layer.product.panel.buffer.name
        weights = Buffer(name, data.shape, FLOAT, "constant", data)
        return "windows", [weights, zeros(layer.lanes) if layer.padded else weights]
    if layer.pixels == 1 and not is_windowed(layer) and layer.work >= LITTLE:
        return "row", [packed(layer, SINGLE)]
    weights = packed(layer, PANEL)
    return "windows", [weights, zeros(layer.channels) if layer.padded else weights]
