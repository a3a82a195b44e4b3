"""Input values for a verification: random ones that look for trouble, or a user's files."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from onnxc.arrays import elements, object_array, text
from onnxc.dtypes import ElementType, numpy_dtype
from onnxc.errors import UsageError
from onnxc.packing import unpack_elements

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnxc.pipeline import Interface

# Empty, with a common beginning, of 2 to 4 UTF-8 bytes a character, with NUL inside and last.
STRINGS: Final = ("", "a", "b", "ab", "abc", "é", "日本", "🙂", "a\0b", "a\0", "\0")
INTEGER_LIMIT: Final = 100


@dataclass(frozen=True)
class Case:
    """One value for every input, by name."""

    label: str
    values: Mapping[str, NDArray[Any]]


def random_cases(interfaces: Sequence[Interface], seed: int) -> list[Case]:
    """The same cases for the same interfaces and seed.

    random    normally distributed floats, integers of up to 3 digits
    special   NaN, infinities, -0, denormals, largest values, and any bits
    repeated  two values an element type, so that half of all pairs are equal
    """
    if not interfaces:
        return [Case("no inputs", {})]
    return [
        _case("random", interfaces, seed, _ordinary),
        _case("special", interfaces, seed, _special),
        _case("repeated", interfaces, seed, _Repeated()),
    ]


def read_inputs(path: Path, interfaces: Sequence[Interface]) -> Case:
    """The values in an .npz keyed by input name, a .pb (TensorProto), or a folder of input_N.pb.

    Raises UsageError when there is no such file or it cannot be read; dtypes, shapes and names are
    checked by the run.
    """
    if path.is_dir():
        files = sorted(path.glob("input_*.pb"), key=_number)
        if not files:
            raise UsageError(f"no input_N.pb in the folder {path}")
        return Case(str(path), _read_tensors(files, interfaces))
    if not path.is_file():
        raise UsageError(f"no such file: {path}")
    if path.suffix == ".npz":
        return Case(str(path), _read_npz(path, interfaces))
    if path.suffix == ".pb":
        return Case(str(path), _read_tensors([path], interfaces))
    raise UsageError(f"{path} is no .npz, .pb or folder of input_N.pb")


Draw = Callable[[np.random.Generator, ElementType, int], "NDArray[Any]"]


def _case(label: str, interfaces: Iterable[Interface], seed: int, draw: Draw) -> Case:
    generator = np.random.default_rng([seed, *label.encode()])
    values = {i.name: draw(generator, i.dtype, elements(i)).reshape(i.shape) for i in interfaces}
    return Case(label, values)


def _ordinary(generator: np.random.Generator, dtype: ElementType, count: int) -> NDArray[Any]:
    match dtype.kind:
        case "string":
            return _strings(generator.integers(len(STRINGS), size=count))
        case "bool":
            return generator.integers(2, size=count).astype(np.bool_)
        case "signed" | "unsigned":
            limit = min(INTEGER_LIMIT, 2 ** (dtype.bits - 1) - 1)
            least = -limit if dtype.kind == "signed" else 0
            return generator.integers(least, limit + 1, size=count).astype(numpy_dtype(dtype))
        case "complex":
            parts = generator.standard_normal(2 * count)
            return parts.view(np.complex128).astype(numpy_dtype(dtype))
    values = generator.standard_normal(count)
    # float8e8m0 has no sign: a negative number would become NaN.
    return (np.abs(values) if dtype.name == "float8e8m0" else values).astype(numpy_dtype(dtype))


def _special(generator: np.random.Generator, dtype: ElementType, count: int) -> NDArray[Any]:
    """Half of the elements from a list of special values, the others any bits."""
    if dtype.kind in ("string", "bool"):
        return _ordinary(generator, dtype, count)
    if dtype.kind == "complex":
        part = np.dtype(f"float{dtype.bits // 2}")
        drawn = _mixed(generator, _special_floats(part), _any_bits(generator, part, 2 * count))
        return drawn.view(numpy_dtype(dtype))
    if dtype.packed:
        data = np.frombuffer(generator.bytes(dtype.packed_bytes(count)), np.uint8)
        return unpack_elements(data, count, dtype)
    any_bits = _any_bits(generator, numpy_dtype(dtype), count)
    if dtype.kind == "bits":
        return any_bits
    special = _special_floats if dtype.kind in ("float", "half") else _special_integers
    return _mixed(generator, special(numpy_dtype(dtype)), any_bits)


class _Repeated:
    """Draws from two ordinary values an element type, which all inputs share."""

    def __init__(self) -> None:
        self._pairs: dict[ElementType, NDArray[Any]] = {}

    def __call__(
        self, generator: np.random.Generator, dtype: ElementType, count: int
    ) -> NDArray[Any]:
        if dtype not in self._pairs:
            self._pairs[dtype] = _ordinary(generator, dtype, 2)
        return self._pairs[dtype][generator.integers(2, size=count)]


def _strings(positions: NDArray[Any]) -> NDArray[Any]:
    return object_array([STRINGS[position] for position in positions], positions.shape)


def _any_bits(generator: np.random.Generator, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    return np.frombuffer(generator.bytes(count * dtype.itemsize), np.uint8).view(dtype)


def _mixed(
    generator: np.random.Generator, special: NDArray[Any], others: NDArray[Any]
) -> NDArray[Any]:
    chosen = special[generator.integers(len(special), size=others.size)]
    return np.where(generator.integers(2, size=others.size) == 0, chosen, others)


def _special_floats(dtype: np.dtype[Any]) -> NDArray[Any]:
    import ml_dtypes

    limits: Any = ml_dtypes.finfo(dtype)
    sizes = [limits.max, limits.tiny, limits.smallest_subnormal, 1 + limits.eps]
    positive = np.array([0.0, 1.0, np.inf, *map(float, sizes)]).astype(dtype)
    return np.concatenate([positive, -positive, np.array([np.nan]).astype(dtype)])


def _special_integers(dtype: np.dtype[Any]) -> NDArray[Any]:
    limits = np.iinfo(dtype)
    return np.array([limits.min, limits.min + 1, 0, 1, limits.max - 1, limits.max], dtype)


def _number(path: Path) -> int:
    digits = re.fullmatch(r"input_(\d+)", path.stem)
    if digits is None:
        raise UsageError(f"{path}: its name is not input_N.pb")
    return int(digits[1])


def _read_npz(path: Path, interfaces: Iterable[Interface]) -> dict[str, NDArray[Any]]:
    if not zipfile.is_zipfile(path):
        raise UsageError(f"{path} cannot be read: it is no zip archive")
    try:
        with np.load(path, allow_pickle=False) as archive:
            values = dict(archive)
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
    for interface in interfaces:
        if interface.name in values:
            values[interface.name] = _named_type(values[interface.name], interface)
    return values


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
        raise UsageError(f"{len(files)} .pb files for {len(interfaces)} inputs")
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
        raise UsageError(f"{path} cannot be read as a tensor: {error}") from None
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        raise UsageError(f"{path} keeps its data in another file; store it inside")
    return tensor


def _tensor_array(tensor: onnx.TensorProto) -> NDArray[Any]:
    if tensor.data_type == onnx.TensorProto.STRING:
        return object_array([text(value) for value in tensor.string_data], tuple(tensor.dims))
    return np.asarray(onnx.numpy_helper.to_array(tensor))
