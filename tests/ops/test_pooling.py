"""Pools against windows that Python walks, and the corners of the specification."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

from onnxc.compiled import CompiledModel
from onnxc.dtypes import numpy_dtype
from onnxc.expression import Fold
from onnxc.kernel import Loops
from onnxc.ops.window import sliding_windows
from onnxc.pipeline import compile_model
from onnxc.traversal import walk
from tests.models import Array, float_network
from tests.ops.node_batch import NodeBatch
from tests.ops.run_time import allowed_types, assert_refused, assert_status, one_node

NAN, INF = np.nan, np.inf
FORMS: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = (
    ((5,), {"kernel_shape": [3]}),
    ((8,), {"kernel_shape": [3], "strides": [2], "pads": [2, 1]}),
    ((7,), {"kernel_shape": [2], "strides": [3], "ceil_mode": 1}),
    ((4, 5), {"kernel_shape": [2, 3], "strides": [1, 2], "pads": [1, 0, 0, 2]}),
    ((6, 5), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1}),
    ((7, 6), {"kernel_shape": [2, 3], "dilations": [3, 2], "strides": [2, 1]}),
    ((9, 4), {"kernel_shape": [3, 2], "dilations": [2, 1], "strides": [3, 3], "ceil_mode": 1}),
    ((6, 4), {"kernel_shape": [3, 3], "strides": [2, 3], "auto_pad": "SAME_UPPER"}),
    ((6, 4), {"kernel_shape": [2, 3], "strides": [1, 3], "auto_pad": "SAME_LOWER"}),
    ((6, 5), {"kernel_shape": [2, 3], "strides": [3, 1], "auto_pad": "VALID"}),
    ((2, 5), {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1}),
    ((4,), {"kernel_shape": [1], "strides": [2], "auto_pad": "SAME_UPPER"}),
    ((3, 4, 3), {"kernel_shape": [2, 2, 2], "strides": [1, 2, 1], "pads": [0, 1, 1, 1, 0, 0]}),
    ((2, 2, 3, 2), {"kernel_shape": [1, 2, 2, 2]}),
)

Taps = list[tuple[tuple[int, ...], bool, bool]]
"""Of one window: each tap's place, whether it is on an element, and whether on its padding."""


def windows(x: Array, **attributes: Any) -> Iterator[tuple[tuple[int, ...], Taps]]:
    spatial = x.shape[2:]
    given = [attributes.get(name) for name in ("strides", "dilations", "pads", "auto_pad")]
    found = sliding_windows(
        spatial, attributes["kernel_shape"], *given, ceil_mode=attributes.get("ceil_mode", 0)
    )
    for out in itertools.product(*(range(w.output) for w in found)):
        taps = []
        for tap in itertools.product(*(range(w.kernel) for w in found)):
            place = tuple(
                o * w.stride + t * w.dilation - w.begin
                for o, t, w in zip(out, tap, found, strict=True)
            )
            pairs = list(zip(place, found, strict=True))
            inside = all(0 <= p < w.input for p, w in pairs)
            padded = all(-w.begin <= p < w.input + w.end for p, w in pairs)
            taps.append((place, inside, padded))
        yield out, taps


def pooled(x: Array, value: Callable[[Array, Taps], float], **attributes: Any) -> Array:
    """`value` gets the elements of a channel's window, in order, and all its taps."""
    every = list(windows(x, **attributes))
    extents = tuple(n + 1 for n in every[-1][0])
    y = np.empty((*x.shape[:2], *extents), np.float64)
    for n, c in np.ndindex(x.shape[:2]):
        for out, taps in every:
            elements = np.array([x[n, c][p] for p, inside, _ in taps if inside], np.float64)
            y[(n, c, *out)] = value(elements, taps)
    return y


def whole(*shape: int, dtype: Any = np.float32) -> Array:
    """Small whole numbers with many equal ones."""
    generator = np.random.default_rng([3, *shape])
    return generator.integers(0 if np.dtype(dtype).kind == "u" else -4, 5, shape).astype(dtype)


def first_maxima(x: Array, order: Literal["C", "F"], **attributes: Any) -> Array:
    """The index of the first maximum of each window; a channel's by rows (C) or columns (F)."""
    every = list(windows(x, **attributes))
    y = np.empty((*x.shape[:2], *(n + 1 for n in every[-1][0])), np.int64)
    spatial = x.shape[2:]
    for n, c in np.ndindex(x.shape[:2]):
        for out, taps in every:
            places = [place for place, inside, _ in taps if inside]
            best = max(places, key=lambda p: (x[n, c][p], [-i for i in p]))
            flat = np.ravel_multi_index(best, spatial, order=order)
            y[(n, c, *out)] = (n * x.shape[1] + c) * math.prod(spatial) + flat
    return y


def test_max_pool() -> None:
    batch = NodeBatch()
    for spatial, attributes in FORMS:
        x = whole(2, 3, *spatial)
        wanted = pooled(x, lambda e, _: e.max(), **attributes).astype(x.dtype)
        batch.add_node("MaxPool", [x], [wanted], **attributes)
    batch.check()


@pytest.mark.parametrize(("storage_order", "order"), [(0, "C"), (1, "F")])
def test_indices_of_the_first_maximum(storage_order: int, order: Literal["C", "F"]) -> None:
    batch = NodeBatch()
    for spatial, attributes in FORMS:
        x = whole(2, 2, *spatial)
        y = pooled(x, lambda e, _: e.max(), **attributes).astype(x.dtype)
        places = first_maxima(x, order, **attributes)
        batch.add_node("MaxPool", [x], [y, places], storage_order=storage_order, **attributes)
    batch.check()


@pytest.mark.parametrize("dtype", allowed_types("MaxPool"), ids=str)
def test_max_pool_of_every_type(dtype: Any) -> None:
    x = whole(1, 2, 5, 4).astype(np.int8).astype(numpy_dtype(dtype))
    attributes = {"kernel_shape": [2, 2], "pads": [1, 1, 0, 0], "strides": [2, 2]}
    y = pooled(x, lambda e, _: e.max(), **attributes).astype(x.dtype)
    places = first_maxima(x.astype(np.float64), "C", **attributes)
    batch = NodeBatch()
    batch.add_node("MaxPool", [x], [y, places], **attributes)
    batch.check()


def test_padding_is_below_everything() -> None:
    """-inf, and the least integer, are maxima of windows that hold nothing else."""
    batch = NodeBatch()
    for least in (np.float32(-INF), np.int8(-128), np.uint8(0)):
        x = np.full((1, 1, 3), least)
        attributes = {"kernel_shape": [2], "pads": [1, 1]}
        y, places = np.full((1, 1, 4), least), np.array([[[0, 0, 1, 2]]])
        batch.add_node("MaxPool", [x], [y, places], **attributes)
    batch.check()


def test_a_nan_is_the_maximum() -> None:
    x = np.array([[[1, NAN, 3, INF, NAN, 2, -INF, -INF]]], np.float32)
    batch = NodeBatch()
    y, places = np.array([[[NAN, INF, NAN, -INF]]], np.float32), np.array([[[1, 3, 4, 6]]])
    batch.add_node("MaxPool", [x], [y, places], kernel_shape=[2], strides=[2])
    batch.add_node("GlobalMaxPool", [x], [np.array([[[NAN]]], np.float32)])
    batch.check()


def test_a_window_in_the_padding() -> None:
    """Dilated taps may all miss: no maximum, no mean, a norm of 0."""
    x = np.array([[[5, 6]]], np.float32)
    attributes = {"kernel_shape": [2], "dilations": [3], "pads": [2, 2]}
    batch = NodeBatch()
    # Taps: -2 and 1, -1 and 2, 0 and 3.
    y, places = np.array([[[6, -INF, 5]]], np.float32), np.array([[[1, 0, 0]]])
    batch.add_node("MaxPool", [x], [y, places], **attributes)
    mean = np.array([[[6, NAN, 5]]], np.float32)
    batch.add_node("AveragePool", [x], [mean], **attributes)
    batch.add_node(
        "AveragePool",
        [x],
        [np.array([[[3, 0, 2.5]]], np.float32)],
        count_include_pad=1,
        **attributes,
    )
    batch.add_node("LpPool", [x], [np.array([[[6, 0, 5]]], np.float32)], p=1, **attributes)
    batch.check_within(0)


@pytest.mark.parametrize("count_include_pad", [0, 1])
def test_average_pool(count_include_pad: int) -> None:
    def mean(elements: Array, taps: Taps) -> float:
        counted = sum(padded if count_include_pad else inside for _, inside, padded in taps)
        return float(elements.sum()) / counted

    batch = NodeBatch()
    for spatial, attributes in FORMS:
        x = whole(2, 3, *spatial)
        wanted = pooled(x, mean, **attributes).astype(x.dtype)
        batch.add_node(
            "AveragePool", [x], [wanted], count_include_pad=count_include_pad, **attributes
        )
    batch.check()


def test_average_counts_to_the_end_of_the_padding() -> None:
    """With ceil_mode the last window hangs over; what is past the padding does not count."""
    x = np.array([[[1, 2, 3, 4]]], np.float32)
    attributes: dict[str, Any] = {"kernel_shape": [3], "pads": [0, 1], "ceil_mode": 1}
    attributes["strides"] = [2]
    one_node(
        "AveragePool", [x], np.array([[[2, 3.5]]], np.float32), count_include_pad=0, **attributes
    ).check()
    attributes["strides"] = [3]
    one_node(
        "AveragePool", [x], np.array([[[2, 2]]], np.float32), count_include_pad=1, **attributes
    ).check()


@pytest.mark.parametrize("p", [1, 2, 3, 9])
def test_lp_pool(p: int) -> None:
    batch = NodeBatch()
    for spatial, attributes in FORMS:
        x = whole(2, 3, *spatial)
        norm = pooled(x, lambda e, _: float((np.abs(e) ** p).sum() ** (1 / p)), **attributes)
        batch.add_node("LpPool", [x], [norm.astype(x.dtype)], p=p, **attributes)
    batch.check_within(0 if p < 3 else 4)


@pytest.mark.parametrize("spatial", [(), (1,), (6,), (3, 4), (2, 3, 2)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_global_pools(spatial: Sequence[int], dtype: Any) -> None:
    x = whole(2, 3, *spatial).astype(dtype)
    wide, axes = x.astype(np.float64), tuple(range(2, x.ndim))
    batch = NodeBatch()

    def add(operator: str, wanted: Array, **attributes: Any) -> None:
        batch.add_node(operator, [x], [np.asarray(wanted).astype(dtype)], **attributes)

    add("GlobalMaxPool", wide.max(axes, keepdims=True))
    add("GlobalAveragePool", wide.mean(axes, keepdims=True))
    add("GlobalLpPool", np.abs(wide).sum(axes, keepdims=True), p=1)
    add("GlobalLpPool", np.sqrt((wide**2).sum(axes, keepdims=True)))
    batch.check_within(1)


def test_a_long_mean_is_exact_to_the_last_places() -> None:
    x = np.full((1, 1, 1000, 1000), 0.1, np.float32)
    one_node("GlobalAveragePool", [x], np.full((1, 1, 1, 1), 0.1, np.float32)).check_within(4)


def test_pools_of_nothing() -> None:
    batch = NodeBatch()
    none = np.empty((2, 1, 0), np.float32)
    for operator, value in (("Max", -INF), ("Average", NAN), ("Lp", 0)):
        wanted = np.full((2, 1, 1), value, np.float32)
        batch.add_node(f"Global{operator}Pool", [none], [wanted])
        images = np.empty((0, 3, 4), np.float32)
        empty = np.empty((0, 3, 3), np.float32)
        batch.add_node(f"{operator}Pool", [images], [empty], kernel_shape=[2])
    batch.check_within(0)


def test_max_unpool_undoes_max_pool() -> None:
    batch = NodeBatch()
    values = np.array([[[[5, 6], [7, 8]]]], np.float32)
    places = np.array([[[[5, 7], [13, 15]]]])
    four = np.zeros((1, 1, 4, 4), np.float32)
    four[0, 0, 1::2, 1::2] = values
    attributes = {"kernel_shape": [2, 2], "strides": [2, 2]}
    batch.add_node("MaxUnpool", [values, places], [four], **attributes)
    # A larger output holds that at its beginning: the indices stay those of 4 by 4.
    five = np.pad(four, ((0, 0), (0, 0), (0, 1), (0, 1)))
    shape = np.array([1, 1, 5, 5])
    batch.add_node("MaxUnpool", [values, places, shape], [five], **attributes)
    batch.add_node("MaxUnpool", [values, places, shape], [five], constants=[2], **attributes)
    # With pads 4 by 4 become 3 by 3, of which 0 2 6 8 are the corners.
    three = np.zeros((1, 1, 3, 3), np.float32)
    three[0, 0, ::2, ::2] = values
    corners = np.array([[[[0, 2], [6, 8]]]])
    batch.add_node("MaxUnpool", [values, corners], [three], pads=[1, 0, 0, 1], **attributes)
    line = np.array([[[1, 2]], [[3, 4]]], np.float16)
    wide = np.array([[[0, 1, 0, 2]], [[3, 0, 4, 0]]], np.float16)
    flat = np.array([[[1, 3]], [[4, 6]]])
    batch.add_node("MaxUnpool", [line, flat], [wide], kernel_shape=[2], strides=[2])
    # Of equal indices the last wins.
    batch.add_node(
        "MaxUnpool",
        [line[:1], np.array([[[1, 1]]])],
        [np.array([[[0, 2, 0]]], np.float16)],
        kernel_shape=[2],
    )
    batch.check()


@pytest.mark.parametrize("bad", [-1, 16, 2**62, -(2**63)])
def test_max_unpool_reports_an_index_outside(bad: int) -> None:
    values = np.ones((1, 1, 2, 2), np.float32)
    places = np.array([[[[5, 7], [bad, 15]]]])
    attributes = {"kernel_shape": [2, 2], "strides": [2, 2]}
    batch = one_node(
        "MaxUnpool", [values, places], np.zeros((1, 1, 4, 4), np.float32), **attributes
    )
    assert_status("INDEX_OUT_OF_RANGE", batch)
    shape = np.array([1, 1, 5, 5])
    larger = np.zeros((1, 1, 5, 5), np.float32)
    assert_status(
        "INDEX_OUT_OF_RANGE", one_node("MaxUnpool", [values, places, shape], larger, **attributes)
    )


def test_max_unpool_checks_its_shape() -> None:
    values, places = np.ones((1, 1, 2), np.float32), np.array([[[0, 3]]])
    attributes = {"kernel_shape": [2], "strides": [2]}
    inputs = [values, places, np.array([1, 1, 6])]
    batch = one_node("MaxUnpool", inputs, np.zeros((1, 1, 5), np.float32), **attributes)
    assert_status("SHAPE_MISMATCH", batch)
    # Index 3 of 4 is not in 3.
    short = [values, places, np.array([1, 1, 3])]
    batch = one_node("MaxUnpool", short, np.zeros((1, 1, 3), np.float32), **attributes)
    assert_status("INDEX_OUT_OF_RANGE", batch)


@pytest.mark.parametrize(("operator", "p"), [("LpPool", 0), ("GlobalLpPool", -1)])
def test_a_norm_has_an_order(operator: str, p: int) -> None:
    x = np.ones((1, 1, 2), np.float32)
    more = {"kernel_shape": [2]} if operator == "LpPool" else {}
    batch = one_node(operator, [x], np.ones((1, 1, 1), np.float32), p=p, **more)
    assert_refused(f"p is {p}", batch)


def test_a_pool_of_a_pool_folds_no_folds() -> None:
    """The maxima are stored, so that both pools find vectors."""
    nodes = [
        helper.make_node("MaxPool", ["x"], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["m"], ["y"]),
    ]
    source = float_network(nodes, {"x": (1, 16, 6, 6)}, (1, 16, 1, 1), {})
    steps = [step for step in compile_model(source).program.steps if isinstance(step, Loops)]
    folds = [[n for n in walk(step.value) if isinstance(n, Fold)] for step in steps]
    assert [[fold.operation for fold in found] for found in folds] == [["max"], ["sum"]]
    x = np.random.default_rng(0).standard_normal((1, 16, 6, 6)).astype(np.float32)
    maxima = x.reshape(16, 3, 2, 3, 2).max((2, 4))
    wanted = maxima.reshape(16, 9).mean(1, dtype=np.float64).reshape(1, 16, 1, 1)
    (found,) = CompiledModel(compile_model(source)).run({"x": x}).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
