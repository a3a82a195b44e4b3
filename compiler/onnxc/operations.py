"""The operations that an Apply may name: each one's result type, its numpy and its C, side by side.

What C has no operator for is a function of runtime_c/. Arithmetic is of float, double and integers,
which wrap; 16-bit floats are converted first (op.call does so), and nothing here traps.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxc.conversion import conversion_text, convert
from onnxc.dtypes import BOOL, ELEMENT_TYPES, INT32, ElementType, numpy_dtype
from onnxc.packing import pack_elements

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

Call = Callable[..., str]
"""call(function, *arguments): the C text of a call; notes the function as needed."""


@dataclass(frozen=True)
class Types:
    """Of one Apply: the type of its result and those of its operands."""

    result: ElementType
    operands: tuple[ElementType, ...]

    @property
    def first(self) -> ElementType:
        return self.operands[0]


@dataclass(frozen=True)
class Operation:
    """evaluate(types, *arrays) in numpy; text(types, call, *texts) in C.

    result   None where the Apply says it, else "bool", or "same": as that of the last operand
    kinds    what the operands may be
    """

    evaluate: Callable[..., Array]
    text: Callable[..., str]
    result: str | None
    kinds: frozenset[str]


OPERATIONS: Final[dict[str, Operation]] = {}

_FLOATS: Final = ("float",)
_INTEGERS: Final = ("signed", "unsigned")
_NUMBERS: Final = (*_FLOATS, *_INTEGERS)
_ANY: Final = ("float", "half", "bits", "signed", "unsigned", "bool", "complex", "string")


def _define(
    name: str,
    evaluate: Callable[..., Array],
    text: Callable[..., str],
    kinds: tuple[str, ...],
    result: str | None = "same",
) -> None:
    OPERATIONS[name] = Operation(evaluate, text, result, frozenset(kinds))


def _numpy(function: Callable[..., Any]) -> Callable[..., Array]:
    """A numpy function of the operands' own type."""
    return lambda types, *arrays: np.asarray(function(*arrays), numpy_dtype(types.result))


def _precise(function: Callable[..., Any]) -> Callable[..., Array]:
    """A numpy function of doubles, its result rounded once."""

    def evaluate(types: Types, *arrays: Array) -> Array:
        wide = [array.astype(np.float64) for array in arrays]
        return np.asarray(function(*wide)).astype(numpy_dtype(types.result))

    return evaluate


def _unsigned(dtype: ElementType) -> str:
    return "uint64_t" if dtype.bits > 32 else "uint32_t"


def _wrapping(symbol: str) -> Callable[..., str]:
    """In C unsigned arithmetic wraps, and no other; short integers become int before."""

    def text(types: Types, _call: Call, left: str, right: str) -> str:
        dtype = types.first
        if dtype.kind == "float" or (dtype.kind == "unsigned" and dtype.bits >= 32):
            return infix(left, symbol, right)
        wide = _unsigned(dtype)
        return f"({dtype.c_type})(({wide}){left} {symbol} ({wide}){right})"

    return text


def _negated(types: Types, _call: Call, value: str) -> str:
    dtype = types.first
    if dtype.kind == "float":
        return f"(-{value})"
    return f"({dtype.c_type})(0 - ({_unsigned(dtype)}){value})"


def infix(left: str, symbol: str, right: str) -> str:
    """left symbol right; a negative literal is not added but its magnitude subtracted."""
    if symbol in ("+", "-") and re.match(r"-[0-9]", right):
        symbol, right = "-" if symbol == "+" else "+", right[1:]
    return f"({left} {symbol} {right})"


def _infix(symbol: str) -> Callable[..., str]:
    return lambda types, call, left, right: f"({left} {symbol} {right})"


def plain_text(types: Types, operation: str, texts: list[str]) -> str:
    """add, sub, mul or neg of integers whose exact result the type holds."""
    narrow = f"({types.result.c_type})" if types.result.bits < 32 else ""
    if operation == "neg":
        return f"{narrow}(-{texts[0]})"
    return narrow + infix(texts[0], {"add": "+", "sub": "-", "mul": "*"}[operation], texts[1])


def _logical(symbol: str) -> Callable[..., str]:
    """Without a branch. clang takes & and | for slips where the right side is a test of a call."""

    def text(_types: Types, _call: Call, left: str, right: str) -> str:
        test_of_call = right.startswith("(") and re.search(r"\w\(", right)
        return f"({left} {symbol} {'(uint8_t)' if test_of_call else ''}{right})"

    return text


def _bitwise(symbol: str) -> Callable[..., str]:
    def text(types: Types, _call: Call, left: str, right: str) -> str:
        cast = f"({types.first.c_type})" if types.first.bits < 32 else ""
        return f"{cast}({left} {symbol} {right})"

    return text


def _bit_not(types: Types, _call: Call, value: str) -> str:
    cast = f"({types.first.c_type})" if types.first.bits < 32 else ""
    return f"{cast}(~{value})" if cast else f"(~{value})"


def _shift(direction: str) -> Callable[..., str]:
    """A distance below 0 is beyond the width too, as an unsigned number."""

    def text(types: Types, call: Call, value: str, by: str) -> str:
        dtype = types.first
        width = 64 if dtype.bits > 32 else 32
        signed = dtype.kind == "signed" and direction == "right"
        kind = f"{'int' if signed else 'uint'}{width}"
        moved = call(
            f"onnxc_shift_{direction}_{kind}", f"({kind}_t){value}", f"(uint{width}_t){by}"
        )
        return f"({dtype.c_type}){moved}"

    return text


def _shifted(left: bool) -> Callable[..., Array]:
    """By the width or more, or less than 0, only copies of the sign are left."""

    def evaluate(types: Types, values: Array, by: Array) -> Array:
        gone = (by >= types.first.bits) | (by < 0)
        count = np.where(gone, values.dtype.type(0), by)
        moved = np.left_shift(values, count) if left else np.right_shift(values, count)
        rest = values.dtype.type(0) if left else -(values < 0).astype(values.dtype)
        return np.asarray(np.where(gone, rest, moved), values.dtype)

    return evaluate


def _typed_call(function: str) -> Callable[..., str]:
    """onnxc_<function>_<type>(operands)."""

    def text(types: Types, call: Call, *operands: str) -> str:
        return call(f"onnxc_{function}_{types.first.name}", *operands)

    return text


def _wide_call(function: str) -> Callable[..., str]:
    """As _typed_call; integers of less than 32 bits take the function for 32."""

    def text(types: Types, call: Call, *operands: str) -> str:
        dtype = types.first
        if dtype.kind == "float" or dtype.bits >= 32:
            return call(f"onnxc_{function}_{dtype.name}", *operands)
        sign = "int" if dtype.kind == "signed" else "uint"
        return f"({dtype.c_type})" + call(f"onnxc_{function}_{sign}32", *operands)

    return text


def _extreme_text(symbol: str, function: str) -> Callable[..., str]:
    def text(types: Types, call: Call, left: str, right: str) -> str:
        if types.first.kind == "float":
            return call(f"onnxc_{function}_{types.first.name}", left, right)
        return _chosen(types.first, f"({left} {symbol} {right} ? {left} : {right})")

    return text


def _extreme(*, largest: bool) -> Callable[..., Array]:
    """A NaN stays; of two zeros the largest is +0, the least -0: the bits of onnxc_max_float."""

    def evaluate(_types: Types, left: Array, right: Array) -> Array:
        if left.dtype.kind != "f":
            return np.asarray((np.maximum if largest else np.minimum)(left, right))
        unsigned = np.dtype(f"u{left.dtype.itemsize}")
        sign = unsigned.type(1 << (8 * left.dtype.itemsize - 1)) if largest else unsigned.type(0)
        first, second = ((a.view(unsigned) ^ sign) for a in (left, right))
        less, greater = (left < right, right < left) if largest else (left > right, right > left)
        nothing = unsigned.type(0)
        both = np.where(less, nothing, first) | np.where(greater, nothing, second)
        return np.asarray((both ^ sign).view(left.dtype))

    return evaluate


def _divided(_types: Types, left: Array, right: Array) -> Array:
    """Of integers toward zero; the least by -1 wraps; by zero gives zero."""
    if left.dtype.kind == "f":
        return np.asarray(np.divide(left, right))
    quotient, rest = np.asarray(np.floor_divide(left, right)), np.remainder(left, right)
    toward_zero = (rest != 0) & ((left < 0) != (right < 0))
    return np.asarray(np.where(right == 0, 0, quotient + toward_zero), left.dtype)


def _remainder(_types: Types, left: Array, right: Array) -> Array:
    """With the sign of the dividend, as C's %; by zero gives zero."""
    return np.asarray(np.where(right == 0, 0, np.fmod(left, right)), left.dtype)


def _powers(types: Types, base: Array, exponent: Array) -> Array:
    """Integer powers, which wrap; of a negative exponent the value in double, converted."""
    base, exponent = np.broadcast_arrays(base, exponent)
    result, square, left = np.ones_like(base), base.copy(), np.maximum(exponent, 0)
    while left.any():
        result = np.where(left & 1, result * square, result)
        square, left = square * square, left >> 1
    odd = np.where(exponent & 1, base, np.ones_like(base))
    greatest = np.iinfo(base.dtype).max
    inverse = np.where(base == 0, greatest, np.where(np.abs(base) == 1, odd, 0))
    return np.asarray(np.where(exponent < 0, inverse, result), base.dtype)


def _power_text(types: Types, call: Call, base: str, exponent: str) -> str:
    return call(f"onnxc_power_{types.first.name}", base, exponent)


def _equal(types: Types, left: Array, right: Array) -> Array:
    with np.errstate(invalid="ignore"):  # ml_dtypes warns of a NaN
        return np.asarray(left == right, np.bool_)


def _equal_text(types: Types, call: Call, left: str, right: str) -> str:
    dtype = types.first
    if dtype.kind in ("half", "complex", "string"):
        return call(f"onnxc_equal_{dtype.name}", left, right)
    if left == right and dtype.kind != "float":
        return "1"  # two checks of one value: compilers warn of v == v
    return f"({left} == {right})"


def _pack(types: Types, *values: Array) -> Array:
    shape = np.broadcast_shapes(*(value.shape for value in values))
    grouped = np.stack([np.broadcast_to(value, shape) for value in values], axis=-1)
    return pack_elements(grouped.reshape(-1), types.first).reshape(shape)


def _where_text(types: Types, _call: Call, condition: str, then: str, otherwise: str) -> str:
    return _chosen(types.result, f"({condition} ? {then} : {otherwise})")


def _chosen(dtype: ElementType, text: str) -> str:
    """gcc warns where one choice within another, which is an int, becomes a shorter type."""
    narrow = dtype.size < 4 and dtype.kind not in ("float", "string", "complex")
    return f"({dtype.c_type}){text}" if narrow and text.count("?") > 1 else text


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1 / (1 + small), small / (1 + small)))


def _each(function: Callable[[float], float]) -> Callable[[Array], Array]:
    return np.vectorize(function, otypes=[np.float64])


_define("add", _numpy(np.add), _wrapping("+"), _NUMBERS)
_define("sub", _numpy(np.subtract), _wrapping("-"), _NUMBERS)
_define("mul", _numpy(np.multiply), _wrapping("*"), _NUMBERS)
_define("neg", _numpy(np.negative), _negated, _NUMBERS)
_define("abs", _numpy(np.abs), _typed_call("abs"), _FLOATS)
_define("max", _extreme(largest=True), _extreme_text(">", "max"), _NUMBERS)
_define("min", _extreme(largest=False), _extreme_text("<", "min"), _NUMBERS)
_define(
    "div",
    _divided,
    lambda types, call, left, right: (
        f"({left} / {right})"
        if types.first.kind == "float"
        else _wide_call("divide")(types, call, left, right)
    ),
    _NUMBERS,
)
_define("remainder", _remainder, _wide_call("remainder"), _INTEGERS)

_define("power", _powers, _power_text, _INTEGERS, None)

_define("equal", _equal, _equal_text, tuple(k for k in _ANY if k != "bits"), "bool")
_define("less", _numpy(np.less), _infix("<"), _NUMBERS, "bool")
_define("less_equal", _numpy(np.less_equal), _infix("<="), _NUMBERS, "bool")
_define("is_nan", _numpy(np.isnan), _typed_call("is_nan"), _FLOATS, "bool")
_define("is_inf", _numpy(np.isinf), _typed_call("is_inf"), _FLOATS, "bool")
_define("signbit", _numpy(np.signbit), lambda t, c, x: f"(signbit({x}) != 0)", _FLOATS, "bool")

_define("and", _numpy(np.logical_and), _logical("&"), ("bool",))
_define("or", _numpy(np.logical_or), _logical("|"), ("bool",))
_define("xor", _numpy(np.logical_xor), _infix("^"), ("bool",))
_define("not", _numpy(np.logical_not), lambda t, c, x: f"(!{x})", ("bool",))
_define("bit_and", _numpy(np.bitwise_and), _bitwise("&"), _INTEGERS)
_define("bit_or", _numpy(np.bitwise_or), _bitwise("|"), _INTEGERS)
_define("bit_xor", _numpy(np.bitwise_xor), _bitwise("^"), _INTEGERS)
_define("bit_not", _numpy(np.bitwise_not), _bit_not, _INTEGERS)
_define("shift_left", _shifted(left=True), _shift("left"), _INTEGERS)
_define("shift_right", _shifted(left=False), _shift("right"), _INTEGERS)

for _name in ("floor", "ceil", "trunc", "sqrt"):
    _define(_name, _numpy(getattr(np, _name)), _typed_call(_name), _FLOATS)
_define("round", _numpy(np.rint), _typed_call("round"), _FLOATS)
_define("mod", _numpy(np.fmod), _typed_call("mod"), _FLOATS)

_MATH: Final[dict[str, Callable[..., Any]]] = {
    **{name: getattr(np, name) for name in ("exp", "expm1", "log", "log1p")},
    **{name: getattr(np, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": _each(math.erf),
    "pow": np.power,
    "sigmoid": _sigmoid,
    "softplus": lambda x: np.logaddexp(0, x),
}
for _name, _function in _MATH.items():
    _define(_name, _precise(_function), _typed_call(_name), _FLOATS)

_define(
    "where",
    lambda types, condition, then, otherwise: np.asarray(np.where(condition, then, otherwise)),
    _where_text,
    _ANY,
)
_define(
    "truth",
    lambda types, value: np.asarray(value.view(np.uint8) != 0),
    lambda types, call, value: f"({value} != 0)",
    ("bool",),
)
_define(
    "pack",
    _pack,
    lambda types, call, *values: call(f"onnxc_pack{types.first.bits}", *values),
    _ANY,
    None,
)


def _quantised(types: Types, ratio: Array, zero_point: Array) -> Array:
    nearest = np.where(np.isnan(ratio), zero_point, np.rint(ratio) + zero_point)
    return convert(nearest, types.first, types.result)


def _quantised_text(types: Types, call: Call, ratio: str, zero_point: str) -> str:
    target = types.result
    least = -(1 << (target.bits - 1)) if target.kind == "signed" else 0
    bounds = (str(least), str(least + (1 << target.bits) - 1))
    nearest = call("onnxc_quantised_float", ratio, zero_point, *bounds)
    return conversion_text(INT32, target, nearest, call)


_define("quantise", _quantised, _quantised_text, _FLOATS, None)
"""To an integer of up to 16 bits, of a float: the nearest, half to even, plus a zero point that
such an integer holds, saturated; of a NaN the zero point."""


def _define_cast(name: str, *, saturate: bool = True, round_mode: str = "up") -> None:
    def evaluate(types: Types, value: Array) -> Array:
        return convert(value, types.first, types.result, saturate=saturate, round_mode=round_mode)

    def text(types: Types, call: Call, value: str) -> str:
        return conversion_text(
            types.first, types.result, value, call, saturate=saturate, round_mode=round_mode
        )

    _define(name, evaluate, text, _ANY, None)


def cast_name(saturate: bool = True, round_mode: str = "up") -> str:
    """The operation that casts with these attributes of Cast."""
    return (
        f"cast{'' if saturate else '_unsaturated'}{'' if round_mode == 'up' else '_' + round_mode}"
    )


ROUND_MODES: Final = ("up", "down", "nearest")
for _saturate in (True, False):
    for _mode in ROUND_MODES:
        _define_cast(cast_name(_saturate, _mode), saturate=_saturate, round_mode=_mode)


def _define_rounding(half: ElementType) -> None:
    """as_<half>: the nearest number of a type of 16 bits, as a float: cast there and back."""

    def evaluate(types: Types, value: Array) -> Array:
        return convert(convert(value, types.first, half), half, types.result)

    _define(f"as_{half}", evaluate, _typed_call(f"as_{half}"), _FLOATS)


HALVES: Final = tuple(dtype for dtype in ELEMENT_TYPES if dtype.kind == "half")
for _half in HALVES:
    _define_rounding(_half)


def _reinterpreted(types: Types, call: Call, value: str) -> str:
    source, target = types.first, types.result
    if target.kind in ("float", "complex"):
        unsigned = f"({'uint32_t' if target.bits == 32 else 'uint64_t'}){value}"
        bits = unsigned if source.kind != "float" else value
        return call(f"onnxc_{target.name}_of_bits", bits)
    if source.kind in ("float", "complex"):
        return f"({target.c_type}){call(f'onnxc_bits_of_{source.name}', value)}"
    return f"({target.c_type}){value}"


# The bits as they are, of another type of the same size.
_define(
    "reinterpret",
    lambda types, value: (
        np.ascontiguousarray(value).view(numpy_dtype(types.result)).reshape(value.shape)
    ),
    _reinterpreted,
    _ANY,
    None,
)


def result_type(operation: str, operands: tuple[ElementType, ...]) -> ElementType:
    """Of an operation that fixes it. Raises KeyError for one that leaves it to the Apply."""
    rule = {"bool": BOOL, "same": operands[-1]}
    return rule[OPERATIONS[operation].result or ""]
