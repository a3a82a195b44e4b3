"""Scaled dot product attention."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from onnxc.dtypes import BOOL, BY_CODE, BY_NAME, FLOAT, INT64
from onnxc.errors import RefusalError
from onnxc.expression import Expr, Index, apply, at, cast, compare, fold, literal, where
from onnxc.op import op
from onnxc.ops.assembly import joined
from onnxc.ops.checks import require_shape
from onnxc.ops.heads import grouped, split_heads
from onnxc.tensor import Tensor, broadcast_shape, compute, elementwise, guarded

PRECISIONS = tuple(BY_NAME[name] for name in ("float", "float16", "double", "bfloat16"))


@dataclass(frozen=True)
class Heads:
    """Queries [batch, kv heads, group, queries, size]; keys and values [batch, kv heads, ...]."""

    q: Tensor
    k: Tensor
    v: Tensor

    @property
    def scores(self) -> tuple[int, ...]:
        """The shape [batch, kv heads, group, queries, keys]."""
        return (*self.q.shape[:4], self.k.shape[2])


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
) -> tuple[Tensor, ...]:
    """A row whose every key is masked gives zeros; softcap comes before the mask.

    16-bit floats are computed in float, but for the present keys and values, which are only moved.
    """
    if (past_key is None) != (past_value is None):
        raise RefusalError("only one of past_key and past_value is given", "give both or none")
    if past_key is not None and nonpad_kv_seqlen is not None:
        raise RefusalError("past_key and nonpad_kv_seqlen are both given", "give one of them")
    q = split_heads("Q", Q, q_num_heads)
    k, v = split_heads("K", K, kv_num_heads), split_heads("V", V, kv_num_heads)
    _require_shapes(q, k, v, past_key, past_value, nonpad_kv_seqlen)
    past = 0 if past_key is None else past_key.shape[2]
    k, v = _after(past_key, k), _after(past_value, v)
    q = _wide(q)
    heads = Heads(grouped(q, k.shape[1]), _wide(k).shared(), _wide(v).cast(q.dtype).shared())
    raw = _scores(heads, scale)
    capped = raw if not softcap else _capped(raw, softcap)
    offset = _offset(past, nonpad_kv_seqlen, q.shape[2])
    windows = (left_window_size, 0 if is_causal else right_window_size)
    mask = None if attn_mask is None else _wide(attn_mask)
    biased = _biased(capped, heads, mask, nonpad_kv_seqlen, offset, windows)
    weights = _softmax(biased, softmax_precision)
    stages = [raw, capped, biased, weights]
    if not 0 <= qk_matmul_output_mode < len(stages):
        raise RefusalError(f"qk_matmul_output_mode is {qk_matmul_output_mode}", "it is 0 to 3")
    shown = stages[qk_matmul_output_mode]
    outputs = (_attended(heads, weights, packed=Q.rank == 3), k, v)
    return (*outputs, shown.reshape((q.shape[0], q.shape[1], *shown.shape[3:])))


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


def _scores(heads: Heads, scale: float | None) -> Tensor:
    """Queries times keys, each scaled by the root of the scale."""
    size = heads.q.shape[4]
    factor = 1 / math.sqrt(max(size, 1)) if scale is None else scale
    root = math.sqrt(abs(factor))
    q_root = math.copysign(root, factor)
    q = elementwise(lambda x: x * q_root, heads.q).stored("the scaled queries")
    k = elementwise(lambda x: x * root, heads.k).stored("the scaled keys")

    def element(b: Index, h: Index, g: Index, i: Index, j: Index) -> Expr:
        return fold("sum", [size], lambda d: q[[b, h, g, i, d]] * k[[b, h, j, d]], "contraction")

    return compute(heads.scores, element).stored("queries times keys")


def _capped(scores: Tensor, softcap: float) -> Tensor:
    capped = elementwise(lambda x: apply("tanh", x / softcap) * softcap, scores)
    return capped.stored("softly capped")


def _offset(past: int, nonpad: Tensor | None, queries: int) -> Callable[[Index], Expr]:
    """How many keys come before the first query of a batch row."""
    if nonpad is None:
        return lambda _: literal(INT64, past)
    return lambda b: nonpad[[b]] - queries


def _biased(
    scores: Tensor,
    heads: Heads,
    mask: Tensor | None,
    nonpad: Tensor | None,
    offset: Callable[[Index], Expr],
    windows: tuple[int, int],
) -> Tensor:
    """The mask added; -infinity where a query may not attend a key."""
    *_, queries, keys = heads.scores
    # A wider window holds every key: a number that cannot overflow stands for it.
    left, right = (min(window, queries + keys) for window in windows)
    wide = None if mask is None else _wide_mask(mask, heads)

    def element(b: Index, h: Index, g: Index, i: Index, j: Index) -> Expr:
        value = scores[[b, h, g, i, j]]
        allowed: Expr = literal(BOOL, True)
        if wide is not None:
            missing = literal(wide.dtype, False if wide.dtype is BOOL else -math.inf)
            entry = guarded(wide, [b, h, g, i, j], missing)
            if wide.dtype is BOOL:
                allowed = _and(allowed, entry)
            else:
                value = value + cast(entry, value.dtype)
        place = at(i) + offset(b)
        if left >= 0:
            allowed = _and(allowed, place - left <= at(j))
        if right >= 0:
            allowed = _and(allowed, at(j) <= place + right)
        if nonpad is not None:
            allowed = _and(allowed, at(j) < nonpad[[b]])
        return where(allowed, value, -math.inf)

    return compute(scores.shape, element).stored("masked")


def _and(one: Expr, other: Expr) -> Expr:
    return other if one is literal(BOOL, True) else one & other


def _wide_mask(mask: Tensor, heads: Heads) -> Tensor:
    """Broadcast to the scores, but for the last dimension, which may be shorter."""
    batch, kv, group, queries, keys = heads.scores
    if mask.dtype.kind not in ("bool", "float"):
        raise RefusalError(f"attn_mask is {mask.dtype.name}", "give a bool or a float mask")
    length = keys if mask.rank == 0 or mask.shape[-1] == 1 else mask.shape[-1]
    shape = (batch, kv * group, queries, length)
    try:
        fits = length <= keys and broadcast_shape(mask.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        fact = f"attn_mask of shape {list(mask.shape)} does not broadcast to {list(shape)}"
        raise RefusalError(fact, f"its last dimension may be shorter than the {keys} keys")
    return mask.expand(shape).reshape((batch, kv, group, queries, length))


def _softmax(scores: Tensor, precision: int | None) -> Tensor:
    """Over the last dimension; a row of -infinity gives zeros.

    Of numbers of the given precision, computed in float at least, and rounded to it.
    """
    dtype = scores.dtype
    given = dtype if precision is None else BY_CODE.get(precision)
    if given not in PRECISIONS:
        names = [wanted.name for wanted in PRECISIONS]
        raise RefusalError(f"softmax_precision is {precision}", f"it is one of {names}")
    scores = scores.cast(given)
    scores = scores.cast(FLOAT) if given.kind == "half" else scores
    *rows, keys = scores.shape

    def greatest(*row: Index) -> Expr:
        found = fold("max", [keys], lambda j: scores[[*row, j]])
        return where(compare("equal", found, -math.inf), 0, found)

    top = compute(tuple(rows), greatest).stored("the greatest of each row")
    powers = compute(
        scores.shape, lambda *i: apply("exp", scores[list(i)] - top[list(i[:-1])])
    ).stored("exponentials")
    total = compute(
        tuple(rows), lambda *row: fold("sum", [keys], lambda j: powers[[*row, j]])
    ).stored("the sum of each row")

    def element(*indices: Index) -> Expr:
        value, whole = powers[list(indices)], total[list(indices[:-1])]
        return where(compare("equal", whole, 0), 0, value / whole)

    weights = compute(scores.shape, element)
    return weights.cast(given).cast(dtype).stored("the weights")


def _attended(heads: Heads, weights: Tensor, *, packed: bool) -> Tensor:
    """The weighted values: [batch, heads, queries, size], or packed as the input was."""
    batch, kv, group, queries, keys = heads.scores
    size = heads.v.shape[3]

    def element(b: Index, h: Index, g: Index, i: Index, d: Index) -> Expr:
        return fold(
            "sum",
            [keys],
            lambda j: weights[[b, h, g, i, j]] * heads.v[[b, h, j, d]],
            "contraction",
        )

    if packed:
        wide = compute(
            (batch, queries, kv, group, size), lambda b, i, h, g, d: element(b, h, g, i, d)
        )
        return wide.reshape((batch, queries, kv * group * size))
    wide = compute((batch, kv, group, queries, size), element)
    return wide.reshape((batch, kv * group, queries, size))
