"""The kernel IR in numpy: constant folding, the oracle of the tests, and tests without a compiler.

It computes what the C computes, by other means: a whole loop nest at once, each array with one
dimension an axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxc.dtypes import ElementType, numpy_dtype
from onnxc.kernel import (
    LANES,
    Apply,
    At,
    Axis,
    Branch,
    Buffer,
    Checked,
    Const,
    Expr,
    Fold,
    Index,
    Load,
    Loops,
    Program,
    Repeat,
    Status,
    walk,
)
from onnxc.packing import pack_elements, unpack_elements
from onnxc.tensor import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


def constant_value(tensor: Tensor) -> Array | None:
    """The tensor's values, or None when it reads what is known only at run time."""
    if any(isinstance(node, Load) and node.buffer.data is None for node in walk(tensor.value)):
        return None
    if tensor.elements == 0:  # the other dimensions may be of any size
        return np.empty(tensor.shape, numpy_dtype(tensor.dtype))
    memory = Memory()
    values = Grid(memory, tensor.axes).value(tensor.value)
    return None if memory.status else np.broadcast_to(values, tensor.shape).copy()


def run(program: Program, inputs: Mapping[Buffer, Array]) -> dict[Buffer, Array]:
    """The outputs, unpacked; raises ArithmeticError with the status' name where it is not OK."""
    memory = Memory()
    for buffer, array in inputs.items():
        memory.put(buffer, array)
    memory.run(program)
    if memory.status:
        raise ArithmeticError(memory.status.name)
    return {buffer: memory.get(buffer) for buffer in program.outputs}


class Memory:
    """What the buffers hold while steps run, and the status of the first bad kernel."""

    def __init__(self) -> None:
        self.contents: dict[Buffer, Array] = {}
        self.status = Status.OK

    def put(self, buffer: Buffer, array: Array) -> None:
        flat = np.ascontiguousarray(array).reshape(-1)
        self.contents[buffer] = pack_elements(flat, buffer.dtype) if buffer.packed else flat.copy()

    def get(self, buffer: Buffer) -> Array:
        return self.elements(buffer).reshape(buffer.shape)

    def elements(self, buffer: Buffer) -> Array:
        """The values one after the other; a view of the contents unless packed."""
        content = self.content(buffer)
        if buffer.packed:
            return unpack_elements(content, buffer.elements, buffer.dtype)
        return content

    def content(self, buffer: Buffer) -> Array:
        if buffer not in self.contents:
            if buffer.data is not None:
                self.put(buffer, buffer.data)
            else:
                size = buffer.bytes if buffer.packed else buffer.elements
                dtype = np.dtype(np.uint8) if buffer.packed else numpy_dtype(buffer.dtype)
                self.contents[buffer] = np.zeros(size, dtype)
        return self.contents[buffer]

    def run(self, program: Program) -> None:
        for step in program.steps:
            match step:
                case Loops():
                    self.store(step)
                case Branch(condition, then, otherwise):
                    self.run(then if self.get(condition).item() else otherwise)
                case Repeat():
                    self.repeat(step)

    def repeat(self, step: Repeat) -> None:
        n = 0
        while (step.count is None or n < self.get(step.count).item()) and (
            step.condition is None or self.get(step.condition).item()
        ):
            if step.counter is not None:
                self.put(step.counter, np.asarray(n, np.int64))
            self.run(step.body)
            self.contents.update([(s, self.content(value).copy()) for s, value in step.carried])
            n += 1

    def store(self, step: Loops) -> None:
        before, self.status = self.status, Status.OK
        grid = Grid(self, step.axes)
        target, values = grid.positions(step.out, step.where), grid.value(step.value)
        target, values = (np.broadcast_to(a, grid.extents) for a in (target, values))
        self.content(step.out)[target.reshape(-1)] = values.reshape(-1)
        self.status = before or Status(self.status & -self.status)


class Grid:
    """Evaluates expressions at every point of some axes at once.

    Every array has one dimension an axis, of the axis' extent or, where it does not vary, of 1.
    """

    def __init__(self, memory: Memory, axes: Iterable[Axis]) -> None:
        self.memory = memory
        self.axes = {axis: dimension for dimension, axis in enumerate(axes)}
        self.extents = tuple(axis.extent for axis in self.axes)
        self.known: dict[Expr, Array] = {}

    def value(self, root: Expr) -> Array:
        if root not in self.known:
            with np.errstate(all="ignore"):
                for node in walk(root, folds=False):
                    if node not in self.known:
                        self.known[node] = self._node(node)
        return self.known[root]

    def _node(self, node: Expr) -> Array:
        match node:
            case Const(dtype, raw):
                return _scalar(dtype, raw).reshape((1,) * len(self.axes))
            case At(_, index):
                return self._index(index)
            case Load(_, buffer, indices):
                positions = self.positions(buffer, indices)
                # One-dimensional: of no dimensions, an object array would give bytes, and numpy
                # drops their trailing NULs.
                flat = self.memory.elements(buffer)[positions.reshape(-1)]
                return flat.reshape(positions.shape)
            case Apply(_, operation, args):
                return _operate(node, operation, [self.known[arg] for arg in args])
            case Checked(_, value, condition, code):
                if not np.broadcast_to(self.known[condition], self.extents).all():
                    self.memory.status |= code
                return self.known[value]
            case Fold(_, operation, axes, value):
                inner = Grid(self.memory, [*self.axes, *axes])
                values = inner.value(value)
                outer = values.shape[: len(self.axes)]
                *rows, length = (axis.extent for axis in axes)
                values = np.broadcast_to(values, (*outer, *rows, length))
                return _fold(operation, values.reshape(*outer, math.prod(rows), length))
        raise AssertionError(f"no evaluation of {node}")

    def positions(self, buffer: Buffer, indices: tuple[Index, ...]) -> Array:
        return self._index(indices[0] if len(indices) == 1 else buffer.flat(indices))

    def _index(self, index: Index) -> Array:
        total = np.full((1,) * len(self.axes), index.const, np.int64)
        for axis, stride in index.terms:
            shape = [1] * len(self.axes)
            shape[self.axes[axis]] = axis.extent
            total = total + (np.arange(axis.extent, dtype=np.int64) * stride).reshape(shape)
        for expr, stride in index.dynamic:
            total = total + self.value(expr).astype(np.int64) * stride
        return total


def _scalar(dtype: ElementType, raw: bytes) -> Array:
    if dtype.kind != "string":
        return np.asarray(np.frombuffer(raw, numpy_dtype(dtype)))
    array = np.empty(1, object)
    array[0] = raw
    return array


def _operate(node: Apply, operation: str, args: list[Array]) -> Array:
    match operation:
        case "equal":
            with np.errstate(invalid="ignore"):  # ml_dtypes warns of a NaN
                return np.asarray(args[0] == args[1], np.bool_)
        case "truth":
            return np.asarray(args[0].view(np.uint8) != 0)
        case "pack":
            shape = np.broadcast_shapes(*(arg.shape for arg in args))
            grouped = np.stack([np.broadcast_to(arg, shape) for arg in args], axis=-1)
            return pack_elements(grouped.reshape(-1), node.args[0].dtype).reshape(shape)
    raise AssertionError(f"no evaluation of {operation}")


def _fold(operation: str, values: Array) -> Array:
    """Folds the last two dimensions: outer fold axes as one, then the innermost."""
    *outer, rows, length = values.shape
    flat = values.reshape(*outer, rows * length)
    match operation:
        case "sum" if values.dtype.kind in "fc":
            return _sum_in_lanes(values)
        case "sum":
            return np.asarray(np.add.reduce(flat, -1, dtype=flat.dtype))
        case "prod":
            return np.asarray(np.multiply.reduce(flat, -1, dtype=flat.dtype))
        case "max" | "min":
            return _extreme(flat, largest=operation == "max")
    raise AssertionError(f"no evaluation of {operation}")


def _extreme(flat: Array, *, largest: bool) -> Array:
    """A NaN stays; of two zeros the largest is +0, the least -0."""
    least, greatest = _range(flat.dtype)
    fold, start = (np.maximum, least) if largest else (np.minimum, greatest)
    found = np.asarray(fold.reduce(flat, -1, initial=start))
    if flat.dtype.kind == "f":
        wanted = (flat == 0) & (np.signbit(flat) != largest)
        zero = flat.dtype.type(0.0 if largest else -0.0)
        found = np.where((found == 0) & wanted.any(-1), zero, found)
    return found


def _range(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    if dtype.kind == "f":
        return -np.inf, np.inf
    limits = np.iinfo(dtype)
    return limits.min, limits.max


def _sum_in_lanes(values: Array) -> Array:
    """Lane n takes elements n, n + LANES ... of the innermost axis; then halves are added."""
    *outer, rows, length = values.shape
    blocks = -(-length // LANES)
    padded = np.zeros((*outer, rows, blocks * LANES), values.dtype)
    padded[..., :length] = values
    lanes = np.zeros((*outer, LANES), values.dtype)
    for block in np.moveaxis(padded.reshape(*outer, rows * blocks, LANES), -2, 0):
        lanes = lanes + block
    while lanes.shape[-1] > 1:
        half = lanes.shape[-1] // 2
        lanes = lanes[..., :half] + lanes[..., half:]
    return lanes[..., 0]
