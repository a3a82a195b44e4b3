"""Operators that take or replace the elements that a tensor of indices names.

An index counts from the end where it is negative; one out of range is INDEX_OUT_OF_RANGE, and
stands for 0. What is known at compile time is not checked at run time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from onnxc.diagnostics import Kind
from onnxc.dtypes import BOOL, FLOAT, INT32, INT64, ElementType
from onnxc.errors import RefusalError
from onnxc.evaluate import constant_value
from onnxc.expression import Buffer, Checked, Expr, Index, along, apply, at, cast, where
from onnxc.kernel import Loops, define
from onnxc.op import op
from onnxc.ops.agreement import nothing, whole
from onnxc.ops.assembly import part
from onnxc.ops.checks import positive_axis, require_choice, require_shape
from onnxc.status import Status
from onnxc.tensor import (
    Shape,
    Tensor,
    checked_index,
    checked_place,
    compute,
    constant,
    dynamic,
    from_start,
    of_buffer,
)

INT32_MAX: Final = 2**31 - 1

Places = Callable[[Sequence[Index]], list[Index]]
"""The indices, one for each dimension that tuples of indices name, of the tuple at a position."""


def places_of(tuples: Tensor, extents: Shape, readers: int) -> Places:
    """Of a tensor whose last dimension holds one index for each of `extents`, all positive.

    readers   how many elements read a tuple, which are checked once where that is more than one
    """
    known = _known_places(tuples, extents)
    if known is not None:
        return _constant_places(known)
    last = tuples.rank - 1
    if readers == 1:
        return lambda position: [
            checked_index(tuples[[*position, Index(n)]], extent) for n, extent in enumerate(extents)
        ]
    dtype = INT32 if max(extents, default=0) <= INT32_MAX else INT64
    limits = constant(np.asarray(extents, np.int64), INT64)

    def checked(*indices: Index) -> Expr:
        return cast(checked_place(tuples[indices], limits[indices[last:]]), dtype)

    fine = compute(tuples.shape, checked).stored("the indices, counted from the start")
    return lambda position: [dynamic(fine[[*position, Index(n)]]) for n in range(len(extents))]


def _known_places(tuples: Tensor, extents: Shape) -> NDArray[np.int64] | None:
    """The indices counted from the start, where they are known and all are in range."""
    known = constant_value(tuples) if tuples.elements else None
    if known is None:
        return None
    limits = np.asarray(extents, np.int64)
    wide = known.astype(np.int64)
    from_start = np.where(wide < 0, wide + limits, wide)
    inside = bool(((from_start >= 0) & (from_start < limits)).all())
    return from_start if inside else None


def _constant_places(known: NDArray[np.int64]) -> Places:
    """Steps where the indices advance by such, else a table."""
    components = [known[..., n] for n in range(known.shape[-1])]
    walks = [_stepping(values) or _tabled(values) for values in components]
    return lambda position: [walk(position) for walk in walks]


def _stepping(values: NDArray[np.int64]) -> Callable[[Sequence[Index]], Index] | None:
    """The index that takes these values over a grid, if one stride for each dimension does."""
    first = int(values.flat[0])
    origin = (0,) * values.ndim
    strides = [
        int(values[(*origin[:d], 1, *origin[d + 1 :])]) - first if extent > 1 else 0
        for d, extent in enumerate(values.shape)
    ]
    grid = np.full(values.shape, first, np.int64)
    for dimension, stride in enumerate(strides):
        shape = [1] * values.ndim
        shape[dimension] = values.shape[dimension]
        grid = grid + (np.arange(values.shape[dimension]) * stride).reshape(shape)
    if not np.array_equal(grid, values):
        return None

    def walk(position: Sequence[Index]) -> Index:
        total = Index(first)
        for index, stride in zip(position, strides, strict=True):
            total = total + index * stride
        return total

    return walk


def _tabled(values: NDArray[np.int64]) -> Callable[[Sequence[Index]], Index]:
    small = int(values.max(initial=0)) <= INT32_MAX
    dtype: ElementType = INT32 if small else INT64
    places = constant(values.astype(np.int32 if small else np.int64), dtype)
    return lambda position: dynamic(places[position])


def _one_each(indices: Tensor) -> Tensor:
    """Indices into one dimension, as tuples of one."""
    return indices.unsqueeze([indices.rank])


def _read(data: Tensor, elements: int) -> Tensor:
    """For `elements` readers: stored if some are read again and are costly."""
    return data.shared("what is gathered from") if elements > data.elements else data


@op("Gather", exact=True)
def gather(data: Tensor, indices: Tensor, *, axis: int) -> Tensor:
    first, rank = positive_axis(axis, data.rank), indices.rank
    shape = (*data.shape[:first], *indices.shape, *data.shape[first + 1 :])
    if data.elements == 0 or math.prod(shape) == 0:
        return nothing(shape, data.dtype, Status.INDEX_OUT_OF_RANGE)
    readers = math.prod(shape) // indices.elements
    source = _read(data, math.prod(shape))
    places = places_of(_one_each(indices), (data.shape[first],), readers)

    def element(*walks: Index) -> Expr:
        chosen = places(walks[first : first + rank])
        return source[[*walks[:first], *chosen, *walks[first + rank :]]]

    return compute(shape, element)


@op("GatherElements", exact=True)
def gather_elements(data: Tensor, indices: Tensor, *, axis: int) -> Tensor:
    chosen = positive_axis(axis, data.rank)
    _check_extents(indices.shape, data.shape, chosen)
    if data.elements == 0 or indices.elements == 0:
        return nothing(indices.shape, data.dtype, Status.INDEX_OUT_OF_RANGE)
    source = _read(data, indices.elements)
    places = places_of(_one_each(indices), (data.shape[chosen],), 1)
    return compute(
        indices.shape,
        lambda *walks: source[[*walks[:chosen], *places(walks), *walks[chosen + 1 :]]],
    )


def _check_extents(indices: Shape, data: Shape, axis: int) -> None:
    if len(indices) != len(data) or any(
        some > all_ for d, (some, all_) in enumerate(zip(indices, data, strict=True)) if d != axis
    ):
        raise RefusalError(
            Kind.INDICES_SHAPE, f"indices of {list(indices)} do not fit data of {list(data)}"
        )


@op("GatherND", exact=True)
def gather_nd(data: Tensor, indices: Tensor, *, batch_dims: int) -> Tensor:
    last = indices.rank - 1
    length = indices.shape[last]
    rest = batch_dims + length
    if (
        not 0 <= batch_dims < min(indices.rank, data.rank)
        or rest > data.rank
        or indices.shape[:batch_dims] != data.shape[:batch_dims]
    ):
        fact = f"indices of {list(indices.shape)} do not fit data of {list(data.shape)}"
        raise RefusalError(Kind.INDICES_SHAPE, fact)
    shape = (*indices.shape[:last], *data.shape[rest:])
    elements = math.prod(shape)
    if data.elements == 0 or elements == 0:
        return nothing(shape, data.dtype, Status.INDEX_OUT_OF_RANGE)
    source = _read(data, elements)
    readers = elements // math.prod(indices.shape[:last])
    places = places_of(indices, data.shape[batch_dims:rest], readers)

    def element(*walks: Index) -> Expr:
        return source[[*walks[:batch_dims], *places(walks[:last]), *walks[last:]]]

    return compute(shape, element)


@op("ScatterElements", exact=True)
def scatter_elements(
    data: Tensor, indices: Tensor, updates: Tensor, *, axis: int, reduction: str
) -> Tensor:
    """Of several updates of one element the last stays."""
    chosen = positive_axis(axis, data.rank)
    _check_extents(indices.shape, data.shape, chosen)
    require_shape("updates", updates, indices.shape)
    if updates.elements == 0:
        return data
    if data.elements == 0:
        raise RefusalError(Kind.NO_ELEMENTS, "updates a tensor that has no elements")
    places = places_of(_one_each(indices), (data.shape[chosen],), 1)

    def where_to(walks: Sequence[Index]) -> list[Index]:
        return [*walks[:chosen], *places(walks), *walks[chosen + 1 :]]

    return scattered(data, updates, where_to, reduction)


@op("ScatterND", exact=True)
def scatter_nd(data: Tensor, indices: Tensor, updates: Tensor, *, reduction: str) -> Tensor:
    """Of several updates of one element the last stays."""
    last = indices.rank - 1
    length = indices.shape[last]
    if length > data.rank:
        raise RefusalError(Kind.INDICES_SHAPE, f"indices of {length} for {data.rank} dimensions")
    require_shape("updates", updates, (*indices.shape[:last], *data.shape[length:]))
    if updates.elements == 0:
        return data
    if data.elements == 0:
        raise RefusalError(Kind.NO_ELEMENTS, "updates a tensor that has no elements")
    readers = updates.elements // math.prod(indices.shape[:last])
    places = places_of(indices, data.shape[:length], readers)

    def where_to(walks: Sequence[Index]) -> list[Index]:
        return [*places(walks[:last]), *walks[last:]]

    return scattered(data, updates, where_to, reduction)


_REDUCTIONS: Final = ("none", "add", "mul", "max", "min")
_LOGICAL: Final = {"add": "or", "max": "or", "mul": "and", "min": "and"}
"""What reductions are of bools, of which true is the greater."""


def scattered(
    data: Tensor,
    updates: Tensor,
    where_to: Callable[[Sequence[Index]], Sequence[Index]],
    reduction: str = "none",
) -> Tensor:
    """A copy of `data` with each of `updates`, in order, stored where `where_to` says.

    16-bit floats are reduced as float and rounded at the end.
    """
    require_choice("reduction", reduction, _REDUCTIONS)
    dtype = data.dtype
    accumulate = "" if reduction == "none" else reduction
    if accumulate and dtype.kind == "half":
        wide = scattered(data.cast(FLOAT), updates.cast(FLOAT), where_to, reduction)
        return wide.cast(dtype)
    if accumulate and dtype.kind in ("complex", "string", "bits"):
        raise RefusalError(
            Kind.TYPE_NOT_SUPPORTED, f"reduction {reduction} of {dtype.name} is not supported"
        )
    if accumulate and dtype is BOOL:
        accumulate = _LOGICAL[accumulate]
    out = Buffer("", data.shape, dtype, "workspace")
    there = tuple(where_to([along(axis) for axis in updates.axes]))
    define(
        (
            part(out, data, "the data before the updates"),
            Loops(out, there, updates.axes, updates.value, role="updates", accumulate=accumulate),
        )
    )
    return of_buffer(out)


@op("TensorScatter", exact=True)
def tensor_scatter(
    past_cache: Tensor, update: Tensor, write_indices: Tensor | None, *, axis: int, mode: str
) -> Tensor:
    """A place beyond the cache is INDEX_OUT_OF_RANGE; in circular mode there is none."""
    chosen = positive_axis(axis, past_cache.rank)
    require_choice("mode", mode, ("linear", "circular"))
    if chosen == 0:
        raise RefusalError(Kind.ATTRIBUTE_VALUE, "axis is that of the batch")
    extent, length = past_cache.shape[chosen], update.shape[chosen]
    fitting = (*past_cache.shape[:chosen], length, *past_cache.shape[chosen + 1 :])
    if update.shape != fitting or length > extent:
        raise RefusalError(
            Kind.OPERAND_SHAPE, f"{list(update.shape)} does not fit {list(past_cache.shape)}"
        )
    if update.elements == 0:
        return past_cache
    if write_indices is None:
        return scattered(past_cache, update, list)
    first = _first_places(write_indices, extent, length, mode)

    def where_to(walks: Sequence[Index]) -> list[Index]:
        start = first[walks[:1]]
        if mode == "linear":
            place = dynamic(start) + walks[chosen]
        else:
            place = dynamic(apply("remainder", start + at(walks[chosen]), extent))
        return [*walks[:chosen], place, *walks[chosen + 1 :]]

    return scattered(past_cache, update, where_to)


def _first_places(write_indices: Tensor, extent: int, length: int, mode: str) -> Tensor:
    def element(batch: Index) -> Expr:
        given = whole(write_indices[[batch]])
        if mode == "circular":
            return from_start(apply("remainder", given, extent), extent)
        fine = (given >= 0) & (given <= extent - length)
        return Checked(INT64, where(fine, given, 0), fine, Status.INDEX_OUT_OF_RANGE)

    return compute(write_indices.shape, element).stored("where each example is written")
