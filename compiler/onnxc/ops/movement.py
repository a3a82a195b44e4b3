"""Operators that move elements and compute none."""

from __future__ import annotations

from onnxc.op import Ints, op
from onnxc.tensor import Tensor


@op("Unsqueeze")
def unsqueeze(data: Tensor, axes: Ints) -> Tensor:
    rank = data.rank + len(axes)
    return data.unsqueeze(axis % rank for axis in axes)
