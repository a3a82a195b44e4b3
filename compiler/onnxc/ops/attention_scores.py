"""What attention makes of the products of queries and keys: caps, masks, softmax."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onnxc.diagnostics import Kind
from onnxc.dtypes import BOOL, BY_CODE, BY_NAME, FLOAT, ElementType
from onnxc.errors import RefusalError
from onnxc.expression import Expr, Index, apply, at, cast, compare, fold, literal, where
from onnxc.tensor import Tensor, broadcast_shape, compute, elementwise, guarded

PRECISIONS = tuple(BY_NAME[name] for name in ("float", "float16", "double", "bfloat16"))

Place = Callable[[Index, Index, Index, Index], tuple[Index, Index, Index, Index]]
"""From a row [batch, kv heads, group, queries] of some scores to that of all scores."""
Hold = Callable[[Tensor, str], Tensor]
"""Stores a tensor, of a role."""


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


@dataclass(frozen=True)
class Softmax:
    """powers / total by rows, and zeros where that is zero.

    dtype   of the weights
    given   the precision that they are rounded to first
    hold    what stores the weights
    """

    powers: Tensor
    total: Tensor
    dtype: ElementType
    given: ElementType
    hold: Hold

    @property
    def weights(self) -> Tensor:
        def element(*indices: Index) -> Expr:
            return self.shared(self.powers[list(indices)], indices[:-1])

        weights = compute(self.powers.shape, element)
        return self.hold(weights.cast(self.given).cast(self.dtype), "the weights")

    def shared(self, value: Expr, row: Sequence[Index]) -> Expr:
        """The value by the total of its row."""
        whole = self.total[list(row)]
        return where(compare("equal", whole, 0), 0, value / whole)

    @property
    def is_plain(self) -> bool:
        """Whether nothing is rounded between the weights and what they are multiplied with."""
        return self.powers.dtype is self.given is self.dtype


@dataclass(frozen=True)
class Stages:
    """Scores as capped, and with the mask added; and their softmax."""

    capped: Tensor
    biased: Tensor
    softmax: Softmax


@dataclass(frozen=True)
class Rule:
    """How scores become weights.

    scores    the shape of all scores
    factor    of the products
    mask      broadcast to the scores, but for the last dimension, which may be shorter
    offset    how many keys come before the first query of a batch row
    windows   how many keys before and behind its place a query attends; below 0: all
    late      whether the total divides what the exponentials and the values give, which must not
              overflow where the weights and the values would not
    """

    scores: tuple[int, ...]
    factor: float
    softcap: float
    mask: Tensor | None
    nonpad: Tensor | None
    offset: Callable[[Index], Expr]
    windows: tuple[int, int]
    precision: int | None
    late: bool

    @property
    def k_root(self) -> float:
        """Of the factor, for the keys."""
        return math.sqrt(abs(self.factor))

    @property
    def q_root(self) -> float:
        return math.copysign(self.k_root, self.factor)

    def stages(self, raw: Tensor, place: Place, hold: Hold) -> Stages:
        """Of the rows of scores that `place` tells."""
        capped = raw
        if self.softcap:
            soft = elementwise(lambda x: apply("tanh", x / self.softcap) * self.softcap, raw)
            capped = hold(soft, "softly capped")
        biased = hold(self._biased(capped, place), "masked")
        share = 2.0 ** -(self.scores[-1] - 1).bit_length() if self.late else 1.0
        return Stages(capped, biased, _softmax(biased, self.precision, share, hold))

    def _biased(self, scores: Tensor, place: Place) -> Tensor:
        """The mask added; -infinity where a query may not attend a key."""
        *_, queries, keys = self.scores
        # A wider window holds every key: a number that cannot overflow stands for it.
        left, right = (min(window, queries + keys) for window in self.windows)

        def element(*indices: Index) -> Expr:
            value = scores[list(indices)]
            (b, h, g, i), j = place(*indices[:4]), indices[4]
            allowed: Expr = literal(BOOL, True)
            if self.mask is not None:
                missing = literal(self.mask.dtype, False if self.mask.dtype is BOOL else -math.inf)
                entry = guarded(self.mask, [b, h, g, i, j], missing)
                if self.mask.dtype is BOOL:
                    allowed = _and(allowed, entry)
                else:
                    value = value + cast(entry, value.dtype)
            query = at(i) + self.offset(b)
            if left >= 0:
                allowed = _and(allowed, query - left <= at(j))
            if right >= 0:
                allowed = _and(allowed, at(j) <= query + right)
            if self.nonpad is not None:
                allowed = _and(allowed, at(j) < self.nonpad[[b]])
            return where(allowed, value, -math.inf)

        return compute(scores.shape, element)


def _and(one: Expr, other: Expr) -> Expr:
    return other if one is literal(BOOL, True) else one & other


def wide_mask(mask: Tensor, scores: tuple[int, ...]) -> Tensor:
    """Broadcast to the scores, but for the last dimension, which may be shorter."""
    batch, kv, group, queries, keys = scores
    if mask.dtype.kind not in ("bool", "float"):
        raise RefusalError(
            Kind.OPERAND_TYPE, f"attn_mask is {mask.dtype.name}", "give a bool or a float mask"
        )
    length = keys if mask.rank == 0 or mask.shape[-1] == 1 else mask.shape[-1]
    shape = (batch, kv * group, queries, length)
    try:
        fits = length <= keys and broadcast_shape(mask.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        fact = f"attn_mask of shape {list(mask.shape)} does not broadcast to {list(shape)}"
        raise RefusalError(
            Kind.SHAPES_DO_NOT_BROADCAST,
            fact,
            f"its last dimension may be shorter than the {keys} keys",
        )
    return mask.expand(shape).reshape((batch, kv, group, queries, length))


def _softmax(scores: Tensor, precision: int | None, share: float, hold: Hold) -> Softmax:
    """Over the last dimension; a row of -infinity gives zeros.

    Of numbers of the given precision, computed in float at least, and rounded to it. `share`, a
    power of two, is the largest exponential.
    """
    dtype = scores.dtype
    given = dtype if precision is None else BY_CODE.get(precision)
    if given not in PRECISIONS:
        names = [wanted.name for wanted in PRECISIONS]
        raise RefusalError(
            Kind.ATTRIBUTE_VALUE, f"softmax_precision is {precision}", f"it is one of {names}"
        )
    scores = scores.cast(given)
    scores = scores.cast(FLOAT) if given.kind == "half" else scores
    *rows, keys = scores.shape

    def greatest(*row: Index) -> Expr:
        found = fold("max", [keys], lambda j: scores[[*row, j]])
        return where(compare("equal", found, -math.inf), 0, found)

    top = hold(compute(tuple(rows), greatest), "the greatest of each row")

    def power(*i: Index) -> Expr:
        found = apply("exp", scores[list(i)] - top[list(i[:-1])])
        return found if share == 1 else found * share

    powers = hold(
        compute(scores.shape, power),
        "exponentials",
    )
    sums = compute(tuple(rows), lambda *row: fold("sum", [keys], lambda j: powers[[*row, j]]))
    return Softmax(powers, hold(sums, "the sum of each row"), dtype, given, hold)
