"""Gather and Scatter: indices from either end, known or not, out of range, several of one place."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxc.dtypes import BY_NAME, ElementType, numpy_dtype
from onnxc.pipeline import compile_model
from tests.models import Array, any_bits
from tests.ops.node_batch import NodeBatch
from tests.ops.run_time import allowed_types, assert_status, check_fused_and_plain, one_node

pytestmark = pytest.mark.usefixtures("strict_c")

INT64 = BY_NAME["int64"]
LEAST, GREATEST = -(2**63), 2**63 - 1
NAN, INF = math.nan, math.inf
BAD = [3, -4, LEAST, GREATEST, 2**32, -(2**32)]


def ints(*values: int) -> Array:
    return np.asarray(values, np.int64)


def numbers(*shape: int) -> Array:
    return np.arange(math.prod(shape), dtype=np.float32).reshape(shape)


# Gather


@pytest.mark.parametrize("constants", [[1], [0], [0, 1], []], ids=str)
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_gather(constants: list[int], kind: Any) -> None:
    batch, x = NodeBatch(), numbers(3, 4, 5)
    for axis in (-3, -2, -1, 0, 1, 2):
        for indices in (1, -1, [0], [2, 0, -3], [[0, 1], [-1, 1]], [], [[2], [1], [0]]):
            there = np.asarray(indices, kind)
            wanted = np.take(x, there, axis)
            batch.add_node("Gather", [x, there], [wanted], constants=constants, axis=axis)
    empty = np.zeros((0, 3), kind)
    batch.add_node("Gather", [numbers(0, 2), empty], [numbers(0, 3, 2)], constants=constants)
    batch.check()


@pytest.mark.parametrize("dtype", allowed_types("Gather"), ids=str)
def test_gathering_of_any_type(dtype: ElementType) -> None:
    batch, x = NodeBatch(), any_bits(dtype, 3, 2)
    rows, places = ints(2, -3, 2), ints(1, 0, -1, 0, 1, 1).reshape(3, 2)
    batch.add_node("Gather", [x, rows], [x[rows]])
    wanted = np.take_along_axis(x, places % 2, 1)
    batch.add_node("GatherElements", [x, places], [wanted], axis=1)
    batch.add_node("GatherND", [x, places], [x[places[:, 0], places[:, 1]]])
    check_fused_and_plain(batch)


@pytest.mark.parametrize("index", BAD)
def test_gather_out_of_range(index: int) -> None:
    x = numbers(3, 2)
    for constants in ([], [1], [0, 1]):
        batch = one_node("Gather", [x, ints(0, index)], x[:2], constants=constants)
        assert_status("INDEX_OUT_OF_RANGE", batch)
    pairs = ints(index, 0).reshape(1, 2)
    assert_status("INDEX_OUT_OF_RANGE", one_node("GatherND", [x, pairs], x[0, :1]))
    assert_status("INDEX_OUT_OF_RANGE", one_node("GatherND", [x, pairs[:, :1]], x[:1]))
    batch = one_node("GatherElements", [x, pairs], x[:1])
    assert_status("INDEX_OUT_OF_RANGE", batch)


def test_there_is_nothing_to_gather() -> None:
    batch = one_node("Gather", [numbers(0, 2), ints(0)], numbers(1, 2))
    assert_status("INDEX_OUT_OF_RANGE", batch)


def test_known_indices_that_advance_by_one_step_need_no_table() -> None:
    """Such a Gather is a slice."""
    batch = one_node(
        "Gather", [numbers(9), ints(7, 5, 3)], ints(7, 5, 3).astype(np.float32), constants=[1]
    )
    compiled = compile_model(batch.model())
    assert compiled.workspace_size == compiled.constants_size == 0
    batch.check()


def test_gather_elements_of_fewer_rows_and_columns() -> None:
    batch, x = NodeBatch(), numbers(3, 4)
    # The two examples of the specification.
    small, other = ints(1, 2, 3, 4).reshape(2, 2), ints(0, 0, 1, 0).reshape(2, 2)
    batch.add_node("GatherElements", [small, other], [ints(1, 1, 4, 3).reshape(2, 2)], axis=1)
    square, rows = ints(*range(1, 10)).reshape(3, 3), ints(1, 2, 0, 2, 0, 0).reshape(2, 3)
    wanted = ints(4, 8, 3, 7, 2, 3).reshape(2, 3)
    batch.add_node("GatherElements", [square, rows], [wanted])
    batch.add_node("GatherElements", [square, rows], [wanted], constants=[1])
    # Fewer of the other dimension than the data has.
    columns = ints(3, -4, 1).reshape(1, 3)
    wanted = np.asarray([[3, 0, 1]], np.float32)
    batch.add_node("GatherElements", [x, columns], [wanted], axis=-1)
    batch.check()


@pytest.mark.parametrize("known", [True, False])
def test_gather_nd(known: bool) -> None:
    """The examples of the specification, tuples of any length, and batches."""
    batch = NodeBatch()
    square, cube = ints(0, 1, 2, 3).reshape(2, 2), ints(*range(8)).reshape(2, 2, 2)
    cases: list[tuple[Array, Array, int, Array]] = [
        (square, ints(0, 0, 1, 1).reshape(2, 2), 0, ints(0, 3)),
        (square, ints(1, 0).reshape(2, 1), 0, square[::-1]),
        (cube, ints(0, 1, 1, 0).reshape(2, 2), 0, ints(2, 3, 4, 5).reshape(2, 2)),
        (cube, ints(0, 1, 1, 0).reshape(2, 1, 2), 0, ints(2, 3, 4, 5).reshape(2, 1, 2)),
        (cube, ints(1, 0).reshape(2, 1), 1, ints(2, 3, 4, 5).reshape(2, 2)),
        (cube, ints(-1, -2, 0, -1).reshape(2, 2), 0, cube[[1, 0], [0, 1]]),
        (cube, ints(1, 0, 1, 1, 0, 0).reshape(2, 3), 0, ints(5, 4)),
        (cube, ints(1, 1, 0, -1).reshape(2, 1, 2), 1, ints(3, 5).reshape(2, 1)),
        (cube, ints(1, 1, 0, 0).reshape(2, 2, 1), 2, ints(1, 3, 4, 6).reshape(2, 2)),
        (cube, ints(), 0, np.zeros((0, 2, 2), np.int64)),
    ]
    for data, indices, batch_dims, wanted in cases:
        there = indices.reshape(0, 1) if indices.size == 0 else indices
        constants = [1] if known else []
        attributes = {"batch_dims": batch_dims} if batch_dims else {}
        batch.add_node(
            "GatherND", [data, there], [wanted.copy()], constants=constants, **attributes
        )
    batch.check()


# Scatter

FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "none": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": np.maximum,
    "min": np.minimum,
}


def scattered_elements(
    data: Array, indices: Array, updates: Array, axis: int = 0, reduction: str = "none"
) -> Array:
    out = data.copy()
    for place in np.ndindex(*indices.shape):
        target = list(place)
        target[axis] = int(indices[place])
        there = tuple(target)
        with np.errstate(all="ignore"):
            out[there] = FUNCTIONS[reduction](out[there], updates[place])
    return out


def scattered_nd(data: Array, indices: Array, updates: Array, reduction: str = "none") -> Array:
    out = data.copy()
    for place in np.ndindex(*indices.shape[:-1]):
        there = tuple(int(n) for n in indices[place])
        with np.errstate(all="ignore"):
            out[there] = FUNCTIONS[reduction](out[there], updates[place])
    return out


@pytest.mark.parametrize("constants", [[1], [], [0, 1, 2]], ids=str)
@pytest.mark.parametrize("reduction", FUNCTIONS)
def test_scatter(reduction: str, constants: list[int]) -> None:
    """Indices from the end, and several of one place, where the last of updates stays."""
    batch, x = NodeBatch(), ints(*range(1, 13)).reshape(3, 4)
    for kind in (np.int32, np.int64):
        rows = np.asarray([[1, 0, -1, -1], [1, 2, 0, 2]], kind)
        updates = 10 * ints(*range(1, 9)).reshape(2, 4)
        wanted = scattered_elements(x, rows, updates, 0, reduction)
        inputs = [x, rows, updates]
        batch.add_node(
            "ScatterElements", inputs, [wanted], constants=constants, reduction=reduction
        )
        columns = np.asarray([[3, 0, -1], [-4, 1, 0]], kind)
        wanted = scattered_elements(x, columns, updates[:, :3], 1, reduction)
        inputs = [x, columns, updates[:, :3].copy()]
        batch.add_node(
            "ScatterElements", inputs, [wanted], constants=constants, axis=-1, reduction=reduction
        )
    for tuples in (
        ints(0, 1, 2, -1, 0, 1).reshape(3, 2),
        ints(1, 1, -3).reshape(3, 1),
        ints(2, 0, 1).reshape(3, 1),
        ints(0, 0, 0, 1, 1, 0, 1, 1).reshape(2, 2, 2),
    ):
        shape = (*tuples.shape[:-1], *x.shape[tuples.shape[-1] :])
        updates = 10 * ints(*range(1, 1 + math.prod(shape))).reshape(shape)
        wanted = scattered_nd(x, tuples, updates, reduction)
        inputs = [x, tuples, updates]
        batch.add_node("ScatterND", inputs, [wanted], constants=constants, reduction=reduction)
    none = np.zeros((0, 1), np.int64), np.zeros((0, 4), np.int64)
    batch.add_node("ScatterND", [x, *none], [x], constants=constants, reduction=reduction)
    batch.check()


@pytest.mark.parametrize("dtype", allowed_types("ScatterND"), ids=str)
def test_scatter_of_any_type(dtype: ElementType) -> None:
    batch, x, updates = NodeBatch(), any_bits(dtype, 3, 2), any_bits(dtype, 2, 2)
    indices = ints(1, -1, 2, 0).reshape(2, 2)
    wanted = scattered_elements(x, indices, updates)
    batch.add_node("ScatterElements", [x, indices, updates], [wanted])
    rows = ints(2, 0).reshape(2, 1)
    batch.add_node("ScatterND", [x, rows, updates], [scattered_nd(x, rows, updates)])
    check_fused_and_plain(batch)


NUMBERS = [t for t in allowed_types("ScatterND") if t.kind in ("float", "signed", "unsigned")]


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_reductions_of_any_number(dtype: ElementType) -> None:
    """Integers wrap."""
    kind = numpy_dtype(dtype)
    if dtype.kind == "float":
        x = np.asarray([1.5, -2, 1e30, 0], kind)
        updates = np.asarray([3, -0.25, 7, 1e30, -1], kind)
    else:
        limits = np.iinfo(kind)
        x = np.asarray([limits.max, limits.min, 3, 7], kind)
        updates = np.asarray([limits.max, 2, limits.min, 5, 3], kind)
    indices, batch = ints(0, 1, 0, 2, -1), NodeBatch()
    for reduction in ("add", "mul", "max", "min"):
        wanted = scattered_elements(x, indices, updates, 0, reduction)
        batch.add_node("ScatterElements", [x, indices, updates], [wanted], reduction=reduction)
    batch.check()


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_extremes_of_nan_and_zeros(kind: Any) -> None:
    """A NaN stays, whichever side it comes from; +0 is greater than -0.

    Beside another value than 0 its payload may change.
    """
    x = np.asarray([NAN, 0.0, 0.0, -0.0, -INF], kind)
    updates = np.asarray([0.0, NAN, -0.0, 0.0, INF], kind)
    batch, indices = NodeBatch(), ints(0, 1, 2, 3, 4)
    nan = np.asarray(NAN, kind)
    greatest = np.asarray([nan, nan, 0.0, 0.0, INF], kind)
    least = np.asarray([nan, nan, -0.0, -0.0, -INF], kind)
    inputs = [x, indices, updates]
    batch.add_node("ScatterElements", inputs, [greatest], reduction="max")
    batch.add_node("ScatterElements", inputs, [least], reduction="min")
    tuples = indices.reshape(5, 1)
    batch.add_node("ScatterND", [x, tuples, updates], [greatest], reduction="max")
    batch.check()


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_sums_of_halves_are_rounded_once(kind: Any) -> None:
    """Of many small updates none is lost, as each would be in the sum."""
    x, small = np.asarray([1], kind), np.full(64, 2.0**-12, kind)
    wanted = np.asarray([1 + 2.0**-6], np.float32).astype(kind)
    assert kind(x[0] + small[0]) == x[0]
    inputs = [x, np.zeros(64, np.int64), small]
    one_node("ScatterElements", inputs, wanted, reduction="add").check()


def test_reductions_of_bools() -> None:
    """true is the greater, and their sum and product are those of 0 and 1."""
    batch = NodeBatch()
    x, updates = np.asarray([False, False, True, True]), np.asarray([False, True, False, True])
    inputs = [x, ints(0, 1, 2, 3), updates]
    for reduction, wanted in (("add", x | updates), ("max", x | updates)):
        batch.add_node("ScatterElements", inputs, [wanted], reduction=reduction)
    for reduction, wanted in (("mul", x & updates), ("min", x & updates)):
        batch.add_node("ScatterElements", inputs, [wanted], reduction=reduction)
    batch.check()


def test_strings_have_no_sum() -> None:
    x = np.asarray([b"a", b"b"], object)
    batch = one_node("ScatterElements", [x, ints(0), x[:1]], x, reduction="add")
    with pytest.raises(Exception, match="reduction add of string is not supported"):
        compile_model(batch.model())


@pytest.mark.parametrize("index", BAD)
def test_scatter_out_of_range(index: int) -> None:
    x, updates = numbers(3, 2), numbers(1, 2)
    for constants in ([], [1]):
        inputs = [x, ints(0, index).reshape(1, 2), updates]
        batch = one_node("ScatterElements", inputs, x, constants=constants)
        assert_status("INDEX_OUT_OF_RANGE", batch)
        inputs = [x, ints(index).reshape(1, 1), updates]
        batch = one_node("ScatterND", inputs, x, constants=constants, reduction="add")
        assert_status("INDEX_OUT_OF_RANGE", batch)


@given(data=st.data(), shape=st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple))
@settings(max_examples=60)
def test_scatter_undoes_gather(data: st.DataObject, shape: tuple[int, ...]) -> None:
    """What GatherElements has taken along a permutation ScatterElements puts back."""
    axis = data.draw(st.integers(0, len(shape) - 1))
    order = data.draw(st.permutations(range(shape[axis])))
    extents = [1] * len(shape)
    extents[axis] = -1
    indices = np.broadcast_to(np.asarray(order).reshape(extents), shape).copy()
    x = any_bits(INT64, *shape)
    taken = np.take_along_axis(x, indices, axis)
    known = data.draw(st.sampled_from([[], [1]]))
    one_node("GatherElements", [x, indices], taken, constants=known, axis=axis).check_evaluated()
    inputs = [np.zeros_like(x), indices, taken]
    one_node("ScatterElements", inputs, x, constants=known, axis=axis).check_evaluated()


# TensorScatter


def tensor_scattered(past: Array, update: Array, first: list[int], axis: int) -> Array:
    out = past.copy()
    extent = past.shape[axis]
    for place in np.ndindex(*update.shape):
        target = list(place)
        target[axis] = (place[axis] + first[place[0]]) % extent
        out[tuple(target)] = update[place]
    return out


def test_tensor_scatter() -> None:
    batch, past, update = NodeBatch(), numbers(2, 4, 3), -1 - numbers(2, 2, 3)
    batch.add_node("TensorScatter", [past, update], [tensor_scattered(past, update, [0, 0], 1)])
    for first, mode in (([2, 0], "linear"), ([3, -2], "circular"), ([LEAST, 9], "circular")):
        wanted = tensor_scattered(past, update, first, 1)
        inputs = [past, update, ints(*first)]
        batch.add_node("TensorScatter", inputs, [wanted], mode=mode)
        batch.add_node("TensorScatter", inputs, [wanted], constants=[2], mode=mode)
    narrow = -1 - numbers(2, 4, 1)
    wanted = tensor_scattered(past, narrow, [1, 2], 2)
    batch.add_node("TensorScatter", [past, narrow, ints(1, 2)], [wanted], axis=-1)
    batch.check()


@pytest.mark.parametrize("dtype", allowed_types("TensorScatter"), ids=str)
def test_tensor_scatter_of_any_type(dtype: ElementType) -> None:
    past, update = any_bits(dtype, 2, 3, 1), any_bits(dtype, 2, 1, 1)
    wanted = tensor_scattered(past, update, [2, 1], 1)
    one_node("TensorScatter", [past, update, ints(2, 1)], wanted).check()


@pytest.mark.parametrize("first", [-1, 3, LEAST, GREATEST])
def test_tensor_scatter_beyond_the_cache(first: int) -> None:
    past, update = numbers(2, 4, 3), numbers(2, 2, 3)
    batch = one_node("TensorScatter", [past, update, ints(0, first)], past)
    assert_status("INDEX_OUT_OF_RANGE", batch)


def test_places_of_all_axes_at_once() -> None:
    """ScatterND with the constant tuples that exporters write for x[:, 1:3] = y."""
    x, y = numbers(3, 4), -1 - numbers(3, 2)
    tuples = np.asarray([*itertools.product(range(3), (1, 2))]).reshape(3, 2, 2)
    wanted = x.copy()
    wanted[:, 1:3] = y
    batch = one_node("ScatterND", [x, tuples, y], wanted, constants=[1])
    assert compile_model(batch.model()).constants_size == 0
    batch.check()
