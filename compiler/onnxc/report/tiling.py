"""What tuned kernels cost beyond their products, by how they are cut into tiles.

Everything is counted in units: the time of one vector instruction of products at the processor's
highest rate, that is half a cycle where two of them start in each. A load takes one, too, a store
two. An estimate that explains a measured time, not one that choices are made by.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from onnxc.kernel import Micro
from onnxc.target import Variant
from onnxc.tuned.bands import Bands
from onnxc.tuned.byte_transpose import ByteTranspose
from onnxc.tuned.contraction import VECTORS, Contraction, tile_of
from onnxc.tuned.depthwise import Depthwise, pixels_of
from onnxc.tuned.gemv import Gemv
from onnxc.tuned.integer_depthwise import IntegerDepthwise
from onnxc.tuned.integer_depthwise import tile_of as integer_tile_of
from onnxc.tuned.integer_product import IntegerProduct, rows_of
from onnxc.tuned.padded_rows import PaddedRows
from onnxc.tuned.transpose import Transpose
from onnxc.tuned.windows_pool import Pool
from onnxc.tuned.windows_pool import pixels_of as windows_of
from onnxc.tuned.winograd import Winograd, height_of

LATENCY: Final = 8
"""Units from a sum to the next one that adds to it."""
CALL: Final = 40
"""Of a tile: the call, the loop's start and its end."""
RESTART: Final = 16
"""Of an inner loop over a part of a sum, of 7 steps as measured: its end, and the next start."""
STORE: Final = 2
SHUFFLE: Final = 2
BYTES: Final = 16
"""Of a vector that is turned."""
GREATER: Final = 5
"""Of two vectors, lane by lane: a comparison each way, and what is left of both."""
BITS: Final = 3
"""The same where bits compare as integers."""


@dataclass(frozen=True)
class Tiles:
    """Units of a kernel.

    products  if every vector were full and nothing else were done
    empty     of lanes that hold no number
    waits     in which too few sums are under way, or loads are more than products
    ends      of the starts, stores and calls of tiles
    step      how many products long the sums are
    shape     of the most frequent tile: points and vectors
    fill      the share of the lanes that hold a number
    """

    products: float
    empty: float
    waits: float
    ends: float
    step: int
    shape: tuple[int, int]
    fill: float

    @property
    def total(self) -> float:
        return self.products + self.empty + self.waits + self.ends


@dataclass(frozen=True)
class _Tile:
    """`count` tiles of so many points and vectors, `lanes` of which hold numbers."""

    count: int
    points: int
    vectors: int
    lanes: int


def tiles_of(kernel: Micro, variant: Variant, dot: float) -> Tiles | None:
    """Of a kernel that sums products by tiles; None of others.

    dot  units of an instruction that sums products of bytes
    """
    match kernel.parameters:
        case Contraction() as p:
            lanes = variant.lanes // (p.dtype.size // 4)
            tile = tile_of(p, variant)
            spread = [
                (rows * columns, n * m)
                for rows, n in _divided(p.rows, tile.rows)
                for columns, m in _divided(p.columns, tile.columns)
            ]
            cut = _cut(spread, p.lanes, max(1, lanes), math.prod(p.outer))
            inner = p.folds[-1][0] if p.folds else 1
            return _summed(cut, p.length, lanes, 1.0, restarts=p.length // inner - 1)
        case IntegerProduct() as p:
            spread = _divided(p.columns, rows_of(p, variant, dot=bool(variant.dot)))
            cut = _cut(spread, p.lanes, variant.lanes, math.prod(p.outer))
            *outer, inner = [extent for extent, _ in p.folds]
            groups = math.prod(outer) * -(-inner // 4)
            share = math.prod(outer) * inner / (4 * groups)
            return _summed(cut, groups, variant.lanes, dot, share, broadcast=2)
    return None


def _divided(extent: int, size: int) -> list[tuple[int, int]]:
    """(size of a part, how many) of what an extent is cut into."""
    whole, rest = divmod(extent, size)
    parts = [(size, whole)] if whole else []
    return parts + ([(rest, 1)] if rest else [])


def _cut(spread: list[tuple[int, int]], numbers: int, lanes: int, around: int) -> list[_Tile]:
    """Tiles of (points, how many) by all the vectors of `numbers`."""
    whole, rest = divmod(numbers, VECTORS * lanes)
    panels = [(VECTORS, VECTORS * lanes, whole)] if whole else []
    panels += [(-(-rest // lanes), rest, 1)] if rest else []
    return [
        _Tile(around * count * times, points, vectors, live)
        for points, count in spread
        for vectors, live, times in panels
    ]


def _summed(
    cut: list[_Tile],
    step: int,
    lanes: int,
    unit: float,
    share: float = 1.0,
    broadcast: int = 1,
    restarts: int = 0,
) -> Tiles:
    """Of tiles whose sums have `step` vector products, each of `unit` units.

    share  of each product that is no padding; `broadcast`: units for each value that all lanes get;
           `restarts`: how often the innermost loop over a sum begins anew
    """
    products = empty = waits = ends = 0.0
    for tile in cut:
        sums = tile.points * tile.vectors
        needed = tile.points * tile.lanes / lanes * step * unit
        products += tile.count * needed * share
        empty += tile.count * (sums * step * unit - needed * share)
        loads = tile.points * broadcast + tile.vectors
        waits += tile.count * step * (max(sums * unit, loads, LATENCY * unit) - sums * unit)
        ends += tile.count * (sums * (1 + STORE) + CALL + restarts * RESTART)
    most = max(cut, key=lambda tile: tile.count * tile.points * tile.vectors)
    fill = products / (products + empty) if products else 1.0
    return Tiles(products, empty, waits, ends, step, (most.points, most.vectors), fill)


def units(kernel: Micro, variant: Variant, dot: float) -> float:
    """Of the whole kernel, memory aside; 0 where nothing is known."""
    lanes = variant.lanes
    if tiles := tiles_of(kernel, variant, dot):
        return tiles.total
    match kernel.parameters:
        case Depthwise() as p:
            return _depthwise(p, variant)
        case IntegerDepthwise() as p:
            return _integer_depthwise(p, variant)
        case Gemv() as p:
            vectors = -(-p.columns // lanes)
            return vectors * (p.inner * max(1, p.rows) + p.rows * (1 + STORE)) + CALL
        case Winograd() as p:
            return _winograd(p, variant)
        case Transpose() as p:
            whole = math.prod(e for e, _, _ in p.outer) * p.rows * p.columns / lanes
            return whole * (SHUFFLE * math.log2(max(2, lanes)) + 1 + STORE)
        case ByteTranspose() as p:
            whole = math.prod(e for e, _, _ in p.outer) * p.rows * p.columns / BYTES
            return whole * (SHUFFLE * math.log2(BYTES) + 1 + STORE)
        case Pool() as p:
            return _pool(p, variant)
        case PaddedRows() as p:
            rows = math.prod(extent for extent, _, _ in p.outer)
            return rows * (-(-p.row // lanes) * (1 + STORE) + CALL)
        case Bands() as p:
            return sum(_rows(part.kernel, part.rows, variant, dot) for part in p.parts)
    return 0.0


def _rows(kernel: Micro, rows: int, variant: Variant, dot: float) -> float:
    """Of a part of bands, whose parameters are of one row, or of all."""
    p = kernel.parameters
    match p:
        case Depthwise():
            once = p.window.rows == rows
        case PaddedRows() | Pool():
            once = True
        case _:
            once = p.rows == rows
    return units(kernel, variant, dot) * (1 if once else rows)


def _depthwise(p: Depthwise, variant: Variant) -> float:
    window, taps = p.window, math.prod(p.window.kernel)
    groups = window.rows * window.columns // p.shared
    vectors = groups * -(-p.channels * p.shared // variant.lanes)
    weights = 0 if p.weights_stay else taps / pixels_of(p, variant)
    steps = vectors / pixels_of(p, variant)
    waits = max(0, LATENCY - pixels_of(p, variant)) * taps
    return vectors * (taps + weights + 2 + STORE) + steps * (waits + CALL / 4)


def _pool(p: Pool, variant: Variant) -> float:
    """Of each tile: its columns of taps are loaded and compared, then those of each window."""
    rows, columns = p.rows, p.columns
    windows = max(1, windows_of(p, variant))
    read = (windows - 1) * columns.stride + columns.reach
    compared = read * (rows.taps - 1) + windows * (columns.taps - 1)
    each = read * rows.taps + (BITS if p.positive else GREATER) * compared + windows * STORE
    tiles = p.images * rows.outputs * columns.outputs / windows
    return tiles * (-(-p.channels // variant.lanes) * each + CALL / 4)


def _integer_depthwise(p: IntegerDepthwise, variant: Variant) -> float:
    """Of each row: bytes are widened and paired, pairs multiplied and added; 16 finish a vector."""
    tile = integer_tile_of(p, variant)
    tiles = -(-p.columns // (tile.rows * p.pixels)) * -(-p.channels // variant.lanes)
    reads = tile.places * (2 * len(p.down) + p.pairs)
    return math.prod(p.outer) * tiles * (reads + tile.rows * (2 * p.across[0] * p.pairs + 16))


def _winograd(p: Winograd, variant: Variant) -> float:
    """16 products for 4 outputs, the transforms before and after, starts and ends of steps."""
    lanes, height = variant.lanes, height_of(p, variant)
    read, made = -(-p.channels // lanes), -(-p.outputs // lanes)
    steps = 16 * -(-p.tiles // height) * -(-made // VECTORS)
    products = 16 * p.tiles * p.channels * made
    transforms = p.tiles * (read * (32 + 16 + 16 * STORE) + made * (24 + 16 + 4 * STORE))
    return products + transforms + steps * (CALL / 2 + height * VECTORS * (1 + STORE))


def described(tiles: Tiles) -> Iterator[tuple[str, float]]:
    """What makes a kernel of tiles slower than its products, and how many units it costs."""
    points, vectors = tiles.shape
    yield f"lanes are {100 * tiles.fill:.0f} % full", tiles.empty
    yield (
        f"a tile of {points} x {vectors} vectors has too few sums under way, or more loads than"
        " products",
        tiles.waits,
    )
    yield (
        f"sums of only {tiles.step} steps: starting, storing and calling a tile of"
        f" {points} x {vectors} vectors takes much of the time",
        tiles.ends,
    )
