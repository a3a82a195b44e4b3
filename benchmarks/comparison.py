"""Whether outputs are right: onnxruntime's beside others'."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

TOLERANCE: Final[Mapping[str, float]] = {"float16": 4e-3, "bfloat16": 4e-2}
"""The largest error of a float type, as a part of the largest value of the output; else 1e-4."""
TIES: Final = 1e-3
"""The part of a small integer output that may be off by one: what lies between two roundings."""


def largest_error(
    found: Mapping[str, NDArray[Any]], right: Mapping[str, NDArray[Any]]
) -> tuple[float, list[str]]:
    """The largest absolute difference, and what is wrong with the outputs `found`."""
    largest, problems = 0.0, []
    for name, expected in right.items():
        got = found[name]
        if got.shape != expected.shape or got.dtype != expected.dtype:
            mine, others = (f"{a.dtype}{list(a.shape)}" for a in (got, expected))
            problems.append(f"{name} is {mine}, not {others}")
            continue
        if expected.dtype.hasobject or expected.dtype.kind in "US":
            if not np.array_equal(got, expected):
                problems.append(f"{name} has other strings")
            continue
        error, problem = _compared(got, expected)
        largest = max(largest, error)
        if problem:
            problems.append(f"{name} {problem}")
    return largest, problems


def _compared(got: NDArray[Any], expected: NDArray[Any]) -> tuple[float, str]:
    """The largest difference of two arrays of numbers, and what is wrong, or nothing."""
    kind = np.complex128 if expected.dtype.kind == "c" else np.float64
    ours, theirs = got.astype(kind), expected.astype(kind)
    same = (got == expected) | (np.isnan(ours) & np.isnan(theirs))
    if same.all():
        return 0.0, ""
    with np.errstate(invalid="ignore"):  # infinity less infinity, where both have it
        difference = np.where(same, 0, np.abs(ours - theirs))
    largest = float(difference.max())
    many = f"differs in {np.count_nonzero(~same)} of {same.size} places, by up to {largest:.3g}"
    if np.isnan(largest) or np.isinf(largest):
        return largest, many
    if expected.dtype.kind in "iub":
        ties = expected.dtype.itemsize == 1 and largest <= 1 and (~same).mean() <= TIES
        return largest, "" if ties else many
    finite = np.abs(theirs[np.isfinite(theirs)])
    scale = float(finite.max(initial=0))
    good = largest <= TOLERANCE.get(expected.dtype.name, 1e-4) * scale
    return largest, "" if good else many
