"""Rows of a run-time operand, each times a number, summed: depthwise with channels second."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from onnxc.dtypes import FLOAT
from onnxc.expression import Axis, Index
from onnxc.kernel import Micro
from onnxc.target import Target, Variant
from onnxc.tuned.contraction import least_work
from onnxc.tuned.geometry import work_of
from onnxc.tuned.product import Product

SHORTEST: Final = 16
"""Elements of a row: the vector of the widest variant."""
MOST_VECTORS: Final = 8
"""Of a row at once: as many sums as hide the latency of an addition."""


@dataclass(frozen=True)
class Steps:
    """How an operand moves, in elements: with each outer loop, and with each loop of the sum."""

    start: int
    outer: tuple[int, ...]
    folds: tuple[int, ...] = ()
    lane: int = 1


@dataclass(frozen=True)
class Rowwise:
    """What kernels/rowwise.c.j2 writes: out[n] = sum over `folds` of factor * row[n].

    outer     extents of the loops around a row of the output
    columns   of such a row
    folds     extents of the loops of the sum
    addends   of each load of the epilogue
    """

    outer: tuple[int, ...]
    columns: int
    folds: tuple[int, ...]
    rows: Steps
    factors: Steps
    result: Steps
    addends: tuple[Steps, ...]


def rowwise(product: Product, target: Target) -> Micro | None:
    """The Micro of a product whose output is as long as the rows of its panel operand, so that no
    row is of use twice; None of others.
    """
    lanes, panel, factors = product.lanes, product.panel, product.rows
    if product.dtype is not FLOAT or target.variants[-1].lanes == 1 or product.points:
        return None
    if panel.flat.stride(lanes) != 1 or factors.flat.stride(lanes) or lanes.extent < SHORTEST:
        return None
    if panel.buffer.data is not None or work_of(product) < least_work(target):
        return None
    if any(load.flat.stride(lanes) not in (0, 1) for load in product.addends):
        return None
    outer, folds = (*product.shared, *product.blocks), product.fold.axes
    if target.portable:  # as kernels of other targets add them
        folds = tuple(sorted(folds, key=lambda axis: -abs(factors.flat.stride(axis))))
    outer = tuple(sorted(outer, key=lambda axis: -abs(product.where.stride(axis))))

    def steps(index: Index, inner: tuple[Axis, ...] = ()) -> Steps:
        walked = tuple(map(index.stride, outer))
        return Steps(index.const, walked, tuple(map(index.stride, inner)), index.stride(lanes))

    parameters = Rowwise(
        outer=tuple(axis.extent for axis in outer),
        columns=lanes.extent,
        folds=tuple(axis.extent for axis in folds),
        rows=steps(panel.flat, folds),
        factors=steps(factors.flat, folds),
        result=steps(product.where),
        addends=tuple(steps(load.flat) for load in product.addends),
    )
    return Micro(
        "rowwise",
        product.loops,
        (panel.buffer, factors.buffer),
        parameters,
        product.loops.value,
        product.fold,
        product.addends,
    )


def vectors_of(parameters: Rowwise, variant: Variant) -> int:
    """Of a row at once: the last ones lie over those before, which shall be few."""
    most = min(MOST_VECTORS, max(1, parameters.columns // variant.lanes))

    def computed(vectors: int) -> int:
        return -(-parameters.columns // (vectors * variant.lanes)) * vectors

    return min(range(most, 0, -1), key=lambda n: computed(n) + (most if n < 3 else 0))
