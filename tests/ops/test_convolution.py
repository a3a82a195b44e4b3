"""Convolutions against sums written out, on whole numbers: every sum is exact."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from onnxc.dtypes import BY_NAME
from onnxc.errors import RefusalError
from onnxc.ops.convolution import causal_conv_with_state, conv, conv_transpose
from onnxc.ops.deformable import deform_conv
from onnxc.tensor import Tensor, constant
from tests.models import Array, Batch
from tests.ops.node_batch import NodeBatch

Shape = tuple[int, ...]


def whole(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Array:
    """Whole numbers of -4 to 4."""
    generator = np.random.default_rng([seed, *shape])
    return generator.integers(-4, 5, shape).astype(dtype)


def positive(*shape: int, dtype: Any = np.float32) -> Array:
    """Whole numbers of 1 to 5, for filters: no product is -0, whose sum may depend on the order."""
    return (np.abs(whole(*shape, seed=1)) + 1).astype(dtype)


def convolution(
    x: Array,
    w: Array,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    group: int = 1,
) -> Array:
    """By the definition: every window of the padded input with every filter."""
    rank = x.ndim - 2
    padded = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    inputs, filters = w.shape[1], w.shape[0] // group
    outputs = [
        (padded.shape[2 + d] - (w.shape[2 + d] - 1) * dilations[d] - 1) // strides[d] + 1
        for d in range(rank)
    ]
    y = np.zeros((x.shape[0], w.shape[0], *outputs), x.dtype)
    for m, *place in np.ndindex(*y.shape[1:]):
        window = tuple(
            slice(p * s, p * s + (k - 1) * d + 1, d)
            for p, s, d, k in zip(place, strides, dilations, w.shape[2:], strict=True)
        )
        first = m // filters * inputs
        block = padded[(slice(None), slice(first, first + inputs), *window)]
        y[(slice(None), m, *place)] = (block * w[m]).sum(tuple(range(1, x.ndim)))
    return y


def transposed(
    x: Array,
    w: Array,
    strides: Sequence[int],
    dilations: Sequence[int],
    begins: Sequence[int],
    outputs: Sequence[int],
    group: int = 1,
) -> Array:
    """By the definition: every element spreads the filter over the result."""
    filters = w.shape[1]
    y = np.zeros((x.shape[0], filters * group, *outputs), x.dtype)
    for c, *place in np.ndindex(*x.shape[1:]):
        first = c // (x.shape[1] // group) * filters
        for tap in np.ndindex(*w.shape[2:]):
            target = tuple(
                p * s + t * d - b
                for p, s, t, d, b in zip(place, strides, tap, dilations, begins, strict=True)
            )
            if all(0 <= n < size for n, size in zip(target, outputs, strict=True)):
                element = x[(slice(None), c, *place)][:, None] * w[(c, slice(None), *tap)]
                y[(slice(None), slice(first, first + filters), *target)] += element
    return y


CONVOLUTIONS: list[tuple[Shape, Shape, dict[str, Any]]] = [
    ((1, 1, 5, 5), (1, 1, 3, 3), {}),
    ((2, 3, 5, 6), (4, 3, 3, 2), {"pads": [1, 0, 2, 1]}),
    ((1, 2, 7, 7), (2, 2, 3, 3), {"strides": [2, 3], "dilations": [2, 1], "pads": [2, 1, 2, 1]}),
    ((1, 4, 5, 5), (4, 1, 3, 3), {"group": 4, "pads": [1] * 4}),
    ((1, 2, 5, 5), (6, 1, 2, 2), {"group": 2}),
    ((2, 6, 4, 4), (4, 3, 3, 3), {"group": 2, "pads": [1] * 4, "kernel_shape": [3, 3]}),
    ((1, 3, 8), (2, 3, 3), {"strides": [2]}),
    ((1, 2, 4, 5, 6), (3, 2, 2, 3, 2), {"pads": [1, 1, 0, 0, 1, 1], "strides": [1, 2, 1]}),
    ((1, 1, 3, 3, 3, 3), (1, 1, 2, 2, 2, 2), {}),
    ((1, 20, 3, 3), (2, 20, 1, 1), {}),
    # The kernel reaches beyond the input on both sides.
    ((1, 1, 2), (1, 1, 5), {"pads": [3, 3]}),
    # Nothing to convolve.
    ((0, 2, 4, 4), (3, 2, 3, 3), {}),
    ((1, 0, 4, 4), (3, 0, 3, 3), {}),
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_conv(dtype: str) -> None:
    element = getattr(ml_dtypes, dtype, None) or np.dtype(dtype)
    batch = Batch()
    for shape, filters, attributes in CONVOLUTIONS:
        rank = len(shape) - 2
        x, w, b = whole(*shape), positive(*filters), whole(filters[0], seed=2)
        arguments = (
            attributes.get("strides", [1] * rank),
            attributes.get("dilations", [1] * rank),
            attributes.get("pads", [0] * 2 * rank),
            attributes.get("group", 1),
        )
        y = convolution(x, w, *arguments)
        inputs = [array.astype(element) for array in (x, w, b)]
        batch.add("Conv", inputs[:2], y.astype(element), **attributes)
        biased = y + b.reshape(-1, *[1] * rank)
        batch.add("Conv", inputs, biased.astype(element), constants=[1, 2], **attributes)
    batch.check()


@pytest.mark.parametrize(
    ("extent", "kernel", "attributes", "pads"),
    [
        ((6, 5), (2, 3), {"auto_pad": "SAME_UPPER"}, [0, 1, 1, 1]),
        ((6, 5), (2, 3), {"auto_pad": "SAME_LOWER"}, [1, 1, 0, 1]),
        ((6, 5), (2, 3), {"auto_pad": "VALID"}, [0] * 4),
        ((6, 7), (3, 2), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, [0, 0, 1, 1]),
        ((6, 7), (3, 2), {"auto_pad": "SAME_LOWER", "strides": [2, 2]}, [1, 1, 0, 0]),
        # With dilation the kernel is longer; a kernel of 1 needs no padding, not less.
        ((6, 7), (3, 2), {"auto_pad": "SAME_UPPER", "dilations": [2, 3]}, [2, 1, 2, 2]),
        ((8, 8), (1, 1), {"auto_pad": "SAME_UPPER", "strides": [2, 3]}, [0] * 4),
    ],
)
def test_auto_pad(
    extent: Shape, kernel: Shape, attributes: dict[str, Any], pads: list[int]
) -> None:
    x, w = whole(1, 2, *extent), positive(2, 2, *kernel)
    steps = attributes.get("strides", [1, 1])
    batch = Batch()
    wanted = convolution(x, w, steps, attributes.get("dilations", [1, 1]), pads)
    if attributes["auto_pad"] != "VALID":
        assert wanted.shape[2:] == tuple(-(-n // s) for n, s in zip(extent, steps, strict=True))
    batch.add("Conv", [x, w], wanted, **attributes)
    batch.check_evaluated()


def test_padding_is_zero_and_nothing_else() -> None:
    """An infinite element of the input meets the taps that it has, no others."""
    x = np.array([[[np.inf, 1, 2]]], np.float32)
    w = np.array([[[1, 0, 1]]], np.float32)
    batch = NodeBatch()
    with np.errstate(invalid="ignore"):
        wanted = np.array([[[np.nan, np.inf, 1]]], np.float32)
    batch.add_node("Conv", [x, w], [wanted], pads=[1, 1])
    batch.check_within(0)


dimension = st.fixed_dictionaries(
    {
        "extent": st.integers(1, 6),
        "kernel": st.integers(1, 3),
        "stride": st.integers(1, 3),
        "dilation": st.integers(1, 3),
        "begin": st.integers(0, 3),
        "end": st.integers(0, 3),
        "more": st.integers(0, 2),
    }
)
groups = st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(1, 2))


@settings(max_examples=60)
@given(st.lists(dimension, min_size=1, max_size=3), groups)
def test_any_conv(dimensions: list[dict[str, int]], sizes: tuple[int, int, int]) -> None:
    group, inputs, filters = sizes
    extent, kernel, stride, dilation, begin, end = (
        [d[key] for d in dimensions]
        for key in ("extent", "kernel", "stride", "dilation", "begin", "end")
    )
    for d in dimensions:
        assume(d["extent"] + d["begin"] + d["end"] > (d["kernel"] - 1) * d["dilation"])
    x, w = whole(2, group * inputs, *extent), positive(group * filters, inputs, *kernel)
    batch = Batch()
    batch.add(
        "Conv",
        [x, w],
        convolution(x, w, stride, dilation, begin + end, group),
        strides=stride,
        dilations=dilation,
        pads=begin + end,
        group=group,
    )
    batch.check_evaluated()


TRANSPOSED: list[tuple[Shape, Shape, dict[str, Any], Shape, Shape]] = [
    # input, W, attributes; elements cut off at the start, and the size
    ((1, 1, 3, 3), (1, 2, 3, 3), {}, (0, 0), (5, 5)),
    ((2, 3, 3, 4), (3, 2, 3, 2), {"strides": [2, 3]}, (0, 0), (7, 11)),
    ((1, 2, 4, 4), (2, 3, 4, 4), {"strides": [2, 2], "pads": [1] * 4}, (1, 1), (8, 8)),
    ((1, 2, 4), (2, 3, 3), {"strides": [2], "pads": [1, 0]}, (1,), (8,)),
    ((1, 1, 3), (1, 1, 2), {"strides": [4]}, (0,), (10,)),
    ((1, 1, 3), (1, 1, 3), {"strides": [2], "dilations": [3]}, (0,), (11,)),
    ((1, 1, 3), (1, 1, 3), {"dilations": [2], "pads": [1, 2]}, (1,), (4,)),
    ((1, 1, 3), (1, 1, 3), {"strides": [3], "output_padding": [2]}, (0,), (11,)),
    ((1, 4, 3, 3), (4, 1, 2, 2), {"group": 4, "strides": [2, 2]}, (0, 0), (6, 6)),
    ((1, 4, 3, 3), (4, 3, 2, 3), {"group": 2, "strides": [1, 2]}, (0, 0), (4, 7)),
    ((1, 4, 3, 3), (4, 3, 2, 3), {"group": 2}, (0, 0), (4, 5)),
    ((1, 2, 2, 3, 2), (2, 2, 2, 2, 3), {"strides": [2, 1, 2]}, (0, 0, 0), (4, 4, 5)),
    # output_shape: what is over is cut off, the odd element at the start but for SAME_UPPER.
    ((1, 1, 3), (1, 1, 4), {"strides": [2], "output_shape": [7]}, (1,), (7,)),
    (
        (1, 1, 3),
        (1, 1, 4),
        {"strides": [2], "output_shape": [7], "auto_pad": "SAME_UPPER"},
        (0,),
        (7,),
    ),
    ((1, 1, 3), (1, 1, 3), {"strides": [3], "output_shape": [12]}, (0,), (12,)),
    # SAME: the size is that of the input times the stride, unless there is less.
    ((1, 1, 3), (1, 1, 3), {"strides": [2], "auto_pad": "SAME_UPPER"}, (0,), (6,)),
    ((1, 1, 3), (1, 1, 3), {"strides": [2], "auto_pad": "SAME_LOWER"}, (1,), (6,)),
    ((1, 1, 3), (1, 1, 5), {"auto_pad": "SAME_UPPER"}, (2,), (3,)),
    ((1, 1, 3), (1, 1, 2), {"strides": [3], "auto_pad": "SAME_LOWER"}, (0,), (8,)),
    ((1, 1, 3), (1, 1, 3), {"strides": [2], "auto_pad": "VALID"}, (0,), (7,)),
    ((0, 2, 3), (2, 1, 3), {}, (0,), (5,)),
    ((1, 0, 3), (0, 2, 3), {}, (0,), (5,)),
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_conv_transpose(dtype: str) -> None:
    batch = Batch()
    for shape, filters, attributes, begins, outputs in TRANSPOSED:
        rank, group = len(shape) - 2, attributes.get("group", 1)
        x, w = whole(*shape, dtype=dtype), positive(*filters, dtype=dtype)
        b = whole(filters[1] * group, dtype=dtype, seed=2)
        steps = attributes.get("strides", [1] * rank)
        dilations = attributes.get("dilations", [1] * rank)
        y = transposed(x, w, steps, dilations, begins, outputs, group)
        batch.add("ConvTranspose", [x, w], y, **attributes)
        biased = y + b.reshape(-1, *[1] * rank)
        batch.add("ConvTranspose", [x, w, b], biased, constants=[1], **attributes)
    batch.check()


def test_conv_transpose_by_a_filter_that_is_not_finite() -> None:
    """What a tap does not reach has no part in it: zero around the input is not multiplied."""
    x, w = whole(1, 2, 3), positive(2, 1, 3)
    w[0, 0, 0] = np.inf
    y = transposed(x, w, [1], [1], [0], [5])
    assert np.isfinite(y[..., 3:]).all()
    batch = Batch()
    batch.add("ConvTranspose", [x, w], y, constants=[1])
    batch.check()


@settings(max_examples=60)
@given(st.lists(dimension, min_size=1, max_size=2), groups)
def test_any_conv_transpose(dimensions: list[dict[str, int]], sizes: tuple[int, int, int]) -> None:
    group, inputs, filters = sizes
    extent, kernel, stride, dilation, begin, end, more = (
        [d[key] for d in dimensions]
        for key in ("extent", "kernel", "stride", "dilation", "begin", "end", "more")
    )
    outputs = [
        (d["extent"] - 1) * d["stride"]
        + (d["kernel"] - 1) * d["dilation"]
        + 1
        + d["more"]
        - d["begin"]
        - d["end"]
        for d in dimensions
    ]
    assume(all(size > 0 for size in outputs))
    for d in dimensions:
        assume(d["more"] < max(d["stride"], d["dilation"]))
    x, w = whole(2, group * inputs, *extent), positive(group * inputs, filters, *kernel)
    batch = Batch()
    batch.add(
        "ConvTranspose",
        [x, w],
        transposed(x, w, stride, dilation, begin, outputs, group),
        strides=stride,
        dilations=dilation,
        pads=begin + end,
        output_padding=more,
        group=group,
    )
    batch.check_evaluated()


def sampled(x: Array, position: Sequence[float]) -> Array:
    """x (N, C, *spatial) between elements, by linear interpolation; 0 outside."""
    total = np.zeros(x.shape[:2], np.float64)
    for corner in itertools.product((0, 1), repeat=len(position)):
        place = [math.floor(p) + step for p, step in zip(position, corner, strict=True)]
        if all(0 <= n < size for n, size in zip(place, x.shape[2:], strict=True)):
            shares = [1 - abs(p - n) for p, n in zip(position, place, strict=True)]
            element: Any = (slice(None), slice(None), *place)
            total += x[element] * math.prod(shares)
    return total


def deformed(
    x: Array,
    w: Array,
    offset: Array,
    mask: Array,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    groups_: tuple[int, int],
) -> Array:
    """By the definition, for a batch of one."""
    group, offset_group = groups_
    rank, kernel, outputs = x.ndim - 2, w.shape[2:], offset.shape[2:]
    size, inputs = x.shape[1] // offset_group, w.shape[1]
    moves = offset.reshape(offset_group, *kernel, rank, *outputs)
    weight = mask.reshape(offset_group, *kernel, *outputs)
    y = np.zeros((1, w.shape[0], *outputs))
    for place in np.ndindex(*outputs):
        for tap in np.ndindex(*kernel):
            for c in range(x.shape[1]):
                block = c // size
                position = [
                    place[d] * strides[d]
                    - pads[d]
                    + tap[d] * dilations[d]
                    + moves[(block, *tap, d, *place)]
                    for d in range(rank)
                ]
                value = sampled(x[:, c : c + 1], position)[0, 0] * weight[(block, *tap, *place)]
                for m in range(w.shape[0]):
                    if m // (w.shape[0] // group) == c // inputs:
                        y[(0, m, *place)] += value * w[(m, c % inputs, *tap)]
    return y


@pytest.mark.parametrize(
    ("shape", "filters", "attributes"),
    [
        ((1, 2, 4, 5), (2, 2, 2, 2), {}),
        ((1, 4, 4, 4), (2, 2, 3, 2), {"group": 2, "offset_group": 2, "pads": [1] * 4}),
        ((1, 4, 6), (4, 1, 3), {"group": 4, "offset_group": 2, "strides": [2], "dilations": [2]}),
        ((1, 2, 3, 3, 3), (1, 2, 2, 2, 1), {"pads": [0, 1, 0, 1, 0, 1]}),
    ],
)
def test_deform_conv(shape: Shape, filters: Shape, attributes: dict[str, Any]) -> None:
    """Offsets are multiples of 1/4, so that every product is exact."""
    rank, blocks = len(shape) - 2, attributes.get("offset_group", 1)
    strides, dilations = (attributes.get(k, [1] * rank) for k in ("strides", "dilations"))
    pads = attributes.get("pads", [0] * 2 * rank)
    outputs = [
        (shape[2 + d] + pads[d] + pads[rank + d] - (filters[2 + d] - 1) * dilations[d] - 1)
        // strides[d]
        + 1
        for d in range(rank)
    ]
    x, w, b = whole(*shape), positive(*filters), whole(filters[0], seed=2)
    points = blocks * math.prod(filters[2:])
    offset = whole(1, points * rank, *outputs, seed=3) / np.float32(4)
    mask = whole(1, points, *outputs, seed=4) / np.float32(2)
    groups_ = attributes.get("group", 1), blocks
    plain = deformed(x, w, offset, np.ones_like(mask), strides, dilations, pads, groups_)
    masked = deformed(x, w, offset, mask, strides, dilations, pads, groups_)
    biased = masked + b.reshape(-1, *[1] * rank)
    batch = NodeBatch()
    batch.add_node("DeformConv", [x, w, offset], [plain.astype(np.float32)], **attributes)
    wanted = biased.astype(np.float32)
    batch.add_node("DeformConv", [x, w, offset, b, mask], [wanted], **attributes)
    batch.check_within(0)


def test_offsets_of_any_bits_are_safe() -> None:
    """Far outside is zero; nothing is read there."""
    x, w = np.ones((1, 1, 2, 2), np.float32), np.ones((1, 1, 1, 1), np.float32)
    offset = np.zeros((1, 2, 2, 2), np.float32)
    offset[0, 0] = [[np.inf, -np.inf], [3e38, -1e10]]
    batch = NodeBatch()
    batch.add_node("DeformConv", [x, w, offset], [np.zeros((1, 1, 2, 2), np.float32)])
    batch.check_within(0)


def test_a_corner_without_weight_may_be_infinite() -> None:
    """Neither one outside, for which another is read, nor one beside a whole position."""
    x = np.array([1, np.inf, 2], np.float32).reshape(1, 1, 3)
    w = np.ones((1, 1, 1), np.float32)
    offset = np.array([0, 1, 5], np.float32).reshape(1, 1, 3)
    wanted = np.array([1, 2, 0], np.float32).reshape(1, 1, 3)
    batch = NodeBatch()
    batch.add_node("DeformConv", [x, w, offset], [wanted])
    batch.check_within(0)


@pytest.mark.parametrize("taps", [1, 4])
@pytest.mark.parametrize("length", [1, 2, 7])
def test_causal_conv_with_state(taps: int, length: int) -> None:
    x, w, b = whole(2, 3, length), positive(3, 1, taps), whole(3, seed=2)
    past = whole(2, 3, taps - 1, seed=3)
    batch = NodeBatch()
    for before in (None, past):
        joined = np.concatenate([np.zeros_like(past) if before is None else before, x], axis=2)
        y = convolution(joined, w, [1], [1], [0, 0], 3)
        state = joined[:, :, joined.shape[2] - (taps - 1) :]
        batch.add_node("CausalConvWithState", [x, w, None, before], [y, state])
        batch.add_node("CausalConvWithState", [x, w, b, before], [y + b[:, None], state])
    batch.check()


def test_silu_of_a_causal_conv() -> None:
    x, w = whole(1, 2, 5), positive(2, 1, 3)
    joined = np.concatenate([np.zeros((1, 2, 2), np.float32), x], axis=2)
    y = convolution(joined, w, [1], [1], [0, 0], 2).astype(np.float64)
    wanted = (y / (1 + np.exp(-y))).astype(np.float32)
    batch = NodeBatch()
    for name in ("silu", "swish"):
        batch.add_node("CausalConvWithState", [x, w], [wanted, joined[..., 5:]], activation=name)
    batch.check_within(3)


def values(*shape: int) -> Tensor:
    return constant(whole(*shape), BY_NAME["float"])


PLAIN: dict[str, Any] = {
    "auto_pad": "NOTSET",
    "dilations": None,
    "group": 1,
    "kernel_shape": None,
    "pads": None,
    "strides": None,
}


@pytest.mark.parametrize(
    ("shapes", "attributes", "fact"),
    [
        (((1, 3, 5), (2, 2, 3)), {}, "X has 3 channels, W takes 2 a group"),
        (((1, 4, 5), (3, 2, 3)), {"group": 2}, "makes 3, and there are 2 groups"),
        (((1, 2, 5), (2, 2, 3)), {"kernel_shape": (2,)}, r"kernel_shape is \[2\], but W has \[3\]"),
        (((1, 2, 5), (2, 2, 7)), {}, "does not fit"),
        (((1, 2, 5), (2, 2, 3), (3,)), {}, r"bias has shape \[3\], not \[2\]"),
    ],
)
def test_conv_refuses(shapes: tuple[Shape, ...], attributes: dict[str, Any], fact: str) -> None:
    x, w, *b = (values(*shape) for shape in shapes)
    with pytest.raises(RefusalError, match=fact):
        conv(x, w, b[0] if b else None, **PLAIN | attributes)


@pytest.mark.parametrize(
    ("attributes", "fact"),
    [
        ({"group": 3}, "X has 4 channels, W takes 4, in 3 groups"),
        ({"auto_pad": "SAME_UPPER", "output_padding": (1,)}, "of which each fixes the size"),
        ({"pads": (4, 4)}, "cut off more than there is"),
        ({"output_shape": (1, 2, 9)}, "output_shape has 3 values"),
    ],
)
def test_conv_transpose_refuses(attributes: dict[str, Any], fact: str) -> None:
    more = {"output_padding": None, "output_shape": None}
    with pytest.raises(RefusalError, match=fact):
        conv_transpose(values(1, 4, 5), values(4, 2, 3), None, **PLAIN | more | attributes)


def test_others_refuse() -> None:
    plain = {key: value for key, value in PLAIN.items() if key != "auto_pad"} | {"offset_group": 1}
    x, w = values(1, 2, 4), values(2, 2, 3)
    with pytest.raises(RefusalError, match=r"offset has shape \[1, 2, 2\], not \[1, 3, 2\]"):
        deform_conv(x, w, values(1, 2, 2), None, None, **plain)
    with pytest.raises(RefusalError, match=r"mask has shape"):
        deform_conv(x, w, values(1, 3, 2), None, values(1, 2, 2), **plain)
    with pytest.raises(RefusalError, match="activation is 'relu'"):
        causal_conv_with_state(x, values(2, 1, 3), None, None, activation="relu")
    with pytest.raises(RefusalError, match="past_state has shape"):
        causal_conv_with_state(x, values(2, 1, 3), None, values(1, 2, 3), activation="none")
