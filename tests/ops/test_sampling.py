"""GridSample against a sampler that walks one element at a time; AffineGrid by hand."""

from __future__ import annotations

import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

from onnxc.dtypes import numpy_dtype
from onnxc.pipeline import compile_model
from tests.models import Array, any_bits
from tests.ops.node_batch import NodeBatch
from tests.ops.run_time import allowed_types, assert_refused, assert_status, one_node

PADDINGS = ("zeros", "border", "reflection")
INF, NAN = np.inf, np.nan


def mirrored(i: int, length: int, aligned: bool) -> int:
    """The element that reflection shows at a place outside: 0 1 2 | 1 0 1 or 0 1 2 | 2 1 0."""
    while not 0 <= i < length:
        if i < 0:
            i = -i if aligned else -1 - i
        else:
            i = 2 * (length - 1) - i if aligned else 2 * length - 1 - i
    return i


def cubic(distance: float) -> float:
    d, a = abs(distance), -0.75
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0


WEIGHT = {"linear": lambda d: max(0.0, 1 - abs(d)), "cubic": cubic}


def shares(position: float, length: int, mode: str, padding: str, aligned: bool) -> Array:
    """Of each element along one dimension."""
    row = np.zeros(length)
    x = (position + 1) / 2 * (length - 1) if aligned else ((position + 1) * length - 1) / 2
    first = math.floor(x) - 1
    if mode == "nearest":
        weights = {round(x): 1.0}
    else:
        weights = {i: WEIGHT[mode](i - x) for i in range(first, first + 4)}
    for i, weight in weights.items():
        if padding == "zeros" and not 0 <= i < length:
            continue
        place = min(max(i, 0), length - 1)
        if padding == "reflection":
            place = 0 if length == 1 else mirrored(i, length, aligned)
        row[place] += weight
    return row


def sampled(x: Array, grid: Array, mode: str, padding: str, aligned: int) -> Array:
    """A weighted sum over all elements, float64."""
    rank = x.ndim - 2
    y = np.empty((*x.shape[:2], *grid.shape[1:-1]))
    for n, *out in np.ndindex(grid.shape[:-1]):
        for c in range(x.shape[1]):
            value = x[n, c].astype(np.float64)
            for d in reversed(range(rank)):
                position = float(grid[(n, *out, rank - 1 - d)])
                value = value @ shares(position, x.shape[2 + d], mode, padding, bool(aligned))
            y[(n, c, *out)] = value
    return y


def grid_of(*shape: int) -> Array:
    """Positions of sixteenths, many of them outside."""
    generator = np.random.default_rng([5, *shape])
    return (generator.integers(-40, 41, shape) / 16).astype(np.float32)


def image(*shape: int) -> Array:
    return np.random.default_rng([6, *shape]).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("padding", PADDINGS)
def test_grid_sample(mode: str, padding: str) -> None:
    batch = NodeBatch()
    shapes = [
        ((2, 2, 4, 5), (2, 3, 4, 2)),
        ((1, 3, 4), (1, 6, 1)),
        ((1, 1, 3, 2, 4), (1, 2, 2, 3, 3)),
    ]
    if mode != "cubic":
        shapes.append(((1, 1, 2, 3, 2, 4), (1, 2, 1, 2, 2, 4)))
    shapes.append(((1, 2, 1, 1), (1, 3, 3, 2)))
    for (shape, at), aligned in itertools.product(shapes, (0, 1)):
        x, grid = image(*shape), grid_of(*at)
        wanted = sampled(x, grid, mode, padding, aligned).astype(np.float32)
        attributes: dict[str, Any] = {"mode": mode, "padding_mode": padding}
        attributes["align_corners"] = aligned
        batch.add_node("GridSample", [x, grid], [wanted], **attributes)
    batch.check_within(2, atol=4e-6)


def test_nearest_takes_the_even_of_two() -> None:
    """Positions 0.5, 1.5, 2.5 and, outside, -0.5 and 3.5."""
    x = np.array([[[10, 20, 30, 40]]], np.float32)
    grid = (np.array([0.5, 1.5, 2.5, -0.5, 3.5], np.float32) * 2 + 1) / 4 - 1
    grid = grid.reshape(1, 5, 1)
    batch = NodeBatch()
    for padding, last in (("zeros", 0), ("border", 40), ("reflection", 40)):
        wanted = np.array([[[10, 30, 30, 10, last]]], np.float32)
        batch.add_node("GridSample", [x, grid], [wanted], mode="nearest", padding_mode=padding)
    batch.check()


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_positions_that_are_no_numbers(mode: str, kind: Any) -> None:
    """They are outside: zeros, or an element at the border; nothing traps."""
    x = np.array([[[3, 4, 5]]], np.float32)
    most = float(np.finfo(kind).max)
    grid = np.array([NAN, INF, -INF, most, -most], kind).reshape(1, 5, 1)
    batch = NodeBatch()
    zeros = np.zeros((1, 1, 5), np.float32)
    border = np.array([[[3, 5, 3, 5, 3]]], np.float32)
    for aligned in (0, 1):
        attributes: dict[str, Any] = {"mode": mode, "align_corners": aligned}
        batch.add_node("GridSample", [x, grid], [zeros], padding_mode="zeros", **attributes)
        batch.add_node("GridSample", [x, grid], [border], padding_mode="border", **attributes)
    batch.check()
    same = np.full((1, 1, 3), 7, np.float32)
    seven = one_node(
        "GridSample",
        [same, grid],
        np.full((1, 1, 5), 7, np.float32),
        mode=mode,
        padding_mode="reflection",
    )
    seven.check_within(2)


def test_what_has_no_weight_may_be_infinite() -> None:
    x = np.array([[[1, INF, 2, 4]]], np.float32)
    grid = np.array([-1, 1 / 3, 1], np.float32).reshape(1, 3, 1)
    batch = NodeBatch()
    for mode in ("linear", "cubic"):
        batch.add_node(
            "GridSample",
            [x, grid[:, ::2]],
            [np.array([[[1, 4]]], np.float32)],
            mode=mode,
            align_corners=1,
        )
    batch.check()


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("channels", [1, 2])
def test_outside_is_zero_beside_infinite_elements(mode: str, channels: int) -> None:
    """What is read in place of an element outside does not count."""
    x = np.full((1, channels, 2, 2), INF, np.float32)
    grid = np.array([[-4, 0], [0, 4], [9, -9]], np.float32).reshape(1, 3, 1, 2)
    wanted = np.zeros((1, channels, 3, 1), np.float32)
    one_node("GridSample", [x, grid], wanted, mode=mode).check()


@pytest.mark.parametrize("dtype", allowed_types("GridSample", "T1"), ids=str)
def test_nearest_of_every_type(dtype: Any) -> None:
    x = any_bits(dtype, 1, 1, 3)
    if dtype.kind in ("float", "half", "complex"):
        x = np.arange(3).reshape(1, 1, 3).astype(numpy_dtype(dtype))
    grid = np.array([-1, 1, 0], np.float32).reshape(1, 3, 1)
    batch = one_node("GridSample", [x, grid], x[:, :, [0, 2, 1]], mode="nearest", align_corners=1)
    batch.check()


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.uint16])
@pytest.mark.parametrize("grid_type", [np.float32, np.float64, np.float16])
def test_linear_of_other_types(dtype: Any, grid_type: Any) -> None:
    """Integers are cast in the end, toward 0."""
    x = np.array([[[-9, 6, 0, 8]]]) if np.dtype(dtype).kind != "u" else np.array([[[9, 6, 0, 8]]])
    x = x.astype(dtype)
    grid = np.array([-0.875, -0.5, 0.25, 0.625], grid_type).reshape(1, 4, 1)
    exact = sampled(x, grid, "linear", "zeros", 0)
    exact = np.trunc(exact) if np.dtype(dtype).kind in "iu" else exact
    one_node("GridSample", [x, grid], exact.astype(dtype), mode="linear").check()


def test_grid_sample_of_nothing() -> None:
    batch = NodeBatch()
    empty = np.empty((0, 2, 3), np.float32), np.empty((0, 4, 1), np.float32)
    batch.add_node("GridSample", [*empty], [np.empty((0, 2, 4), np.float32)])
    x, none = np.ones((1, 2, 3), np.float32), np.empty((1, 0, 1), np.float32)
    batch.add_node("GridSample", [x, none], [np.empty((1, 2, 0), np.float32)])
    batch.check()


@pytest.mark.parametrize(
    ("attributes", "fact"),
    [({"mode": "bilinear"}, "mode is 'bilinear'"), ({"padding_mode": "wrap"}, "padding_mode is")],
)
def test_grid_sample_refusals(attributes: dict[str, Any], fact: str) -> None:
    x, grid = image(1, 1, 3), grid_of(1, 2, 1)
    batch = one_node("GridSample", [x, grid], np.zeros((1, 1, 2), np.float32), **attributes)
    assert_refused(fact, batch)


def affine(theta: Array, spatial: tuple[int, ...], aligned: int) -> Array:
    centers = []
    for n in spatial:
        reach = (n - 1 if aligned else n) or 1
        centers.append((2 * np.arange(n) - (n - 1)) / reach)
    places = np.stack([*reversed(np.meshgrid(*centers, indexing="ij")), np.ones(spatial)], axis=-1)
    return np.stack([places @ matrix.astype(np.float64).T for matrix in theta])


@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_affine_grid(aligned: int, dtype: Any) -> None:
    batch = NodeBatch()
    for spatial in ((4, 5), (1, 3), (2, 3, 4)):
        rank = len(spatial)
        theta = image(2, rank, rank + 1).astype(dtype)
        size = np.array([2, 3, *spatial])
        wanted = affine(theta, spatial, aligned).astype(dtype)
        for constants in ([1], []):
            batch.add_node(
                "AffineGrid", [theta, size], [wanted], align_corners=aligned, constants=constants
            )
    batch.check_within(4, atol=1e-15 if dtype is np.float64 else 3e-7)


def test_affine_grid_checks_its_size() -> None:
    theta = image(1, 2, 3)
    wanted = np.zeros((1, 4, 5, 2), np.float32)
    for size in ([1, 9, 5, 4], [2, 9, 4, 5]):
        assert_status("SHAPE_MISMATCH", one_node("AffineGrid", [theta, np.array(size)], wanted))
    one_node(
        "AffineGrid",
        [np.zeros((1, 2, 3), np.float32), np.array([1, 77, 4, 5])],
        wanted,
    ).check()


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 16])
def test_tables_take_at_most_twice_the_result(channels: int) -> None:
    """Besides the positions, two doubles each."""
    source = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 20]>
        g (float[1, {channels}, 9, 9] x, float[1, 30, 30, 2] grid)
            => (float[1, {channels}, 30, 30] y) {{ y = GridSample(x, grid) }}""")
    most = 2 * channels * 900 * 4 + 2 * 900 * 8 + 256
    assert compile_model(source).workspace_size <= most
