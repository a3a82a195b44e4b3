"""RoiAlign and MaxRoiPool against the loops of their definitions; any region must be safe."""

from __future__ import annotations

import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxc.pipeline import evaluate_model
from tests.models import Array
from tests.ops.node_batch import NodeBatch
from tests.ops.run_time import assert_refused, assert_status, one_node

F = np.float32
INF, NAN = np.inf, np.nan


def corners(x: Array, y: float, z: float) -> list[tuple[float, float]]:
    """(weight, value) of the elements around a sample; further out than 1 it is 0."""
    height, width = x.shape
    if not (-1 <= y <= height and -1 <= z <= width):
        return [(0.0, 0.0)]
    pairs = []
    for place, length in ((y, height), (z, width)):
        place = min(max(place, 0.0), length - 1.0)
        low = int(place)
        high = min(low + 1, length - 1)
        pairs.append(((low, 1 - (place - low)), (high, place - low)))
    return [(u * v, float(x[i, j])) for (i, u), (j, v) in itertools.product(*pairs)]


def aligned(
    x: Array, rois: Array, images: Array, height: int, width: int, **attributes: Any
) -> Array:
    """float64[rois][channels][height][width], by the definition, one sample at a time."""
    half = attributes.get("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    ratio, scale = attributes.get("sampling_ratio", 0), F(attributes.get("spatial_scale", 1.0))
    y = np.empty((len(rois), x.shape[1], height, width))
    for r, roi in enumerate(rois):
        left, top, right, bottom = roi * scale - F(0.5 if half else 0)
        bins = []
        for low, high, count in ((top, bottom, height), (left, right, width)):
            extent = high - low if half else max(high - low, F(1))
            size = extent / F(count)
            samples = ratio or max(0, math.ceil(size))
            bins.append(
                [
                    [float(low) + (b + (n + 0.5) / samples) * float(size) for n in range(samples)]
                    for b in range(count)
                ]
            )
        for c, i, j in np.ndindex(x.shape[1], height, width):
            samples = [corners(x[images[r], c], a, b) for a in bins[0][i] for b in bins[1][j]]
            if attributes.get("mode") == "max":
                y[r, c, i, j] = max((w * v for four in samples for w, v in four), default=0)
            else:
                total = sum(w * v for four in samples for w, v in four)
                y[r, c, i, j] = total / max(1, len(samples))
    return y


def images(*shape: int) -> Array:
    return np.random.default_rng([8, *shape]).standard_normal(shape).astype(F)


ROIS = np.array(
    [
        [0.5, 1, 3.25, 4],
        [-4, -3, 9, 8],  # around all
        [2, 2, 2, 2],  # without extent
        [3, 4, 1, 0],  # turned around
        [20, 20, 30, 40],  # elsewhere
        [0, 0, 5, 4],
        [4.5, 3.5, 5, 4],
        [-1.5, -60, 2.5, 70],
        [-0.9, -0.4, -0.6, 3.5],  # samples before the first column
        [4.2, 1, 4.9, 3.9],  # and after the last
    ],
    F,
)
IMAGES = np.array([0, 1, 1, 0, 1, 0, 1, 0, 1, 0])


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel"])
def test_roi_align(mode: str, coordinates: str) -> None:
    batch = NodeBatch()
    for ratio, (height, width), scale in ((0, (2, 3), 1.0), (2, (3, 1), 0.5), (3, (1, 2), 1.5)):
        x = images(2, 2, 4, 5)
        attributes: dict[str, Any] = {
            "mode": mode,
            "coordinate_transformation_mode": coordinates,
            "sampling_ratio": ratio,
            "spatial_scale": scale,
        }
        wanted = aligned(x, ROIS, IMAGES, height, width, **attributes).astype(F)
        batch.add_node(
            "RoiAlign",
            [x, ROIS, IMAGES],
            [wanted],
            output_height=height,
            output_width=width,
            **attributes,
        )
    batch.check_within(8, atol=3e-6)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("channels", [1, 3, 8])
def test_many_channels_are_sampled_side_by_side(mode: str, channels: int) -> None:
    x = images(2, channels, 4, 5)
    attributes: dict[str, Any] = {"mode": mode, "sampling_ratio": 2}
    wanted = aligned(x, ROIS, IMAGES, 3, 2, **attributes).astype(F)
    batch = one_node(
        "RoiAlign", [x, ROIS, IMAGES], wanted, output_height=3, output_width=2, **attributes
    )
    batch.check_within(8, atol=3e-6)


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align_of_one_element(mode: str) -> None:
    x = np.full((1, 1, 1, 1), -3, F)
    rois = np.array([[0, 0, 1, 1], [-1, -1, 2, 2]], F)
    wanted = aligned(x, rois, np.zeros(2, int), 2, 2, mode=mode).astype(F)
    one_node(
        "RoiAlign",
        [x, rois, np.zeros(2, np.int64)],
        wanted,
        output_height=2,
        output_width=2,
        mode=mode,
    ).check_within(4, atol=1e-6)


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_any_region_is_safe(mode: str) -> None:
    """NaN has no sample, nor have infinities; a huge one has most of its samples outside."""
    rois = np.array([[NAN, 0, 2, 2], [0, 0, INF, 2], [-INF, -INF, INF, INF], [0, 0, 1e30, 1e30]], F)
    x = np.full((1, 1, 3, 3), 5, F)
    batch = one_node(
        "RoiAlign", [x, rois, np.zeros(4, np.int64)], np.zeros((4, 1, 1, 1), F), mode=mode
    )
    if mode == "avg":
        batch.check_within(0, atol=1e-20)
    else:
        batch.wanted["y0_0"][3] = 5  # some sample is at an element
        batch.check_within(0, atol=2)


def test_a_huge_region_is_its_mean() -> None:
    """A million samples a bin, 1 apart: those from -1 to 4 count, the others are 0."""
    x = np.ones((1, 1, 4, 4), F)
    rois = np.array([[-500, -500, 500, 500]], F)
    inside = 6 / 1000
    one_node(
        "RoiAlign", [x, rois, np.zeros(1, np.int64)], np.full((1, 1, 1, 1), inside**2, F)
    ).check_within(2)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(width=32), min_size=4, max_size=4),
    st.sampled_from(["avg", "max"]),
    st.sampled_from([0, 1, 5]),
)
def test_regions_of_any_bits_give_no_other_value(
    numbers: list[float], mode: str, ratio: int
) -> None:
    """Of elements from 1 to 2, nothing outside of 0 to 2 can come."""
    x = np.array([[[[1, 2], [1.5, 1.25]]]], F)
    rois = np.array([numbers], F)
    batch = one_node(
        "RoiAlign",
        [x, rois, np.zeros(1, np.int64)],
        np.zeros((1, 1, 2, 2), F),
        output_height=2,
        output_width=2,
        mode=mode,
        sampling_ratio=ratio,
    )
    (y,) = evaluate_model(batch.model(), batch.given).values()
    assert ((y >= 0) & (y <= 2.0001)).all()


@pytest.mark.parametrize("index", [-1, 2, 2**40])
def test_an_image_that_is_not_there(index: int) -> None:
    x, rois = images(2, 1, 3, 3), ROIS[:1]
    batch = one_node("RoiAlign", [x, rois, np.array([index])], np.zeros((1, 1, 1, 1), F))
    assert_status("INDEX_OUT_OF_RANGE", batch)


@pytest.mark.parametrize("index", [-1, 2, 1e30, NAN, INF])
def test_an_image_that_is_not_there_by_a_float(index: float) -> None:
    rois = np.array([[index, 0, 0, 1, 1]], F)
    batch = one_node(
        "MaxRoiPool", [images(2, 1, 3, 3), rois], np.zeros((1, 1, 1, 1), F), pooled_shape=[1, 1]
    )
    assert_status("INDEX_OUT_OF_RANGE", batch)


def largest(x: Array, rois: Array, height: int, width: int, scale: float) -> Array:
    y = np.zeros((len(rois), x.shape[1], height, width), x.dtype)
    for r, (image, *numbers) in enumerate(rois.astype(np.float64)):
        left, top, right, bottom = (
            int(math.copysign(math.floor(abs(v * scale) + 0.5), v)) for v in numbers
        )
        for i, j in np.ndindex(height, width):
            picked = []
            for low, high, count, b, length in (
                (top, bottom, height, i, x.shape[2]),
                (left, right, width, j, x.shape[3]),
            ):
                size = max(high - low + 1, 1)
                start, end = low + b * size // count, low - (-(b + 1) * size // count)
                picked.append(slice(min(max(start, 0), length), min(max(end, 0), length)))
            part = x[int(image)][:, picked[0], picked[1]]
            if part.size:
                y[r, :, i, j] = part.max((1, 2))
    return y


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_max_roi_pool(dtype: Any) -> None:
    batch = NodeBatch()
    x = images(2, 2, 5, 6).astype(dtype)
    rois = np.concatenate([IMAGES[:, None], ROIS], 1).astype(dtype)
    for shape, scale in (((2, 3), 1.0), ((1, 1), 0.5), ((4, 2), 1.0)):
        wanted = largest(x, rois, *shape, scale)
        batch.add_node("MaxRoiPool", [x, rois], [wanted], pooled_shape=shape, spatial_scale=scale)
    batch.check()


def test_max_roi_pool_of_any_numbers() -> None:
    rois = np.array([[0, NAN, 0, 2, 2], [0, 0, 0, INF, INF], [0, -1e30, -1e30, 1e30, 1e30]], F)
    x = np.array([[[[1, NAN], [3, 4]]]], F)
    wanted = np.array([0, NAN, NAN], F).reshape(3, 1, 1, 1)
    found = one_node("MaxRoiPool", [x, rois], wanted, pooled_shape=[1, 1])
    found.wanted["y0_0"][1] = 0  # infinity minus 0 has no bins
    source = found.model()
    (y,) = evaluate_model(source, found.given).values()
    assert y.shape == (3, 1, 1, 1)
    assert y[0] == 0
    assert np.isnan(y[2])


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes", "fact"),
    [
        ("RoiAlign", 3, {"mode": "sum"}, "mode 'sum'"),
        ("RoiAlign", 3, {"sampling_ratio": -1}, "sampling_ratio is negative"),
        ("MaxRoiPool", 2, {"pooled_shape": [0, 1]}, "must only contain positive values"),
    ],
)
def test_refusals(operator: str, inputs: int, attributes: dict[str, Any], fact: str) -> None:
    x, rois = images(1, 1, 3, 3), np.zeros((1, 4 if operator == "RoiAlign" else 5), F)
    given_inputs = [x, rois, np.zeros(1, np.int64)][:inputs]
    shape = (1, 1, *attributes.get("pooled_shape", (1, 1)))
    assert_refused(fact, one_node(operator, given_inputs, np.zeros(shape, F), **attributes))
