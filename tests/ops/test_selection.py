"""TopK, NonZero, Compress, Unique and NonMaxSuppression, by the C and by numpy."""

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from onnxc.dtypes import ElementType
from tests.models import Array, any_bits, assert_same, refusal, run, strings
from tests.ops.node_batch import NodeBatch
from tests.ops.run_time import (
    allowed_types,
    assert_refused,
    assert_status,
    check_fused_and_plain,
    one_node,
)

NAN, INF = np.nan, np.inf
HALVES = ("float16", "bfloat16")


def floats(*values: Any) -> Array:
    return np.array(values, np.float32)


def integers(*values: Any) -> Array:
    return np.array(values, np.int64)


def booleans(*values: Any) -> Array:
    return np.array(values, np.bool_)


def undeclared(batch: NodeBatch) -> NodeBatch:
    """The model does not say the shapes of its outputs."""
    for output in batch.graph.output:
        output.type.tensor_type.ClearField("shape")
    return batch


def order_key(value: Any) -> Any:
    """Python's own order, with every NaN as the greatest number."""
    number = value.item() if hasattr(value, "item") else value
    return (number != number, 0 if number != number else number)


# TopK


def first(x: Array, k: int, *, axis: int = -1, largest: int = 1) -> tuple[Array, Array]:
    """By sorting lists; Python's sort keeps equal elements in order, reversed too."""
    rows = np.moveaxis(x, axis, -1)
    found = np.empty((*rows.shape[:-1], k), np.int64)
    for place in np.ndindex(rows.shape[:-1]):
        keys = [order_key(value) for value in rows[place]]
        found[place] = sorted(range(len(keys)), key=keys.__getitem__, reverse=bool(largest))[:k]
    indices = np.moveaxis(found, -1, axis)
    return np.take_along_axis(x, indices, axis), indices


def top_k(batch: NodeBatch, x: Array, k: int, values: Array, indices: Array, **more: int) -> None:
    batch.add_node("TopK", [x, integers(k)], [values, indices], constants=[1], **more)


def test_top_k_by_hand() -> None:
    batch = NodeBatch()
    x = floats([0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11])
    top_k(batch, x, 3, floats([3, 2, 1], [7, 6, 5], [11, 10, 9]), integers(*[[3, 2, 1]] * 3))
    top_k(batch, x, 2, floats([0, 1], [4, 5], [8, 9]), integers(*[[0, 1]] * 3), largest=0)
    top_k(batch, x, 1, floats([8, 9, 10, 11]), integers([2] * 4), axis=0)
    top_k(batch, x, 1, floats([0, 1, 2, 3]), integers([0] * 4), axis=-2, largest=0)
    equal = floats(1, 2, 1, 2, 2, 0)
    top_k(batch, equal, 4, floats(2, 2, 2, 1), integers(1, 3, 4, 0))
    top_k(batch, equal, 4, floats(0, 1, 1, 2), integers(5, 0, 2, 1), largest=0)
    special = floats(-0.0, NAN, 0.0, INF, -INF, NAN)
    top_k(batch, special, 5, floats(NAN, NAN, INF, -0.0, 0.0), integers(1, 5, 3, 0, 2))
    low = floats(-INF, -0.0, 0.0, INF, NAN)
    top_k(batch, special, 5, low, integers(4, 0, 2, 3, 1), largest=0, sorted=0)
    top_k(batch, x, 0, np.empty((3, 0), np.float32), np.empty((3, 0), np.int64))
    nothing = np.empty((0, 4), np.float32)
    top_k(batch, nothing, 2, nothing[:, :2], np.empty((0, 2), np.int64))
    check_fused_and_plain(undeclared(batch))


def test_top_k_of_every_type() -> None:
    batch = NodeBatch()
    for dtype in allowed_types("TopK"):
        x = any_bits(dtype, 2, 9, 3)
        for largest in (0, 1):
            values, indices = first(x, 4, axis=1, largest=largest)
            top_k(batch, x, 4, values, indices, axis=1, largest=largest)
    batch.check()


def test_top_k_of_long_rows_with_many_equal_elements() -> None:
    generator = np.random.default_rng(1)
    batch = NodeBatch()
    for k, bound, largest in itertools.product((1, 7, 500), (3, 100, 10**9), (0, 1)):
        x = generator.integers(-bound, bound, 500)
        top_k(batch, x, k, *first(x, k, largest=largest), largest=largest)
    for x in (np.arange(300), np.arange(300)[::-1].copy()):
        top_k(batch, x, 20, *first(x, 20))
    batch.check()


def test_top_k_of_long_rows_with_nans_and_both_zeros() -> None:
    generator = np.random.default_rng(2)
    values = np.array([-1, -0.0, 0.0, 1, INF, -INF, NAN], np.float32)
    batch = NodeBatch()
    for k, largest in itertools.product((1, 16, 17), (0, 1)):
        x = generator.choice(values, (3, 131))
        x[1] = NAN
        x[2, 40:] = generator.standard_normal(91)
        top_k(batch, x, k, *first(x, k, largest=largest), largest=largest)
    batch.check()


def test_top_k_reads_k_at_run_time() -> None:
    x = floats([3, 1, 2], [4, 6, 5])
    wanted = (floats([3, 2], [6, 5]), integers([0, 2], [1, 2]))
    one_node("TopK", [x, integers(2)], *wanted).check()
    assert_status("SHAPE_MISMATCH", one_node("TopK", [x, integers(1)], *wanted))
    assert_status("SHAPE_MISMATCH", one_node("TopK", [x, integers(2**40)], *wanted))
    lines = refusal(undeclared(one_node("TopK", [x, integers(2)], *wanted)).model())
    assert all("it may depend on K" in line for line in lines)


# NonZero


def test_non_zero_by_hand() -> None:
    batch = NodeBatch()
    batch.add_node("NonZero", [floats([1, 0], [1, 1])], [integers([0, 1, 1], [0, 0, 1])])
    batch.add_node("NonZero", [floats(-0.0, NAN, 1e-45, -INF, 0)], [integers([1, 2, 3])])
    cube = np.zeros((2, 3, 4), np.int32)
    cube[0, 2, 3] = cube[1, 0, 1] = -5
    batch.add_node("NonZero", [cube], [integers([0, 1], [2, 0], [3, 1])])
    batch.add_node("NonZero", [np.array(7, np.int32)], [np.empty((0, 1), np.int64)])
    batch.add_node("NonZero", [np.array(0, np.int32)], [np.empty((0, 0), np.int64)])
    batch.add_node("NonZero", [np.zeros((2, 2), np.bool_)], [np.empty((2, 0), np.int64)])
    batch.add_node("NonZero", [np.zeros((2, 0), np.bool_)], [np.empty((2, 0), np.int64)])
    batch.add_node("NonZero", [strings(b"", b"a", b"\0")], [integers([1, 2])])
    check_fused_and_plain(undeclared(batch))


def test_non_zero_of_every_type() -> None:
    batch = NodeBatch()
    for dtype in allowed_types("NonZero"):
        x = any_bits(dtype, 3, 5).copy()
        x[1] = b"" if dtype.kind == "string" else 0
        flags = np.array([bool(value) for value in x.reshape(-1)]).reshape(x.shape)
        batch.add_node("NonZero", [x], [np.array(np.nonzero(flags), np.int64)])
    undeclared(batch).check()


# Compress


def test_compress_by_hand() -> None:
    batch = NodeBatch()
    x = floats([1, 2], [3, 4], [5, 6])
    batch.add_node("Compress", [x, booleans(0, 1, 1)], [floats([3, 4], [5, 6])], axis=0)
    batch.add_node("Compress", [x, booleans(0, 1)], [floats([2], [4], [6])], axis=1)
    batch.add_node("Compress", [x, booleans(0, 1)], [floats([2], [4], [6])], axis=-1)
    batch.add_node("Compress", [x, booleans(0, 1, 0, 0, 1)], [floats(2, 5)])
    batch.add_node("Compress", [x, booleans(0, 1, 0, 0)], [floats([3, 4])], axis=0)
    batch.add_node("Compress", [x, booleans(0, 0)], [np.empty((3, 0), np.float32)], axis=1)
    batch.add_node("Compress", [x, booleans()], [np.empty((0, 2), np.float32)], axis=0)
    empty = np.empty((0, 3), np.float32)
    batch.add_node("Compress", [empty, booleans(1, 0, 1)], [empty[:, :2]], axis=1)
    check_fused_and_plain(undeclared(batch))


def test_compress_keeps_every_bit_of_every_type() -> None:
    batch = NodeBatch()
    for dtype in allowed_types("Compress"):
        x = any_bits(dtype, 2, 4, 3)
        batch.add_node("Compress", [x, booleans(1, 0, 1)], [x[:, [0, 2]]], axis=1)
    undeclared(batch).check()


def test_compress_reports_a_condition_beyond_the_end() -> None:
    x = floats(1, 2)
    assert_status("INDEX_OUT_OF_RANGE", one_node("Compress", [x, booleans(1, 0, 0, 1)], x))


def test_compress_refuses() -> None:
    x = floats([1, 2])
    assert_refused("has 2 dimensions", undeclared(one_node("Compress", [x, booleans([1])], x)))


# Unique


def unique(batch: NodeBatch, x: Array, *outputs: Array | None, **more: Any) -> None:
    batch.add_node("Unique", [x], outputs, **more)


def test_unique_by_hand() -> None:
    batch = NodeBatch()
    x = floats(2, 1, 1, 3, 4, 3)
    unique(
        batch,
        x,
        *(floats(2, 1, 3, 4), integers(0, 1, 3, 4)),
        *(integers(0, 1, 1, 2, 3, 2), integers(1, 2, 2, 1)),
        sorted=0,
    )
    unique(
        batch,
        x,
        *(floats(1, 2, 3, 4), integers(1, 0, 3, 4)),
        *(integers(1, 0, 0, 2, 3, 2), integers(2, 1, 2, 1)),
    )
    rows = floats([1, 0, 0], [1, 0, 0], [2, 3, 4])
    unique(
        batch,
        rows,
        *(floats([1, 0, 0], [2, 3, 4]), integers(0, 2), integers(0, 0, 1), integers(2, 1)),
        axis=0,
    )
    pairs = floats([[1, 1], [0, 1], [2, 1], [0, 1]], [[1, 1], [0, 1], [2, 1], [0, 1]])
    unique(
        batch,
        pairs,
        *(floats([[0, 1], [1, 1], [2, 1]], [[0, 1], [1, 1], [2, 1]]), integers(1, 0, 2)),
        *(integers(1, 0, 2, 0), integers(2, 1, 1)),
        axis=1,
    )
    unique(batch, rows, floats(0, 1, 2, 3, 4), None, integers(1, 0, 0, 1, 0, 0, 2, 3, 4))
    unique(batch, rows, floats(1, 0, 2, 3, 4), sorted=0)
    unique(batch, np.array(7, np.float32), floats(7), integers(0), integers(0), integers(1))
    check_fused_and_plain(undeclared(batch))


def test_unique_takes_every_nan_for_one_and_the_greatest() -> None:
    batch = NodeBatch()
    other = np.array([0x7FC12345, 0xFFC00001], np.uint32).view(np.float32)
    x = floats(NAN, -0.0, INF, other[0], 0.0, -INF, other[1])
    inverse, counts = integers(3, 1, 2, 3, 1, 0, 3), integers(1, 2, 1, 3)
    unique(batch, x, floats(-INF, -0.0, INF, NAN), integers(5, 1, 2, 0), inverse, counts)
    rows = floats([1, NAN], [NAN, 1], [1, NAN], [1, 5])
    wanted = floats([1, 5], [1, NAN], [NAN, 1])
    unique(batch, rows, wanted, integers(3, 0, 1), integers(1, 2, 1, 0), integers(1, 2, 1), axis=0)
    undeclared(batch).check()


def test_unique_of_nothing() -> None:
    batch = NodeBatch()
    none = np.empty(0, np.int64)
    unique(batch, np.empty((0, 3), np.int32), np.empty(0, np.int32), none, none, none)
    unique(batch, np.empty((0, 3), np.int32), np.empty((0, 3), np.int32), none, none, none, axis=0)
    empty = np.empty((3, 0), np.int32)
    unique(batch, empty, empty[:1], integers(0), integers(0, 0, 0), integers(3), axis=0)
    check_fused_and_plain(undeclared(batch))


def slices(x: Array, axis: int | None) -> list[tuple[Any, ...]]:
    """What Unique compares, as keys of Python's own order."""
    flat = x.reshape(-1, 1) if axis is None else np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1)
    return [tuple(map(order_key, row)) for row in flat]


def add_unique(batch: NodeBatch, x: Array, axis: int | None, in_order: int) -> None:
    """With what Python's dictionaries say of the slices."""
    kinds: dict[tuple[Any, ...], list[int]] = {}
    for position, key in enumerate(slices(x, axis)):
        kinds.setdefault(key, []).append(position)
    keys = sorted(kinds) if in_order else list(kinds)
    indices = integers(*(kinds[key][0] for key in keys))
    inverse = integers(*(keys.index(key) for key in slices(x, axis)))
    counts = integers(*(len(kinds[key]) for key in keys))
    y = x.reshape(-1)[indices] if axis is None else np.take(x, indices, axis)
    more = {"sorted": in_order} | ({} if axis is None else {"axis": axis})
    unique(batch, x, y, indices, inverse, counts, **more)


@pytest.mark.parametrize("in_order", [0, 1])
def test_unique_of_every_type(in_order: int) -> None:
    batch = NodeBatch()
    for dtype in allowed_types("Unique"):
        if dtype.kind != "complex":
            x = few_values(dtype)
            for axis in (None, 0, 1, -1):
                add_unique(batch, x, axis, in_order)
    undeclared(batch).check()


def few_values(dtype: ElementType) -> Array:
    """Many elements of few values, so that whole slices are equal."""
    values = any_bits(dtype, 2)
    generator = np.random.default_rng(dtype.code)
    return values[generator.integers(2, size=(3, 11, 2))]


def test_unique_of_many_elements() -> None:
    generator = np.random.default_rng(3)
    batch = NodeBatch()
    for bound, in_order in itertools.product((2, 50, 10**9), (0, 1)):
        add_unique(batch, generator.integers(-bound, bound, 257), None, in_order)
    undeclared(batch).check()


def test_unique_refuses_numbers_without_an_order() -> None:
    x = np.array([1 + 2j], np.complex64)
    assert_refused("complex64 has no order", one_node("Unique", [x], x))


# NonMaxSuppression

BOXES = floats(
    [
        *([0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9]),
        *([0, 10, 1, 11], [0, 10.1, 1, 11.1], [0, 100, 1, 101]),
    ]
)
SCORES = floats([[0.9, 0.75, 0.6, 0.95, 0.5, 0.3]])
HALF, NONE = floats(0.5), floats(0.0)


def chosen(*rows: tuple[int, int, int]) -> Array:
    return np.array(rows, np.int64).reshape(-1, 3)


def suppress(batch: NodeBatch, inputs: list[Array | None], wanted: Array, **more: Any) -> None:
    batch.add_node("NonMaxSuppression", inputs, [wanted], **more)


def test_non_max_suppression_by_hand() -> None:
    batch = NodeBatch()
    three = chosen((0, 0, 3), (0, 0, 0), (0, 0, 5))
    suppress(batch, [BOXES, SCORES, integers(3), HALF, NONE], three)
    suppress(batch, [BOXES, SCORES, integers(2), HALF, NONE], three[:2])
    suppress(batch, [BOXES, SCORES, integers(3), HALF, floats(0.4)], three[:2])
    suppress(batch, [BOXES, SCORES, integers(99), HALF], three)
    center = floats(
        [
            *([0.5, 0.5, 1, 1], [0.5, 0.6, 1, 1], [0.5, 0.4, 1, 1]),
            *([0.5, 10.5, 1, 1], [0.5, 10.6, 1, 1], [0.5, 100.5, 1, 1]),
        ]
    )
    suppress(batch, [center, SCORES, integers(3), HALF, NONE], three, center_point_box=1)
    flipped = BOXES[:, :, [2, 1, 0, 3]].copy()
    flipped[:, ::2] = flipped[:, ::2, [0, 3, 2, 1]]
    suppress(batch, [flipped, SCORES, integers(3), HALF, NONE], three)
    twice = [np.concatenate([BOXES] * 2), np.concatenate([SCORES] * 2)]
    wanted = chosen((0, 0, 3), (0, 0, 0), (1, 0, 3), (1, 0, 0))
    suppress(batch, [*twice, integers(2), HALF, NONE], wanted)
    classes = np.concatenate([SCORES, -SCORES], 1)
    wanted = chosen((0, 0, 3), (0, 0, 0), (0, 1, 5), (0, 1, 4))
    suppress(batch, [BOXES, classes, integers(2), HALF], wanted)
    check_fused_and_plain(undeclared(batch))


def test_non_max_suppression_takes_scalars() -> None:
    batch = NodeBatch()
    numbers = [np.array(2), np.array(0.5, np.float32), np.array(0.4, np.float32)]
    suppress(batch, [BOXES, SCORES, *numbers], chosen((0, 0, 3), (0, 0, 0)))
    undeclared(batch).check()


def test_non_max_suppression_without_a_limit_chooses_nothing() -> None:
    batch = NodeBatch()
    suppress(batch, [BOXES, SCORES], chosen())
    suppress(batch, [BOXES, SCORES, integers(0), HALF], chosen())
    suppress(batch, [BOXES, SCORES, integers(-1), HALF], chosen())
    suppress(batch, [BOXES[:, :0], SCORES[:, :, :0], integers(5), HALF], chosen())
    undeclared(batch).check()


def test_non_max_suppression_at_its_edges() -> None:
    """Both thresholds are to be passed; equal scores, NaN, infinities, boxes without an area."""
    batch = NodeBatch()
    apart = floats([[0, 0, 1, 1], [0, 1, 1, 3], [0, 2, 1, 3], [5, 5, 5, 9], [5, 5, 5, 9]])
    suppress(batch, [apart, floats([[1, 1, 1, 1, 1]]), integers(9), HALF], rows(0, 1, 2, 3, 4))
    suppress(batch, [apart, floats([[1, 1, 1, 1, 1]]), integers(9), NONE], rows(0, 1, 3, 4))
    given = floats([[NAN, -INF, INF, 2, 2]])
    suppress(batch, [apart, given, integers(9), HALF], rows(2, 3, 4, 1))
    suppress(batch, [apart, given, integers(9), HALF, floats(2)], rows(2))
    suppress(batch, [apart, given, integers(9), HALF, floats(NAN)], rows())
    nowhere = floats([[NAN, 0, 1, 1], [0, 0, 1, 1], [0, 0, INF, INF], [0, 0, 1, 1]])
    suppress(batch, [nowhere, floats([[4, 3, 2, 1]]), integers(9), HALF], rows(0, 1, 2))
    undeclared(batch).check()


def rows(*boxes: int) -> Array:
    return chosen(*((0, 0, n) for n in boxes))


def exact_overlap(a: Array, b: Array) -> Fraction:
    """Of boxes with integers as corners."""
    sides = []
    for d in (0, 1):
        (low_a, high_a), (low_b, high_b) = (sorted((box[d], box[d + 2])) for box in (a, b))
        sides.append(min(high_a, high_b) - max(low_a, low_b))
    both = int(max(sides[0], 0)) * int(max(sides[1], 0))
    areas = [int(abs((x[2] - x[0]) * (x[3] - x[1]))) for x in (a, b)]
    return Fraction(both, sum(areas) - both) if both else Fraction(0)


def test_non_max_suppression_of_many_boxes() -> None:
    """With a threshold that no quotient of such small integers comes near."""
    generator = np.random.default_rng(5)
    boxes = generator.integers(0, 20, (2, 60, 4)).astype(np.float32)
    scores = generator.integers(0, 30, (2, 3, 60)).astype(np.float32)
    threshold = Fraction(0.3300781)
    wanted = []
    for batch, category in np.ndindex(2, 3):
        kept: list[int] = []
        for n in sorted(range(60), key=lambda m: -scores[batch, category, m]):
            overlaps = (exact_overlap(boxes[batch, n], boxes[batch, m]) for m in kept)
            if (
                len(kept) < 20
                and scores[batch, category, n] > 3
                and all(overlap <= threshold for overlap in overlaps)
            ):
                kept.append(n)
        wanted += [(batch, category, n) for n in kept]
    inputs: list[Array | None] = [boxes, scores, integers(20), floats(threshold), floats(3)]
    nodes = NodeBatch()
    suppress(nodes, inputs, chosen(*wanted))
    nodes.add_node("NonMaxSuppression", inputs, [chosen(*wanted)], constants=[2, 3, 4])
    undeclared(nodes).check()


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ([BOXES, SCORES[:, :, :5]], "do not fit boxes"),
        ([BOXES, SCORES, integers(1, 2)], "max_output_boxes_per_class has 2 elements"),
    ],
)
def test_non_max_suppression_refuses(inputs: list[Array], text: str) -> None:
    assert_refused(text, undeclared(one_node("NonMaxSuppression", inputs, chosen())))


# What the model declares of a size that the data decides is the maximum.

PICKS: dict[str, tuple[list[Array], list[Array], dict[str, Any]]] = {
    "NonZero": ([floats(1, 0, 1, 1)], [integers([0, 2, 3])], {}),
    "Compress": ([floats(1, 2, 3, 4), booleans(1, 0, 1, 1)], [floats(1, 3, 4)], {"axis": 0}),
    "Unique": (
        [integers(7, 8, 7, 9)],
        [integers(7, 8, 9), integers(0, 1, 3), integers(0, 1, 0, 2), integers(2, 1, 1)],
        {},
    ),
    "NonMaxSuppression": ([BOXES, SCORES, integers(3), HALF, NONE], [rows(3, 0, 5)], {}),
}


def declared_as(extent: int, operator: str) -> NodeBatch:
    """A model that says `extent` of the first output's varying dimension."""
    inputs, outputs, attributes = PICKS[operator]
    batch = one_node(operator, inputs, *outputs, **attributes)
    dims = undeclared(batch).graph.output[0].type.tensor_type.shape.dim
    varying = int(operator == "NonZero")
    for axis, size in enumerate(outputs[0].shape):
        dims.add().dim_value = extent if axis == varying else size
    return batch


@pytest.mark.parametrize("operator", PICKS)
def test_the_declared_size_is_the_maximum(operator: str) -> None:
    for extent in (3, 4, 50):
        batch = declared_as(extent, operator)
        assert_same(run(batch.model(), batch.given), batch.wanted)
    for extent in (2, 0):
        assert_status("SHAPE_MISMATCH", declared_as(extent, operator))
    batch = declared_as(3, operator)
    batch.graph.output[0].type.tensor_type.shape.dim.add().dim_value = 1
    assert_refused("the model declares", batch)
