"""The kernel IR once more, one point after the other in plain numpy scalars: slow and obvious."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxc.dtypes import numpy_dtype
from onnxc.expression import Apply, At, Axis, Checked, Const, Expr, Fold, Guard, Index, Load
from onnxc.expression import Buffer as Key
from onnxc.kernel import Loops
from onnxc.status import Status
from onnxc.traversal import walk
from tests.kernels.exact_operations import exact

Point = dict[Axis, int]


def store(loops: Loops, values: Mapping[Key, NDArray[Any]], target: NDArray[Any]) -> Status:
    """Changes `target`, the values of loops.out; returns the kernel's status."""
    reference = _Reference(values)
    for point in _points(loops.axes):
        place = reference.place(loops.out.shape, loops.where, point)
        value = reference.value(loops.value, point)
        if loops.accumulate:
            value = exact(loops.accumulate, loops.out.dtype, target[place], value)
        target[place] = value
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
            case Apply(_, "truth", (operand,)):
                return np.bool_(self.value(operand, point))
            case Apply(_, operation, args):
                leading = args[1 if operation == "where" else 0].dtype
                return exact(operation, leading, *(self.value(arg, point) for arg in args))
            case Guard(_, bounds, value, otherwise):
                places = [(self.index(index, point), extent) for index, extent in bounds]
                inside = all(0 <= place < extent for place, extent in places)
                other = self.value(otherwise, point)
                return self.value(value, point) if inside else other
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
                case "sum" if dtype.kind == "f" and all(axis.extent == 1 for axis in fold.axes):
                    return values[0]
                case "sum" if dtype.kind == "f":
                    return _sum_in_lanes(fold, inner, values)
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


def _sum_in_lanes(fold: Fold, points: list[Point], values: list[Any]) -> Any:
    """A lane of a long sum is one in two parts: Knuth's two-sum, what counts put back at once."""
    zero = numpy_dtype(fold.dtype).type(0)
    run = _innermost_run(fold)
    long = len(points) > 128 and fold.hint != "contraction"
    lanes, errors = [zero] * 16, [zero] * 16
    for point, value in zip(points, values, strict=True):
        number = 0
        for axis in run:
            number = number * axis.extent + point[axis]
        lane = number % 16
        before, after = lanes[lane], lanes[lane] + value
        part = after - before
        lost = errors[lane] + ((before - (after - part)) + (value - part))
        lanes[lane] = after + lost if long and np.isfinite(lost) else after
        errors[lane] = lost - (lanes[lane] - after)
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [lanes[n] + lanes[n + half] for n in range(half)]
    return lanes[0]


def _innermost_run(fold: Fold) -> list[Axis]:
    """The innermost axes that every index walks as it would walk one longer loop."""
    indices = []
    for node in walk(fold.value):
        match node:
            case Load():
                indices.append(node.flat)
            case At(_, index):
                indices.append(index)
            case Guard(_, bounds):
                indices += [index for index, _ in bounds]
    *outer, last = (axis for axis in fold.axes if axis.extent != 1)
    run = [last]
    while outer and all(
        index.stride(outer[-1]) == index.stride(run[0]) * run[0].extent for index in indices
    ):
        run.insert(0, outer.pop())
    return run


def _limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)
