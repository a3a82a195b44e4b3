"""Random input values for a verification, some of which look for trouble."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxc.arrays import elements, object_array
from onnxc.diagnostics import Kind
from onnxc.dtypes import ElementType, numpy_dtype
from onnxc.errors import UsageError
from onnxc.packing import unpack_elements

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onnxc.pipeline import Interface

# Empty, with a common beginning, of 2 to 4 UTF-8 bytes a character, with NUL inside and last.
STRINGS: Final = ("", "a", "b", "ab", "abc", "é", "日本", "🙂", "a\0b", "a\0", "\0")
INTEGER_LIMIT: Final = 255
"""So that an 8-bit type has all of its values."""


@dataclass(frozen=True)
class Case:
    """One value for every input, by name."""

    label: str
    values: Mapping[str, NDArray[Any]]


Bounds = tuple[float, float]
"""The least and the greatest value, both included."""


def random_cases(
    interfaces: Sequence[Interface],
    seed: int,
    ranges: Mapping[str, Bounds] | None = None,
) -> list[Case]:
    """The same cases for the same arguments.

    random    normally distributed floats, integers of up to 3 digits
    special   NaN, infinities, -0, denormals, largest values, and any bits
    repeated  two values an element type, so that half of all pairs are equal

    An input with a range has values of its range in all cases: evenly distributed, half of them
    the two ends, two of them.
    """
    if not interfaces:
        return [Case("no inputs", {})]
    draws: dict[str, Draw] = {
        "random": _ordinary,
        "special": _special,
        "repeated": _Repeated(),
    }
    return [_case(label, interfaces, seed, draw, ranges or {}) for label, draw in draws.items()]


def check_ranges(ranges: Mapping[str, Bounds], interfaces: Iterable[Interface]) -> None:
    """Raises UsageError with every range that no input can have."""
    types = {interface.name: interface.dtype for interface in interfaces}
    problems = []
    for name, (least, greatest) in ranges.items():
        dtype = types.get(name)
        if dtype is None:
            fact = f"the model has no input '{name}'; it has {', '.join(types) or 'none'}"
        elif dtype.kind in ("string", "complex", "bool"):
            fact = f"an input of type {dtype} has no range"
        elif not (math.isfinite(least) and math.isfinite(greatest) and least <= greatest):
            fact = "give two numbers, the smaller one first"
        elif dtype.kind in ("signed", "unsigned") and not _holds(dtype, least, greatest):
            fact = f"these are no two values of {dtype}"
        else:
            continue
        problems.append(f"range {least:g}:{greatest:g} of '{name}': {fact}")
    if problems:
        raise UsageError(Kind.ARGUMENT, *problems)


def _holds(dtype: ElementType, least: float, greatest: float) -> bool:
    signed = dtype.kind == "signed"
    low = -(2 ** (dtype.bits - 1)) if signed else 0
    high = 2 ** (dtype.bits - signed) - 1
    whole = least == math.floor(least) and greatest == math.floor(greatest)
    return whole and low <= least and greatest <= high


Draw = Callable[[np.random.Generator, ElementType, int], "NDArray[Any]"]


def _case(
    label: str,
    interfaces: Iterable[Interface],
    seed: int,
    draw: Draw,
    ranges: Mapping[str, Bounds],
) -> Case:
    generator = np.random.default_rng([seed, *label.encode()])
    values = {}
    for interface in interfaces:
        count, bounds = elements(interface), ranges.get(interface.name)
        if bounds is None:
            drawn = draw(generator, interface.dtype, count)
        else:
            drawn = _within(generator, interface.dtype, count, bounds, label)
        values[interface.name] = drawn.reshape(interface.shape)
    return Case(label, values)


def _within(
    generator: np.random.Generator, dtype: ElementType, count: int, bounds: Bounds, label: str
) -> NDArray[Any]:
    least, greatest = bounds
    size = 2 if label == "repeated" else count
    if dtype.kind in ("signed", "unsigned"):
        wide = np.uint64 if dtype.kind == "unsigned" else np.int64
        drawn: NDArray[Any] = generator.integers(
            int(least), int(greatest), size=size, dtype=wide, endpoint=True
        )
    else:
        drawn = generator.uniform(least, greatest, size)
    if label == "special":
        drawn = _mixed(generator, np.array([least, greatest], drawn.dtype), drawn)
    if label == "repeated":
        drawn = drawn[generator.integers(2, size=count)]
    return drawn.astype(numpy_dtype(dtype))


def _ordinary(generator: np.random.Generator, dtype: ElementType, count: int) -> NDArray[Any]:
    match dtype.kind:
        case "string":
            return _strings(generator.integers(len(STRINGS), size=count))
        case "bool":
            return generator.integers(2, size=count).astype(np.bool_)
        case "signed" | "unsigned":
            signed = dtype.kind == "signed"
            greatest = min(INTEGER_LIMIT, 2 ** (dtype.bits - signed) - 1)
            least = max(-INTEGER_LIMIT, -(2 ** (dtype.bits - 1))) if signed else 0
            return generator.integers(least, greatest + 1, size=count).astype(numpy_dtype(dtype))
        case "complex":
            parts = generator.standard_normal(2 * count)
            return parts.view(np.complex128).astype(numpy_dtype(dtype))
    values = generator.standard_normal(count)
    # float8e8m0 has no sign: a negative number would become NaN.
    return (np.abs(values) if dtype.name == "float8e8m0" else values).astype(numpy_dtype(dtype))


def _special(generator: np.random.Generator, dtype: ElementType, count: int) -> NDArray[Any]:
    """Half of the elements from a list of special values, the others any bits."""
    if dtype.kind in ("string", "bool"):
        return _ordinary(generator, dtype, count)
    if dtype.kind == "complex":
        part = np.dtype(f"float{dtype.bits // 2}")
        drawn = _mixed(generator, _special_floats(part), _any_bits(generator, part, 2 * count))
        return drawn.view(numpy_dtype(dtype))
    if dtype.packed:
        data = np.frombuffer(generator.bytes(dtype.packed_bytes(count)), np.uint8)
        return unpack_elements(data, count, dtype)
    any_bits = _any_bits(generator, numpy_dtype(dtype), count)
    if dtype.kind == "bits":
        return any_bits
    special = _special_floats if dtype.kind in ("float", "half") else _special_integers
    return _mixed(generator, special(numpy_dtype(dtype)), any_bits)


class _Repeated:
    """Draws from two ordinary values an element type, which all inputs share."""

    def __init__(self) -> None:
        self._pairs: dict[ElementType, NDArray[Any]] = {}

    def __call__(
        self, generator: np.random.Generator, dtype: ElementType, count: int
    ) -> NDArray[Any]:
        if dtype not in self._pairs:
            self._pairs[dtype] = _ordinary(generator, dtype, 2)
        return self._pairs[dtype][generator.integers(2, size=count)]


def _strings(positions: NDArray[Any]) -> NDArray[Any]:
    return object_array([STRINGS[position] for position in positions], positions.shape)


def _any_bits(generator: np.random.Generator, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    return np.frombuffer(generator.bytes(count * dtype.itemsize), np.uint8).view(dtype)


def _mixed(
    generator: np.random.Generator, special: NDArray[Any], others: NDArray[Any]
) -> NDArray[Any]:
    chosen = special[generator.integers(len(special), size=others.size)]
    return np.where(generator.integers(2, size=others.size) == 0, chosen, others)


def _special_floats(dtype: np.dtype[Any]) -> NDArray[Any]:
    import ml_dtypes

    limits: Any = ml_dtypes.finfo(dtype)
    sizes = [limits.max, limits.tiny, limits.smallest_subnormal, 1 + limits.eps]
    positive = np.array([0.0, 1.0, np.inf, *map(float, sizes)]).astype(dtype)
    return np.concatenate([positive, -positive, np.array([np.nan]).astype(dtype)])


def _special_integers(dtype: np.dtype[Any]) -> NDArray[Any]:
    limits = np.iinfo(dtype)
    return np.array([limits.min, limits.min + 1, 0, 1, limits.max - 1, limits.max], dtype)
