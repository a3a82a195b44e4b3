"""onnx_ir's tensors and types as the compiler's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from onnxc.diagnostics import Kind
from onnxc.dtypes import BY_CODE, ElementType
from onnxc.errors import RefusalError
from onnxc.expression import Buffer
from onnxc.tensor import Tensor, constant, of_buffer

if TYPE_CHECKING:
    from numpy.typing import NDArray


def element_type_of(dtype: ir.DataType) -> ElementType:
    """Raises RefusalError for a type that onnxc does not have."""
    found = BY_CODE.get(int(dtype))
    if found is None:
        raise RefusalError(Kind.ELEMENT_TYPE, f"element type {dtype.name.lower()} is not supported")
    return found


def values_of(tensor: ir.TensorProtocol) -> NDArray[Any]:
    """The values, unpacked, in the dtype of dtypes.numpy_dtype; strings as bytes objects."""
    if tensor.dtype is ir.DataType.BOOL:  # any byte but 0 is true, and may be in the file
        return np.not_equal(np.asarray(tensor.numpy()).view(np.uint8), 0)
    if tensor.dtype is not ir.DataType.STRING:
        return np.asarray(tensor.numpy())
    array = np.empty(tensor.size, object)
    array[:] = list(tensor.string_data())  # type: ignore[attr-defined]  # only on string tensors
    return array.reshape(tensor.shape.numpy())


def static_shape(value: ir.Value) -> tuple[int, ...] | None:
    """The shape where every dimension is known, else None."""
    if value.shape is None:
        return None
    known = tuple([extent for extent in value.shape if isinstance(extent, int)])
    return known if len(known) == len(value.shape) else None


def tensor_of(array: NDArray[Any], dtype: ElementType, name: str = "") -> ir.TensorProtocol:
    """The opposite of values_of."""
    shape = ir.Shape(array.shape)
    if dtype.kind == "string":
        return ir.StringTensor(list(array.reshape(-1)), shape=shape, name=name)
    return ir.Tensor(array, ir.DataType(dtype.code), shape=shape, name=name)


def type_text(declared: ir.TypeProtocol | None) -> str:
    """A type as schemas write it, such as seq(tensor(float))."""
    match declared:
        case ir.TensorType():
            code = int(declared.dtype)
            name = BY_CODE[code].name if code in BY_CODE else declared.dtype.name.lower()
            return f"tensor({name})"
        case ir.SequenceType():
            return f"seq({type_text(declared.elem_type)})"
        case ir.OptionalType():
            return f"optional({type_text(declared.elem_type)})"
        case ir.SparseTensorType():
            return "sparse_tensor"
        case None:
            return "a value without a type"
    return "a map"


def placeholder(value: ir.Value) -> Tensor:
    """The value as a tensor to build on: its constant, or an input that stands for it."""
    shape = static_shape(value)
    assert shape is not None
    assert value.dtype is not None
    dtype = element_type_of(value.dtype)
    if value.const_value is not None:
        return constant(values_of(value.const_value), dtype, value.name or "")
    return of_buffer(Buffer(value.name or "", shape, dtype, "input"))


def shape_text(value: ir.Value) -> str:
    """Such as float[3][1][5]; a scalar has no brackets."""
    extents = () if value.shape is None else value.shape
    name = "?" if value.dtype is None else type_text(value.type)[len("tensor(") : -1]
    return name + "".join(f"[{extent}]" for extent in extents)
