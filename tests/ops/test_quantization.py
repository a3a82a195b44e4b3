"""Quantised operators, against the formulas of their texts in exact arithmetic."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto

from onnxc.dtypes import BY_NAME
from onnxc.errors import RefusalError
from onnxc.ops.quantization import (
    conv_integer,
    dequantize_linear,
    matmul_integer,
    quantize_linear,
)
from onnxc.tensor import Tensor, constant
from tests.models import Array, Batch
from tests.ops.node_batch import NodeBatch
from tests.ops.test_convolution import convolution

FLOAT = np.float32
RANGES = {
    "uint8": (0, 255),
    "int8": (-128, 127),
    "uint16": (0, 65535),
    "int16": (-32768, 32767),
    "uint4": (0, 15),
    "int4": (-8, 7),
    "uint2": (0, 3),
    "int2": (-2, 1),
}


def numpy_type(name: str) -> Any:
    return getattr(ml_dtypes, name, None) or np.dtype(name)


def codes(name: str, *shape: int, seed: int = 0) -> Array:
    low, high = RANGES[name]
    generator = np.random.default_rng([seed, *shape])
    return generator.integers(low, high + 1, shape).astype(numpy_type(name))


def rounded(ratio: Array, zero_point: Any, name: str) -> Array:
    """RNE, then the zero point, then saturation."""
    low, high = RANGES[name]
    saturated = np.clip(np.rint(ratio) + zero_point, low, high)
    return np.asarray(saturated.astype(numpy_type(name)))


@pytest.mark.parametrize("name", RANGES)
def test_quantize_rounds_to_even_then_adds_the_zero_point(name: str) -> None:
    low, high = RANGES[name]
    x = np.array([0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 1e6, -1e6, np.inf, -np.inf, 0.9], FLOAT)
    x = np.concatenate([x, x / 2])
    one, half = np.array(1, FLOAT), np.array(0.5, FLOAT)
    batch = Batch()
    for zero_point in (0, 1, low, high):
        z = np.array(zero_point, numpy_type(name))
        batch.add("QuantizeLinear", [x, one, z], rounded(x, zero_point, name))
        wanted = rounded(x / half, zero_point, name)
        batch.add("QuantizeLinear", [x, half, z], wanted, constants=[1, 2])
    batch.add("QuantizeLinear", [x, one], rounded(x, 0, "uint8"))
    kind = getattr(TensorProto, name.upper())
    batch.add("QuantizeLinear", [x, one], rounded(x, 0, name), output_dtype=kind)
    batch.check()


def test_a_nan_becomes_the_zero_point() -> None:
    x = np.array([np.nan, -np.nan, 0], FLOAT)
    batch = Batch()
    for name, zero_point in (("int8", 7), ("uint8", 200), ("int16", -5)):
        z = np.array(zero_point, name)
        wanted = np.full(3, zero_point, name)
        batch.add("QuantizeLinear", [x, np.array(2, FLOAT), z], wanted)
        # 0 / 0, too.
        batch.add("QuantizeLinear", [np.zeros(2, FLOAT), np.array(0, FLOAT), z], wanted[:2])
    batch.check()


def test_the_division_is_in_the_type_of_the_scale_or_of_precision() -> None:
    """0.25 / 0.1 is 2.5 in float16, whose tie goes to 2; in float it is more, and goes to 3."""
    x, scale = np.array([0.25], np.float16), np.array(0.1, np.float16)
    batch = Batch()
    batch.add("QuantizeLinear", [x, scale], np.array([2], np.uint8))
    batch.add("QuantizeLinear", [x, scale], np.array([3], np.uint8), precision=TensorProto.FLOAT)
    wide = [x.astype(FLOAT), scale.astype(FLOAT)]
    batch.add("QuantizeLinear", wide, np.array([3], np.uint8))
    batch.add("QuantizeLinear", wide, np.array([2], np.uint8), precision=TensorProto.FLOAT16)
    # 513 is no bfloat16: it is 512 before the division.
    narrow = [np.array([513], FLOAT), np.array(1, ml_dtypes.bfloat16), np.array(0, np.int16)]
    batch.add("QuantizeLinear", narrow, np.array([512], np.int16))
    batch.check()


def test_quantize_integers() -> None:
    x = np.array([3, 5, -3, 2**31 - 1, -(2**31), 16777217], np.int32)
    zero = np.array(0, np.int16)
    batch = Batch()
    wanted = np.array([2, 2, -2, 32767, -32768, 32767], np.int16)
    batch.add("QuantizeLinear", [x, np.array(2, np.int32), zero], wanted)
    batch.add("QuantizeLinear", [x, np.array(2, FLOAT), zero], wanted)
    batch.check()


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2])
def test_one_scale_along_an_axis(axis: int) -> None:
    x = np.arange(-12, 12, dtype=FLOAT).reshape(2, 3, 4)
    count = x.shape[axis]
    shape = [1] * 3
    shape[axis] = count
    scale = np.array([0.5, 1, 2, 4], FLOAT)[:count]
    zero = np.array([3, -1, 0, 5], np.int8)[:count]
    y = rounded(x / scale.reshape(shape), zero.reshape(shape), "int8")
    back = (y.astype(FLOAT) - zero.reshape(shape)) * scale.reshape(shape)
    batch = Batch()
    batch.add("QuantizeLinear", [x, scale, zero], y, axis=axis)
    batch.add("DequantizeLinear", [y, scale, zero], back, axis=axis, constants=[1])
    batch.add("DequantizeLinear", [y, scale], y * scale.reshape(shape), axis=axis)
    # One element is one for the whole tensor, whatever the axis.
    batch.add("QuantizeLinear", [x, scale[:1], zero[:1]], rounded(x / 0.5, 3, "int8"), axis=axis)
    batch.check()


@pytest.mark.parametrize(("axis", "block"), [(0, 2), (1, 2), (1, 3), (-1, 5), (2, 1)])
def test_blocks(axis: int, block: int) -> None:
    """The last block may be shorter."""
    x = np.arange(-30, 30, dtype=FLOAT).reshape(4, 5, 3)
    blocks = list(x.shape)
    blocks[axis] = -(-x.shape[axis] // block)
    generator = np.random.default_rng(0)
    scale = generator.choice([0.5, 1, 2], blocks).astype(FLOAT)
    zero = generator.integers(-3, 4, blocks).astype(np.int8)

    def spread(parameter: Array) -> Array:
        return np.take(np.repeat(parameter, block, axis), range(x.shape[axis]), axis)

    y = rounded(x / spread(scale), spread(zero), "int8")
    back = (y.astype(FLOAT) - spread(zero)) * spread(scale)
    batch = Batch()
    batch.add("QuantizeLinear", [x, scale, zero], y, axis=axis, block_size=block)
    batch.add("DequantizeLinear", [y, scale, zero], back, axis=axis, block_size=block)
    batch.add("DequantizeLinear", [y, scale], y * spread(scale), axis=axis, block_size=block)
    batch.check()


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("target", ["float32", "float16", "bfloat16"])
def test_dequantize(name: str, target: str) -> None:
    kind = numpy_type(target)
    x = codes(name, 20)
    scale, zero = np.array(0.375, kind), codes(name, 1, seed=1)[0]
    exact = (x.astype(np.int64) - int(zero)) * 0.375
    batch = Batch()
    batch.add("DequantizeLinear", [x, scale, np.asarray(zero)], exact.astype(FLOAT).astype(kind))
    plain = (x.astype(np.int64) * 0.375).astype(FLOAT).astype(kind)
    batch.add("DequantizeLinear", [x, scale], plain)
    code = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16}.get(target)
    if code is not None:
        inputs = [x, np.array(0.375, FLOAT)]
        batch.add("DequantizeLinear", inputs, plain, output_dtype=code)
    batch.check()


def test_dequantize_int32() -> None:
    """The difference is exact, though neither int32 nor float holds it."""
    x = np.array([2**31 - 1, -(2**31), 16777217, 5], np.int32)
    batch = Batch()
    batch.add("DequantizeLinear", [x, np.array(0.5, FLOAT)], x.astype(FLOAT) * FLOAT(0.5))
    zero = np.array(-(2**31), np.int32)
    wanted = (x.astype(np.int64) + 2**31).astype(FLOAT)
    batch.add("DequantizeLinear", [x, np.array(1, FLOAT), zero], wanted)
    batch.check()


SMALL = {
    "float8e4m3fn": ("float8_e4m3fn", 448),
    "float8e5m2": ("float8_e5m2", 57344),
    "float8e4m3fnuz": ("float8_e4m3fnuz", 240),
    "float8e5m2fnuz": ("float8_e5m2fnuz", 57344),
    "float4e2m1": ("float4_e2m1fn", 6),
}


@pytest.mark.parametrize("name", SMALL)
def test_small_floats(name: str) -> None:
    kind, largest = numpy_type(SMALL[name][0]), SMALL[name][1]
    x = np.array([0, 1, -1.5, 0.3, 2.6, 1e9, -1e9], FLOAT)
    scale = np.array(2, FLOAT)
    wanted = np.clip(x / 2, -largest, largest).astype(kind)
    batch = Batch()
    batch.add("QuantizeLinear", [x, scale, np.array(0, kind)], wanted)
    code = getattr(TensorProto, name.upper())
    batch.add("QuantizeLinear", [x, scale], wanted, output_dtype=code)
    batch.add("DequantizeLinear", [wanted, scale], wanted.astype(FLOAT) * 2)
    batch.add("DequantizeLinear", [wanted, scale, np.array(0, kind)], wanted.astype(FLOAT) * 2)
    batch.check()


def test_small_floats_out_of_range() -> None:
    """Without saturate: NaN, or infinity where the type has it. -0 stays where the type has it."""
    x, scale = np.array([1e9, -1e9, np.nan], FLOAT), np.array(1, FLOAT)
    batch = NodeBatch()
    for name in ("float8e4m3fn", "float8e5m2", "float8e4m3fnuz"):
        kind = numpy_type(SMALL[name][0])
        with np.errstate(all="ignore"):
            wanted = x.astype(kind)
        zero = np.array(0, kind)
        batch.add_node("QuantizeLinear", [x, scale, zero], [wanted], saturate=0)
    batch.check_within(0)
    signed = Batch()
    kind = numpy_type("float8_e4m3fn")
    negative = np.array([-0.0, 0.0], FLOAT)
    signed.add("QuantizeLinear", [negative, scale, np.array(0, kind)], negative.astype(kind))
    signed.check()


@pytest.mark.parametrize(
    "values",
    [
        [0, 2, -3, -2.5, 1.34, 0.5],
        [1, 2.1, 1.3, 2.5, 3.34, 4],
        [-1, -2.1, -1.3, -2.5, -3.34, -4],
        [0.25],
    ],
)
def test_dynamic_quantize(values: list[float]) -> None:
    x = np.array(values, FLOAT)
    low, high = min(FLOAT(0), x.min()), max(FLOAT(0), x.max())
    scale = FLOAT((high - low) / FLOAT(255))
    zero = np.clip(np.rint(-low / scale), 0, 255)
    y = rounded(x / scale, zero, "uint8")
    batch = NodeBatch()
    batch.add_node(
        "DynamicQuantizeLinear",
        [x],
        [y, np.asarray(scale, FLOAT), np.asarray(zero).astype(np.uint8)],
    )
    batch.check()


def test_dynamic_quantize_of_zeros_and_of_nothing() -> None:
    one, zero = np.array(1, FLOAT), np.array(0, np.uint8)
    batch = NodeBatch()
    for shape in ((3,), (0,), ()):
        y = np.zeros(shape, np.uint8)
        batch.add_node("DynamicQuantizeLinear", [np.zeros(shape, FLOAT)], [y, one, zero])
    batch.check()


@pytest.mark.parametrize("left", ["int8", "uint8"])
@pytest.mark.parametrize("right", ["int8", "uint8"])
def test_matmul_integer(left: str, right: str) -> None:
    a, b = codes(left, 3, 20), codes(right, 20, 4, seed=1)
    wide_a, wide_b = a.astype(np.int32), b.astype(np.int32)
    batch = NodeBatch()
    batch.add_node("MatMulInteger", [a, b], [wide_a @ wide_b])
    for za, zb in [((), ()), ((3,), (4,)), ((1,), (1,)), ((3, 1), (1, 4))]:
        x, y = codes(left, *za, seed=2), codes(right, *zb, seed=3)
        rows = x.astype(np.int32).reshape(-1, 1)
        columns = y.astype(np.int32).reshape(1, -1)
        wanted = (wide_a - rows) @ (wide_b - columns)
        batch.add_node("MatMulInteger", [a, b, x, y], [wanted], constants=[1, 3])
        batch.add_node("MatMulInteger", [a, b, None, y], [wide_a @ (wide_b - columns)])
    stack, zero = codes(left, 2, 3, 20), codes(left, 2, 3, 1, seed=4)
    wanted = (stack.astype(np.int32) - zero) @ wide_b
    batch.add_node("MatMulInteger", [stack, b, zero], [wanted])
    batch.add_node("MatMulInteger", [a[0], b], [wide_a[0] @ wide_b])
    batch.add_node("MatMulInteger", [a, b[:, 0]], [wide_a @ wide_b[:, 0]])
    batch.check()


def requantised(total: Array, scale: Any, zero: Any, name: str) -> Array:
    """float32 products of the sum and the ratio of the scales."""
    return rounded(total.astype(FLOAT) * scale, zero, name)


def test_qlinear_matmul() -> None:
    a, b = codes("uint8", 2, 3, 5), codes("int8", 5, 4, seed=1)
    batch = NodeBatch()
    for sa, sb in [((), ()), ((3,), (4,)), ((2, 3, 1), (1, 4)), ((1,), (1,))]:
        generator = np.random.default_rng([*sa, *sb])
        scale_a = generator.uniform(0.5, 2, sa).astype(FLOAT)
        scale_b = generator.uniform(0.01, 0.02, sb).astype(FLOAT)
        zero_a, zero_b = codes("uint8", *sa, seed=2), codes("int8", *sb, seed=3)
        rows = (-1, 1) if len(sa) == 1 else sa
        scale_y, zero_y = np.array(1.7, FLOAT), np.array(100, np.uint8)
        total = (a.astype(np.int32) - zero_a.reshape(rows)) @ (b.astype(np.int32) - zero_b)
        scale = scale_a.reshape(rows) * scale_b / scale_y
        inputs = [a, scale_a, zero_a, b, scale_b, zero_b, scale_y, zero_y]
        batch.add_node("QLinearMatMul", inputs, [requantised(total, scale, 100, "uint8")])
    batch.check()


def test_qlinear_matmul_of_vectors() -> None:
    """The scales of the matrix beside a vector are those of its rows or columns."""
    one, zero = np.array(1, FLOAT), np.array(0, np.int8)
    vector, matrix = np.array([1, 2], np.int8), codes("int8", 3, 2, 2) // 8
    scales = np.array([0.5, 2, 1, 4, 1, 0.25], FLOAT).reshape(3, 2)
    wide, total = matrix.astype(np.int32), vector.astype(np.int32)
    batch = NodeBatch()
    for sizes in (scales, scales[:1].repeat(3, 0)):
        columns, rows = sizes[:, None, :], sizes[:, :, None]
        zeros = [np.zeros(side.shape, np.int8) for side in (columns, rows)]
        y = requantised(total @ wide, sizes, 0, "int8")
        batch.add_node(
            "QLinearMatMul", [vector, one, zero, matrix, columns, zeros[0], one, zero], [y]
        )
        y = requantised(wide @ total, sizes, 0, "int8")
        batch.add_node("QLinearMatMul", [matrix, rows, zeros[1], vector, one, zero, one, zero], [y])
    batch.add_node(
        "QLinearMatMul",
        [vector, one, zero, vector, one, zero, one, zero],
        [np.array(5, np.int8)],
    )
    batch.check()


def test_qlinear_matmul_rounds_to_even_and_saturates() -> None:
    """Ties go to even before the zero point is added: 2.5 + 1 is 3, not 4."""
    a, b = np.array([[5, 3, -5, 127]], np.int8).T.copy(), np.array([[1, 127]], np.int8)
    half, one, zero = np.array(0.5, FLOAT), np.array(1, FLOAT), np.array(0, np.int8)
    offset = np.array(1, np.int8)
    wanted = np.array([[3, 127], [3, 127], [-1, -128], [65, 127]], np.int8)
    batch = NodeBatch()
    batch.add_node("QLinearMatMul", [a, half, zero, b, one, zero, one, offset], [wanted])
    batch.check()


def test_qlinear_matmul_of_float16_scales_and_float8() -> None:
    a, b = codes("int8", 2, 3), codes("int8", 3, 2, seed=1)
    half, zero = np.array(0.5, np.float16), np.array(0, np.int8)
    total = a.astype(np.int32) @ b.astype(np.int32)
    batch = NodeBatch()
    inputs = [a, half, zero, b, half, zero, np.array(64, np.float16), zero]
    batch.add_node("QLinearMatMul", inputs, [requantised(total, FLOAT(1 / 256), 0, "int8")])
    kind = numpy_type("float8_e4m3fn")
    small = [np.array([[1, -2], [0.5, 3]], FLOAT).astype(kind) for _ in range(2)]
    one, nothing = np.array(1, FLOAT), np.array(0, kind)
    wanted = (small[0].astype(FLOAT) @ small[1].astype(FLOAT)).astype(kind)
    batch.add_node(
        "QLinearMatMul", [small[0], one, nothing, small[1], one, nothing, one, nothing], [wanted]
    )
    batch.check()


@pytest.mark.parametrize("filters", ["int8", "uint8"])
def test_conv_integer(filters: str) -> None:
    x, w = codes("uint8", 2, 4, 5, 5), codes(filters, 6, 2, 3, 3, seed=1)
    zero_x, zero_w = np.array(17, np.uint8), codes(filters, 6, seed=2)
    attributes: dict[str, Any] = {"pads": [1, 0, 1, 2], "strides": [2, 1], "group": 2}
    arguments = ([2, 1], [1, 1], [1, 0, 1, 2], 2)
    wide_x, wide_w = x.astype(np.int32), w.astype(np.int32)
    batch = NodeBatch()
    plain = convolution(wide_x, wide_w, *arguments)
    batch.add_node("ConvInteger", [x, w], [plain], **attributes)
    # Padding is the zero point, that is nothing.
    centred = convolution(wide_x - 17, wide_w, *arguments)
    batch.add_node("ConvInteger", [x, w, zero_x], [centred], **attributes)
    each = convolution(wide_x - 17, wide_w - zero_w.reshape(-1, 1, 1, 1), *arguments)
    batch.add_node("ConvInteger", [x, w, zero_x, zero_w], [each], constants=[1, 3], **attributes)
    same = convolution(wide_x - 17, wide_w - int(zero_w[0]), [1, 1], [1, 1], [1] * 4, 2)
    inputs = [x, w, zero_x, zero_w[:1]]
    batch.add_node("ConvInteger", inputs, [same], auto_pad="SAME_UPPER", group=2)
    batch.check()


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("per_filter", [False, True])
def test_qlinear_conv(rank: int, per_filter: bool) -> None:
    x, w = codes("uint8", 1, 2, *[5] * rank), codes("int8", 3, 2, *[3] * rank, seed=1)
    shape = (3,) if per_filter else ()
    generator = np.random.default_rng(rank)
    scale_w = generator.uniform(0.01, 0.02, shape).astype(FLOAT)
    zero_w = codes("int8", *shape, seed=2)
    bias = generator.integers(-(10**4), 10**4, 3).astype(np.int32)
    scale_x, zero_x = np.array(0.75, FLOAT), np.array(130, np.uint8)
    scale_y, zero_y = np.array(3.25, FLOAT), np.array(-3, np.int8)
    outer = (-1, *[1] * rank)
    total = convolution(
        x.astype(np.int32) - 130,
        w.astype(np.int32) - zero_w.astype(np.int32).reshape(-1, 1, *[1] * rank),
        [1] * rank,
        [1] * rank,
        [1] * 2 * rank,
    )
    scale = scale_x * scale_w.reshape(outer) / scale_y
    inputs = [x, scale_x, zero_x, w, scale_w, zero_w, scale_y, zero_y]
    batch = NodeBatch()
    pads = [1] * 2 * rank
    wanted = requantised(total, scale, -3, "int8")
    batch.add_node("QLinearConv", inputs, [wanted], pads=pads)
    wanted = requantised(total + bias.reshape(outer), scale, -3, "int8")
    batch.add_node("QLinearConv", [*inputs, bias], [wanted], pads=pads, constants=range(1, 9))
    batch.check()


@given(st.lists(st.floats(width=32), min_size=1, max_size=20), st.floats(width=32))
def test_any_bits_quantise_into_range(values: list[float], size: float) -> None:
    """No input is undefined; numbers follow the formula."""
    x, scale = np.array(values, FLOAT), np.array(size, FLOAT)
    with np.errstate(all="ignore"):
        ratio = x / scale
        wanted = np.where(np.isnan(ratio), 3, np.clip(np.rint(ratio) + 3, -128, 127))
    batch = Batch()
    batch.add("QuantizeLinear", [x, scale, np.array(3, np.int8)], wanted.astype(np.int8))
    batch.check_evaluated()


def numbers(array: Any, name: str = "float") -> Tensor:
    return constant(np.asarray(array, numpy_type(BY_NAME[name].numpy)), BY_NAME[name])


PLAIN = {"axis": 1, "block_size": 0, "output_dtype": 0}


@pytest.mark.parametrize(
    ("scale", "attributes", "fact"),
    [
        ([1, 2], {}, "y_scale has shape .2. for axis 1 of .2, 3."),
        ([1, 2, 3], {"axis": 5}, "for axis 5"),
        ([[1, 2, 3]], {"block_size": 3}, "for blocks of 3 along axis 1"),
        ([[1], [1]], {"block_size": -1}, "block_size is -1"),
        (1, {"output_dtype": TensorProto.INT8}, "output_dtype is int8, the zero point uint8"),
        (1, {"precision": TensorProto.INT8}, "precision is int8"),
    ],
)
def test_quantize_refuses(scale: Any, attributes: dict[str, Any], fact: str) -> None:
    more = {"precision": 0, "saturate": 1}
    with pytest.raises(RefusalError, match=fact):
        quantize_linear(
            numbers(np.ones((2, 3))),
            numbers(scale),
            numbers(0, "uint8"),
            **PLAIN | more | attributes,
        )


def test_others_refuse() -> None:
    square = numbers(np.ones((2, 2)), "int8")
    three = numbers([1, 2, 3], "int8")
    with pytest.raises(RefusalError, match="a_zero_point has shape"):
        matmul_integer(square, square, three, None)
    with pytest.raises(RefusalError, match="b_zero_point has shape"):
        matmul_integer(square, square, None, three)
    with pytest.raises(RefusalError, match="x_scale has shape"):
        dequantize_linear(square, numbers([1, 2, 3]), None, **PLAIN, declared=(None,))
    image = numbers(np.ones((1, 1, 3)), "int8")
    names = ("auto_pad", "dilations", "kernel_shape", "pads", "strides")
    attributes: dict[str, Any] = dict.fromkeys(names)
    with pytest.raises(RefusalError, match="x_zero_point has 3 elements"):
        conv_integer(image, image, three, None, group=1, **attributes)
    with pytest.raises(RefusalError, match="w_zero_point has shape"):
        conv_integer(image, image, None, three, group=1, **attributes)
