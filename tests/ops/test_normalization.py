"""Normalisations against their formulas in double, from halves to double."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

from tests.models import Array, refusal
from tests.ops.node_batch import NodeBatch
from tests.ops.run_time import assert_refused

pytestmark = pytest.mark.usefixtures("strict_c")

INF, NAN = math.inf, math.nan
EPSILON = float(np.float32(1e-5))
ULPS = 8
NEAR_ZERO = 1e-6
"""Absolute, of elements that the mean all but cancels, where the deviation is about 1."""


def numbers(*shape: int, dtype: Any = np.float32, seed: int = 1, mean: float = 0) -> Array:
    return np.random.default_rng([seed, *shape]).normal(mean, 1, shape).astype(dtype)


def floats(*values: float) -> Array:
    return np.asarray(values, np.float32)


def standardized(x: Array, axes: tuple[int, ...], epsilon: float = EPSILON) -> Array:
    """In double: (x - mean) / sqrt(variance + epsilon)."""
    wide = x.astype(np.float64)
    mean = wide.mean(axes, keepdims=True)
    variance = ((wide - mean) ** 2).mean(axes, keepdims=True)
    return np.asarray((wide - mean) / np.sqrt(variance + epsilon))


def channels(values: Array, rank: int) -> Array:
    return values.astype(np.float64).reshape(1, -1, *(1,) * (rank - 2))


# LayerNormalization


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_layer_normalization(axis: int) -> None:
    x = numbers(2, 3, 4)
    start = axis % 3
    axes = tuple(range(start, 3))
    scale, bias = numbers(*x.shape[start:], seed=2), numbers(*x.shape[start:], seed=3)
    y = standardized(x, axes)
    wide = x.astype(np.float64)
    mean = wide.mean(axes, keepdims=True)
    inverse = 1 / np.sqrt(wide.var(axes, keepdims=True) + EPSILON)
    outputs = [(y * scale + bias).astype(np.float32)]
    statistics = [mean.astype(np.float32), inverse.astype(np.float32)]
    batch = NodeBatch()
    batch.add_node("LayerNormalization", [x, scale, bias], [*outputs, *statistics], axis=axis)
    batch.add_node(
        "LayerNormalization", [x, scale, bias], [outputs[0], None, statistics[1]], axis=axis
    )
    batch.add_node("LayerNormalization", [x, scale], [(y * scale).astype(np.float32)], axis=axis)
    batch.check_within(ULPS, NEAR_ZERO)


def test_layer_normalization_keeps_its_digits() -> None:
    """Rounding moves the mean of the first by a part in 3000 of the deviation."""
    batch = NodeBatch()
    for x in (
        floats(1000, 1000.1, 1000.2),
        numbers(3000, mean=500),
        np.full(10**6, 0.1, np.float32),
    ):
        wanted = standardized(x, (0,)).astype(np.float32)
        mean = np.asarray([x.mean(dtype=np.float64)], np.float32)
        batch.add_node("LayerNormalization", [x, np.ones_like(x)], [wanted, mean])
    batch.check_within(1, 3e-7)


def test_an_infinite_mean() -> None:
    x = floats(1, INF, 2)
    nothing = floats(NAN, NAN, NAN)
    batch = NodeBatch()
    batch.add_node("LayerNormalization", [x, x], [nothing, floats(INF)])
    batch.check_within(0)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_layer_normalization_of_16_bits_is_computed_in_float(dtype: Any) -> None:
    """In float16 the square of 3000 would be infinite."""
    x = (numbers(2, 8) * 3000).astype(dtype)
    scale, bias = numbers(8, dtype=dtype, seed=2), numbers(8, dtype=dtype, seed=3)
    y = standardized(x, (1,)) * scale.astype(np.float64) + bias.astype(np.float64)
    mean = x.astype(np.float64).mean(1, keepdims=True).astype(np.float32)
    inverse = 1 / np.sqrt(x.astype(np.float64).var(1, keepdims=True) + EPSILON)
    outputs = [y.astype(dtype), mean, inverse.astype(np.float32)]
    batch = NodeBatch()
    batch.add_node("LayerNormalization", [x, scale, bias], outputs)
    batch.check_within(2, 1e-3)


def test_stash_type() -> None:
    """It is the type of the statistics; bfloat16 ones are computed in float."""
    x = numbers(2, 8)
    y = standardized(x, (1,)).astype(np.float32)
    mean = x.astype(np.float64).mean(1, keepdims=True).astype(ml_dtypes.bfloat16)
    batch = NodeBatch()
    stash = TensorProto.BFLOAT16
    ones = np.ones(8, np.float32)
    batch.add_node("LayerNormalization", [x, ones], [y, mean], stash_type=stash)
    batch.check_within(ULPS, NEAR_ZERO)
    batch = NodeBatch()
    batch.add_node("RMSNormalization", [x, ones], [y], stash_type=TensorProto.INT32)
    (line,) = refusal(batch.model())
    assert "stash_type is 6, which is no type of floats" in line


def test_layer_normalization_of_double_is_in_float_too() -> None:
    """As stash_type says: its first stage."""
    x = numbers(2, 8, dtype=np.float64)
    y = standardized(x.astype(np.float32), (1,)) * 3
    batch = NodeBatch()
    batch.add_node("LayerNormalization", [x, np.full(8, 3, np.float64)], [y])
    batch.check_within(0, 3e-6)


def test_a_row_of_one_value_is_zero() -> None:
    x = np.full((2, 5), 0.1, np.float32)
    batch = NodeBatch()
    batch.add_node("LayerNormalization", [x, np.ones(5, np.float32)], [x * 0])
    batch.check()


# RMSNormalization


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_rms_normalization(axis: int) -> None:
    x = numbers(3, 4)
    axes = tuple(range(axis % 2, 2))
    scale = numbers(*x.shape[axis % 2 :], seed=2)
    wide = x.astype(np.float64)
    y = wide / np.sqrt((wide * wide).mean(axes, keepdims=True) + 0.5) * scale
    batch = NodeBatch()
    batch.add_node("RMSNormalization", [x, scale], [y.astype(np.float32)], axis=axis, epsilon=0.5)
    batch.check_within(4)


# InstanceNormalization and GroupNormalization


@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 3, 4, 5), (1, 2, 2, 2, 3)])
def test_instance_normalization(shape: tuple[int, ...]) -> None:
    x, rank = numbers(*shape), len(shape)
    scale, bias = numbers(shape[1], seed=2), numbers(shape[1], seed=3)
    y = standardized(x, tuple(range(2, rank)), 0.01)
    y = y * channels(scale, rank) + channels(bias, rank)
    batch = NodeBatch()
    inputs = [x, scale, bias]
    batch.add_node("InstanceNormalization", inputs, [y.astype(np.float32)], epsilon=0.01)
    batch.check_within(ULPS, NEAR_ZERO)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("shape", [(2, 4), (2, 4, 3, 5)])
def test_group_normalization(groups: int, shape: tuple[int, ...]) -> None:
    x, rank = numbers(*shape), len(shape)
    scale, bias = numbers(4, seed=2), numbers(4, seed=3)
    grouped = x.reshape(2, groups, -1)
    y = standardized(grouped, (2,)).reshape(shape)
    y = y * channels(scale, rank) + channels(bias, rank)
    batch = NodeBatch()
    inputs = [x, scale, bias]
    batch.add_node("GroupNormalization", inputs, [y.astype(np.float32)], num_groups=groups)
    batch.check_within(ULPS, NEAR_ZERO)


def test_group_normalization_18_has_a_scale_for_each_group() -> None:
    x = numbers(2, 4, 3)
    scale, bias = numbers(2, seed=2), numbers(2, seed=3)
    y = standardized(x.reshape(2, 2, -1), (2,)).reshape(x.shape)
    y = y * channels(np.repeat(scale, 2), 3) + channels(np.repeat(bias, 2), 3)
    batch = NodeBatch(opset=18)
    inputs = [x, scale, bias]
    batch.add_node("GroupNormalization", inputs, [y.astype(np.float32)], num_groups=2)
    batch.check_within(ULPS, NEAR_ZERO)


def test_groups_that_are_not_of_one_size() -> None:
    batch = NodeBatch()
    x, four = numbers(2, 4, 3), numbers(4)
    batch.add_node("GroupNormalization", [x, four, four], [x], num_groups=3)
    (line,) = refusal(batch.model())
    assert "4 channels are no 3 groups of one size" in line


# BatchNormalization


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (2, 3, 2, 5), (6,)])
@pytest.mark.parametrize("constants", [(), (1, 2, 3, 4)])
def test_batch_normalization(shape: tuple[int, ...], constants: tuple[int, ...]) -> None:
    x = numbers(*shape)
    number = shape[1] if len(shape) > 1 else 1
    scale, bias, mean = (numbers(number, seed=n) for n in (2, 3, 4))
    variance = np.abs(numbers(number, seed=5))
    rank = max(2, len(shape))
    slope, shift, centre, spread = (channels(v, rank) for v in (scale, bias, mean, variance))
    wide = x.astype(np.float64).reshape(shape if len(shape) > 1 else (-1, 1))
    y = (wide - centre) / np.sqrt(spread + 0.01) * slope + shift
    batch = NodeBatch()
    batch.add_node(
        "BatchNormalization",
        [x, scale, bias, mean, variance],
        [y.reshape(shape).astype(np.float32)],
        constants=constants,
        epsilon=0.01,
    )
    batch.check_within(ULPS, NEAR_ZERO)


def test_batch_normalization_in_training() -> None:
    """Its variance is that of the population; the running ones move by 1 - momentum."""
    x = numbers(4, 3, 2, mean=20)
    scale, bias, mean = (numbers(3, seed=n) for n in (2, 3, 4))
    variance = np.abs(numbers(3, seed=5))
    wide = x.astype(np.float64)
    y = standardized(x, (0, 2)) * channels(scale, 3) + channels(bias, 3)
    new_mean, new_variance = wide.mean((0, 2)), wide.var((0, 2))
    outputs = [
        y.astype(np.float32),
        (mean * 0.75 + new_mean * 0.25).astype(np.float32),
        (variance * 0.75 + new_variance * 0.25).astype(np.float32),
    ]
    batch = NodeBatch()
    inputs = [x, scale, bias, mean, variance]
    how: dict[str, Any] = {"training_mode": 1, "momentum": 0.75}
    batch.add_node("BatchNormalization", inputs, outputs, **how)
    batch.add_node("BatchNormalization", inputs, [outputs[0], None, None], **how)
    batch.check_within(ULPS, 2 * NEAR_ZERO)


def test_batch_normalization_of_mixed_types() -> None:
    x = numbers(2, 3, 4, dtype=np.float16)
    scale, bias = numbers(3, seed=2), numbers(3, seed=3)
    mean, variance = numbers(3, dtype=np.float64), np.asarray([1, 4, 0.25])
    slope, shift, centre, spread = (channels(v, 3) for v in (scale, bias, mean, variance))
    y = (x.astype(np.float64) - centre) / np.sqrt(spread + EPSILON) * slope + shift
    batch = NodeBatch()
    inputs = [x, scale, bias, mean, variance]
    batch.add_node("BatchNormalization", inputs, [y.astype(np.float16)])
    batch.check_within(1)


# MeanVarianceNormalization, LpNormalization and LRN


@pytest.mark.parametrize("axes", [None, [1], [-1, 0], [0, 1, 2, 3]])
def test_mean_variance_normalization(axes: list[int] | None) -> None:
    x = numbers(2, 3, 4, 5)
    over = tuple(axes or (0, 2, 3))
    y = standardized(x, over, 0).astype(np.float32)
    batch = NodeBatch()
    batch.add_node(
        "MeanVarianceNormalization", [x], [y], **({} if axes is None else {"axes": axes})
    )
    batch.check_within(ULPS, NEAR_ZERO)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_lp_normalization(axis: int) -> None:
    x = numbers(3, 4, 5)
    wide = x.astype(np.float64)
    batch = NodeBatch()
    one = np.abs(wide).sum(axis, keepdims=True)
    two = np.sqrt((wide * wide).sum(axis, keepdims=True))
    batch.add_node("LpNormalization", [x], [(wide / one).astype(np.float32)], axis=axis, p=1)
    batch.add_node("LpNormalization", [x], [(wide / two).astype(np.float32)], axis=axis)
    batch.check_within(3)


def test_a_norm_of_zero_gives_zeros() -> None:
    x = np.asarray([[0, 0], [3, 4], [0, -0.0]], np.float32)
    batch = NodeBatch()
    for p, row in ((1, (3 / 7, 4 / 7)), (2, (0.6, 0.8))):
        wanted = np.asarray([(0, 0), row, (0, 0)], np.float32)
        batch.add_node("LpNormalization", [x], [wanted], p=p)
    batch.add_node("LpNormalization", [floats(NAN, 1)], [floats(NAN, NAN)])
    batch.check_within(1)
    batch = NodeBatch()
    batch.add_node("LpNormalization", [x], [x], p=3)
    assert_refused("p is 3; only 1 and 2 are defined", batch)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 9])
def test_local_response_normalization(size: int) -> None:
    """Of an even size the window has one channel more above than below."""
    x = numbers(2, 5, 3, 2)
    wide = x.astype(np.float64)
    below, above = (size - 1) // 2, size // 2
    total = np.stack(
        [(wide[:, max(0, c - below) : c + above + 1] ** 2).sum(1) for c in range(5)], axis=1
    )
    batch = NodeBatch()
    alpha = float(np.float32(1e-4))
    y = wide / (1 + alpha / size * total) ** 0.75
    batch.add_node("LRN", [x], [y.astype(np.float32)], size=size)
    y = wide / (2 + 0.5 / size * total) ** 0.25
    batch.add_node("LRN", [x], [y.astype(np.float32)], size=size, alpha=0.5, beta=0.25, bias=2.0)
    batch.check_within(4)


def test_zero_sized_dimensions() -> None:
    batch = NodeBatch()
    x, three = np.zeros((0, 3, 4), np.float32), numbers(3)
    batch.add_node("LayerNormalization", [x, numbers(4)], [x])
    batch.add_node("RMSNormalization", [x, numbers(4)], [x])
    batch.add_node("InstanceNormalization", [x, three, three], [x])
    batch.add_node("GroupNormalization", [x, three, three], [x], num_groups=3)
    batch.add_node("BatchNormalization", [x, three, three, three, three], [x])
    batch.add_node("LpNormalization", [x], [x])
    batch.add_node("LRN", [x], [x], size=3)
    batch.add_node("MeanVarianceNormalization", [x], [x], axes=[0, 2])
    batch.check()


# Dropout


def test_dropout_that_does_not_train_is_the_identity() -> None:
    x = numbers(2, 3)
    mask = np.ones((2, 3), np.bool_)
    ratio, yes, no = np.asarray(0.5, np.float32), np.asarray(True), np.asarray(False)
    zero = np.asarray(0, np.float32)
    batch = NodeBatch()
    batch.add_node("Dropout", [x], [x, mask])
    batch.add_node("Dropout", [x, ratio], [x, mask])
    batch.add_node("Dropout", [x, ratio, no], [x, mask], constants=[1, 2], seed=3)
    batch.add_node("Dropout", [x, zero, yes], [x, mask], constants=[1, 2])
    batch.add_node("Dropout", [x, zero, yes], [x], constants=[1])
    half = numbers(2, 3, dtype=ml_dtypes.float8_e4m3fn)
    batch.add_node("Dropout", [half, half[:1, 0].reshape(())], [half, mask], constants=[1])
    batch.check()


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_dropout_that_trains_is_refused(dtype: Any) -> None:
    x, ratio = numbers(2, 3), np.asarray(0.25, dtype)
    batch = NodeBatch()
    batch.add_node("Dropout", [x, ratio, np.asarray(True)], [x], constants=[1, 2])
    (line,) = refusal(batch.model())
    assert "training_mode is true: it drops at random; set it to false" in line
    batch = NodeBatch()
    batch.add_node("Dropout", [x, ratio, np.asarray(True)], [x], constants=[1])
    (line,) = refusal(batch.model())
    assert "training_mode is unknown at compile time" in line


@pytest.mark.parametrize("opset", [1, 6, 7, 10, 12])
def test_old_dropout(opset: int) -> None:
    """Its mask was of the data's type before opset 10."""
    x = numbers(2, 3)
    mask: Array = np.ones((2, 3), np.bool_ if opset >= 10 else np.float32)
    attributes: dict[str, Any] = {"is_test": 1} if opset < 7 else {}
    batch = NodeBatch(opset=opset)
    batch.add_node("Dropout", [x], [x, mask], **attributes)
    batch.check()
