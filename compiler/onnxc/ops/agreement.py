"""Shapes that operands known only at run time decide: the model declares them, the run compares.

A tensor whose shape does not agree has unspecified elements, and the run reports SHAPE_MISMATCH.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from onnxc.diagnostics import Kind
from onnxc.dtypes import BOOL, INT64, ElementType
from onnxc.errors import RefusalError
from onnxc.expression import (
    Checked,
    Const,
    Expr,
    Index,
    apply,
    at,
    cast,
    compare,
    fold,
    literal,
    where,
)
from onnxc.op import Declared
from onnxc.status import Status
from onnxc.tensor import Shape, Tensor, compute, constant, dynamic, from_start, full, zero

TRUE = literal(BOOL, True)


def declared_shape(declared: Declared, position: int = 0) -> Shape:
    """What the model says of an output whose shape depends on run-time operands."""
    output = declared[position]
    if output is None:
        fact = f"the shape of output {position} depends on what is known only at run time"
        raise RefusalError(Kind.SHAPE_UNKNOWN, fact, "declare the output's shape")
    return output.shape


def whole(value: Expr) -> Expr:
    """An integer as int64."""
    return cast(value, INT64)


def table(values: Iterable[int]) -> Tensor:
    """One int64 for each."""
    return constant(np.fromiter(values, np.int64), INT64)


def every(extent: int, condition: Callable[[Index], Expr]) -> Expr:
    """Whether a condition holds at each of `extent` indices."""
    if extent == 0:
        return TRUE
    broken = fold("max", [extent], lambda index: where(condition(index), literal(INT64, 0), 1))
    return compare("equal", broken, 0)


def count(extent: int, condition: Callable[[Index], Expr]) -> Expr:
    """At how many of `extent` indices a condition holds, int64."""
    if extent == 0:
        return literal(INT64, 0)
    return fold("sum", [extent], lambda index: where(condition(index), literal(INT64, 1), 0))


def agreed(tensor: Tensor, fits: Expr, code: Status = Status.SHAPE_MISMATCH) -> Tensor:
    """The tensor; it reports `code` unless `fits`, which has no axes and is computed once."""
    if isinstance(fits, Const) and fits is TRUE:
        return tensor
    known = full((), fits).stored("whether the shape is as declared")
    return compute(
        tensor.shape,
        lambda *indices: Checked(tensor.dtype, tensor[indices], known[()], code),
    )


def equals(values: Tensor, wanted: Sequence[int]) -> Expr:
    """Whether a one-dimensional tensor holds just these integers."""
    if values.shape != (len(wanted),):
        return literal(BOOL, False)
    there = table(wanted)
    return every(
        len(wanted), lambda index: compare("equal", whole(values[[index]]), there[[index]])
    )


def nothing(shape: Shape, dtype: ElementType, code: Status) -> Tensor:
    """Elements that cannot be had: each, if there is any, reports `code`."""
    if 0 in shape:
        return full(shape, zero(dtype))
    never = literal(BOOL, False)
    return full(shape, Checked(dtype, zero(dtype), never, code))


def entries_of(axes: Tensor, rank: int) -> Tensor:
    """For each dimension the position in the run-time `axes` that names it, else -1: int64[rank].

    Reports INDEX_OUT_OF_RANGE for an axis that there is not, or that is named twice.
    """
    (length,) = axes.shape

    def named(position: Index) -> Expr:
        return from_start(whole(axes[[position]]), rank)

    def entry(dimension: Index) -> Expr:
        def names(position: Index) -> Expr:
            return compare("equal", named(position), at(dimension))

        found = fold("max", [length], lambda p: where(names(p), at(p), literal(INT64, -1)))
        exist = every(length, lambda p: (named(p) >= 0) & (named(p) < rank))
        fine = exist & (count(length, names) <= 1)
        return Checked(INT64, found, fine, Status.INDEX_OUT_OF_RANGE)

    if length == 0:
        return full((rank,), literal(INT64, -1))
    return compute((rank,), entry).stored("where in axes each dimension is named")


def entry_at(values: Tensor, entry: Expr, otherwise: Expr | int) -> Expr:
    """The element of one-dimensional `values` that an entry (-1: none) says, int64."""
    if values.elements == 0:
        return otherwise if isinstance(otherwise, Expr) else literal(INT64, otherwise)
    place = dynamic(apply("max", entry, 0))
    return where(entry < 0, otherwise, whole(values[[place]]))
