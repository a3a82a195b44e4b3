"""Operators that read shapes rather than data, and those that make elements from where they are."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from onnxc.diagnostics import Kind
from onnxc.dtypes import DOUBLE, FLOAT, INT64, UINT64, ElementType
from onnxc.errors import RefusalError
from onnxc.evaluate import constant_value
from onnxc.expression import Expr, Index, apply, at, cast, compare, literal, where
from onnxc.op import Declared, Floats, Ints, op
from onnxc.ops.agreement import agreed, declared_shape, equals, whole
from onnxc.ops.checks import positive_axis, scalar
from onnxc.tensor import Shape, Tensor, compute, constant, from_start, full, zero
from onnxc.values import element_type_of, values_of

if TYPE_CHECKING:
    import onnx_ir as ir


@op("Shape", exact=True)
def shape(data: Tensor, *, start: int, end: int | None) -> Tensor:
    return constant(np.asarray(data.shape[start:end], np.int64), INT64)


@op("ConstantOfShape", exact=True)
def constant_of_shape(
    input: Ints | Tensor, *, value: ir.TensorProtocol | None, declared: Declared
) -> Tensor:
    if value is not None and math.prod(value.shape.numpy()) != 1:
        raise RefusalError(
            Kind.NOT_ONE_ELEMENT, f"value has shape {list(value.shape.numpy())}", "give one element"
        )
    dtype = FLOAT if value is None else element_type_of(value.dtype)
    array = np.zeros((), np.float32) if value is None else values_of(value).reshape(())
    element = constant(array, dtype)[()]
    if isinstance(input, Tensor):
        target = declared_shape(declared)
        return agreed(full(target, element), equals(input, target))
    if any(extent < 0 for extent in input):
        raise RefusalError(
            Kind.NUMBER_OUT_OF_RANGE, f"shape {list(input)} has a negative dimension"
        )
    return full(tuple(input), element)


@op("EyeLike", exact=True)
def eye_like(input: Tensor, *, dtype: int | None, k: int, declared: Declared) -> Tensor:
    """The type is that of the declared output, which `dtype` has decided."""
    if input.rank != 2:
        raise RefusalError(Kind.OPERAND_RANK, f"the input has {input.rank} dimensions, not 2")
    output = declared[0]
    target = input.dtype if output is None else output.dtype
    rows, columns = input.shape
    diagonal = min(max(k, -rows), columns)
    one, nought = _one(target), zero(target)
    return compute(
        input.shape,
        lambda row, column: where(compare("equal", at(row + diagonal), at(column)), one, nought),
    )


def _one(dtype: ElementType) -> Expr:
    return cast(literal(INT64, 1), dtype)


@op("Trilu", exact=True)
def trilu(input: Tensor, k: Ints | Tensor | None, *, upper: int) -> Tensor:
    if input.rank < 2:
        raise RefusalError(
            Kind.OPERAND_RANK, f"the input has {input.rank} dimensions, not 2 or more"
        )
    rows, columns = input.shape[-2:]
    if isinstance(k, Tensor):
        given = whole(scalar("k", k))
        diagonal = apply("min", apply("max", given, -rows), columns)
    else:
        known = k[0] if k else 0
        diagonal = literal(INT64, min(max(known, -rows), columns))

    def element(*indices: Index) -> Expr:
        row, column = at(indices[-2]) + diagonal, at(indices[-1])
        kept = row <= column if upper else column <= row
        return where(kept, input[indices], zero(input.dtype))

    return compute(input.shape, element)


@op("OneHot", exact=True)
def one_hot(
    indices: Tensor, depth: Ints | Floats | Tensor, values: Tensor, *, axis: int, declared: Declared
) -> Tensor:
    """An index counts from the end where it is negative; one out of range has no element on."""
    new = positive_axis(axis, indices.rank + 1)
    if isinstance(depth, Tensor):
        target = declared_shape(declared)
        extent = target[new]
    else:
        extent = _depth(depth)
        target = (*indices.shape[:new], extent, *indices.shape[new:])
    if (*target[:new], *target[new + 1 :]) != indices.shape or values.shape != (2,):
        raise RefusalError(
            Kind.RESULT_SHAPE, f"indices of {list(indices.shape)} do not give {list(target)}"
        )

    def element(*places: Index) -> Expr:
        index, place = indices[[*places[:new], *places[new + 1 :]]], at(places[new])
        if index.dtype is UINT64:
            chosen = compare("equal", index, cast(place, UINT64))
        else:
            wide = whole(index)
            chosen = compare("equal", from_start(wide, extent), place)
        return where(chosen, values[[Index(1)]], values[[Index(0)]])

    result = compute(target, element)
    if not isinstance(depth, Tensor):
        return result
    return agreed(result, compare("equal", whole(scalar("depth", depth)), extent))


def _depth(depth: Ints | Floats) -> int:
    if len(depth) != 1 or not 0 <= depth[0] < math.inf:
        raise RefusalError(Kind.NOT_ONE_ELEMENT, f"depth is {list(depth)}", "give one number")
    return int(depth[0])


@op("Range")
def range_(
    start: Tensor, limit: Tensor, delta: Tensor, *, stash_type: int, declared: Declared
) -> Tensor:
    """start + n * delta, never a sum of sums. 16-bit floats are computed as float or double.

    Where the number of elements is known only at run time, the model declares it.
    """
    output = declared[0]
    halves = output is not None and output.dtype.kind == "half"
    if halves and stash_type not in (FLOAT.code, DOUBLE.code):
        fact = f"stash_type {stash_type} is not supported"
        raise RefusalError(
            Kind.ATTRIBUTE_VALUE, fact, f"take {FLOAT.code}, float, or {DOUBLE.code}, double"
        )
    operands = (("start", start), ("limit", limit), ("delta", delta))
    first, last, step = (scalar(name, tensor) for name, tensor in operands)
    if halves and stash_type == DOUBLE.code:
        first, last, step = (cast(value, DOUBLE) for value in (first, last, step))
    length = full((), _range_length(first, last, step))
    known = constant_value(length)
    if known is None:
        shape = declared_shape(declared)
    elif (extent := int(known[()])) < 0:
        raise RefusalError(
            Kind.NUMBER_OUT_OF_RANGE,
            "no range goes from start to limit",
            "give a delta other than 0",
        )
    else:
        shape = (extent,)
    if len(shape) != 1 or (output is not None and output.shape != shape):
        raise RefusalError(
            Kind.RESULT_SHAPE, f"the range has shape {list(shape)}, not what the model declares"
        )
    result = _counted(shape, first, step)
    return result if known is not None else agreed(result, _says(length, shape))


def _says(length: Tensor, shape: Shape) -> Expr:
    return compare("equal", length[()], shape[0])


def _counted(shape: Shape, first: Expr, step: Expr) -> Tensor:
    return compute(shape, lambda index: first + cast(at(index), first.dtype) * step)


def _range_length(first: Expr, last: Expr, step: Expr) -> Expr:
    """max(0, ceil((last - first) / step)); -1 where that is no number: int64."""
    if first.dtype.kind == "float":
        distance, by = cast(last - first, DOUBLE), cast(step, DOUBLE)
        parts = apply("ceil", distance / by)
        wanted = where(parts > 0, parts, 0)
        bad = apply("is_nan", parts) | apply("is_inf", parts)
        return where(bad, literal(INT64, -1), cast(wanted, INT64))
    begin, end, by = (cast(whole(value), UINT64) for value in (first, last, step))
    down = whole(step) < 0
    reaches = where(down, last < first, first < last)
    distance = where(down, begin - end, end - begin)
    size = where(down, literal(UINT64, 0) - by, by)
    parts = cast(apply("div", distance - 1, size), INT64) + 1
    return where(
        compare("equal", size, 0), literal(INT64, -1), where(reaches, parts, literal(INT64, 0))
    )
