"""Det: batches, pivots, singular matrices, NaN, and exact values."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from onnxc.pipeline import evaluate_model
from tests.models import Array, refusal
from tests.ops.node_batch import NodeBatch

pytestmark = pytest.mark.usefixtures("strict_c")


def exact(matrix: Array) -> Fraction:
    """By the first row's minors, in fractions."""
    if len(matrix) == 0:
        return Fraction(1)
    minors = (np.delete(matrix[1:], column, 1) for column in range(len(matrix)))
    terms = zip(matrix[0], minors, strict=True)
    return sum(
        ((-1) ** n * Fraction(float(first)) * exact(rest) for n, (first, rest) in enumerate(terms)),
        Fraction(0),
    )


def wanted_of(x: Array) -> Array:
    flat = x.reshape(-1, *x.shape[-2:])
    found = np.asarray([float(exact(matrix)) for matrix in flat])
    return found.reshape(x.shape[:-2]).astype(x.dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_batches(dtype: Any) -> None:
    batch = NodeBatch()
    for shape in ((1, 1), (2, 2), (3, 3), (5, 5), (4, 3, 3), (2, 3, 2, 2), (1, 1, 1)):
        x = np.random.default_rng(5).integers(-4, 5, shape).astype(dtype)
        batch.add_node("Det", [x], [wanted_of(x)])
    batch.check_within(32 if dtype is np.float64 else 1)


def test_pivots() -> None:
    batch = NodeBatch()
    for rows, wanted in [
        ([[0, 1], [1, 0]], -1),
        ([[0, 0, 1], [1, 0, 0], [0, 1, 0]], 1),
        ([[1, 2], [3, 4]], -2),
        ([[1, 2], [2, 4]], 0),
        ([[0, 0], [0, 0]], 0),
        ([[0, 3], [0, 5]], 0),
        ([[1e-20, 1], [1, 1]], -1),
    ]:
        batch.add_node("Det", [np.asarray(rows, np.float32)], [np.asarray(wanted, np.float32)])
    batch.check_within(0)


def test_nan_anywhere_is_the_result() -> None:
    batch = NodeBatch()
    for place in range(9):
        for start in (np.eye(3), np.zeros((3, 3)), np.ones((3, 3))):
            x = start.astype(np.float32)
            x.reshape(-1)[place] = math.nan
            batch.add_node("Det", [x], [np.asarray(math.nan, np.float32)])
    batch.check_within(0)


def test_of_no_rows() -> None:
    batch = NodeBatch()
    batch.add_node("Det", [np.zeros((2, 0, 0), np.float32)], [np.ones(2, np.float32)])
    batch.add_node("Det", [np.zeros((0, 2, 2), np.float32)], [np.ones(0, np.float32)])
    batch.check()


def test_matrices_that_are_not_square() -> None:
    batch = NodeBatch()
    batch.add_node("Det", [np.zeros((2, 3), np.float32)], [np.zeros((), np.float32)])
    (line,) = refusal(batch.model())
    assert "Det-22" in line


@given(arrays.arrays(np.float32, (3, 3), elements=st.integers(-100, 100)))
def test_any_small_integers_give_an_integer(x: Array) -> None:
    """Double has digits enough for a result that rounds to the exact one."""
    batch = NodeBatch()
    wanted = wanted_of(x)
    batch.add_node("Det", [x], [wanted])
    (found,) = evaluate_model(batch.model(), batch.given).values()
    assert abs(float(found) - float(wanted)) < 1e-6 * max(1.0, abs(float(wanted)))
