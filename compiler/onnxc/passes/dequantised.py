"""What a DequantizeLinear makes: integers, and how to read them as floats."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from onnxc.values import static_shape, values_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


@dataclass(frozen=True)
class Dequantised:
    """(integers - zero) * scale, as floats.

    maker     the DequantizeLinear
    scale     float32, and zero, int64: of shape (), or one for each slice along `axis`
    """

    maker: ir.Node
    integers: ir.Value
    scale: Array
    zero: Array
    axis: int

    @property
    def shape(self) -> tuple[int, ...]:
        return static_shape(self.integers) or ()

    @property
    def known(self) -> Array | None:
        """The integers less their zero points, int64; None where they come at run time."""
        if self.integers.const_value is None:
            return None
        values = values_of(self.integers.const_value).astype(np.int64)
        return np.asarray(values - self._along(self.zero))

    @property
    def floats(self) -> Array | None:
        """The floats, each rounded as DequantizeLinear rounds it; None where not known."""
        known = self.known
        if known is None:
            return None
        with np.errstate(all="ignore"):
            return np.asarray(known.astype(np.float32) * self._along(self.scale), np.float32)

    @property
    def largest(self) -> int:
        """The largest magnitude that integers less their zero points can have."""
        known = self.known
        if known is not None:
            return int(np.abs(known).max(initial=0))
        assert self.integers.dtype is not None
        info = np.iinfo(self.integers.dtype.numpy())
        return max(int(info.max - self.zero.min()), int(self.zero.max() - info.min))

    def _along(self, parameter: Array) -> Array:
        if parameter.ndim == 0:
            return parameter
        return parameter.reshape(-1, *(1 for _ in self.shape[self.axis + 1 :]))


def dequantised(value: ir.Value | None, *types: ir.DataType) -> Dequantised | None:
    """None of what is no float from integers of `types` with known, finite scales and zero points.

    None too where they differ from block to block.
    """
    maker = None if value is None else value.producer()
    if value is None or maker is None or maker.domain or maker.op_type != "DequantizeLinear":
        return None
    integers, scale, zero = (*maker.inputs, None)[:3]
    block = maker.attributes.get("block_size")
    if value.dtype is not ir.DataType.FLOAT or (block is not None and block.as_int()):
        return None
    if integers is None or integers.dtype not in types or static_shape(integers) is None:
        return None
    if scale is None or scale.dtype is not ir.DataType.FLOAT or scale.const_value is None:
        return None
    if zero is not None and zero.const_value is None:
        return None
    sizes = _parameter(values_of(scale.const_value))
    if not np.isfinite(sizes).all():
        return None
    offsets = np.zeros((), np.int64)
    if zero is not None and zero.const_value is not None:
        offsets = _parameter(values_of(zero.const_value).astype(np.int64))
    shape = static_shape(integers) or ()
    axis = maker.attributes["axis"].as_int() if "axis" in maker.attributes else 1
    along = shape[axis : axis + 1 or None] if -len(shape) <= axis < len(shape) else ()
    if any(parameter.ndim and parameter.shape != along for parameter in (sizes, offsets)):
        return None
    return Dequantised(maker, integers, sizes, offsets, axis % max(len(shape), 1))


def _parameter(values: Array) -> Array:
    return values.reshape(() if math.prod(values.shape) == 1 else values.shape)
