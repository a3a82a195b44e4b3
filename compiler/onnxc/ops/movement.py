"""Operators that give elements another place and change none."""

from __future__ import annotations

import math
from collections.abc import Sequence

from onnxc.diagnostics import Kind
from onnxc.dtypes import BY_NAME, ElementType
from onnxc.errors import RefusalError
from onnxc.expression import Checked, Expr, Index, apply, at, cast, compare, where
from onnxc.op import Declared, Ints, Output, op
from onnxc.ops.agreement import (
    agreed,
    count,
    declared_shape,
    equals,
    every,
    table,
    whole,
)
from onnxc.ops.assembly import joined
from onnxc.ops.checks import (
    dimensions,
    positive_axis,
    require_rank,
    require_shape,
    type_of_code,
)
from onnxc.status import Status
from onnxc.tensor import (
    Shape,
    Tensor,
    broadcast_shape,
    compute,
    dynamic,
    elementwise,
    from_start,
)


@op("Reshape", exact=True)
def reshape(data: Tensor, shape: Ints | Tensor, *, allowzero: int, declared: Declared) -> Tensor:
    if isinstance(shape, tuple):
        return data.reshape(_reshaped(data, shape, allowzero))
    target = declared_shape(declared)
    if math.prod(target) != data.elements or shape.shape != (len(target),):
        fact = f"{list(data.shape)} cannot become the declared {list(target)}"
        raise RefusalError(
            Kind.RESULT_SHAPE, fact, "declare a shape of as many elements and as many dimensions"
        )
    kept, wanted = table([*data.shape, *([-2] * len(target))][: len(target)]), table(target)

    def extent(index: Index) -> Expr:
        given = whole(shape[[index]])
        return given if allowzero else where(compare("equal", given, 0), kept[[index]], given)

    def inferred(index: Index) -> Expr:
        return compare("equal", whole(shape[[index]]), -1)

    fits = every(len(target), lambda d: inferred(d) | compare("equal", extent(d), wanted[[d]])) & (
        count(len(target), inferred) <= 1
    )
    return agreed(data.reshape(target), fits)


def _reshaped(data: Tensor, shape: Ints, allowzero: int) -> Shape:
    """With the dimensions that 0 copies and that -1 infers."""
    fact = f"{list(data.shape)} cannot become {list(shape)}"
    copied = [d for d, extent in enumerate(shape) if extent == 0 and not allowzero]
    if any(d >= data.rank for d in copied) or any(extent < -1 for extent in shape):
        raise RefusalError(Kind.RESHAPE, fact)
    extents = [data.shape[d] if d in copied else extent for d, extent in enumerate(shape)]
    if shape.count(-1) == 1:
        others = math.prod(extent for extent in extents if extent != -1)
        if others == 0 or data.elements % others:
            raise RefusalError(Kind.RESHAPE, fact, "give a shape of as many elements")
        extents[shape.index(-1)] = data.elements // others
    if math.prod(extents) != data.elements or -1 in extents:
        raise RefusalError(Kind.RESHAPE, fact, "give a shape of as many elements")
    return tuple(extents)


@op("Flatten", exact=True)
def flatten(input: Tensor, *, axis: int) -> Tensor:
    first = input.rank if axis == input.rank else positive_axis(axis, input.rank)
    return input.reshape((math.prod(input.shape[:first]), math.prod(input.shape[first:])))


@op("Squeeze", exact=True)
def squeeze(data: Tensor, axes: Ints | Tensor | None, *, declared: Declared) -> Tensor:
    if isinstance(axes, Tensor):
        require_rank("axes", axes, 1)
        target = declared_shape(declared)
        if math.prod(target) != data.elements:
            raise RefusalError(
                Kind.RESULT_SHAPE, f"{list(data.shape)} cannot become the declared {list(target)}"
            )
        return agreed(data.reshape(target), _named_ones(data.shape, target, axes))
    if axes is None:
        axes = tuple(d for d, extent in enumerate(data.shape) if extent == 1)
    if any(not -data.rank <= axis < data.rank or data.shape[axis] != 1 for axis in axes):
        fact = f"axes {list(axes)} are not all dimensions of 1 in {list(data.shape)}"
        raise RefusalError(Kind.RESHAPE, fact)
    return data.squeeze(axis % data.rank for axis in axes)


@op("Unsqueeze", exact=True)
def unsqueeze(data: Tensor, axes: Ints | Tensor, *, declared: Declared) -> Tensor:
    if isinstance(axes, Tensor):
        target = declared_shape(declared)
        if math.prod(target) != data.elements or axes.shape != (len(target) - data.rank,):
            raise RefusalError(
                Kind.RESULT_SHAPE, f"{list(data.shape)} cannot become the declared {list(target)}"
            )
        return agreed(data.reshape(target), _named_ones(target, data.shape, axes))
    rank = data.rank + len(axes)
    return data.unsqueeze(dimensions(axes, len(axes), rank))


def _named_ones(long: Shape, short: Shape, axes: Tensor) -> Expr:
    """Whether `long` without the dimensions that `axes` name, all of 1, is `short`."""
    rank, (length,) = len(long), axes.shape
    before, after = table(long), table([*short, -1])

    def named(position: Index) -> Expr:
        return from_start(whole(axes[[position]]), rank)

    def is_named(dimension: Index) -> Expr:
        return count(length, lambda p: compare("equal", named(p), at(dimension))) > 0

    gone = compute((rank,), is_named).stored("which dimensions axes name")

    def fits(dimension: Index) -> Expr:
        earlier = count(rank, lambda d: gone[[d]] & (at(d) < at(dimension)))
        place = apply("min", at(dimension) - earlier, len(short))
        wanted = where(gone[[dimension]], 1, after[[dynamic(place)]])
        return compare("equal", before[[dimension]], wanted)

    exist = every(length, lambda p: (named(p) >= 0) & (named(p) < rank))
    removed = compare("equal", count(rank, lambda d: gone[[d]]), rank - len(short))
    return every(rank, fits) & exist & removed


@op("Transpose", exact=True)
def transpose(data: Tensor, *, perm: Ints | None) -> Tensor:
    order = tuple(reversed(range(data.rank))) if perm is None else tuple(perm)
    if sorted(order) != list(range(data.rank)):
        raise RefusalError(
            Kind.PERMUTATION, f"perm {list(order)} is no order of {data.rank} dimensions"
        )
    return data.transpose(order)


@op("Expand", exact=True)
def expand(input: Tensor, shape: Ints | Tensor, *, declared: Declared) -> Tensor:
    if isinstance(shape, Tensor):
        target = declared_shape(declared)
        return agreed(_repeated(input, target), _expands(input.shape, shape, target))
    return _repeated(input, _broadcast(input.shape, tuple(shape)))


def _broadcast(one: Shape, other: Shape) -> Shape:
    try:
        return broadcast_shape(one, other)
    except ValueError:
        raise RefusalError(
            Kind.SHAPES_DO_NOT_BROADCAST, f"{list(one)} and {list(other)} do not broadcast"
        ) from None


def _repeated(input: Tensor, target: Shape) -> Tensor:
    """Broadcast to `target`; what is costly is computed once."""
    if _broadcast(input.shape, target) != target:
        raise RefusalError(
            Kind.SHAPES_DO_NOT_BROADCAST,
            f"{list(input.shape)} does not broadcast to {list(target)}",
        )
    again = math.prod(target) > input.elements
    return (input.shared("what is expanded") if again else input).expand(target)


def _expands(old: Shape, shape: Tensor, target: Shape) -> Expr:
    """Whether `old` and the run-time `shape` broadcast to `target`."""
    (length,) = shape.shape
    if max(length, len(old)) != len(target):
        raise RefusalError(
            Kind.RESULT_SHAPE, f"the declared {list(target)} has other than {length} dimensions"
        )
    padded = (1,) * (len(target) - len(old)) + old
    missing = len(target) - length
    if padded[:missing] != target[:missing]:
        raise RefusalError(
            Kind.SHAPES_DO_NOT_BROADCAST, f"{list(old)} does not broadcast to {list(target)}"
        )
    before, wanted = table(padded[missing:]), table(target[missing:])

    def fits(index: Index) -> Expr:
        given = whole(shape[[index]])
        kept = compare("equal", given, 1) & compare("equal", before[[index]], wanted[[index]])
        return kept | compare("equal", given, wanted[[index]])

    return every(length, fits)


@op("Concat", exact=True)
def concat(*inputs: Tensor, axis: int) -> Tensor:
    return joined(inputs, positive_axis(axis, inputs[0].rank))


@op("Split", exact=True)
def split(
    input: Tensor,
    split: Ints | Tensor | None,
    *,
    axis: int,
    num_outputs: int | None,
    declared: Declared,
) -> tuple[Tensor, ...]:
    """Views, whatever the form."""
    along_axis = positive_axis(axis, input.rank)
    extent = input.shape[along_axis]
    if (split is None) == (num_outputs is None):
        raise RefusalError(
            Kind.ATTRIBUTES_CONFLICT,
            "has both or neither of split and num_outputs",
            "give one of them",
        )
    if split is None:
        others = max(num_outputs or 0, 1) - 1
        each = -(-extent // (others + 1))
        sizes: Sequence[int] = [each] * others + [extent - others * each]
    elif isinstance(split, Tensor):
        sizes = _declared_sizes(declared, along_axis, extent)
    else:
        sizes = split
    if sum(sizes) != extent or any(size < 0 for size in sizes) or len(sizes) != len(declared):
        fact = f"{list(sizes)} are no {len(declared)} parts of {extent} elements"
        raise RefusalError(Kind.SPLIT_SIZES, fact, "give a size for each output")
    starts = [sum(sizes[:n]) for n in range(len(sizes))]
    views = tuple(
        window(input, along_axis, start, size) for start, size in zip(starts, sizes, strict=True)
    )
    if isinstance(split, Tensor):
        fits = equals(split, sizes)
        return tuple(agreed(view, fits) for view in views)
    return views


def _extent_of(output: Output, axis: int) -> int:
    if axis >= len(output.shape):
        fact = f"an output of {len(output.shape)} dimensions has no axis {axis}"
        raise RefusalError(Kind.RESULT_SHAPE, fact)
    return output.shape[axis]


def _declared_sizes(declared: Declared, axis: int, extent: int) -> list[int]:
    """Of each output; of one that is left out, what the others leave."""
    sizes = [None if output is None else _extent_of(output, axis) for output in declared]
    if sizes.count(None) > 1:
        raise RefusalError(
            Kind.SPLIT_SIZES, "split is known only at run time, and two outputs are left out"
        )
    rest = extent - sum(size for size in sizes if size is not None)
    return [rest if size is None else size for size in sizes]


def window(data: Tensor, axis: int, start: int, size: int) -> Tensor:
    """`size` elements from `start` on along `axis`."""
    shape = (*data.shape[:axis], size, *data.shape[axis + 1 :])

    def element(*indices: Index) -> Expr:
        return data[[index + start if d == axis else index for d, index in enumerate(indices)]]

    return compute(shape, element)


@op("Tile", exact=True)
def tile(input: Tensor, repeats: Ints | Tensor, *, declared: Declared) -> Tensor:
    """A dimension of its own for the repetitions: a broadcast, then written in row-major order."""
    if isinstance(repeats, Tensor):
        return _tiled_at_run_time(input, repeats, declared_shape(declared))
    if len(repeats) != input.rank or any(times < 0 for times in repeats):
        raise RefusalError(
            Kind.ENTRY_COUNT, f"repeats {list(repeats)} do not fit {list(input.shape)}"
        )
    return _tiled(input, repeats)


def _tiled_at_run_time(input: Tensor, repeats: Tensor, target: Shape) -> Tensor:
    """Of a dimension without elements any number of repetitions will do."""
    if len(target) != input.rank or repeats.shape != (input.rank,):
        raise RefusalError(
            Kind.RESULT_SHAPE, f"the declared {list(target)} has not {input.rank} dimensions"
        )
    wholes = [t // n if n else 0 for n, t in zip(input.shape, target, strict=True)]
    if any(t != n * r for n, r, t in zip(input.shape, wholes, target, strict=True)):
        raise RefusalError(
            Kind.RESULT_SHAPE, f"{list(target)} is no multiple of {list(input.shape)}"
        )
    there, free = table(wholes), table([int(n == 0) for n in input.shape])

    def fits(d: Index) -> Expr:
        same = compare("equal", whole(repeats[[d]]), there[[d]])
        return same | compare("equal", free[[d]], 1)

    return agreed(_tiled(input, wholes), every(input.rank, fits))


def _tiled(input: Tensor, repeats: Sequence[int]) -> Tensor:
    lone = tuple(n for extent in input.shape for n in (1, extent))
    apart = tuple(n for pair in zip(repeats, input.shape, strict=True) for n in pair)
    target = tuple(r * n for r, n in zip(repeats, input.shape, strict=True))
    again = any(times > 1 for times in repeats)
    source = input.shared("what is tiled") if again else input
    return source.reshape(lone).expand(apart).reshape(target)


@op("ReverseSequence", exact=True)
def reverse_sequence(
    input: Tensor, sequence_lens: Tensor, *, batch_axis: int, time_axis: int
) -> Tensor:
    """A length that there are not so many elements for is VALUE_OUT_OF_RANGE."""
    time, batch = (positive_axis(axis, input.rank) for axis in (time_axis, batch_axis))
    if time == batch:
        raise RefusalError(
            Kind.ATTRIBUTES_CONFLICT, f"time_axis and batch_axis are both {time_axis}"
        )
    require_shape("sequence_lens", sequence_lens, (input.shape[batch],))
    extent, lengths = input.shape[time], sequence_lens.shared()

    def element(*indices: Index) -> Expr:
        given = whole(lengths[[indices[batch]]])
        fine = (given >= 0) & (given <= extent)
        safe = where(fine, given, 0)
        length = Checked(safe.dtype, safe, fine, Status.VALUE_OUT_OF_RANGE)
        now = at(indices[time])
        place = dynamic(where(now < length, length - 1 - now, now))
        return input[[place if d == time else index for d, index in enumerate(indices)]]

    return compute(input.shape, element)


@op("Where", exact=True)
def where_(condition: Tensor, X: Tensor, Y: Tensor) -> Tensor:
    return elementwise(where, condition, X, Y)


@op("BitCast", exact=True)
def bit_cast(input: Tensor, *, to: int) -> Tensor:
    """A bool is true where any bit of its byte is set: a run holds no other byte than 0 and 1."""
    target = type_of_code("to", to)
    if "string" in (input.dtype.kind, target.kind) or input.dtype.bits != target.bits:
        fact = f"{input.dtype.name} cannot become {target.name}"
        raise RefusalError(Kind.CAST_NOT_SUPPORTED, fact, "take a type of as many bits")
    value = _reinterpreted(input.value, target)
    return Tensor(input.shape, target, input.axes, value)


def _reinterpreted(value: Expr, target: ElementType) -> Expr:
    """The bits of a value as those of a type of the same size."""
    source = value.dtype
    if source is target:
        return value
    unsigned = BY_NAME[f"uint{target.bits}"]
    if source.kind in ("signed", "bool"):
        value = cast(value, unsigned)
    elif source is not unsigned:
        value = apply("reinterpret", value, dtype=unsigned)
    if target.kind == "bool":
        return ~compare("equal", value, 0)
    if target.kind == "signed":
        return cast(value, target)
    return value if target is unsigned else apply("reinterpret", value, dtype=target)
