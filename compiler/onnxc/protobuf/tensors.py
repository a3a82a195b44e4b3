"""Checks the data of a TensorProto against its type and dims."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import onnx

from onnxc.diagnostics import Kind
from onnxc.dtypes import BY_CODE, INT64_MAX, ElementType
from onnxc.protobuf.external import external_faults

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_RANK: Final = 64
"""numpy's limit."""
_TYPED_FIELDS = (
    "float_data",
    "int32_data",
    "string_data",
    "int64_data",
    "double_data",
    "uint64_data",
)
_FIELD_OF = {
    "float": "float_data",
    "complex64": "float_data",
    "double": "double_data",
    "complex128": "double_data",
    "int64": "int64_data",
    "uint32": "uint64_data",
    "uint64": "uint64_data",
    "string": "string_data",
}
"""Where typed data is stored; every other type uses int32_data."""

Fault = tuple[Kind, str, str]
"""Which kind of fault, what is wrong, and what to do (may be empty)."""


def tensor_faults(tensor: onnx.TensorProto, folder: Path | None) -> Iterator[Fault]:
    """What is wrong with a constant, nothing if it can be used.

    External data is looked for in `folder` (None: the model was given in memory), and where it is
    sound the tensor's location becomes an absolute path.
    """
    dtype = BY_CODE.get(tensor.data_type)
    if dtype is None:
        yield Kind.ELEMENT_TYPE, unknown_type(tensor.data_type), ""
        return
    faults = list(dims_faults(tensor.dims, dtype))
    if tensor.HasField("segment"):
        fact = "is stored in segments, which are not supported"
        faults.append((Kind.TENSOR_DATA, fact, "store it whole"))
    if faults:
        yield from faults
    elif tensor.data_location == onnx.TensorProto.EXTERNAL:
        yield from _external_faults(tensor, dtype, folder)
    else:
        yield from _data_faults(tensor, dtype)


def unknown_type(code: int) -> str:
    """The fact that a number in data_type or elem_type is no type of onnxc's."""
    if code == onnx.TensorProto.UNDEFINED:
        return "has no element type"
    known = code in onnx.TensorProto.DataType.values()
    name = onnx.TensorProto.DataType.Name(code).lower() if known else str(code)
    return f"element type {name} is not supported"


def dims_faults(dims: Sequence[int], dtype: ElementType) -> Iterator[Fault]:
    """What is wrong with the static dims of a tensor, whether or not it has data."""
    negative = [dim for dim in dims if dim < 0]
    if negative:
        fact = f"dimension {list(dims).index(negative[0])} is negative ({negative[0]})"
        yield Kind.NEGATIVE_DIMENSION, fact, ""
    elif len(dims) > MAX_RANK:
        yield Kind.RANK_TOO_LARGE, f"has {len(dims)} dimensions, more than {MAX_RANK}", ""
    elif dtype.size * math.prod(dim for dim in dims if dim) > INT64_MAX:
        fact = f"dimensions {_shape(dims)} overflow: more than 2^63 - 1 bytes"
        yield Kind.TENSOR_TOO_LARGE, fact, ""


def _shape(dims: Iterable[int]) -> str:
    return "[" + ",".join(map(str, dims)) + "]"


def _external_faults(
    tensor: onnx.TensorProto, dtype: ElementType, folder: Path | None
) -> Iterator[Fault]:
    fields = _fields_in_use(tensor)
    if fields:
        yield Kind.TENSOR_DATA, f"has external data and {fields[0]}", "clear one of them"
    elif dtype.kind == "string":
        yield Kind.TENSOR_DATA, "strings cannot be external data", "store them in the model"
    else:
        needed = dtype.packed_bytes(math.prod(tensor.dims))
        yield from external_faults(tensor, needed, folder)


def _fields_in_use(tensor: onnx.TensorProto) -> list[str]:
    typed = [field for field in _TYPED_FIELDS if len(getattr(tensor, field))]
    return ["raw_data", *typed] if tensor.HasField("raw_data") else typed


def _data_faults(tensor: onnx.TensorProto, dtype: ElementType) -> Iterator[Fault]:
    fields = _fields_in_use(tensor)
    own_field = _FIELD_OF.get(dtype.name, "int32_data")
    elements = math.prod(tensor.dims)
    if len(fields) > 1:
        yield Kind.TENSOR_DATA, f"has data in {' and '.join(fields)}", "keep one of them"
    elif fields == ["raw_data"] and dtype.kind != "string":
        needed = dtype.packed_bytes(elements)
        yield from _length_faults(tensor, dtype, len(tensor.raw_data), needed, "bytes")
    elif fields and fields != [own_field]:
        fact = f"is {dtype.name}, which cannot be stored in {fields[0]}"
        yield Kind.TENSOR_DATA, fact, f"use {own_field}"
    else:
        values = getattr(tensor, own_field)
        needed = -(-elements // dtype.per_byte) * (2 if dtype.kind == "complex" else 1)
        yield from _length_faults(tensor, dtype, len(values), needed, f"values in {own_field}")
        yield from _range_faults(values, dtype)


def _length_faults(
    tensor: onnx.TensorProto, dtype: ElementType, found: int, needed: int, unit: str
) -> Iterator[Fault]:
    if found != needed:
        adverb = "too short" if found < needed else "too long"
        form = f"{dtype.name}{_shape(tensor.dims)}"
        fact = f"data is {adverb}: {form} needs {needed:,} {unit}, found {found:,}"
        yield Kind.TENSOR_DATA, fact, ""


def _range_faults(values: Sequence[int], dtype: ElementType) -> Iterator[Fault]:
    """Values that the type cannot hold; the fields of 32 and 64 bits hold smaller types too."""
    if not values or not (dtype.name == "uint32" or 0 < dtype.bits < 32):
        return
    low, high = _bounds(dtype)
    array = np.array(values)
    least, greatest = int(array.min()), int(array.max())
    if least < low or greatest > high:
        value = least if least < low else greatest
        fact = f"value {value} does not fit {dtype.name} ({low} to {high})"
        yield Kind.TENSOR_DATA, fact, ""


def _bounds(dtype: ElementType) -> tuple[int, int]:
    if dtype.kind == "bool":
        return 0, 1
    if dtype.packed:
        return 0, 255
    if dtype.kind == "signed":
        return -(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1
    return 0, 2**dtype.bits - 1
