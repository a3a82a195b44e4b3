"""Convolution 3x3, stride 1, with channels last, by Winograd's F(2x2, 3x3).

Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxc.dtypes import FLOAT
from onnxc.expression import Buffer
from onnxc.kernel import Micro
from onnxc.target import Target, Variant
from onnxc.tuned.geometry import Geometry, geometry, starts_of
from onnxc.tuned.product import Product
from onnxc.tuned.walks import viewed

if TYPE_CHECKING:
    from numpy.typing import NDArray

WIDTH: Final = 16
"""To a multiple of which channels are rounded up."""
PANEL: Final = 32
PLANES: Final = 16
FEWEST_CHANNELS: Final = 8
"""Of fewer the transforms cost more than the products that they save."""
HEAVIEST: Final = 8 << 20
"""Bytes of weights that, for few tiles, are still faster read than 9/16 of them multiplied more."""
CACHE: Final = 1 << 20
"""Bytes of weights that stay in the cache from one block of tiles to the next."""


@dataclass(frozen=True)
class Winograd:
    """What kernels/winograd.c.j2 writes.

    tiles          of 2x2 outputs
    block          of them that are transformed before they are multiplied
    u_pitch        floats from a tile to the next of the transformed input, u_plane those to its
                   next plane; m_pitch and m_plane the same of the products
    """

    window: Geometry
    channels: int
    outputs: int
    tiles: int
    block: int
    u_pitch: int
    u_plane: int
    m_pitch: int
    m_plane: int

    @property
    def prefetch(self) -> int:
        """How many rows of weights ahead they are asked for."""
        return 12 if _weight_bytes(self.channels, self.outputs) > CACHE else 0


def winograd(product: Product, target: Target) -> Micro | None:
    """The Micro of a product that is such a convolution, where it pays; else None."""
    source, lanes, constant = product.rows.flat, product.lanes, product.panel
    if constant.buffer.data is None or source.stride(lanes) or target.variants[-1].lanes == 1:
        return None
    if target.portable:
        return None  # not every target has it, and its sums are others
    inner = [axis for axis in product.fold.axes if source.stride(axis) == 1]
    taps = [axis for axis in product.fold.axes if axis not in inner]
    window = geometry(product, taps) if len(inner) == 1 else None
    if window is None or (window.kernel, window.strides, window.dilations) != (
        (3, 3),
        (1, 1),
        (1, 1),
    ):
        return None
    channels, outputs = inner[0].extent, lanes.extent
    tiles = -(-window.rows // 2) * -(-window.columns // 2)
    weights = _weight_bytes(channels, outputs)
    if min(channels, outputs) < FEWEST_CHANNELS or (weights > HEAVIEST and tiles < 32):
        return None
    if PLANES * tiles > 0.7 * 9 * window.rows * window.columns:
        return None  # most of a tile lies beyond the edge
    found = _plan(window, channels, outputs, tiles)
    packed = _packed(viewed(constant, (*window.taps, inner[0], lanes)))
    weights_buffer = Buffer(constant.buffer.name, packed.shape, FLOAT, "constant", packed)
    scratch = Buffer("", (PLANES * (found.u_plane + found.m_plane),), FLOAT, "workspace")
    starts = starts_of(product)
    return Micro(
        "winograd",
        product.loops,
        (product.rows.buffer, weights_buffer),
        found,
        product.loops.value,
        product.fold,
        product.addends,
        scratch=(scratch,),
        starts=(*starts[:-1], 0, starts[-1]),
    )


def _weight_bytes(channels: int, outputs: int) -> int:
    return 4 * PLANES * channels * _rounded(outputs)


def _rounded(channels: int) -> int:
    return -(-channels // WIDTH) * WIDTH


def _packed(weights: NDArray[Any]) -> NDArray[Any]:
    """[3][3][channels][outputs] as [panel][plane][channels][outputs of the panel], flat.

    In double, rounded once.
    """
    *_, channels, outputs = weights.shape
    width = _rounded(outputs)
    result = np.zeros(PLANES * channels * width, np.float32)
    for first in range(0, outputs, PANEL):
        size, live = min(PANEL, width - first), min(PANEL, outputs - first)
        start = PLANES * channels * first
        planes = result[start : start + PLANES * channels * size].reshape(4, 4, channels, size)
        filters = weights[..., first : first + live].astype(np.float64) + 0.0  # no zero is negative
        rows = np.empty((4, 3, channels, live))
        _transform(filters, rows)
        _transform(rows.swapaxes(0, 1), planes[..., :live].swapaxes(0, 1))
    return result


def _transform(taps: NDArray[Any], values: NDArray[Any]) -> None:
    """The rows g0, (g0 + g1 + g2) / 2, (g0 - g1 + g2) / 2, g2 into `values`."""
    outer = taps[0] + taps[2]
    values[0] = taps[0]
    values[1] = (outer + taps[1]) * 0.5
    values[2] = (outer - taps[1]) * 0.5
    values[3] = taps[2]


def _plan(window: Geometry, channels: int, outputs: int, tiles: int) -> Winograd:
    block = _block(tiles, channels, outputs)
    u_pitch, m_pitch = _rounded(channels), min(PANEL, _rounded(outputs))
    u_pitch += WIDTH if u_pitch % 512 == 0 else 0  # or all tiles fall into the same cache sets
    planes = (_plane(block * u_pitch), _plane(block * m_pitch))
    return Winograd(window, channels, outputs, tiles, block, u_pitch, planes[0], m_pitch, planes[1])


def _plane(floats: int) -> int:
    """An odd number of cache lines, so that the planes fall into different sets of the cache."""
    return WIDTH * (-(-floats // WIDTH) | 1)


def _block(tiles: int, channels: int, outputs: int) -> int:
    """As few tiles as leave the cache to the weights, unless these do not stay there anyway."""
    heavy = _weight_bytes(channels, outputs) > CACHE
    least, most = (28, 64) if heavy else (12, 16)
    again = channels * (40 if heavy else 4)

    def total(block: int) -> float:
        height = _height(tiles, block, channels, outputs, WIDTH)
        narrow = outputs <= WIDTH
        return _cost(tiles, block, height, channels, narrow) - (-tiles // block) * again

    return min(range(min(tiles, least), min(tiles, most) + 1), key=total)


def height_of(parameters: Winograd, variant: Variant) -> int:
    """Tiles of a multiplication step."""
    p = parameters
    return _height(p.tiles, p.block, p.channels, p.outputs, variant.lanes)


def _height(tiles: int, block: int, channels: int, outputs: int, lanes: int) -> int:
    narrow = outputs <= WIDTH and lanes == WIDTH
    most = min(block, 28 if narrow else 14 if lanes == WIDTH else 6)
    costs = {n: _cost(tiles, block, n, channels, narrow) for n in range(1, most + 1)}
    return min(costs, key=lambda n: (costs[n], n))


def _cost(tiles: int, block: int, height: int, channels: int, narrow: bool) -> float:
    whole, rest = divmod(tiles, block)
    return whole * _cycles(block, height, channels, narrow) + _cycles(
        rest, height, channels, narrow
    )


def _cycles(count: int, height: int, channels: int, narrow: bool) -> float:
    """Of `count` tiles by a panel of one plane: each step has its own start and end."""
    vectors = 1 if narrow else 2
    steps: Iterable[int] = [height] * (count // height) + [count % height][: count % height]
    return math.fsum(
        channels * max(n * vectors / 2, (n + vectors) / 2, 4.0) + 12 + 3 * n * vectors
        for n in steps
    )
