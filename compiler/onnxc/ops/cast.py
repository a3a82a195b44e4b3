"""Conversions between element types."""

from __future__ import annotations

from onnxc.conversion import CONVERTIBLE
from onnxc.diagnostics import Kind
from onnxc.dtypes import BY_CODE, ElementType
from onnxc.errors import RefusalError
from onnxc.op import op
from onnxc.operations import ROUND_MODES, cast_name
from onnxc.ops.checks import require_choice
from onnxc.tensor import Tensor


@op("Cast", exact=True)
def cast(input: Tensor, *, to: int, saturate: int | None, round_mode: str | None) -> Tensor:
    if to not in BY_CODE:
        raise RefusalError(
            Kind.ATTRIBUTE_VALUE,
            f"`to` is {to}, which is no element type",
            "see TensorProto.DataType",
        )
    return converted(input, BY_CODE[to], saturate, round_mode)


@op("CastLike", exact=True)
def cast_like(
    input: Tensor, target_type: Tensor, *, saturate: int | None, round_mode: str | None
) -> Tensor:
    return converted(input, target_type.dtype, saturate, round_mode)


def converted(
    tensor: Tensor, target: ElementType, saturate: int | None = 1, round_mode: str | None = "up"
) -> Tensor:
    """`saturate` concerns 8-bit floats, `round_mode` float8e8m0 only."""
    if tensor.dtype is target:
        return tensor
    for dtype in (tensor.dtype, target):
        if dtype not in CONVERTIBLE:
            raise RefusalError(
                Kind.CAST_NOT_SUPPORTED, f"a cast of {tensor.dtype} to {target} is not supported"
            )
    if target.packed and tensor.dtype.kind not in ("signed", "unsigned", "bool"):
        raise RefusalError(
            Kind.CAST_NOT_SUPPORTED, f"a cast of {tensor.dtype} to {target} is not supported yet"
        )
    require_choice("round_mode", round_mode or "up", ROUND_MODES)
    if target.kind != "bits":
        return tensor.cast(target)
    return tensor.cast(target, cast_name(saturate != 0, round_mode or "up"))
