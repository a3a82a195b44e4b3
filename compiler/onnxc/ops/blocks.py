"""Operators between blocks of an image and its channels."""

from __future__ import annotations

import math
from functools import reduce
from operator import mul
from typing import Final

from onnxc.diagnostics import Kind
from onnxc.dtypes import INT64
from onnxc.errors import RefusalError
from onnxc.expression import Buffer, Checked, Expr, Index, along, apply, at, compare, where
from onnxc.kernel import Loops, define
from onnxc.op import Declared, Ints, op
from onnxc.ops.agreement import agreed, declared_shape, equals, table, whole
from onnxc.ops.assembly import part
from onnxc.ops.checks import require_choice
from onnxc.status import Status
from onnxc.tensor import Shape, Tensor, compute, dynamic, full, of_buffer, zero

_ORDERS: Final = ("DCR", "CRD")


def _check(input: Tensor, blocksize: int, mode: str) -> None:
    if input.rank != 4 or blocksize < 1:
        raise RefusalError(
            Kind.OPERAND_RANK,
            f"blocks of {blocksize} in {input.rank} dimensions",
            "take 4 dimensions",
        )
    require_choice("mode", mode, _ORDERS)


@op("DepthToSpace", exact=True)
def depth_to_space(input: Tensor, *, blocksize: int, mode: str) -> Tensor:
    _check(input, blocksize, mode)
    batch, channels, height, width = input.shape
    rest, left = divmod(channels, blocksize**2)
    if left:
        raise RefusalError(
            Kind.BLOCKS, f"{channels} channels are no blocks of {blocksize} by {blocksize}"
        )
    if mode == "DCR":
        shape, order = (batch, blocksize, blocksize, rest, height, width), (0, 3, 4, 1, 5, 2)
    else:
        shape, order = (batch, rest, blocksize, blocksize, height, width), (0, 1, 4, 2, 5, 3)
    target = (batch, rest, height * blocksize, width * blocksize)
    return input.reshape(shape).transpose(order).reshape(target)


@op("SpaceToDepth", exact=True)
def space_to_depth(input: Tensor, *, blocksize: int, mode: str) -> Tensor:
    _check(input, blocksize, mode)
    batch, channels, height, width = input.shape
    if height % blocksize or width % blocksize:
        raise RefusalError(
            Kind.BLOCKS, f"{height} by {width} are no blocks of {blocksize} by {blocksize}"
        )
    rows, columns = height // blocksize, width // blocksize
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    apart = input.reshape((batch, channels, rows, blocksize, columns, blocksize))
    return apart.transpose(order).reshape((batch, channels * blocksize**2, rows, columns))


@op("Col2Im")
def col2im(
    input: Tensor,
    image_shape: Ints | Tensor,
    block_shape: Ints | Tensor,
    *,
    dilations: Ints | None,
    pads: Ints | None,
    strides: Ints | None,
    declared: Declared,
) -> Tensor:
    """Blocks are added up in an image with its padding, of which the result is a window."""
    if input.rank != 3 or input.dtype.kind not in ("float", "signed", "unsigned"):
        fact = f"{input.dtype.name} of {input.rank} dimensions is not supported"
        raise RefusalError(Kind.TYPE_NOT_SUPPORTED, fact, "take numbers of 3 dimensions")
    image = image_shape if isinstance(image_shape, tuple) else declared_shape(declared)[2:]
    rank = len(image)
    step, spread = tuple(strides or (1,) * rank), tuple(dilations or (1,) * rank)
    around = tuple(pads or (0,) * (2 * rank))
    sizes = (len(step), len(spread), len(around) / 2)
    if rank == 0 or sizes != (rank,) * 3 or min(*step, *spread) < 1 or min(around) < 0:
        fact = f"strides {step}, dilations {spread} and pads {around} do not fit {rank} dimensions"
        raise RefusalError(Kind.ENTRY_COUNT, fact)
    padded = tuple(n + around[d] + around[d + rank] for d, n in enumerate(image))
    if isinstance(block_shape, tuple):
        whole_image = _added_up(input, block_shape, padded, step, spread)
    else:
        channels = declared_shape(declared)[1]
        whole_image = _added_up_by(input, block_shape, channels, padded, step, spread)
    result = _window(whole_image, around[:rank], image)
    return result if isinstance(image_shape, tuple) else agreed(result, equals(image_shape, image))


def _added_up(input: Tensor, block: Ints, image: Ints, step: Ints, spread: Ints) -> Tensor:
    """From [batch, channel * places in a block, blocks] to [batch, channel, *image]."""
    rank, (batch, columns, blocks) = len(image), input.shape
    fact = f"{columns} by {blocks} are no blocks of {list(block)} in {list(image)}"
    if len(block) != rank or min(block) < 1:
        raise RefusalError(Kind.BLOCKS, fact)
    sides = zip(image, block, step, spread, strict=True)
    grid = tuple((n - d * (b - 1) - 1) // s + 1 for n, b, s, d in sides)
    channels, left = divmod(columns, math.prod(block))
    if left or min(grid) < 0 or math.prod(grid) != blocks:
        raise RefusalError(Kind.BLOCKS, fact)
    source = input.reshape((batch, channels, *block, *grid))
    first, second, *walks = (along(axis) for axis in source.axes)
    inside, corner = walks[:rank], walks[rank:]
    places = [c * s + i * d for i, c, s, d in zip(inside, corner, step, spread, strict=True)]
    return _accumulated(source, (batch, channels, *image), (first, second, *places))


def _accumulated(source: Tensor, shape: Shape, place: tuple[Index, ...]) -> Tensor:
    """Every element of `source` added to that of a tensor of zeros which `place` says."""
    empty = full(shape, zero(source.dtype))
    if source.elements == 0 or empty.elements == 0:
        return empty
    out = Buffer("", shape, source.dtype, "workspace")
    value, role = source.value, "blocks added up"
    define(
        (
            part(out, empty, "an empty image"),
            Loops(out, place, source.axes, value, role=role, accumulate="add"),
        )
    )
    return of_buffer(out)


def _added_up_by(
    input: Tensor, block: Tensor, channels: int, image: Ints, step: Ints, spread: Ints
) -> Tensor:
    """As _added_up, with a block that is known only at run time."""
    rank, (batch, columns, blocks) = len(image), input.shape
    fact = f"{columns} by {blocks} are no blocks in {channels} by {list(image)}"
    if channels < 1 or columns % channels or block.shape != (rank,) or min(image) < 1:
        raise RefusalError(Kind.BLOCKS, fact)
    inside = columns // channels
    extents = table(image), table(step), table(spread)

    def corners(dimension: Index) -> Expr:
        extent, by, apart = (values[[dimension]] for values in extents)
        # A block that is larger than all columns fits no better than one of 0.
        given = whole(block[[dimension]])
        side = where((given >= 1) & (given <= inside), given, 0)
        room = extent - apart * (side - 1) - 1
        return where((room >= 0) & (side > 0), apply("div", room, by) + 1, 0)

    grid = compute((rank,), corners).stored("how many blocks lie along each dimension")
    sides = [whole(block[[Index(d)]]) for d in range(rank)]
    counts = [grid[[Index(d)]] for d in range(rank)]
    fits = compare("equal", reduce(mul, sides), inside)
    fits = fits & compare("equal", reduce(mul, counts), blocks)
    for count in counts:
        fits = fits & (count > 0)
    fine = full((), fits).stored("whether the blocks fit")
    source = input.reshape((batch, channels, inside, blocks))
    first, second, within, number = (along(axis) for axis in source.axes)
    places: list[Index] = []
    left_inside, left_number = at(within), at(number)
    for d in reversed(range(rank)):
        one = apply("remainder", left_inside, sides[d])
        other = apply("remainder", left_number, counts[d])
        place = other * step[d] + one * spread[d]
        checked = Checked(INT64, where(fine[()], place, 0), fine[()], Status.SHAPE_MISMATCH)
        places.insert(0, dynamic(checked))
        left_inside = apply("div", left_inside, sides[d])
        left_number = apply("div", left_number, counts[d])
    return _accumulated(source, (batch, channels, *image), (first, second, *places))


def _window(padded: Tensor, before: Ints, image: Ints) -> Tensor:
    offsets = (0, 0, *before)

    def element(*indices: Index) -> Expr:
        return padded[[index + o for index, o in zip(indices, offsets, strict=True)]]

    return compute((*padded.shape[:2], *image), element)
