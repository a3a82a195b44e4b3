"""Inputs from files."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

from onnxc.arrays import object_array
from onnxc.dtypes import BY_NAME
from onnxc.errors import UsageError
from onnxc.pipeline import Interface
from onnxc.verify.input_files import read_inputs


def interface(name: str, dtype: str, *shape: int) -> Interface:
    return Interface(name, name, BY_NAME[dtype], shape)


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


def test_npy_for_the_one_input(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    assert read_inputs(tmp_path / "x.npy", INTERFACES[:1]).values["x:0"].tolist() == [1, 2]
    with pytest.raises(UsageError, match=r"holds one array, the model has 2 inputs; give an \.npz"):
        read_inputs(tmp_path / "x.npy", INTERFACES)


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
        ("a.txt", b"", r"is no \.npz, \.npy, \.pb or folder"),
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
