"""DeformConv: a convolution whose taps read where a tensor of offsets moves them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from itertools import product as combinations
from operator import add, mul

from onnxc.diagnostics import Kind
from onnxc.dtypes import INT32, INT64
from onnxc.errors import RefusalError
from onnxc.expression import Expr, Index, apply, at, cast, compare, where
from onnxc.op import Ints, op
from onnxc.ops.checks import require_shape
from onnxc.ops.contraction import operand, sum_of_products
from onnxc.ops.convolution import check_groups, check_kernel, grouped, with_bias
from onnxc.ops.window import (
    Window,
    kernel_extents,
    output_extents,
    sliding_windows,
    tap_indices,
)
from onnxc.tensor import Tensor, compute, dynamic


@op("DeformConv")
def deform_conv(
    X: Tensor,
    W: Tensor,
    offset: Tensor,
    B: Tensor | None,
    mask: Tensor | None,
    *,
    dilations: Ints | None,
    group: int,
    kernel_shape: Ints | None,
    offset_group: int,
    pads: Ints | None,
    strides: Ints | None,
) -> Tensor:
    """Every tap reads X where `offset` moves it, between elements by linear interpolation."""
    check_kernel(kernel_shape, W)
    windows = sliding_windows(X.shape[2:], W.shape[2:], strides, dilations, pads, None)
    kernel, outputs = kernel_extents(windows), output_extents(windows)
    if offset_group < 1 or X.shape[1] % offset_group:
        fact = f"X has {X.shape[1]} channels in {offset_group} offset groups"
        raise RefusalError(
            Kind.CHANNELS_AND_GROUPS, fact, "make the channels a multiple of the groups"
        )
    points = offset_group * math.prod(kernel)
    require_shape("offset", offset, (X.shape[0], points * len(windows), *outputs))
    if mask is not None:
        require_shape("mask", mask, (X.shape[0], points, *outputs))
    filters, inputs = W.shape[:2]
    check_groups(X, inputs, filters, group)
    samples = _samples(X, offset, mask, windows, offset_group)
    weights = operand(W, X.shape[0] * math.prod(outputs), "the weights")

    def element(n: Index, block: Index, m: Index, *places: Index) -> Expr:
        def product(*offsets: Index) -> Expr:
            *taps, c = offsets
            sample = samples[[n, *places, *taps, block * inputs + c]]
            return sample * weights[[m, c, *taps]]

        return sum_of_products((*kernel, inputs), product, X)

    if group > 1:
        return with_bias(grouped(X.shape[0], filters, group, outputs, element), B)
    last = compute(
        (X.shape[0], *outputs, filters),
        lambda n, *rest: element(n, Index(), rest[-1], *rest[:-1]),
    )
    moved = last.stored("the output, channels last")
    return with_bias(moved.transpose([0, X.rank - 1, *range(1, X.rank - 1)]), B)


def _samples(
    X: Tensor, offset: Tensor, mask: Tensor | None, windows: Sequence[Window], offset_group: int
) -> Tensor:
    """What each tap of each window reads: (N, *outputs, *kernel, C), stored.

    What does not depend on the channel is stored first: of each corner around each position the
    element there, and its weight; of few channels that would take more memory than what is read. A
    corner without weight does not count, be it infinite.
    """
    rank, size = len(windows), X.shape[1] // offset_group
    kernel, outputs = kernel_extents(windows), output_extents(windows)
    pixels = X.transpose([0, *range(2, X.rank), 1]).stored("the input, channels last")
    pixels = pixels.reshape((X.shape[0], math.prod(X.shape[2:]), X.shape[1]))
    elements, weights = _corners(X, offset, windows, offset_group)
    if size >= 2**rank:
        elements = elements.stored("the elements around each position")
        weights = weights.stored("the weights of these")

    def element(n: Index, *rest: Index) -> Expr:
        *walks, block, c = rest
        places, taps = walks[:rank], walks[rank:]

        def term(*corner: Index) -> Expr:
            where_ = [n, block, *corner, *taps, *places]
            value = pixels[[n, dynamic(elements[where_]), block * size + c]]
            return where(compare("equal", weights[where_], 0), 0, value * weights[where_])

        corners = combinations((0, 1), repeat=rank)
        sample = reduce(add, (term(*map(Index, corner)) for corner in corners))
        return sample if mask is None else sample * mask[[n, _point(block, taps, kernel), *places]]

    split = compute((X.shape[0], *outputs, *kernel, offset_group, size), element)
    stored = split.stored("what the taps read")
    return stored.reshape((X.shape[0], *outputs, *kernel, X.shape[1]))


def _point(block: Index, taps: Sequence[Index], kernel: Sequence[int]) -> Index:
    """The number of a tap in an offset group, of all."""
    for tap, extent in zip(taps, kernel, strict=True):
        block = block * extent + tap
    return block


def _corners(
    X: Tensor, offset: Tensor, windows: Sequence[Window], offset_group: int
) -> tuple[Tensor, Tensor]:
    """The elements of a channel around each position, and the weights of linear interpolation.

    Each (N, offset_group, *(2,) * rank, *kernel, *outputs). Of an element outside it is another
    one, and the weight 0.
    """
    rank, spatial = len(windows), X.shape[2:]
    kernel, outputs = kernel_extents(windows), output_extents(windows)
    shape = (X.shape[0], offset_group, *(2,) * rank, *kernel, *outputs)
    wide = INT64 if math.prod(spatial) >= 2**31 else INT32

    def around(n: Index, block: Index, *rest: Index) -> list[tuple[Expr, Expr]]:
        """Along each dimension the element, inside, and its weight."""
        corner, taps, places = rest[:rank], rest[rank : 2 * rank], rest[2 * rank :]
        point, found = _point(block, taps, kernel), []
        for d, index in enumerate(tap_indices(windows, places, taps)):
            position = cast(at(index), X.dtype) + offset[[n, point * rank + d, *places]]
            low = apply("floor", position)
            step = at(corner[d])
            place = cast(low, wide) + cast(step, wide)
            share = where(compare("equal", step, 0), 1 - (position - low), position - low)
            inside = (place >= 0) & (place < spatial[d])
            clamped = apply("min", apply("max", place, 0), spatial[d] - 1)
            found.append((clamped, where(inside, share, 0)))
        return found

    def element(*indices: Index) -> Expr:
        places = [place for place, _ in around(*indices)]
        flat = zip(places[1:], spatial[1:], strict=True)
        return reduce(lambda total, part: total * part[1] + part[0], flat, places[0])

    def weight(*indices: Index) -> Expr:
        return reduce(mul, (share for _, share in around(*indices)))

    return compute(shape, element), compute(shape, weight)
