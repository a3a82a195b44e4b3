"""Attention and LinearAttention by the text of their specification, in double, one by one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tests.models import Array


@dataclass
class Attended:
    """What the operator gives; `stages` are the four outputs of qk_matmul_output_mode."""

    y: Array
    present_key: Array
    present_value: Array
    stages: list[Array]


def unpacked(x: Array, heads: int | None) -> Array:
    """[batch, length, heads·size] as [batch, heads, length, size]."""
    if x.ndim == 4:
        return x
    assert heads is not None
    return np.stack(np.split(x, heads, axis=2), axis=1)


def attention(
    q_input: Array,
    k_input: Array,
    v_input: Array,
    mask: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    nonpad: Array | None = None,
    *,
    q_num_heads: int | None = None,
    kv_num_heads: int | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    is_causal: int = 0,
    left_window_size: int = -1,
    right_window_size: int = -1,
) -> Attended:
    q, k, v = (
        unpacked(x, heads)
        for x, heads in ((q_input, q_num_heads), (k_input, kv_num_heads), (v_input, kv_num_heads))
    )
    past = 0
    if past_key is not None and past_value is not None:
        past = past_key.shape[2]
        k, v = np.concatenate([past_key, k], 2), np.concatenate([past_value, v], 2)
    batch, heads, queries, size = q.shape
    keys = k.shape[2]
    shape = (batch, heads, queries, keys)
    raw, capped, biased, weights = (np.zeros(shape) for _ in range(4))
    y = np.zeros((batch, heads, queries, v.shape[3]))
    factor = scale if scale is not None else 1 / math.sqrt(size)
    added = np.zeros(shape) if mask is None else _bias(mask, shape)
    for b, h, i in np.ndindex(batch, heads, queries):
        kv_head = h // (heads // k.shape[1])
        offset = past if nonpad is None else int(nonpad[b]) - queries
        for j in range(keys):
            raw[b, h, i, j] = factor * np.dot(
                q[b, h, i].astype(np.float64), k[b, kv_head, j].astype(np.float64)
            )
            capped[b, h, i, j] = raw[b, h, i, j]
            if softcap:
                capped[b, h, i, j] = softcap * math.tanh(raw[b, h, i, j] / softcap)
            hidden = (
                (is_causal and j > i + offset)
                or (left_window_size >= 0 and j < i + offset - left_window_size)
                or (right_window_size >= 0 and j > i + offset + right_window_size)
                or (nonpad is not None and j >= nonpad[b])
            )
            biased[b, h, i, j] = -math.inf if hidden else capped[b, h, i, j] + added[b, h, i, j]
        top = max(biased[b, h, i], default=-math.inf)
        if top > -math.inf:
            powers = np.exp(biased[b, h, i] - top)
            weights[b, h, i] = powers / math.fsum(powers)
        y[b, h, i] = weights[b, h, i] @ v[b, kv_head].astype(np.float64)
    if q_input.ndim == 3:
        y = np.concatenate([y[:, h] for h in range(heads)], axis=2)
    return Attended(y, k, v, [raw, capped, biased, weights])


def _bias(mask: Array, shape: tuple[int, ...]) -> Array:
    """A mask for fewer keys is followed by -infinity."""
    bias = np.where(mask, 0.0, -math.inf) if mask.dtype == np.bool_ else mask.astype(np.float64)
    if bias.ndim and bias.shape[-1] not in (1, shape[-1]):
        rest = [(0, 0)] * (bias.ndim - 1) + [(0, shape[-1] - bias.shape[-1])]
        bias = np.pad(bias, rest, constant_values=-math.inf)
    return np.broadcast_to(bias, shape)


def linear_attention(
    query: Array,
    key: Array,
    value: Array,
    past_state: Array | None = None,
    decay: Array | None = None,
    beta: Array | None = None,
    *,
    q_num_heads: int,
    kv_num_heads: int,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
) -> tuple[Array, Array]:
    """The output, and the state after the last token."""
    q, k, v = (
        unpacked(query, q_num_heads),
        unpacked(key, kv_num_heads),
        unpacked(value, kv_num_heads),
    )
    batch, heads, times, d_k = k.shape
    d_v = v.shape[3]
    state = np.zeros((batch, heads, d_k, d_v))
    if past_state is not None:
        state[:] = past_state
    factor = scale or 1 / math.sqrt(d_k)
    group = q_num_heads // kv_num_heads
    out = np.zeros((batch, times, q_num_heads, d_v))
    for b, t, h in np.ndindex(batch, times, heads):
        now, k_t, v_t = state[b, h], k[b, h, t].astype(np.float64), v[b, h, t].astype(np.float64)
        if "gated" in update_rule:
            assert decay is not None
            gates = decay[b, t].reshape(heads, -1)[h]
            now = np.exp(gates.astype(np.float64))[:, None] * now
        if "delta" in update_rule:
            assert beta is not None
            rate = float(beta[b, t, h if beta.shape[2] > 1 else 0])
            v_t = rate * (v_t - now.T @ k_t)
        state[b, h] = now + np.outer(k_t, v_t)
        for g in range(group):
            out[b, t, h * group + g] = factor * (q[b, h * group + g, t] @ state[b, h])
    return out.reshape(batch, times, q_num_heads * d_v), state
