"""Attention without the whole matrix of scores: a block of queries at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from onnxc.dtypes import FLOAT, INT64
from onnxc.expression import Buffer, Expr, Index, along, fold, load
from onnxc.kernel import Loops, Program, Repeat, Step, define
from onnxc.ops.assembly import part
from onnxc.ops.attention_scores import Heads, Rule
from onnxc.tensor import Tensor, compute, constant, dynamic, full, of_buffer, zero

ROWS: Final = 64
"""Queries of a block: several tiles, whose scores stay in the second-level cache."""
LEAST_SCORES: Final = 1 << 18
"""Of the whole matrix, from which blocks pay."""
LEAST_SIZE: Final = 16
"""Elements of a head: rows shorter than a vector stay with the plain loops."""


def pays(heads: Heads) -> bool:
    """Whether the scores are many, and the products as tuned kernels compute them."""
    batch, kv, group, queries, keys = heads.scores
    return (
        heads.q.dtype is FLOAT
        and batch * kv * group * queries * keys >= LEAST_SCORES
        and queries >= 2 * ROWS
        and keys >= ROWS
        and min(heads.q.shape[4], heads.v.shape[3]) >= LEAST_SIZE
    )


def attended_in_blocks(heads: Heads, rule: Rule, *, packed: bool) -> Tensor:
    """The weighted values: [batch, heads, queries, size], or packed as the input was.

    The last block of a head begins earlier where the blocks do not divide the queries.
    """
    batch, kv, group, queries, _ = heads.scores
    width = heads.v.shape[3]
    shape = (batch, queries, kv, group) if packed else (batch, kv, group, queries)
    result = Buffer("", (*shape, width), heads.q.dtype, "workspace")
    define(
        (
            part(result, full(result.shape, zero(result.dtype)), "nothing yet"),
            _each_head(heads, rule, result, packed=packed),
        )
    )
    found = of_buffer(result)
    if packed:
        return found.reshape((batch, queries, kv * group * width))
    return found.reshape((batch, kv * group, queries, width))


class _Body:
    """The steps of a loop over the rows of a table, in order."""

    def __init__(self, table: Sequence[tuple[int, int]]) -> None:
        self.steps: list[Step] = []
        self.counter = Buffer("", (), INT64, "workspace")
        self.table = table
        numbers = constant(np.asarray(table, np.int64), INT64)
        now = dynamic(load(self.counter, ()))
        self.row = self.hold(compute((2,), lambda n: numbers[[now, n]]), "which one")

    def hold(self, tensor: Tensor, role: str) -> Tensor:
        """The tensor in a buffer that a step of the loop fills, if it is in none yet."""
        if tensor.buffer is not None:
            return tensor
        buffer = Buffer("", tensor.shape, tensor.dtype, "workspace")
        self.steps.append(part(buffer, tensor, role))
        return of_buffer(buffer)

    def entries(self) -> tuple[Index, Index]:
        """The row of the table; what is the same in all rows is known."""
        first, second = (
            Index(column[0]) if len({*column}) == 1 else dynamic(self.row[[Index(n)]])
            for n, column in enumerate(zip(*self.table, strict=True))
        )
        return first, second

    def repeat(self) -> Repeat:
        count = Buffer("", (), INT64, "constant", np.asarray(len(self.table), np.int64))
        return Repeat(count, None, self.counter, Program(steps=tuple(self.steps)), ())


def _each_head(heads: Heads, rule: Rule, result: Buffer, *, packed: bool) -> Repeat:
    """The loop over the heads of the keys."""
    batch, kv, _, _, keys = heads.scores
    size, width = heads.k.shape[3], heads.v.shape[3]
    body = _Body([(b, h) for b in range(batch) for h in range(kv)])
    b, h = body.entries()
    k = compute((keys, size), lambda j, d: heads.k[[b, h, j, d]] * rule.k_root)
    scaled = body.hold(k, "the scaled keys of a head")
    turned = body.hold(compute((size, keys), lambda d, j: scaled[[j, d]]), "turned around")
    v = compute((keys, width), lambda j, d: heads.v[[b, h, j, d]])
    values = body.hold(v, "the values of a head")
    body.steps.append(_each_block(heads, rule, (b, h), (turned, values), result, packed=packed))
    return body.repeat()


def _each_block(
    heads: Heads,
    rule: Rule,
    head: tuple[Index, Index],
    operands: tuple[Tensor, Tensor],
    result: Buffer,
    *,
    packed: bool,
) -> Repeat:
    """The loop over the blocks of queries; `operands` are keys [size, keys] and values."""
    _, _, group, queries, keys = heads.scores
    (b, h), (turned, values) = head, operands
    size, width = turned.shape[0], values.shape[1]
    blocks = -(-queries // ROWS)
    rows = -(-queries // blocks)
    starts = [min(n * rows, queries - rows) for n in range(blocks)]
    body = _Body([(g, start) for g in range(group) for start in starts])
    g, start = body.entries()
    q = body.hold(
        compute((rows, size), lambda i, d: heads.q[[b, h, g, start + i, d]] * rule.q_root),
        "the scaled queries of a block",
    )

    def score(_b: Index, _h: Index, _g: Index, i: Index, j: Index) -> Expr:
        return fold("sum", [size], lambda d: q[[i, d]] * turned[[d, j]], "contraction")

    raw = body.hold(compute((1, 1, 1, rows, keys), score), "queries times keys")
    softmax = rule.stages(raw, lambda _b, _h, _g, i: (b, h, g, start + i), body.hold).softmax

    def value(i: Index, d: Index) -> Expr:
        row = (Index(), Index(), Index(), i)
        powers = softmax.powers
        summed = fold("sum", [keys], lambda j: powers[[*row, j]] * values[[j, d]], "contraction")
        return softmax.shared(summed, row)

    found = body.hold(compute((rows, width), value), "the weighted values")
    i, d = map(along, found.axes)
    where = (b, start + i, h, g, d) if packed else (b, h, g, start + i, d)
    body.steps.append(Loops(result, where, found.axes, found.value, role="among all queries"))
    return body.repeat()
