"""Depthwise convolution with channels last: vectors of channels, the filters in registers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from onnxc.dtypes import FLOAT
from onnxc.expression import Buffer, Load, along
from onnxc.kernel import Micro
from onnxc.target import Target, Variant
from onnxc.traversal import replace_loads
from onnxc.tuned.contraction import least_work
from onnxc.tuned.geometry import Geometry, Step, geometry, starts_of, work_of
from onnxc.tuned.product import Product
from onnxc.tuned.walks import gathered

MOST_TAPS: Final = 12
"""Of a filter that stays in vectors while a row is computed."""
WIDTH: Final = 16
"""Channels to a multiple of which the packed filters are padded."""
CACHE: Final = 3 << 19
"""Bytes of input and output that all channels may pass through before they are read again."""
BAND: Final = 1 << 18
"""Bytes that a band of rows fills where that is not so."""


@dataclass(frozen=True)
class Depthwise:
    """What kernels/depthwise.c.j2 writes.

    shared  how many neighbouring pixels are seen as one of as many times the channels
    band    rows of the output that all channels pass through before the next ones
    counted whether the caller says how many rows there are
    """

    window: Geometry
    channels: int
    shared: int
    band: int
    counted: bool = False

    @property
    def weights_stay(self) -> bool:
        return math.prod(self.window.kernel) <= MOST_TAPS


def depthwise(product: Product, target: Target) -> Micro | None:
    """The Micro of a product whose innermost axis walks both operands; None where it is no such."""
    source, lanes, constant = product.rows.flat, product.lanes, product.panel
    if constant.buffer.data is None or source.stride(lanes) != 1 or target.variants[-1].lanes == 1:
        return None
    window = geometry(product, product.fold.axes)
    if window is None or work_of(product) < least_work(target):
        return None
    filters = gathered(constant, (*window.taps, lanes)).reshape(-1, lanes.extent)
    shared = _shared(product, window)
    addends, epilogue = product.addends, product.loops.value
    if shared > 1:
        filters = np.tile(filters, (1, shared))
        tiled = {load: _tiled(load, shared) for load in addends}
        addends = tuple(tiled.values())
        epilogue = replace_loads(epilogue, tiled)
    padded = np.pad(filters, ((0, 0), (0, -filters.shape[1] % WIDTH)))
    packed = Buffer(constant.buffer.name, padded.shape, FLOAT, "constant", padded)
    return Micro(
        "depthwise",
        product.loops,
        (product.rows.buffer, packed),
        Depthwise(window, lanes.extent, shared, _band(product, window)),
        epilogue,
        product.fold,
        addends,
        starts=starts_of(product),
    )


def _shared(product: Product, window: Geometry) -> int:
    """Few channels fill a vector together with those of the next pixels, if all lie in a row."""
    channels = product.lanes.extent
    pixels = WIDTH // math.gcd(channels, WIDTH)
    dense = window.strides[1] == 1 and window.x.column == window.y.column == channels
    constants = all(
        step == Step(0, 0, 1) and load.buffer.data is not None
        for step, load in zip(window.addends, product.addends, strict=True)
    )
    return pixels if dense and constants and window.columns % pixels == 0 else 1


def _band(product: Product, window: Geometry) -> int:
    inside = window.x.row * ((window.rows - 1) * window.strides[0] + window.kernel[0])
    if 4 * (inside + product.loops.out.elements) <= CACHE:
        return window.rows
    step = window.strides[0] * window.x.row + window.y.row
    return min(window.rows, max(1, (BAND // 4 - window.kernel[0] * window.x.row) // step))


def _tiled(load: Load, times: int) -> Load:
    """The constant of one value a channel, repeated."""
    (axis,) = (axis for axis, _ in load.flat.terms)
    values = np.tile(gathered(load, (axis,)), times)
    buffer = Buffer(load.buffer.name, values.shape, FLOAT, "constant", values)
    return Load(FLOAT, buffer, (along(axis),))


def pixels_of(parameters: Depthwise, variant: Variant) -> int:
    """How many outputs of a row at once: as many as the row, or an even part of it."""
    steps = parameters.window.columns // parameters.shared
    most, preferred = (7, (7, 4, 5, 6)) if variant.registers >= 32 else (3, (4, 5, 2, 3))
    return steps if steps <= most else next((n for n in preferred if steps % n == 0), 4)
