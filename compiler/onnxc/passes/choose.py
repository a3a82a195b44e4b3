"""choose: a tuned kernel in place of the plain loops that it computes, where one is made for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from onnxc.dtypes import DOUBLE
from onnxc.expression import Axis, Buffer, Fold, along, load
from onnxc.kernel import Loops, Micro, Program, Step, map_loops
from onnxc.passes.merge_axes import merged
from onnxc.summation import IN_ORDER
from onnxc.target import Target
from onnxc.traversal import axes_read, replace_loads, replace_subexpression
from onnxc.tuned.byte_transpose import byte_transpose
from onnxc.tuned.contraction import contraction, is_copied
from onnxc.tuned.depthwise import depthwise
from onnxc.tuned.gemv import gemv
from onnxc.tuned.integer_depthwise import integer_depthwise
from onnxc.tuned.integer_product import integer_product
from onnxc.tuned.padded_rows import padded_rows
from onnxc.tuned.product import Product, only_fold, product_of
from onnxc.tuned.recurrent import with_recurrent_kernels
from onnxc.tuned.rowwise import rowwise
from onnxc.tuned.scalar import is_scalar, without_padding
from onnxc.tuned.scalar_integers import integers
from onnxc.tuned.scalar_layers import scalar
from onnxc.tuned.transpose import transpose
from onnxc.tuned.walks import gathered
from onnxc.tuned.winograd import winograd

ROWS: Final = 4
"""Rows for which it pays to lay the other operand out anew."""
MOST: Final = 2**31 - 1
"""Elements of a buffer, so that offsets are int32_t."""
LEAST_PADDED: Final = 1024
"""Elements of padded rows, below which their copy stays plain loops: it takes no time."""
Kernel = Callable[[Product, Target], Micro | None]
KERNELS: Final[tuple[Kernel, ...]] = (
    gemv,
    depthwise,
    winograd,
    rowwise,
    contraction,
)


def choose(program: Program) -> Program:
    target = program.target
    if target is None:
        return program
    program = with_recurrent_kernels(program, target)
    return map_loops(program, lambda loops: chosen(loops, target))


def chosen(loops: Loops, target: Target) -> list[Step]:
    """One step; several where vectors cannot read an operand, or compute what follows the sums."""
    step = merged(loops)
    if is_scalar(target) and (single := scalar(step, target) or integers(step, target)):
        return [single]
    if vectors := integer_product(step, target) or integer_depthwise(step, target):
        return [vectors]
    product = product_of(step)
    if product is not None:
        before, readable = _readable(step, product, target)
        found = tuned(readable, target)
        if found is not None:
            return [*before, found]
    copied = transpose(step, target) or byte_transpose(step, target)
    if copied is None and step.out.elements >= LEAST_PADDED:
        copied = padded_rows(step, target)
    if copied is not None:
        return [copied]
    fold = only_fold(step)
    axes = () if fold is None else _axes_of(fold, step)
    if fold is None or fold is step.value or not axes:
        return [in_order(step) if target.portable else loops]
    alone = _sums_alone(step, fold, axes)
    first = chosen(alone, target)
    if not any(isinstance(part, Micro) for part in first):
        return [in_order(step) if target.portable else loops]
    value = replace_subexpression(step.value, fold, load(alone.out, alone.where))
    return [*first, replace(step, value=value, role=step.role or "what follows the sums")]


def in_order(step: Loops) -> Loops:
    """A merged kernel whose only sum of products has the bits that a tuned kernel gives it."""
    fold, (bare, _) = only_fold(step), without_padding(step)
    product = product_of(bare) or _product_alone(bare)
    if fold is None or product is None:
        return step
    axes = sorted(fold.axes, key=lambda axis: -abs(product.rows.flat.stride(axis)))
    ordered = Fold(fold.dtype, fold.operation, tuple(axes), fold.value, IN_ORDER)
    return replace(step, value=replace_subexpression(step.value, fold, ordered))


def _sums_alone(step: Loops, fold: Fold, axes: tuple[Axis, ...]) -> Loops:
    """The kernel that stores the sums without what follows them; `axes` from _axes_of."""
    sums = Buffer("", tuple(axis.extent for axis in axes), fold.dtype, "workspace")
    return replace(step, out=sums, where=tuple(map(along, axes)), axes=axes, value=fold)


def _product_alone(step: Loops) -> Product | None:
    """What the sums are, where vectors cannot compute what follows them."""
    fold = only_fold(step)
    axes = () if fold is None else _axes_of(fold, step)
    return product_of(merged(_sums_alone(step, fold, axes))) if fold and axes else None


def _axes_of(fold: Fold, step: Loops) -> tuple[Axis, ...]:
    """The loops around a fold that move it; none where something else moves it too."""
    moved = axes_read(fold) - set(fold.axes)
    return tuple(axis for axis in step.axes if axis in moved) if moved <= set(step.axes) else ()


def _readable(step: Loops, product: Product, target: Target) -> tuple[list[Step], Loops]:
    """What lays a run-time operand out row by row, where it lies by columns, and the step after.

    A constant of which rows are read is laid out so now.
    """
    step = _with_constant_rows(step, product)
    panel, lanes = product.panel, product.lanes
    given = panel.buffer.data is None and not product.rows.flat.stride(lanes)
    rows = math.prod(axis.extent for axis in product.points)
    in_place = panel.flat.stride(lanes) == 1 and len(product.fold.axes) == 1
    if not given or rows < ROWS or in_place or is_copied(product, target):
        return [], step
    axes = (*product.shared, *product.blocks, *product.fold.axes, lanes)
    place = Buffer("", tuple(axis.extent for axis in axes), panel.dtype, "workspace")
    walks = tuple(map(along, axes))
    copied = merged(Loops(place, walks, axes, panel, step.origins, "an operand, row by row"))
    moved = replace_loads(step.value, {panel: load(place, (place.flat(walks),))})
    return [transpose(copied, target) or copied], merged(replace(step, value=moved))


def _with_constant_rows(step: Loops, product: Product) -> Loops:
    rows, folds = product.rows, product.fold.axes
    strides = [rows.flat.stride(axis) for axis in folds]
    if rows.buffer.data is None or 1 in strides or rows.flat.stride(product.lanes):
        return step
    axes = tuple(axis for axis in (*product.shared, *product.points) if rows.flat.stride(axis))
    values = gathered(rows, (*axes, *folds))
    place = Buffer(rows.buffer.name, values.shape, rows.dtype, "constant", values)
    index = place.flat(tuple(map(along, (*axes, *folds))))
    return merged(replace(step, value=replace_loads(step.value, {rows: load(place, (index,))})))


def tuned(loops: Loops, target: Target) -> Micro | None:
    """The tuned kernel for a merged kernel: the first of KERNELS that computes it, if one does."""
    product = product_of(loops)
    if product is None or any(b.elements > MOST for b in (*loops.reads(), loops.out)):
        return None
    kernels = (contraction,) if product.dtype is DOUBLE else KERNELS
    found = (kernel(product, target) for kernel in kernels)
    return next((step for step in found if step is not None), None)
