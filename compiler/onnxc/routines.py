"""What a Routine computes, in numpy: the counterpart of its template below kernels/."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxc.kernel import Routine
from onnxc.status import Status

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

Evaluate = Callable[[Routine, Sequence[Any]], tuple[Sequence[Any], Status]]


@dataclass(frozen=True)
class RoutineKind:
    """One routine: kernels/<name>.c.j2 writes the body of its C function.

    evaluate  the outputs from the inputs, shaped and unpacked, and a status
    inputs    the names of the C function's parameters, in the order of the Routine's buffers; the
              last may be left out
    vectors   whether its loops are worth a function for each variant of the target

    A template whose body declares `unsigned flags = 0;` makes the function return the status in it.
    """

    evaluate: Evaluate
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    scratch: tuple[str, ...] = ()
    vectors: bool = False


def _cumulated(routine: Routine, inputs: Sequence[Any]) -> tuple[Sequence[Any], Status]:
    """Running sums or products along the middle one of three dimensions.

    Float sums carry what rounding takes from them, and add it as soon as it counts.
    """
    parameters = dict(routine.parameters)
    x = inputs[0].reshape(parameters["outer"], parameters["length"], parameters["inner"])
    out = np.empty_like(x)
    sums = parameters["operation"] == "sum"
    total = np.full((len(x), x.shape[2]), 0 if sums else 1, x.dtype)
    error = np.zeros_like(total)
    with np.errstate(all="ignore"):
        for n in range(x.shape[1])[:: -1 if parameters["reverse"] else 1]:
            value, before = x[:, n], total
            if sums and x.dtype.kind == "f":
                total, error = add_exactly(before, error, value)
            else:
                total = before + value if sums else before * value
            out[:, n] = before if parameters["exclusive"] else total
    return [out], Status.OK


def add_exactly(total: Array, error: Array, value: Array) -> tuple[Array, Array]:
    """A sum in two parts and a value: what rounding takes goes into the second (onnxc_sum.h)."""
    after = total + value
    part = after - total
    lost = error + ((total - (after - part)) + (value - part))
    corrected = np.asarray(np.where(np.isfinite(lost), after + lost, after))
    return corrected, lost - (corrected - after)


def _determinants(routine: Routine, inputs: Sequence[Any]) -> tuple[Sequence[Any], Status]:
    """By elimination in double, with the largest pivot of each column; a NaN is the largest."""
    parameters = dict(routine.parameters)
    size = parameters["size"]
    found = []
    with np.errstate(all="ignore"):
        for matrix in inputs[0].reshape(parameters["matrices"], size, size).astype(np.float64):
            product = np.float64(1)
            for step in range(size):
                column = np.abs(matrix[step:, step])
                unknown = np.flatnonzero(np.isnan(column))
                pivot = step + int(unknown[-1] if len(unknown) else np.argmax(column))
                if pivot != step:
                    product = -product
                    matrix[[step, pivot], step:] = matrix[[pivot, step], step:]
                largest = matrix[step, step]
                product = product * largest
                below = matrix[step + 1 :, step]
                factors = below / largest if abs(largest) > 0 else np.zeros_like(below)
                matrix[step + 1 :, step + 1 :] -= np.outer(factors, matrix[step, step + 1 :])
            found.append(product)
    return [np.asarray(found)], Status.OK


def _top_k(routine: Routine, inputs: Sequence[Any]) -> tuple[Sequence[Any], Status]:
    """Positions of the first k along the middle one of three dimensions."""
    parameters = dict(routine.parameters)
    keys = inputs[0].reshape(parameters["outer"], parameters["length"], parameters["inner"])
    ranks = _ranks(keys)
    order = np.argsort(-ranks if parameters["largest"] else ranks, axis=1, kind="stable")
    return [order[:, : parameters["k"]]], Status.OK


def _ranks(values: Array) -> NDArray[np.int64]:
    """For each value how many lesser ones there are; all NaN are equal, and the greatest."""
    return np.asarray(np.unique(values, return_inverse=True)[1], np.int64).reshape(values.shape)


def _non_zero(routine: Routine, inputs: Sequence[Any]) -> tuple[Sequence[Any], Status]:
    parameters = dict(routine.parameters)
    flat = np.flatnonzero(inputs[0].reshape(-1))
    kept, status = _limited(flat, parameters["capacity"])
    pairs = zip(parameters["extents"], parameters["strides"], strict=True)
    rows = np.array([kept // stride % extent for extent, stride in pairs], np.int64)
    shape = [len(parameters["extents"]), len(kept)]
    return [_filled(rows, routine.outputs[0].elements), shape], status


def _compress(routine: Routine, inputs: Sequence[Any]) -> tuple[Sequence[Any], Status]:
    """A condition beyond the end must not hold."""
    parameters = dict(routine.parameters)
    x, condition = inputs
    x = x.reshape(-1)[: parameters["outer"] * parameters["length"] * parameters["inner"]]
    x = x.reshape(parameters["outer"], parameters["length"], parameters["inner"])
    positions = np.flatnonzero(condition[: parameters["conditions"]])
    inside = positions < parameters["length"]
    kept, status = _limited(positions[inside], parameters["capacity"])
    if not inside.all():
        status |= Status.INDEX_OUT_OF_RANGE
    shape = _with_extent(parameters, len(kept))
    return [_filled(x[:, kept], routine.outputs[0].elements), shape], _first(status)


def _unique(routine: Routine, inputs: Sequence[Any]) -> tuple[Sequence[Any], Status]:
    """The first of each kind of slice; they are sorted by their elements' ranks."""
    parameters = dict(routine.parameters)
    length, width = parameters["length"], parameters["width"]
    x, keys = inputs
    ranks = _ranks(keys.reshape(-1)[: length * width]).reshape(length, width)
    kinds: dict[tuple[int, ...], list[int]] = {}
    for position, row in enumerate(map(tuple, ranks.tolist())):
        kinds.setdefault(row, []).append(position)
    rows = sorted(kinds) if parameters["sorted"] else list(kinds)
    inverse = np.empty(length, np.int64)
    for number, row in enumerate(rows):
        inverse[kinds[row]] = number
    first = np.array([kinds[row][0] for row in rows], np.int64)
    counts = np.array([len(kinds[row]) for row in rows], np.int64)
    kept, status = _limited(first, parameters["capacity"])
    x = x.reshape(-1)[: parameters["outer"] * length * parameters["inner"]]
    y = x.reshape(parameters["outer"], length, parameters["inner"])[:, kept]
    results = [y, kept, inverse, counts[: len(kept)]]
    sizes = [buffer.elements for buffer in routine.outputs]
    filled = [_filled(array, size) for array, size in zip(results, sizes, strict=False)]
    return [*filled, _with_extent(parameters, len(kept)), [len(kept)], [len(kept)]], status


def _non_max_suppression(routine: Routine, inputs: Sequence[Any]) -> tuple[Sequence[Any], Status]:
    """By falling score; a NaN has none. Boxes are corners: `low` and `high` of two dimensions."""
    parameters = dict(routine.parameters)
    low, high, scores, limit, threshold, *score_threshold = inputs
    chosen: list[tuple[int, int, int]] = []
    for batch, category in np.ndindex(scores.shape[:2] if parameters["boxes"] else (0,)):
        given = scores[batch, category]
        inside = given > score_threshold[0].item() if score_threshold else ~np.isnan(given)
        candidates = [n for n in np.argsort(-given, kind="stable").tolist() if inside[n]]
        mine: list[int] = []
        for n in candidates:
            if len(mine) >= limit.item():
                break
            if not any(_overlap(low[batch], high[batch], n, m) > threshold.item() for m in mine):
                mine.append(n)
        chosen += [(batch, category, n) for n in mine]
    kept, status = _limited(np.array(chosen, np.int64).reshape(-1, 3), parameters["capacity"])
    return [_filled(kept, routine.outputs[0].elements), kept.shape], status


def _overlap(low: Array, high: Array, a: int, b: int) -> np.float32:
    """The intersection over the union, in float; 0 where the boxes are apart."""
    both = area_a = area_b = np.float32(1)
    with np.errstate(all="ignore"):
        for n in range(2):
            right = high[a, n] if high[a, n] < high[b, n] else high[b, n]
            left = low[a, n] if low[a, n] > low[b, n] else low[b, n]
            length = right - left
            if not length > 0:
                return np.float32(0)
            both = both * length
            area_a, area_b = area_a * (high[a, n] - low[a, n]), area_b * (high[b, n] - low[b, n])
        return np.float32(both / (area_a + area_b - both))


def _limited(found: Array, capacity: int) -> tuple[Array, Status]:
    return found[:capacity], Status.SHAPE_MISMATCH if len(found) > capacity else Status.OK


def _filled(values: Array, size: int) -> Array:
    """So many elements, of which those of `values` are the first."""
    flat = np.empty(size, values.dtype) if values.dtype == object else np.zeros(size, values.dtype)
    flat[: values.size] = values.reshape(-1)
    return flat


def _border(routine: Routine, inputs: Sequence[Any]) -> tuple[Sequence[Any], Status]:
    """The value everywhere: the rest is overwritten."""
    (out,) = routine.outputs
    value = dict(routine.parameters)["value"]
    return [np.full(out.shape, value, out.dtype.numpy)], Status.OK


def _with_extent(parameters: dict[str, Any], extent: int) -> list[int]:
    """The shape `extents` with another extent along `axis`."""
    return [extent if d == parameters["axis"] else e for d, e in enumerate(parameters["extents"])]


def _first(status: Status) -> Status:
    return Status(status & -status)


def sides(shape: Sequence[int], position: int) -> tuple[tuple[str, int], ...]:
    """Parameters of a tensor that is seen as three dimensions, the middle one at `position`."""
    return (
        ("outer", math.prod(shape[:position])),
        ("length", shape[position]),
        ("inner", math.prod(shape[position + 1 :])),
    )


ROUTINES: Final[dict[str, RoutineKind]] = {
    "border": RoutineKind(_border, (), ("y",)),
    "cumulate": RoutineKind(_cumulated, ("x",), ("y",), vectors=True),
    "determinant": RoutineKind(_determinants, ("x",), ("y",), ("rows",)),
    "top_k": RoutineKind(_top_k, ("x",), ("indices",), ("heap",)),
    "non_zero": RoutineKind(_non_zero, ("x",), ("y", "shape")),
    "compress": RoutineKind(_compress, ("x", "condition"), ("y", "shape")),
    "unique": RoutineKind(
        _unique,
        ("x", "keys"),
        (
            *("y", "indices", "inverse_indices", "counts"),
            *("y_shape", "indices_shape", "counts_shape"),
        ),
        ("order", "merged"),
    ),
    "non_max_suppression": RoutineKind(
        _non_max_suppression,
        ("low", "high", "scores", "limit", "iou_threshold", "score_threshold"),
        ("y", "shape"),
        ("heap",),
    ),
}
