"""Element types: what ONNX calls them, how C holds them, how numpy holds them.

The table is the only place that knows. Sub-byte types are packed (low bits first, as in ONNX raw
data) where they meet the outside, that is in parameters and constants; inside the workspace one
value takes one byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, eq=False)
class ElementType:
    """One ONNX tensor element type.

    name     as in ``tensor(float16)``
    code     the number in TensorProto.DataType
    kind     float, half (16-bit float as bits), bits (float8, float4), signed, unsigned, bool,
             complex, string
    bits     of one element in ONNX raw data; 0 for string
    c_type   the C type of one value in a kernel, and of one parameter element when not packed
    numpy    the numpy dtype's name (ml_dtypes registers the small ones); object for string
    """

    name: str
    code: int
    kind: str
    bits: int
    c_type: str
    numpy: str

    @property
    def packed(self) -> bool:
        """Whether several elements share one byte at the interface."""
        return 0 < self.bits < 8

    @property
    def per_byte(self) -> int:
        """Elements in one byte of packed data; 1 for every other type."""
        return 8 // self.bits if self.packed else 1

    @property
    def size(self) -> int:
        """Bytes of one value in the workspace on a 64-bit host; a string is pointer and length."""
        return 16 if self.kind == "string" else max(1, self.bits // 8)

    def packed_bytes(self, elements: int) -> int:
        """Bytes of `elements` values at the interface."""
        return -(-elements // self.per_byte) * self.size

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<tensor({self.name})>"


ELEMENT_TYPES: Final = (
    ElementType("float", 1, "float", 32, "float", "float32"),
    ElementType("uint8", 2, "unsigned", 8, "uint8_t", "uint8"),
    ElementType("int8", 3, "signed", 8, "int8_t", "int8"),
    ElementType("uint16", 4, "unsigned", 16, "uint16_t", "uint16"),
    ElementType("int16", 5, "signed", 16, "int16_t", "int16"),
    ElementType("int32", 6, "signed", 32, "int32_t", "int32"),
    ElementType("int64", 7, "signed", 64, "int64_t", "int64"),
    ElementType("string", 8, "string", 0, "onnxc_string", "object"),
    ElementType("bool", 9, "bool", 8, "uint8_t", "bool"),
    ElementType("float16", 10, "half", 16, "uint16_t", "float16"),
    ElementType("double", 11, "float", 64, "double", "float64"),
    ElementType("uint32", 12, "unsigned", 32, "uint32_t", "uint32"),
    ElementType("uint64", 13, "unsigned", 64, "uint64_t", "uint64"),
    ElementType("complex64", 14, "complex", 64, "onnxc_complex64", "complex64"),
    ElementType("complex128", 15, "complex", 128, "onnxc_complex128", "complex128"),
    ElementType("bfloat16", 16, "half", 16, "uint16_t", "bfloat16"),
    ElementType("float8e4m3fn", 17, "bits", 8, "uint8_t", "float8_e4m3fn"),
    ElementType("float8e4m3fnuz", 18, "bits", 8, "uint8_t", "float8_e4m3fnuz"),
    ElementType("float8e5m2", 19, "bits", 8, "uint8_t", "float8_e5m2"),
    ElementType("float8e5m2fnuz", 20, "bits", 8, "uint8_t", "float8_e5m2fnuz"),
    ElementType("uint4", 21, "unsigned", 4, "uint8_t", "uint4"),
    ElementType("int4", 22, "signed", 4, "int8_t", "int4"),
    ElementType("float4e2m1", 23, "bits", 4, "uint8_t", "float4_e2m1fn"),
    ElementType("float8e8m0", 24, "bits", 8, "uint8_t", "float8_e8m0fnu"),
    ElementType("uint2", 25, "unsigned", 2, "uint8_t", "uint2"),
    ElementType("int2", 26, "signed", 2, "int8_t", "int2"),
)
BY_NAME: Final = {t.name: t for t in ELEMENT_TYPES}
BY_CODE: Final = {t.code: t for t in ELEMENT_TYPES}
INT64_MAX: Final = 2**63 - 1
"""The most elements that Size can say, and the most bytes that C can address."""
BOOL: Final = BY_NAME["bool"]
FLOAT: Final = BY_NAME["float"]
DOUBLE: Final = BY_NAME["double"]
INT32: Final = BY_NAME["int32"]
INT64: Final = BY_NAME["int64"]
UINT8: Final = BY_NAME["uint8"]
UINT64: Final = BY_NAME["uint64"]


@cache
def numpy_dtype(element_type: ElementType) -> np.dtype[Any]:
    """The numpy dtype of one unpacked value (from ml_dtypes for what numpy lacks)."""
    import ml_dtypes
    import numpy as np

    own = getattr(ml_dtypes, element_type.numpy, None)
    return np.dtype(own if own is not None else element_type.numpy)
