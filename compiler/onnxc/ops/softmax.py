"""Softmax and its kin: along one axis, relative to its largest element, so that nothing overflows.

Elements that are all -infinity give NaN, 0 / 0 by the formula.
"""

from __future__ import annotations

from onnxc.expression import Expr, Index, apply, at, compare, literal, where
from onnxc.op import op
from onnxc.ops.checks import positive_axis
from onnxc.ops.reduction import extreme_index, folded
from onnxc.tensor import Tensor, compute, elementwise


@op("Softmax")
def softmax(input: Tensor, *, axis: int) -> Tensor:
    along = positive_axis(axis, input.rank)
    shifted = relative_to_largest(input, along)
    powers = elementwise(lambda x: apply("exp", x), shifted).stored("exponentials")
    total = folded("sum", powers, (along,)).stored("their sum")
    return elementwise(lambda x, whole: x / whole, powers, total)


@op("LogSoftmax")
def log_softmax(input: Tensor, *, axis: int) -> Tensor:
    return logarithms(input, positive_axis(axis, input.rank))


@op("Hardmax")
def hardmax(input: Tensor, *, axis: int) -> Tensor:
    """1 at the first largest element along the axis, else 0."""
    along = positive_axis(axis, input.rank)
    if input.elements == 0:
        return input
    best = extreme_index("max", input, along, last=False).stored("where the maximum is")

    def element(*indices: Index) -> Expr:
        place = [Index() if d == along else i for d, i in enumerate(indices)]
        hit = compare("equal", at(indices[along]), best[place])
        return where(hit, literal(input.dtype, 1), 0)

    return compute(input.shape, element)


def relative_to_largest(data: Tensor, axis: int) -> Tensor:
    """Each element less the largest one along the axis."""
    data = data.shared("the elements")
    largest = folded("max", data, (axis,)).stored("largest element")
    return elementwise(lambda x, top: x - top, data, largest)


def logarithms(data: Tensor, axis: int) -> Tensor:
    """The logarithm of what Softmax gives, which its quotient would round to that of 0."""
    shifted = relative_to_largest(data, axis)
    powers = elementwise(lambda x: apply("exp", x), shifted)
    total = elementwise(lambda x: apply("log", x), folded("sum", powers, (axis,)))
    total = total.stored("logarithm of the sum of exponentials")
    return elementwise(lambda x, whole: x - whole, shifted, total)
