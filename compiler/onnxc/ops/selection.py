"""Operators that pick elements: the first of an order, those that a condition or the data choose.

What the data choose has a size that is known only after the run: see tensor.Sized.
"""

from __future__ import annotations

import math

import numpy as np

from onnxc.diagnostics import Kind
from onnxc.dtypes import BOOL, FLOAT, INT64, ElementType
from onnxc.errors import RefusalError
from onnxc.expression import Buffer, Expr, Index, compare, where
from onnxc.kernel import Routine, define
from onnxc.op import Declared, Ints, Output, op
from onnxc.ops.agreement import TRUE, agreed, declared_shape, whole
from onnxc.ops.checks import positive_axis, require_flag, require_one_element, scalar
from onnxc.routines import sides
from onnxc.tensor import (
    Shape,
    Sized,
    Tensor,
    compute,
    dynamic,
    full,
    of_buffer,
    zero,
)


@op("TopK", exact=True)
def top_k(
    X: Tensor, K: Ints | Tensor, *, axis: int, largest: int, sorted: int, declared: Declared
) -> tuple[Tensor, Tensor]:
    """In order even where `sorted` is 0; of equal elements those of lower index come first."""
    position = positive_axis(axis, X.rank)
    if isinstance(K, Tensor):
        k = declared_shape(declared)[position]
        fits = compare("equal", whole(scalar("K", K)), k)
    else:
        k, fits = K[0], TRUE
    length = X.shape[position]
    if not 0 <= k <= length:
        raise RefusalError(
            Kind.NUMBER_OUT_OF_RANGE, f"K is {k}, but axis {axis} of X has {length} elements"
        )
    shape = (*X.shape[:position], k, *X.shape[position + 1 :])
    indices = agreed(_first(_comparable(X), position, k, shape, largest), fits)
    if indices.elements == 0:
        return full(shape, zero(X.dtype)), indices
    source = X.shared("the elements")

    def value(*place: Index) -> Expr:
        chosen = dynamic(indices[place])
        return source[[*place[:position], chosen, *place[position + 1 :]]]

    return compute(shape, value), indices


def _first(keys: Tensor, position: int, k: int, shape: Shape, largest: int) -> Tensor:
    """Along one axis, where the first k keys are."""
    if math.prod(shape) == 0:
        return full(shape, zero(INT64))
    found = Buffer("", shape, INT64, "workspace")
    parameters = (*sides(keys.shape, position), ("k", k), ("largest", bool(largest)))
    given, heap = _given(keys, "the keys"), _positions(k)
    define((Routine("top_k", (given,), (found,), parameters, (heap,), role="the positions"),))
    return of_buffer(found)


@op("NonZero", exact=True)
def non_zero(X: Tensor, *, declared: Declared) -> Sized:
    """Positions in row-major order, one column each, one row a dimension: none for a scalar."""
    shape, capacity = _largest(declared[0], (X.rank, X.elements), 1)
    parameters = (
        ("elements", X.elements),
        ("extents", X.shape),
        ("strides", tuple(math.prod(X.shape[d + 1 :]) for d in range(X.rank))),
        ("capacity", capacity),
    )
    found, size = _room(shape, INT64), _shape_of(shape)
    x = X if X.dtype.kind in ("float", "signed", "unsigned") else _true(X)
    define((Routine("non_zero", (_given(x, "what is not 0"),), (found, size), parameters),))
    return Sized(_result(found, shape), of_buffer(size))


def _true(x: Tensor) -> Tensor:
    """Whether each element is not 0, nor the empty string; a NaN is not 0."""
    if x.dtype.kind in ("string", "complex"):
        return compute(x.shape, lambda *place: ~compare("equal", x[place], zero(x.dtype)))
    return x.cast(BOOL)


@op("Compress", exact=True)
def compress(input: Tensor, condition: Tensor, *, axis: int | None, declared: Declared) -> Sized:
    """A condition beyond the end that holds is reported; what has none is left out."""
    x = input.reshape((input.elements,)) if axis is None else input
    position = positive_axis(axis or 0, x.rank)
    if condition.rank != 1:
        raise RefusalError(Kind.OPERAND_RANK, f"condition has {condition.rank} dimensions, not 1")
    most = min(x.shape[position], condition.elements)
    largest = (*x.shape[:position], most, *x.shape[position + 1 :])
    shape, capacity = _largest(declared[0], largest, position)
    parameters = (
        *sides(x.shape, position),
        ("conditions", condition.elements),
        ("extents", x.shape),
        ("axis", position),
        ("capacity", capacity),
    )
    found, size = _room(shape, x.dtype), _shape_of(shape)
    given = (_given(x, "the elements"), _given(condition, "the condition"))
    define((Routine("compress", given, (found, size), parameters),))
    return Sized(_result(found, shape), of_buffer(size))


@op("Unique", exact=True)
def unique(
    X: Tensor, *, axis: int | None, sorted: int, declared: Declared
) -> tuple[Sized, Sized, Tensor, Sized]:
    """Slices with the same elements are one, and the first of them stands for all.

    In ascending order, that of their first elements that differ, or in that in which they appear.
    A NaN equals every other, and is greater than all numbers.
    """
    if X.dtype.kind == "complex":
        raise RefusalError(
            Kind.TYPE_NOT_SUPPORTED,
            f"{X.dtype} has no order",
            "split it into real and imaginary parts",
        )
    x = X.reshape((X.elements,)) if axis is None else X
    position = positive_axis(axis or 0, x.rank)
    length = x.shape[position]
    natural = (x.shape, (length,), (length,), (length,))
    known = [*declared, *(None for _ in natural[len(declared) :])]
    limits = [
        _largest(output, shape, position if n == 0 else 0)
        for n, (output, shape) in enumerate(zip(known, natural, strict=True))
    ]
    if limits[2][0] != (length,):
        fact = f"inverse_indices is declared with shape {list(limits[2][0])}, not [{length}]"
        raise RefusalError(Kind.RESULT_SHAPE, fact, "declare it so, or remove its shape")
    parameters = (
        *sides(x.shape, position),
        ("sorted", bool(sorted)),
        ("width", math.prod(x.shape[:position] + x.shape[position + 1 :])),
        ("extents", x.shape),
        ("axis", position),
        ("capacity", min(capacity for _, capacity in limits)),
    )
    shapes = [shape for shape, _ in limits]
    dtypes = (x.dtype, INT64, INT64, INT64)
    found = [_room(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    sizes = [_shape_of(shapes[n]) for n in (0, 1, 3)]
    front = (position, *(d for d in range(x.rank) if d != position))
    keys = _given(_comparable(x).transpose(front), "the slices, one after the other")
    scratch = (_positions(length), _positions(length))
    given = (_given(x, "the elements"), keys)
    define((Routine("unique", given, (*found, *sizes), parameters, scratch),))
    y, indices, inverse, counts = map(_result, found, shapes)
    y_size, indices_size, counts_size = map(of_buffer, sizes)
    return Sized(y, y_size), Sized(indices, indices_size), inverse, Sized(counts, counts_size)


@op("NonMaxSuppression", exact=True)
def non_max_suppression(
    boxes: Tensor,
    scores: Tensor,
    max_output_boxes_per_class: Tensor | None,
    iou_threshold: Tensor | None,
    score_threshold: Tensor | None,
    *,
    center_point_box: int,
    declared: Declared,
) -> Sized:
    """[batch, class, box] of each box chosen: by falling score, of equal ones the lower index.

    A box is chosen whose score is above the threshold and whose intersection over union with each
    of those chosen is not above the other. Without a threshold every score but NaN will do.
    """
    if boxes.rank != 3 or boxes.shape[2] != 4 or scores.rank != 3:
        raise RefusalError(
            Kind.OPERAND_SHAPE, "boxes must be of shape [batches, boxes, 4], scores of 3 dimensions"
        )
    batches, classes, count = scores.shape
    if boxes.shape[:2] != (batches, count):
        raise RefusalError(
            Kind.OPERAND_SHAPE, f"scores {list(scores.shape)} do not fit boxes {list(boxes.shape)}"
        )
    shape, capacity = _largest(declared[0], (batches * classes * count, 3), 0)
    parameters = (
        ("batches", batches),
        ("classes", classes),
        ("boxes", count),
        ("capacity", capacity),
    )
    low, high = _corners(boxes, center_point_box)
    given = [
        _given(low, "the lower corners"),
        _given(high, "the upper corners"),
        _given(scores, "the scores"),
        _number(max_output_boxes_per_class, INT64, "max_output_boxes_per_class"),
        _number(iou_threshold, FLOAT, "iou_threshold"),
    ]
    if score_threshold is not None:
        given.append(_number(score_threshold, FLOAT, "score_threshold"))
    found, size = _room(shape, INT64), _shape_of(shape)
    scratch = (_positions(count),)
    define((Routine("non_max_suppression", tuple(given), (found, size), parameters, scratch),))
    return Sized(_result(found, shape), of_buffer(size))


def _corners(boxes: Tensor, center: int) -> tuple[Tensor, Tensor]:
    """The lesser and the greater ends of boxes in both dimensions: each [batches, boxes, 2].

    Given are two opposite corners or, with `center`, a point and the sizes around it.
    """
    require_flag("center_point_box", center)
    shape = (*boxes.shape[:2], 2)

    def end(sign: int, *place: Index) -> Expr:
        *box, n = place
        one, other = boxes[place], boxes[[*box, n + 2]]
        if center:
            return one - other / 2 if sign < 0 else one + other / 2
        return where(one < other, one, other) if sign < 0 else where(one < other, other, one)

    low, high = (compute(shape, lambda *place, s=sign: end(s, *place)) for sign in (-1, 1))
    return low, high


def _number(given: Tensor | None, dtype: ElementType, name: str) -> Buffer:
    """An optional operand of one element; 0 where it is left out."""
    if given is None:
        return Buffer(name, (1,), dtype, "constant", np.zeros(1, dtype.numpy))
    require_one_element(name, given)
    return given.held(name)


def _comparable(x: Tensor) -> Tensor:
    """The same order in a type that C compares."""
    return x.cast(FLOAT) if x.dtype.kind == "half" else x


def _given(x: Tensor, role: str) -> Buffer:
    """The buffer that a routine reads; of a tensor without elements, one that it does not read."""
    return (x if x.elements else full((1,), zero(x.dtype))).held(role)


def _largest(output: Output | None, natural: Shape, axis: int) -> tuple[Shape, int]:
    """The shape of a result's buffer, and how many it may have along its one varying axis."""
    if output is None:
        return natural, natural[axis]
    shape = (*natural[:axis], *output.shape[axis : axis + 1], *natural[axis + 1 :])
    if output.shape != shape:
        fact = f"the result has at most shape {list(natural)}"
        raise RefusalError(Kind.RESULT_SHAPE, fact, f"the model declares {list(output.shape)}")
    return output.shape, min(output.shape[axis], natural[axis])


def _room(shape: Shape, dtype: ElementType) -> Buffer:
    """For a result; a routine gets at least one element to point to."""
    return Buffer("", tuple(max(1, extent) for extent in shape), dtype, "workspace")


def _result(room: Buffer, shape: Shape) -> Tensor:
    return of_buffer(room) if room.shape == shape else full(shape, zero(room.dtype))


def _shape_of(shape: Shape) -> Buffer:
    """For an actual shape."""
    return Buffer("", (len(shape),), INT64, "workspace")


def _positions(count: int) -> Buffer:
    return Buffer("", (max(1, count),), INT64, "workspace")
