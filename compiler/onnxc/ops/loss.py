"""Losses: what is predicted for the class that each label names, weighted and reduced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from onnxc.diagnostics import Kind
from onnxc.dtypes import BOOL, INT64
from onnxc.errors import RefusalError
from onnxc.expression import Checked, Expr, Index, compare, literal, where
from onnxc.op import op
from onnxc.ops.checks import require_choice, require_shape
from onnxc.ops.reduction import folded
from onnxc.ops.softmax import logarithms
from onnxc.status import Status
from onnxc.tensor import Tensor, compute, dynamic, elementwise

REDUCTIONS: Final = ("none", "sum", "mean")


@op("NegativeLogLikelihoodLoss")
def negative_log_likelihood_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    *,
    ignore_index: int | None,
    reduction: str,
) -> Tensor:
    return _loss(
        input.shared("logarithms of probabilities"),
        _Labels(target, ignore_index),
        weight,
        reduction,
    )


@op("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy_loss(
    scores: Tensor,
    labels: Tensor,
    weights: Tensor | None,
    *,
    ignore_index: int | None,
    reduction: str,
) -> tuple[Tensor, Tensor]:
    if scores.rank < 2:
        raise RefusalError(
            Kind.OPERAND_RANK, f"there are no classes in a tensor of {scores.rank} dimensions"
        )
    log_prob = logarithms(scores, 1)
    return _loss(log_prob, _Labels(labels, ignore_index), weights, reduction), log_prob


@dataclass(frozen=True)
class _Labels:
    """A class for each sample; what has the label `ignored` does not count."""

    classes: Tensor
    ignored: int | None

    def counts(self, label: Expr) -> Expr:
        if self.ignored is None:
            return literal(BOOL, True)
        return ~compare("equal", label, self.ignored)

    def place(self, label: Expr, number: int) -> Index:
        """The class among `number`; 0, and reported, where there is no such class."""
        inside = (label >= 0) & (label < number)
        fine = inside if self.ignored is None else inside | ~self.counts(label)
        safe = where(inside, label, 0)
        return dynamic(Checked(INT64, safe, fine, Status.INDEX_OUT_OF_RANGE))


def _loss(predicted: Tensor, labels: _Labels, weight: Tensor | None, reduction: str) -> Tensor:
    """Means are by the weights of the samples that count, each 1 if none are given."""
    require_choice("reduction", reduction, REDUCTIONS)
    if predicted.rank < 2:
        raise RefusalError(
            Kind.OPERAND_RANK, f"there are no classes in a tensor of {predicted.rank} dimensions"
        )
    batch, number, *places = predicted.shape
    require_shape("what names the classes", labels.classes, (batch, *places))
    classes = labels.classes.cast(INT64)
    if number == 0 and classes.elements:
        raise RefusalError(Kind.NO_ELEMENTS, "there are no classes")
    if weight is not None:
        require_shape("the weight", weight, (number,))
        weight = weight.shared("weight of each class")

    def share(*indices: Index) -> Expr:
        label = classes[indices]
        one: Expr = literal(predicted.dtype, 1)
        if weight is not None:
            one = weight[[labels.place(label, number)]]
        return where(labels.counts(label), one, 0)

    def loss(*indices: Index) -> Expr:
        label = classes[indices]
        found = predicted[[indices[0], labels.place(label, number), *indices[1:]]]
        if weight is not None:
            found = found * weight[[labels.place(label, number)]]
        return where(labels.counts(label), -found, 0)

    losses = compute(classes.shape, loss)
    if reduction == "none":
        return losses
    total = _total(losses)
    if reduction == "sum":
        return total
    if weight is None and labels.ignored is None:
        return elementwise(lambda x: x / classes.elements, total)
    return elementwise(lambda x, whole: x / whole, total, _total(compute(classes.shape, share)))


def _total(data: Tensor) -> Tensor:
    axes = tuple(range(data.rank))
    return folded("sum", data, axes).squeeze(axes)
