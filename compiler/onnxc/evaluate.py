"""The kernel IR in numpy: constant folding, the oracle of the tests, and tests without a compiler.

It computes what the C computes, by other means: a whole loop nest at once, each array with one
dimension an axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxc.dtypes import ElementType, numpy_dtype
from onnxc.expression import (
    Apply,
    At,
    Axis,
    Buffer,
    Checked,
    Const,
    Expr,
    Fold,
    Guard,
    Index,
    Load,
    along,
)
from onnxc.kernel import Branch, Loops, Micro, Program, Repeat, Routine, Rows, Step, pending
from onnxc.operations import OPERATIONS, Types
from onnxc.packing import pack_elements, unpack_elements
from onnxc.passes.merge_axes import merged
from onnxc.routines import ROUTINES, add_exactly
from onnxc.status import Status
from onnxc.summation import GROUP, Summation, runs_across, summation
from onnxc.tensor import Tensor
from onnxc.traversal import move_all, substitute, walk

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


SLAB: Final = 2**22
"""How many points of a kernel are computed at once, each of which takes some 50 bytes."""


def constant_value(tensor: Tensor) -> Array | None:
    """The tensor's values, or None when it reads what is known only at run time."""
    if tensor.elements == 0:  # the other dimensions may be of any size
        return np.empty(tensor.shape, numpy_dtype(tensor.dtype))
    steps = constant_steps(tensor)
    if steps is None:
        return None
    memory = Memory()
    memory.run(Program(steps=steps))
    (out,) = steps[-1].writes()
    return None if memory.status else memory.get(out)


def constant_steps(tensor: Tensor) -> tuple[Step, ...] | None:
    """What computes the tensor, its own Loops last; None where it reads run-time data."""
    out = Buffer("", tensor.shape, tensor.dtype, "workspace")
    last = Loops(out, tuple(along(axis) for axis in tensor.axes), tensor.axes, tensor.value)
    steps = (*pending(last), last)
    written = {buffer for step in steps for buffer in step.writes()}
    if any(b.data is None and b not in written for step in steps for b in step.reads()):
        return None
    return steps


def run(program: Program, inputs: Mapping[Buffer, Array]) -> dict[Buffer, Array]:
    """The outputs, unpacked, in their actual shapes.

    Raises ArithmeticError with the status' name where it is not OK.
    """
    memory = Memory()
    for buffer, array in inputs.items():
        memory.put(buffer, array)
    memory.run(program)
    if memory.status:
        raise ArithmeticError(memory.status.name)
    return {buffer: _actual(memory, program, buffer) for buffer in program.outputs}


def _actual(memory: Memory, program: Program, buffer: Buffer) -> Array:
    if buffer not in program.actual:
        return memory.get(buffer)
    shape = tuple(map(int, memory.get(program.actual[buffer])))
    return memory.elements(buffer)[: math.prod(shape)].reshape(shape)


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
                    # As in the C: the order of a sum depends on the axes.
                    whole = merged(step)
                    for slab in _slabs(whole):
                        self.store(slab, across=runs_across(whole))
                case Micro() | Rows():
                    self.run(Program(steps=step.steps))
                case Routine():
                    self.routine(step)
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

    def routine(self, step: Routine) -> None:
        inputs = [self.get(buffer) for buffer in step.inputs]
        results, status = ROUTINES[step.name].evaluate(step, inputs)
        for buffer, array in zip(step.outputs, results, strict=True):
            with np.errstate(all="ignore"):  # as it is rounded to the output's type
                self.put(buffer, np.asarray(array, numpy_dtype(buffer.dtype)))
        self.status = self.status or Status(status)

    def store(self, step: Loops, *, across: bool) -> None:
        """Runs a merged kernel; `across` is which way its folds run."""
        before, self.status = self.status, Status.OK
        grid = Grid(self, step.axes, across=across)
        target, values = grid.positions(step.out, step.where), grid.value(step.value)
        target, values = (np.broadcast_to(a, grid.extents) for a in (target, values))
        content = self.content(step.out)
        if step.accumulate:
            types = Types(step.out.dtype, (step.out.dtype, step.out.dtype))
            operation = OPERATIONS[step.accumulate]
            for places in _rounds(target.reshape(-1)):
                there = target.reshape(-1)[places]
                given = values.reshape(-1)[places]
                with np.errstate(all="ignore"):
                    content[there] = operation.evaluate(types, content[there], given)
        else:
            content[target.reshape(-1)] = values.reshape(-1)
        self.status = before or Status(self.status & -self.status)


def _rounds(target: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """The points in groups that store to different places, earlier points first."""
    order = np.argsort(target, kind="stable")
    starts = np.flatnonzero(np.diff(target[order], prepend=-1))
    lengths = np.diff(np.append(starts, len(order)))
    for n in range(lengths.max(initial=0)):
        yield order[starts[lengths > n] + n]


def _slabs(loops: Loops) -> Iterator[Loops]:
    """The kernel in parts, along its outer loops, of so many points that memory suffices."""
    folds = [
        math.prod(axis.extent for axis in node.axes)
        for node in walk(*loops.roots())
        if isinstance(node, Fold)
    ]
    points = math.prod(axis.extent for axis in loops.axes) * math.prod(folds)
    outer = next((axis for axis in loops.axes if axis.extent > 1), None)
    if points <= SLAB or outer is None:
        yield loops
        return
    count = max(1, SLAB * outer.extent // points)
    for start in range(0, outer.extent, count):
        part = Axis(min(count, outer.extent - start))
        moved = {outer: along(part) + start}
        yield from _slabs(
            replace(
                loops,
                where=tuple(move_all(index, moved) for index in loops.where),
                axes=tuple(part if axis is outer else axis for axis in loops.axes),
                value=substitute(loops.value, moved),
            )
        )


class Grid:
    """Evaluates expressions at every point of some axes at once.

    Every array has one dimension an axis, of the axis' extent or, where it does not vary, of 1.
    """

    def __init__(self, memory: Memory, axes: Iterable[Axis], *, across: bool = False) -> None:
        self.memory = memory
        self.across = across
        self.axes = {axis: dimension for dimension, axis in enumerate(axes)}
        self.extents = tuple(axis.extent for axis in self.axes)
        self.known: dict[Expr, Array] = {}
        self.inside: Array | None = None

    def value(self, root: Expr) -> Array:
        if root not in self.known:
            with np.errstate(all="ignore"):
                for node in walk(root, inner=False):
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
                if self.inside is not None:
                    positions = np.clip(positions, 0, buffer.elements - 1)
                # One-dimensional: of no dimensions, an object array would give bytes, and numpy
                # drops their trailing NULs.
                flat = self.memory.elements(buffer)[positions.reshape(-1)]
                return flat.reshape(positions.shape)
            case Apply(dtype, operation, args):
                types = Types(dtype, tuple(arg.dtype for arg in args))
                return OPERATIONS[operation].evaluate(types, *(self.known[arg] for arg in args))
            case Guard():
                return self._guard(node)
            case Checked(_, value, condition, code):
                fine = self.known[condition]
                fine = fine if self.inside is None else fine | ~self.inside
                if not np.broadcast_to(fine, self.extents).all():
                    self.memory.status |= code
                return self.known[value]
            case Fold(_, operation, axes, value):
                inner = Grid(self.memory, [*self.axes, *axes])
                if self.inside is not None:
                    inner.inside = self.inside.reshape(*self.inside.shape, *(1 for _ in axes))
                values = inner.value(value)
                outer = values.shape[: len(self.axes)]
                *rows, length = (axis.extent for axis in axes)
                values = np.broadcast_to(values, (*outer, *rows, length))
                values = values.reshape(*outer, math.prod(rows), length)
                if node.hint == "numbers":
                    operation = f"f{operation}"
                return _fold(operation, values, summation(node, across=self.across))
        raise AssertionError(f"no evaluation of {node}")

    def _guard(self, node: Guard) -> Array:
        """Elsewhere the value is computed too, of other elements, and not taken."""
        inside = np.ones((1,) * len(self.axes), np.bool_)
        for index, extent in node.bounds:
            place = self._index(index)
            inside = inside & (place >= 0) & (place < extent)
        within = Grid(self.memory, self.axes, across=self.across)
        within.inside = inside if self.inside is None else inside & self.inside
        return np.where(inside, within.value(node.value), self.known[node.otherwise])

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


def _fold(operation: str, values: Array, how: Summation) -> Array:
    """Folds the last two dimensions: outer fold axes as one, then the innermost."""
    *outer, rows, length = values.shape
    flat = values.reshape(*outer, rows * length)
    match operation:
        case "sum" if values.dtype.kind in "fc":
            return _sum_in_lanes(values, how)
        case "sum":
            return np.asarray(np.add.reduce(flat, -1, dtype=flat.dtype))
        case "prod":
            return np.asarray(np.multiply.reduce(flat, -1, dtype=flat.dtype))
        case "fmax" | "fmin":
            least, greatest = _range(flat.dtype)
            numbers, start = (np.fmax, least) if operation == "fmax" else (np.fmin, greatest)
            return np.asarray(numbers.reduce(flat, -1, initial=start))
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


def _sum_in_lanes(values: Array, how: Summation) -> Array:
    """As Summation says; what a last block or group lacks is 0, which changes no sum."""
    *outer, rows, _ = values.shape
    if how.compensated:
        lanes = _compensated(values, how)
    else:
        blocks = _padded(values, how.lanes)
        lanes = _in_order(blocks.reshape(*outer, rows * blocks.shape[-1] // how.lanes, how.lanes))
    return _halved(lanes, 1)[..., 0]


def _compensated(values: Array, how: Summation) -> Array:
    """[..., rows, length] as totals in two parts, of which this is the first."""
    *outer, rows, length = values.shape
    whole = length - length % how.lanes if how.grouped else 0
    blocks = values[..., :whole].reshape(*outer, rows, whole // how.lanes, how.lanes)
    alone = _padded(values[..., whole:], how.totals)
    alone = alone.reshape(*outer, rows, alone.shape[-1] // how.totals, how.totals)
    terms = np.concatenate([_halved(_group_sums(blocks), how.totals), alone], -2)
    totals = errors = np.zeros((*outer, how.totals), values.dtype)
    for term in np.moveaxis(terms.reshape(*outer, rows * terms.shape[-2], how.totals), -2, 0):
        totals, errors = add_exactly(totals, errors, term)
    return totals


def _group_sums(blocks: Array) -> Array:
    """[..., blocks, lanes] in groups: [..., groups, lanes]."""
    *outer, _, lanes = blocks.shape
    filled = np.moveaxis(_padded(np.moveaxis(blocks, -2, -1), GROUP), -1, -2)
    return _in_order(filled.reshape(*outer, filled.shape[-2] // GROUP, GROUP, lanes))


def _halved(lanes: Array, left: int) -> Array:
    """Halves of the last dimension added until so many are left."""
    while lanes.shape[-1] > left:
        half = lanes.shape[-1] // 2
        lanes = lanes[..., :half] + lanes[..., half:]
    return lanes


def _padded(values: Array, multiple: int) -> Array:
    """With zeros at the end of the last dimension, to a multiple."""
    missing = -values.shape[-1] % multiple
    return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, missing)])


def _in_order(blocks: Array) -> Array:
    """Summed along the last dimension but one, from 0 and one after the other."""
    *outer, _, lanes = blocks.shape
    start = np.zeros((*outer, 1, lanes), blocks.dtype)
    return np.asarray(np.add.accumulate(np.concatenate([start, blocks], -2), -2)[..., -1, :])
