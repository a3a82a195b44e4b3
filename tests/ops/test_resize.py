"""Resize: exact positions, weights by definition, and the corners of the specification."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxc.dtypes import numpy_dtype
from tests.models import Array, any_bits
from tests.ops.node_batch import NodeBatch
from tests.ops.run_time import allowed_types, assert_refused, assert_status, one_node

HALF = Fraction(1, 2)
ROUNDING: dict[str, Callable[[Fraction], int]] = {
    "round_prefer_floor": lambda p: math.ceil(p - HALF),
    "round_prefer_ceil": lambda p: math.floor(p + HALF),
    "floor": math.floor,
    "ceil": math.ceil,
}
COORDINATES = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")


def position(coordinates: str, x: int, length: int, out: int, scale: Fraction) -> Fraction:
    """Where output x lies, by the formulas of the specification."""
    if coordinates == "asymmetric":
        return x / scale
    if coordinates == "align_corners":
        resized = scale * length
        return Fraction(0) if resized == 1 else x * (length - 1) / (resized - 1)
    if coordinates == "pytorch_half_pixel" and out == 1:
        return Fraction(0)
    symmetric = Fraction(length, 2) * (1 - out / (scale * length))
    shift = symmetric if coordinates == "half_pixel_symmetric" else 0
    return shift + (x + HALF) / scale - HALF


def filtered(mode: str, distance: Fraction, a: float) -> float:
    d = abs(float(distance))
    if mode == "linear":
        return max(0.0, 1 - d)
    if d < 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0


def matrix(
    length: int,
    out: int,
    scale: Fraction,
    *,
    mode: str,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    antialias: int = 0,
    exclude_outside: int = 0,
) -> Array:
    """float64[out][length]: the share of each element in each output."""
    found = np.zeros((out, length))
    wide = max(Fraction(1), 1 / scale) if antialias else Fraction(1)
    for x in range(out):
        p = position(coordinate_transformation_mode, x, length, out, scale)
        reach = math.ceil(2 * wide) + 1
        row = np.zeros(length)
        for i in range(math.floor(p) - reach, math.floor(p) + reach + 2):
            if exclude_outside and not 0 <= i < length:
                continue
            row[min(max(i, 0), length - 1)] += filtered(mode, (i - p) / wide, cubic_coeff_a)
        found[x] = row / row.sum() if antialias or exclude_outside else row
    return found


def resized(x: Array, factors: Sequence[tuple[int, Fraction]], **attributes: Any) -> Array:
    """`factors` gives output size and scale of each axis."""
    result = x.astype(np.float64)
    for axis, (out, scale) in enumerate(factors):
        if out != x.shape[axis] or scale != 1:
            table = matrix(x.shape[axis], out, scale, **attributes)
            result = np.moveaxis(np.tensordot(table, result, (1, axis)), 0, axis)
    return result


def ramp(*shape: int) -> Array:
    return np.random.default_rng([9, *shape]).standard_normal(shape).astype(np.float32)


def sizes(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


def scales(*numbers: float) -> Array:
    return np.array(numbers, np.float32)


def nearest_batch(pairs: Sequence[tuple[int, int]], coordinates: str) -> NodeBatch:
    batch = NodeBatch()
    for (length, out), (rounding, rounded) in itertools.product(pairs, ROUNDING.items()):
        places = [position(coordinates, x, length, out, Fraction(out, length)) for x in range(out)]
        wanted = [min(max(rounded(p), 0), length - 1) for p in places]
        batch.add_node(
            "Resize",
            [np.arange(length, dtype=np.int32), None, None, sizes(out)],
            [np.array(wanted, np.int32)],
            constants=[3],
            nearest_mode=rounding,
            coordinate_transformation_mode=coordinates,
        )
    return batch


@pytest.mark.parametrize("coordinates", COORDINATES)
def test_nearest_from_sizes_is_the_exact_rational(coordinates: str) -> None:
    pairs = [(length, out) for length in range(1, 8) for out in range(1, 8) if length != out]
    nearest_batch(pairs, coordinates).check_evaluated()


@pytest.mark.parametrize("coordinates", COORDINATES)
def test_nearest_in_c(coordinates: str) -> None:
    """Pairs at which floats have gone wrong."""
    nearest_batch([(14, 2), (7, 17), (3, 1), (4, 8), (9, 5)], coordinates).check()


@pytest.mark.parametrize(
    ("scale", "length", "wanted"),
    [
        (1 / 3, 9, [0, 3, 6]),  # 1 / float(1/3) is below 3, and a sample early
        (0.1, 20, [0, 10]),
        (0.6, 5, [0, 1, 3]),
        (2.5, 2, [0, 0, 0, 1, 1]),
    ],
)
@pytest.mark.parametrize("constant", [True, False])
def test_a_quotient_by_a_scale_is_rounded_to_float(
    scale: float, length: int, wanted: list[int], constant: bool
) -> None:
    one_node(
        "Resize",
        [np.arange(length, dtype=np.float32), None, scales(scale)],
        np.array(wanted, np.float32),
        constants=[2] if constant else [],
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    ).check()


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("antialias", [0, 1])
@pytest.mark.parametrize("constant", [True, False])
def test_weights_are_those_of_the_definition(mode: str, antialias: int, constant: bool) -> None:
    """By sizes and by scales, whether they are known when it is compiled or not."""
    batch = NodeBatch()
    for number, coordinates in enumerate((*COORDINATES, "half_pixel_symmetric")):
        exclude = number % 2
        attributes: dict[str, Any] = {"mode": mode, "antialias": antialias}
        attributes["coordinate_transformation_mode"] = coordinates
        if mode == "cubic":
            attributes |= {"exclude_outside": exclude, "cubic_coeff_a": -0.5 - exclude / 4}
        x = ramp(1, 2, 5, 7)
        known = {"constants": [2, 3] if constant else []}
        new = (1, 2, *[(3, 11), (8, 4), (1, 14), (5, 2)][number % 4])
        factors = [(out, Fraction(out, length)) for out, length in zip(new, x.shape, strict=True)]
        wanted = resized(x, factors, **attributes).astype(np.float32)
        batch.add_node("Resize", [x, None, None, sizes(*new)], [wanted], **known, **attributes)
        by = scales(1, 1, *[(0.5, 1.75), (0.75, 0.25), (2, 1.5)][number % 3])
        factors = [
            (int(scale * n), Fraction(float(scale))) for scale, n in zip(by, x.shape, strict=True)
        ]
        wanted = resized(x, factors, **attributes).astype(np.float32)
        batch.add_node("Resize", [x, None, by], [wanted], **known, **attributes)
    batch.check_within(4, atol=2e-6)


def test_one_and_three_dimensions_and_axes() -> None:
    batch = NodeBatch()
    x, y = ramp(5), ramp(2, 3, 4, 5)
    line = resized(x, [(9, Fraction(9, 5))], mode="linear").astype(np.float32)
    batch.add_node("Resize", [x, None, None, sizes(9)], [line], mode="linear")
    new = ((4, Fraction(2)), (3, Fraction(1)), (6, Fraction(3, 2)), (2, Fraction(2, 5)))
    wanted = resized(y, new, mode="linear").astype(np.float32)
    for axes, values in (((0, 2, 3), (4, 6, 2)), ((-1, 0, -2), (2, 4, 6))):
        inputs = [y, None, None, sizes(*values)]
        batch.add_node("Resize", inputs, [wanted], axes=axes, mode="linear", constants=[3])
    batch.check_within(4, atol=1e-6)


def test_align_corners_by_a_scale_goes_by_the_exact_length() -> None:
    """ONNX's own test: 4 * 0.6 is 2.4 long, so the last of 2 is not the last of 4."""
    x = np.arange(1, 9, dtype=np.float32).reshape(1, 1, 2, 4)
    one_node(
        "Resize",
        [x, None, scales(1, 1, 0.6, 0.6)],
        np.array([[[[1, 3.142857]]]], np.float32),
        mode="linear",
        coordinate_transformation_mode="align_corners",
    ).check_within(2)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_pytorch_half_pixel_of_one_output_is_the_first(mode: str) -> None:
    x = np.array([1, 2, 3, 5], np.float32)
    one_node(
        "Resize",
        [x, None, None, sizes(1)],
        np.array([1], np.float32),
        mode=mode,
        coordinate_transformation_mode="pytorch_half_pixel",
    ).check()


@pytest.mark.parametrize("constant", [True, False])
def test_what_has_no_weight_may_be_infinite(constant: bool) -> None:
    x = np.array([1, np.inf, 2, 4], np.float32)
    batch = NodeBatch()
    for mode in ("linear", "cubic"):
        batch.add_node(
            "Resize",
            [x, None, scales(0.5)],
            [np.array([1, 2], np.float32)],
            constants=[2] if constant else [],
            mode=mode,
            coordinate_transformation_mode="asymmetric",
        )
    batch.check()


def test_integers_round_half_to_even_and_saturate() -> None:
    batch = NodeBatch()
    for dtype in (np.uint8, np.int8, np.int16, np.uint32, np.int64):
        x = np.array([0, 1, 2, 5], dtype)
        # Halves: 0.5, 1, 1.5, 3.5; the thirds of the second are exact at halves too.
        batch.add_node(
            "Resize",
            [x, None, None, sizes(7)],
            [np.array([0, 0, 1, 2, 2, 4, 5], dtype)],
            mode="linear",
            coordinate_transformation_mode="align_corners",
        )
        batch.add_node(
            "Resize",
            [np.array([0, 3], dtype), None, None, sizes(7)],
            [np.array([0, 0, 1, 2, 2, 2, 3], dtype)],
            mode="linear",
            coordinate_transformation_mode="align_corners",
        )
    edge = np.array([0, 0, 255, 255], np.uint8)
    exact = resized(edge, [(8, Fraction(2))], mode="cubic")
    assert exact.min() < 0
    assert exact.max() > 255
    wanted = np.clip(np.rint(exact), 0, 255).astype(np.uint8)
    batch.add_node("Resize", [edge, None, scales(2)], [wanted], mode="cubic")
    batch.check()


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_tf_crop_and_resize(mode: str, constant: bool) -> None:
    """The corners of the region are samples; outside of the input is the given value."""
    x = np.array([[0, 1, 2], [3, 4, 5], [6, 7, 8]], np.float32)
    roi = np.array([0, -0.5, 1, 1], np.float32)
    # Columns: -1, 0.5, 2.
    middle: list[float] = [0, 3, 6] if mode == "nearest" else [0.5, 3.5, 6.5]
    wanted = np.array([[9, middle[n], 3 * n + 2] for n in range(3)], np.float32)
    batch = NodeBatch()
    attributes: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": "tf_crop_and_resize",
        "extrapolation_value": 9.0,
        "constants": [1, 3] if constant else [],
    }
    batch.add_node("Resize", [x, roi, None, sizes(3, 3)], [wanted], **attributes)
    # One output is the center of the region: row 1, column 0.5.
    batch.add_node("Resize", [x, roi, None, sizes(1, 1)], [wanted[1:2, 1:2]], **attributes)
    part = np.array([-0.5, 1], np.float32)
    batch.add_node("Resize", [x, part, None, sizes(3)], [wanted], axes=[-1], **attributes)
    batch.check()


def test_a_region_of_nan_or_infinity_is_outside() -> None:
    x = np.arange(4, dtype=np.float32)
    batch = NodeBatch()
    for mode, bad in itertools.product(("nearest", "linear", "cubic"), (np.nan, np.inf, -np.inf)):
        batch.add_node(
            "Resize",
            [x, np.array([bad, 1], np.float32), None, sizes(3)],
            [np.full(3, 7, np.float32)],
            mode=mode,
            coordinate_transformation_mode="tf_crop_and_resize",
            extrapolation_value=7.0,
        )
    batch.check()


@pytest.mark.parametrize("constant", [True, False])
def test_keep_aspect_ratio(constant: bool) -> None:
    """One exact factor for all axes; sizes are rounded to nearest, halfway up."""
    batch = NodeBatch()
    x = np.arange(12, dtype=np.int32).reshape(2, 6)
    known = {"constants": [3] if constant else []}
    for policy, asked, rows, columns in (
        ("not_larger", (7, 8), 3, 8),  # 4/3: 2.67, 8
        ("not_smaller", (7, 8), 7, 21),  # 7/2
        ("not_larger", (2, 3), 1, 3),  # 1/2
        ("not_smaller", (1, 5), 2, 5),  # 5/6: 1.67, 5
    ):
        factor = min if policy == "not_larger" else max
        scale = factor(Fraction(asked[0], 2), Fraction(asked[1], 6))
        places = [
            [math.ceil((n + HALF) / scale - HALF - HALF) for n in range(count)]
            for count in (rows, columns)
        ]
        chosen = [np.clip(p, 0, n - 1) for p, n in zip(places, x.shape, strict=True)]
        wanted = x[np.ix_(*chosen)]
        inputs = [x, None, None, sizes(*asked)]
        batch.add_node("Resize", inputs, [wanted], keep_aspect_ratio_policy=policy, **known)
    batch.check()


@pytest.mark.parametrize("dtype", allowed_types("Resize", "T1"), ids=str)
def test_nearest_keeps_the_bits_of_every_type(dtype: Any) -> None:
    x = any_bits(dtype, 2, 3)
    if dtype.kind == "half":  # they are floats between, where a signalling NaN becomes quiet
        x = np.where(np.isnan(x.astype(np.float32)), np.asarray(1, x.dtype), x)
    batch = NodeBatch()
    wanted = x[:, [0, 0, 1, 1, 2, 2]]
    batch.add_node("Resize", [x, None, scales(1, 2)], [wanted], constants=[2])
    batch.add_node("Resize", [x, None, scales(1, 2)], [wanted])
    batch.check()


def test_upsample_by_a_run_time_scale() -> None:
    """An old operator, whose scales are 1 or more: nearest is the sample below."""
    x = ramp(1, 1, 2, 3)
    batch = NodeBatch(opset=9, ir=8)
    wanted = x[:, :, [0, 0, 1, 1]][:, :, :, [0, 0, 1, 2]]
    batch.add_node("Upsample", [x, scales(1, 1, 2, 1.5)], [wanted])
    batch.check()


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16])
def test_linear_of_other_floats(dtype: Any) -> None:
    x = ramp(4, 6).astype(dtype)
    exact = resized(x, [(4, Fraction(1)), (9, Fraction(3, 2))], mode="linear")
    batch = one_node("Resize", [x, None, None, sizes(4, 9)], exact.astype(dtype), mode="linear")
    batch.check_within(16, atol=1e-15 if dtype is np.float64 else 1e-6)


def test_the_same_size_is_the_same_tensor() -> None:
    x = ramp(1, 2, 3, 4)
    batch = NodeBatch()
    for mode in ("nearest", "linear", "cubic"):
        batch.add_node("Resize", [x, None, scales(1, 1, 1, 1)], [x], constants=[2], mode=mode)
        batch.add_node("Resize", [x, None, None, sizes(1, 2, 3, 4)], [x], mode=mode)
    batch.check()


def test_nothing_gives_nothing() -> None:
    batch = NodeBatch()
    x = np.empty((0, 2), np.float32)
    batch.add_node("Resize", [x, None, scales(1, 2)], [np.empty((0, 4), np.float32)], constants=[2])
    short = [np.ones(3, np.float32), None, scales(0.2)]
    batch.add_node("Resize", short, [np.empty(0, np.float32)], constants=[2])
    batch.check()


@pytest.mark.parametrize("numbers", [sizes(5), scales(np.nan), scales(np.inf), scales(1.5)])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_a_run_time_shape_that_is_not_the_declared_one(numbers: Array, mode: str) -> None:
    by_size = numbers.dtype == np.int64
    inputs = [ramp(3), None, *([None] if by_size else []), numbers]
    batch = one_node("Resize", inputs, np.zeros(6, np.float32), mode=mode)
    assert_status("SHAPE_MISMATCH", batch)


def test_a_policy_of_run_time_sizes_is_checked() -> None:
    batch = one_node(
        "Resize",
        [ramp(2, 4), None, None, sizes(4, 6)],
        np.zeros((4, 8), np.float32),
        keep_aspect_ratio_policy="not_larger",
    )
    assert_status("SHAPE_MISMATCH", batch)


@pytest.mark.parametrize(
    ("given", "attributes", "fact"),
    [
        ((None, scales(2), sizes(4)), {}, "but not both of them"),
        ((None, None, sizes(4)), {"mode": "area"}, "mode is 'area'"),
        ((None, None, sizes(4)), {"nearest_mode": "up"}, "nearest_mode is 'up'"),
        ((None, None, sizes(4)), {"coordinate_transformation_mode": "x"}, "transformation_mode"),
        (
            (None, None, sizes(4)),
            {"keep_aspect_ratio_policy": "x"},
            "`keep_aspect_ratio_policy`: x",
        ),
        (
            (None, None, sizes(4)),
            {"coordinate_transformation_mode": "tf_crop_and_resize"},
            "roi has 0 values",
        ),
    ],
)
def test_refusals(given: Sequence[Array | None], attributes: dict[str, Any], fact: str) -> None:
    batch = one_node("Resize", [ramp(2), *given], np.zeros(4, np.float32), **attributes)
    assert_refused(fact, batch)


def test_no_sums_of_what_is_no_number() -> None:
    x = any_bits(allowed_types("Resize", "T1")[12], 3)
    assert x.dtype == numpy_dtype(allowed_types("Resize", "T1")[12])
    batch = one_node("Resize", [x, None, None, sizes(6)], np.resize(x, 6), mode="linear")
    assert_refused("linear is not defined for string", batch)
