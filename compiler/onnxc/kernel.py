"""The kernel IR: loop nests whose body is one expression, over buffers.

Expressions are interned: two equal ones are one object, so a value that is used twice is one node
of a DAG, and comparing or hashing costs constant time. Every walk is iterative and visits a node
once; a chain of thousands of nodes needs no stack.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntFlag
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakValueDictionary

from onnxc.dtypes import BOOL, INT64, ElementType

if TYPE_CHECKING:
    import numpy as np

# Of an axis, and a stride: an int today, a named run-time dimension with a maximum later.
Extent: TypeAlias = int


def static(extent: Extent) -> int:
    """The extent where only a number known at compile time will do."""
    return extent


class Status(IntFlag):
    """What `<model>_run` returns. Kernels OR them; the lowest bit of the first bad kernel wins."""

    OK = 0
    MISALIGNED_WORKSPACE = 1
    INDEX_OUT_OF_RANGE = 2
    DIVISION_BY_ZERO = 4


ALIGNMENT: Final = 64
"""Of every buffer in the workspace, in bytes: one cache line, the widest vector."""
LANES: Final = 16
"""In how many lanes of the innermost axis a float sum runs, in the C and in evaluate.py."""

_serial = itertools.count()


@dataclass(frozen=True, eq=False)
class Axis:
    """One loop: a variable that runs from 0 to extent - 1. Two axes are never equal."""

    extent: Extent
    serial: int = field(default_factory=lambda: next(_serial))


@dataclass(frozen=True)
class Index:
    """const + sum(axis * stride) + sum(expression * stride): affine, with static strides.

    Broadcasting is a stride of 0, that is an axis without a term.
    """

    const: int = 0
    terms: tuple[tuple[Axis, Extent], ...] = ()
    dynamic: tuple[tuple[Expr, Extent], ...] = ()

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.const + other, self.terms, self.dynamic)
        return affine(
            self.const + other.const, (*self.terms, *other.terms), (*self.dynamic, *other.dynamic)
        )

    def __mul__(self, factor: Extent) -> Index:
        terms = tuple((axis, stride * factor) for axis, stride in self.terms)
        dynamic = tuple((expr, stride * factor) for expr, stride in self.dynamic)
        return affine(self.const * factor, terms, dynamic)

    def stride(self, axis: Axis) -> Extent:
        return next((stride for other, stride in self.terms if other is axis), 0)

    def walks_as_one(self, outer: Axis, inner: Axis) -> bool:
        """Whether the two loops, one around the other, move it as one longer loop would."""
        return self.stride(outer) == self.stride(inner) * inner.extent

    def span(self) -> tuple[int, int] | None:
        """The least and the greatest value, or None where a run-time expression takes part."""
        if self.dynamic:
            return None
        ends = [(static(axis.extent) - 1) * static(stride) for axis, stride in self.terms]
        return self.const + sum(min(0, e) for e in ends), self.const + sum(max(0, e) for e in ends)


def affine(
    const: int,
    terms: Iterable[tuple[Axis, Extent]],
    dynamic: Iterable[tuple[Expr, Extent]] = (),
) -> Index:
    """An Index in normal form: one term an axis, in the order the axes were made, none zero."""
    strides: dict[Axis, int] = {}
    for axis, stride in terms:
        strides[axis] = strides.get(axis, 0) + stride
    kept = sorted(((a, s) for a, s in strides.items() if s), key=lambda term: term[0].serial)
    return Index(const, tuple(kept), tuple((e, s) for e, s in dynamic if s))


def along(axis: Axis) -> Index:
    """The index that walks one axis."""
    return Index(0, ((axis, 1),))


@dataclass(frozen=True, eq=False)
class Buffer:
    """Memory of one tensor, row-major.

    name   the ONNX name, "" for one that the compiler made
    kind   input, output, constant or workspace; all but workspace are packed where the type is
    data   the values of a constant, unpacked, in the numpy dtype of dtypes.numpy_dtype
    """

    name: str
    shape: tuple[Extent, ...]
    dtype: ElementType
    kind: str
    data: np.ndarray[Any, Any] | None = None

    @property
    def elements(self) -> int:
        return math.prod(static(extent) for extent in self.shape)

    @property
    def packed(self) -> bool:
        return self.dtype.packed and self.kind != "workspace"

    @property
    def bytes(self) -> int:
        if self.packed:
            return self.dtype.packed_bytes(self.elements)
        return self.elements * self.dtype.size

    def flat(self, indices: tuple[Index, ...]) -> Index:
        """One index of elements from the start, from one index a dimension."""
        total, stride = Index(), 1
        for index, extent in zip(reversed(indices), reversed(self.shape), strict=True):
            total, stride = total + index * stride, stride * extent
        return total


_interned: Final[WeakValueDictionary[tuple[Any, ...], Any]] = WeakValueDictionary()


class _Interned(type):
    """Makes equal constructor calls return one object."""

    def __call__(cls, *args: Any) -> Any:
        key = (cls, *args)
        found = _interned.get(key)
        if found is None:
            found = _interned[key] = super().__call__(*args)
        return found


@dataclass(frozen=True, eq=False)
class Expr(metaclass=_Interned):
    """One value of `dtype`, at one point of the loops around it."""

    dtype: ElementType

    def operands(self) -> tuple[Expr, ...]:
        return ()


@dataclass(frozen=True, eq=False)
class Const(Expr):
    """A value by its bytes as numpy stores it (so every NaN is kept); a string by its own bytes."""

    raw: bytes


@dataclass(frozen=True, eq=False)
class At(Expr):
    """The value of an index, int64."""

    index: Index

    def operands(self) -> tuple[Expr, ...]:
        return tuple(expr for expr, _ in self.index.dynamic)


@dataclass(frozen=True, eq=False)
class Load(Expr):
    """One element: one index a dimension, or, once merged, one flat index."""

    buffer: Buffer
    indices: tuple[Index, ...]

    def operands(self) -> tuple[Expr, ...]:
        return tuple(expr for index in self.indices for expr, _ in index.dynamic)

    @property
    def flat(self) -> Index:
        return self.indices[0] if len(self.indices) == 1 else self.buffer.flat(self.indices)


@dataclass(frozen=True, eq=False)
class Apply(Expr):
    """An operation of emit/expr.py and evaluate.py on values."""

    operation: str
    args: tuple[Expr, ...]

    def operands(self) -> tuple[Expr, ...]:
        return self.args


@dataclass(frozen=True, eq=False)
class Fold(Expr):
    """`value` folded over `axes` with sum, prod, max or min; of an empty range, the identity.

    Of float and double, and of integers of 8 bits or more, which wrap; a NaN stays. A float sum
    runs in 16 lanes of the innermost axis, added up by a fixed tree.
    """

    operation: str
    axes: tuple[Axis, ...]
    value: Expr

    def operands(self) -> tuple[Expr, ...]:
        return (self.value,)


@dataclass(frozen=True, eq=False)
class Checked(Expr):
    """`value`, safe for any data; where `condition` is false, the kernel reports `code`."""

    value: Expr
    condition: Expr
    code: Status

    def operands(self) -> tuple[Expr, ...]:
        return (self.value, self.condition)


def load(buffer: Buffer, indices: Iterable[Index]) -> Load:
    return Load(buffer.dtype, buffer, tuple(indices))


def apply(operation: str, *args: Expr, dtype: ElementType | None = None) -> Apply:
    return Apply(args[0].dtype if dtype is None else dtype, operation, args)


def compare(operation: str, left: Expr, right: Expr) -> Expr:
    """Of one value with itself the answer is known, unless it may be a NaN."""
    exact = left.dtype.kind in ("signed", "unsigned", "bool", "string")
    if operation == "equal" and left is right and exact:
        return Const(BOOL, b"\1")
    return Apply(BOOL, operation, (left, right))


def at(index: Index) -> At:
    return At(INT64, index)


def walk(*roots: Expr, folds: bool = True) -> Iterator[Expr]:
    """Each node that the roots reach once, operands before what uses them, in a fixed order.

    Without `folds` it does not look inside a Fold, whose value lives on more axes.
    """
    done: set[Expr] = set()
    stack: list[tuple[Expr, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        node, ready = stack.pop()
        if ready:
            yield node
        elif node not in done:
            done.add(node)
            stack.append((node, True))
            if folds or not isinstance(node, Fold):
                stack.extend((operand, False) for operand in reversed(node.operands()))


def map_indices(
    root: Expr,
    change: Callable[[Index], Index],
    *,
    flat: bool = False,
    loads: Mapping[Load, Expr] | None = None,
) -> Expr:
    """The expression with `change` applied to the affine part of every index.

    With `flat`, a Load's indices become the one flat index of its buffer. What `loads` maps a Load
    to takes its place as it is.
    """
    new: dict[Expr, Expr] = {}

    def changed(index: Index) -> Index:
        out = change(Index(index.const, index.terms))
        return out + Index(0, (), tuple((new[e], s) for e, s in index.dynamic))

    def rebuilt(node: Expr) -> Expr:
        match node:
            case Load() if loads and node in loads:
                return loads[node]
            case At(dtype, index):
                return At(dtype, changed(index))
            case Load(dtype, buffer, indices):
                walks = tuple(changed(index) for index in indices)
                one = flat and len(walks) != 1
                return Load(dtype, buffer, (buffer.flat(walks),) if one else walks)
            case Apply(dtype, operation, args):
                return Apply(dtype, operation, tuple(new[arg] for arg in args))
            case Fold(dtype, operation, axes, value):
                return Fold(dtype, operation, axes, new[value])
            case Checked(dtype, value, condition, code):
                return Checked(dtype, new[value], new[condition], code)
        return node

    for node in walk(root):
        new[node] = rebuilt(node)
    return new[root]


def replace_loads(root: Expr, loads: Mapping[Load, Expr]) -> Expr:
    """The expression with other values in place of some loads."""
    return map_indices(root, lambda index: index, loads=loads)


def move(index: Index, values: Mapping[Axis, Index]) -> Index:
    """The index with every axis in `values` replaced."""
    if not any(axis in values for axis, _ in index.terms):
        return index
    total = Index(index.const, (), index.dynamic)
    for axis, stride in index.terms:
        total = total + values.get(axis, along(axis)) * stride
    return total


def substitute(root: Expr, values: Mapping[Axis, Index]) -> Expr:
    """The expression at other points: every axis in `values` replaced by its index."""
    return map_indices(root, lambda index: move(index, values)) if values else root


@dataclass(frozen=True)
class Origin:
    """The ONNX node that something came from: "Equal-19", its name, "x float[2] -> y bool[2]".

    A node without a name goes by that of its first output.
    """

    operator: str
    name: str
    signature: str

    def __str__(self) -> str:
        return f"{self.operator} '{self.name}': {self.signature}"


@dataclass(frozen=True, eq=False)
class Loops:
    """For each point of `axes`: out[where] = value. `where` does not depend on data.

    A packed buffer is read by elements but stored by bytes: then `where` is the one index of the
    byte and `value` the operation "pack" of as many elements as share it.

    role   which part of its origins' work this is, where a pass split it
    """

    out: Buffer
    where: tuple[Index, ...]
    axes: tuple[Axis, ...]
    value: Expr
    origins: tuple[Origin, ...] = ()
    role: str = ""

    def reads(self) -> tuple[Buffer, ...]:
        found = (node.buffer for node in walk(self.value) if isinstance(node, Load))
        return tuple(dict.fromkeys(found))

    def writes(self) -> tuple[Buffer, ...]:
        return (self.out,)


@dataclass(frozen=True, eq=False)
class Branch:
    """Runs `then` where the one element of `condition` is true, else `otherwise`."""

    condition: Buffer
    then: Program
    otherwise: Program
    origins: tuple[Origin, ...] = ()

    def reads(self) -> tuple[Buffer, ...]:
        return tuple(dict.fromkeys((self.condition, *self.then.reads(), *self.otherwise.reads())))

    def writes(self) -> tuple[Buffer, ...]:
        return tuple(dict.fromkeys((*self.then.writes(), *self.otherwise.writes())))


@dataclass(frozen=True, eq=False)
class Repeat:
    """Runs `body` `count[0]` times while `condition[0]` is true (None: without such a limit).

    `counter` receives the number of the iteration. After each, every (state, next) pair of
    `carried` is copied from next to state; `condition` may be one of the states.
    """

    count: Buffer | None
    condition: Buffer | None
    counter: Buffer | None
    body: Program
    carried: tuple[tuple[Buffer, Buffer], ...]
    origins: tuple[Origin, ...] = ()

    def reads(self) -> tuple[Buffer, ...]:
        limits = tuple(b for b in (self.count, self.condition) if b is not None)
        return tuple(dict.fromkeys((*limits, *self.body.reads(), *(n for _, n in self.carried))))

    def writes(self) -> tuple[Buffer, ...]:
        counter = () if self.counter is None else (self.counter,)
        return tuple(dict.fromkeys((*counter, *self.body.writes(), *(s for s, _ in self.carried))))


Step: TypeAlias = Loops | Branch | Repeat


@dataclass(frozen=True, eq=False)
class Program:
    """Steps in order, and what they work on.

    notes      what became of ONNX nodes that have no kernel of their own
    offsets    bytes from the start of the workspace, set by plan_memory
    """

    inputs: tuple[Buffer, ...] = ()
    outputs: tuple[Buffer, ...] = ()
    steps: tuple[Step, ...] = ()
    notes: tuple[tuple[Origin, str], ...] = ()
    offsets: Mapping[Buffer, int] = field(default_factory=dict)
    workspace_size: int = 0

    @property
    def alignment(self) -> int:
        """Bytes, of the workspace: little models need not waste a cache line."""
        return ALIGNMENT if self.workspace_size > ALIGNMENT else 16

    def reads(self) -> tuple[Buffer, ...]:
        return tuple(dict.fromkeys(b for step in self.steps for b in step.reads()))

    def writes(self) -> tuple[Buffer, ...]:
        return tuple(dict.fromkeys(b for step in self.steps for b in step.writes()))


def map_loops(program: Program, change: Callable[[Loops], Iterable[Step]]) -> Program:
    """The program with every Loops, in nested programs too, replaced by what `change` returns."""

    def step(old: Step) -> Iterable[Step]:
        match old:
            case Loops():
                return change(old)
            case Branch():
                then, otherwise = (map_loops(p, change) for p in (old.then, old.otherwise))
                return [replace(old, then=then, otherwise=otherwise)]
            case Repeat():
                return [replace(old, body=map_loops(old.body, change))]

    return replace(program, steps=tuple(new for old in program.steps for new in step(old)))
