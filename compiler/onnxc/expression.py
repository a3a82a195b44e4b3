"""The expressions of the kernel IR, their indices, and the buffers that they read.

Expressions are interned: two equal ones are one object, so a value that is used twice is one node
of a DAG, and comparing or hashing costs constant time. traversal.py walks and rebuilds them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from onnxc.dtypes import BOOL, INT64, ElementType, numpy_dtype
from onnxc.operations import OPERATIONS, Types, result_type
from onnxc.status import Status

if TYPE_CHECKING:
    from onnxc.kernel import Step

# Of an axis, and a stride: an int today, a named run-time dimension with a maximum later.
Extent: TypeAlias = int


def static(extent: Extent) -> int:
    """The extent where only a number known at compile time will do."""
    return extent


_EXACT: Final = ("signed", "unsigned", "bool")
_NEUTRAL: Final = {"add": 0, "sub": 0, "mul": 1, "div": 1, "and": 1, "or": 0, "xor": 0}
"""The operand that changes nothing, of _EXACT types: the right one of sub and div, else either."""

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
    made_by  the steps that fill it, of a value that an operator asked to be stored (kernel.define);
             they run where the buffer is first needed
    """

    name: str
    shape: tuple[Extent, ...]
    dtype: ElementType
    kind: str
    data: np.ndarray[Any, Any] | None = None
    made_by: tuple[Step, ...] = ()

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
    """Makes equal constructor calls, with fields by position, return one object."""

    __match_args__: tuple[str, ...]

    def __call__(cls, *args: Any) -> Any:
        args += tuple(getattr(cls, name) for name in cls.__match_args__[len(args) :])
        key = (cls, *args)
        found = _interned.get(key)
        if found is None:
            found = _interned[key] = super().__call__(*args)
        return found


@dataclass(frozen=True, eq=False)
class Expr(metaclass=_Interned):
    """One value of `dtype`, at one point of the loops around it.

    Python's operators make the operations of the same name; a number takes the other side's type.
    == and != stay Python's own, of the objects: compare() compares values.
    """

    dtype: ElementType

    def operands(self) -> tuple[Expr, ...]:
        """What is computed in the same loops; not the value of a Fold or a Guard."""
        return ()

    def __add__(self, other: Expr | float) -> Expr:
        return apply("add", self, other)

    def __radd__(self, other: float) -> Expr:
        return apply("add", lift(other, self.dtype), self)

    def __sub__(self, other: Expr | float) -> Expr:
        return apply("sub", self, other)

    def __rsub__(self, other: float) -> Expr:
        return apply("sub", lift(other, self.dtype), self)

    def __mul__(self, other: Expr | float) -> Expr:
        return apply("mul", self, other)

    def __rmul__(self, other: float) -> Expr:
        return apply("mul", lift(other, self.dtype), self)

    def __truediv__(self, other: Expr | float) -> Expr:
        return apply("div", self, other)

    def __rtruediv__(self, other: float) -> Expr:
        return apply("div", lift(other, self.dtype), self)

    def __neg__(self) -> Expr:
        return apply("neg", self)

    def __lt__(self, other: Expr | float) -> Expr:
        return apply("less", self, other)

    def __le__(self, other: Expr | float) -> Expr:
        return apply("less_equal", self, other)

    def __gt__(self, other: Expr | float) -> Expr:
        return apply("less", lift(other, self.dtype), self)

    def __ge__(self, other: Expr | float) -> Expr:
        return apply("less_equal", lift(other, self.dtype), self)

    def __and__(self, other: Expr) -> Expr:
        return apply("and" if self.dtype is BOOL else "bit_and", self, other)

    def __or__(self, other: Expr) -> Expr:
        return apply("or" if self.dtype is BOOL else "bit_or", self, other)

    def __xor__(self, other: Expr) -> Expr:
        return apply("xor" if self.dtype is BOOL else "bit_xor", self, other)

    def __invert__(self) -> Expr:
        return apply("not" if self.dtype is BOOL else "bit_not", self)


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
    """One of operations.OPERATIONS on values."""

    operation: str
    args: tuple[Expr, ...]

    def operands(self) -> tuple[Expr, ...]:
        return self.args


@dataclass(frozen=True, eq=False)
class Fold(Expr):
    """`value` folded over `axes` with sum, prod, max or min; of an empty range, the identity.

    Of float and double, and of integers of 8 bits or more, which wrap; a NaN stays. The order
    of a float sum is summation.py's; a long one carries the rounding errors along, unless a hint
    says that it is a sum of products: "contraction", "convolution", or summation.IN_ORDER. The hint
    "numbers" of a max or min leaves NaNs out, and the sign of a zero open.
    """

    operation: str
    axes: tuple[Axis, ...]
    value: Expr
    hint: str = ""


@dataclass(frozen=True, eq=False)
class Guard(Expr):
    """`value` where each index of `bounds` is in 0 .. extent - 1, else `otherwise`.

    `value` is computed only there, so it may hold loads that are in range only there; `otherwise`
    is computed everywhere.
    """

    bounds: tuple[tuple[Index, Extent], ...]
    value: Expr
    otherwise: Expr

    def operands(self) -> tuple[Expr, ...]:
        dynamic = (expr for index, _ in self.bounds for expr, _ in index.dynamic)
        return (self.otherwise, *dynamic)


@dataclass(frozen=True, eq=False)
class Checked(Expr):
    """`value`, safe for any data; where `condition` is false, the kernel reports `code`."""

    value: Expr
    condition: Expr
    code: Status

    def operands(self) -> tuple[Expr, ...]:
        return (self.value, self.condition)


def literal(dtype: ElementType, value: Any) -> Const:
    """One value; of a string, its bytes."""
    if dtype.kind == "string":
        return Const(dtype, bytes(value))
    return Const(dtype, np.asarray(value, numpy_dtype(dtype)).tobytes())


def lift(value: Expr | float, dtype: ElementType) -> Expr:
    """A number as a literal of `dtype`; an expression as it is."""
    return value if isinstance(value, Expr) else literal(dtype, value)


def load(buffer: Buffer, indices: Iterable[Index]) -> Load:
    return Load(buffer.dtype, buffer, tuple(indices))


def apply(operation: str, *args: Expr | float, dtype: ElementType | None = None) -> Expr:
    """An operation; numbers take the type of the last expression. Of literals, their result."""
    last = next(arg.dtype for arg in reversed(args) if isinstance(arg, Expr))
    exprs = tuple(lift(arg, last) for arg in args)
    operands = tuple(expr.dtype for expr in exprs)
    types = Types(dtype or result_type(operation, operands), operands)
    constants = [expr for expr in exprs if isinstance(expr, Const)]
    if len(constants) == len(exprs) and operation != "pack":
        return _folded(operation, types, constants)
    if constants and operation in _NEUTRAL and types.first.kind in _EXACT:
        unchanged = _unchanged(operation, *exprs)
        if unchanged is not None:
            return unchanged
    return Apply(types.result, operation, exprs)


def _unchanged(operation: str, left: Expr, right: Expr) -> Expr | None:
    """Of integers or bools, one of which is a literal: the other, where that is the result."""
    known, other = (right, left) if isinstance(right, Const) else (left, right)
    if not isinstance(known, Const):
        return None
    value = int(np.frombuffer(known.raw, numpy_dtype(known.dtype))[0])
    commutes = operation not in ("sub", "div") or known is right
    return other if commutes and _NEUTRAL[operation] == value else None


def _folded(operation: str, types: Types, constants: list[Const]) -> Const:
    if types.first.kind == "string":
        return literal(BOOL, constants[0].raw == constants[1].raw)
    values = [np.frombuffer(const.raw, numpy_dtype(const.dtype)) for const in constants]
    with np.errstate(all="ignore"):
        result = OPERATIONS[operation].evaluate(types, *values)
    return Const(types.result, np.asarray(result).tobytes())


def cast(value: Expr, dtype: ElementType, operation: str = "cast") -> Expr:
    """The value in another type, by the rules of Cast; there and back is the value itself.

    A wider integer type in between makes no difference, nor a type of 16 bits that holds the value
    for certain.
    """
    if value.dtype is dtype:
        return value
    if isinstance(value, Apply) and value.operation == "cast":
        (inner,), between = value.args, value.dtype
        same = inner.dtype is dtype and dtype.kind in ("half", "float")
        if same and between.kind == "half" and dtype.kind == "float" and holds(between, inner):
            return inner
        if same and between.kind == "float" and dtype.bits < between.bits:
            return inner
        if _widens(value):
            return cast(inner, dtype, operation)
    return apply(operation, value, dtype=dtype)


_PICKS: Final = ("max", "min", "abs", "neg")
"""Operations whose result is that of an operand, but for its sign."""


def holds(half: ElementType, value: Expr, exact: Container[Buffer] = ()) -> bool:
    """Whether a float is one of a type of 16 bits: read or rounded as such, or picked from such.

    `exact` are buffers of floats that are such.
    """
    stack, done = [value], set[Expr]()
    while stack:
        node = stack.pop()
        if node in done:
            continue
        done.add(node)
        match node:
            case Const(dtype, raw):
                number = np.frombuffer(raw, numpy_dtype(dtype))
                with np.errstate(over="ignore"):
                    rounded = number.astype(numpy_dtype(half)).astype(number.dtype)
                if rounded.tobytes() != raw:
                    return False
            case Apply(_, "where", (_, *choices)):
                stack += choices
            case Apply(_, operation, args) if operation in _PICKS:
                stack += args
            case Fold(_, "max" | "min", _, inner):
                stack.append(inner)
            case Guard(_, _, inner, otherwise):
                stack += (inner, otherwise)
            case Load(_, buffer) if buffer in exact:
                continue
            case Apply(_, operation) if operation == f"as_{half}":
                continue
            case Apply(_, "cast", (source,)) if source.dtype is half:
                continue
            case _:
                return False
    return True


def _widens(cast_value: Apply) -> bool:
    """Whether a cast is from integers to others that hold them all."""
    source, target = cast_value.args[0].dtype, cast_value.dtype
    if target.kind == "unsigned":
        return source.kind == "unsigned" and source.bits < target.bits
    return (
        target.kind == "signed"
        and source.kind in ("signed", "unsigned")
        and source.bits < target.bits
    )


def where(condition: Expr, then: Expr | float, otherwise: Expr | float) -> Expr:
    """`then` where the bool `condition` is true; both are computed."""
    like = then if isinstance(then, Expr) else otherwise
    if not isinstance(like, Expr):
        raise TypeError("one of the two values must be an expression")
    left, right = lift(then, like.dtype), lift(otherwise, like.dtype)
    if isinstance(condition, Const):
        return left if condition.raw != b"\0" else right
    return left if left is right else apply("where", condition, left, right)


def checked(value: Expr, condition: Expr, code: Status) -> Expr:
    """A Checked, unless the condition is known to hold; `value` must be safe where it does not."""
    if isinstance(condition, Const) and condition.raw != b"\0":
        return value
    return Checked(value.dtype, value, condition, code)


def compare(operation: str, left: Expr, right: Expr | float) -> Expr:
    """Of one value with itself the answer is known, unless it may be a NaN."""
    other = lift(right, left.dtype)
    exact = left.dtype.kind in ("signed", "unsigned", "bool", "string")
    if operation == "equal" and left is other and exact:
        return Const(BOOL, b"\1")
    return apply(operation, left, other)


def at(index: Index) -> Expr:
    """The value of an index, int64."""
    if not index.terms and not index.dynamic:
        return literal(INT64, index.const)
    if not index.terms and not index.const and len(index.dynamic) == 1:
        value, stride = index.dynamic[0]
        return cast(value, INT64) * static(stride)
    return At(INT64, index)


def guard(bounds: Iterable[tuple[Index, Extent]], value: Expr, otherwise: Expr) -> Expr:
    """A Guard of the bounds that may be left; the value alone where none is."""
    kept = []
    for index, extent in bounds:
        span = index.span()
        if span is not None and (span[1] < 0 or span[0] >= extent):
            return otherwise
        if span is None or span[0] < 0 or span[1] >= extent:
            kept.append((index, extent))
    return Guard(value.dtype, tuple(dict.fromkeys(kept)), value, otherwise) if kept else value


def fold(
    operation: str, extents: Iterable[Extent], value: Callable[..., Expr], hint: str = ""
) -> Expr:
    """`value(*indices)` folded over new axes of `extents`."""
    axes = tuple(Axis(extent) for extent in extents)
    inner = value(*(along(axis) if axis.extent != 1 else Index() for axis in axes))
    return Fold(inner.dtype, operation, axes, inner, hint) if axes else inner
