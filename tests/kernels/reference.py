"""The kernel IR once more, one point after the other in plain numpy scalars: slow and obvious."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxc.dtypes import numpy_dtype
from onnxc.kernel import (
    Apply,
    At,
    Axis,
    Checked,
    Const,
    Expr,
    Fold,
    Index,
    Load,
    Loops,
    Status,
)
from onnxc.kernel import Buffer as Key

Point = dict[Axis, int]


def store(loops: Loops, values: Mapping[Key, NDArray[Any]], target: NDArray[Any]) -> Status:
    """Fills `target`, the values of loops.out; returns the kernel's status."""
    reference = _Reference(values)
    for point in _points(loops.axes):
        place = reference.place(loops.out.shape, loops.where, point)
        target[place] = reference.value(loops.value, point)
    return Status(reference.status & -reference.status)


def _points(axes: tuple[Axis, ...]) -> list[Point]:
    ranges = itertools.product(*(range(axis.extent) for axis in axes))
    return [dict(zip(axes, point, strict=True)) for point in ranges]


class _Reference:
    def __init__(self, values: Mapping[Key, NDArray[Any]]) -> None:
        self.values = values
        self.status = 0

    def index(self, index: Index, point: Point) -> int:
        affine = sum(point[axis] * stride for axis, stride in index.terms)
        dynamic = sum(int(self.value(e, point)) * stride for e, stride in index.dynamic)
        return index.const + affine + dynamic

    def place(self, shape: tuple[int, ...], where: tuple[Index, ...], point: Point) -> Any:
        numbers = [self.index(index, point) for index in where]
        if len(numbers) == len(shape):
            assert all(0 <= n < extent for n, extent in zip(numbers, shape, strict=True))
            return tuple(numbers)
        return np.unravel_index(numbers[0], shape)

    def value(self, node: Expr, point: Point) -> Any:
        match node:
            case Const(dtype, raw):
                return raw if dtype.kind == "string" else np.frombuffer(raw, numpy_dtype(dtype))[0]
            case At(_, index):
                return np.int64(self.index(index, point))
            case Load(_, buffer, indices):
                held = self.values[buffer] if buffer.data is None else buffer.data
                return held[self.place(buffer.shape, indices, point)]
            case Apply(_, "equal", (left, right)):
                return np.bool_(self.value(left, point) == self.value(right, point))
            case Apply(_, "truth", (operand,)):
                return np.bool_(self.value(operand, point))
            case Checked(_, value, condition, code):
                if not self.value(condition, point):
                    self.status |= code
                return self.value(value, point)
            case Fold():
                return self.fold(node, point)
        raise AssertionError(node)

    def fold(self, fold: Fold, point: Point) -> Any:
        dtype = numpy_dtype(fold.dtype)
        inner = _points(fold.axes)
        values = [self.value(fold.value, point | more) for more in inner]
        with np.errstate(all="ignore"):
            match fold.operation:
                case "sum" if dtype.kind == "f":
                    lanes = [dtype.type(0)] * 16
                    for more, value in zip(inner, values, strict=True):
                        lanes[more[fold.axes[-1]] % 16] += value
                    while len(lanes) > 1:
                        half = len(lanes) // 2
                        lanes = [lanes[n] + lanes[n + half] for n in range(half)]
                    return lanes[0]
                case "sum":
                    return np.array(sum(map(int, values)) % 2**64, np.uint64).astype(dtype)
                case "prod" if dtype.kind == "f":
                    total = dtype.type(1)
                    for value in values:
                        total *= value
                    return total
                case "prod":
                    product = 1
                    for value in values:
                        product = product * int(value) % 2**64
                    return np.array(product, np.uint64).astype(dtype)
        if any(value != value for value in values):
            return dtype.type(np.nan)
        limits = (-np.inf, np.inf) if dtype.kind == "f" else _limits(dtype)
        # Of two zeros max takes +0, min -0.
        if fold.operation == "max":
            return max([*values, dtype.type(limits[0])], key=lambda v: (v, not np.signbit(v)))
        return min([*values, dtype.type(limits[1])], key=lambda v: (v, not np.signbit(v)))


def _limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)
