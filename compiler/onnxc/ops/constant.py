"""Operators whose result is known at compile time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxc.diagnostics import Kind
from onnxc.dtypes import BY_NAME, INT64, INT64_MAX
from onnxc.errors import RefusalError
from onnxc.op import op
from onnxc.tensor import Tensor, constant
from onnxc.values import element_type_of, values_of

if TYPE_CHECKING:
    import onnx_ir as ir


@op("Constant")
def constant_(
    *,
    value: ir.TensorProtocol | None,
    value_float: float | None,
    value_floats: tuple[float, ...] | None,
    value_int: int | None,
    value_ints: tuple[int, ...] | None,
    value_string: str | bytes | None,
    value_strings: tuple[str | bytes, ...] | None,
) -> Tensor:
    """`sparse_value` never arrives here: load has made it a dense `value`."""
    forms = [
        ("", value),
        ("float", value_float),
        ("float", value_floats),
        ("int64", value_int),
        ("int64", value_ints),
        ("string", value_string),
        ("string", value_strings),
    ]
    given = [(name, form) for name, form in forms if form is not None]
    if len(given) != 1:
        raise RefusalError(
            Kind.ATTRIBUTES_CONFLICT, f"has {len(given)} value attributes", "give exactly one"
        )
    if value is not None:
        return constant(values_of(value), element_type_of(value.dtype))
    (name, form) = given[0]
    dtype = BY_NAME[name]
    if dtype.kind != "string":
        return constant(np.asarray(form, dtype.numpy), dtype)
    texts = form if isinstance(form, tuple) else (form,)
    array = np.empty(len(texts), object)
    array[:] = [t.encode("utf-8", "surrogateescape") if isinstance(t, str) else t for t in texts]
    return constant(array if isinstance(form, tuple) else array.reshape(()), dtype)


@op("Size")
def size(data: Tensor) -> Tensor:
    """The number of elements, which needs the shape only: no data is read."""
    if data.elements > INT64_MAX:
        raise RefusalError(
            Kind.TENSOR_TOO_LARGE,
            f"the input has {data.elements} elements, more than an int64 can say",
        )
    return constant(np.asarray(data.elements, np.int64), INT64)
