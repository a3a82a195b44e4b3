"""numpy arrays to and from the memory that the generated C works on.

Users hold one value an element: ml_dtypes arrays for the small types, object arrays for strings.
The C side has sub-byte types packed and strings as {data, size}, that is two machine words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxc.dtypes import ElementType, numpy_dtype
from onnxc.packing import pack_elements, unpack_elements

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnxc.pipeline import Interface

STRING_KINDS = "OUST"


@dataclass(frozen=True)
class Memory:
    """What C reads or writes: `data` in C's layout, `kept` what its pointers point into."""

    data: NDArray[Any]
    kept: object = None

    @property
    def address(self) -> int:
        return self.data.ctypes.data


def spelled(dtype: object, shape: Sequence[int]) -> str:
    return f"{dtype}[{','.join(map(str, shape))}]"


def expected(interface: Interface) -> str:
    """The array that an interface takes, as error messages show it."""
    kind = interface.dtype.kind
    dtype = "object (str or bytes)" if kind == "string" else numpy_dtype(interface.dtype)
    return spelled(dtype, interface.shape)


def mismatch(interface: Interface, value: object) -> str:
    """Why `value` is not an array for `interface`; "" when it is one."""
    if not isinstance(value, np.ndarray | np.generic):
        return (
            f"expected a numpy array {expected(interface)}, got {type(value).__name__};"
            " convert it with numpy.asarray(value, dtype=...)"
        )
    if not _dtype_fits(interface.dtype, value.dtype) or value.shape != interface.shape:
        swapped = "" if value.dtype.isnative else " (byte-swapped)"
        got = f"{spelled(value.dtype, value.shape)}{swapped}"
        return f"expected {expected(interface)}, got {got}"
    return _string_mismatch(value) if interface.dtype.kind == "string" else ""


def packed_mismatch(interface: Interface, value: object) -> str:
    """Why `value` is not the packed bytes of a sub-byte `interface`; "" when it is."""
    shape = (interface.dtype.packed_bytes(elements(interface)),)
    if isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.shape == shape:
        return ""
    got = type(value).__name__
    if isinstance(value, np.ndarray | np.generic):
        got = spelled(value.dtype, value.shape)
    return f"expected packed bytes {spelled('uint8', shape)}, got {got}"


def elements(interface: Interface) -> int:
    return math.prod(interface.shape)


def to_memory(interface: Interface, value: NDArray[Any] | np.generic) -> Memory:
    """A fitting input in C's layout; copied only where it has to be."""
    if interface.dtype.kind == "string":
        return _strings_to_memory(value)
    array = np.require(value, requirements=("C_CONTIGUOUS", "ALIGNED"))
    if interface.dtype.packed:
        return Memory(pack_elements(array.reshape(-1), interface.dtype))
    return Memory(array)


def new_memory(interface: Interface) -> Memory:
    """Room for one output."""
    dtype = interface.dtype
    if dtype.kind == "string":
        return Memory(np.zeros((elements(interface), 2), np.uintp))
    if dtype.packed:
        return Memory(np.empty(dtype.packed_bytes(elements(interface)), np.uint8))
    return Memory(np.empty(interface.shape, numpy_dtype(dtype)))


def from_memory(
    interface: Interface, memory: Memory, ffi: Any, actual: NDArray[np.int64] | None = None
) -> NDArray[Any]:
    """An output as the user sees it; strings are copied out of what they point into.

    actual  the shape of an output whose size the data decides: its elements are the first
    """
    dtype = interface.dtype
    shape = interface.shape if actual is None else tuple(map(int, actual))
    count = math.prod(shape)
    if dtype.kind == "string":
        strings = [_string_at(ffi, address, size) for address, size in memory.data[:count].tolist()]
        return object_array(strings, shape)
    if dtype.packed:
        return unpack_elements(memory.data, count, dtype).reshape(shape)
    return memory.data if actual is None else memory.data.reshape(-1)[:count].reshape(shape)


def object_array(values: Sequence[object], shape: tuple[int, ...]) -> NDArray[Any]:
    array = np.empty(len(values), object)
    array[:] = values
    return array.reshape(shape)


def text_bytes(value: str | bytes) -> bytes:
    """The bytes of a string element: those that `text` was given."""
    return value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")


def text(value: bytes) -> str:
    """A string element as str; what is no UTF-8 in it becomes surrogate escapes."""
    return value.decode("utf-8", "surrogateescape")


def _dtype_fits(wanted: ElementType, dtype: np.dtype[Any]) -> bool:
    if wanted.kind == "string":
        return dtype.kind in STRING_KINDS
    return dtype == numpy_dtype(wanted)


def _flat_list(value: NDArray[Any] | np.generic) -> list[Any]:
    flat: list[Any] = np.asarray(value).reshape(-1).tolist()
    return flat


def _string_mismatch(value: NDArray[Any] | np.generic) -> str:
    for position, element in enumerate(_flat_list(value)):
        if not isinstance(element, str | bytes):
            got = f"{type(element).__name__} {element!r:.40}"
            return f"expected str or bytes in every element, got {got} at flat index {position}"
        try:
            text_bytes(element)
        except UnicodeEncodeError as error:
            return f"the string at flat index {position} is no valid text: {error.reason}"
    return ""


def _strings_to_memory(value: NDArray[Any] | np.generic) -> Memory:
    strings = [text_bytes(element) for element in _flat_list(value)]
    joined = np.frombuffer(b"".join(strings) + b"\0", np.uint8)
    sizes = np.fromiter(map(len, strings), np.uintp, len(strings))
    table = np.empty((len(strings), 2), np.uintp)
    table[:, 0] = Memory(joined).address + np.cumsum(sizes) - sizes
    table[:, 1] = sizes
    return Memory(table, joined)


def _string_at(ffi: Any, address: int, size: int) -> str:
    return text(bytes(ffi.buffer(ffi.cast("char *", address), size))) if size else ""
