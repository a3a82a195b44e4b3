"""Depthwise convolutions without vectors: a window in registers that slides along each row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from onnxc.dtypes import FLOAT
from onnxc.expression import Buffer
from onnxc.kernel import Loops, Micro
from onnxc.tuned.scalar import Layer

MOST_TAPS: Final = 15
"""Of which the filter and the window leave two of 32 registers."""
MOST_BEYOND: Final = 3
"""Outputs at the end of a row whose windows reach into padding."""


@dataclass(frozen=True)
class Sliding:
    """What kernels/depthwise_scalar.c.j2 writes.

    kernel    rows and columns of a window, step columns from one to the next
    kept      columns that a window takes over from the one before
    pad       columns of padding before the first
    start     of the first row in what is read, at its first column that is no padding
    x_row     elements to what the next row reads, x_tap to the window's next row, x_column to the
              next column
    extent    rows that are read, 0 where none is padding; else the place of a window's row i is
              row * row_step + i * row_spread - row_pad
    inside    outputs of a row before those that reach padding; `beyond` of each of these: columns
    moves     of each addend: elements to the next pixel and the next lane
    """

    moves: tuple[tuple[int, int], ...]
    lanes: int
    pixel: int
    kernel: tuple[int, int]
    step: int
    pad: int
    rows: int
    start: int
    x_row: int
    x_tap: int
    x_column: int
    extent: int
    row_step: int
    row_spread: int
    row_pad: int
    inside: int
    beyond: tuple[int, ...]

    @property
    def kept(self) -> int:
        return max(self.kernel[1] - self.step, 0)

    @property
    def period(self) -> int:
        """Outputs after which the window is in the same registers again."""
        width = self.kernel[1]
        return width // math.gcd(width, self.step) if self.kept else 1

    @property
    def turns(self) -> int:
        """How often a loop goes through a period; the output that reads last comes after it."""
        reads_later = any(beyond < self.kernel[1] - self.kept for beyond in self.beyond)
        found = (self.inside - (not reads_later)) // self.period
        return found if found > 1 else 0

    @property
    def tail(self) -> tuple[int, ...]:
        """Of the outputs after the loop how many columns are padding."""
        return (*(0,) * (self.inside - self.turns * self.period), *self.beyond)

    @property
    def last_read(self) -> int:
        """The last of the tail that reads anything, -1 if none does."""
        reads = [n for n, beyond in enumerate(self.tail) if beyond < self.kernel[1] - self.kept]
        return max(reads, default=-1)


def sliding(layer: Layer, loops: Loops) -> Micro | None:
    """The Micro of a layer whose lanes each have their own filter; None where nothing slides."""
    found = _sliding(layer)
    if found is None:
        return None
    rows = np.concatenate([layer.biases()[None], layer.weights()])
    packed = np.ascontiguousarray(rows.T)
    weights = Buffer(layer.product.panel.buffer.name, packed.shape, FLOAT, "constant", packed)
    return Micro(
        "depthwise_scalar",
        loops,
        (layer.product.rows.buffer, weights),
        found,
        layer.product.loops.value,
        layer.total,
        layer.addends,
        starts=layer.starts(2),
    )


def _sliding(layer: Layer) -> Sliding | None:
    """None where the windows do not slide: too large, spread, or far into padding."""
    rows, columns = layer.rows, layer.columns
    width = columns.taps
    if rows.taps * width > MOST_TAPS or (columns.spread > 1 and width > 1):
        return None
    step = columns.step if columns.padded else columns.x // columns.x_tap if width > 1 else 1
    step = max(step, 1) if columns.outputs > 1 else 1
    apart = columns.x_tap if width > 1 else columns.x // step
    if columns.outputs > 1 and columns.x != step * apart:
        return None
    pad = columns.pad if columns.padded else 0
    ends = [o * step - pad + width - columns.extent for o in range(columns.outputs)]
    beyond = tuple(end for end in ends if end > 0) if columns.padded else ()
    kept = max(width - step, 0)
    if pad < 0 or pad > kept or len(beyond) > MOST_BEYOND:
        return None
    if columns.padded and columns.extent < width:
        return None
    return Sliding(
        moves=layer.moves,
        lanes=layer.lanes,
        pixel=layer.pixel,
        kernel=(rows.taps, width),
        step=step,
        pad=pad,
        rows=rows.outputs,
        start=layer.start + pad * apart,
        x_row=rows.x,
        x_tap=rows.x_tap,
        x_column=apart,
        extent=rows.extent if rows.padded else 0,
        row_step=rows.step,
        row_spread=rows.spread,
        row_pad=rows.pad,
        inside=columns.outputs - len(beyond),
        beyond=beyond,
    )
