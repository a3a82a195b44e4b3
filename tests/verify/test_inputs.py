"""Random inputs, and ranges for them."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from onnxc.arrays import mismatch
from onnxc.dtypes import BY_NAME, ELEMENT_TYPES, ElementType
from onnxc.errors import UsageError
from onnxc.pipeline import Interface
from onnxc.verify.inputs import check_ranges, random_cases


def interface(name: str, dtype: str, *shape: int) -> Interface:
    return Interface(name, name, BY_NAME[dtype], shape)


def drawn(dtype: str, label: str, *shape: int) -> NDArray[Any]:
    cases = {case.label: case for case in random_cases([interface("x", dtype, *shape)], 0)}
    return cases[label].values["x"]


@pytest.mark.parametrize("dtype", ELEMENT_TYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0, 3), (4, 5)])
def test_random_cases_fit_and_repeat(dtype: ElementType, shape: tuple[int, ...]) -> None:
    wanted = interface("x", dtype.name, *shape)
    for first, again in zip(random_cases([wanted], 7), random_cases([wanted], 7), strict=True):
        assert mismatch(wanted, first.values["x"]) == ""
        assert first.values["x"].tolist().__repr__() == again.values["x"].tolist().__repr__()


def test_seeds_and_inputs_differ() -> None:
    wanted = [interface("a", "int64", 50), interface("b", "int64", 50)]
    first, other = random_cases(wanted, 1)[0].values, random_cases(wanted, 2)[0].values
    assert first["a"].tolist() != other["a"].tolist()
    assert first["a"].tolist() != first["b"].tolist()


def test_no_inputs() -> None:
    (case,) = random_cases([], 0)
    assert case.values == {}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float", "double", "complex64"])
def test_special_floats(dtype: str) -> None:
    values = drawn(dtype, "special", 2000)
    parts = values.view(np.float32) if dtype == "complex64" else values
    limits: Any = ml_dtypes.finfo(parts.dtype)
    with np.errstate(invalid="ignore"):  # signalling NaN are among them
        wide = parts.astype(np.float64)
    assert np.isnan(wide).any()
    assert np.isposinf(wide).any()
    assert np.isneginf(wide).any()
    assert (np.signbit(wide) & (wide == 0)).any()
    assert (wide == float(limits.max)).any()
    assert (wide == float(limits.smallest_subnormal)).any()
    assert len(set(wide.tolist())) > 100


def test_special_integers() -> None:
    values = set(drawn("int64", "special", 200).tolist())
    assert {-(2**63), -(2**63) + 1, 0, 1, 2**63 - 2, 2**63 - 1} < values
    assert set(drawn("int4", "special", 200).tolist()) == set(range(-8, 8))


def test_strings_cover_nul_and_unicode() -> None:
    assert {"", "é", "a\0b", "a\0", "🙂"} < set(drawn("string", "special", 200).tolist())


def test_half_of_the_repeated_pairs_are_equal() -> None:
    wanted = [interface("a", "float", 1000), interface("b", "float", 1000)]
    values = random_cases(wanted, 0)[2].values
    assert 400 < np.count_nonzero(values["a"] == values["b"]) < 600


@pytest.mark.parametrize("dtype", ["int8", "uint64", "float", "float16"])
def test_ranges_hold_in_every_case(dtype: str) -> None:
    wanted = [interface("x", dtype, 200)]
    for case in random_cases(wanted, 0, {"x": (3, 7)}):
        values = case.values["x"].astype(np.float64)
        assert 3 <= values.min() <= values.max() <= 7
        assert len(set(values.tolist())) <= (2 if case.label == "repeated" else 200)


def test_special_values_of_a_range_are_its_ends() -> None:
    special = random_cases([interface("x", "int64", 200)], 0, {"x": (-5, 1000)})[1].values["x"]
    assert {-5, 1000} < set(special.tolist())


@pytest.mark.parametrize(
    ("name", "dtype", "bounds", "fact"),
    [
        ("y", "float", (0, 1), "the model has no input 'y'; it has x"),
        ("x", "float", (1, 0), "the smaller one first"),
        ("x", "uint8", (-1, 5), "no two values of uint8"),
        ("x", "int8", (0, 0.5), "no two values of int8"),
        ("x", "string", (0, 1), "an input of type string has no range"),
    ],
)
def test_wrong_ranges(name: str, dtype: str, bounds: tuple[float, float], fact: str) -> None:
    with pytest.raises(UsageError, match=fact):
        check_ranges({name: bounds}, [interface("x", dtype, 2)])
