"""Conversions between all element types of numbers and bool, in C and in numpy, the same bits.

Both follow Cast's text. Where it leaves a case open:

float to integer   truncated, saturated, 0 for a NaN; int4, uint4, int2 and uint2 alike
NaN                keeps its sign, and the high bits of its payload where the target is a 16-bit
                   float; a signalling one becomes quiet, but for a 16-bit float made a float
float4e2m1         6 for any NaN
float8e8m0         ignores the sign; what is out of [2^-127, 2^127] before rounding saturates, or
                   becomes NaN without `saturate`

Every conversion rounds once. What rounds from float to a small type is reached through a float
that is exact or, for wider sources, rounded to odd: its last bit tells of all that was dropped.

string and the complex types are left out; CONVERTIBLE has the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from onnxc.dtypes import BY_NAME, DOUBLE, ELEMENT_TYPES, FLOAT, ElementType, numpy_dtype

CONVERTIBLE: Final = frozenset(t for t in ELEMENT_TYPES if t.kind not in ("complex", "string"))

_E8M0: Final = BY_NAME["float8e8m0"]
_INTEGERS: Final = ("signed", "unsigned")
_SMALL: Final = ("half", "bits")

Array = NDArray[Any]
Call = Callable[..., str]


def conversion_text(
    source: ElementType,
    target: ElementType,
    text: str,
    call: Call,
    *,
    saturate: bool = True,
    round_mode: str = "up",
) -> str:
    """A C expression of target's C type, for the value of `text`, an expression of source's.

    Both are in CONVERTIBLE. `text` and the result are operands of any C operator.
    call(function, *arguments) gives the text of a call of a function of runtime_c/. `saturate` is
    for the float8 types, `round_mode` ("up", "down" or "nearest") for float8e8m0.
    """
    if source is target:
        return text
    if source.kind in _SMALL:
        text = call(f"onnxc_float_of_{source}", text)
        source = FLOAT
        if target is FLOAT:
            return text
    match target.kind:
        case "float":
            return f"({target.c_type}){text}"
        case "bool" if source.kind != "float":
            return f"(uint8_t)({text} != 0)"
        case "half" if source is not FLOAT and source.bits > 16:
            return call(f"onnxc_{target}_of_double", _double_text(source, text, call))
        case "half":
            return call(f"onnxc_{target}_of_float", _odd_float_text(source, text, call))
        case "bits":
            text = _odd_float_text(source, text, call)
            if target is _E8M0:
                return call(f"onnxc_{target}_{round_mode}_of_float", text, str(int(saturate)))
            arguments = (str(int(saturate)),) if target.bits == 8 else ()
            return call(f"onnxc_{target}_of_float", text, *arguments)
    if source.kind == "float":
        return call(f"onnxc_{target}_of_{source}", text)
    return _integer_text(target, text, call)


def _integer_text(target: ElementType, text: str, call: Call) -> str:
    """The low bits of an integer."""
    if not target.packed:
        return f"({target.c_type}){text}"
    if target.kind == "unsigned":
        return f"(uint8_t)({text} & {(1 << target.bits) - 1})"
    return call(f"onnxc_{target}_of_uint32", f"(uint32_t){text}")


def _double_text(source: ElementType, text: str, call: Call) -> str:
    """A double, exact or rounded to odd, of an integer or a double."""
    if source is DOUBLE:
        return text
    if source.bits == 64:
        return call(f"onnxc_odd_double_of_{source}", text)
    return f"(double){text}"


def _odd_float_text(source: ElementType, text: str, call: Call) -> str:
    """A float, exact or rounded to odd, of anything but a small type."""
    if source is FLOAT:
        return text
    if source.bits > 16:
        return call("onnxc_odd_float_of_double", _double_text(source, text, call))
    return f"(float){text}"


@dataclass(frozen=True)
class _Format:
    """A small floating-point type: sign, exponent and mantissa, high to low.

    largest   the pattern of its largest number
    overflow  what is too large without saturation: infinity, NaN or, where the type has neither,
              the largest
    nan       with the sign bit where the type has one NaN alone
    """

    bits: int
    mantissa: int
    bias: int
    largest: int
    overflow: int
    nan: int

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def negative_zero(self) -> bool:
        return self.nan != self.sign


_FORMATS: Final = {
    "float16": _Format(16, 10, 15, 0x7BFF, 0x7C00, 0x7E00),
    "bfloat16": _Format(16, 7, 127, 0x7F7F, 0x7F80, 0x7FC0),
    "float8e4m3fn": _Format(8, 3, 7, 0x7E, 0x7F, 0x7F),
    "float8e4m3fnuz": _Format(8, 3, 8, 0x7F, 0x80, 0x80),
    "float8e5m2": _Format(8, 2, 15, 0x7B, 0x7C, 0x7E),
    "float8e5m2fnuz": _Format(8, 2, 16, 0x7F, 0x80, 0x80),
    "float4e2m1": _Format(4, 1, 1, 7, 7, 7),
}


def convert(
    array: Array,
    source: ElementType,
    target: ElementType,
    *,
    saturate: bool = True,
    round_mode: str = "up",
) -> Array:
    """The values of `array`, whose dtype is source's, in target's: what conversion_text computes.

    Both types are in CONVERTIBLE, dtypes are those of numpy_dtype, the shape stays. Never warns.
    """
    if source is target:
        return array
    with np.errstate(all="ignore"):  # overflow to infinity and signalling NaNs are no faults
        values = _plain(array, source)
        match target.kind:
            case "float":
                return np.asarray(values.astype(target.numpy))
            case "bool":
                return np.asarray(values != 0)
            case "half" | "bits":
                doubles = _doubles(values)
                if target is _E8M0:
                    codes = _e8m0_codes(doubles, saturate, round_mode)
                else:
                    codes = _codes(doubles, target, saturate)
                return codes.astype(f"uint{target.size * 8}").view(numpy_dtype(target))
        if values.dtype.kind == "f":
            values = _truncated(values, target)
        return _low_bits(values, target)


def _plain(array: Array, source: ElementType) -> Array:
    """The same values in a type that numpy itself has: float32 for the small floats."""
    if source is _E8M0:
        return _e8m0_values(array.view(np.uint8))
    if source.kind in _SMALL:
        return _values(array.view(f"uint{source.size * 8}"), source)
    if source.packed:
        return array.astype(f"{'u' if source.kind == 'unsigned' else ''}int8")
    return array.astype(np.uint8) if source.kind == "bool" else array


def _truncated(values: Array, target: ElementType) -> Array:
    """Integers of floats, saturated, in the smallest numpy type that holds target's."""
    dtype = np.dtype(f"{'u' if target.kind == 'unsigned' else ''}int{max(8, target.bits)}")
    signed = target.kind == "signed"
    low = -(1 << (target.bits - 1)) if signed else 0
    high = low + (1 << target.bits) - 1
    doubles = values.astype(np.float64)
    above = doubles >= float(high + 1)
    numbers = np.where((doubles > low) & ~above, doubles, 0.0).astype(dtype)
    numbers = np.where(above, dtype.type(high), numbers)
    return np.where(doubles <= low, dtype.type(low), numbers)


def _low_bits(values: Array, target: ElementType) -> Array:
    """Integers in target's dtype, their high bits dropped; a sub-byte one is a byte, low bits."""
    if not target.packed:
        return np.asarray(values.astype(target.numpy))
    low = values.astype(np.uint8) & np.uint8((1 << target.bits) - 1)
    return np.asarray(low).view(numpy_dtype(target))


def _doubles(values: Array) -> NDArray[np.float64]:
    """float64 of plain numbers, exact or, for large 64-bit integers, rounded to odd."""
    if values.dtype.kind in "iu" and values.dtype.itemsize == 8:
        kind = values.dtype.type
        sticky = np.where((values & kind(0xFFFF)) != 0, kind(0x10000), kind(0))
        odd = (values >> kind(16) << kind(16)) | sticky
        limit = 2**32
        small = (values < limit) if kind is np.uint64 else (values < limit) & (values > -limit)
        values = np.where(small, values, odd)
    return np.asarray(values.astype(np.float64))


def _codes(values: NDArray[np.float64], target: ElementType, saturate: bool) -> Array:
    """The patterns of a small type with a mantissa, as uint64."""
    form = _FORMATS[target.name]
    bits = values.view(np.uint64)
    magnitude = bits & np.uint64((1 << 63) - 1)
    saturates = saturate and target.kind == "bits"
    code = _rounded(magnitude, form)
    code = np.where(code > form.largest, form.largest if saturates else form.overflow, code)
    nan = np.full_like(code, form.nan)
    if target.kind == "half":
        payload = (1 << form.mantissa) - 1
        nan |= magnitude >> np.uint64(52 - form.mantissa) & np.uint64(payload)
    code = np.where(np.isnan(values), nan, code)
    signed = np.signbit(values)
    if not form.negative_zero:
        signed &= code != 0
    if target.name == "float4e2m1":
        signed &= ~np.isnan(values)
    return np.asarray(code | np.where(signed, np.uint64(form.sign), np.uint64(0)))


def _rounded(magnitude: NDArray[np.uint64], form: _Format) -> NDArray[np.uint64]:
    """Exponent and mantissa, rounded to nearest even, of doubles' bits without sign.

    Above form.largest where out of range. A denormal double, below half of any least number,
    becomes 0 whatever its hidden bit.
    """
    one = np.uint64(1)
    exponent = (magnitude >> np.uint64(52)).astype(np.int64) - 1023
    significand = magnitude & np.uint64((1 << 52) - 1) | np.uint64(1 << 52)
    lowest = 1 - form.bias
    dropped = 52 - form.mantissa + np.clip(lowest - exponent, 0, 11 + form.mantissa)
    shift = dropped.astype(np.uint64)
    kept = significand >> shift
    rest = significand & ((one << shift) - one)
    half = one << (shift - one)
    kept += (rest > half) | ((rest == half) & ((kept & one) == one))
    steps = (np.maximum(exponent, lowest) - lowest).astype(np.uint64)
    return np.asarray((steps << np.uint64(form.mantissa)) + kept)


def _values(codes: Array, source: ElementType) -> NDArray[np.float32]:
    """float32 of the patterns of a small type with a mantissa, exact."""
    form = _FORMATS[source.name]
    code = codes.astype(np.uint32)
    magnitude = code & np.uint32(form.sign - 1)
    exponent = (magnitude >> np.uint32(form.mantissa)).astype(np.int32)
    fraction = magnitude & np.uint32((1 << form.mantissa) - 1)
    hidden = np.where(exponent > 0, np.uint32(1 << form.mantissa), np.uint32(0))
    scale = np.maximum(exponent, 1) - (form.bias + form.mantissa)
    bits = np.ldexp((fraction | hidden).astype(np.float32), scale).view(np.uint32)
    if source.name in ("float16", "bfloat16", "float8e5m2"):
        payload = fraction << np.uint32(23 - form.mantissa) | np.uint32(0x7F800000)
        if source.kind == "bits":
            payload = np.where(fraction != 0, np.uint32(0x7FC00000), payload)
        bits = np.where(magnitude > form.largest, payload, bits)
    elif source.bits == 8:
        whole = magnitude if form.negative_zero else code
        bits = np.where(whole == form.nan, np.uint32(0x7FC00000), bits)
    sign = (code & np.uint32(form.sign)) << np.uint32(32 - form.bits)
    return np.asarray(bits | sign).view(np.float32)


def _e8m0_codes(values: NDArray[np.float64], saturate: bool, round_mode: str) -> Array:
    """The exponents of |values|, rounded, with a bias of 127."""
    magnitude = np.abs(values)
    bits = magnitude.view(np.uint64)
    addend = {"down": 0, "up": (1 << 52) - 1, "nearest": 1 << 51}[round_mode]
    codes = ((bits + np.uint64(addend)) >> np.uint64(52)).astype(np.int64) - (1023 - 127)
    codes = np.where(magnitude > 2.0**127, 254 if saturate else 255, codes)
    codes = np.where(magnitude < 2.0**-127, 0 if saturate else 255, codes)
    return np.where(np.isnan(values), 255, codes)


def _e8m0_values(codes: NDArray[np.uint8]) -> NDArray[np.float32]:
    """2^(code - 127); 255 is NaN."""
    powers = np.ldexp(np.float32(1), codes.astype(np.int32) - 127)
    quiet = np.uint32(0x7FC00000)
    return np.asarray(np.where(codes == 255, quiet, powers.view(np.uint32))).view(np.float32)
