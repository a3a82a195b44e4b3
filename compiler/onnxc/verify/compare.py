"""Comparing two arrays of one ONNX element type: how far apart, and whether that is too far.

Integers, bool and strings have to be equal. Floats and complex parts pass where both are NaN, where
they are equal (-0 is +0), where |got - expected| <= atol + rtol * |expected|, or where the error is
small beside the largest finite |expected| of the tensor, its scale: what is small there is often a
difference of large numbers, of which another order of summation changes more digits. The defaults
allow for that and for a library function that is a few ulp off; where a whole tensor is tiny, atol
falls with its scale, to a quarter. Float8 and float4 have so few values that theirs are 0.
With an rtol or atol of the caller's, only these count. `exact` asks for the same bits, any NaN for
any other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxc.arrays import STRING_KINDS, spelled, text_bytes
from onnxc.dtypes import ElementType, numpy_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Relative and absolute tolerance by element type; every other type has (0, 0).
DEFAULT_TOLERANCES: Final = {
    "double": (1e-10, 1e-12),
    "complex128": (1e-10, 1e-12),
    "float": (1e-4, 1e-6),
    "complex64": (1e-4, 1e-6),
    "float16": (4e-3, 1e-4),
    "bfloat16": (2**-6, 1e-3),
}
# How large an error may be beside the scale of the tensor.
SCALE_TOLERANCES: Final = {
    "double": 1e-13,
    "complex128": 1e-13,
    "float": 5e-5,
    "complex64": 5e-5,
    "float16": 5e-3,
    "bfloat16": 2**-6,
}
TINY: Final = 1e-2
"""Of the scale: the most that a default atol allows."""
NAN_DISTANCE: Final = 2**64 - 1


@dataclass(frozen=True)
class Tolerance:
    """What is asked for; None is the default of the element type."""

    exact: bool = False
    rtol: float | None = None
    atol: float | None = None

    def of(self, dtype: ElementType) -> tuple[float, float]:
        """rtol and atol of a float type."""
        rtol, atol = DEFAULT_TOLERANCES.get(dtype.name, (0.0, 0.0))
        return rtol if self.rtol is None else self.rtol, atol if self.atol is None else self.atol

    def bound(self, dtype: ElementType, expected: NDArray[np.float64]) -> NDArray[np.float64]:
        """The error that each element of a float type may have; `expected` may not be finite."""
        rtol, atol = self.of(dtype)
        if self.rtol is not None or self.atol is not None:
            return atol + rtol * np.abs(expected)
        scale = scale_of(expected)
        atol = min(atol, max(TINY * scale, atol / 4)) if scale else atol
        by_scale = SCALE_TOLERANCES.get(dtype.name, 0.0) * scale
        return np.maximum(atol + rtol * np.abs(expected), by_scale)


@dataclass(frozen=True)
class Mismatch:
    """One element that differs by more than the tolerance; values as text."""

    index: tuple[int, ...]
    got: str
    expected: str


@dataclass(frozen=True)
class Difference:
    """Two arrays compared.

    elements       of the output
    mismatches     elements that differ by more than the tolerance, `first` the first of them
    max_abs_error  None for strings; inf where one side is NaN or an infinity and the other is not
    max_rel_error  |got - expected| / |expected| over finite expected values other than 0;
                   None for everything but floats
    max_scaled_error  max_abs_error / the largest finite |expected|; None for everything but floats
    max_ulp_error  in units of the last place of the type; inf where one side alone is NaN;
                   None for everything but double, float, float16, bfloat16 and complex
    note           why the values could not be compared at all: another shape or type
    """

    elements: int
    mismatches: int
    first: Mismatch | None = None
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    max_ulp_error: float | None = None
    max_scaled_error: float | None = None
    note: str = ""

    @property
    def passed(self) -> bool:
        return not self.mismatches and not self.note


def compare(
    got: NDArray[Any], expected: NDArray[Any], dtype: ElementType, tolerance: Tolerance
) -> Difference:
    """`got` is an output as CompiledModel.run gives it, `expected` one of a reference."""
    if got.shape != expected.shape or not _same_type(got, expected):
        note = f"the reference returned {spelled(expected.dtype, expected.shape)}"
        return Difference(got.size, got.size, note=f"{note}, not {spelled(got.dtype, got.shape)}")
    if dtype.kind == "string":
        return _compare_strings(got, expected)
    if dtype.kind in ("signed", "unsigned", "bool"):
        return _compare_integers(got, expected, dtype)
    return _compare_floats(got, expected, dtype, tolerance)


def scale_of(expected: NDArray[np.float64]) -> float:
    """The largest finite magnitude; 0 of nothing."""
    magnitude = np.abs(expected)
    return float(magnitude.max(initial=0.0, where=np.isfinite(magnitude)))


def ulp_distance(left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.uint64]:
    """How many values of the type lie between the two, plus one: 0 for equal ones and -0 with +0.

    left, right  float16, bfloat16, float32 or float64, of one dtype and shape
    Two NaN are 0 apart, a NaN and a number 2**64 - 1.
    """
    bits = left.dtype.itemsize * 8
    unsigned = np.dtype(f"uint{bits}")
    magnitude_mask = np.uint64((1 << (bits - 1)) - 1)
    a = np.ascontiguousarray(left).view(unsigned).astype(np.uint64).reshape(left.shape)
    b = np.ascontiguousarray(right).view(unsigned).astype(np.uint64).reshape(right.shape)
    size_a, size_b = a & magnitude_mask, b & magnitude_mask
    same_sign = (a > magnitude_mask) == (b > magnitude_mask)
    apart = np.maximum(size_a, size_b) - np.minimum(size_a, size_b)
    distance = np.where(same_sign, apart, size_a + size_b)
    with np.errstate(invalid="ignore"):  # a signalling NaN would warn
        nan_left, nan_right = np.isnan(left), np.isnan(right)
    distance = np.where(nan_left & nan_right, np.uint64(0), distance)
    return np.where(nan_left ^ nan_right, np.uint64(NAN_DISTANCE), distance)


def _same_type(got: NDArray[Any], expected: NDArray[Any]) -> bool:
    if got.dtype.kind == "O":
        return expected.dtype.kind in STRING_KINDS
    return bool(got.dtype == expected.dtype)


def _compare_strings(got: NDArray[Any], expected: NDArray[Any]) -> Difference:
    pairs = zip(got.reshape(-1).tolist(), expected.reshape(-1).tolist(), strict=True)
    wrong = np.fromiter((text_bytes(g) != text_bytes(e) for g, e in pairs), np.bool_, got.size)
    return Difference(got.size, int(wrong.sum()), _first(wrong, got, expected))


def _compare_integers(got: NDArray[Any], expected: NDArray[Any], dtype: ElementType) -> Difference:
    wide = np.int64 if dtype.kind == "signed" else np.uint64
    a, b = got.astype(wide), expected.astype(wide)
    # The difference wraps to the right unsigned number, whatever the two signs are.
    error = np.maximum(a, b).view(np.uint64) - np.minimum(a, b).view(np.uint64)
    wrong = error != 0
    first = _first(wrong, got, expected)
    return Difference(got.size, int(wrong.sum()), first, int(error.max(initial=0)))


def _compare_floats(
    got: NDArray[Any], expected: NDArray[Any], dtype: ElementType, tolerance: Tolerance
) -> Difference:
    a, b = _parts(got, dtype), _parts(expected, dtype)
    with np.errstate(all="ignore"):
        wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
        equal = (wide_a == wide_b) | (np.isnan(wide_a) & np.isnan(wide_b))
        error = np.abs(wide_a - wide_b)
        error = np.where(equal, 0.0, np.where(np.isnan(error), math.inf, error))
        close = equal | (np.isfinite(error) & (error <= tolerance.bound(dtype, wide_b)))
        known = np.isfinite(wide_b) & (wide_b != 0)
        relative = np.divide(error, np.abs(wide_b), where=known, out=np.zeros_like(error))
    if tolerance.exact:
        close = equal & (np.isnan(wide_a) | (np.signbit(wide_a) == np.signbit(wide_b)))
    wrong = ~close.all(axis=-1)
    return Difference(
        got.size,
        int(wrong.sum()),
        _first(wrong, got, expected),
        float(error.max(initial=0.0)),
        float(relative.max(initial=0.0)),
        _max_ulp(a, b, dtype),
        _beside(float(error.max(initial=0.0)), scale_of(wide_b)),
    )


def _beside(error: float, scale: float) -> float:
    if not error:
        return 0.0
    return error / scale if scale else math.inf


def _max_ulp(a: NDArray[Any], b: NDArray[Any], dtype: ElementType) -> float | None:
    if dtype.kind == "bits":
        return None
    distance = int(ulp_distance(a, b).max(initial=0))
    return math.inf if distance == NAN_DISTANCE else distance


def _parts(array: NDArray[Any], dtype: ElementType) -> NDArray[Any]:
    """[elements, 1], or [elements, 2] for the two parts of a complex number."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if dtype.kind == "complex":
        return flat.view(flat.real.dtype).reshape(-1, 2)
    return flat.astype(numpy_dtype(dtype)).reshape(-1, 1)


def _first(wrong: NDArray[Any], got: NDArray[Any], expected: NDArray[Any]) -> Mismatch | None:
    if not wrong.any():
        return None
    index = tuple(map(int, np.unravel_index(int(wrong.argmax()), got.shape)))
    return Mismatch(index, _shown(got[index]), _shown(expected[index]))


def _shown(value: object) -> str:
    return repr(value) if isinstance(value, str | bytes) else str(value)
