"""Operators on quantised numbers: y stands for (y - zero point) * scale.

Sums of products of 8-bit numbers are exact modulo 2^32, in int32. What goes back to few bits is
rounded to nearest, ties to even, before the zero point is added, and saturates. A NaN becomes the
zero point.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np

from onnxc.diagnostics import Kind
from onnxc.dtypes import DOUBLE, FLOAT, INT32, INT64, UINT8, ElementType
from onnxc.errors import RefusalError
from onnxc.expression import (
    Const,
    Expr,
    Index,
    Load,
    apply,
    at,
    cast,
    compare,
    fold,
    literal,
    where,
)
from onnxc.op import Declared, Ints, op
from onnxc.ops.checks import require_one_element, type_of_code
from onnxc.ops.contraction import matrix_product
from onnxc.ops.convolution import check_kernel, convolved, with_bias
from onnxc.ops.reduction import folded
from onnxc.ops.window import Window, sliding_windows
from onnxc.tensor import Tensor, compute, constant, dynamic, elementwise

INTEGERS = ("signed", "unsigned")
BLOCK: Final = 4096
"""Floats that stay in the first-level cache."""
INFINITY_BITS: Final = 0x7F800000
"""Those of a float; a NaN has more."""


@op("QuantizeLinear", exact=True)
def quantize_linear(
    x: Tensor,
    y_scale: Tensor,
    y_zero_point: Tensor | None,
    *,
    axis: int,
    block_size: int,
    output_dtype: int,
    precision: int,
    saturate: int,
) -> Tensor:
    target = y_zero_point.dtype if y_zero_point is not None else UINT8
    if y_zero_point is None and output_dtype:
        target = type_of_code("output_dtype", output_dtype)
    if output_dtype not in (0, target.code):
        asked = type_of_code("output_dtype", output_dtype)
        fact = f"output_dtype is {asked}, the zero point {target}"
        raise RefusalError(Kind.ATTRIBUTES_CONFLICT, fact, "remove the attribute")
    exact = _division_type(y_scale.dtype)
    if precision:
        exact = type_of_code("precision", precision)
    if exact.kind not in ("float", "half"):
        raise RefusalError(
            Kind.ATTRIBUTE_VALUE, f"precision is {exact}", "give a type of floating-point numbers"
        )
    scale = spread_over(x.shape, "y_scale", y_scale, axis, block_size)
    operands = [x, scale]
    if y_zero_point is not None:
        operands.append(spread_over(x.shape, "y_zero_point", y_zero_point, axis, block_size))

    def element(value: Expr, size: Expr, zero_point: Expr | None = None) -> Expr:
        ratio = _in_precision(value, exact) / _in_precision(size, exact)
        return quantised(_in_precision(ratio, exact), zero_point, target, saturate=saturate != 0)

    return elementwise(element, *operands)


@op("DequantizeLinear", exact=True)
def dequantize_linear(
    x: Tensor,
    x_scale: Tensor,
    x_zero_point: Tensor | None,
    *,
    axis: int,
    block_size: int,
    output_dtype: int,
    declared: Declared,
) -> Tensor:
    target = type_of_code("output_dtype", output_dtype) if output_dtype else x_scale.dtype
    if target.kind not in ("float", "half"):
        target = declared[0].dtype if declared[0] is not None else FLOAT
    wide = target if target.kind == "float" else FLOAT
    operands = [x, spread_over(x.shape, "x_scale", x_scale, axis, block_size)]
    if x_zero_point is not None:
        operands.append(spread_over(x.shape, "x_zero_point", x_zero_point, axis, block_size))

    def element(value: Expr, size: Expr, zero_point: Expr | None = None) -> Expr:
        return cast(difference(value, zero_point, wide) * cast(size, wide), target)

    return elementwise(element, *operands)


@op("DynamicQuantizeLinear")
def dynamic_quantize_linear(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """To uint8, over a range that holds 0; where there is nothing but zeros the scale is 1."""
    source = x.shared("the input")
    low, high = _ends(source)
    least, greatest = (
        elementwise(partial(_with_zero, operation), found)
        for operation, found in (("min", low), ("max", high))
    )

    def scale_of(low: Expr, high: Expr) -> Expr:
        return where(compare("equal", high, low), literal(FLOAT, 1), (high - low) / 255)

    scale = elementwise(scale_of, least, greatest).stored("the scale")
    zero_point = elementwise(
        lambda low, size: quantised(-low / size, None, UINT8), least, scale
    ).stored("the zero point")
    y = elementwise(
        lambda value, size, zero: quantised(value / size, zero, UINT8), source, scale, zero_point
    )
    return y, scale, zero_point


def _with_zero(operation: str, value: Expr) -> Expr:
    return apply(operation, value, 0)


def _ends(source: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the greatest element; blocks that stay in the cache are read for both at once.

    The least is that whose negative is the greatest. Those of a block are of its numbers, unless
    the greatest of all bits is a NaN's.
    """

    def end(tensor: Tensor, operation: str, role: str) -> Tensor:
        found = compute((), lambda: fold(operation, tensor.shape, lambda *at: tensor[at]))
        return found.stored(role)

    count = source.elements
    block = next((size for size in range(BLOCK, BLOCK // 8, -1) if count % size == 0), count)
    if count < 4 * BLOCK or block == count:
        low, high = (
            end(source, "min", "the least element"),
            end(source, "max", "the greatest element"),
        )
        return low, high
    rows = source.reshape((count // block, block))
    signs = constant(np.array([1, -1], np.float32), FLOAT)
    bits = folded("max", elementwise(_magnitude_bits, rows), (1,))
    most = bits.stored("the most bits of each block")

    def greatest(row: Index, side: Index) -> Expr:
        values = (block,), lambda place: rows[[row, place]] * signs[[side]]
        number = fold("max", *values, hint="numbers")
        return where(most[[row, Index()]] > INFINITY_BITS, literal(FLOAT, math.nan), number)

    ends = compute((count // block, 2), greatest).stored("the ends of each block")
    sides = [compute((count // block,), lambda row, n=n: ends[[row, Index(n)]]) for n in (0, 1)]
    high = end(sides[0], "max", "the greatest element")
    negative = end(sides[1], "max", "the least element, negated")
    return elementwise(lambda value: -value, negative), high


def _magnitude_bits(value: Expr) -> Expr:
    """In the order of magnitudes, NaNs last."""
    return apply("bit_and", apply("reinterpret", value, dtype=INT32), 0x7FFFFFFF)


@op("MatMulInteger")
def matmul_integer(
    A: Tensor, B: Tensor, a_zero_point: Tensor | None, b_zero_point: Tensor | None
) -> Tensor:
    left = _centred(A, _per_row("a_zero_point", a_zero_point, A), INT32)
    return matrix_product(left, _centred(B, _per_column("b_zero_point", b_zero_point, B), INT32))


@op("QLinearMatMul")
def qlinear_matmul(
    a: Tensor,
    a_scale: Tensor,
    a_zero_point: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero_point: Tensor,
    y_scale: Tensor,
    y_zero_point: Tensor,
) -> Tensor:
    """A vector is a matrix of one row or column, which the result loses."""
    wide = INT32 if a.dtype.kind in INTEGERS and b.dtype.kind in INTEGERS else FLOAT
    lost = {n for n, operand in ((-2, a), (-1, b)) if operand.rank == 1}
    a = a.unsqueeze([0]) if a.rank == 1 else a
    b = b.unsqueeze([1]) if b.rank == 1 else b
    left = _centred(a, _per_row("a_zero_point", a_zero_point, a), wide)
    right = _centred(b, _per_column("b_zero_point", b_zero_point, b), wide)
    product = matrix_product(left, right)
    rows, columns = _per_row("a_scale", a_scale, a), _per_column("b_scale", b_scale, b)
    size = _per_row("y_scale", y_scale, product)
    zero_point = _per_row("y_zero_point", y_zero_point, product)
    result = _requantised(product, (rows, columns, size), zero_point)
    kept = tuple(extent for n, extent in enumerate(result.shape, -result.rank) if n not in lost)
    return result.reshape(kept)


@op("ConvInteger")
def conv_integer(
    x: Tensor,
    w: Tensor,
    x_zero_point: Tensor | None,
    w_zero_point: Tensor | None,
    *,
    auto_pad: str | None,
    dilations: Ints | None,
    group: int,
    kernel_shape: Ints | None,
    pads: Ints | None,
    strides: Ints | None,
) -> Tensor:
    """Padding is the zero point of x."""
    check_kernel(kernel_shape, w)
    windows = sliding_windows(x.shape[2:], w.shape[2:], strides, dilations, pads, auto_pad)
    return _convolved_integers(x, w, x_zero_point, w_zero_point, windows, group)


@op("QLinearConv")
def qlinear_conv(
    x: Tensor,
    x_scale: Tensor,
    x_zero_point: Tensor,
    w: Tensor,
    w_scale: Tensor,
    w_zero_point: Tensor,
    y_scale: Tensor,
    y_zero_point: Tensor,
    B: Tensor | None,
    *,
    auto_pad: str | None,
    dilations: Ints | None,
    group: int,
    kernel_shape: Ints | None,
    pads: Ints | None,
    strides: Ints | None,
) -> Tensor:
    """Padding is the zero point of x. B, int32, counts in steps of x_scale * w_scale."""
    check_kernel(kernel_shape, w)
    windows = sliding_windows(x.shape[2:], w.shape[2:], strides, dilations, pads, auto_pad)
    product = _convolved_integers(x, w, x_zero_point, w_zero_point, windows, group)
    result = with_bias(product, B)
    scales = (
        _scalar("x_scale", x_scale),
        _per_filter("w_scale", w_scale, w.shape[0], result.rank, 1),
        _per_filter("y_scale", y_scale, w.shape[0], result.rank, 1),
    )
    zero_point = _per_filter("y_zero_point", y_zero_point, w.shape[0], result.rank, 1)
    return _requantised(result, scales, zero_point)


def _convolved_integers(
    x: Tensor,
    w: Tensor,
    x_zero_point: Tensor | None,
    w_zero_point: Tensor | None,
    windows: Sequence[Window],
    group: int,
) -> Tensor:
    source = _centred(x, _scalar("x_zero_point", x_zero_point), INT32)
    filters = _centred(w, _per_filter("w_zero_point", w_zero_point, w.shape[0], w.rank, 0), INT32)
    return convolved(source, filters, windows, group)


def quantised(
    ratio: Expr, zero_point: Expr | None, target: ElementType, *, saturate: bool = True
) -> Expr:
    """A number in steps of the scale, a float or a double, as the type of few bits that it gets.

    `saturate` is for the float8 types. To a zero point of 0 nothing is added: -0 stays.
    """
    if target.kind in INTEGERS and target.bits <= 16 and ratio.dtype is FLOAT:
        zero = literal(FLOAT, 0) if zero_point is None else cast(zero_point, FLOAT)
        return apply("quantise", ratio, zero, dtype=target)
    offset = None if zero_point is None else cast(zero_point, ratio.dtype)
    if target.kind not in INTEGERS:
        if offset is not None:
            ratio = where(compare("equal", offset, 0), ratio, ratio + offset)
        one_byte = target.bits == 8
        return cast(ratio, target, "cast" if saturate or not one_byte else "cast_unsaturated")
    nearest = apply("round", ratio)
    if offset is not None:
        nearest = where(apply("is_nan", ratio), offset, nearest + offset)
    return cast(nearest, target)


def difference(value: Expr, zero_point: Expr | None, target: ElementType) -> Expr:
    """value - zero_point in `target`, rounded once."""
    if zero_point is None:
        return cast(value, target)
    if value.dtype.kind in INTEGERS:
        between = INT32 if value.dtype.bits <= 16 else INT64
        return cast(cast(value, between) - cast(zero_point, between), target)
    return cast(value, target) - cast(zero_point, target)


def spread_over(shape: Ints, name: str, parameter: Tensor, axis: int, block_size: int) -> Tensor:
    """A scale or zero point so that it broadcasts to `shape`: one, one along `axis`, or blocks."""
    parameter = parameter.shared(name)
    if block_size:
        return _blocked(shape, name, parameter, axis, block_size)
    if parameter.elements == 1:
        return parameter.reshape(())
    position = axis + len(shape) if axis < 0 else axis
    if not 0 <= position < len(shape) or parameter.shape != (shape[position],):
        fact = f"{name} has shape {list(parameter.shape)} for axis {axis} of {list(shape)}"
        raise RefusalError(
            Kind.QUANTIZATION_PARAMETER,
            fact,
            "give one number, or one along the axis, or block_size",
        )
    return parameter.reshape((shape[position], *(1 for _ in shape[position + 1 :])))


def _blocked(shape: Ints, name: str, parameter: Tensor, axis: int, block_size: int) -> Tensor:
    position = axis + len(shape) if axis < 0 else axis
    if block_size < 0 or not 0 <= position < len(shape):
        raise RefusalError(
            Kind.QUANTIZATION_PARAMETER,
            f"block_size is {block_size} along axis {axis} of {list(shape)}",
        )
    blocks = -(-shape[position] // block_size)
    if parameter.shape != (*shape[:position], blocks, *shape[position + 1 :]):
        fact = f"{name} has shape {list(parameter.shape)}"
        raise RefusalError(
            Kind.QUANTIZATION_PARAMETER,
            f"{fact} for blocks of {block_size} along axis {axis} of {list(shape)}",
        )

    def element(*indices: Index) -> Expr:
        block = dynamic(apply("div", at(indices[position]), block_size))
        return parameter[[*indices[:position], block, *indices[position + 1 :]]]

    return compute(shape, element)


def _division_type(scale: ElementType) -> ElementType:
    """In which a division by `scale` is done; int32 by int32 is rounded rightly from double."""
    if scale.kind in ("float", "half"):
        return scale
    return DOUBLE if scale.kind in INTEGERS else FLOAT


def _in_precision(value: Expr, exact: ElementType) -> Expr:
    """Rounded to `exact`, in a type that C computes with."""
    return cast(cast(value, exact), exact if exact.kind == "float" else FLOAT)


def _centred(tensor: Tensor, zero_point: Tensor | None, wide: ElementType) -> Tensor:
    """Of what is stored: products take each element many times."""
    if not isinstance(tensor.value, Load | Const):
        tensor = tensor.stored("an operand")
    if zero_point is None:
        return tensor.cast(wide)
    return elementwise(lambda value, zero: difference(value, zero, wide), tensor, zero_point)


def _requantised(
    product: Tensor, scales: tuple[Tensor | None, ...], zero_point: Tensor | None
) -> Tensor:
    """`scales` are those of both operands and of the result, whose type is the zero point's."""
    assert zero_point is not None
    target = zero_point.dtype

    def element(value: Expr, left: Expr, right: Expr, size: Expr, zero: Expr) -> Expr:
        return quantised(cast(value, FLOAT) * (left * right / size), zero, target)

    given = [scale for scale in scales if scale is not None]
    return elementwise(element, product, *given, zero_point)


def _scalar(name: str, parameter: Tensor | None) -> Tensor | None:
    if parameter is None:
        return None
    require_one_element(name, parameter)
    return parameter.shared(name).reshape(())


def _per_filter(
    name: str, parameter: Tensor | None, filters: int, rank: int, position: int
) -> Tensor | None:
    """One number, or one a filter, which are dimension `position` of a tensor of `rank`."""
    if parameter is None or parameter.elements == 1:
        return _scalar(name, parameter)
    if parameter.shape != (filters,):
        fact = f"{name} has shape {list(parameter.shape)} for {filters} filters"
        raise RefusalError(Kind.QUANTIZATION_PARAMETER, fact, "give one number, or one a filter")
    return parameter.shared(name).reshape((filters, *(1 for _ in range(rank - position - 1))))


def _per_row(name: str, parameter: Tensor | None, matrix: Tensor) -> Tensor | None:
    """One number, a vector of one a row, or of the matrix' shape with one column."""
    if parameter is None or parameter.elements == 1:
        return _scalar(name, parameter)
    wanted = (*matrix.shape[:-1], 1)
    if matrix.rank > 1 and parameter.shape == matrix.shape[-2:-1]:
        return parameter.shared(name).unsqueeze([1])
    if matrix.rank > 1 and parameter.shape == wanted:
        return parameter.shared(name)
    fact = f"{name} has shape {list(parameter.shape)} for a matrix of {list(matrix.shape)}"
    raise RefusalError(
        Kind.QUANTIZATION_PARAMETER,
        fact,
        f"give one number, one a row, or the shape {list(wanted)}",
    )


def _per_column(name: str, parameter: Tensor | None, matrix: Tensor) -> Tensor | None:
    """One number, a vector of one a column, or of the matrix' shape with one row."""
    if parameter is None or parameter.elements == 1:
        return _scalar(name, parameter)
    wanted = (*matrix.shape[:-2], 1, *matrix.shape[-1:])
    if matrix.rank > 1 and parameter.shape in (matrix.shape[-1:], wanted):
        return parameter.shared(name)
    fact = f"{name} has shape {list(parameter.shape)} for a matrix of {list(matrix.shape)}"
    raise RefusalError(
        Kind.QUANTIZATION_PARAMETER,
        fact,
        f"give one number, one a column, or the shape {list(wanted)}",
    )
