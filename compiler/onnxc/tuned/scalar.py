"""A sum of products as one layer of windows, for processors without vectors.

Padding is not stored: what a kernel reads through the Guard of a convolution is read inside of the
bounds only, and zeros take the place of what lies outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxc.dtypes import FLOAT
from onnxc.expression import Apply, Axis, Const, Expr, Extent, Fold, Guard, Index, Load
from onnxc.kernel import Loops
from onnxc.target import Target
from onnxc.traversal import replace_subexpression
from onnxc.tuned.contraction import first_addend
from onnxc.tuned.product import Product, only_fold, product_of
from onnxc.tuned.walks import gathered

if TYPE_CHECKING:
    from numpy.typing import NDArray

INT32_ROOM: Final = 2**29
"""Elements of any operand, so that sums of a few offsets are int32_t."""
Bound = tuple[Index, Extent]


@dataclass(frozen=True)
class Side:
    """One dimension of the windows: output o and tap t read place o * step + t * spread - pad.

    That is padding unless 0 <= place < extent. Where there is none: step and spread 0, extent 1.

    outputs   and taps: how many
    x         elements from an output to the next in what is read; x_tap those of a tap
    """

    outputs: int
    taps: int
    step: int
    spread: int
    pad: int
    extent: int
    x: int
    x_tap: int

    @property
    def padded(self) -> bool:
        return self.step > 0 or self.spread > 0


@dataclass(frozen=True)
class Layer:
    """A product whose output is pixels of neighbouring lanes, all that windows make of the source.

    product   without the Guards of the padding
    channels  floats that each tap reads one after the other, or the lanes where each has its own
    start     of the first tap of the first output in what is read; negative where that is padding
    pixel     elements from one output pixel to the next
    bias      what the sums begin with, one constant a lane, and `total` the sum with it
    addends   the loads of the epilogue besides it; `moves` of each: elements to the next pixel and
              to the next lane
    """

    product: Product
    rows: Side
    columns: Side
    channel: Axis | None
    taps: tuple[Axis | None, Axis | None]
    start: int
    pixel: int
    total: Expr
    bias: Load | None
    addends: tuple[Load, ...]
    moves: tuple[tuple[int, int], ...]

    @property
    def channels(self) -> int:
        return 1 if self.channel is None else self.channel.extent

    @property
    def lanes(self) -> int:
        return self.product.lanes.extent

    @property
    def pixels(self) -> int:
        return self.rows.outputs * self.columns.outputs

    @property
    def padded(self) -> bool:
        return self.rows.padded or self.columns.padded

    @property
    def is_depthwise(self) -> bool:
        """Whether each lane reads floats of its own."""
        return self.product.rows.flat.stride(self.product.lanes) != 0

    @property
    def tap_count(self) -> int:
        return self.rows.taps * self.columns.taps

    @property
    def work(self) -> int:
        """Multiplications."""
        return self.pixels * self.lanes * self.product.length

    @property
    def numbers(self) -> dict[str, int]:
        """All that C needs to know, by name: in this order in the tables of shared code."""
        found = {
            "pixels": self.pixels,
            "lanes": self.lanes,
            "pixel": self.pixel,
            "start": self.start,
            "channels": self.channels,
            "columns": self.columns.outputs,
            "x_row": self.rows.x,
            "x_column": self.columns.x,
            "kernel_rows": self.rows.taps,
            "kernel_columns": self.columns.taps,
            "tap_row": self.rows.x_tap,
            "tap_column": self.columns.x_tap,
        }
        for name, side in (("row", self.rows), ("column", self.columns)):
            found |= {
                f"{name}_step": side.step,
                f"{name}_spread": side.spread,
                f"{name}_pad": side.pad,
                f"{name}_extent": side.extent,
            }
        return found

    @property
    def is_dense(self) -> bool:
        """Whether the output is `lanes` floats a pixel with nothing in between."""
        return self.pixel == self.lanes or self.pixels == 1

    def weights(self) -> NDArray[Any]:
        """[taps of a column][taps of a row][channels][lanes], without channels if depthwise."""
        axes = [axis for axis in (*self.taps, self.channel) if axis is not None]
        lanes = self.product.lanes
        found = gathered(self.product.panel, (*axes, lanes))
        return found.reshape(-1, lanes.extent)

    def biases(self) -> NDArray[Any]:
        """One a lane; zeros where there are none."""
        if self.bias is None:
            return np.zeros(self.lanes, np.float32)
        return gathered(self.bias, (self.product.lanes,))

    def starts(self, inputs: int) -> tuple[int, ...]:
        """Where a kernel of so many inputs begins in each argument."""
        addends = (load.flat.const for load in self.addends)
        return (*(0,) * inputs, *addends, self.product.where.const)


def is_scalar(target: Target) -> bool:
    return not target.dispatches and target.variants[-1].lanes == 1


def layer_of(loops: Loops, target: Target) -> Layer | None:
    """Of a merged kernel; None where it is no such product of a constant."""
    bare, bounds = without_padding(loops)
    product = product_of(bare)
    if product is None or product.dtype is not FLOAT or product.panel.buffer.data is None:
        return None
    total, bias = _start(product, target)
    addends = tuple(load for load in product.addends if load is not bias)
    return layer_around(product, bounds, target, total, bias, addends)


def layer_around(
    product: Product,
    bounds: Sequence[Bound],
    target: Target,
    total: Expr,
    bias: Load | None,
    addends: tuple[Load, ...],
) -> Layer | None:
    """Of a product without the Guards of its padding, whose bounds are these; None where no window
    makes the pixels.
    """
    if product.shared or product.blocks or len(product.points) > 2:
        return None
    source, where = product.rows.flat, product.where
    row, column = (None, None, *product.points)[-2:]
    pixel = _linear(where, row, column)
    axes = set(product.fold.axes)
    guarded = {axis for index, _ in bounds for axis, _ in index.terms}
    own = source.stride(product.lanes)
    inner = [] if own else _channel(axes - guarded, source)
    taps = sorted(axes - {*inner}, key=lambda axis: -abs(source.stride(axis)))
    sides = _sides((row, column), taps, bounds, source)
    if pixel is None or sides is None or own not in (0, 1) or _too_large(product):
        return None
    if any(source.stride(axis) < 0 for axis in (*axes, *product.points)):
        return None
    walks = [_linear(load.flat, row, column) for load in addends]
    steps = [load.flat.stride(product.lanes) for load in addends]
    moves = tuple((walk, step) for walk, step in zip(walks, steps, strict=True) if walk is not None)
    if len(moves) < len(addends) or any(step not in (0, 1) for step in steps):
        return None
    (rows, down), (columns, right) = sides
    strides = [source.stride(axis) for axis in (down, right, *inner) if axis]
    if target.portable and strides != sorted(strides, reverse=True):
        return None  # others add the products in the order of memory
    return Layer(
        product,
        rows,
        columns,
        inner[0] if inner else None,
        (down, right),
        source.const,
        pixel,
        total,
        bias,
        addends,
        moves,
    )


def without_padding(loops: Loops) -> tuple[Loops, tuple[Bound, ...]]:
    """The kernel with the factor itself for its Guard with zeros around it, and the bounds."""
    fold = only_fold(loops)
    if fold is None or not isinstance(fold.value, Apply) or fold.value.operation != "mul":
        return loops, ()
    factors = fold.value.args
    guards = [factor for factor in factors if isinstance(factor, Guard)]
    if len(guards) != 1 or not _is_zero(guards[0].otherwise):
        return loops, ()
    factors = tuple(f.value if isinstance(f, Guard) else f for f in factors)
    inside = Apply(fold.value.dtype, "mul", factors)
    bare = Fold(fold.dtype, fold.operation, fold.axes, inside, fold.hint)
    value = replace_subexpression(loops.value, fold, bare)
    return replace(loops, value=value), guards[0].bounds


def _is_zero(value: Expr) -> bool:
    return isinstance(value, Const) and not any(value.raw)


def _channel(axes: set[Axis], source: Index) -> list[Axis]:
    """The axis along which what is read lies one after the other."""
    return [axis for axis in axes if source.stride(axis) == 1][:1]


def _linear(index: Index, row: Axis | None, column: Axis | None) -> int | None:
    """How far it moves with each pixel, rows after one another; None where rows are apart."""
    across = 0 if column is None else index.stride(column)
    if row is None or column is None:
        return across
    return across if index.stride(row) == across * column.extent else None


def _sides(
    points: tuple[Axis | None, Axis | None],
    taps: Sequence[Axis],
    bounds: Sequence[Bound],
    source: Index,
) -> tuple[tuple[Side, Axis | None], tuple[Side, Axis | None]] | None:
    """Rows and columns, each with the axis of its taps."""
    found: list[tuple[Axis | None, Bound | None] | None] = [None, None]
    own = [bound for bound in bounds if any(_moves(bound, p) for p in points)]
    for bound in [*own, *(bound for bound in bounds if bound not in own)]:
        place = next((n for n, p in enumerate(points) if _moves(bound, p)), None)
        place = (0 if found[0] is None else 1) if place is None else place
        mine = [tap for tap in taps if _moves(bound, tap)]
        known = {points[place], *mine}
        if found[place] is not None or len(mine) > 1 or bound[0].dynamic:
            return None
        if any(axis not in known for axis, _ in bound[0].terms):
            return None
        found[place] = (mine[0] if mine else None, bound)
    used = {slot[0] for slot in found if slot}
    for tap in reversed([tap for tap in taps if tap not in used]):
        place = next((n for n in (1, 0) if found[n] is None), None)
        if place is None:
            return None
        found[place] = (tap, None)
    row, column = (
        (_side(point, *(slot or (None, None)), source), slot[0] if slot else None)
        for point, slot in zip(points, found, strict=True)
    )
    return row, column


def _moves(bound: Bound, axis: Axis | None) -> bool:
    return axis is not None and bound[0].stride(axis) != 0


def _side(point: Axis | None, tap: Axis | None, bound: Bound | None, source: Index) -> Side:
    index, extent = bound or (Index(), 1)

    def stride(index: Index, axis: Axis | None) -> int:
        return 0 if axis is None else index.stride(axis)

    return Side(
        outputs=1 if point is None else point.extent,
        taps=1 if tap is None else tap.extent,
        step=stride(index, point),
        spread=stride(index, tap),
        pad=-index.const,
        extent=extent,
        x=stride(source, point),
        x_tap=stride(source, tap),
    )


def _too_large(product: Product) -> bool:
    buffers = (product.rows.buffer, product.panel.buffer, product.loops.out)
    return any(buffer.elements > INT32_ROOM for buffer in buffers)


def _start(product: Product, target: Target) -> tuple[Expr, Load | None]:
    """The sum with a constant a lane that is added to it at once, and that; else the sum."""
    total, number = first_addend(product, target)
    if number is None or product.addends[number].buffer.data is None:
        return product.fold, None
    return total, product.addends[number]
