"""channels_second: which convolutions between a model's own tensors do without a copy of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.models import model, stored
from tests.passes.test_layout import conv, laid_out, network, roles_of, weights

BOTH = ["channels last", "channels last", "channels second"]
"""A copy of what is read, the convolution, and a copy of what it makes."""
READ = ["channels last", "channels second"]
"""Only the latter: it reads its source as it lies."""
NEITHER = [""]


def roles(
    channels: int, filters: int, kernel: tuple[int, ...], size: tuple[int, ...], **attributes: Any
) -> list[str]:
    """Of the steps of a convolution without padding."""
    strides = attributes.get("strides", [1] * len(size))
    dilations = attributes.get("dilations", [1] * len(size))
    made = [
        (extent - (taps - 1) * dilation - 1) // stride + 1
        for extent, taps, dilation, stride in zip(size, kernel, dilations, strides, strict=True)
    ]
    w = weights(filters, channels // attributes.get("group", 1), *kernel)
    shapes = (1, channels, *size), (1, filters, *made)
    return roles_of(laid_out(network([conv("x", "w", "y", **attributes)], *shapes, w=w)))


@pytest.mark.parametrize(
    ("size", "attributes", "found"),
    [
        ((20, 18), {}, NEITHER),
        ((20, 17), {}, BOTH),  # rows of 15
        ((3, 18), {}, NEITHER),
        ((40, 40), {"strides": [1, 2]}, BOTH),
        ((40, 40), {"strides": [2, 1]}, NEITHER),
        ((20, 20), {"dilations": [2, 2]}, NEITHER),
        ((20, 19), {"dilations": [2, 2]}, BOTH),
    ],
)
def test_depthwise(size: tuple[int, ...], attributes: dict[str, Any], found: list[str]) -> None:
    assert roles(5, 5, (3, 3), size, group=5, **attributes) == found


@pytest.mark.parametrize(
    ("kernel", "size", "attributes", "found"),
    [
        ((1, 1), (4, 16), {}, NEITHER),
        ((1, 1), (16, 15), {}, BOTH),
        ((1, 1), (40, 40), {"strides": [2, 1]}, BOTH),
        ((1, 1), (40, 40), {"strides": [1, 2]}, BOTH),
        ((1, 2), (4, 40), {}, BOTH),
        ((2, 1), (4, 40), {}, BOTH),
    ],
)
def test_one_by_one(
    kernel: tuple[int, ...], size: tuple[int, ...], attributes: dict[str, Any], found: list[str]
) -> None:
    assert roles(8, 4, kernel, size, **attributes) == found


def test_one_row_of_windows() -> None:
    """They do not move on from row to row."""
    assert roles(16, 4, (3, 3), (3, 20)) == BOTH


def test_other_ranks() -> None:
    assert roles(8, 4, (1,), (40,)) == NEITHER
    assert roles(5, 5, (3,), (40,), group=5) == NEITHER
    assert roles(8, 4, (1, 1, 1), (2, 3, 20)) == NEITHER


@pytest.mark.parametrize(
    ("channels", "kernel", "attributes", "found"),
    [
        (16, (3, 3), {"strides": [2, 2]}, READ),
        (15, (3, 3), {"strides": [2, 2]}, BOTH),
        (16, (2, 4), {"strides": [2, 2]}, BOTH),
        (16, (1, 9), {"strides": [2, 2]}, READ),
        (16, (3, 3), {"strides": [2, 1]}, READ),
        (16, (3, 3), {"strides": [1, 2]}, READ),
        (16, (3, 3), {}, BOTH),
        (16, (3, 3), {"dilations": [2, 2]}, BOTH),
        (32, (3, 3), {"strides": [2, 2], "group": 2}, ["channels last", "the groups", READ[1]]),
    ],
)
def test_large_windows_that_move_on(
    channels: int, kernel: tuple[int, ...], attributes: dict[str, Any], found: list[str]
) -> None:
    assert roles(channels, 4, kernel, (20, 20), **attributes) == found


@pytest.mark.parametrize(("channels", "kernel", "group"), [(8, 1, 1), (5, 3, 5)])
def test_whole_numbers_have_channels_last(channels: int, kernel: int, group: int) -> None:
    made = 21 - kernel
    w = np.ones((channels, channels // group, kernel, kernel), np.int8)
    graph = helper.make_graph(
        [helper.make_node("ConvInteger", ["x", "w"], ["y"], group=group)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, (1, channels, 20, 20))],
        [helper.make_tensor_value_info("y", TensorProto.INT32, (1, channels, made, made))],
        [stored("w", w)],
    )
    assert roles_of(laid_out(model(graph))) == READ
