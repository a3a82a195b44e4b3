"""Operators whose every output element is one expression of the matching input elements."""

from __future__ import annotations

from onnxc.kernel import compare
from onnxc.op import op
from onnxc.tensor import Tensor, elementwise


@op("Identity")
def identity(input: Tensor) -> Tensor:
    return input


@op("Equal")
def equal(A: Tensor, B: Tensor) -> Tensor:
    """By value: a NaN equals nothing, -0 equals +0, strings by all their bytes."""
    return elementwise(lambda a, b: compare("equal", a, b), A, B)
