"""Attention in its linear, recurrent form."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from onnxc.dtypes import INT64
from onnxc.expression import Buffer, Expr, Index, along, apply, fold, load
from onnxc.kernel import Loops, Program, Repeat, Step, define
from onnxc.op import op
from onnxc.ops.assembly import part
from onnxc.ops.heads import grouped, split_heads
from onnxc.tensor import Tensor, compute, dynamic, full, of_buffer, zero


@op("LinearAttention")
def linear_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    past_state: Tensor | None,
    decay: Tensor | None,
    beta: Tensor | None,
    *,
    chunk_size: int,
    kv_num_heads: int,
    q_num_heads: int,
    scale: float,
    update_rule: str,
) -> tuple[Tensor, Tensor]:
    """Token by token; `chunk_size` is a hint that changes no result.

    ONNX's inference sees to the shapes, and that the gates are there which `update_rule` names.
    """
    k, v = split_heads("key", key, kv_num_heads), split_heads("value", value, kv_num_heads)
    q = grouped(split_heads("query", query, q_num_heads), kv_num_heads)
    batch, heads, times, d_k = k.shape
    recurrence = _Recurrence(
        q.shared(),
        k.shared(),
        v.shared(),
        None if decay is None else _per_head(decay, heads, d_k),
        None if beta is None else _per_head(beta, heads, 1),
        scale or 1 / math.sqrt(max(d_k, 1)),
    )
    shape = (batch, heads, d_k, v.shape[3])
    state_type = v.dtype if past_state is None else past_state.dtype
    initial = full(shape, zero(q.dtype)) if past_state is None else past_state.cast(q.dtype)
    if not math.prod(shape) * times:
        empty = (batch, times, q_num_heads * v.shape[3])
        return full(empty, zero(q.dtype)), initial.cast(state_type)
    out, state = recurrence.steps(initial)
    return out, state.cast(state_type)


def _per_head(tensor: Tensor, heads: int, size: int) -> Tensor:
    """[batch, times, ...] as [batch, heads, times, 1 or size], broadcast over the heads."""
    batch, times, width = tensor.shape
    if width == heads * size and size > 1:
        return tensor.reshape((batch, times, heads, size)).transpose([0, 2, 1, 3])
    spread = tensor.reshape((batch, times, width, 1)).transpose([0, 2, 1, 3])
    return spread.expand((batch, heads, times, 1))


@dataclass(frozen=True)
class _Recurrence:
    """Everything by [batch, heads, times, size]; the queries with their group before the times."""

    q: Tensor
    k: Tensor
    v: Tensor
    decay: Tensor | None
    beta: Tensor | None
    scale: float

    def steps(self, initial: Tensor) -> tuple[Tensor, Tensor]:
        batch, heads, times = self.k.shape[:3]
        group, d_v = self.q.shape[2], self.v.shape[3]
        state = Buffer("", initial.shape, initial.dtype, "workspace")
        following = Buffer("", initial.shape, initial.dtype, "workspace")
        result = Buffer("", (batch, times, heads, group, d_v), self.q.dtype, "workspace")
        counter = Buffer("", (), INT64, "workspace")
        now = dynamic(load(counter, ()))
        new = self._next(of_buffer(state), now)
        # Both by themselves: tuned kernels read and store nothing at run-time places.
        query = Buffer("", (batch, heads, group, self.q.shape[4]), self.q.dtype, "workspace")
        given = Buffer("", (batch, heads, group, d_v), self.q.dtype, "workspace")
        asked = compute(query.shape, lambda b, h, g, i: self.q[[b, h, g, now, i]])
        read = self._read(of_buffer(following), of_buffer(query))
        found = of_buffer(given)
        first, *others = map(along, found.axes)
        body: tuple[Step, ...] = (
            part(following, new, "the state"),
            part(query, asked, "the query"),
            part(given, read, "what this time gives"),
            Loops(result, (first, now, *others), found.axes, found.value, role="among all times"),
        )
        count = Buffer("", (), INT64, "constant", np.asarray(times, np.int64))
        zeros = full(result.shape, zero(result.dtype))
        define(
            (
                part(state, initial, "the initial state"),
                part(result, zeros, "nothing yet"),
                Repeat(count, None, counter, Program(steps=body), ((state, following),)),
            )
        )
        packed = of_buffer(result).reshape((batch, times, heads * group * d_v))
        return packed, of_buffer(state)

    def _next(self, before: Tensor, now: Index) -> Tensor:
        """The decayed state, and the outer product of the key with what it should learn."""
        d_k = self.k.shape[3]

        def kept(b: Index, h: Index, i: Index, j: Index) -> Expr:
            value = before[[b, h, i, j]]
            if self.decay is None:
                return value
            column = i if self.decay.shape[3] != 1 else Index()
            return apply("exp", self.decay[[b, h, now, column]]) * value

        def element(b: Index, h: Index, i: Index, j: Index) -> Expr:
            wanted = self.v[[b, h, now, j]]
            if self.beta is not None:
                known = fold(
                    "sum",
                    [d_k],
                    lambda n: kept(b, h, n, j) * self.k[[b, h, now, n]],
                    "contraction",
                )
                wanted = (wanted - known) * self.beta[[b, h, now, Index()]]
            return kept(b, h, i, j) + self.k[[b, h, now, i]] * wanted

        return compute(before.shape, element)

    def _read(self, state: Tensor, query: Tensor) -> Tensor:
        d_k = state.shape[2]

        def element(b: Index, h: Index, g: Index, j: Index) -> Expr:
            total = fold(
                "sum",
                [d_k],
                lambda i: query[[b, h, g, i]] * state[[b, h, i, j]],
                "contraction",
            )
            return total * self.scale

        return compute((*query.shape[:3], state.shape[3]), element)
