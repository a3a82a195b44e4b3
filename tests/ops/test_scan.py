"""CumSum and CumProd: every axis, exclusive, reverse, and an axis known only at run time."""

from __future__ import annotations

import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from onnxc.compiled import CompiledModel
from onnxc.errors import RunError
from onnxc.pipeline import compile_model, evaluate_model
from tests.models import Array, model, refusal
from tests.ops.node_batch import NodeBatch

pytestmark = pytest.mark.usefixtures("strict_c")

INF, NAN = math.inf, math.nan
FOLDS: dict[str, np.ufunc] = {"CumSum": np.add, "CumProd": np.multiply}


def running(operator: str, x: Array, axis: int, exclusive: int, reverse: int) -> Array:
    """By the definition: of the elements before, or from, each one on."""
    rows = np.moveaxis(x, axis, -1)
    rows = rows[..., ::-1] if reverse else rows
    wanted = np.empty_like(rows)
    for n in range(rows.shape[-1]):
        part = rows[..., : n if exclusive else n + 1]
        wanted[..., n] = FOLDS[operator].reduce(part, -1, dtype=x.dtype)
    wanted = wanted[..., ::-1] if reverse else wanted
    return np.ascontiguousarray(np.moveaxis(wanted, -1, axis))


def axis_of(axis: int, dtype: Any = np.int64) -> Array:
    return np.asarray(axis, dtype)


@pytest.mark.parametrize("operator", FOLDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint32, np.int64])
def test_every_axis_and_direction(operator: str, dtype: Any) -> None:
    x = np.random.default_rng(1).integers(1, 4, size=(2, 3, 4)).astype(dtype)
    batch = NodeBatch()
    for axis in (0, 1, 2, -1, -3):
        for exclusive, reverse in ((0, 0), (0, 1), (1, 0), (1, 1)):
            wanted = running(operator, x, axis, exclusive, reverse)
            batch.add_node(
                operator,
                [x, axis_of(axis, np.int32 if exclusive else np.int64)],
                [wanted],
                constants=[1],
                exclusive=exclusive,
                reverse=reverse,
            )
    batch.check()


def test_examples_of_the_documentation() -> None:
    x = np.asarray([1, 2, 3], np.int32)
    batch = NodeBatch()
    for attributes, sums, products in [
        ({}, [1, 3, 6], [1, 2, 6]),
        ({"exclusive": 1}, [0, 1, 3], [1, 1, 2]),
        ({"reverse": 1}, [6, 5, 3], [6, 6, 3]),
        ({"exclusive": 1, "reverse": 1}, [5, 3, 0], [6, 3, 1]),
    ]:
        for operator, wanted in (("CumSum", sums), ("CumProd", products)):
            batch.add_node(
                operator,
                [x, axis_of(0)],
                [np.asarray(wanted, np.int32)],
                constants=[1],
                **attributes,
            )
    batch.check()


def test_integers_wrap() -> None:
    batch = NodeBatch()
    for operator, x in (
        ("CumSum", np.asarray([2**31 - 1, 1, 5], np.int32)),
        ("CumProd", np.asarray([2**31 - 1, 3, -5], np.int32)),
        ("CumSum", np.asarray([2**63 - 1, 2, 5], np.int64)),
        ("CumProd", np.asarray([2**62, 2, 5], np.int64)),
        ("CumSum", np.asarray([2**32 - 1, 2], np.uint32)),
    ):
        with np.errstate(over="ignore"):
            wanted = FOLDS[operator].accumulate(x, dtype=x.dtype)
        batch.add_node(operator, [x, axis_of(0)], [wanted], constants=[1])
    batch.check()


def test_nothing_and_one() -> None:
    batch = NodeBatch()
    for shape in ((0,), (3, 0), (0, 3), (1,), (1, 1)):
        x = np.full(shape, 2, np.float32)
        batch.add_node("CumSum", [x, axis_of(0)], [x], constants=[1])
    one = np.full((1, 2), 2, np.float32)
    batch.add_node("CumSum", [one, axis_of(0)], [one * 0], constants=[1], exclusive=1)
    batch.add_node("CumProd", [one, axis_of(0)], [one / 2], constants=[1], exclusive=1)
    batch.check()


def test_infinities_and_nan() -> None:
    x = np.asarray([1, INF, 2, -INF, 3], np.float32)
    batch = NodeBatch()
    wanted = np.asarray([1, INF, INF, NAN, NAN], np.float32)
    batch.add_node("CumSum", [x, axis_of(0)], [wanted], constants=[1])
    wanted = np.asarray([1, INF, INF, -INF, -INF], np.float32)
    batch.add_node("CumProd", [x, axis_of(0)], [wanted], constants=[1])
    batch.check_within(0)


def test_long_sums_keep_their_digits() -> None:
    x = np.full(100_000, 0.1, np.float32)
    exact = np.arange(1, 100_001) * np.float64(x[0])
    batch = NodeBatch()
    batch.add_node("CumSum", [x, axis_of(0)], [exact.astype(np.float32)], constants=[1])
    batch.check_within(1)


@pytest.mark.parametrize("shape", [(37, 75), (16, 160), (3, 40, 50), (2, 3, 1100), (5000,)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_sums_side_by_side_have_the_bits_of_one(shape: tuple[int, ...], dtype: Any) -> None:
    """Rows by blocks, the last of which is short, or columns; a sum of floats is of two parts."""
    x = (np.random.default_rng(2).standard_normal(shape) * 1000).astype(dtype)
    flat = x.reshape(-1)
    if dtype is not np.int64:
        flat[40], flat[1000], flat[2000] = 3e37, INF, NAN
    batch = NodeBatch()
    for axis, (exclusive, reverse) in itertools.product(
        range(len(shape)), itertools.product((0, 1), repeat=2)
    ):
        attributes = {"exclusive": exclusive, "reverse": reverse}
        batch.add_node("CumSum", [x, axis_of(axis)], [x], constants=[1], **attributes)
    source = batch.model()
    compiled = compile_model(source)
    assert "ONNXC_VARIANT(cumulate_0)" in compiled.c_source
    found, wanted = CompiledModel(compiled).run(batch.given), evaluate_model(source, batch.given)
    for name, array in found.items():
        assert np.array_equal(array, wanted[name], equal_nan=dtype is not np.int64), name


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_16_bit_floats_are_added_as_float(dtype: Any) -> None:
    """Ones past the last that the type can count."""
    x = np.ones(3000, dtype)
    batch = NodeBatch()
    wanted = np.arange(1, 3001).astype(np.float32).astype(dtype)
    batch.add_node("CumSum", [x, axis_of(0)], [wanted], constants=[1])
    batch.check()


# An axis known only at run time


def asked(shape: tuple[int, ...], axis_type: int = TensorProto.INT64) -> ModelProto:
    graph = helper.make_graph(
        [helper.make_node("CumSum", ["x", "axis"], ["y"])],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.INT32, shape),
            helper.make_tensor_value_info("axis", axis_type, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.INT32, shape)],
    )
    return model(graph)


@pytest.mark.parametrize("shape", [(5,), (2, 3), (2, 3, 4)])
def test_an_axis_at_run_time(shape: tuple[int, ...]) -> None:
    x = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    source = asked(shape)
    compiled = CompiledModel(compile_model(source))
    for axis in range(-len(shape), len(shape)):
        inputs = {"x": x, "axis": axis_of(axis)}
        wanted = np.cumsum(x, axis, dtype=np.int32)
        assert np.array_equal(compiled.run(inputs)["y"], wanted)
        assert np.array_equal(evaluate_model(source, inputs)["y"], wanted)


@pytest.mark.parametrize("shape", [(5,), (2, 3)])
def test_an_axis_at_run_time_that_is_none(shape: tuple[int, ...]) -> None:
    source = asked(shape, TensorProto.INT32)
    compiled = CompiledModel(compile_model(source))
    for axis in (len(shape), -len(shape) - 1, 2**31 - 1, -(2**31)):
        inputs = {"x": np.ones(shape, np.int32), "axis": axis_of(axis, np.int32)}
        with pytest.raises(RunError, match="INDEX_OUT_OF_RANGE"):
            compiled.run(inputs)
        with pytest.raises(ArithmeticError, match="INDEX_OUT_OF_RANGE"):
            evaluate_model(source, inputs)


def test_an_axis_that_is_none() -> None:
    batch = NodeBatch()
    x = np.ones((2, 2), np.float32)
    batch.add_node("CumSum", [x, axis_of(2)], [x], constants=[1])
    (line,) = refusal(batch.model())
    assert "axis 2 is not in a tensor of 2 dimensions" in line
    batch = NodeBatch()
    batch.add_node("CumSum", [np.ones((), np.float32), axis_of(0)], [np.ones((), np.float32)])
    (line,) = refusal(batch.model())
    assert "an input of 0 dimensions has no axis" in line
