"""Distances between values, and what passes."""

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxc.arrays import object_array
from onnxc.dtypes import BY_NAME, numpy_dtype
from onnxc.verify.compare import (
    NAN_DISTANCE,
    Difference,
    Mismatch,
    Tolerance,
    compare,
    ulp_distance,
)

FLOATS = [np.dtype(t) for t in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)]
DEFAULT = Tolerance()
EXACT = Tolerance(exact=True)


def compared(name: str, got: Any, expected: Any, tolerance: Tolerance = DEFAULT) -> Difference:
    dtype = numpy_dtype(BY_NAME[name])
    left, right = np.array(got).astype(dtype), np.array(expected).astype(dtype)
    return compare(left, right, BY_NAME[name], tolerance)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_ulp_distance(dtype: np.dtype[Any]) -> None:
    unsigned = np.dtype(f"uint{dtype.itemsize * 8}")
    sign = 1 << (dtype.itemsize * 8 - 1)
    infinity = int(np.array(np.inf).astype(dtype).view(unsigned))
    nan = int(np.array(np.nan).astype(dtype).view(unsigned))
    pairs = [
        (0, 0, 0),
        (0, sign, 0),
        (0, 1, 1),
        (1, sign | 1, 2),
        (5, 9, 4),
        (sign | 9, sign | 5, 4),
        (infinity - 1, infinity, 1),
        (infinity, sign | infinity, 2 * infinity),
        (nan, nan ^ 1 ^ sign, 0),
        (nan, 0, NAN_DISTANCE),
        (sign | infinity, nan, NAN_DISTANCE),
    ]
    left, right, expected = (np.array(column, np.uint64) for column in zip(*pairs, strict=True))
    a, b = left.astype(unsigned).view(dtype), right.astype(unsigned).view(dtype)
    assert ulp_distance(a, b).tolist() == expected.tolist()
    assert ulp_distance(b[:, None], a[:, None]).tolist() == expected[:, None].tolist()


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float", "double", "complex64"])
def test_equal_floats(name: str) -> None:
    values = [0.0, 1.0, -2.0, math.inf, -math.inf, math.nan]
    assert compared(name, values, values) == Difference(6, 0, None, 0.0, 0.0, 0, 0.0)
    assert compared(name, values, values, EXACT).passed
    assert compared(name, [0.0], [-0.0]).passed
    assert compared(name, [0.0], [-0.0], EXACT).mismatches == 1


def test_float_errors() -> None:
    found = compared("float", [[1.0, 2.0], [4.0, 8.5]], [[1.0, 2.0], [4.5, 8.0]])
    assert found == Difference(
        4, 2, Mismatch((1, 0), "4.0", "4.5"), 0.5, 0.5 / 4.5, 2**20, 0.5 / 8.0
    )
    assert not found.passed
    assert compared("float", [4.0], [4.5], Tolerance(atol=0.5)).passed
    assert compared("float", [4.0], [4.5], Tolerance(rtol=0.12)).passed
    assert not compared("float", [4.0], [4.5], Tolerance(rtol=0.11)).passed


def test_the_defaults() -> None:
    assert compared("float", [1.00009], [1.0]).passed
    assert not compared("float", [1.00011], [1.0]).passed
    assert compared("double", [1 + 9e-11], [1.0]).passed
    assert not compared("double", [1 + 11e-11], [1.0]).passed
    assert compared("float16", [1 + 2**-8], [1.0]).passed
    assert not compared("float16", [1 + 2**-7], [1.0]).passed
    assert compared("bfloat16", [1 + 2**-6], [1.0]).passed
    assert not compared("bfloat16", [1 + 2**-5], [1.0]).passed


def test_an_error_is_small_beside_the_largest_value() -> None:
    """What is left of large numbers has their rounding."""
    found = compared("float", [1000.0, 0.04], [1000.0, 0.0])
    assert found.passed
    assert found.max_scaled_error == pytest.approx(4e-5)
    assert not compared("float", [1000.0, 0.06], [1000.0, 0.0]).passed
    assert not compared("float", [1000.0, 0.01], [1000.0, 0.0], Tolerance(atol=1e-6)).passed
    assert not compared("float", [math.inf, 0.01], [math.inf, 0.0]).passed


def test_a_tiny_tensor_has_a_smaller_atol() -> None:
    assert compared("float", [1.0, 9e-7], [1.0, 0.0]).passed
    assert not compared("float", [1e-6, 9e-7], [1e-6, 0.0]).passed
    assert compared("float", [0.0, 9e-7], [0.0, 0.0]).passed


@pytest.mark.parametrize("tolerance", [DEFAULT, EXACT, Tolerance(rtol=1.0, atol=1e300)])
@pytest.mark.parametrize(
    ("got", "expected", "ulp"),
    [
        (math.nan, 1.0, math.inf),
        (1.0, math.nan, math.inf),
        (math.inf, math.nan, math.inf),
        (1.0, math.inf, 2**52 * 1024),
        (-math.inf, math.inf, 2 * 2**52 * 2047),
    ],
)
def test_what_no_tolerance_allows(
    got: float, expected: float, ulp: float, tolerance: Tolerance
) -> None:
    found = compared("double", [got], [expected], tolerance)
    assert found.mismatches == 1
    assert found.max_abs_error == math.inf
    assert found.max_ulp_error == ulp


def test_a_relative_error_to_zero_does_not_count() -> None:
    assert compared("float", [1.0], [0.0]).max_rel_error == 0.0


def test_complex_numbers_by_their_parts() -> None:
    found = compared("complex128", [1 + 2j, 1 + 1j], [1 + 2j, 1 - 1j])
    assert (found.elements, found.mismatches, found.max_abs_error) == (2, 1, 2.0)
    assert found.first == Mismatch((1,), "(1+1j)", "(1-1j)")
    assert compared("complex64", [complex(1, math.nan)], [complex(1, math.nan)]).passed
    assert not compared("complex64", [complex(1, math.nan)], [complex(math.nan, 1)]).passed


@pytest.mark.parametrize(
    ("name", "got", "expected", "error"),
    [
        ("int64", 2**63 - 1, -(2**63), 2**64 - 1),
        ("uint64", 2**53 + 1, 2**53, 1),
        ("int8", -128, 127, 255),
        ("int4", -8, 7, 15),
        ("uint2", 3, 0, 3),
        ("bool", True, False, 1),
    ],
)
def test_integers_have_to_be_equal(name: str, got: int, expected: int, error: int) -> None:
    dtype = numpy_dtype(BY_NAME[name])
    left, right = (np.array([value]).astype(dtype) for value in (got, expected))
    found = compare(left, right, BY_NAME[name], Tolerance(atol=1e30))
    first = Mismatch((0,), str(left[0]), str(right[0]))
    assert found == Difference(1, 1, first, error)
    assert compare(left, left, BY_NAME[name], DEFAULT) == Difference(1, 0, None, 0)


@pytest.mark.parametrize("name", ["float8e4m3fn", "float8e5m2fnuz", "float8e8m0", "float4e2m1"])
def test_small_floats_have_to_be_equal(name: str) -> None:
    assert compared(name, [1.0, 2.0], [1.0, 2.0]) == Difference(2, 0, None, 0.0, 0.0, None, 0.0)
    assert compared(name, [1.0], [2.0]).first == Mismatch((0,), "1", "2")
    assert compared(name, [1.0], [2.0], Tolerance(rtol=0.5)).passed


def test_strings() -> None:
    got = object_array(["a", "b\0", "\udcff"], (3, 1))
    assert compare(got, got, BY_NAME["string"], DEFAULT) == Difference(3, 0)
    as_bytes = object_array([b"a", b"b\0", b"\xff"], (3, 1))
    assert compare(got, as_bytes, BY_NAME["string"], DEFAULT).passed
    found = compare(got, object_array(["a", "b", "c"], (3, 1)), BY_NAME["string"], DEFAULT)
    assert found == Difference(3, 2, Mismatch((1, 0), "'b\\x00'", "'b'"))


def test_rank_0_and_zero_size() -> None:
    assert compared("float", 1.0, 2.0).first == Mismatch((), "1.0", "2.0")
    assert compared("float", [], []) == Difference(0, 0, None, 0.0, 0.0, 0, 0.0)
    assert compared("int8", [], []) == Difference(0, 0, None, 0)


def test_another_shape_or_type() -> None:
    one = np.zeros((2, 1), np.float32)
    found = compare(one, one[:, 0], BY_NAME["float"], DEFAULT)
    assert found == Difference(2, 2, note="the reference returned float32[2], not float32[2,1]")
    assert not compare(one[:0], np.zeros((0, 1)), BY_NAME["float"], DEFAULT).passed
