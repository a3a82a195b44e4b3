"""A convolution with channels last, read from how its loops walk memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from onnxc.expression import Axis, Index
from onnxc.tuned.product import Product


@dataclass(frozen=True)
class Step:
    """How an operand moves with a row, a column and a channel of the output, in elements."""

    row: int
    column: int
    channel: int


@dataclass(frozen=True)
class Geometry:
    """Windows over rows of pixels; a dimension that is not there has an extent of 1.

    taps      the axes of the filter that there are, rows first
    x, y      what is read and written
    addends   of each load of the epilogue
    """

    rows: int
    columns: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    taps: tuple[Axis, ...]
    x: Step
    y: Step
    addends: tuple[Step, ...]


def geometry(product: Product, taps: Sequence[Axis]) -> Geometry | None:
    """Of a product without groups, batches and blocks, whose windows `taps` walk; None of others.

    Rows and pixels are those of the buffer that is read: its last three dimensions.
    """
    source, lanes, shape = product.rows.flat, product.lanes, product.rows.buffer.shape
    if product.shared or product.blocks or len(product.points) > 2 or len(shape) < 3:
        return None
    pixel = shape[-1]
    row = pixel * shape[-2] if len(shape) > 3 else 0
    down, right = _sides(taps, row, source)
    rows, column = _sides(product.points, row, source)
    if sum(axis is not None for axis in (down, right)) != len(taps):
        return None
    if sum(axis is not None for axis in (rows, column)) != len(product.points):
        return None
    strides = _units(rows, row, source), _units(column, pixel, source)
    dilations = _units(down, row, source), _units(right, pixel, source)
    if 0 in (*strides, *dilations):
        return None

    def step(index: Index) -> Step:
        return Step(_stride(index, rows), _stride(index, column), index.stride(lanes))

    addends = tuple(step(load.flat) for load in product.addends)
    if any(addend.channel not in (0, 1) for addend in addends):
        return None
    return Geometry(
        _extent(rows),
        _extent(column),
        (_extent(down), _extent(right)),
        strides,
        dilations,
        tuple(axis for axis in (down, right) if axis),
        Step(row, pixel, 1),
        step(product.where),
        addends,
    )


def _sides(axes: Sequence[Axis], row: int, index: Index) -> tuple[Axis | None, Axis | None]:
    """The axis that walks rows, and the one that walks pixels."""
    down = [a for a in axes if row and index.stride(a) and index.stride(a) % row == 0]
    right = [a for a in axes if a not in down]
    return (down[0] if down else None), (right[0] if right else None)


def _units(axis: Axis | None, unit: int, index: Index) -> int:
    """How many rows or pixels a step of the axis is; 0 where it is no whole number of them."""
    stride = _stride(index, axis)
    if axis is None:
        return 1
    return stride // unit if unit and stride > 0 and stride % unit == 0 else 0


def _stride(index: Index, axis: Axis | None) -> int:
    return 0 if axis is None else index.stride(axis)


def _extent(axis: Axis | None) -> int:
    return 1 if axis is None else axis.extent


def starts_of(product: Product) -> tuple[int, ...]:
    """Where the kernel begins in each argument: input, constant, addends, output."""
    addends = (load.flat.const for load in product.addends)
    return (product.rows.flat.const, 0, *addends, product.where.const)


def work_of(product: Product) -> int:
    """Multiplications."""
    return math.prod(axis.extent for axis in product.loops.axes) * product.length
