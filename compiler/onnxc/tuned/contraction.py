"""The tile of a convolution or matrix product: rows broadcast, panels of packed constants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxc.dtypes import FLOAT
from onnxc.expression import Apply, Axis, Buffer, Expr, Index, Load
from onnxc.kernel import Micro
from onnxc.target import Target, Variant
from onnxc.traversal import axes_read, walk
from onnxc.tuned.product import Product
from onnxc.tuned.walks import gathered, joined

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST_WORK: Final = 4096
"""Multiplications below which the plain loops stay."""
NEARBY: Final = 1 << 16
"""Bytes of constants that are hoped to be in the second-level cache from the run before."""
PREFETCH_ROWS: Final = 16
"""Of a panel that are asked for ahead: as long as the third-level cache takes to answer."""
ALIASED: Final = 4096
"""Bytes: rows so far apart share one set of a first-level cache, which has 8 to 12 ways."""
WAYS: Final = 10
"""Rows that such a set holds beside the panel."""
SHORTEST: Final = 16
"""Elements of a row of a panel operand that is read where it is."""
VECTORS: Final = 2
"""Of a tile, along the lanes."""


@dataclass(frozen=True)
class Walk:
    """How an operand moves, in elements: with each outer loop, row and column of a tile, lane."""

    start: int
    outer: tuple[int, ...]
    row: int
    column: int
    lane: int


@dataclass(frozen=True)
class Contraction:
    """What kernels/contraction.c.j2 writes.

    outer    extents of loops, of which the first `around` are outside of the loop over panels
    rows     and columns: the extents that tiles divide
    lanes    the extent of the innermost axis of the output
    folds    (extent, stride of the source), outermost first
    panel    floats of a panel; `last` of the last one
    block    floats of the packed constants for one point of the loops around the panels
    addends  of each load of the epilogue, its walk
    start    which of them the sums begin with, such as a bias; None: with zero
    placed   the walk of a panel operand that is no constant, read where it is: `pitch` elements
             from one row to the next
    counted  whether the caller says how many rows there are; `rows` is then 1
    """

    outer: tuple[int, ...]
    around: int
    rows: int
    columns: int
    lanes: int
    folds: tuple[tuple[int, int], ...]
    panel: int
    last: int
    block: int
    source: Walk
    result: Walk
    addends: tuple[Walk, ...]
    start: int | None
    placed: Walk | None = None
    pitch: int = 0
    counted: bool = False

    @property
    def length(self) -> int:
        return math.prod(extent for extent, _ in self.folds)

    @property
    def prefetch(self) -> int:
        """How many floats ahead the panels are asked for; 0 where they may be in the cache."""
        return PREFETCH_ROWS * self.panel if 4 * self.block > NEARBY else 0


@dataclass(frozen=True)
class Tile:
    """So many rows and columns of the output at once."""

    rows: int
    columns: int


def contraction(product: Product, target: Target) -> Micro | None:
    """The Micro of a product of rows and a panel operand; None where it is none, or no gain.

    The panel operand is a constant, which is packed, or lies in memory row by row.
    """
    lanes, source = product.lanes, product.rows.flat
    given = product.panel.buffer.data is None
    if source.stride(lanes) or (given and not _in_rows(product)):
        return None
    if any(load.flat.stride(lanes) not in (0, 1) for load in product.addends):
        return None
    around = (*product.shared, *product.blocks)
    if math.prod(a.extent for a in product.loops.axes) * product.length < LEAST_WORK:
        return None
    folds = sorted(product.fold.axes, key=lambda axis: -abs(source.stride(axis)))
    inside, row, column = _split(product.points)
    outer = (*around, *inside)

    def walked(index: Index) -> Walk:
        strides = tuple(index.stride(axis) for axis in outer)
        down, right = (index.stride(axis) if axis else 0 for axis in (row, column))
        return Walk(index.const, strides, down, right, index.stride(lanes))

    total, start = first_addend(product)
    operand = product.panel.buffer if given else _constant(product, (*around, *folds), target)
    parameters = Contraction(
        outer=tuple(axis.extent for axis in outer),
        around=len(around),
        rows=row.extent if row else 1,
        columns=column.extent if column else 1,
        lanes=lanes.extent,
        folds=joined([(axis.extent, source.stride(axis)) for axis in folds]),
        panel=target.panel,
        last=_last_panel(lanes.extent, target),
        block=0 if given else operand.shape[1],
        source=walked(source),
        result=walked(product.where),
        addends=tuple(walked(load.flat) for load in product.addends),
        start=start,
        placed=walked(product.panel.flat) if given else None,
        pitch=product.panel.flat.stride(product.fold.axes[0]) if given else 0,
    )
    return Micro(
        "contraction",
        product.loops,
        (product.rows.buffer, operand),
        parameters,
        product.loops.value,
        total,
        product.addends,
    )


def _in_rows(product: Product) -> bool:
    """Whether the elements of a vector are neighbours, and the rows follow one another.

    Of rows shorter than a vector each would be put together element by element.
    """
    index = product.panel.flat
    if product.lanes.extent < SHORTEST:
        return False
    return index.stride(product.lanes) == 1 and len(product.fold.axes) == 1


def _constant(product: Product, axes: Sequence[Axis], target: Target) -> Buffer:
    """The panel operand, packed; `axes` without the lanes."""
    weights = gathered(product.panel, (*axes, product.lanes))
    values = packed(weights.reshape(-1, product.length, product.lanes.extent), target)
    return Buffer(product.panel.buffer.name, values.shape, FLOAT, "constant", values)


def first_addend(product: Product) -> tuple[Expr, int | None]:
    """The sum, with what is added to it at once where that differs between lanes alone.

    Both are then for this addition alone, as neither has a value of its own any more.
    """
    fold, nodes = product.fold, list(walk(product.loops.value, inner=False))
    for node in nodes:
        if isinstance(node, Apply) and node.operation == "add" and fold in node.args:
            other = next((arg for arg in node.args if arg is not fold), None)
            users = [n for n in nodes if fold in n.operands() or other in n.operands()]
            if isinstance(other, Load) and axes_read(other) == {product.lanes} and users == [node]:
                return node, product.addends.index(other)
    return fold, None


def tile_of(parameters: Contraction, variant: Variant) -> Tile:
    """The largest that leaves registers for a row of the panel and what is broadcast.

    Columns are divided evenly, so that the last tile is about as large as the others.
    """
    vectors = 1 if parameters.lanes <= variant.lanes else VECTORS
    most = max(1, (variant.registers - 1 - vectors) // vectors)
    most = min(most, 28 // vectors)
    if 4 * parameters.source.column % ALIASED == 0 and parameters.source.column:
        most = min(most, WAYS)
    columns = -(-parameters.columns // -(-parameters.columns // most))
    rows = min(parameters.rows, max(1, most // columns)) if columns == parameters.columns else 1
    return Tile(-(-parameters.rows // -(-parameters.rows // rows)), columns)


def _split(points: tuple[Axis, ...]) -> tuple[tuple[Axis, ...], Axis | None, Axis | None]:
    """The loops outside of the tile, its rows and its columns."""
    sides = (None, None, *points)
    return points[:-2], sides[-2], sides[-1]


def _last_panel(lanes: int, target: Target) -> int:
    rest = lanes % target.panel or target.panel
    return -(-rest // target.whole) * target.whole


def packed(weights: NDArray[Any], target: Target) -> NDArray[Any]:
    """[blocks][length][lanes] as [blocks][panels][length][panel], the last panel narrower."""
    blocks, length, lanes = weights.shape
    panels = -(-lanes // target.panel) - 1
    width = panels * target.panel + _last_panel(lanes, target)
    padded = np.pad(weights, ((0, 0), (0, 0), (0, width - lanes)))
    whole = padded[:, :, : panels * target.panel].reshape(blocks, length, panels, target.panel)
    parts = [whole.transpose(0, 2, 1, 3).reshape(blocks, -1)]
    parts.append(padded[:, :, panels * target.panel :].reshape(blocks, -1))
    return np.ascontiguousarray(np.concatenate(parts, 1))
