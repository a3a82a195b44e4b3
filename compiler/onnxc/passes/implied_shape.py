"""What is declared of later values says which shape a run-time operand must give a value.

Only equalities that hold for every input count: a result that has the shape of one operand, and a
broadcast of values of one shape with single elements. Each operator then honours its run-time
operand for the shape found, or reports that the two do not agree.
"""

from __future__ import annotations

import math
from typing import Final

import onnx_ir as ir

from onnxc.diagnostics import Kind
from onnxc.errors import RefusalError
from onnxc.passes.data_sizes import MAXIMUM
from onnxc.protobuf.where import quoted
from onnxc.values import shape_text, static_shape


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FURTHEST: Final = 1000
"""So many values that have the same shape are looked at."""
_AS_FIRST: Final = _names(
    """
    Abs Acos Acosh Asin Asinh Atan Atanh BatchNormalization BitwiseNot Cast CastLike Ceil Celu Clip
    Cos Cosh CumProd CumSum DequantizeLinear Dropout DynamicQuantizeLinear Elu Erf Exp Floor Gelu
    GroupNormalization HardSigmoid HardSwish Hardmax Identity InstanceNormalization IsInf IsNaN LRN
    LayerNormalization LeakyRelu Log LogSoftmax LpNormalization MeanVarianceNormalization Mish Neg
    Not PRelu QuantizeLinear RMSNormalization Reciprocal Relu Round ScatterElements ScatterND Selu
    Shrink Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu Trilu
    """
)
"""The first output has the shape of the first input, in every version."""
_BROADCAST: Final = _names(
    """
    Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less
    LessOrEqual Max Mean Min Mod Mul Or Pow Sub Sum Where Xor
    """
)
"""All inputs are broadcast to the output."""
_AS_MANY_ELEMENTS: Final = frozenset({"Reshape", "Squeeze", "Unsqueeze"})


def implied_shape(value: ir.Value) -> ir.Shape | None:
    """The shape of `value`, filled up by what is declared of values that must have the same.

    What contradicts is passed over: inference meets it later. None where not even the rank shows.
    """
    shape = value.shape
    alike = {value: None}
    queue = [value]
    for member in queue:
        if member is not value and not member.meta.get(MAXIMUM):
            shape = _filled(shape, member.shape)
        if (shape is not None and shape.is_static()) or len(queue) > _FURTHEST:
            break
        for node, position in member.uses():
            result = node.outputs[0] if node.outputs else value
            if result not in alike and node.graph is value.graph:
                rank = 0 if shape is None else len(shape)
                if _keeps_shape(node, position, alike, rank):
                    alike[result] = None
                    queue.append(result)
    return shape


def _filled(shape: ir.Shape | None, other: ir.Shape | None) -> ir.Shape | None:
    if shape is None or other is None:
        return other if shape is None else shape
    if len(shape) != len(other):
        return shape
    return ir.Shape([a if isinstance(a, int) else b for a, b in zip(shape, other, strict=True)])


def _keeps_shape(node: ir.Node, position: int, alike: dict[ir.Value, None], rank: int) -> bool:
    """Whether the first output has the shape of the input at `position`, of `rank` or more."""
    if node.domain:
        return False
    if node.op_type in _AS_FIRST:
        return position == 0
    if node.op_type not in _BROADCAST or "broadcast" in node.attributes:
        return False
    return all(
        operand is not None and (operand in alike or _is_single(operand, rank))
        for operand in node.inputs
    )


def _is_single(value: ir.Value, rank: int) -> bool:
    """Whether the value has one element, and no more than `rank` dimensions."""
    shape = _constant_shape(value) if value.shape is None else static_shape(value)
    return shape is not None and len(shape) <= rank and math.prod(shape) == 1


def _constant_shape(value: ir.Value) -> tuple[int, ...] | None:
    """Of the result of a Constant that inference comes to later; None of other values."""
    node = value.producer()
    if node is None or node.op_type != "Constant" or node.domain or len(node.attributes) != 1:
        return None
    (attribute,) = node.attributes.values()
    match attribute.type:
        case ir.AttributeType.TENSOR:
            return tuple(attribute.as_tensor().shape.numpy())
        case ir.AttributeType.INT | ir.AttributeType.FLOAT:
            return ()
    return None


def counted_shape(node: ir.Node, shape: ir.Shape) -> ir.Shape:
    """The shape with its one open extent, of a result that has the elements of the first input.

    Raises RefusalError where no size fits.
    """
    data = node.inputs[0] if node.domain == "" and node.op_type in _AS_MANY_ELEMENTS else None
    extents = None if data is None else static_shape(data)
    known = [extent for extent in shape if isinstance(extent, int)]
    if data is None or extents is None or len(known) != len(shape) - 1 or 0 in known:
        return shape
    size, rest = divmod(math.prod(extents), math.prod(known))
    if rest:
        fact = f"input {quoted(data.name or '')} is {shape_text(data)}"
        raise RefusalError(
            Kind.RESULT_SHAPE, fact, f"its elements do not fill the declared {shape}"
        )
    return ir.Shape([extent if isinstance(extent, int) else size for extent in shape])
