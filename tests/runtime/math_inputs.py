"""Where the mathematical functions are tried: every exponent, and what lies near hard points."""

import math
from functools import cache
from typing import Any, Final

import mpmath
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

STRIDE: Final = 3989  # of the float bit patterns; a prime

# Where a function changes its formula, or its result becomes denormal, constant or infinite.
THRESHOLDS: Final = (
    *(0.25, 0.41, 0.5, 0.6, 0.625, 0.9, 1, 1.25, 1.75, 2, 3.95, 5.9, 10, 20, 88.72, 89.4, 103.97),
    *(709.78, 710.47, 745.13, 1600, 8192, 8e5, 2**23, 2**25, 2**28, 2**52, 2**53, 1e-4, 1e-8),
)
HALVES_OF_LOG_2: Final = tuple(k * math.log(2) / 2 for k in range(1, 40, 2))
MULTIPLES_OF_HALF_PI: Final = tuple(
    k * math.pi / 2 for k in (*range(1, 40), 1018, 1019, 509295, 509296)
)


def dtype(kind: str) -> np.dtype[Any]:
    return np.dtype({"float": np.float32, "double": np.float64}[kind])


def hard_points(kind: str, near: int) -> Array:
    """The points, and `near` values below and above each, with both signs; infinities and NaN."""
    limits = np.finfo(dtype(kind))
    ends = (0.0, limits.smallest_subnormal, limits.tiny, limits.max, math.inf)
    points = (*THRESHOLDS, *HALVES_OF_LOG_2, *MULTIPLES_OF_HALF_PI, *ends)
    bits = np.dtype(f"u{dtype(kind).itemsize}")
    steps = np.arange(-near, near + 1).astype(bits)
    patterns = np.array(points, dtype(kind)).view(bits)[:, None] + steps
    values = patterns.ravel().view(dtype(kind))
    return np.concatenate([values, -values])


@cache
def worst_multiples(kind: str) -> Array:
    """Of each exponent, the numbers closest to a multiple of pi / 2, where most digits cancel.

    Of x = m * 2^e, |m * 2^e / (pi / 2) - n| is smallest for the denominators m of the convergents
    of 2^e / (pi / 2), a continued fraction.
    """
    limits = np.finfo(dtype(kind))
    digits = int(limits.nmant) + 1
    found = []
    with mpmath.workprec(2500):
        for exponent in range(-digits, int(limits.maxexp) - digits, 1 if kind == "float" else 7):
            rest = mpmath.ldexp(2 / mpmath.pi, exponent) % 1
            before, denominator = 0, 1
            while denominator < 1 << digits:
                found.append(math.ldexp(denominator, exponent))
                rest = 1 / rest
                before, denominator = denominator, int(rest) * denominator + before
                rest %= 1
    return np.array(found, dtype(kind))


@cache
def float_inputs() -> Array:
    """Every STRIDE-th bit pattern, hard points, multiples of pi / 2."""
    patterns = np.arange(0, 1 << 32, STRIDE, dtype=np.uint64).astype(np.uint32)
    multiples = worst_multiples("float")
    return np.concatenate(
        [patterns.view(np.float32), hard_points("float", 150), multiples, -multiples]
    )


@cache
def double_inputs(count: int, near: int) -> Array:
    """`count` numbers: a quarter each of any bits, of small exponents, of two intervals; and
    hard points."""
    random = np.random.default_rng(count)
    quarter = count // 4
    any_bits = random.integers(-(1 << 63), 1 << 63, quarter, np.int64).view(np.float64)
    exponents = random.integers(-60, 30, quarter)
    small = np.ldexp(random.uniform(-1, 1, quarter), exponents)
    intervals = [random.uniform(-limit, limit, quarter) for limit in (1.1, 750)]
    return np.concatenate([any_bits, small, *intervals, hard_points("double", near)])
