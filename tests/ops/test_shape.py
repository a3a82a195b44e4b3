"""Shapes as data, and tensors made from where their elements are."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from onnxc.dtypes import ElementType, numpy_dtype
from onnxc.pipeline import compile_model
from tests.models import Array, any_bits, stored
from tests.ops.node_batch import NodeBatch
from tests.ops.run_time import allowed_types, assert_status, check_fused_and_plain, one_node

pytestmark = pytest.mark.usefixtures("strict_c")

LEAST, GREATEST = -(2**63), 2**63 - 1


def ints(*values: int) -> Array:
    return np.asarray(values, np.int64)


# Shape


@pytest.mark.parametrize("start", [None, -9, -2, 0, 1, 3, 9])
@pytest.mark.parametrize("end", [None, -9, -1, 0, 2, 3, 9])
def test_shape(start: int | None, end: int | None) -> None:
    """Clamped to the dimensions; of a start beyond the end nothing."""
    x = np.zeros((2, 0, 4), np.float32)
    given = {"start": start, "end": end}
    attributes: dict[str, Any] = {n: value for n, value in given.items() if value is not None}
    one_node("Shape", [x], ints(*x.shape[start:end]), **attributes).check_evaluated()


@pytest.mark.parametrize("dtype", allowed_types("Shape"), ids=str)
def test_shape_of_any_type(dtype: ElementType) -> None:
    batch = NodeBatch()
    batch.add_node("Shape", [any_bits(dtype, 3, 5)], [ints(3, 5)])
    batch.add_node("Shape", [any_bits(dtype)], [ints()])
    batch.check()


# ConstantOfShape


@pytest.mark.parametrize("dtype", allowed_types("ConstantOfShape", "T2"), ids=str)
def test_constant_of_shape(dtype: ElementType) -> None:
    batch, value = NodeBatch(), any_bits(dtype, 1)
    attribute = stored("", value)
    wanted = np.broadcast_to(value, (2, 3)).copy()
    batch.add_node("ConstantOfShape", [ints(2, 3)], [wanted], constants=[0], value=attribute)
    batch.add_node("ConstantOfShape", [ints(2, 3)], [wanted], value=attribute)
    batch.check()


def test_constant_of_any_shape() -> None:
    batch = NodeBatch()
    for shape in ((), (0, 3), (3, 0), (2,), (1, 1, 1)):
        batch.add_node("ConstantOfShape", [ints(*shape)], [np.zeros(shape, np.float32)])
        nan = numpy_helper.from_array(np.asarray([math.nan], np.float32))
        wanted = np.full(shape, math.nan, np.float32)
        batch.add_node("ConstantOfShape", [ints(*shape)], [wanted], constants=[0], value=nan)
    batch.check()


def test_constant_of_another_shape_than_declared() -> None:
    batch = one_node("ConstantOfShape", [ints(2, 3)], np.zeros((3, 2), np.float32))
    assert_status("SHAPE_MISMATCH", batch)


# EyeLike


@pytest.mark.parametrize("dtype", allowed_types("EyeLike", "T2"), ids=str)
def test_eye_like(dtype: ElementType) -> None:
    batch, x = NodeBatch(), np.zeros((3, 4), np.int32)
    for k in (LEAST, -3, -2, 0, 1, 3, 4, GREATEST):
        near = min(max(k, -5), 5)
        wanted = np.eye(3, 4, near).astype(numpy_dtype(dtype))
        batch.add_node("EyeLike", [x], [wanted], dtype=dtype.code, k=k)
    batch.add_node("EyeLike", [any_bits(dtype, 2, 3)], [np.eye(2, 3).astype(numpy_dtype(dtype))])
    batch.check()


# Trilu


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("upper", [0, 1])
def test_trilu(known: bool, upper: int) -> None:
    batch = NodeBatch()
    x = np.arange(1, 25, dtype=np.int64).reshape(2, 3, 4)
    for k in (LEAST, -4, -3, -1, 0, 2, 4, 5, GREATEST):
        near = min(max(k, -9), 9)
        wanted = np.triu(x, near) if upper else np.tril(x, near)
        inputs = [x, np.asarray(k)]
        batch.add_node("Trilu", inputs, [wanted], constants=[1] if known else [], upper=upper)
    batch.add_node("Trilu", [x], [np.triu(x)])
    batch.add_node("Trilu", [x[:, :0]], [x[:, :0]], upper=upper)
    batch.check()


@pytest.mark.parametrize("dtype", allowed_types("Trilu"), ids=str)
def test_trilu_of_any_type(dtype: ElementType) -> None:
    """Zero, false or the empty string beyond the diagonal; a NaN is no obstacle."""
    x = any_bits(dtype, 3, 3)
    wanted = x.copy()
    wanted[np.triu_indices(3, 1)] = b"" if dtype.kind == "string" else 0
    one_node("Trilu", [x], wanted, upper=0).check()


# OneHot


def hot(indices: Array, depth: int, values: Array, axis: int) -> Array:
    there = np.asarray(np.trunc(indices), np.float64)
    there = np.where(there < 0, there + depth, there)
    grid = np.moveaxis(there[..., None] == np.arange(depth), -1, axis)
    return np.asarray(np.where(grid, values[1], values[0]))


@pytest.mark.parametrize("axis", [-3, -2, -1, 0, 1, 2])
def test_one_hot(axis: int) -> None:
    """From the end where negative; all off where there is no such element."""
    indices, values = ints(0, 2, -1, -3, 3, -4, 100, LEAST).reshape(2, 4), ints(5, 9)
    wanted = hot(indices, 3, values, axis)
    batch = NodeBatch()
    inputs = [indices, np.asarray(3), values]
    batch.add_node("OneHot", inputs, [wanted], constants=[1], axis=axis)
    batch.add_node("OneHot", inputs, [wanted], constants=[1, 2], axis=axis)
    batch.add_node("OneHot", [indices, ints(3), values], [wanted], axis=axis)
    batch.check()


@pytest.mark.parametrize("dtype", allowed_types("OneHot", "T1"), ids=str)
def test_one_hot_of_indices_of_any_type(dtype: ElementType) -> None:
    """Cast to int64, that is truncated; no wrapping of a large unsigned index."""
    kind = numpy_dtype(dtype)
    plain = [0, 1, 2, 3, 100]
    if dtype.kind in ("float", "half"):
        plain_values = np.asarray([*plain, 1.9, -0.5, -1.5, math.inf, -math.inf, 1e4], kind)
    elif dtype.kind == "signed":
        plain_values = np.asarray([*plain, -1, -3, -4, np.iinfo(kind).min], kind)
    else:
        plain_values = np.asarray([*plain, np.iinfo(kind).max], kind)
    depth, values = np.asarray(3, kind), np.asarray([0.0, 1.0], np.float32)
    with np.errstate(all="ignore"):
        wanted = hot(plain_values.astype(np.float64), 3, values, -1)
    batch = NodeBatch()
    batch.add_node("OneHot", [plain_values, depth, values], [wanted], constants=[1])
    batch.add_node("OneHot", [plain_values, depth, values], [wanted])
    batch.check()


@pytest.mark.parametrize("dtype", allowed_types("OneHot", "T3"), ids=str)
def test_one_hot_of_any_values(dtype: ElementType) -> None:
    values = any_bits(dtype, 2)
    inputs = [ints(1, 5), ints(2), values]
    wanted = np.stack([values, values[[0, 0]]])
    one_node("OneHot", inputs, wanted, constants=[1]).check()


def test_one_hot_of_another_depth_than_declared() -> None:
    inputs = [ints(0, 1), ints(4), ints(0, 1)]
    assert_status("SHAPE_MISMATCH", one_node("OneHot", inputs, np.zeros((2, 3), np.int64)))


# Range


def scalar(value: Any, kind: Any) -> Array:
    return np.asarray(value, kind)


RANGES: list[tuple[Any, float, float, float, list[float]]] = [
    (np.float32, 3, 9, 3, [3, 6]),
    (np.int32, 10, 4, -2, [10, 8, 6]),
    (np.int16, -3, 4, 3, [-3, 0, 3]),
    (np.int64, 5, 5, 1, []),
    (np.int64, 5, 1, 1, []),
    (np.int32, 1, 5, -1, []),
    (np.float64, 0, 1, 0.3, [0, 0.3, 0.6, 0.3 * 3]),
    (np.float32, 1, -1, -0.75, [1, 0.25, -0.5]),
    (np.int64, LEAST, GREATEST, GREATEST, [LEAST, -1, GREATEST - 1]),
    (np.int64, GREATEST, LEAST, LEAST, [GREATEST, -1]),
    (np.float16, 0, 3, 1, [0, 1, 2]),
    (ml_dtypes.bfloat16, 1, 4, 1, [1, 2, 3]),
]


@pytest.mark.parametrize("constants", [[0, 1, 2], [], [0, 2]], ids=str)
def test_range(constants: list[int]) -> None:
    batch = NodeBatch()
    for kind, start, limit, delta, wanted in RANGES:
        inputs = [scalar(start, kind), scalar(limit, kind), scalar(delta, kind)]
        made = np.asarray([*wanted], kind)
        if abs(limit - start) > 2**53 and constants == [0, 1, 2]:
            continue  # ONNX's own inference takes the difference for another
        batch.add_node("Range", inputs, [made], constants=constants)
    batch.check()


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_range_never_adds_up_errors(kind: Any) -> None:
    """Each element is start + n * delta, rounded twice; a running sum is wrong by far here."""
    count = 100_000
    step, start = np.asarray(0.1, kind), np.asarray(1, kind)
    wanted = start + np.arange(count).astype(kind) * step
    limit = np.asarray(wanted[-1] + step / 2, kind)
    assert abs(float(np.add.accumulate(np.full(count, step))[-1]) + 0.9 - wanted[-1]) > 1e-9
    one_node("Range", [start, limit, step], wanted).check()


def test_range_of_halves_is_computed_as_float() -> None:
    """In float16 2049 * 0.5 would have no such neighbour."""
    step = np.float32(np.float16(0.1))
    wanted = (np.arange(300, dtype=np.float32) * step).astype(np.float16)
    limit = np.asarray(29.96, np.float16)
    inputs = [scalar(0, np.float16), limit, scalar(0.1, np.float16)]
    count = math.ceil(float(limit) / float(step))
    one_node("Range", inputs, wanted[:count]).check()


@pytest.mark.parametrize(
    ("kind", "start", "limit", "delta"),
    [
        (np.int64, 0, 4, 1),
        (np.int64, 0, 2, 1),
        (np.int64, 0, 3, 0),
        (np.int64, 0, -3, 1),
        (np.int64, LEAST, GREATEST, 1),
        (np.float32, 0, 3.1, 1),
        (np.float32, 0, 3, math.nan),
        (np.float32, 0, 3, 0),
        (np.float32, 0, math.inf, 1),
    ],
)
def test_range_of_another_length_than_declared(
    kind: Any, start: float, limit: float, delta: float
) -> None:
    inputs = [scalar(start, kind), scalar(limit, kind), scalar(delta, kind)]
    assert_status("SHAPE_MISMATCH", one_node("Range", inputs, np.zeros(3, kind)))


def test_range_of_halves_in_double() -> None:
    """Element 1023 is 2^-16 below the middle of two halves, in float the middle itself."""
    delta = 2**-6 + 2**-16
    inputs = [scalar(n, np.float16) for n in (32800, 32832, delta)]
    exact = 32800 + np.arange(math.ceil(32 / delta)) * delta
    wanted = exact.astype(np.float16)
    assert wanted[1023] == 32800
    assert exact.astype(np.float32).astype(np.float16)[1023] == 32832
    batch = one_node("Range", inputs, wanted, constants=range(3), stash_type=11)
    check_fused_and_plain(batch)


def test_range_in_half_precision_is_refused() -> None:
    inputs = [scalar(n, np.float16) for n in (0, 3, 1)]
    batch = one_node("Range", inputs, np.zeros(3, np.float16), stash_type=10)
    with pytest.raises(Exception, match="stash_type 10 is not supported"):
        compile_model(batch.model())


@given(start=st.integers(-20, 20), limit=st.integers(-20, 20), delta=st.integers(-5, 5))
@settings(max_examples=60)
def test_range_as_python_does(start: int, limit: int, delta: int) -> None:
    if delta == 0:
        return
    for kind in (np.int16, np.float32):
        wanted = np.asarray([*range(start, limit, delta)], kind)
        inputs = [scalar(start, kind), scalar(limit, kind), scalar(delta, kind)]
        one_node("Range", inputs, wanted).check_evaluated()


def test_a_result_in_one_kernel() -> None:
    """Nothing is stored between the operators."""
    x = np.zeros((64, 64), np.float32)
    batch = one_node("Trilu", [x], x)
    assert compile_model(batch.model()).workspace_size == 0
    check_fused_and_plain(batch)
