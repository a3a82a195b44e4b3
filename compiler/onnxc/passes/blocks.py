"""Blocks of memory that are to be placed, and which of them live together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from onnxc.passes.liveness import Span

MOST_PAIRS: Final = 300_000
"""Of blocks that live together: beyond, looking at all pairs takes too much time and memory."""


@dataclass(frozen=True)
class Block:
    """Memory that is kept from one step to another, in parts: all start where the block starts.

    parts      (span, bytes); a part that begins where another ends takes over from it
    alignment  of the offset, in bytes
    """

    parts: tuple[tuple[Span, int], ...]
    alignment: int
    first: int = field(init=False)
    last: int = field(init=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "first", min(span.first for span, _ in self.parts))
        object.__setattr__(self, "last", max(span.last for span, _ in self.parts))
        object.__setattr__(self, "size", max(size for _, size in self.parts))

    def aligned(self, offset: int) -> int:
        return -(-offset // self.alignment) * self.alignment

    def outline(self) -> Iterator[tuple[int, int]]:
        """(step, bytes from then on), in order, the last of 0 bytes."""
        for step in sorted({n for span, _ in self.parts for n in (span.first, span.last + 1)}):
            yield step, self.at(step)

    def at(self, step: int) -> int:
        """Bytes in use at a step."""
        return max((n for span, n in self.parts if span.first <= step <= span.last), default=0)


@dataclass(frozen=True)
class Problem:
    """Blocks of one byte or more, and for each those that live at the same time.

    together  (another block, bytes of its own that must not overlap with the other, bytes of the
              other that must not overlap with it)
    least     a bound of the size
    """

    blocks: Sequence[Block]
    together: Sequence[Sequence[tuple[int, int, int]]]
    least: int

    @classmethod
    def of(cls, blocks: Sequence[Block], least: int) -> Problem | None:
        """None where too many live together."""
        together: list[list[tuple[int, int, int]]] = [[] for _ in blocks]
        pairs = 0
        living: list[int] = []
        for number in sorted(range(len(blocks)), key=lambda n: blocks[n].first):
            living = [other for other in living if blocks[other].last >= blocks[number].first]
            pairs += len(living)
            if pairs > MOST_PAIRS:
                return None
            for other in living:
                own, its = _meeting(blocks[number], blocks[other])
                if own:
                    together[number].append((other, own, its))
                    together[other].append((number, its, own))
            living.append(number)
        return cls(blocks, together, least)

    @property
    def pairs(self) -> int:
        return sum(map(len, self.together))

    def size(self, offsets: Sequence[int]) -> int:
        ends = (offset + block.size for offset, block in zip(offsets, self.blocks, strict=True))
        return max(ends, default=0)


def _meeting(one: Block, other: Block) -> tuple[int, int]:
    """The most bytes of both that live while the other has some; (0, 0) where they never meet."""
    if len(one.parts) == len(other.parts) == 1:
        return one.size, other.size
    own = its = 0
    for span, size in one.parts:
        for its_span, its_size in other.parts:
            if span.first <= its_span.last and its_span.first <= span.last and size and its_size:
                own, its = max(own, size), max(its, its_size)
    return own, its
