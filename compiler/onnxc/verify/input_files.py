"""Input values from files: .npz, .npy, .pb, or a folder of input_N.pb."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from onnxc.arrays import object_array, text
from onnxc.diagnostics import Kind
from onnxc.dtypes import numpy_dtype
from onnxc.errors import UsageError
from onnxc.verify.inputs import Case

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnxc.pipeline import Interface


def read_inputs(path: Path, interfaces: Sequence[Interface]) -> Case:
    """The values in an .npz by input name, a .npy for the one input, a .pb (TensorProto), or a
    folder of input_N.pb.

    Raises UsageError when there is no such file or it cannot be read; dtypes, shapes and names are
    checked by the run.
    """
    if path.is_dir():
        files = sorted(path.glob("input_*.pb"), key=_number)
        if not files:
            raise UsageError(Kind.INPUT_FILE, f"no input_N.pb in the folder {path}")
        return Case(str(path), _read_tensors(files, interfaces))
    if not path.is_file():
        raise UsageError(Kind.NO_SUCH_FILE, f"no such file: {path}")
    if path.suffix == ".npz":
        return Case(str(path), _read_npz(path, interfaces))
    if path.suffix == ".pb":
        return Case(str(path), _read_tensors([path], interfaces))
    if path.suffix == ".npy":
        return Case(str(path), _read_npy(path, interfaces))
    raise UsageError(Kind.INPUT_FILE, f"{path} is no .npz, .npy, .pb or folder of input_N.pb")


def _number(path: Path) -> int:
    digits = re.fullmatch(r"input_(\d+)", path.stem)
    if digits is None:
        raise UsageError(Kind.INPUT_FILE, f"{path}: its name is not input_N.pb")
    return int(digits[1])


def _read_npz(path: Path, interfaces: Iterable[Interface]) -> dict[str, NDArray[Any]]:
    if not zipfile.is_zipfile(path):
        raise UsageError(Kind.INPUT_FILE, f"{path} cannot be read: it is no zip archive")
    try:
        with np.load(path, allow_pickle=False) as archive:
            values = dict(archive)
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise UsageError(Kind.INPUT_FILE, f"{path} cannot be read: {error}") from None
    for interface in interfaces:
        if interface.name in values:
            values[interface.name] = _named_type(values[interface.name], interface)
    return values


def _read_npy(path: Path, interfaces: Sequence[Interface]) -> dict[str, NDArray[Any]]:
    if len(interfaces) != 1:
        fact = f"{path} holds one array, the model has {len(interfaces)} inputs; give an .npz"
        raise UsageError(Kind.INPUT_FILE, fact)
    (interface,) = interfaces
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, EOFError, ValueError) as error:
        raise UsageError(Kind.INPUT_FILE, f"{path} cannot be read: {error}") from None
    if not isinstance(array, np.ndarray):
        raise UsageError(Kind.INPUT_FILE, f"{path} is no .npy file")
    return {interface.name: _named_type(array, interface)}


def _named_type(array: NDArray[Any], interface: Interface) -> NDArray[Any]:
    """numpy's files forget the names of ml_dtypes and keep the bytes as void."""
    dtype = interface.dtype
    if array.dtype.kind == "V" and dtype.kind != "string":
        wanted = numpy_dtype(dtype)
        return array.view(wanted) if array.dtype.itemsize == wanted.itemsize else array
    return array


def _read_tensors(
    files: Sequence[Path], interfaces: Sequence[Interface]
) -> dict[str, NDArray[Any]]:
    """By the tensor's name where an input has it, else by position."""
    if len(files) > len(interfaces):
        raise UsageError(Kind.INPUT_FILE, f"{len(files)} .pb files for {len(interfaces)} inputs")
    names = {interface.name for interface in interfaces}
    values = {}
    for file, interface in zip(files, interfaces, strict=False):
        tensor = _read_tensor(file)
        values[tensor.name if tensor.name in names else interface.name] = _tensor_array(tensor)
    return values


def _read_tensor(path: Path) -> onnx.TensorProto:
    tensor = onnx.TensorProto()
    try:
        tensor.ParseFromString(path.read_bytes())
    except (OSError, DecodeError) as error:
        raise UsageError(Kind.INPUT_FILE, f"{path} cannot be read as a tensor: {error}") from None
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        raise UsageError(Kind.INPUT_FILE, f"{path} keeps its data in another file; store it inside")
    return tensor


def _tensor_array(tensor: onnx.TensorProto) -> NDArray[Any]:
    if tensor.data_type == onnx.TensorProto.STRING:
        return object_array([text(value) for value in tensor.string_data], tuple(tensor.dims))
    return np.asarray(onnx.numpy_helper.to_array(tensor))
