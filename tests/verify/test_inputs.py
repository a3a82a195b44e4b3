"""Random inputs and those from files."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from onnxc.arrays import mismatch, object_array
from onnxc.dtypes import BY_NAME, ELEMENT_TYPES, ElementType
from onnxc.errors import UsageError
from onnxc.pipeline import Interface
from onnxc.verify.inputs import random_cases, read_inputs


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


INTERFACES = [interface("x:0", "float", 2), interface("b", "bfloat16", 2)]
X = np.array([1, 2], np.float32)
B = np.array([3, 4], ml_dtypes.bfloat16)


def test_npz(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {"x:0": X, "b": B}
    np.savez(tmp_path / "in.npz", **arrays)
    values = read_inputs(tmp_path / "in.npz", INTERFACES).values
    assert values["x:0"].tolist() == [1, 2]
    assert values["b"].dtype == B.dtype
    assert values["b"].tolist() == [3, 4]


def test_folder_of_tensors_by_name_or_position(tmp_path: Path) -> None:
    tensors = {"input_0.pb": (B, "b"), "input_1.pb": (X, "x:0")}
    for file, (array, name) in tensors.items():
        tensor = onnx.numpy_helper.from_array(array, name)
        (tmp_path / file).write_bytes(tensor.SerializeToString())
    values = read_inputs(tmp_path, INTERFACES).values
    assert (values["x:0"].tolist(), values["b"].tolist()) == ([1, 2], [3, 4])
    tensor = onnx.numpy_helper.from_array(X)
    (tmp_path / "one.pb").write_bytes(tensor.SerializeToString())
    assert read_inputs(tmp_path / "one.pb", INTERFACES).values["x:0"].tolist() == [1, 2]


def test_string_tensors_keep_every_byte(tmp_path: Path) -> None:
    tensor = onnx.TensorProto(data_type=8, dims=[2], string_data=[b"a\0", b"\xff"])
    (tmp_path / "input_0.pb").write_bytes(tensor.SerializeToString())
    values = read_inputs(tmp_path, [interface("s", "string", 2)]).values
    assert values["s"].tolist() == object_array(["a\0", "\udcff"], (2,)).tolist()


@pytest.mark.parametrize(
    ("name", "data", "fact"),
    [
        ("none.npz", None, "no such file"),
        ("a.npz", b"PK\3\4", "cannot be read"),
        ("a.npz", b"", "cannot be read"),
        ("a.pb", b"\xff\xff", "cannot be read as a tensor"),
        ("a.txt", b"", r"is no \.npz, \.pb or folder"),
        ("a.pb", onnx.TensorProto(data_location="EXTERNAL").SerializeToString(), "in another file"),
        ("", None, r"no input_N\.pb in the folder"),
    ],
)
def test_unusable_files(name: str, data: bytes | None, fact: str, tmp_path: Path) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(UsageError, match=fact):
        read_inputs(tmp_path / name, INTERFACES)


def test_too_many_tensors(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"input_{number}.pb").touch()
    with pytest.raises(UsageError, match=r"3 \.pb files for 2 inputs"):
        read_inputs(tmp_path, INTERFACES)
