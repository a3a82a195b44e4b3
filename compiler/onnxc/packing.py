"""Sub-byte element types: several values in one byte, the first in the low bits (ONNX raw data)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from onnxc.dtypes import ElementType, numpy_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray


def pack_elements(values: NDArray[Any], dtype: ElementType) -> NDArray[np.uint8]:
    """The bytes of `values`, one-dimensional, of a packed type; unused bits are 0."""
    per_byte, bits = dtype.per_byte, dtype.bits
    low = np.zeros(-(-values.size // per_byte) * per_byte, np.uint8)
    low[: values.size] = np.ascontiguousarray(values).view(np.uint8) & ((1 << bits) - 1)
    shifted = low.reshape(-1, per_byte) << (np.arange(per_byte, dtype=np.uint8) * bits)
    return np.asarray(np.bitwise_or.reduce(shifted, axis=1), np.uint8)


def unpack_elements(packed: NDArray[np.uint8], elements: int, dtype: ElementType) -> NDArray[Any]:
    """The first `elements` values in `packed`, as the dtype that numpy_dtype(dtype) says."""
    per_byte, bits = dtype.per_byte, dtype.bits
    shifts = np.arange(per_byte, dtype=np.uint8) * bits
    low = ((packed[:, None] >> shifts) & ((1 << bits) - 1)).reshape(-1)[:elements]
    if dtype.kind == "signed":
        sign = 1 << (bits - 1)
        return ((low ^ sign).astype(np.int8) - sign).astype(np.int8).astype(numpy_dtype(dtype))
    return low.astype(np.uint8).view(numpy_dtype(dtype))
