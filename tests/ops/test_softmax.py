"""Softmax, LogSoftmax and Hardmax: along one axis, and before opset 13 over all from it on."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.models import Array
from tests.ops.node_batch import NodeBatch

pytestmark = pytest.mark.usefixtures("strict_c")

INF, NAN = math.inf, math.nan
ULPS = 8
"""Of Softmax: the difference to the largest element, up to 16 here, is rounded by 4 of them."""


LOGARITHM = 3e-7
"""Of LogSoftmax near 0: the logarithm of a sum near 1, which is rounded."""


def softmax(x: Array, axis: int) -> Array:
    powers = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True).astype(np.float64))
    return np.asarray(powers / powers.sum(axis, keepdims=True)).astype(x.dtype)


def log_softmax(x: Array, axis: int) -> Array:
    shifted = x.astype(np.float64) - x.max(axis, keepdims=True).astype(np.float64)
    total = np.log(np.exp(shifted).sum(axis, keepdims=True))
    return np.asarray(shifted - total).astype(x.dtype)


def hardmax(x: Array, axis: int) -> Array:
    wanted = np.zeros_like(x)
    np.put_along_axis(wanted, np.expand_dims(x.argmax(axis), axis), 1, axis)
    return wanted


def numbers(dtype: Any, *shape: int) -> Array:
    return np.random.default_rng(7).normal(0, 3, shape).astype(dtype)


def floats(*values: float) -> Array:
    return np.asarray(values, np.float32)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3, None])
def test_along_an_axis(axis: int | None) -> None:
    x = numbers(np.float32, 3, 4, 5)
    attributes: dict[str, Any] = {} if axis is None else {"axis": axis}
    along = -1 if axis is None else axis
    batch = NodeBatch()
    batch.add_node("Softmax", [x], [softmax(x, along)], **attributes)
    batch.add_node("Hardmax", [x], [hardmax(x, along)], **attributes)
    batch.check_within(ULPS)
    batch = NodeBatch()
    batch.add_node("LogSoftmax", [x], [log_softmax(x, along)], **attributes)
    batch.check_within(ULPS, LOGARITHM)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16])
def test_types(dtype: Any) -> None:
    """16-bit floats are computed in float and rounded once."""
    x = numbers(dtype, 2, 7)
    batch = NodeBatch()
    batch.add_node("Softmax", [x], [softmax(x, 1)])
    batch.add_node("Hardmax", [x], [hardmax(x, 1)])
    batch.add_node("LogSoftmax", [x], [log_softmax(x, 1)])
    batch.check_within(ULPS if dtype is np.float64 else 1, 1e-14 if dtype is np.float64 else 0)


@pytest.mark.parametrize("opset", [1, 11, 12])
@pytest.mark.parametrize("axis", [0, 1, 2, None])
def test_before_13_all_dimensions_from_the_axis_on_are_one(opset: int, axis: int | None) -> None:
    x = numbers(np.float32, 2, 3, 4)
    start = 1 if axis is None else axis
    flat = x.reshape(math.prod(x.shape[:start]), -1)
    attributes: dict[str, Any] = {} if axis is None else {"axis": axis}
    batch = NodeBatch(opset=opset)
    batch.add_node("Softmax", [x], [softmax(flat, 1).reshape(x.shape)], **attributes)
    batch.add_node("Hardmax", [x], [hardmax(flat, 1).reshape(x.shape)], **attributes)
    batch.add_node("LogSoftmax", [x], [log_softmax(flat, 1).reshape(x.shape)], **attributes)
    batch.check_within(ULPS, LOGARITHM)


def test_large_ranges() -> None:
    """Nothing overflows, and LogSoftmax is no logarithm of 0."""
    batch = NodeBatch()
    x = floats(1000, 0, -1000)
    batch.add_node("Softmax", [x], [floats(1, 0, 0)])
    batch.add_node("LogSoftmax", [x], [floats(0, -1000, -2000)])
    batch.add_node("Softmax", [floats(3e38, -3e38)], [floats(1, 0)])
    batch.add_node("LogSoftmax", [floats(0, -INF)], [floats(0, -INF)])
    batch.check()


def test_no_numbers() -> None:
    """Where all are -infinity, or one is infinite or NaN, the formula is 0 / 0 or the like."""
    batch = NodeBatch()
    for row in ([-INF, -INF], [INF, 0], [NAN, 0], [INF, INF]):
        batch.add_node("Softmax", [floats(*row)], [floats(NAN, NAN)])
    batch.add_node("LogSoftmax", [floats(-INF, -INF)], [floats(NAN, NAN)])
    batch.check_within(0)


def test_hardmax_takes_the_first_and_nan() -> None:
    batch = NodeBatch()
    batch.add_node("Hardmax", [floats(1, 3, 3)], [floats(0, 1, 0)])
    batch.add_node("Hardmax", [floats(1, NAN, 3, NAN)], [floats(0, 1, 0, 0)])
    batch.add_node("Hardmax", [floats(-INF, -INF)], [floats(1, 0)])
    batch.check()


def test_one_element_and_none() -> None:
    batch = NodeBatch()
    for operator, wanted in (("Softmax", 1), ("LogSoftmax", 0), ("Hardmax", 1)):
        one = np.full((3, 1), 2.5, np.float32)
        batch.add_node(operator, [one], [np.full((3, 1), wanted, np.float32)])
        for shape in ((0, 3), (3, 0)):
            nothing = np.zeros(shape, np.float32)
            batch.add_node(operator, [nothing], [nothing])
    batch.check()


def test_a_long_row_sums_to_one() -> None:
    batch = NodeBatch()
    x = np.zeros(100_000, np.float32)
    batch.add_node("Softmax", [x], [np.full_like(x, 1e-5)])
    batch.check_within(2)
