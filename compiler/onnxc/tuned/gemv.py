"""A row or a few times a constant matrix, which is read once, as fast as memory gives it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from onnxc.dtypes import FLOAT
from onnxc.expression import Buffer
from onnxc.kernel import Micro
from onnxc.target import Target
from onnxc.tuned.contraction import first_addend, packed
from onnxc.tuned.geometry import starts_of, work_of
from onnxc.tuned.product import Product
from onnxc.tuned.walks import viewed

MOST_ROWS: Final = 4
LEAST_WORK: Final = 256
"""Multiplications below which the plain loops stay."""
CACHE: Final = 1 << 20
"""Bytes of weights, of the whole model, from which they are asked for ahead."""
AHEAD: Final = 4096
"""Bytes by which they are."""


@dataclass(frozen=True)
class Gemv:
    """What kernels/gemv.c.j2 writes.

    steps  of each addend of the epilogue: (with a row, with a column)
    bias   which of them the sums begin with
    in_order  whether every variant adds all products in ascending order
    """

    rows: int
    inner: int
    columns: int
    x_pitch: int
    y_pitch: int
    panel: int
    least: int
    steps: tuple[tuple[int, int], ...]
    bias: int | None
    in_order: bool

    @property
    def ahead(self) -> int:
        return AHEAD if 4 * self.inner * self.columns > CACHE else 0


def gemv(product: Product, target: Target) -> Micro | None:
    """The Micro of a product of a few contiguous rows and a constant; None of others."""
    source, lanes, constant = product.rows.flat, product.lanes, product.panel
    folds = product.fold.axes
    if constant.buffer.data is None or source.stride(lanes) or product.shared or product.blocks:
        return None
    if len(folds) != 1 or source.stride(folds[0]) != 1 or len(product.points) > 1:
        return None
    row = product.points[0] if product.points else None
    rows = row.extent if row else 1
    if rows > MOST_ROWS or work_of(product) < LEAST_WORK:
        return None
    total, bias = first_addend(product, target)
    steps = tuple(
        (load.flat.stride(row) if row else 0, load.flat.stride(lanes)) for load in product.addends
    )
    if any(column not in (0, 1) for _, column in steps):
        return None
    values = packed(viewed(constant, (folds[0], lanes)), product.length, target)
    panels = Buffer(constant.buffer.name, values.shape, FLOAT, "constant", values)
    return Micro(
        "gemv",
        product.loops,
        (product.rows.buffer, panels),
        Gemv(
            rows,
            product.length,
            lanes.extent,
            source.stride(row) if row else 0,
            product.where.stride(row) if row else 0,
            target.panel,
            target.whole,
            steps,
            bias,
            target.portable,
        ),
        product.loops.value,
        total,
        product.addends,
        starts=starts_of(product),
    )
