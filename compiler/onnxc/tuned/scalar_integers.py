"""Layers of 8-bit integers without vectors: tiles of pixels and lanes, or each lane by itself.

A sum of (x - a) * w begins with -a times the sum of w, and with what is added to it; padding reads
the zero point a. So an inner loop multiplies bytes as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxc.centred import Centred
from onnxc.dtypes import INT32, ElementType
from onnxc.expression import Buffer, Const, Expr, Load
from onnxc.kernel import Loops, Micro
from onnxc.target import Target
from onnxc.tuned.integer_product import INT8, Epilogue, constant_zeros, epilogue_of, factors_of
from onnxc.tuned.product import only_fold, product_between
from onnxc.tuned.scalar import Layer, layer_around, without_padding
from onnxc.tuned.scalar_windows import Windows, is_windowed, numbers_of
from onnxc.tuned.shared_integers import SharedIntegers, shared_integers
from onnxc.tuned.walks import gathered

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

PIXELS: Final = 2
"""Of a tile, and LANES: 8 sums leave room for what is multiplied in 14 registers."""
LANES: Final = 4
MOST_POINTERS: Final = 128
"""In a table on the stack: that of the taps of one tile."""
LIMIT: Final = 2**31
"""Magnitudes stay below, so that no sum of int32_t overflows."""
LEAST_WORK: Final = 256
"""Multiplications below which the plain loops stay."""


@dataclass(frozen=True)
class _Constants:
    """Weights [length][lanes], and what the sum of each lane begins with."""

    weights: Array
    first: Array


def integers(loops: Loops, target: Target) -> Micro | None:
    """The Micro of a merged kernel; None where it is no layer with known weights of int8."""
    bare, bounds = without_padding(loops)
    fold = only_fold(bare)
    if fold is None or fold.dtype is not INT32 or loops.partial:
        return None
    factors, epilogue = factors_of(fold), epilogue_of(bare.value, fold)
    if factors is None or epilogue is None or epilogue.target is None:
        return None
    loads = tuple(load for load in epilogue.loads if load is not epilogue.bias)
    product = product_between(bare, fold, factors[0].source, factors[1].source, loads)
    if product is None or product.panel.buffer.data is None:
        return None
    rows, panel = factors if product.panel is factors[1].source else factors[::-1]
    layer = layer_around(product, bounds, target, fold, None, loads)
    if layer is None or rows.constant is None or layer.work < LEAST_WORK:
        return None
    constants = _constants(layer, rows, panel, epilogue)
    found = _windows(layer, rows.source.dtype, loops.out.dtype)
    if constants is None or layer.tap_count * found.pixels > MOST_POINTERS:
        return None
    name, inputs = "integers_scalar", [rows.source.buffer]
    parameters: Windows | SharedIntegers = found
    zeros = [_padding(rows, layer)] if layer.padded else []
    small = shared_integers(layer, rows.source.dtype, epilogue) if target.small else None
    if small is None:
        inputs += [*_buffers(layer, constants, found), *zeros]
    else:
        name, (parameters, tables) = "shared_integers", small
        inputs += [*_lane_by_lane(layer, constants), *(zeros or inputs), *tables]
        loads = () if parameters.finished else loads
        layer = replace(layer, addends=loads)
    return Micro(
        name,
        loops,
        tuple(inputs),
        parameters,
        bare.value,
        fold,
        loads,
        starts=layer.starts(len(inputs)),
    )


def _windows(layer: Layer, source: ElementType, result: ElementType) -> Windows:
    """What is computed at once where the layer has code of its own."""
    windowed = is_windowed(layer) or layer.is_depthwise
    pixels = 1 if layer.is_depthwise else min(PIXELS, layer.pixels)
    return Windows(
        numbers_of(layer, windowed=windowed),
        pixels,
        1 if layer.is_depthwise else LANES,
        layer.tap_count,
        windowed,
        layer.padded,
        (layer.pixels % pixels > 0, layer.lanes % LANES > 0 and not layer.is_depthwise),
        layer.moves,
        (source.c_type, "int8_t", "int32_t", result.c_type),
        layer.is_depthwise,
    )


def _constants(
    layer: Layer, rows: Centred, panel: Centred, epilogue: Epilogue
) -> _Constants | None:
    """None where weights are no int8, or a sum could overflow."""
    zeros = constant_zeros(panel.zero, layer.product.lanes)
    bias = _bias(epilogue.bias, layer)
    if zeros is None or bias is None or rows.constant is None:
        return None
    weights = layer.weights().astype(np.int64) - zeros
    first = bias - rows.constant * weights.sum(0)
    most = 128 if rows.source.dtype.kind == "signed" else 255
    sums = np.abs(first) + (most + abs(rows.constant)) * np.abs(weights).sum(0)
    beyond = most * 128 * weights.shape[0]  # of lanes beyond the last, which read what follows
    if weights.size == 0 or np.abs(weights + 0.5).max() > 128 or max(sums.max(), beyond) >= LIMIT:
        return None
    return _Constants(weights.astype(np.int8), first.astype(np.int32))


def _bias(value: Expr | None, layer: Layer) -> Array | None:
    """What is added to the sums, one a lane; None where that is not known."""
    if value is None:
        return np.zeros(layer.lanes, np.int64)
    if isinstance(value, Const):
        return np.full(layer.lanes, int.from_bytes(value.raw, "little", signed=True), np.int64)
    lanes = layer.product.lanes
    if not isinstance(value, Load) or value.buffer.data is None:
        return None
    if {axis for axis, _ in value.flat.terms} - {lanes} or value.flat.dynamic:
        return None
    known = np.asarray(gathered(value, (lanes,)), np.int64)
    return np.broadcast_to(known, (layer.lanes,))


def _buffers(layer: Layer, constants: _Constants, found: Windows) -> list[Buffer]:
    """The weights, panels [length][LANES] after one another, and what the sums begin with.

    The last panel is as narrow as the lanes that are left; whole tiles of its last row may be read.
    """
    width = layer.lanes if layer.is_depthwise else found.lanes
    rows = constants.weights
    panels = [rows[:, n : n + width].ravel() for n in range(0, layer.lanes, width)]
    room = -layer.lanes % width
    data = np.concatenate([*panels, np.zeros(room, np.int8)])
    first = np.concatenate([constants.first, np.zeros(room, np.int32)])
    name = layer.product.panel.buffer.name
    return [
        Buffer(name, data.shape, INT8, "constant", data),
        Buffer(f"{name}_first", first.shape, INT32, "constant", first),
    ]


def _lane_by_lane(layer: Layer, constants: _Constants) -> list[Buffer]:
    """The weights [lanes][length], or [length][lanes] of filters; and what the sums begin with."""
    rows, name = constants.weights, layer.product.panel.buffer.name
    data = (rows if layer.is_depthwise else rows.T).reshape(-1)
    return [
        Buffer(name, data.shape, INT8, "constant", np.ascontiguousarray(data)),
        Buffer(f"{name}_first", constants.first.shape, INT32, "constant", constants.first),
    ]


def _padding(rows: Centred, layer: Layer) -> Buffer:
    """What padding reads: the zero point."""
    dtype, count = rows.source.dtype, layer.lanes if layer.is_depthwise else layer.channels
    values = np.full(count, rows.constant, dtype.numpy)
    return Buffer("padding", values.shape, dtype, "constant", values)
