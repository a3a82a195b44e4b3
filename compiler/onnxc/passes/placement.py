"""A buffer in another layout: an order of its dimensions, with padding around it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from onnxc.expression import Buffer, Expr, Index, load
from onnxc.kernel import Placed, Routine, Step

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Placement:
    """A buffer in another layout.

    order   the dimensions of `old` from the outermost to the innermost
    begin   how much padding there is before each dimension of `old`
    fill    what it holds
    rows    whether who fills the buffer stores whole rows, with what is before and after them
    """

    old: Buffer
    new: Buffer
    order: tuple[int, ...]
    begin: tuple[int, ...]
    fill: int
    rows: bool = False

    @property
    def described(self) -> Placed:
        return Placed(self.old.shape, self.order, self.begin)

    def indices(self, indices: tuple[Index, ...]) -> tuple[Index, ...]:
        return tuple(indices[d] + self.begin[d] for d in self.order)

    def load(self, indices: tuple[Index, ...]) -> Expr:
        return load(self.new, self.indices(indices))


def border(placement: Placement) -> list[Step]:
    """What fills the padding around a buffer."""
    old, new = placement.old, placement.new
    if new.elements == old.elements:
        return []
    extents = [old.shape[d] for d in placement.order]
    alike = int(new.shape[0] == extents[0])  # dimensions without padding whose parts are the same
    whole = placement.order[-1] if placement.rows else None
    outside = np.ones(new.shape[alike:], np.bool_)
    outside[
        tuple(
            slice(placement.begin[d], placement.begin[d] + old.shape[d])
            if d != whole
            else slice(None)
            for d in placement.order[alike:]
        )
    ] = False
    runs = tuple(_runs(outside.reshape(-1)))
    if not runs:
        return []
    parameters = (
        ("batches", math.prod(new.shape[:alike])),
        ("size", outside.size),
        ("runs", runs),
        ("value", placement.fill),
    )
    role = f"{placement.fill or 'zeros'} around"
    return [Routine("border", (), (new,), parameters, role=role)]


def _runs(marked: NDArray[np.bool_]) -> Iterator[tuple[int, int, int, int]]:
    """What is marked as (start, length, count, stride): `count` runs, one every `stride`."""
    edges = np.flatnonzero(np.diff(marked.astype(np.int8), prepend=0, append=0))
    starts, lengths = edges[::2].tolist(), (edges[1::2] - edges[::2]).tolist()
    n = 0
    while n < len(starts):
        stride = starts[n + 1] - starts[n] if n + 1 < len(starts) else 0
        count = 1
        while (
            n + count < len(starts)
            and lengths[n + count] == lengths[n]
            and starts[n + count] == starts[n] + count * stride
        ):
            count += 1
        yield starts[n], lengths[n], count, stride
        n += count
