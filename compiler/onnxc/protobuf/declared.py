"""Checks what a model declares of its inputs, outputs and other values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import onnx
import onnx_ir as ir

from onnxc.diagnostics import Kind
from onnxc.dtypes import BY_CODE
from onnxc.protobuf.tensors import Fault, dims_faults, unknown_type

_TYPE_CODES: Final = frozenset(int(code) for code in ir.DataType) - {0}
_WIDEST: Final = BY_CODE[onnx.TensorProto.COMPLEX128]


def input_faults(info: onnx.ValueInfoProto) -> Iterator[Fault]:
    """What is wrong with a graph input's type and dims; its name is checked elsewhere."""
    fault = _type_fault(info.type)
    if fault:
        yield _type_kind(info.type), fault, "declare the input's type"
    remedy = "name the dimension (dim_param) or leave its value out to fix it with --dim"
    yield from _shape_faults(info.type, remedy)


def other_faults(info: onnx.ValueInfoProto) -> Iterator[Fault]:
    """The same for a value that need not have a type.

    A type that says nothing, or that onnx_ir has no word for (map), is taken away.
    """
    fault = _type_fault(info.type)
    if fault and "element type" in fault and "no element type" not in fault:
        yield Kind.ELEMENT_TYPE, fault, ""
    elif fault:
        info.type.Clear()
    yield from _shape_faults(info.type, "leave its value out: onnxc finds it")


def constant_faults(info: onnx.ValueInfoProto, tensor: onnx.TensorProto) -> Iterator[Fault]:
    """Where a declaration contradicts the initializer of the same name."""
    kind = info.type.WhichOneof("value")
    if kind not in (None, "tensor_type"):
        fact = f"is declared as a {kind.removesuffix('_type')} but holds a tensor"
        yield Kind.DECLARATION_CONFLICT, fact, ""
    if kind != "tensor_type":
        return
    declared = info.type.tensor_type
    if declared.elem_type not in (0, tensor.data_type):
        names = (_type_name(declared.elem_type), _type_name(tensor.data_type))
        fact = f"is declared as {names[0]} but holds {names[1]}"
        yield Kind.DECLARATION_CONFLICT, fact, ""
    if declared.HasField("shape"):
        dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in declared.shape.dim]
        pairs = zip(dims, tensor.dims, strict=False)
        if len(dims) != len(tensor.dims) or any(d not in (None, t) for d, t in pairs):
            shape = [dim if dim is not None else "?" for dim in dims]
            fact = f"is declared with shape {shape} but has {list(tensor.dims)}"
            yield Kind.DECLARATION_CONFLICT, fact, ""


def contradictions(infos: Sequence[onnx.ValueInfoProto]) -> Iterator[Fault]:
    """Where declarations of one name contradict each other; afterwards all say the same."""
    first, *others = (info.type for info in infos)
    for other in others:
        if not other.WhichOneof("value"):
            continue
        if not first.WhichOneof("value"):
            first.CopyFrom(other)
        elif not (first.HasField("tensor_type") and other.HasField("tensor_type")):
            if first != other:
                yield Kind.DECLARATION_CONFLICT, "is declared with two types", ""
        else:
            yield from _merged(first.tensor_type, other.tensor_type)
    for other in others:
        other.CopyFrom(first)


def _merged(one: onnx.TypeProto.Tensor, other: onnx.TypeProto.Tensor) -> Iterator[Fault]:
    """Fills what `one` leaves open from `other`."""
    if one.elem_type != other.elem_type:
        names = (_type_name(one.elem_type), _type_name(other.elem_type))
        yield Kind.DECLARATION_CONFLICT, f"is declared as {names[0]} and as {names[1]}", ""
    if not other.HasField("shape"):
        return
    if not one.HasField("shape"):
        one.shape.CopyFrom(other.shape)
    pairs = list(zip(one.shape.dim, other.shape.dim, strict=False))
    fixed = [(a, b) for a, b in pairs if a.HasField("dim_value") and b.HasField("dim_value")]
    if len(one.shape.dim) != len(other.shape.dim) or any(
        a.dim_value != b.dim_value for a, b in fixed
    ):
        fact = f"is declared with shapes {_dims(one)} and {_dims(other)}"
        yield Kind.DECLARATION_CONFLICT, fact, ""
    for a, b in pairs:
        if not a.HasField("dim_value") and b.WhichOneof("value"):
            a.CopyFrom(b)


def _dims(tensor: onnx.TypeProto.Tensor) -> list[int | str]:
    return [
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?"
        for dim in tensor.shape.dim
    ]


def _type_name(code: int) -> str:
    return BY_CODE[code].name if code in BY_CODE else f"type {code}"


def _type_fault(proto: onnx.TypeProto) -> str:
    """Why onnx_ir could not hold a type; "" if it can."""
    while True:
        kind = proto.WhichOneof("value")
        if kind is None:
            return "has no type"
        if kind in ("tensor_type", "sparse_tensor_type"):
            code = getattr(proto, kind).elem_type
            return "" if code in _TYPE_CODES else unknown_type(code)
        if kind not in ("sequence_type", "optional_type"):
            return f"has a type that is not supported ({kind.removesuffix('_type')})"
        proto = getattr(proto, kind).elem_type


def _type_kind(proto: onnx.TypeProto) -> Kind:
    """Which kind of fault `_type_fault` has told of."""
    while (kind := proto.WhichOneof("value")) in ("sequence_type", "optional_type"):
        proto = getattr(proto, kind).elem_type
    if kind in ("tensor_type", "sparse_tensor_type"):
        code = getattr(proto, kind).elem_type
        return Kind.ELEMENT_TYPE if code != onnx.TensorProto.UNDEFINED else Kind.TYPE_MISSING
    return Kind.TYPE_MISSING if kind is None else Kind.NOT_A_TENSOR


def _shape_faults(proto: onnx.TypeProto, remedy: str) -> Iterator[Fault]:
    """A dimension of -1 or named "?" becomes an unknown one: some exporters write it so."""
    if not proto.HasField("tensor_type"):
        return
    for dim in proto.tensor_type.shape.dim:
        if dim.dim_value == -1 or dim.dim_param == "?":
            dim.Clear()
    dims = [dim.dim_value for dim in proto.tensor_type.shape.dim if dim.HasField("dim_value")]
    for axis, dim in enumerate(proto.tensor_type.shape.dim):
        if dim.HasField("dim_value") and dim.dim_value < 0:
            fact = f"dimension {axis} is negative ({dim.dim_value})"
            yield Kind.NEGATIVE_DIMENSION, fact, remedy
            return
    yield from dims_faults(dims, BY_CODE.get(proto.tensor_type.elem_type, _WIDEST))
