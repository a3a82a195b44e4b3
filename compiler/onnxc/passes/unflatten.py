"""One index a dimension in place of flat ones, where a walk stays in its dimension.

A value that the model gives another shape is read by one flat index: then nobody sees the rows and
columns that windows move over. What a convolution pads says how long they are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from onnxc.expression import Axis, Buffer, Expr, Extent, Fold, Guard, Index, Load, along, load
from onnxc.kernel import Loops
from onnxc.tensor import axes_of
from onnxc.traversal import axes_read, map_indices, walk

Bound = tuple[Index, Extent]
SPATIAL: Final = 2
"""The first dimension that windows slide over, after the batch and the channels."""


def unflattened(step: Loops) -> Loops:
    """With one index a dimension of each buffer of the workspace, where that can be told."""

    def place(buffer: Buffer) -> Callable[[tuple[Index, ...]], Expr]:
        return lambda indices: load(buffer, _split(buffer, indices))

    loads = [node for node in walk(*step.roots()) if isinstance(node, Load)]
    flat = {node.buffer for node in loads if len(node.indices) == 1 < len(node.buffer.shape)}
    places = {buffer: place(buffer) for buffer in flat if buffer.kind == "workspace"}
    if not places:
        return step
    return replace(step, value=map_indices(step.value, lambda index: index, places=places))


def _split(buffer: Buffer, indices: tuple[Index, ...]) -> tuple[Index, ...]:
    """The indices themselves where a flat one cannot be told apart."""
    if len(indices) != 1 or indices[0].dynamic:
        return indices
    return by_dimension(buffer.shape, indices[0]) or indices


def by_dimension(
    shape: tuple[int, ...], flat: Index, padded: Sequence[Bound] = ()
) -> tuple[Index, ...] | None:
    """One index a dimension, of a flat one without a run-time part.

    None where a walk leaves its dimension; but one of `padded` may leave that of its extent.
    """
    strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    outside = {}
    for index, extent in padded:
        stride = _stride_of(index, flat)
        own = [d for d in range(len(shape)) if (strides[d], shape[d]) == (stride, extent)]
        if own and stride:
            outside[own[-1]] = index
            flat = flat + index * -stride
    found, rest, const = [], list(flat.terms), flat.const
    for d, extent in enumerate(shape):
        stride = strides[d]
        mine = [(axis, step) for axis, step in rest if step >= stride and step % stride == 0]
        if d in outside:
            found.append(outside[d])
            continue
        rest = [term for term in rest if term not in mine]
        index = Index(const // stride, tuple((axis, step // stride) for axis, step in mine))
        const %= stride
        span = index.span()
        if span is None or span[0] < 0 or span[1] >= extent:
            return None
        found.append(index)
    return None if rest or const else tuple(found)


def _stride_of(index: Index, flat: Index) -> int:
    """How far `flat` moves when `index` grows by one; 0 where it does not move so."""
    found = {divmod(flat.stride(axis), step) for axis, step in index.terms}
    if len(found) != 1 or index.dynamic:
        return 0
    ((stride, rest),) = found
    return 0 if rest else stride


def with_rows(guarded: Guard, source: Load) -> Guard | None:
    """The Guard around what `source` reads, with an index for each dimension that it bounds.

    None where it is so already, or where that cannot be told.
    """
    shape = source.buffer.shape
    indices: tuple[Index, ...] | None = source.indices
    if any(index.dynamic for index in source.indices):
        return None
    if len(source.indices) != len(shape):
        indices = by_dimension(shape, source.flat, guarded.bounds)
    if indices is None:
        return None
    found = load(source.buffer, _with_ones(indices, shape, guarded.bounds))
    return None if found is source else around(guarded, source, found)


def _with_ones(
    indices: tuple[Index, ...], shape: tuple[int, ...], bounds: Sequence[Bound]
) -> tuple[Index, ...]:
    """With the bound index of dimensions of one element, which is 0 inside of the bounds."""
    ones = [d for d in range(SPATIAL, len(shape)) if shape[d] == 1 and indices[d] == Index()]
    missing = [bound for bound in bounds if bound[1] == 1 and bound[0] not in indices]
    if len(ones) != len(missing):
        return indices
    own = {d: index for d, (index, _) in zip(ones, missing, strict=True)}
    return tuple(own.get(d, index) for d, index in enumerate(indices))


def around(guarded: Guard, old: Load, new: Load) -> Guard:
    """The same Guard around another load."""
    value = map_indices(guarded.value, lambda index: index, loads={old: new})
    return Guard(guarded.dtype, guarded.bounds, value, guarded.otherwise)


@dataclass(frozen=True)
class View:
    """What a convolution reads by a flat index, as a value of its own shape.

    shape    batch, channels, rows ... in the order of memory
    indices  of the convolution, one a dimension
    base     where the value begins, and `strides` how it lies in the buffer
    """

    shape: tuple[int, ...]
    indices: tuple[Index, ...]
    base: int
    strides: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def padded_elements(self) -> int:
        """With all that the indices reach before and after it."""
        spans = ((index.span() or (0, 0)) for index in self.indices)
        return math.prod(
            max(extent, last + 1) - min(0, first)
            for extent, (first, last) in zip(self.shape, spans, strict=True)
        )

    def copied(self, source: Buffer) -> Loops:
        """What stores it in a buffer of its own."""
        out = Buffer("", self.shape, source.dtype, "workspace")
        axes = axes_of(self.shape)
        where = tuple(Index() if axis.extent == 1 else along(axis) for axis in axes)
        place = Index(self.base)
        for index, stride in zip(where, self.strides, strict=True):
            place = place + index * stride
        walks = (place,) if len(source.shape) == 1 else _split(source, (place,))
        return Loops(out, where, axes, load(source, walks), (), "rows and columns")


@dataclass(frozen=True)
class _Dimension:
    extent: int
    stride: int
    index: Index


def view_of(step: Loops, fold: Fold, guarded: Guard, source: Load) -> View | None:
    """The view of one factor of a convolution, read within its padding; None where it has none."""
    flat, padded = source.flat, []
    if flat.dynamic:
        return None
    for index, extent in guarded.bounds:
        stride = _stride_of(index, flat) if index.terms and extent > 1 else 0
        padded.append(_Dimension(extent, stride, index))
    for one in padded:
        flat = flat + one.index * -one.stride
    rows = sorted((one for one in padded if one.stride), key=lambda one: -one.stride)
    if not rows or any(one.stride <= 0 < one.extent - 1 for one in padded) or flat.const < 0:
        return None
    others = _between(flat, rows, _kinds(step, fold, guarded))
    if others is None:
        return None
    batch = {axis for axis, _ in step.where[0].terms} if len(step.where) > 1 else set()
    dimensions = sorted([*rows, *others], key=lambda one: -one.stride)
    dimensions = _with_batch_and_channels(dimensions, others, batch)
    for n, one in enumerate(padded):
        if one.extent == 1:
            dimensions.insert(_beside(padded, n, dimensions), one)
    last = flat.const + sum((d.extent - 1) * d.stride for d in dimensions)
    if last >= source.buffer.elements:
        return None
    shape, indices, strides = zip(*((d.extent, d.index, d.stride) for d in dimensions), strict=True)
    return View(shape, indices, flat.const, strides)


def _kinds(step: Loops, fold: Fold, guarded: Guard) -> Callable[[Axis], int]:
    """0 for axes of the batch, 1 for those that windows slide over alone, 2 for the others."""
    batch = {axis for axis, _ in step.where[0].terms} if len(step.where) > 1 else set()
    factors = [factor for factor in fold.value.operands() if factor is not guarded]
    own = {axis for factor in factors for axis in axes_read(factor)}
    return lambda axis: 0 if axis in batch else 2 if axis in own else 1


def _between(
    flat: Index, rows: Sequence[_Dimension], kind: Callable[[Axis], int]
) -> list[_Dimension] | None:
    """The dimensions around and between the padded ones, from what is left of the flat index."""
    found = []
    left = list(flat.terms)
    ends = [*(one.stride * one.extent for one in rows), 1]
    tops = [None, *(one.stride for one in rows)]
    for unit, top in zip(ends, tops, strict=True):
        mine = [(axis, step) for axis, step in left if step >= unit]
        left = [term for term in left if term not in mine]
        reach = sum((axis.extent - 1) * step for axis, step in mine)
        extent = reach // unit + 1 if top is None else top // unit
        if any(step % unit for _, step in mine) or reach >= extent * unit:
            return None
        if top is not None and top % unit:
            return None
        if extent > 1:
            found += _parts(mine, extent, unit, kind)
    return None if left else found


def _parts(
    terms: Sequence[tuple[Axis, int]], extent: int, unit: int, kind: Callable[[Axis], int]
) -> list[_Dimension]:
    """One dimension of `extent` that steps by `unit`, as several where batch and channels meet."""
    ordered = sorted(terms, key=lambda term: -term[1])
    found = []
    outer: list[tuple[Axis, int]] = []
    for n, term in enumerate(ordered):
        if outer and kind(term[0]) != kind(outer[-1][0]):
            stride = outer[-1][1]
            reach = sum((axis.extent - 1) * step for axis, step in ordered[n:])
            whole = extent * unit % stride == 0 and stride % unit == 0
            if whole and reach < stride and all(step % stride == 0 for _, step in outer):
                walks = tuple((axis, step // stride) for axis, step in outer)
                found.append(_Dimension(extent * unit // stride, stride, Index(0, walks)))
                extent, outer = stride // unit, []
        outer.append(term)
    walks = tuple((axis, step // unit) for axis, step in outer)
    return [*found, _Dimension(extent, unit, Index(0, walks))]


def _with_batch_and_channels(
    dimensions: list[_Dimension], others: Sequence[_Dimension], batch: set[Axis]
) -> list[_Dimension]:
    """With dimensions of one element where the model has no more of either."""
    one = _Dimension(1, 0, Index())
    batches = [d for d in others if batch & {axis for axis, _ in d.index.terms}]
    found = dimensions if batches else [one, *dimensions]
    return found if len(others) > len(batches) else [found[0], one, *found[1:]]


def _beside(padded: Sequence[_Dimension], n: int, dimensions: Sequence[_Dimension]) -> int:
    """Where a padded dimension of one element is put: before the next padded one, or at the end."""
    later = [one for one in itertools.islice(padded, n + 1, None) if one in dimensions]
    return dimensions.index(later[0]) if later else len(dimensions)
