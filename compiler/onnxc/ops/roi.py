"""Pools over regions of interest, which are run-time data.

The grid of samples in a region is a product of two lines of samples. Where their number adapts to
the region, which may be of any size, what an output takes from the elements of X is a product too:
of a table for its row and one for its column, which do not grow with the number of samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from typing import Final

from onnxc.diagnostics import Kind
from onnxc.dtypes import DOUBLE, INT32, INT64, ElementType
from onnxc.errors import RefusalError
from onnxc.expression import (
    Expr,
    Index,
    apply,
    at,
    cast,
    compare,
    fold,
    literal,
    where,
)
from onnxc.op import op
from onnxc.ops.regions import Range, check_shapes, images_of
from onnxc.tensor import Tensor, compute, dynamic, full, zero

FEWEST: Final = 8
"""Channels that are worth to be moved side by side."""
NEAR: Final = 8
"""Adaptive samples are over half an element apart: no more than so many are near an element."""


@dataclass(frozen=True)
class _Line:
    """The samples of the bins along one axis of X, of `length` elements.

    origin, bin   double[rois]: where the first bin begins, and the extent of each
    count         double[rois]: samples in a bin
    """

    length: int
    bins: int
    origin: Tensor
    bin: Tensor
    count: Tensor

    def position(self, roi: Index, number: Index, sample: Expr) -> Expr:
        """double: where in X a sample of a bin lies, in elements from the first."""
        size = self.bin[[roi]]
        first = self.origin[[roi]] + cast(at(number), DOUBLE) * size
        return first + (sample + 0.5) * size / self.count[[roi]]

    def over_samples(
        self, operation: str, value: Callable[[Expr, Expr], Expr], otherwise: float
    ) -> Tensor:
        """double[rois][bins][length]: `value(position, element)` folded over adaptive samples.

        Only of those inside; the position is that on the elements, between the outermost ones.
        """
        shape = (*self.count.shape, self.bins, self.length)

        def element(roi: Index, number: Index, place: Index) -> Expr:
            here = cast(at(place), DOUBLE)

            def term(n: Index) -> Expr:
                sample = cast(at(n), DOUBLE) + self._first_near(roi, number, here)
                exact = self.position(roi, number, sample)
                exists = (sample < self.count[[roi]]) & self.is_inside(exact)
                clamped = self.on_elements(exact)
                near = (clamped >= here - 1) & (clamped < here + 1)
                return where(exists & near, value(clamped, here), otherwise)

            return fold(operation, [NEAR], term)

        return compute(shape, element)

    def _first_near(self, roi: Index, number: Index, element: Expr) -> Expr:
        """The first sample near an element, 1 or less before it or, of the first two, the border.

        A sample before element 0 is moved there, and so has element 1, with no weight, beside it.
        """
        start = where(element <= 1, -1, element - 1)
        origin = self.origin[[roi]] + cast(at(number), DOUBLE) * self.bin[[roi]]
        step = self.bin[[roi]] / self.count[[roi]]
        return apply("max", apply("ceil", (start - origin) / step - 0.5), 0)

    def is_inside(self, position: Expr) -> Expr:
        """Whether a sample counts; further out it is 0."""
        return (position >= -1.0) & (position <= float(self.length))

    def on_elements(self, position: Expr) -> Expr:
        """Between the outermost ones."""
        return apply("min", apply("max", position, 0), float(self.length - 1))

    def strays(self) -> Tensor:
        """bool[rois][bins]: whether some sample of a bin is outside, or there is none."""

        def element(roi: Index, number: Index) -> Expr:
            first = self.position(roi, number, literal(DOUBLE, 0))
            last = self.position(roi, number, self.count[[roi]] - 1)
            return ~(self.is_inside(first) & self.is_inside(last) & (self.count[[roi]] > 0))

        return compute((*self.count.shape, self.bins), element)


@op("RoiAlign")
def roi_align(
    X: Tensor,
    rois: Tensor,
    batch_indices: Tensor,
    *,
    coordinate_transformation_mode: str,
    mode: str,
    output_height: int,
    output_width: int,
    sampling_ratio: int,
    spatial_scale: float,
) -> Tensor:
    """Mode max is the greatest of the weighted corners of the samples, as ONNX's tests have it.

    Regions are computed in X's type, in the order of the specification, samples in double. A bin
    without a sample is 0, and so is a sample more than 1 outside of X, or at a NaN.
    """
    known = ("half_pixel", "output_half_pixel")
    if coordinate_transformation_mode not in known or mode not in ("avg", "max"):
        given = f"mode {mode!r} and coordinates {coordinate_transformation_mode!r}"
        raise RefusalError(
            Kind.ATTRIBUTE_VALUE, f"{given} are not known", f"give avg or max, and one of {known}"
        )
    check_shapes(X, rois, 4)
    if batch_indices.shape != rois.shape[:1]:
        raise RefusalError(
            Kind.OPERAND_SHAPE, f"{rois.shape[0]} regions have batch_indices {batch_indices.shape}"
        )
    if sampling_ratio < 0 or output_height < 1 or output_width < 1:
        raise RefusalError(
            Kind.NUMBER_OUT_OF_RANGE, "sampling_ratio is negative, or the output has no extent"
        )
    shape = (rois.shape[0], X.shape[1], output_height, output_width)
    if math.prod(shape) == 0 or X.elements == 0:
        return full(shape, zero(X.dtype))
    half = coordinate_transformation_mode == "half_pixel"
    lines = [
        _line(rois, column, X.shape[d], bins, spatial_scale, sampling_ratio, half)
        for d, column, bins in ((2, 1, output_height), (3, 0, output_width))
    ]
    values = X.shared("the values sampled")
    batch = images_of(batch_indices.unsqueeze([1]), X.shape[0])
    if sampling_ratio:
        samples = [_Samples.of(line, sampling_ratio, X.dtype) for line in lines]
        return _sampled(values, batch, samples, mode)
    if mode == "avg":
        return _averaged(values, batch, lines)
    return _greatest(values, batch, lines)


def _line(
    rois: Tensor, column: int, length: int, bins: int, scale: float, ratio: int, half: bool
) -> _Line:
    def at_column(roi: Index, number: int) -> Expr:
        scaled = rois[[roi, Index(number)]] * scale
        return scaled - 0.5 if half else scaled

    def extent(roi: Index) -> Expr:
        size = at_column(roi, column + 2) - at_column(roi, column)
        return (size if half else apply("max", size, 1)) / float(bins)

    def table(value: Callable[[Index], Expr], role: str) -> Tensor:
        return compute(rois.shape[:1], value).cast(DOUBLE).stored(role)

    axis = "rows" if column else "columns"
    if ratio:
        count = full(rois.shape[:1], literal(DOUBLE, ratio))
    else:
        count = table(lambda roi: apply("ceil", extent(roi)), f"samples per bin along {axis}")
    return _Line(
        length,
        bins,
        table(lambda roi: at_column(roi, column), f"where each region begins along {axis}"),
        table(extent, f"the extent of a bin along {axis}"),
        count,
    )


@dataclass(frozen=True)
class _Samples:
    """Of a fixed number in each bin, along one axis: each [rois][bins][samples][2].

    elements  int32: those before and after each sample, the same one at the end
    weights   of these, of the type of X; both 0 where the sample does not count
    """

    elements: Tensor
    weights: Tensor

    @classmethod
    def of(cls, line: _Line, count: int, dtype: ElementType) -> _Samples:
        shape = (*line.count.shape, line.bins, count)

        def exact(roi: Index, number: Index, sample: Index) -> Expr:
            return line.position(roi, number, cast(at(sample), DOUBLE))

        positions = compute(shape, exact).stored("where each sample lies")

        def place(roi: Index, number: Index, sample: Index, side: Index) -> Expr:
            low = apply("floor", line.on_elements(positions[[roi, number, sample]]))
            inside = apply("min", low + cast(at(side), DOUBLE), float(line.length - 1))
            return cast(inside, INT32)

        def weight(roi: Index, number: Index, sample: Index, side: Index) -> Expr:
            position = positions[[roi, number, sample]]
            inside = line.on_elements(position)
            share = cast(inside - apply("floor", inside), dtype)
            found = where(compare("equal", at(side), 0), 1 - share, share)
            return where(line.is_inside(position), found, 0)

        both = (*shape, 2)
        return cls(
            compute(both, place).stored("the elements around each sample"),
            compute(both, weight).stored("the weights of these"),
        )


def _sampled(X: Tensor, batch: Tensor, samples: list[_Samples], mode: str) -> Tensor:
    rows, columns = samples
    rois, height, count, _ = rows.weights.shape
    width = columns.weights.shape[1]
    terms = (count, 2, count, 2)
    shape = (rois, height, width, *terms)
    tabled = X.shape[1] > 1 and math.prod(terms) <= 2 * X.shape[1]  # 4 times the result at most
    last = tabled and X.shape[1] >= FEWEST and math.prod(shape) >= X.elements // X.shape[1]
    plane = math.prod(X.shape[2:])
    wide = INT64 if X.elements >= 2**31 else INT32

    def place(roi: Index, row: Index, column: Index, *term: Index) -> Expr:
        """That of the first channel, in elements of X."""
        step = X.shape[1] if last else 1
        above = cast(rows.elements[[roi, row, *term[:2]]], wide) * (step * X.shape[3])
        beside = cast(columns.elements[[roi, column, *term[2:]]], wide) * step
        return cast(batch[[roi]], wide) * (X.shape[1] * plane) + above + beside

    def weight(roi: Index, row: Index, column: Index, *term: Index) -> Expr:
        return rows.weights[[roi, row, *term[:2]]] * columns.weights[[roi, column, *term[2:]]]

    elements, weights = compute(shape, place), compute(shape, weight)
    if tabled:
        elements = elements.stored("the elements of each bin")
        weights = weights.stored("the weights of these")
    flat = _channels_last(X) if last else X.reshape((X.elements,))

    def element(roi: Index, c: Index, row: Index, column: Index) -> Expr:
        def corner(y: Index, x: Index, down: int, right: int) -> Expr:
            here = [roi, row, column, y, Index(down), x, Index(right)]
            place = dynamic(elements[here])
            value = flat[[place + c if last else place + c * plane]]
            return where(compare("equal", weights[here], 0), 0, value * weights[here])

        def sample(y: Index, x: Index) -> Expr:
            four = [corner(y, x, down, right) for down in (0, 1) for right in (0, 1)]
            return reduce(partial(apply, "max" if mode == "max" else "add"), four)

        if mode == "max":
            return fold("max", [count, count], sample)
        return fold("sum", [count, count], sample) / float(count**2)

    if not last:
        return compute((rois, X.shape[1], height, width), element)
    bins = compute(
        (rois, height, width, X.shape[1]),
        lambda roi, row, column, c: element(roi, c, row, column),
    )
    return bins.stored("the bins, channels last").transpose([0, 3, 1, 2])


def _channels_last(X: Tensor) -> Tensor:
    """Its elements, those of all channels side by side."""
    return X.transpose([0, 2, 3, 1]).stored("the input, channels last").reshape((X.elements,))


def _hat(position: Expr, element: Expr) -> Expr:
    """The weight of an element for a sample less than 1 away."""
    return 1 - apply("abs", position - element)


def _averaged(X: Tensor, batch: Tensor, lines: list[_Line]) -> Tensor:
    rows, columns = (
        _per_sample(line).cast(X.dtype).stored("the share of each element in a bin")
        for line in lines
    )
    row_ends, column_ends = (
        Range.of(shares, lambda share: share > 0) for shares in (rows, columns)
    )
    nothing = zero(X.dtype)

    def element(roi: Index, c: Index, row: Index, column: Index) -> Expr:
        image = dynamic(batch[[roi]])

        def across(y: Index) -> Expr:
            def term(x: Index) -> Expr:
                share = columns[[roi, column, x]]
                return where(share > 0, X[[image, c, y, x]] * share, 0)

            share = rows[[roi, row, y]]
            total = column_ends.folded("sum", roi, column, term, nothing)
            return where(share > 0, total * share, 0)

        return row_ends.folded("sum", roi, row, across, nothing)

    return compute((rows.shape[0], X.shape[1], rows.shape[1], columns.shape[1]), element)


def _per_sample(line: _Line) -> Tensor:
    totals = line.over_samples("sum", _hat, 0.0)
    return compute(
        totals.shape,
        lambda roi, number, place: (
            totals[[roi, number, place]] / apply("max", line.count[[roi]], 1)
        ),
    )


def _greatest(X: Tensor, batch: Tensor, lines: list[_Line]) -> Tensor:
    """A positive element counts by its greatest weights, a negative one by its least."""
    most = [_extreme(X, line, "max", _hat, -1.0) for line in lines]
    least = [_extreme(X, line, "min", _least_hat(line), 2.0) for line in lines]
    strays = [line.strays().stored("bins with samples outside") for line in lines]
    ranges = [Range.of(table, lambda weight: weight >= 0) for table in most]
    none = literal(X.dtype, -math.inf)

    def element(roi: Index, c: Index, row: Index, column: Index) -> Expr:
        image = dynamic(batch[[roi]])

        def across(y: Index) -> Expr:
            def term(x: Index) -> Expr:
                value = X[[image, c, y, x]]
                above, below = (t[0][[roi, row, y]] * t[1][[roi, column, x]] for t in (most, least))
                weight = where(value > 0, above, below)
                return where(compare("equal", weight, 0), 0, value * weight)

            return ranges[1].folded("max", roi, column, term, none)

        found = ranges[0].folded("max", roi, row, across, none)
        stray = strays[0][[roi, row]] | strays[1][[roi, column]]
        return apply("max", found, where(stray, zero(X.dtype), none))

    return compute((most[0].shape[0], X.shape[1], most[0].shape[1], most[1].shape[1]), element)


def _extreme(
    X: Tensor,
    line: _Line,
    operation: str,
    value: Callable[[Expr, Expr], Expr],
    otherwise: float,
) -> Tensor:
    found = line.over_samples(operation, value, otherwise).cast(X.dtype)
    return found.stored("the extreme weights of each element in a bin")


def _least_hat(line: _Line) -> Callable[[Expr, Expr], Expr]:
    """On the last element both corners of a sample are that element, one with a weight of 0."""
    last = float(line.length - 1)
    return lambda position, element: where(
        (position >= last) & (element >= last), 0, _hat(position, element)
    )


@op("MaxRoiPool")
def max_roi_pool(
    X: Tensor, rois: Tensor, *, pooled_shape: tuple[int, ...], spatial_scale: float
) -> Tensor:
    """Corners are rounded to elements, halves away from 0, and both belong to the region.

    Bin n of m of a region of k elements is floor(n k / m) to ceil((n + 1) k / m). An empty bin is
    0. A region whose numbers are NaN is empty.
    """
    check_shapes(X, rois, 5)
    if len(pooled_shape) != 2 or min(pooled_shape) < 1:
        raise RefusalError(
            Kind.ATTRIBUTE_VALUE,
            f"pooled_shape is {list(pooled_shape)}",
            "give a height and a width",
        )
    shape = (rois.shape[0], X.shape[1], *pooled_shape)
    if math.prod(shape) == 0 or X.elements == 0:
        return full(shape, zero(X.dtype))
    values = X.shared("the values pooled")
    batch = images_of(rois, X.shape[0])
    ranges = [
        Range(
            X.shape[d],
            *(
                _edges(rois, column, X.shape[d], bins, spatial_scale, last=last).stored(
                    f"the {'end' if last else 'start'} of each bin along dimension {d}"
                )
                for last in (False, True)
            ),
        )
        for d, column, bins in ((2, 2, pooled_shape[0]), (3, 1, pooled_shape[1]))
    ]
    none = literal(X.dtype, -math.inf)

    def element(roi: Index, c: Index, row: Index, column: Index) -> Expr:
        image = dynamic(batch[[roi]])

        def across(y: Index) -> Expr:
            return ranges[1].folded("max", roi, column, lambda x: values[[image, c, y, x]], none)

        found = ranges[0].folded("max", roi, row, across, none)
        filled = [
            edges.first[[roi, number]] < edges.end[[roi, number]]
            for edges, number in zip(ranges, (row, column), strict=True)
        ]
        return where(filled[0] & filled[1], found, 0)

    return compute(shape, element)


def _edges(
    rois: Tensor, column: int, length: int, bins: int, scale: float, *, last: bool
) -> Tensor:
    """int64[rois][bins]: the first element of each bin, or with `last` the one after it."""

    def corner(roi: Index, number: int) -> Expr:
        scaled = cast(rois[[roi, Index(number)]] * scale, DOUBLE)
        return where(scaled < 0, apply("ceil", scaled - 0.5), apply("floor", scaled + 0.5))

    def element(roi: Index, number: Index) -> Expr:
        first = corner(roi, column)
        size = apply("max", corner(roi, column + 2) - first + 1, 1)
        position = cast(at(number + int(last)), DOUBLE) * size / literal(DOUBLE, bins)
        edge = apply("ceil" if last else "floor", position) + first
        return cast(apply("min", apply("max", edge, 0), float(length)), INT64)

    return compute((rois.shape[0], bins), element)
