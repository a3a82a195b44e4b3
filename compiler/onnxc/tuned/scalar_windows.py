"""Convolutions and matrix products without vectors: tiles of a few pixels and four lanes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxc.dtypes import FLOAT
from onnxc.expression import Buffer
from onnxc.kernel import Loops, Micro
from onnxc.tuned.scalar import Layer

if TYPE_CHECKING:
    from numpy.typing import NDArray

PANEL: Final = 4
"""Lanes of a tile."""
MOST_PIXELS: Final = 6
"""Of a tile: with 4 lanes they leave 4 + 1 of 32 registers to what is multiplied."""
SINGLE: Final = (16, 8)
"""Lanes for one pixel, whose value is then read less often."""
MOST_POINTERS: Final = 176
"""In a table on the stack: that of the taps of one tile."""


@dataclass(frozen=True)
class Windows:
    """What kernels/windows_scalar.c.j2 writes.

    numbers   of the layer, by name
    pixels    of a tile, and lanes
    windowed  whether the taps of a tile are listed first; else they lie one after the other
    padded    whether there are zeros to read
    rest      whether the last tile is narrower: in pixels, in lanes
    moves     of each addend: elements to the next pixel and the next lane
    types     C types of the source, of the weights, of the sums and of the results
    depthwise whether each lane reads elements of its own
    """

    numbers: tuple[tuple[str, int], ...]
    pixels: int
    lanes: int
    taps: int
    windowed: bool
    padded: bool
    rest: tuple[bool, bool]
    moves: tuple[tuple[int, int], ...]
    types: tuple[str, str, str, str] = ("float", "float", "float", "float")
    depthwise: bool = False


def windows(layer: Layer, loops: Loops) -> Micro | None:
    """The Micro of a layer whose lanes read the same; None where a tile has too many taps."""
    windowed = is_windowed(layer)
    most = min(MOST_POINTERS // layer.tap_count, MOST_PIXELS) if windowed else MOST_PIXELS
    if most < 2:
        return None
    pixels, lanes = _pixels(layer.pixels, most), PANEL
    if layer.pixels == 1 and not windowed:
        pixels, lanes = 1, min(SINGLE, key=lambda q: -(-layer.lanes // q) * (q + 2))
    weights = packed(layer, lanes)
    inputs = [layer.product.rows.buffer, weights]
    if layer.padded:
        inputs.append(zeros(layer.channels))
    found = Windows(
        numbers_of(layer, windowed=windowed),
        pixels,
        lanes,
        layer.tap_count,
        windowed,
        layer.padded,
        (layer.pixels % pixels > 0, layer.lanes % lanes > 0),
        layer.moves,
    )
    return Micro(
        "windows_scalar",
        loops,
        tuple(inputs),
        found,
        layer.product.loops.value,
        layer.total,
        layer.addends,
        starts=layer.starts(len(inputs)),
    )


def is_windowed(layer: Layer) -> bool:
    """Whether what an output reads is not one run of floats, or the pixels' are not in a row."""
    apart = layer.rows.outputs > 1 and layer.rows.x != layer.columns.outputs * layer.columns.x
    return layer.tap_count > 1 or layer.padded or apart


def _pixels(outputs: int, most: int) -> int:
    """Of a tile: those with the fewest instructions for each step of the sums of all tiles."""
    return min(range(2, most + 1), key=lambda p: (-(-outputs // p) * (5 * p + 7), p))


@cache
def zeros(floats: int) -> Buffer:
    """What padding reads."""
    return Buffer("zeros", (floats,), FLOAT, "constant", np.zeros(floats, np.float32))


def numbers_of(layer: Layer, *, windowed: bool) -> tuple[tuple[str, int], ...]:
    """All that C needs to know, by name."""
    if not windowed:
        names = ("pixels", "lanes", "pixel", "start", "channels", "x_column")
        return tuple((name, layer.numbers[name]) for name in names)
    columns = layer.columns
    joined = columns.taps if columns.taps > 1 and columns.x_tap == layer.channels else 1
    return (*layer.numbers.items(), ("joined", joined))


def packed(layer: Layer, width: int) -> Buffer:
    """[length][lanes] as panels of [1 + length][width], each with its biases first.

    The last panel is as narrow as the lanes that are left; whole tiles of its last row may be read.
    """
    rows: NDArray[Any] = np.concatenate([layer.biases()[None], layer.weights()])
    panels = [rows[:, n : n + width].ravel() for n in range(0, rows.shape[1], width)]
    beyond = np.zeros(-rows.shape[1] % width, np.float32)
    data = np.concatenate([*panels, beyond])
    return Buffer(layer.product.panel.buffer.name, data.shape, FLOAT, "constant", data)
