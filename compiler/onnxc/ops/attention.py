"""Scaled dot product attention."""

from __future__ import annotations

import math
from collections.abc import Callable

from onnxc.diagnostics import Kind
from onnxc.dtypes import FLOAT, INT64
from onnxc.errors import RefusalError
from onnxc.expression import Expr, Index, fold, literal
from onnxc.op import Declared, op
from onnxc.ops.assembly import joined
from onnxc.ops.attention_blocks import attended_in_blocks, pays
from onnxc.ops.attention_scores import Heads, Rule, Softmax, wide_mask
from onnxc.ops.checks import require_shape
from onnxc.ops.heads import grouped, split_heads
from onnxc.tensor import Tensor, compute, elementwise


@op("Attention", exact=True)
def attention(
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    attn_mask: Tensor | None,
    past_key: Tensor | None,
    past_value: Tensor | None,
    nonpad_kv_seqlen: Tensor | None,
    *,
    is_causal: int,
    kv_num_heads: int | None,
    q_num_heads: int | None,
    qk_matmul_output_mode: int,
    scale: float | None,
    softcap: float,
    softmax_precision: int | None,
    left_window_size: int,
    right_window_size: int,
    declared: Declared = (),
) -> tuple[Tensor, ...]:
    """A row whose every key is masked gives zeros; softcap comes before the mask.

    16-bit floats are computed in float, but for the present keys and values, which are only moved.
    """
    if (past_key is None) != (past_value is None):
        raise RefusalError(
            Kind.OPERAND_LEFT_OUT,
            "only one of past_key and past_value is given",
            "give both or none",
        )
    if past_key is not None and nonpad_kv_seqlen is not None:
        raise RefusalError(
            Kind.ATTRIBUTES_CONFLICT,
            "past_key and nonpad_kv_seqlen are both given",
            "give one of them",
        )
    q = split_heads("Q", Q, q_num_heads)
    k, v = split_heads("K", K, kv_num_heads), split_heads("V", V, kv_num_heads)
    _require_shapes(q, k, v, past_key, past_value, nonpad_kv_seqlen)
    past = 0 if past_key is None else past_key.shape[2]
    k, v = _after(past_key, k), _after(past_value, v)
    q = _wide(q)
    heads = Heads(grouped(q, k.shape[1]), _wide(k).shared(), _wide(v).cast(q.dtype).shared())
    factor = 1 / math.sqrt(max(heads.q.shape[4], 1)) if scale is None else scale
    rule = Rule(
        heads.scores,
        factor,
        softcap,
        None if attn_mask is None else wide_mask(_wide(attn_mask), heads.scores),
        nonpad_kv_seqlen,
        _offset(past, nonpad_kv_seqlen, q.shape[2]),
        (left_window_size, 0 if is_causal else right_window_size),
        softmax_precision,
        late=pays(heads) or _fewer_than_keys(heads),
    )
    raw = _scores(heads, rule)
    found = rule.stages(raw, lambda *row: row, Tensor.stored)
    stages = [raw, found.capped, found.biased, found.softmax.weights]
    if not 0 <= qk_matmul_output_mode < len(stages):
        raise RefusalError(
            Kind.ATTRIBUTE_VALUE,
            f"qk_matmul_output_mode is {qk_matmul_output_mode}",
            "it is 0 to 3",
        )
    shown = stages[qk_matmul_output_mode]
    alone = declared[3:] in ((), (None,))
    if alone and found.softmax.is_plain and pays(heads):
        y = attended_in_blocks(heads, rule, packed=Q.rank == 3)
    else:
        y = _attended(heads, found.softmax, packed=Q.rank == 3)
    return (y, k, v, shown.reshape((q.shape[0], q.shape[1], *shown.shape[3:])))


def _wide(tensor: Tensor) -> Tensor:
    return tensor.cast(FLOAT) if tensor.dtype.kind == "half" else tensor


def _require_shapes(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    past_key: Tensor | None,
    past_value: Tensor | None,
    nonpad: Tensor | None,
) -> None:
    batch, _, _, size = q.shape
    _, kv_heads, new, v_size = v.shape
    require_shape("K", k, (batch, kv_heads, new, size))
    require_shape("V", v, (batch, kv_heads, new, v_size))
    if nonpad is not None:
        require_shape("nonpad_kv_seqlen", nonpad, (batch,))
    if past_key is not None and past_value is not None:
        before = past_key.shape[2] if past_key.rank == 4 else 0
        require_shape("past_key", past_key, (batch, kv_heads, before, size))
        require_shape("past_value", past_value, (batch, kv_heads, before, v_size))


def _after(past: Tensor | None, new: Tensor) -> Tensor:
    """The new entries behind the past ones, along the third dimension."""
    return new if past is None else joined([past, new], 2, ["the past", "and what is new"])


def _scores(heads: Heads, rule: Rule) -> Tensor:
    """Queries times keys, each scaled by the root of the factor."""
    size = heads.q.shape[4]
    q = elementwise(lambda x: x * rule.q_root, heads.q).stored("the scaled queries")
    k = elementwise(lambda x: x * rule.k_root, heads.k).stored("the scaled keys")

    def element(b: Index, h: Index, g: Index, i: Index, j: Index) -> Expr:
        return fold("sum", [size], lambda d: q[[b, h, g, i, d]] * k[[b, h, j, d]], "contraction")

    return compute(heads.scores, element).stored("queries times keys")


def _offset(past: int, nonpad: Tensor | None, queries: int) -> Callable[[Index], Expr]:
    """How many keys come before the first query of a batch row."""
    if nonpad is None:
        return lambda _: literal(INT64, past)
    return lambda b: nonpad[[b]] - queries


def _fewer_than_keys(heads: Heads) -> bool:
    """Whether a query has fewer weighted values than weights."""
    return heads.v.shape[3] < heads.scores[-1]


def _attended(heads: Heads, softmax: Softmax, *, packed: bool) -> Tensor:
    """The weighted values: [batch, heads, queries, size], or packed as the input was.

    Divided by the total of the row once they are summed up, which are fewer, where they may be.
    """
    batch, kv, group, queries, keys = heads.scores
    size = heads.v.shape[3]
    late = softmax.is_plain and _fewer_than_keys(heads)
    weights = softmax.powers if late else softmax.weights

    def element(b: Index, h: Index, g: Index, i: Index, d: Index) -> Expr:
        summed = fold(
            "sum",
            [keys],
            lambda j: weights[[b, h, g, i, j]] * heads.v[[b, h, j, d]],
            "contraction",
        )
        return softmax.shared(summed, (b, h, g, i)) if late else summed

    if packed:
        wide = compute(
            (batch, queries, kv, group, size), lambda b, i, h, g, d: element(b, h, g, i, d)
        )
        return wide.reshape((batch, queries, kv * group * size))
    wide = compute((batch, kv, group, queries, size), element)
    return wide.reshape((batch, kv * group, queries, size))
