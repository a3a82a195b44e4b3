"""Operands and attributes that do not fit and that ONNX's own inference lets pass: refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.models import Array
from tests.ops.run_time import assert_refused, one_node


def ones(*shape: int) -> Array:
    return np.ones(shape, np.float32)


X, W, R = ones(3, 2, 4), ones(1, 15, 4), ones(1, 15, 5)
GRU = {"hidden_size": 5}
LABELS = np.zeros((2, 3), np.int64)

MISFITS: list[tuple[str, Sequence[Array | None], Sequence[Array], dict[str, Any], str]] = [
    ("GRU", [X, W[:0], R], [ones(3, 1, 2, 5)], GRU, "W has shape [0, 15, 4], not [1, 15, 4]"),
    ("GRU", [X, W[:, :14], R], [ones(3, 1, 2, 5)], GRU, "W has shape [1, 14, 4], not [1, 15, 4]"),
    ("GRU", [X, W, R[0]], [ones(3, 1, 2, 5)], GRU, "X has 3 dimensions and R 2"),
    ("GRU", [X, W, R, ones(30)], [ones(3, 1, 2, 5)], GRU, "B has shape [30], not [1, 30]"),
    (
        "GRU",
        [X, W, R, None, np.array([3], np.int32)],
        [ones(3, 1, 2, 5)],
        GRU,
        "sequence_lens has shape [1], not [2]",
    ),
    (
        "GRU",
        [X, W, R, None, None, ones(1, 1, 5)],
        [ones(3, 1, 2, 5)],
        GRU,
        "initial_h has shape [1, 1, 5], not [1, 2, 5]",
    ),
    (
        "LSTM",
        [X, ones(1, 20, 4), ones(1, 20, 5), None, None, None, None, ones(1, 5)],
        [ones(3, 1, 2, 5)],
        GRU,
        "P has shape [1, 5], not [1, 15]",
    ),
    ("InstanceNormalization", [ones(2), ones(1), ones(1)], [ones(2)], {}, "there are no channels"),
    (
        "LayerNormalization",
        [ones(7, 9), ones(63)],
        [ones(7, 9)],
        {"axis": 0},
        "the scale [63] does not broadcast to [7, 9]",
    ),
    (
        "RMSNormalization",
        [ones(3), ones(2, 3)],
        [ones(3)],
        {},
        "the scale [2, 3] does not broadcast to [3]",
    ),
    ("SoftmaxCrossEntropyLoss", [ones(2), LABELS], [ones()], {}, "there are no classes"),
    (
        "SoftmaxCrossEntropyLoss",
        [ones(2, 4), LABELS],
        [ones()],
        {},
        "what names the classes has shape [2, 3], not [2]",
    ),
    (
        "STFT",
        [ones(1, 15, 1, 1), np.array(2), ones(5)],
        [ones(1, 6, 3, 2)],
        {},
        "signal has 4 dimensions",
    ),
    ("Sum", [ones(2), None, ones(2)], [ones(2)], {}, "input 1 is left out"),
    ("ReduceSum", [ones(2)], [ones()], {"keepdims": 2}, "keepdims is 2, neither 0 nor 1"),
    ("ArgMax", [ones(2)], [np.array(0)], {"keepdims": -1}, "keepdims is -1, neither 0 nor 1"),
    (
        "Unique",
        [ones(6)],
        [ones(6), LABELS[0], LABELS[0]],
        {},
        "inverse_indices is declared with shape [3], not [6]",
    ),
    (
        "Unique",
        [ones(6)],
        [ones(6)],
        {"axis": 2**63 - 1},
        "axis 9223372036854775807 is not in a tensor of 1 dimensions",
    ),
    (
        "ReverseSequence",
        [ones(4, 2), np.array([1, 1])],
        [ones(4, 2)],
        {"time_axis": 8},
        "axis 8 is not in a tensor of 2 dimensions",
    ),
    (
        "ReverseSequence",
        [ones(4, 2), np.array([1])],
        [ones(4, 2)],
        {},
        "sequence_lens has shape [1], not [2]",
    ),
    ("Clip", [ones(3, 2), ones(3)], [ones(3, 2)], {}, "min has shape [3]; give a scalar"),
    ("GlobalMaxPool", [ones(5)], [ones(5)], {}, "X has 1 dimensions"),
    (
        "GroupNormalization",
        [ones(6), ones(6), ones(6)],
        [ones(6)],
        {"num_groups": 2},
        "there are no channels",
    ),
    (
        "GroupNormalization",
        [ones(1, 2, 3), ones(2), ones(3)],
        [ones(1, 2, 3)],
        {"num_groups": 2},
        "bias has shape [3], not [2]",
    ),
    (
        "MaxUnpool",
        [ones(1, 1, 2), np.zeros((1, 1, 1), np.int64)],
        [ones(1, 1, 2)],
        {"kernel_shape": [1]},
        "I has shape [1, 1, 1], not [1, 1, 2]",
    ),
    (
        "MaxPool",
        [ones(1, 1, 5)],
        [ones(1, 1, 5)],
        {"kernel_shape": [1], "ceil_mode": 2},
        "ceil_mode is 2, neither 0 nor 1",
    ),
    (
        "DequantizeLinear",
        [LABELS.astype(np.int32), ones(4)],
        [ones(2, 3)],
        {},
        "x_scale has shape [4] for axis 1 of [2, 3]",
    ),
    (
        "QuantizeLinear",
        [ones(2), ones()],
        [np.ones(2, np.uint8)],
        {"precision": 2**31},
        "precision is 2147483648, which is the number of no element type",
    ),
    (
        "Split",
        [ones(1)],
        [ones(1), ones(0), ones(0), ones(0)],
        {"num_outputs": 3},
        "num_outputs is 3, and there are 4 outputs",
    ),
    (
        "GatherND",
        [ones(9, 2), np.zeros((9, 1), np.int64)],
        [ones(9)],
        {"batch_dims": -(2**31)},
        "batch_dims is -2147483648",
    ),
    (
        "LayerNormalization",
        [ones(2, 1), ones(2, 1)],
        [ones(2, 1)],
        {"axis": 2**63 - 1},
        "axis 9223372036854775807 is not in a tensor of 2 dimensions",
    ),
    ("Unsqueeze", [ones(7), np.array(0)], [ones(1, 7)], {}, "[7] cannot become the declared"),
]


@pytest.mark.parametrize(("operator", "inputs", "outputs", "attributes", "fact"), MISFITS)
def test_misfit(
    operator: str,
    inputs: Sequence[Array | None],
    outputs: Sequence[Array],
    attributes: dict[str, Any],
    fact: str,
) -> None:
    assert_refused(fact, one_node(operator, inputs, *outputs, constants=[], **attributes))


@pytest.mark.parametrize("size", [7, 2**62])
def test_a_response_is_normalised_by_no_more_channels_than_there_are(size: int) -> None:
    x = np.arange(1, 4, dtype=np.float32).reshape(1, 3, 1)
    attributes: dict[str, Any] = {"size": size, "alpha": float(size), "beta": 1.0, "bias": 2.0}
    one_node("LRN", [x], x / 16, **attributes).check()
