"""Convolutions of any rank. Padding is never stored: taps outside read as zero."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from onnxc.centred import centred
from onnxc.diagnostics import Kind
from onnxc.errors import RefusalError
from onnxc.expression import (
    Buffer,
    Expr,
    Index,
    Load,
    along,
    apply,
    at,
    guard,
)
from onnxc.kernel import Loops, define
from onnxc.op import Ints, op
from onnxc.ops.checks import require_choice, require_shape
from onnxc.ops.contraction import operand, sum_of_products
from onnxc.ops.window import (
    SAME,
    Window,
    begin_end_pads,
    checked_auto_pad,
    kernel_extents,
    output_extents,
    per_dimension,
    reach,
    sliding_windows,
    split_padding,
    tap_indices,
    without_padded_taps,
)
from onnxc.tensor import (
    Tensor,
    compute,
    dynamic,
    elementwise,
    full,
    guarded,
    of_buffer,
    zero,
)

Bound = tuple[Index, int]


@op("Conv")
def conv(
    X: Tensor,
    W: Tensor,
    B: Tensor | None,
    *,
    auto_pad: str | None,
    dilations: Ints | None,
    group: int,
    kernel_shape: Ints | None,
    pads: Ints | None,
    strides: Ints | None,
) -> Tensor:
    check_kernel(kernel_shape, W)
    windows = sliding_windows(X.shape[2:], W.shape[2:], strides, dilations, pads, auto_pad)
    return with_bias(convolved(X, W, windows, group), B)


def check_kernel(kernel_shape: Ints | None, W: Tensor) -> None:
    """The attribute says nothing new, so it must not say anything else."""
    if kernel_shape is not None and tuple(kernel_shape) != W.shape[2:]:
        fact = f"kernel_shape is {list(kernel_shape)}, but W has {list(W.shape[2:])}"
        raise RefusalError(Kind.OPERAND_SHAPE, fact, "remove the attribute")


def check_groups(X: Tensor, inputs: int, outputs: int, group: int) -> None:
    """`inputs` are the channels that W takes a group, `outputs` those that it makes in all."""
    if group < 1 or X.shape[1] != inputs * group or outputs % group:
        fact = (
            f"X has {X.shape[1]} channels, W takes {inputs} a group and makes {outputs},"
            f" and there are {group} groups"
        )
        raise RefusalError(
            Kind.CHANNELS_AND_GROUPS, fact, "make the channels a multiple of the groups"
        )


def with_bias(result: Tensor, B: Tensor | None) -> Tensor:
    """`result` (N, C, ...) with one number of `B` (C) a channel added."""
    if B is None:
        return result
    require_shape("the bias", B, result.shape[1:2])
    channels = B.shared("the bias").reshape((result.shape[1], *(1 for _ in result.shape[2:])))
    return elementwise(lambda value, bias: value + bias, result, channels)


def convolved(X: Tensor, W: Tensor, windows: Sequence[Window], group: int) -> Tensor:
    """X (N, C, *spatial) with filters W (M, C / group, *kernel): (N, M, *outputs).

    In the type of both; padding is zero. The innermost loop goes over a row of the kernel, which
    neighbours in both: twice as fast as one over the channels (gcc -O3 and clang, 3 x 3).
    """
    filters, inputs = W.shape[:2]
    check_groups(X, inputs, filters, group)
    outputs = output_extents(windows)
    kept, first = without_padded_taps(windows)
    if any(first) or kernel_extents(kept) != kernel_extents(windows):
        windows, first = (kept, first) if _is_finite(W) else (windows, (0,) * len(windows))
    source = X.stored("the input") if _is_computed(X) else X
    weights = operand(W, X.shape[0] * math.prod(outputs), "the weights")

    def element(n: Index, block: Index, m: Index, *places: Index) -> Expr:
        def product(*offsets: Index) -> Expr:
            c, *taps = offsets
            indices = [n, block * inputs + c, *tap_indices(windows, places, taps)]
            own = (tap + skipped for tap, skipped in zip(taps, first, strict=True))
            return guarded(source, indices, zero(X.dtype)) * weights[[m, c, *own]]

        return sum_of_products((inputs, *kernel_extents(windows)), product, X, "convolution")

    return grouped(X.shape[0], filters, group, outputs, element)


def _is_computed(tensor: Tensor) -> bool:
    """Whether its elements are more than those of a buffer, as it is or seen otherwise.

    Those that lie where numbers of the run say, or a table does as for mirrored edges, are more.
    8-bit numbers less their zero point are not: integer products read those.
    """
    value = tensor.value
    if isinstance(value, Load):
        return any(index.dynamic for index in value.indices)
    return centred(value) is None


def grouped(
    batch: int,
    filters: int,
    group: int,
    outputs: Ints,
    element: Callable[..., Expr],
) -> Tensor:
    """(batch, filters, *outputs) of element(n, group, filter, *places).

    Where neither the groups nor the filters of one are a single one, the result is stored: an Index
    cannot divide.
    """
    size = filters // group
    if group == 1:
        return compute(
            (batch, filters, *outputs), lambda n, m, *places: element(n, Index(), m, *places)
        )
    if size == 1:
        return compute((batch, filters, *outputs), lambda n, m, *places: element(n, m, m, *places))
    split = compute(
        (batch, group, size, *outputs),
        lambda n, g, m, *places: element(n, g, g * size + m, *places),
    )
    if split.elements == 0:
        return full((batch, filters, *outputs), zero(split.dtype))
    out = Buffer("", (batch, filters, *outputs), split.dtype, "workspace")
    n, g, m, *places = (along(axis) for axis in split.axes)
    where = (n, g * size + m, *places)
    define((Loops(out, where, split.axes, split.value, role="the groups"),))
    return of_buffer(out)


@dataclass(frozen=True)
class Spread:
    """One dimension of a transposed convolution: input element i is spread from i * stride on.

    `begin` elements are cut off at the start; `output` are left.
    """

    input: int
    kernel: int
    stride: int
    dilation: int
    begin: int
    output: int

    @property
    def reach(self) -> int:
        """Elements from the first tap to the last one."""
        return reach(self.kernel, self.dilation)

    @property
    def taps(self) -> int:
        """Of the kernel, those that may meet one element of the result."""
        if self.stride == 1:
            return self.kernel
        return -(-self.reach // self.stride)

    @property
    def blocks(self) -> int:
        """Of `stride` elements each, as many as cover the result and what is cut off."""
        return -(-(self.begin + self.output) // self.stride)

    def meet(self, block: Index, rest: Index, step: Index) -> tuple[Index, Index, list[Bound]]:
        """The element and the tap that meet `step` in element `rest` of a block, if they exist.

        That is where the bounds hold.
        """
        if self.stride == 1:
            element = block + step * -self.dilation
            return element, step, [(element, self.input)]
        element, place = block + step * -1, rest + step * self.stride
        bounds = [(element, self.input), (place, self.reach)]
        if self.dilation == 1:
            return element, place, bounds
        between = dynamic(apply("remainder", at(place), self.dilation))
        tap = dynamic(apply("div", at(place), self.dilation))
        return element, tap, [*bounds, (between, 1)]


@op("ConvTranspose")
def conv_transpose(
    X: Tensor,
    W: Tensor,
    B: Tensor | None,
    *,
    auto_pad: str | None,
    dilations: Ints | None,
    group: int,
    kernel_shape: Ints | None,
    output_padding: Ints | None,
    output_shape: Ints | None,
    pads: Ints | None,
    strides: Ints | None,
) -> Tensor:
    """Gathered, not scattered: element q * stride + r of the result meets taps r + t * stride.

    W is (C, M / group, *kernel).
    """
    check_kernel(kernel_shape, W)
    rank = X.rank - 2
    steps = per_dimension("strides", strides, rank, least=1)
    dilation = per_dimension("dilations", dilations, rank, least=1)
    more = per_dimension("output_padding", output_padding or (0,) * rank, rank, least=0)
    cuts = _cuts(X.shape[2:], W.shape[2:], steps, dilation, more, pads, auto_pad, output_shape)
    spreads = [
        Spread(X.shape[2 + d], W.shape[2 + d], steps[d], dilation[d], begin, output)
        for d, (begin, output) in enumerate(cuts)
    ]
    return _transposed(X, W, B, spreads, group)


def _cuts(
    spatial: Ints,
    kernel: Ints,
    strides: Ints,
    dilations: Ints,
    more: Ints,
    pads: Ints | None,
    auto_pad: str | None,
    output_shape: Ints | None,
) -> list[tuple[int, int]]:
    """(elements cut off at the start, elements of the result) of each dimension.

    Where the size is given, by output_shape or SAME, what is over is cut off: the odd element at
    the start but for SAME_UPPER; what an output_shape lacks is added at the end.
    """
    rank, mode = len(spatial), checked_auto_pad(auto_pad)
    whole = [
        strides[d] * (spatial[d] - 1) + more[d] + reach(kernel[d], dilations[d])
        for d in range(rank)
    ]
    if output_shape is not None:
        sizes = per_dimension("output_shape", output_shape, rank, least=0)
    elif mode in SAME:
        if any(more):
            fact = f"has both auto_pad {mode} and output_padding, of which each fixes the size"
            raise RefusalError(Kind.ATTRIBUTES_CONFLICT, fact, "give output_shape or pads")
        sizes = tuple(min(spatial[d] * strides[d], whole[d]) for d in range(rank))
    else:
        given = begin_end_pads(pads, rank) if mode == "NOTSET" else [(0, 0)] * rank
        if any(sum(pair) > size for pair, size in zip(given, whole, strict=True)):
            raise RefusalError(Kind.PADS, f"pads {list(pads or ())} cut off more than there is")
        return [(begin, whole[d] - begin - end) for d, (begin, end) in enumerate(given)]
    side = "SAME_UPPER" if mode == "SAME_UPPER" else "SAME_LOWER"
    return [(split_padding(max(0, whole[d] - size), side)[0], size) for d, size in enumerate(sizes)]


def _transposed(
    X: Tensor, W: Tensor, B: Tensor | None, spreads: Sequence[Spread], group: int
) -> Tensor:
    """With the blocks and the elements in one as two dimensions, which the end joins and cuts."""
    channels, size = W.shape[:2]
    if group < 1 or X.shape[1] != channels or channels % group:
        fact = f"X has {X.shape[1]} channels, W takes {channels}, in {group} groups"
        raise RefusalError(
            Kind.CHANNELS_AND_GROUPS, fact, "make the channels a multiple of the groups"
        )
    inputs, filters = channels // group, size * group
    if B is not None:
        require_shape("the bias", B, (filters,))
    bias = None if B is None else B.shared("the bias")
    lengths = tuple(spread.taps for spread in spreads)
    source = operand(X, size * math.prod(lengths), "the input")
    weights = operand(W, X.shape[0] * math.prod(X.shape[2:]), "the weights")

    def element(n: Index, block: Index, m: Index, *places: Index) -> Expr:
        def product(*offsets: Index) -> Expr:
            c, *steps = offsets
            meetings = [
                spread.meet(*where)
                for spread, *where in zip(spreads, places[::2], places[1::2], steps, strict=True)
            ]
            elements, taps, limits = zip(*meetings, strict=True) if meetings else ((), (), ())
            bounds = [bound for several in limits for bound in several]
            channel = block * inputs + c
            # W has the filters of its own group only.
            filter_ = m if group == 1 else m + block * -size
            value = source[[n, channel, *elements]] * weights[[channel, filter_, *taps]]
            return guard(bounds, value, zero(X.dtype))

        result = sum_of_products((inputs, *lengths), product, X)
        return result if bias is None else result + bias[[m]]

    if 0 in (*X.shape, *W.shape):
        shape = (X.shape[0], filters, *(spread.output for spread in spreads))
        return with_bias(full(shape, zero(X.dtype)), B)
    if all(spread.stride == 1 for spread in spreads) and _is_finite(W):
        return with_bias(_turned(X, W, spreads, group), B)
    split = tuple(n for spread in spreads for n in (spread.blocks, spread.stride))
    whole = grouped(X.shape[0], filters, group, split, element)
    joined = whole.reshape(
        (X.shape[0], filters, *(spread.blocks * spread.stride for spread in spreads))
    )
    return compute(
        (X.shape[0], filters, *(spread.output for spread in spreads)),
        lambda n, m, *places: joined[
            [n, m, *(p + spread.begin for p, spread in zip(places, spreads, strict=True))]
        ],
    )


def _is_finite(tensor: Tensor) -> bool:
    """Whether it is known to be, so that its products with padding are zero."""
    buffer = tensor.buffer
    data = None if buffer is None or tensor.dtype.kind != "float" else buffer.data
    return data is not None and bool(np.isfinite(data).all())


def _turned(X: Tensor, W: Tensor, spreads: Sequence[Spread], group: int) -> Tensor:
    """With strides of 1: a convolution by the filters turned around, of X with padding."""
    inputs, size = W.shape[0] // group, W.shape[1]
    source = X.stored("the input") if _is_computed(X) else X
    outputs = tuple(spread.output for spread in spreads)

    def element(n: Index, block: Index, m: Index, *places: Index) -> Expr:
        def product(*offsets: Index) -> Expr:
            c, *steps = offsets
            channel = block * inputs + c
            filter_ = m if group == 1 else m + block * -size
            triples = list(zip(spreads, places, steps, strict=True))
            elements = [
                place + step * spread.dilation + (spread.begin - spread.reach + 1)
                for spread, place, step in triples
            ]
            taps = [step * -1 + (spread.kernel - 1) for spread, _, step in triples]
            value = guarded(source, [n, channel, *elements], zero(X.dtype))
            return value * W[[channel, filter_, *taps]]

        lengths = (inputs, *(spread.kernel for spread in spreads))
        return sum_of_products(lengths, product, X, "convolution")

    return grouped(X.shape[0], size * group, group, outputs, element)


@op("CausalConvWithState")
def causal_conv_with_state(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    past_state: Tensor | None,
    *,
    activation: str,
) -> tuple[Tensor, Tensor]:
    """Each channel by its own filter, over the last elements of the past and the input."""
    require_choice("activation", activation, ("none", "silu", "swish"))
    batch, channels, length = input.shape
    kept = weight.shape[2] - 1
    require_shape("weight", weight, (channels, 1, kept + 1))
    past = full((batch, channels, kept), zero(input.dtype)) if past_state is None else past_state
    require_shape("past_state", past, (batch, channels, kept))
    source, before = (operand(tensor, kept + 1) for tensor in (input, past))

    def joined(n: Index, c: Index, place: Index) -> Expr:
        """The past, then the input."""
        return guarded(
            source, [n, c, place + -kept], guarded(before, [n, c, place], zero(input.dtype))
        )

    def element(n: Index, c: Index, place: Index) -> Expr:
        return sum_of_products(
            (kept + 1,), lambda tap: joined(n, c, place + tap) * weight[[c, Index(), tap]], input
        )

    result = with_bias(compute((batch, channels, length), element), bias)
    if activation != "none":
        result = elementwise(lambda value: value * apply("sigmoid", value), result)
    state = compute((batch, channels, kept), lambda n, c, p: joined(n, c, p + length))
    return result, state
