"""Offsets for blocks of memory that live at different times: several greedy orders, then a search.

The search stops where no placement can be better, or after so many tries as the blocks alone
decide, so that the same program always gets the same plan.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from onnxc.passes.blocks import Block, Problem
from onnxc.passes.offset_search import Search

WORK: Final = 500_000
"""Pairs of blocks looked at in all rounds of squeezing, and in a search: half a second."""
FEWEST: Final = 2
ROUNDS: Final = 200
"""How often all blocks are placed, at least and at most, as WORK allows."""
FEW: Final = 40
"""Blocks; so many or fewer are placed in every order that can matter, while WORK lasts."""
FURTHEST: Final = 2**63


@dataclass(frozen=True)
class Placement:
    """An offset for each block, what they need in all, and what they need in any placement."""

    offsets: tuple[int, ...]
    size: int
    least: int


def place(blocks: Sequence[Block]) -> Placement:
    """Offsets at which no two blocks overlap while both live, of the least size that was found.

    A block without bytes lies at 0.
    """
    filled = [block for block in blocks if block.size]
    least = least_size(filled)
    offsets = iter(_best(filled, least))
    everywhere = tuple(next(offsets) if block.size else 0 for block in blocks)
    ends = (o + block.size for o, block in zip(everywhere, blocks, strict=True))
    return Placement(everywhere, max(ends, default=0), least)


def _best(blocks: Sequence[Block], least: int) -> Sequence[int]:
    best = _in_order_of_time(blocks)
    problem = None if _size(blocks, best) <= least else Problem.of(blocks, least)
    if problem is None:
        return best
    size = problem.size(best)
    for offsets in _tried(problem):
        if (found := problem.size(offsets)) < size:
            best, size = offsets, found
        if size <= least:
            return best
    return Search(problem, best, WORK).best if len(blocks) <= FEW else best


def _size(blocks: Sequence[Block], offsets: Sequence[int]) -> int:
    return max((o + b.size for o, b in zip(offsets, blocks, strict=True)), default=0)


def least_size(blocks: Sequence[Block]) -> int:
    """What the fullest step needs: all but the last of its blocks end at a multiple."""
    unit = min((block.alignment for block in blocks), default=1)
    growth: dict[int, int] = {}
    waste = 0
    for block in blocks:
        before = 0
        for step, size in block.outline():
            waste = max(waste, -size % unit)
            whole = -(-size // unit) * unit
            growth[step] = growth.get(step, 0) + whole - before
            before = whole
    return max(accumulate(growth[step] for step in sorted(growth)), default=waste) - waste


def _in_order_of_time(blocks: Sequence[Block]) -> list[int]:
    """Each block, by its first step, in the smallest gap that fits it."""
    offsets = [0] * len(blocks)
    gaps = [(0, FURTHEST)]
    living: list[tuple[int, int, int]] = []
    for number in sorted(range(len(blocks)), key=lambda n: (blocks[n].first, -blocks[n].size)):
        block = blocks[number]
        while living and living[0][0] < block.first:
            _, start, end = heapq.heappop(living)
            _release(gaps, start, end)
        fitting = (g for g in gaps if block.aligned(g[0]) + block.size <= g[1])
        gap = min(fitting, key=lambda g: g[1] - g[0])
        offsets[number] = block.aligned(gap[0])
        end = offsets[number] + block.size
        where = gaps.index(gap)
        gaps[where : where + 1] = [(end, gap[1])] if end < gap[1] else []
        heapq.heappush(living, (block.last, gap[0], end))
    return offsets


def _release(gaps: list[tuple[int, int]], start: int, end: int) -> None:
    """Makes room a gap again, one with those beside it."""
    beside = [gap for gap in gaps if gap[1] == start or gap[0] == end]
    for gap in beside:
        gaps.remove(gap)
    insort(
        gaps, (min(start, *(g[0] for g in beside), start), max(end, *(g[1] for g in beside), end))
    )


def _tried(problem: Problem) -> Iterator[list[int]]:
    """By several orders; then again and again, those earlier that came to lie too high."""
    blocks = problem.blocks
    rounds = max(FEWEST, min(ROUNDS, WORK // (problem.pairs + 4 * len(blocks))))
    orders = _orders(problem)[:rounds]
    for order in orders:
        yield _in_order(problem, order)
    rank = [0.0] * len(blocks)
    for place_in_order, number in enumerate(orders[0]):
        rank[number] = place_in_order
    for _ in range(rounds - len(orders)):
        offsets = _in_order(problem, sorted(range(len(blocks)), key=rank.__getitem__))
        yield offsets
        for number, offset in enumerate(offsets):
            if offset + blocks[number].size > problem.least:
                rank[number] = rank[number] / 2 - 1


def _orders(problem: Problem) -> list[list[int]]:
    """By size, by size and lifetime, by lifetime, by what lives beside."""
    blocks = problem.blocks
    size = [block.size for block in blocks]
    lifetime = [block.last - block.first + 1 for block in blocks]
    beside = [sum(its for _, _, its in others) for others in problem.together]
    keys: list[list[tuple[int, ...]]] = [
        [(-size[n], block.first) for n, block in enumerate(blocks)],
        [(-size[n] * lifetime[n], block.first) for n, block in enumerate(blocks)],
        [(-lifetime[n], -size[n]) for n, _ in enumerate(blocks)],
        [(-beside[n] - size[n], -size[n]) for n, _ in enumerate(blocks)],
        [(-size[n], -lifetime[n]) for n, _ in enumerate(blocks)],
        [(-size[n], -block.last) for n, block in enumerate(blocks)],
    ]
    return [sorted(range(len(blocks)), key=key.__getitem__) for key in keys]


def _in_order(problem: Problem, order: Iterable[int]) -> list[int]:
    """Each block in the lowest gap that those before it leave."""
    offsets = [-1] * len(problem.blocks)
    for number in order:
        taken = [
            (offsets[other] - own, offsets[other] + its)
            for other, own, its in problem.together[number]
            if offsets[other] >= 0
        ]
        taken.sort()
        block, offset = problem.blocks[number], 0
        for low, high in taken:
            if offset <= low:
                break
            if offset < high:
                offset = block.aligned(high)
        offsets[number] = offset
    return offsets
