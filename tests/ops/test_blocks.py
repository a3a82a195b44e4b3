"""Blocks of images: DepthToSpace, SpaceToDepth and Col2Im."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from onnxc.dtypes import ElementType
from onnxc.pipeline import compile_model
from tests.models import Array, any_bits
from tests.ops.node_batch import NodeBatch
from tests.ops.run_time import allowed_types, assert_status, check_fused_and_plain, one_node

pytestmark = pytest.mark.usefixtures("strict_c")


def ints(*values: int) -> Array:
    return np.asarray(values, np.int64)


def numbers(*shape: int) -> Array:
    return np.arange(math.prod(shape), dtype=np.float32).reshape(shape)


def spaced(x: Array, size: int, mode: str) -> Array:
    """The formulas of the specification."""
    batch, channels, height, width = x.shape
    rest = channels // size**2
    if mode == "DCR":
        parts = x.reshape(batch, size, size, rest, height, width).transpose(0, 3, 4, 1, 5, 2)
    else:
        parts = x.reshape(batch, rest, size, size, height, width).transpose(0, 1, 4, 2, 5, 3)
    return parts.reshape(batch, rest, height * size, width * size)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_and_space(mode: str) -> None:
    """Each undoes the other."""
    batch = NodeBatch()
    for shape, size in (((2, 8, 2, 3), 2), ((1, 9, 1, 2), 3), ((1, 3, 2, 2), 1), ((0, 4, 1, 1), 2)):
        x = numbers(*shape)
        y = spaced(x, size, mode)
        batch.add_node("DepthToSpace", [x], [y], blocksize=size, mode=mode)
        batch.add_node("SpaceToDepth", [y], [x], blocksize=size, mode=mode)
    check_fused_and_plain(batch)


@pytest.mark.parametrize("dtype", allowed_types("DepthToSpace"), ids=str)
def test_depth_and_space_of_any_type(dtype: ElementType) -> None:
    batch, x = NodeBatch(), any_bits(dtype, 1, 4, 2, 1)
    batch.add_node("DepthToSpace", [x], [spaced(x, 2, "DCR")], blocksize=2)
    batch.add_node("SpaceToDepth", [spaced(x, 2, "DCR")], [x], blocksize=2)
    batch.check()


def test_depth_becomes_space_in_the_output_itself() -> None:
    x = numbers(1, 4, 2, 2)
    batch = one_node("DepthToSpace", [x], spaced(x, 2, "DCR"), blocksize=2)
    assert compile_model(batch.model()).workspace_size == 0


# Col2Im


def image_of(
    x: Array, image: list[int], block: list[int], strides: Any, dilations: Any, pads: Any
) -> Array:
    """Each element added where its block and its place in the block say."""
    rank = len(image)
    pads = pads or [0] * 2 * rank
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    padded = [n + pads[d] + pads[d + rank] for d, n in enumerate(image)]
    sides = zip(padded, block, strides, dilations, strict=True)
    grid = [(n - d * (b - 1) - 1) // s + 1 for n, b, s, d in sides]
    channels = x.shape[1] // math.prod(block)
    out = np.zeros((x.shape[0], channels, *padded), x.dtype)
    for column, (channel, *inside) in enumerate(
        itertools.product(range(channels), *map(range, block))
    ):
        for number, corner in enumerate(itertools.product(*map(range, grid))):
            places = zip(corner, strides, inside, dilations, strict=True)
            there = tuple(c * s + i * d for c, s, i, d in places)
            out[(slice(None), channel, *there)] += x[:, column, number]
    window = tuple(slice(pads[d], pads[d] + n) for d, n in enumerate(image))
    return out[(slice(None), slice(None), *window)].copy()


# Image, block, strides, dilations, pads, how many blocks.
IMAGES: list[tuple[list[int], list[int], Any, Any, Any, int]] = [
    ([5, 5], [1, 5], None, None, None, 5),
    ([4, 5], [2, 3], None, None, None, 9),
    ([5, 5], [3, 3], [2, 2], None, None, 4),
    ([6, 6], [2, 2], None, [1, 5], None, 5),
    ([5, 5], [1, 5], None, None, [0, 1, 0, 1], 15),
    ([3, 4], [2, 2], [2, 1], [1, 2], [1, 0, 0, 1], 6),
    ([3, 4, 2], [1, 2, 2], None, None, None, 9),
    ([7], [3], [2], None, None, 3),
]


@pytest.mark.parametrize("constants", [[1, 2], [], [2]], ids=str)
def test_col2im(constants: list[int]) -> None:
    batch = NodeBatch()
    for image, block, strides, dilations, pads, blocks in IMAGES:
        if len(image) < 2 and constants != [1, 2]:
            continue  # ONNX's own inference takes two dimensions for granted
        x = numbers(2, 2 * math.prod(block), blocks)
        wanted = image_of(x, image, block, strides, dilations, pads)
        given = {"strides": strides, "dilations": dilations, "pads": pads}
        attributes = {name: value for name, value in given.items() if value is not None}
        inputs = [x, ints(*image), ints(*block)]
        batch.add_node("Col2Im", inputs, [wanted], constants=constants, **attributes)
    check_fused_and_plain(batch)


@pytest.mark.parametrize("kind", [np.int8, np.uint64, np.float64, np.float16])
def test_col2im_of_other_numbers(kind: Any) -> None:
    x = np.asarray([[[100, 101], [102, 103]]], kind)
    total = (x[0, 0, 1].astype(np.float64) + x[0, 1, 0].astype(np.float64)).astype(np.int64)
    wanted = np.asarray([[[[100], [int(total)], [103]]]]).astype(kind)
    inputs = [x, ints(3, 1), ints(2, 1)]
    one_node("Col2Im", inputs, wanted, constants=[1, 2]).check()


def test_the_image_with_its_padding_is_stored_one_channel_at_a_time() -> None:
    """Of channels that are added up, each leaves its window before the next one begins."""
    blocks, wanted = numbers(6, 9 * 4, 8 * 8), numbers(6, 4, 8, 8)
    inputs = [blocks, ints(8, 8), ints(3, 3)]
    node = one_node("Col2Im", inputs, wanted, constants=[1, 2], pads=[1, 1, 1, 1])
    assert compile_model(node.model()).workspace_size < 6 * 4 * 10 * 10 * 4 // 4


@pytest.mark.parametrize(
    ("image", "block"),
    [((4, 4), (2, 3)), ((4, 5), (3, 2)), ((4, 5), (1, 6)), ((4, 5), (6, 0)), ((4, 5), (-2, -3))],
)
def test_col2im_to_another_shape_than_declared(
    image: tuple[int, int], block: tuple[int, int]
) -> None:
    inputs = [numbers(1, 6, 9), ints(*image), ints(*block)]
    assert_status("SHAPE_MISMATCH", one_node("Col2Im", inputs, numbers(1, 1, 4, 5)))
