"""Softmax and its kin: along one axis, relative to its largest element, so that nothing overflows.

Elements that are all -infinity give NaN, 0 / 0 by the formula.
"""

from __future__ import annotations

from onnxc.expression import Buffer, Expr, Index, apply, at, compare, literal, where
from onnxc.expression import along as walk_along
from onnxc.kernel import Loops, define
from onnxc.op import op
from onnxc.ops.checks import positive_axis
from onnxc.ops.reduction import extreme_index, folded
from onnxc.tensor import Tensor, compute, elementwise, of_buffer


@op("Softmax")
def softmax(input: Tensor, *, axis: int) -> Tensor:
    along = positive_axis(axis, input.rank)
    if input.elements == 0:
        return input
    powers = powers_below_1(relative_to_largest(input, along))
    buffer = Buffer("", input.shape, input.dtype, "workspace")
    walks = tuple(map(walk_along, powers.axes))
    fill = Loops(buffer, walks, powers.axes, powers.value, role="exponentials")
    total = folded("sum", of_buffer(buffer), (along,))
    inverse = elementwise(lambda whole: 1 / whole, total)
    factors = Buffer("", inverse.shape, input.dtype, "workspace")
    invert = Loops(
        factors,
        tuple(map(walk_along, inverse.axes)),
        inverse.axes,
        inverse.value,
        role="inverse of their sum",
    )
    factor = of_buffer(factors).expand(input.shape)
    scale = Loops(buffer, walks, factor.axes, factor.value, role="quotients", accumulate="mul")
    define((fill, invert, scale))
    return of_buffer(buffer)


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
    """Each element less the largest one along the axis, which is no NaN: elements that are stay."""
    data = data.shared("the elements")
    largest = folded("max", data, (axis,), hint="numbers").stored("largest element")
    return elementwise(lambda x, top: x - top, data, largest)


def powers_below_1(shifted: Tensor) -> Tensor:
    """The exponential of each element, none of which is above 0."""
    return elementwise(lambda x: apply("exp", -apply("abs", x)), shifted)


def logarithms(data: Tensor, axis: int) -> Tensor:
    """The logarithm of what Softmax gives, which its quotient would round to that of 0.

    The sums are stored, so that the logarithms of several rows are computed side by side.
    """
    shifted = relative_to_largest(data, axis)
    total = folded("sum", powers_below_1(shifted), (axis,)).stored("sum of exponentials")
    total = elementwise(lambda x: apply("log", x), total)
    total = total.stored("logarithm of the sum of exponentials")
    return elementwise(lambda x, whole: x - whole, shifted, total)
