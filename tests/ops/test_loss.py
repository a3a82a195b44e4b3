"""NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss: reductions, weights, ignored labels."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from onnxc.compiled import CompiledModel
from onnxc.errors import RunError
from onnxc.pipeline import compile_model, evaluate_model
from tests.models import Array, model, refusal
from tests.ops.node_batch import NodeBatch

pytestmark = pytest.mark.usefixtures("strict_c")

CLASSES = 4
SHAPES = [(5,), (2, 3), (2, 3, 2), (1, 2, 1, 3)]
"""Of labels: the batch, and what is behind the dimension of the classes."""


def scores(*labels: int, dtype: Any = np.float32) -> Array:
    batch, *rest = labels
    shape = (batch, CLASSES, *rest)
    return np.random.default_rng(shape).normal(0, 2, shape).astype(dtype)


def labels_of(*shape: int, dtype: Any = np.int64) -> Array:
    return np.random.default_rng(3).integers(0, CLASSES, shape).astype(dtype)


def weights(dtype: Any = np.float32) -> Array:
    return np.asarray([0.5, 2, 1, 0.25], dtype)


def loss_of(
    predicted: Array, labels: Array, weight: Array | None, reduction: str, ignored: int | None
) -> Array:
    """One sample after the other, in double; a mean is by the weights of those that count."""
    losses = np.zeros(labels.shape)
    shares = np.zeros(labels.shape)
    for place in np.ndindex(labels.shape):
        label = int(labels[place])
        if label == ignored:
            continue
        shares[place] = 1 if weight is None else weight[label]
        losses[place] = -float(predicted[place[0], label, *place[1:]]) * shares[place]
    if reduction == "none":
        return losses
    return np.asarray(losses.sum() / (shares.sum() if reduction == "mean" else 1))


def log_softmax(x: Array) -> Array:
    shifted = x.astype(np.float64) - x.astype(np.float64).max(1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(1, keepdims=True)))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("ignored", [None, 2, -1, 7])
def test_losses(shape: tuple[int, ...], ignored: int | None) -> None:
    x, labels = scores(*shape), labels_of(*shape)
    if ignored is not None:
        labels.reshape(-1)[1] = ignored
    attributes: dict[str, Any] = {} if ignored is None else {"ignore_index": ignored}
    logarithms = log_softmax(x)
    batch = NodeBatch()
    for reduction in ("none", "sum", "mean"):
        for weight in (None, weights()):
            inputs = [x, labels, *([] if weight is None else [weight])]
            wanted = loss_of(x, labels, weight, reduction, ignored).astype(np.float32)
            batch.add_node(
                "NegativeLogLikelihoodLoss", inputs, [wanted], reduction=reduction, **attributes
            )
            wanted = loss_of(logarithms, labels, weight, reduction, ignored).astype(np.float32)
            batch.add_node(
                "SoftmaxCrossEntropyLoss",
                inputs,
                [wanted, logarithms.astype(np.float32)],
                reduction=reduction,
                **attributes,
            )
    batch.check_within(8, 1e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("label_type", [np.int32, np.int64])
def test_types(dtype: Any, label_type: Any) -> None:
    x, labels = scores(3, 2, dtype=dtype), labels_of(3, 2, dtype=label_type)
    weight = weights(dtype)
    logarithms = log_softmax(x)
    batch = NodeBatch()
    wanted = loss_of(x, labels, weight, "mean", None).astype(dtype)
    batch.add_node("NegativeLogLikelihoodLoss", [x, labels, weight], [wanted])
    wanted = loss_of(logarithms, labels, weight, "mean", None).astype(dtype)
    outputs = [wanted, logarithms.astype(dtype)]
    batch.add_node("SoftmaxCrossEntropyLoss", [x, labels, weight], outputs)
    batch.check_within(8 if dtype is np.float64 else 1, 1e-15)


def test_examples_of_the_documentation() -> None:
    x = np.asarray([[[1, 2], [2, 2], [3, 2]], [[0, 1], [2, 2], [1, 2]]], np.float32)
    labels = np.asarray([[2, 1], [0, 2]], np.int64)
    weight = np.asarray([0.2, 0.3, 0.1], np.float32)
    batch = NodeBatch()
    name = "NegativeLogLikelihoodLoss"
    wanted = np.asarray([[-3, -2], [0, -2]], np.float32)
    batch.add_node(name, [x, labels], [wanted], reduction="none")
    batch.add_node(name, [x, labels, weight], [np.asarray(-1.1, np.float32)], reduction="sum")
    batch.add_node(name, [x, labels, weight], [np.asarray(-1.1 / 0.7, np.float32)])
    batch.check_within(2)


def test_ignored_samples_do_not_count_in_a_mean() -> None:
    x = np.asarray([[-1, -2], [-3, -4]], np.float32)
    labels = np.asarray([0, 1], np.int64)
    batch = NodeBatch()
    wanted = np.asarray(1, np.float32)
    batch.add_node("NegativeLogLikelihoodLoss", [x, labels], [wanted], ignore_index=1)
    batch.check()
    batch = NodeBatch()
    nothing = np.asarray(np.nan, np.float32)
    batch.add_node("NegativeLogLikelihoodLoss", [x, labels * 0], [nothing], ignore_index=0)
    batch.check_within(0)


def test_an_ignored_sample_may_be_no_number() -> None:
    x = np.asarray([[np.nan, np.inf], [-3, -4]], np.float32)
    labels = np.asarray([5, 0], np.int64)
    batch = NodeBatch()
    for reduction, wanted in (("sum", 3), ("none", [0, 3]), ("mean", 3)):
        batch.add_node(
            "NegativeLogLikelihoodLoss",
            [x, labels],
            [np.asarray(wanted, np.float32)],
            reduction=reduction,
            ignore_index=5,
        )
    batch.check()


def classified(operator: str, **attributes: Any) -> ModelProto:
    node = helper.make_node(operator, ["x", "labels"], ["y"], **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]),
            helper.make_tensor_value_info("labels", TensorProto.INT64, [2]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [])],
    )
    return model(graph)


@pytest.mark.parametrize("operator", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
@pytest.mark.parametrize("ignored", [None, -1])
def test_labels_that_are_no_class(operator: str, ignored: int | None) -> None:
    source = classified(operator, **({} if ignored is None else {"ignore_index": ignored}))
    compiled = CompiledModel(compile_model(source))
    for label in (3, -2, 2**63 - 1, -(2**63), -1):
        labels: Array = np.asarray([label, 0], np.int64)
        inputs: dict[str, Array] = {"x": np.zeros((2, 3), np.float32), "labels": labels}
        if label == ignored:
            compiled.run(inputs)
            evaluate_model(source, inputs)
            continue
        with pytest.raises(RunError, match="INDEX_OUT_OF_RANGE"):
            compiled.run(inputs)
        with pytest.raises(ArithmeticError, match="INDEX_OUT_OF_RANGE"):
            evaluate_model(source, inputs)


def test_an_unknown_reduction() -> None:
    (line,) = refusal(classified("SoftmaxCrossEntropyLoss", reduction="median"))
    assert "'median'" in line or "reduction" in line
