"""Attention heads, packed into the last dimension or in one of their own."""

from __future__ import annotations

from onnxc.diagnostics import Kind
from onnxc.errors import RefusalError
from onnxc.tensor import Tensor


def split_heads(name: str, tensor: Tensor, heads: int | None) -> Tensor:
    """[batch, length, heads·size] as [batch, heads, length, size]."""
    if tensor.rank == 4:
        return tensor
    if tensor.rank != 3 or heads is None or heads < 1 or tensor.shape[2] % heads:
        fact = f"{name} of shape {list(tensor.shape)} does not have {heads} heads"
        raise RefusalError(
            Kind.ATTENTION_HEADS, fact, "give a number of heads that divides the last dimension"
        )
    batch, length, hidden = tensor.shape
    return tensor.reshape((batch, length, heads, hidden // heads)).transpose([0, 2, 1, 3])


def grouped(q: Tensor, kv_heads: int) -> Tensor:
    """[batch, heads, length, size] as [batch, kv heads, queries of each, length, size]."""
    batch, heads, length, size = q.shape
    if kv_heads == 0 or heads % kv_heads:
        raise RefusalError(
            Kind.ATTENTION_HEADS, f"{heads} query heads do not share {kv_heads} key heads evenly"
        )
    return q.reshape((batch, kv_heads, heads // kv_heads, length, size))
