"""Pools: the maximum, mean or norm of a window that slides over the spatial dimensions, or of all.

Padding is no element: it is never a maximum, adds nothing to a norm, and counts in a mean only
where `count_include_pad` says so, up to the end of the declared padding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxc.diagnostics import Kind
from onnxc.dtypes import INT64, INT64_MAX, ElementType
from onnxc.errors import RefusalError
from onnxc.expression import (
    Buffer,
    Checked,
    Expr,
    Fold,
    Index,
    along,
    apply,
    at,
    compare,
    fold,
    guard,
    literal,
    where,
)
from onnxc.kernel import Loops, define
from onnxc.op import Declared, Ints, op
from onnxc.ops.agreement import agreed, declared_shape, equals
from onnxc.ops.checks import require_shape, require_table
from onnxc.ops.window import (
    Window,
    begin_end_pads,
    output_extents,
    per_dimension,
    sliding_windows,
    tap_indices,
)
from onnxc.status import Status
from onnxc.tensor import (
    Shape,
    Tensor,
    axes_of,
    compute,
    constant,
    dynamic,
    full,
    of_buffer,
    zero,
)
from onnxc.traversal import walk

if TYPE_CHECKING:
    from numpy.typing import NDArray

MULTIPLIED: Final = 8
"""Powers up to this are products, larger ones calls of pow."""


@op("MaxPool")
def max_pool(
    X: Tensor,
    *,
    auto_pad: str,
    ceil_mode: int,
    dilations: tuple[int, ...] | None,
    kernel_shape: tuple[int, ...],
    pads: tuple[int, ...] | None,
    storage_order: int,
    strides: tuple[int, ...] | None,
    declared: Declared,
) -> tuple[Tensor, ...]:
    """A NaN is the greatest; Indices are those of the first maximum in row-major order.

    Of a window that holds no element, the maximum is the least value of the type, its index that
    of the first element of the channel.
    """
    windows = _windows(X, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    if X.elements == 0:
        shape = _pooled_shape(X, windows)
        return full(shape, _least(X.dtype)), full(shape, zero(INT64))
    values = X.shared("the values that windows read")
    found = _pooled(values, windows, "max", lambda value: value, _least(X.dtype))
    if len(declared) < 2 or declared[1] is None:
        return (found,)
    found = found.stored("the maxima")
    return found, _places(values, found, windows, columns=storage_order == 1)


@op("AveragePool")
def average_pool(
    X: Tensor,
    *,
    auto_pad: str,
    ceil_mode: int,
    count_include_pad: int,
    dilations: tuple[int, ...] | None,
    kernel_shape: tuple[int, ...],
    pads: tuple[int, ...] | None,
    strides: tuple[int, ...] | None,
) -> Tensor:
    """Of a window that holds nothing to count, the mean is NaN."""
    windows = _windows(X, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    total = _pooled(X.shared(), windows, "sum", lambda value: value, zero(X.dtype))
    counts = [_counts(window, padded=bool(count_include_pad)) for window in windows]
    fixed = math.prod(int(count[0]) for count in counts if _is_even(count))
    tables = {
        d: constant(count.astype(X.dtype.numpy), X.dtype)
        for d, count in enumerate(counts, start=2)
        if not _is_even(count)
    }

    def element(*indices: Index) -> Expr:
        divisor: Expr = literal(X.dtype, fixed)
        for d, counted in tables.items():
            number = counted[[indices[d]]]
            divisor = number if fixed == 1 and d == min(tables) else divisor * number
        return total[indices] / divisor

    return compute(total.shape, element)


@op("LpPool")
def lp_pool(
    X: Tensor,
    *,
    auto_pad: str,
    ceil_mode: int,
    dilations: tuple[int, ...] | None,
    kernel_shape: tuple[int, ...],
    p: int,
    pads: tuple[int, ...] | None,
    strides: tuple[int, ...] | None,
) -> Tensor:
    windows = _windows(X, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    power = _power(p)
    total = _pooled(X.shared(), windows, "sum", power, zero(X.dtype))
    return compute(total.shape, lambda *indices: _root(total[indices], p))


@op("GlobalMaxPool")
def global_max_pool(X: Tensor) -> Tensor:
    return _global(X, "max", lambda value: value, _least(X.dtype))


@op("GlobalAveragePool")
def global_average_pool(X: Tensor) -> Tensor:
    """Of no elements, the mean is NaN."""
    total = _global(X, "sum", lambda value: value, zero(X.dtype))
    count = math.prod(X.shape[2:])
    return compute(total.shape, lambda *indices: total[indices] / float(count))


@op("GlobalLpPool")
def global_lp_pool(X: Tensor, *, p: int) -> Tensor:
    total = _global(X, "sum", _power(p), zero(X.dtype))
    return compute(total.shape, lambda *indices: _root(total[indices], p))


@op("MaxUnpool")
def max_unpool(
    X: Tensor,
    I: Tensor,
    output_shape: Ints | Tensor | None,
    *,
    kernel_shape: tuple[int, ...],
    pads: tuple[int, ...] | None,
    strides: tuple[int, ...] | None,
    declared: Declared,
) -> Tensor:
    """The indices count in the shape that kernel, strides and pads give.

    A larger `output_shape` holds that at its beginning, as ONNX's own test does. An index outside
    is reported; of equal ones the last wins.
    """
    require_shape("I", I, X.shape)
    shape = declared_shape(declared)
    source = _unpooled_shape(X, kernel_shape, pads, strides)
    if output_shape is None and shape != source:
        raise RefusalError(
            Kind.OPERAND_SHAPE, f"the output has shape {list(source)}, not {list(shape)}"
        )
    buffer = Buffer("", shape, X.dtype, "workspace")
    axes = axes_of(shape)
    fill = Loops(buffer, tuple(map(along, axes)), axes, zero(X.dtype), role="zeros")
    place = compute(X.shape, lambda *indices: _checked_place(I[indices], source, shape))
    scatter = Loops(buffer, (dynamic(place.value),), X.axes, X.value, role="the maxima")
    if math.prod(shape) == 0 or X.elements == 0:
        result = full(shape, zero(X.dtype))
    else:
        define((fill, scatter))
        result = of_buffer(buffer)
    if not isinstance(output_shape, Tensor):
        return result
    return agreed(result, equals(output_shape, shape))


def _unpooled_shape(
    X: Tensor,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None,
    strides: Sequence[int] | None,
) -> Shape:
    rank = X.rank - 2
    kernel = per_dimension("kernel_shape", kernel_shape, rank, least=1)
    steps = per_dimension("strides", strides, rank, least=1)
    padding = begin_end_pads(pads, rank)
    spatial = [
        (X.shape[2 + d] - 1) * steps[d] + kernel[d] - begin - end
        for d, (begin, end) in enumerate(padding)
    ]
    return (*X.shape[:2], *spatial)


def _checked_place(index: Expr, source: Shape, shape: Shape) -> Expr:
    """Where in `shape`, row-major, the element of `source` at a run-time index goes."""
    inside = (index >= 0) & (index < math.prod(source))
    safe = where(inside, index, 0)
    if shape == source:
        return Checked(INT64, safe, inside, Status.INDEX_OUT_OF_RANGE)
    place: Expr = literal(INT64, 0)
    for extent, coordinate in zip(shape, _coordinates(safe, source), strict=True):
        inside = inside & (coordinate < extent)
        place = place * extent + coordinate
    return Checked(INT64, where(inside, place, 0), inside, Status.INDEX_OUT_OF_RANGE)


def _coordinates(flat: Expr, shape: Sequence[int]) -> list[Expr]:
    """One a dimension, of a row-major index that is in range."""
    found = []
    for extent in reversed(shape):
        found.append(apply("remainder", flat, extent))
        flat = apply("div", flat, extent)
    return found[::-1]


def _windows(
    X: Tensor,
    kernel_shape: Sequence[int],
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    pads: Sequence[int] | None,
    auto_pad: str,
    ceil_mode: int,
) -> tuple[Window, ...]:
    return sliding_windows(
        X.shape[2:], kernel_shape, strides, dilations, pads, auto_pad, ceil_mode=ceil_mode
    )


def _pooled_shape(X: Tensor, windows: Sequence[Window]) -> Shape:
    return (*X.shape[:2], *output_extents(windows))


def _pooled(
    X: Tensor,
    windows: Sequence[Window],
    operation: str,
    value: Callable[[Expr], Expr],
    padding: Expr,
) -> Tensor:
    """Each window folded; in the padding stands `padding` as it is."""
    taps = [window.kernel for window in windows]

    def element(n: Index, c: Index, *places: Index) -> Expr:
        def tap(*offsets: Index) -> Expr:
            indices = [n, c, *tap_indices(windows, places, offsets)]
            if X.elements == 0:
                return padding
            bounds = zip(indices, X.shape, strict=True)
            return guard(bounds, value(X[indices]), padding)

        return fold(operation, taps, tap)

    return compute(_pooled_shape(X, windows), element)


def _places(X: Tensor, found: Tensor, windows: Sequence[Window], *, columns: bool) -> Tensor:
    """int64 like `found`: the first element of each window that is its maximum.

    Its place in the whole tensor, row-major; with `columns` that in its channel is column-major.
    """
    spatial = X.shape[2:]
    none = literal(INT64, INT64_MAX)

    def element(n: Index, c: Index, *places: Index) -> Expr:
        most = found[[n, c, *places]]

        def tap(*offsets: Index) -> Expr:
            inner = tap_indices(windows, places, offsets)
            value = X[[n, c, *inner]]
            same = compare("equal", value, most)
            if X.dtype.kind == "float":
                same = same | apply("is_nan", value)
            place = at(_row_major(inner, spatial))
            return guard(zip(inner, spatial, strict=True), where(same, place, none), none)

        first = fold("min", [window.kernel for window in windows], tap)
        place = where(first < none, first, 0)
        channel = at(_row_major([n, c], X.shape[:2]) * math.prod(spatial))
        return channel + (_column_major(place, spatial) if columns else place)

    return compute(found.shape, element)


def _row_major(indices: Sequence[Index], shape: Sequence[int]) -> Index:
    total = Index()
    for index, extent in zip(indices, shape, strict=True):
        total = total * extent + index
    return total


def _column_major(place: Expr, shape: Sequence[int]) -> Expr:
    """The index of a row-major place where the first dimension walks fastest."""
    total: Expr = literal(INT64, 0)
    for coordinate, extent in reversed(list(zip(_coordinates(place, shape), shape, strict=True))):
        total = total * extent + coordinate
    return total


def _counts(window: Window, *, padded: bool) -> NDArray[Any]:
    """int64[output]: taps of each window on elements, or on these and the declared padding.

    One number where all windows are whole.
    """
    first, last = (-window.begin, window.input + window.end) if padded else (0, window.input)
    final = (window.output - 1) * window.stride + (window.kernel - 1) * window.dilation
    if first <= -window.begin and final - window.begin < last:
        return np.array([window.kernel])
    require_table(window.output * window.kernel)
    starts = np.arange(window.output) * window.stride - window.begin
    taps = starts[:, None] + np.arange(window.kernel) * window.dilation
    return np.asarray(((taps >= first) & (taps < last)).sum(1))


def _is_even(counts: NDArray[Any]) -> bool:
    return bool((counts == counts[0]).all()) if counts.size else True


def _global(X: Tensor, operation: str, value: Callable[[Expr], Expr], nothing: Expr) -> Tensor:
    """All spatial dimensions folded, each to 1; of no elements, `nothing`."""
    if X.rank < 2:
        raise RefusalError(
            Kind.OPERAND_RANK, f"X has {X.rank} dimensions", "it has batch and channels at least"
        )
    spatial = X.shape[2:]
    shape = (*X.shape[:2], *(1 for _ in spatial))
    if X.elements == 0:
        return full(shape, nothing)
    folds = any(isinstance(node, Fold) and not node.hint for node in walk(X.value))
    pooled = X.stored("the values that are pooled") if folds else X  # vectors fold no folds
    return compute(
        shape,
        lambda n, c, *_: fold(operation, spatial, lambda *inner: value(pooled[[n, c, *inner]])),
    )


def _least(dtype: ElementType) -> Expr:
    """What is below or equal to every value."""
    if dtype.kind == "float":
        return literal(dtype, -math.inf)
    return literal(dtype, np.iinfo(dtype.numpy).min)


def _power(p: int) -> Callable[[Expr], Expr]:
    """|x| to the p-th. Raises RefusalError where there is no norm of that order."""
    if p < 1:
        raise RefusalError(Kind.ATTRIBUTE_VALUE, f"p is {p}", "give a norm's order, 1 or more")

    def value(x: Expr) -> Expr:
        if p == 2:
            return x * x
        magnitude = apply("abs", x)
        if p > MULTIPLIED:
            return apply("pow", magnitude, float(p))
        product = magnitude
        for _ in range(p - 1):
            product = product * magnitude
        return product

    return value


def _root(total: Expr, p: int) -> Expr:
    if p == 1:
        return total
    return apply("sqrt", total) if p == 2 else apply("pow", total, 1 / p)
