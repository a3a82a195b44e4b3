"""Normalisations: elements less their mean, over their deviation, for some choice of "their".

A mean that is rounded moves every element by as much, which is a lot where the elements differ by
little: so the mean of the differences to it is taken too, and both are subtracted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from onnxc.diagnostics import Kind
from onnxc.dtypes import BOOL, BY_NAME, DOUBLE, FLOAT, ElementType
from onnxc.errors import RefusalError
from onnxc.evaluate import constant_value
from onnxc.expression import Expr, Index, apply, fold, literal, where
from onnxc.op import Floats, Ints, op
from onnxc.ops.checks import broadcasts_to, distinct_axes, positive_axis, require_shape
from onnxc.ops.elementwise import magnitude
from onnxc.ops.reduction import Axes, folded, mean
from onnxc.tensor import Tensor, compute, constant, elementwise, full, guarded

STAGES: Final = {"float": FLOAT, "double": DOUBLE, "float16": FLOAT, "bfloat16": FLOAT}
"""In what the first stage is computed for a stash_type: 16-bit floats are so in float."""
DEVIATION_EPSILON: Final = 1e-9
"""What MeanVarianceNormalization adds to the standard deviation."""


@dataclass(frozen=True)
class Moments:
    """Of `data` over some axes, which stay with an extent of 1.

    centred   each element less the mean
    variance  of the population
    """

    centred: Tensor
    mean: Tensor
    variance: Tensor


def moments(data: Tensor, axes: Axes) -> Moments:
    data = data.shared("the elements")
    rounded = mean(data, axes).stored("mean")
    off = elementwise(lambda x, m: x - m, data, rounded)
    rest = mean(off, axes).stored("what rounding took from the mean")
    centred = elementwise(lambda x, r: x - r, off, rest)
    variance = mean(elementwise(lambda x: x * x, centred), axes)
    return Moments(centred, elementwise(_corrected, rounded, rest), variance)


def _corrected(rounded: Expr, rest: Expr) -> Expr:
    """The mean; of an infinite one the rest says nothing."""
    total = rounded + rest
    return where(apply("is_nan", total), rounded, total)


def inverse_deviation(variance: Tensor, epsilon: float) -> Tensor:
    return elementwise(lambda v: 1 / apply("sqrt", v + epsilon), variance)


def normalized(found: Moments, epsilon: float) -> Tensor:
    inverse = inverse_deviation(found.variance, epsilon).stored("1 / standard deviation")
    return elementwise(lambda x, i: x * i, found.centred, inverse)


def affine(data: Tensor, scale: Tensor, bias: Tensor | None) -> Tensor:
    """Scale and bias broadcast to the data, the data never to them."""
    for name, values in (("scale", scale), ("bias", bias)):
        if values is not None and not broadcasts_to(values.shape, data.shape):
            fact = f"the {name} {list(values.shape)} does not broadcast to {list(data.shape)}"
            raise RefusalError(Kind.SHAPES_DO_NOT_BROADCAST, fact)
    scaled = elementwise(lambda x, s: x * s, data, scale)
    return scaled if bias is None else elementwise(lambda x, b: x + b, scaled, bias)


def per_channel(values: Tensor, data: Tensor) -> Tensor:
    """Of one value a channel, along dimension 1 of `data`."""
    if data.rank < 2:
        raise RefusalError(
            Kind.OPERAND_RANK, f"there are no channels in a tensor of {data.rank} dimensions"
        )
    channels = data.shape[1]
    if values.shape != (channels,):
        raise RefusalError(
            Kind.OPERAND_SHAPE, f"{list(values.shape)} values for {channels} channels"
        )
    return values.reshape((1, channels) + (1,) * (data.rank - 2))


def stage_type(stash_type: int) -> ElementType:
    """What the statistics are computed in."""
    for name, dtype in STAGES.items():
        if BY_NAME[name].code == stash_type:
            return dtype
    raise RefusalError(
        Kind.ATTRIBUTE_VALUE, f"stash_type is {stash_type}, which is no type of floats"
    )


@op("LayerNormalization")
def layer_normalization(
    X: Tensor, Scale: Tensor, B: Tensor | None, *, axis: int, epsilon: float, stash_type: int
) -> tuple[Tensor, Tensor, Tensor]:
    axes = tuple(range(positive_axis(axis, X.rank), X.rank))
    found = moments(X.cast(stage_type(stash_type)), axes)
    inverse = inverse_deviation(found.variance, epsilon).stored("1 / standard deviation")
    y = elementwise(lambda x, i: x * i, found.centred, inverse).cast(X.dtype)
    return affine(y, Scale, B), found.mean, inverse


@op("RMSNormalization")
def rms_normalization(
    X: Tensor, scale: Tensor, *, axis: int, epsilon: float, stash_type: int
) -> Tensor:
    """By the root of the mean square; the result has the type of `scale`."""
    axes = tuple(range(positive_axis(axis, X.rank), X.rank))
    x = X.cast(stage_type(stash_type)).shared("the elements")
    square = mean(elementwise(lambda value: value * value, x), axes)
    inverse = inverse_deviation(square, epsilon).stored("1 / root of the mean square")
    y = elementwise(lambda value, i: value * i, x, inverse)
    return affine(y.cast(X.dtype).cast(scale.dtype), scale, None)


@op("InstanceNormalization")
def instance_normalization(input: Tensor, scale: Tensor, B: Tensor, *, epsilon: float) -> Tensor:
    """Over all dimensions but batch and channel."""
    y = normalized(moments(input, tuple(range(2, input.rank))), epsilon)
    return affine(y, per_channel(scale, input), per_channel(B, input))


@op("GroupNormalization")
def group_normalization(
    X: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int, epsilon: float, stash_type: int
) -> Tensor:
    """Over the channels of a group and all dimensions after them."""
    if X.rank < 2:
        raise RefusalError(
            Kind.OPERAND_RANK, f"there are no channels in a tensor of {X.rank} dimensions"
        )
    batch, channels, *rest = X.shape
    if num_groups < 1 or channels % num_groups:
        raise RefusalError(
            Kind.CHANNELS_AND_GROUPS, f"{channels} channels are no {num_groups} groups of one size"
        )
    require_shape("scale", scale, (channels,))
    require_shape("bias", bias, (channels,))
    shape = (batch, num_groups, channels // num_groups, *rest)
    grouped = X.cast(stage_type(stash_type)).reshape(shape)
    y = normalized(moments(grouped, tuple(range(2, len(shape)))), epsilon).cast(X.dtype)
    whole = (1, *shape[1:3], *(1 for _ in rest))
    return affine(y, scale.reshape(whole), bias.reshape(whole)).reshape(X.shape)


@op("BatchNormalization")
def batch_normalization(
    X: Tensor,
    scale: Tensor,
    B: Tensor,
    input_mean: Tensor,
    input_var: Tensor,
    *,
    epsilon: float,
    momentum: float,
    training_mode: int,
) -> tuple[Tensor, ...]:
    """A tensor of one dimension has one channel. Mixed types are computed in the widest."""
    given = (X, scale, B, input_mean, input_var)
    wide = DOUBLE if any(tensor.dtype is DOUBLE for tensor in given) else FLOAT
    x, factor, bias, old_mean, old_variance = (tensor.cast(wide) for tensor in given)
    if X.rank == 1:
        x = x.unsqueeze((1,))
    channel = (per_channel(factor, x), per_channel(bias, x))
    if not training_mode:
        spread = inverse_deviation(per_channel(old_variance, x), epsilon)
        slope = _once(elementwise(lambda s, i: s * i, channel[0], spread), "scale / deviation")
        centred = elementwise(lambda value, m: value - m, x, per_channel(old_mean, x))
        return (affine(centred, slope, channel[1]).reshape(X.shape).cast(X.dtype),)
    found = moments(x, (0, *range(2, x.rank)))
    y = affine(normalized(found, epsilon), *channel)
    variance = found.variance.stored("variance")

    def moved(old: Tensor, new: Tensor) -> Tensor:
        current = new.reshape(old.shape)
        return elementwise(lambda o, n: o * momentum + n * (1 - momentum), old, current)

    running = (
        moved(old_mean, found.mean).cast(input_mean.dtype),
        moved(old_variance, variance).cast(input_var.dtype),
    )
    return y.reshape(X.shape).cast(X.dtype), *running


def _once(values: Tensor, role: str) -> Tensor:
    """Computed at compile time where it is known, else once for all its readers."""
    known = constant_value(values)
    return values.stored(role) if known is None else constant(known, values.dtype)


@op("MeanVarianceNormalization")
def mean_variance_normalization(X: Tensor, *, axes: Ints) -> Tensor:
    found = moments(X, distinct_axes(axes, X.rank))
    deviation = elementwise(lambda v: apply("sqrt", v) + DEVIATION_EPSILON, found.variance)
    return elementwise(lambda x, d: x / d, found.centred, deviation.stored("deviation"))


@op("LpNormalization")
def lp_normalization(input: Tensor, *, axis: int, p: int) -> Tensor:
    """By the sum of magnitudes (p 1) or the root of the sum of squares (p 2); by 0 it gives 0."""
    if p not in (1, 2):
        raise RefusalError(Kind.ATTRIBUTE_VALUE, f"p is {p}", "only 1 and 2 are defined")
    axes = (positive_axis(axis, input.rank),)
    x = input.shared("the elements")
    if p == 1:
        norm = folded("sum", x, axes, magnitude)
    else:
        squares = folded("sum", x, axes, lambda value: value * value)
        norm = elementwise(lambda total: apply("sqrt", total), squares)
    norm = norm.stored("norm")
    return elementwise(lambda value, n: where(n <= 0, 0, value / n), x, norm)


@op("LRN")
def local_response_normalization(
    X: Tensor, *, alpha: float, beta: float, bias: float, size: int
) -> Tensor:
    """By the squares of `size` channels around each; of an even size one more lies above."""
    if size < 1 or X.rank < 2:
        raise RefusalError(
            Kind.ATTRIBUTE_VALUE, f"size is {size}, of an input of {X.rank} dimensions"
        )
    x = X.shared("the elements")
    zero = literal(x.dtype, 0)
    below, above = (min(side, X.shape[1]) for side in ((size - 1) // 2, size // 2))

    def element(*indices: Index) -> Expr:
        batch, channel, *rest = indices

        def square(walk: Index) -> Expr:
            near = guarded(x, [batch, channel + walk + -below, *rest], zero)
            return near * near

        total = fold("sum", [above + below + 1], square)
        return x[indices] / apply("pow", total * (alpha / size) + bias, beta)

    return compute(x.shape, element)


@op("Dropout", exact=True)
def dropout(
    data: Tensor, ratio: Floats | Tensor | None, training_mode: Ints | Tensor | None, *, seed: int
) -> tuple[Tensor, Tensor]:
    """Identity, and a mask of true, unless it trains; `seed` then has no meaning."""
    keeps = isinstance(ratio, tuple) and ratio[0] == 0
    if isinstance(training_mode, Tensor) and not keeps:
        raise RefusalError(
            Kind.CONSTANT_REQUIRED,
            "training_mode is unknown at compile time",
            "make it an initializer",
        )
    if isinstance(training_mode, tuple) and training_mode[0] and not keeps:
        raise RefusalError(
            Kind.TRAINING_MODE, "training_mode is true: it drops at random", "set it to false"
        )
    return data, full(data.shape, literal(BOOL, True))
