"""Rotary positional embeddings."""

from __future__ import annotations

from onnxc.diagnostics import Kind
from onnxc.errors import RefusalError
from onnxc.expression import Buffer, Expr, Index, along
from onnxc.kernel import Loops, define
from onnxc.op import op
from onnxc.ops.assembly import part
from onnxc.ops.checks import require_shape
from onnxc.ops.heads import split_heads
from onnxc.ops.movement import window
from onnxc.tensor import Tensor, checked_index, compute, of_buffer


@op("RotaryEmbedding")
def rotary_embedding(
    X: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    position_ids: Tensor | None,
    *,
    interleaved: int,
    num_heads: int | None,
    rotary_embedding_dim: int,
) -> Tensor:
    """Pairs of elements rotated by the angle of their position; what is left stays."""
    x = split_heads("X", X, num_heads)
    batch, heads, length, size = x.shape
    rotated = rotary_embedding_dim or size
    if not 0 <= rotated <= size or rotated % 2:
        fact = f"{rotated} of the {size} elements of a head cannot be rotated"
        raise RefusalError(
            Kind.ATTENTION_HEADS, fact, "rotary_embedding_dim is even and not greater"
        )
    half = rotated // 2
    cos = _of_positions("cos_cache", cos_cache, position_ids, (batch, length, half))
    sin = _of_positions("sin_cache", sin_cache, position_ids, (batch, length, half))

    def pair(p: Index, number: int) -> Index:
        return p * 2 + number if interleaved else p + number * half

    def real(b: Index, h: Index, s: Index, p: Index) -> Expr:
        one, other = x[[b, h, s, pair(p, 0)]], x[[b, h, s, pair(p, 1)]]
        return cos[[b, s, p]] * one - sin[[b, s, p]] * other

    def imaginary(b: Index, h: Index, s: Index, p: Index) -> Expr:
        one, other = x[[b, h, s, pair(p, 0)]], x[[b, h, s, pair(p, 1)]]
        return sin[[b, s, p]] * one + cos[[b, s, p]] * other

    if x.elements == 0:
        return X
    out = Buffer("", x.shape, x.dtype, "workspace")
    steps = []
    for number, (element, role) in enumerate(((real, "the real"), (imaginary, "the imaginary"))):
        turned = compute((batch, heads, length, half), element)
        *rows, p = map(along, turned.axes)
        place = (*rows, pair(p, number))
        steps.append(Loops(out, place, turned.axes, turned.value, role=f"{role} parts"))
    if rotated < size:
        rest = window(x, 3, rotated, size - rotated)
        steps.append(part(out, rest, "what is not rotated", [0, 0, 0, rotated]))
    define(tuple(steps))
    together = of_buffer(out)
    return together if X.rank == 4 else together.transpose([0, 2, 1, 3]).reshape(X.shape)


def _of_positions(
    name: str, cache: Tensor, positions: Tensor | None, shape: tuple[int, int, int]
) -> Tensor:
    """[batch, length, pairs]; a position outside of the cache is INDEX_OUT_OF_RANGE."""
    batch, length, half = shape
    if positions is None:
        require_shape(name, cache, shape)
        return cache
    require_shape("position_ids", positions, (batch, length))
    known = cache.shape[0] if cache.rank else 0
    require_shape(name, cache, (known, half))
    if known == 0 and batch * length:
        raise RefusalError(Kind.NO_ELEMENTS, f"{name} has no position")

    def element(b: Index, s: Index, p: Index) -> Expr:
        return cache[[checked_index(positions[[b, s]], known), p]]

    return compute(shape, element)
