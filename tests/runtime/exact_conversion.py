"""Cast by the letter, one value at a time, in rational numbers: slow, and with nothing of onnxc.

A number is a Fraction; what is none is one of NAN, INFINITY, -INFINITY. Zero has no sign here.
"""

import math
from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property

NAN, INFINITY = math.nan, math.inf
Value = Fraction | float


def power(exponent: int) -> Fraction:
    """Of two."""
    return Fraction(2**exponent) if exponent >= 0 else Fraction(1, 2**-exponent)


@dataclass(frozen=True)
class Format:
    """exponent and mantissa bits, bias; `top` numbers have the largest exponent field.

    infinite  whether the pattern after the largest number is infinity
    nan       whether there is a NaN
    """

    exponent: int
    mantissa: int
    bias: int
    top: int
    infinite: bool = False
    nan: bool = True

    def number(self, code: int) -> Fraction:
        """The value of exponent and mantissa fields, by IEEE 754's formula."""
        exponent, fraction = divmod(code, 1 << self.mantissa)
        significand = Fraction(fraction, 1 << self.mantissa) + int(exponent > 0)
        return significand * power(max(exponent, 1) - self.bias)

    @property
    def largest(self) -> int:
        return ((1 << self.exponent) - 1 << self.mantissa) + self.top - 1

    @cached_property
    def numbers(self) -> list[Fraction]:
        """All that are not negative, and the one that a wider exponent would give next."""
        return [self.number(code) for code in range(self.largest + 2)]

    def nearest(self, number: Fraction) -> int:
        """The code of the nearest to a number >= 0, a tie to even; largest + 1 is out of range."""
        numbers = self.numbers
        below = min(bisect_right(numbers, number) - 1, self.largest)
        middle = (numbers[below] + numbers[below + 1]) / 2
        up = number > middle or (number == middle and below % 2 == 1)
        return below + int(up)


FORMATS = {
    "float16": Format(5, 10, 15, 0, infinite=True),
    "bfloat16": Format(8, 7, 127, 0, infinite=True),
    "float8e4m3fn": Format(4, 3, 7, 7),
    "float8e4m3fnuz": Format(4, 3, 8, 8),
    "float8e5m2": Format(5, 2, 15, 0, infinite=True),
    "float8e5m2fnuz": Format(5, 2, 16, 4),
    "float4e2m1": Format(2, 1, 1, 2, nan=False),
}
IEEE = {"float": (8, 23), "double": (11, 52), "float16": (5, 10), "bfloat16": (8, 7)}
ONE_NAN = ("float8e4m3fnuz", "float8e5m2fnuz")


def decoded(code: int, name: str, bits: int) -> Value:
    """The value of a pattern."""
    if name.startswith(("int", "uint", "bool")):
        signed = name.startswith("int") and code >= 1 << (bits - 1)
        return Fraction(code - (signed << bits))
    if name == "float8e8m0":
        return NAN if code == 255 else power(code - 127)
    sign, magnitude = divmod(code, 1 << (bits - 1))
    sign = -1 if sign else 1
    if name in ONE_NAN and sign < 0 and magnitude == 0:
        return NAN
    if name in IEEE:
        exponent, mantissa = IEEE[name]
        form = Format(exponent, mantissa, 2 ** (exponent - 1) - 1, 0, infinite=True)
    else:
        form = FORMATS[name]
    if magnitude > form.largest:
        infinite = form.infinite and magnitude == form.largest + 1
        return sign * INFINITY if infinite else NAN
    return sign * form.number(magnitude)


def cast(value: Value, name: str, bits: int, saturate: bool, round_mode: str) -> Value:
    """What a value becomes in the type `name` of `bits` bits, not float or double."""
    if name == "bool":
        return Fraction(value != 0)
    if name.startswith(("int", "uint")):
        return Fraction(_to_integer(value, name, bits))
    if name == "float8e8m0":
        return _to_exponent(value, saturate, round_mode)
    return _to_float(value, name, saturate)


def wrapped(number: int, name: str, bits: int) -> int:
    """The integer of the low bits, two's complement."""
    low = -(1 << (bits - 1)) if name.startswith("int") else 0
    return (number - low) % (1 << bits) + low


def _to_integer(value: Value, name: str, bits: int) -> int:
    low = -(1 << (bits - 1)) if name.startswith("int") else 0
    high = low + (1 << bits) - 1
    if value != value:
        return 0
    if abs(value) == INFINITY:
        return high if value > 0 else low
    return min(max(math.trunc(value), low), high)


def _to_float(value: Value, name: str, saturate: bool) -> Value:
    form = FORMATS[name]
    largest = form.number(form.largest)
    if value != value:
        return NAN if form.nan else largest
    saturates = not form.nan or (saturate and name.startswith("float8"))
    code = form.largest + 1
    if isinstance(value, Fraction):
        code = form.nearest(abs(value))
    if code <= form.largest:
        result: Value = form.number(code)
    elif saturates:
        result = largest
    else:
        result = INFINITY if form.infinite else NAN
    return result if value > 0 else -result


def _to_exponent(value: Value, saturate: bool, round_mode: str) -> Value:
    least, largest = power(-127), power(127)
    value = max(value, -value)
    if value != value:
        return NAN
    if value > largest:
        return largest if saturate else NAN
    if value < least:
        return least if saturate else NAN
    assert isinstance(value, Fraction)
    below = _power_below(value)
    if round_mode == "up":
        return below if value == below else 2 * below
    return 2 * below if round_mode == "nearest" and value >= Fraction(3, 2) * below else below


@cache
def _power_below(value: Fraction) -> Fraction:
    exponent = -127
    while power(exponent + 1) <= value:
        exponent += 1
    return power(exponent)
