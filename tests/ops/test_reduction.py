"""Reductions and ArgMax, ArgMin: axes known and not, empty ranges, NaN, integers that wrap."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from onnx import GraphProto, TensorProto, helper

from onnxc.compiled import CompiledModel
from onnxc.errors import RunError
from onnxc.pipeline import compile_model, evaluate_model
from tests.models import Array, Batch, declared, model, refusal
from tests.ops.node_batch import NodeBatch

pytestmark = pytest.mark.usefixtures("strict_c")

INF, NAN = math.inf, math.nan
NUMBERS = np.asarray([[[5, 1], [20, 2]], [[30, 1], [40, -2]], [[55, 1], [60, 2]]])

# The function of numpy that folds, with the axes as a tuple and keepdims.
FOLDS: dict[str, Callable[..., Any]] = {
    "ReduceSum": np.sum,
    "ReduceProd": np.prod,
    "ReduceMax": np.max,
    "ReduceMin": np.min,
    "ReduceL1": lambda x, **how: np.sum(np.abs(x), **how),
    "ReduceSumSquare": lambda x, **how: np.sum(x * x, **how),
}
ALL = [*FOLDS, "ReduceMean", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp"]


def ints(*values: int) -> Array:
    return np.asarray(values, np.int64)


def floats(*values: float) -> Array:
    return np.asarray(values, np.float32)


# Axes


@pytest.mark.parametrize("operator", FOLDS)
def test_axes(operator: str) -> None:
    """Known at compile time: any of them, from either end, in any order, none, and no input."""
    batch = NodeBatch()
    x = NUMBERS.astype(np.int32)
    for keepdims in (0, 1):
        for axes in ([0], [1], [-1], [-3, 2], [2, 0], [0, 1, 2]):
            wanted = FOLDS[operator](x, axis=tuple(axes), keepdims=bool(keepdims))
            wanted = np.asarray(wanted, np.int32)
            batch.add_node(operator, [x, ints(*axes)], [wanted], constants=[1], keepdims=keepdims)
        wanted = np.asarray(FOLDS[operator](x, axis=(0, 1, 2), keepdims=bool(keepdims)), np.int32)
        batch.add_node(operator, [x], [wanted], keepdims=keepdims)
        batch.add_node(operator, [x, ints()], [wanted], constants=[1], keepdims=keepdims)
    batch.check()


def test_no_axes_may_mean_each_element_alone() -> None:
    """What is done to an element before and after the fold is done all the same."""
    x = floats(-2, 3, 0.5)
    alone = {
        "ReduceSum": x,
        "ReduceMean": x,
        "ReduceMax": x,
        "ReduceProd": x,
        "ReduceL1": floats(2, 3, 0.5),
        "ReduceL2": floats(2, 3, 0.5),
        "ReduceSumSquare": floats(4, 9, 0.25),
        "ReduceLogSumExp": x,
    }
    batch = NodeBatch()
    for operator, wanted in alone.items():
        for axes in ([], [ints()]):
            batch.add_node(
                operator, [x, *axes], [wanted], constants=[1], noop_with_empty_axes=1, keepdims=0
            )
    batch.add_node("ReduceLogSum", [floats(1, 0)], [floats(0, -INF)], noop_with_empty_axes=1)
    batch.check()


def test_a_scalar_has_no_axes() -> None:
    batch = Batch()
    x = np.asarray(-3, np.float32)
    for operator, wanted in (("ReduceSum", -3), ("ReduceL1", 3), ("ReduceSumSquare", 9)):
        for keepdims in (0, 1):
            batch.add(operator, [x], np.asarray(wanted, np.float32), keepdims=keepdims)
    batch.check()


@pytest.mark.parametrize(
    ("axes", "fact"),
    [([2], "axis must be in"), ([-3], "axis must be in"), ([0, -2], "name a dimension twice")],
    ids=["beyond", "before", "twice"],
)
def test_axes_that_are_none(axes: list[int], fact: str) -> None:
    batch = NodeBatch()
    x = np.ones((2, 2), np.float32)
    batch.add_node("ReduceSum", [x, ints(*axes)], [x], constants=[1])
    batch.graph.output[0].type.tensor_type.ClearField("shape")
    (line,) = refusal(batch.model())
    assert "ReduceSum-13" in line
    assert fact in line


# Axes that are known only at run time


def asked(shape: tuple[int, ...], wanted: tuple[int, ...], count: int, keepdims: int) -> Any:
    """A model whose axes are its second input."""
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=keepdims)
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.INT32, shape),
            helper.make_tensor_value_info("axes", TensorProto.INT64, [count]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.INT32, wanted)],
    )
    return model(graph)


# Shape, declared shape, keepdims, and the sets of axes that fit.
ASKED: list[tuple[tuple[int, ...], tuple[int, ...], int, list[list[int]]]] = [
    ((3, 2, 4), (3, 1, 4), 1, [[1], [-2]]),
    ((3, 2, 4), (1, 1, 4), 1, [[1, 0], [-3, 1]]),
    ((3, 2, 4), (3, 4), 0, [[1], [-2]]),
    ((3, 3, 4), (3, 4), 0, [[0], [1], [-3], [-2]]),
    ((2, 2, 2), (2,), 0, [[0, 1], [2, 0], [-1, -2]]),
    ((2, 1, 3), (2, 3), 0, [[1]]),
    ((2, 1, 3), (2, 1, 3), 1, [[1], [-2]]),
    ((2, 1, 1, 3), (2, 1, 3), 0, [[1], [2]]),
    ((3,), (), 0, [[0], [-1]]),
]


@pytest.mark.parametrize(("shape", "wanted", "keepdims", "axes"), ASKED)
def test_axes_at_run_time(
    shape: tuple[int, ...], wanted: tuple[int, ...], keepdims: int, axes: list[list[int]]
) -> None:
    source = asked(shape, wanted, len(axes[0]), keepdims)
    compiled = CompiledModel(compile_model(source))
    x = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    for chosen in axes:
        expected = np.sum(x, axis=tuple(chosen), keepdims=bool(keepdims), dtype=np.int32)
        inputs = {"x": x, "axes": ints(*chosen)}
        assert np.array_equal(compiled.run(inputs)["y"], expected)
        assert np.array_equal(evaluate_model(source, inputs)["y"], expected)


@pytest.mark.parametrize(
    ("wanted", "keepdims", "axes"),
    [
        ((3, 1, 4), 1, [0]),  # not what the shape says
        ((3, 1, 4), 1, [3]),  # no axis
        ((3, 1, 4), 1, [-4]),
        ((3, 4), 0, [2]),
        ((3, 4), 0, [2**62]),
        ((3, 4), 0, [-(2**63)]),
    ],
)
def test_axes_at_run_time_that_do_not_fit(
    wanted: tuple[int, ...], keepdims: int, axes: list[int]
) -> None:
    source = asked((3, 3, 4), wanted, 1, keepdims)
    inputs = {"x": np.ones((3, 3, 4), np.int32), "axes": ints(*axes)}
    with pytest.raises(RunError, match="SHAPE_MISMATCH"):
        CompiledModel(compile_model(source)).run(inputs)
    with pytest.raises(ArithmeticError, match="SHAPE_MISMATCH"):
        evaluate_model(source, inputs)


def test_a_declared_shape_that_no_axes_give() -> None:
    (line,) = refusal(asked((3, 2, 4), (3, 5), 1, 0))
    assert "no sets of 1 axes give the declared shape [3, 5]; make axes an initializer" in line


def test_a_declared_shape_that_too_many_axes_give() -> None:
    (line,) = refusal(asked((2,) * 6, (2,) * 3, 3, 0))
    assert "20 sets of 3 axes give the declared shape [2, 2, 2]" in line
    (line,) = refusal(asked((2,) * 30, (2,) * 15, 15, 0))
    assert "too many sets" in line


# Nothing to reduce


def test_empty_ranges() -> None:
    """What a fold starts with; a mean of nothing is 0 / 0."""
    of_floats = {
        "ReduceSum": 0.0,
        "ReduceProd": 1.0,
        "ReduceMax": -INF,
        "ReduceMin": INF,
        "ReduceL1": 0.0,
        "ReduceL2": 0.0,
        "ReduceSumSquare": 0.0,
        "ReduceLogSum": -INF,
        "ReduceLogSumExp": -INF,
    }
    batch = NodeBatch()
    for operator, value in of_floats.items():
        for dtype in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16):
            x, wanted = np.zeros((2, 0, 3), dtype), np.full((2, 1, 3), value, dtype)
            batch.add_node(operator, [x, ints(1)], [wanted], constants=[1])
    for dtype in (np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64):
        limits = np.iinfo(dtype)
        for operator, limit in (("ReduceMax", limits.min), ("ReduceMin", limits.max)):
            x, wanted = np.zeros((2, 0), dtype), np.full((2,), limit, dtype)
            batch.add_node(operator, [x, ints(1)], [wanted], constants=[1], keepdims=0)
    for operator, truth in (("ReduceMax", False), ("ReduceMin", True)):
        x = np.zeros((0, 2), np.bool_)
        batch.add_node(operator, [x, ints(0)], [np.full((1, 2), truth)], constants=[1])
    for operator, start in (("ReduceSum", 0), ("ReduceProd", 1), ("ReduceL1", 0)):
        batch.add_node(operator, [np.zeros(0, np.int32)], [np.asarray([start], np.int32)])
    for dtype in (np.int32, np.int64, np.uint64):
        batch.add_node("ReduceMean", [np.zeros(0, dtype)], [np.zeros(1, dtype)])
    batch.check()


def test_the_mean_of_nothing_is_nan() -> None:
    batch = NodeBatch()
    batch.add_node(
        "ReduceMean",
        [np.zeros((2, 0), np.float32), ints(1)],
        [floats(NAN, NAN)],
        constants=[1],
        keepdims=0,
    )
    batch.check_within(0)


def test_an_empty_result() -> None:
    batch = NodeBatch()
    for operator in ALL:
        x, wanted = np.zeros((0, 3), np.float32), np.zeros((0, 1), np.float32)
        batch.add_node(operator, [x, ints(1)], [wanted], constants=[1])
    batch.check()


# Values


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64])
def test_integers_wrap(dtype: Any) -> None:
    generator = np.random.default_rng(3)
    limits = np.iinfo(dtype)
    x = generator.integers(limits.min, limits.max, size=(4, 5), dtype=dtype, endpoint=True)
    x[0, 0] = limits.min
    batch = NodeBatch()
    with np.errstate(over="ignore"):
        for operator, before, fold in (
            ("ReduceSum", x, np.add),
            ("ReduceProd", x, np.multiply),
            ("ReduceL1", np.abs(x), np.add),
            ("ReduceSumSquare", x * x, np.add),
        ):
            rows = fold.reduce(before, 1, dtype=dtype)
            whole = np.asarray(fold.reduce(before, (0, 1), dtype=dtype))
            batch.add_node(operator, [x, ints(1)], [rows], constants=[1], keepdims=0)
            batch.add_node(operator, [x], [whole], keepdims=0)
    batch.check()


def test_sums_of_int64_are_exact() -> None:
    batch = Batch()
    batch.add("ReduceSum", [ints(2**53, 1, 1, 1)], ints(2**53 + 3))
    batch.add("ReduceSum", [ints(2**62, 2**62)], ints(-(2**63)))
    batch.check()


def exact_mean(values: list[int]) -> int:
    total = sum(values)
    return abs(total) // len(values) * (1 if total >= 0 else -1)


# Whose sums do not fit, whose quotients and remainders differ in sign, and zero from either side.
MEANS = [
    [2**31 - 1, 2**31 - 1, 2**31 - 3],
    [-(2**31), -(2**31), -(2**31) + 1],
    [7, 0],
    [-7, 0],
    [-1, 0, 0],
    [5, 5, -3],
    [-5, -5, 3],
    [4, -3],
    [-4, 3],
]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_means_of_integers_are_exact_and_truncate(dtype: Any) -> None:
    batch = NodeBatch()
    wide = [[v * 2**32 for v in values] for values in MEANS[:2]]
    for values in [*MEANS, *(wide if dtype is np.int64 else [])]:
        x = np.asarray(values, dtype)
        batch.add_node("ReduceMean", [x], [np.asarray(exact_mean(values), dtype)], keepdims=0)
    batch.check()


def test_means_of_unsigned_integers() -> None:
    batch = NodeBatch()
    for dtype in (np.uint32, np.uint64):
        x = np.full((3,), np.iinfo(dtype).max, dtype)
        batch.add_node("ReduceMean", [x], [x[:1]])
        x[0] -= 1
        batch.add_node("ReduceMean", [x], [x[:1]])
    batch.check()


@given(arrays.arrays(np.int64, st.integers(1, 9), elements=st.integers(-(2**63), 2**63 - 1)))
def test_any_mean_of_int64(x: Array) -> None:
    batch = NodeBatch()
    wanted = np.asarray([exact_mean(x.tolist())], np.int64)
    batch.add_node("ReduceMean", [x], [wanted])
    batch.check_evaluated()


def test_roots_and_logarithms_of_integers_truncate() -> None:
    batch = NodeBatch()
    batch.add_node("ReduceL2", [np.asarray([3, 4], np.int32)], [np.asarray([5], np.int32)])
    batch.add_node("ReduceL2", [np.asarray([1, 1], np.int64)], [ints(1)])
    batch.add_node("ReduceL2", [np.full(4, 2**31, np.uint32)], [np.asarray([2**32 - 1], np.uint32)])
    batch.check()
    batch = NodeBatch(opset=18)
    batch.add_node("ReduceLogSum", [np.asarray([3, 5], np.int32)], [np.asarray([2], np.int32)])
    batch.add_node("ReduceLogSumExp", [np.asarray([3, 3], np.int64)], [ints(3)])
    batch.check()


def test_bools() -> None:
    x = np.asarray([[True, False], [False, False], [True, True]])
    batch = NodeBatch()
    axes = ints(1)
    batch.add_node("ReduceMax", [x, axes], [np.any(x, 1)], constants=[1], keepdims=0)
    batch.add_node("ReduceMin", [x, axes], [np.all(x, 1)], constants=[1], keepdims=0)
    batch.check()


def test_nan_and_signed_zeros() -> None:
    """A NaN wins wherever it is; the larger of two zeros is +0."""
    batch = NodeBatch()
    for length in (1, 5, 16, 17, 33):
        for place in {0, length // 2, length - 1}:
            x = np.arange(length, dtype=np.float32)
            x[place] = NAN
            for operator in ALL:
                batch.add_node(operator, [x], [floats(NAN)])
    batch.check_within(0)
    batch = NodeBatch()
    batch.add_node("ReduceMax", [floats(-0.0, 0.0, -0.0)], [floats(0.0)])
    batch.add_node("ReduceMin", [floats(0.0, -0.0, 0.0)], [floats(-0.0)])
    batch.check()


def test_logarithms_of_exponentials() -> None:
    """No exponential overflows or vanishes on the way."""
    batch = NodeBatch()
    log2 = math.log(2)
    cases: list[tuple[list[float], float]] = [
        ([1000, 1000], 1000 + log2),
        ([-1000, -1000], -1000 + log2),
        ([3e38, -3e38], 3e38),
        ([-INF, -INF], -INF),
        ([-INF, 1], 1),
        ([INF, 1], INF),
        ([INF, INF], INF),
        ([INF, -INF], INF),
        ([0, 0, 0, 0], 2 * log2),
        ([-7], -7),
        ([1, 2, 3], 3 + math.log1p(math.exp(-1) + math.exp(-2))),
    ]
    for values, wanted in cases:
        batch.add_node("ReduceLogSumExp", [floats(*values)], [floats(wanted)])
        x = np.asarray(values, np.float64)
        batch.add_node("ReduceLogSumExp", [x], [np.asarray([wanted], np.float64)])
    batch.check_within(2)


def test_long_rows_keep_their_digits() -> None:
    """Within a few units of the last place; adding one after the other loses three digits."""
    million = np.full(10**6, 0.1, np.float32)
    batch = NodeBatch()
    batch.add_node("ReduceMean", [million], [floats(million[0])])
    batch.add_node("ReduceSum", [million], [floats(1e6 * float(million[0]))])
    batch.add_node("ReduceSum", [floats(1e8, 1, -1e8, 1)], [floats(2)])
    batch.check_within(3)


def test_16_bit_floats_are_added_as_float() -> None:
    """4096 and ones is no float16 sum that grows; 300 squared is no float16."""
    batch = NodeBatch()
    for dtype in (np.float16, ml_dtypes.bfloat16):
        ones = np.ones(4096, dtype)
        batch.add_node("ReduceSum", [ones], [np.asarray([4096], dtype)])
        batch.add_node("ReduceL2", [np.full(4, 300, dtype)], [np.asarray([600], dtype)])
        batch.add_node("ReduceMean", [np.full(5, 60000, dtype)], [np.full(1, 60000, dtype)])
    batch.check()


def test_squares_and_their_root() -> None:
    batch = NodeBatch()
    batch.add_node("ReduceSumSquare", [floats(1, 2, 3)], [floats(14)])
    batch.add_node("ReduceL2", [floats(3, -4)], [floats(5)])
    batch.add_node("ReduceL1", [floats(3, -4)], [floats(7)])
    batch.check()


@pytest.mark.parametrize("operator", ["ReduceSum", "ReduceMax", "ReduceL2", "ReduceProd"])
def test_axes_were_an_attribute(operator: str) -> None:
    for opset in (1, 11):
        batch = NodeBatch(opset=opset)
        wanted = floats(3, 4) if operator != "ReduceProd" else floats(0, 0)
        x = np.asarray([[3, 0], [4, 0]], np.float32)
        batch.add_node(operator, [x], [wanted], axes=[1], keepdims=0)
        batch.check()


# ArgMax and ArgMin


def test_arg_max_and_arg_min() -> None:
    x = np.asarray([[2, 2, 1], [1, 3, 3]], np.int32)
    batch = NodeBatch()
    cases: list[tuple[dict[str, Any], Any]] = [
        ({"axis": 1}, [[0], [1]]),
        ({"axis": -1, "keepdims": 0}, [0, 1]),
        ({"axis": 1, "select_last_index": 1}, [[1], [2]]),
        ({}, [[0, 1, 1]]),
        ({"keepdims": 0}, [0, 1, 1]),
    ]
    for attributes, wanted in cases:
        batch.add_node("ArgMax", [x], [np.asarray(wanted, np.int64)], **attributes)
        batch.add_node("ArgMin", [-x], [np.asarray(wanted, np.int64)], **attributes)
    batch.check()


def test_nan_is_extreme() -> None:
    x = floats(1, NAN, 5, NAN, -INF)
    batch = NodeBatch()
    for operator in ("ArgMax", "ArgMin"):
        batch.add_node(operator, [x], [ints(1)])
        batch.add_node(operator, [x], [ints(3)], select_last_index=1)
        batch.add_node(operator, [floats(0.0, -0.0)], [ints(0)])
        batch.add_node(operator, [floats(0.0, -0.0)], [ints(1)], select_last_index=1)
    batch.add_node("ArgMax", [floats(-INF, -INF)], [ints(0)])
    batch.add_node("ArgMin", [floats(INF, INF)], [ints(0)])
    batch.check()


@pytest.mark.parametrize("name", [*"bBhHiIqQefd", "bfloat16"])
def test_arg_max_of_every_type(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    x = np.asarray([[3, 9, 1], [7, 0, 7]]).astype(dtype)
    batch = NodeBatch()
    batch.add_node("ArgMax", [x], [ints(1, 0)], axis=1, keepdims=0)
    batch.add_node("ArgMin", [x], [ints(2, 1)], axis=1, keepdims=0)
    batch.check_evaluated()


def test_the_extreme_of_nothing_is_refused() -> None:
    batch = NodeBatch()
    batch.add_node("ArgMax", [np.zeros((2, 0), np.float32)], [np.zeros((2, 1), np.int64)], axis=1)
    (line,) = refusal(batch.model())
    assert "axis 1 has no elements, of which none is the maximum" in line


def test_an_axis_that_is_none() -> None:
    graph = GraphProto(name="g")
    graph.input.append(declared("x", floats(1)))
    graph.node.append(helper.make_node("ArgMax", ["x"], ["y"], axis=1))
    graph.output.append(helper.make_tensor_value_info("y", TensorProto.INT64, None))
    (line,) = refusal(model(graph))
    assert "ArgMax-13" in line
