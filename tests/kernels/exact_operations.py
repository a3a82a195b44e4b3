"""Every operation but the casts and the mathematical functions, one value at a time, exactly.

Integers are Python's, floats numpy scalars; nothing of onnxc takes part but the types.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from onnxc.dtypes import ElementType, numpy_dtype


def wrapped(number: int, dtype: ElementType) -> int:
    low = -(1 << (dtype.bits - 1)) if dtype.kind == "signed" else 0
    return (number - low) % (1 << dtype.bits) + low


def _quotient(a: int, b: int) -> int:
    """Toward zero; by zero 0."""
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _left(a: int, b: int, bits: int) -> int:
    return a << b if 0 <= b < bits else 0


def _right(a: int, b: int, bits: int) -> int:
    return a >> (b if 0 <= b < bits else bits)


def _power(base: int, exponent: int, dtype: ElementType) -> int:
    """Of a negative exponent the value in double, converted: 1 / 0 saturates."""
    if exponent >= 0:
        return pow(base, exponent, 1 << dtype.bits)
    if base == 0:
        return (1 << (dtype.bits - (dtype.kind == "signed"))) - 1
    if abs(base) == 1:
        return base if exponent % 2 else 1
    return 0


INTEGERS: Final[dict[str, Callable[..., int]]] = {
    "add": lambda t, a, b: a + b,
    "sub": lambda t, a, b: a - b,
    "mul": lambda t, a, b: a * b,
    "neg": lambda t, a: -a,
    "max": lambda t, a, b: max(a, b),
    "min": lambda t, a, b: min(a, b),
    "div": lambda t, a, b: _quotient(a, b),
    "remainder": lambda t, a, b: a - _quotient(a, b) * b if b else 0,
    "power": lambda t, a, b: _power(a, b, t),
    "bit_and": lambda t, a, b: a & b,
    "bit_or": lambda t, a, b: a | b,
    "bit_xor": lambda t, a, b: a ^ b,
    "bit_not": lambda t, a: ~a,
    "shift_left": lambda t, a, b: _left(a, b, t.bits),
    "shift_right": lambda t, a, b: _right(a, b, t.bits),
}


def _extreme(a: Any, b: Any, sign: int) -> Any:
    """A NaN stays; of two zeros max takes +0, min -0."""
    if a != a or b != b:
        return a.dtype.type(np.nan)
    return max(a, b, key=lambda v: (sign * float(v), sign * -int(np.signbit(v))))


def _integral(function: Callable[[float], int]) -> Callable[[Any], Any]:
    """What is integral in a float anyway; a zero has the sign of the value."""

    def exact(x: Any) -> Any:
        return math.copysign(function(float(x)), x) if np.isfinite(x) else x

    return exact


def _mod(a: Any, b: Any) -> float:
    """fmod, exact in double and representable in the operands' type."""
    if np.isinf(a) or b == 0 or a != a or b != b:
        return math.nan
    return math.fmod(a, b)


FLOATS: Final[dict[str, Callable[..., Any]]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "neg": lambda a: math.copysign(1, -math.copysign(1, a)) * abs(a),
    "abs": abs,
    "max": lambda a, b: _extreme(a, b, 1),
    "min": lambda a, b: _extreme(a, b, -1),
    "floor": _integral(math.floor),
    "ceil": _integral(math.ceil),
    "trunc": _integral(math.trunc),
    "round": _integral(round),
    "sqrt": lambda a: math.sqrt(a) if a >= 0 else a if a == 0 else math.nan,
    "mod": _mod,
}

BOOLS: Final[dict[str, Callable[..., bool]]] = {
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "xor": lambda a, b: a != b,
    "not": lambda a: not a,
}

COMPARISONS: Final[dict[str, Callable[..., bool]]] = {
    "equal": lambda a, b: a == b,
    "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b,
    "is_nan": lambda a: a != a,
    "is_inf": lambda a: abs(a) == math.inf,
    "signbit": lambda a: math.copysign(1, a) < 0,
}


def exact(operation: str, dtype: ElementType, *values: Any) -> Any:
    """The result as a numpy scalar; `dtype` is that of the first operand, but of where's second."""
    with np.errstate(all="ignore"):
        if operation == "where":
            return values[1] if values[0] else values[2]
        if operation in COMPARISONS:
            return np.bool_(COMPARISONS[operation](*values))
        if operation in BOOLS:
            return np.bool_(BOOLS[operation](*values))
        of_numpy = numpy_dtype(dtype).type
        if dtype.kind == "float":
            return of_numpy(FLOATS[operation](*values))
        return of_numpy(wrapped(INTEGERS[operation](dtype, *map(int, values)), dtype))
