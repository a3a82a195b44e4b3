"""The tile of a convolution or matrix product: rows broadcast, panels of packed constants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxc.dtypes import FLOAT, ElementType
from onnxc.expression import Apply, Axis, Buffer, Expr, Index, Load
from onnxc.kernel import Micro
from onnxc.target import Target, Variant
from onnxc.traversal import axes_read, walk
from onnxc.tuned.geometry import work_of
from onnxc.tuned.product import Product
from onnxc.tuned.walks import joined, viewed

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST_WORK: Final = 1024
"""Multiplications below which the plain loops stay."""
LEAST_IN_LITTLE_CODE: Final = 4096
"""The same where little code is wanted, or there are no vectors to gain by."""
NEARBY: Final = 1 << 16
"""Bytes of constants that are hoped to be in the second-level cache from the run before."""
PREFETCH_ROWS: Final = 16
"""Of a panel that are asked for ahead: as long as the third-level cache takes to answer."""
LEAST_PASSES: Final = 4
"""Of tiles over a panel, and panels, from which the next panel is asked for meanwhile."""
ALIASED: Final = 4096
"""Bytes: rows so far apart share one set of a first-level cache, which has 8 to 12 ways."""
WAYS: Final = 10
"""Rows that such a set holds beside the panel."""
SHORTEST: Final = 16
"""Elements of a row of a panel operand that is read where it is."""
VECTORS: Final = 2
"""Of a tile, along the lanes."""
COPIED_FROM: Final = 28
"""Rows that read a panel, from which it pays to copy it together first."""
SPAN: Final = 1 << 19
"""Bytes of rows that stay in the second-level cache while all panels pass."""
FEW: Final = 1 << 18
"""Bytes of panels that stay there themselves, while the rows pass."""
NARROW: Final = 1 << 14
"""Bytes of rows that stay in the first-level cache meanwhile."""


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

    dtype    of all elements: float or double
    outer    extents of loops, of which the first `around` are outside of the loop over panels
    rows     and columns: the extents that tiles divide
    lanes    the extent of the innermost axis of the output
    folds    (extent, stride of the source), outermost first
    panel    elements of a panel; `last` of the last one
    block    elements of the packed constants for one point of the loops around the panels
    addends  of each load of the epilogue, its walk
    start    which of them the sums begin with, such as a bias; None: with zero
    placed   the walk of a panel operand that is no constant, read where it is: `pitch` elements
             from one row to the next
    copied   whether a panel of `placed` is copied together first, which `panel_folds` walk
    whole    whether all of them are, before any row meets one
    counted  whether the caller says how many rows there are; `rows` is then 1
    """

    dtype: ElementType
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
    panel_folds: tuple[tuple[int, int], ...] = ()
    counted: bool = False

    @property
    def few(self) -> bool:
        """Whether all panels of a point of the loops around them stay in the cache, for the rows
        to pass; not where the next point's are asked for meanwhile.
        """
        fit = self.lanes * self.length * self.dtype.size <= FEW
        return fit and not (self.around and self.prefetch)

    @property
    def whole(self) -> bool:
        return self.copied and self.few

    @property
    def source_bytes(self) -> int:
        """From one column of the source to the next."""
        return self.source.column * self.dtype.size

    @property
    def copied(self) -> bool:
        return bool(self.panel_folds)

    @property
    def length(self) -> int:
        return math.prod(extent for extent, _ in self.folds)

    @property
    def prefetch(self) -> int:
        """How many floats ahead a panel is asked for; 0 where it may be in the cache."""
        far = self.dtype is FLOAT and 4 * self.block > NEARBY
        return PREFETCH_ROWS * self.panel if far else 0


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
    if source.stride(lanes) or (given and not _in_rows(product, target)):
        return None
    if any(load.flat.stride(lanes) not in (0, 1) for load in product.addends):
        return None
    around = (*product.shared, *product.blocks)
    if work_of(product) < least_work(target):
        return None
    folds = sorted(product.fold.axes, key=lambda axis: -abs(source.stride(axis)))
    inside, row, column = _split(product.points)
    outer = (*around, *inside)

    def walked(index: Index) -> Walk:
        strides = tuple(index.stride(axis) for axis in outer)
        down, right = (index.stride(axis) if axis else 0 for axis in (row, column))
        return Walk(index.const, strides, down, right, index.stride(lanes))

    copied = given and is_copied(product, target)
    total, start = first_addend(product, target)
    operand = product.panel.buffer if given else _constant(product, (*around, *folds), target)
    parameters = Contraction(
        dtype=product.dtype,
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
        panel_folds=joined([(axis.extent, product.panel.flat.stride(axis)) for axis in folds])
        if copied
        else (),
    )
    width = copied_width(product, target)
    panels = -(-lanes.extent // width) if parameters.whole else 1
    panel = Buffer("", (panels, product.length, width), product.dtype, "workspace")
    return Micro(
        "contraction",
        product.loops,
        (product.rows.buffer, operand),
        parameters,
        product.loops.value,
        total,
        product.addends,
        scratch=(panel,) if copied else (),
    )


def least_work(target: Target) -> int:
    """Multiplications below which the plain loops stay."""
    fast = target.variants[-1].lanes > 1 and not target.small
    return LEAST_WORK if fast else LEAST_IN_LITTLE_CODE


def is_copied(product: Product, target: Target) -> bool:
    """Whether panels of a run-time operand are copied together: rows that lie far apart fall into
    few sets of the caches, and the last vector of each would be put together again and again.

    Not where a panel of short rows takes much more memory than these.
    """
    index, width = product.panel.flat, copied_width(product, target)
    rows = math.prod(axis.extent for axis in product.points)
    if index.stride(product.lanes) != 1 or rows < COPIED_FROM:
        return False
    large = product.length * width * product.dtype.size > FEW
    return not (large and width > 2 * product.lanes.extent)


def copied_width(product: Product, target: Target) -> int:
    """Elements of a row of a panel that is copied together, in the variant that has the most.

    Each has a power of two of them, and the base may be built without vectors: it has two then.
    """
    lanes = [max(1, v.lanes * FLOAT.size // product.dtype.size) for v in target.variants]
    one = [
        v.suffix != "" and product.lanes.extent <= n
        for v, n in zip(target.variants, lanes, strict=True)
    ]
    return max(n if alone else VECTORS * n for n, alone in zip(lanes, one, strict=True))


def _in_rows(product: Product, target: Target) -> bool:
    """Whether the elements of a vector are neighbours, and the rows follow one another.

    Of rows shorter than a vector each would be put together element by element.
    """
    index = product.panel.flat
    if is_copied(product, target):
        return True
    if product.lanes.extent < SHORTEST:
        return False
    return index.stride(product.lanes) == 1 and len(product.fold.axes) == 1


def _constant(product: Product, axes: Sequence[Axis], target: Target) -> Buffer:
    """The panel operand, packed; `axes` without the lanes."""
    values = packed(viewed(product.panel, (*axes, product.lanes)), product.length, target)
    return Buffer(product.panel.buffer.name, values.shape, product.dtype, "constant", values)


def first_addend(product: Product, target: Target) -> tuple[Expr, int | None]:
    """The sum, with what is added to it at once where that differs between lanes alone.

    Both are then for this addition alone, as neither has a value of its own any more. The sum alone
    where its bits are to be those of kernels that begin with nothing else.
    """
    if target.portable:
        return product.fold, None
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
    if parameters.source_bytes % ALIASED == 0 and parameters.source_bytes:
        most = min(most, WAYS)
    columns = -(-parameters.columns // -(-parameters.columns // most))
    rows = min(parameters.rows, max(1, most // columns)) if columns == parameters.columns else 1
    return Tile(-(-parameters.rows // -(-parameters.rows // rows)), columns)


def span_of(parameters: Contraction, tile: Tile) -> int:
    """Rows, or columns where there is one row, that pass over all panels together; 0: all do."""
    p = parameters
    total, step, stride = (
        (p.rows, tile.rows, p.source.row)
        if p.rows > 1
        else (p.columns, tile.columns, p.source.column)
    )
    most = NARROW if p.few else SPAN * (2 if p.copied else 1)  # panels are copied for each span
    size = stride * p.dtype.size
    if p.counted or p.lanes <= p.panel or total * size <= 2 * most:
        return 0
    span = max(1, most // (size * step)) * step
    return span if span < total else 0


def stream_of(parameters: Contraction, tile: Tile, span: int, lanes: int) -> int:
    """Floats of the next panel that each row of a panel asks for, in a variant of so many lanes.

    The tiles that read a panel share the next one, so that it arrives evenly while they compute. 0
    where tiles or panels are few, or where panels may be in the cache from the run before: rows
    further on in the same panel are asked for then, or none.
    """
    p = parameters
    rows, columns = -(-p.rows // tile.rows), -(-p.columns // tile.columns)
    if span and p.rows > 1:
        rows = span // tile.rows
    elif span:
        columns = span // tile.columns
    passes = math.prod(p.outer[p.around :]) * rows * columns
    panels = math.prod(p.outer[: p.around]) * p.lanes // p.panel
    if not p.prefetch or passes < LEAST_PASSES or panels < LEAST_PASSES:
        return 0
    return -(-VECTORS * lanes // passes)


def _split(points: tuple[Axis, ...]) -> tuple[tuple[Axis, ...], Axis | None, Axis | None]:
    """The loops outside of the tile, its rows and its columns."""
    sides = (None, None, *points)
    return points[:-2], sides[-2], sides[-1]


def _last_panel(lanes: int, target: Target) -> int:
    rest = lanes % target.panel or target.panel
    return -(-rest // target.whole) * target.whole


def packed(weights: NDArray[Any], length: int, target: Target) -> NDArray[Any]:
    """[blocks][length][lanes] as [blocks][panels][length][panel], the last panel narrower.

    `blocks` and `length` may each be several dimensions of `weights`, or none.
    """
    *outer, lanes = weights.shape
    width = target.panel * (-(-lanes // target.panel) - 1) + _last_panel(lanes, target)
    result = np.zeros((math.prod(outer) // length, length * width), weights.dtype)
    for first in range(0, lanes, target.panel):
        size = min(target.panel, width - first)
        panel = result[:, length * first : length * (first + size)].reshape(*outer, size)
        assert np.may_share_memory(panel, result)
        panel[..., : lanes - first] = weights[..., first : first + size]
    return result
