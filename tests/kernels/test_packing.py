"""Constants in the order of a tuned kernel, against one element after the other."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from onnxc.dtypes import FLOAT
from onnxc.expression import Axis, Buffer, Index, Load, along
from onnxc.target import TARGETS
from onnxc.tuned.contraction import packed
from onnxc.tuned.walks import gathered, viewed
from onnxc.tuned.winograd import PANEL, _packed

FILTER = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])


def numbers(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("strides", [(12, 4, 1), (1, 2, 8), (-12, 4, -1), (0, 5, 0), (3, 3, 3)])
def test_a_view_has_what_the_load_reads(strides: tuple[int, ...]) -> None:
    axes = [Axis(2), Axis(3), Axis(4)]
    data = numbers(60)
    index = Index(20) + sum((along(a) * s for a, s in zip(axes, strides, strict=True)), Index())
    load = Load(FLOAT, Buffer("w", data.shape, FLOAT, "constant", data), (index,))
    for found in (viewed(load, axes), gathered(load, axes)):
        assert found.shape == (2, 3, 4)
        for place in itertools.product(range(2), range(3), range(4)):
            assert found[place] == data[20 + np.dot(strides, place)]
    assert not viewed(load, axes).flags.writeable


@pytest.mark.parametrize("lanes", [1, 16, 17, 32, 33, 40, 64, 70])
@pytest.mark.parametrize("outer", [(5,), (3, 5), (2, 1, 5)])
def test_panels_follow_one_another(outer: tuple[int, ...], lanes: int) -> None:
    """The last is as wide as it must, and zero where there is no lane."""
    target = TARGETS["generic"]
    weights = numbers(lanes, *outer).transpose(*range(1, len(outer) + 1), 0)
    blocks = packed(weights, 5, target)
    assert blocks.shape[0] == np.prod(outer) // 5
    for values, block in zip(blocks, weights.reshape(-1, 5, lanes), strict=True):
        rest = values
        for first in range(0, lanes, target.panel):
            live = min(target.panel, lanes - first)
            width = -(-live // target.whole) * target.whole
            panel, rest = rest[: 5 * width].reshape(5, width), rest[5 * width :]
            assert (panel[:, :live] == block[:, first : first + live]).all()
            assert not panel[:, live:].any()
        assert not rest.size


@pytest.mark.parametrize("outputs", [8, 16, 32, 40, 72])
def test_filters_are_transformed_in_double(outputs: int) -> None:
    weights = numbers(3, 3, 9, outputs)
    found, planes = _packed(weights), np.zeros((16, 9, -(-outputs // 16) * 16), np.float32)
    for channel, output in itertools.product(range(9), range(outputs)):
        taps = weights[:, :, channel, output].astype(np.float64)
        planes[:, channel, output] = (FILTER @ taps @ FILTER.T).reshape(16)
    panels = [planes[..., n : n + PANEL].ravel() for n in range(0, planes.shape[-1], PANEL)]
    assert (found == np.concatenate(panels)).all()


def test_no_transformed_filter_is_a_negative_zero() -> None:
    assert not np.signbit(_packed(np.full((3, 3, 8, 16), -0.0, np.float32))).any()
