"""Branch and bound for the offsets of a few blocks."""

from __future__ import annotations

from collections.abc import Sequence

from onnxc.passes.blocks import Block, Problem


class Search:
    """Tries the orders in which blocks can lie, from the lowest up; `best` is what it found.

    In some best placement each block lies at 0 or right upon another; so taking the blocks by their
    offsets, each has the least offset above those before it that live with it.

    work  bounds how many times a block is looked at
    """

    def __init__(self, problem: Problem, best: Sequence[int], work: int) -> None:
        self.problem = problem
        self.blocks = problem.blocks
        self.best = best
        self.size = problem.size(best)
        self.unit = min(block.alignment for block in self.blocks)
        self.crowds = _crowds(self.blocks)
        self.tries = work // (1 + sum(map(len, self.crowds)))
        self._extend({}, [0] * len(self.blocks), (0, -1))

    def _extend(self, placed: dict[int, int], floors: list[int], last: tuple[int, int]) -> None:
        """Places one more block, every way; `floors` are the least offsets of those still free."""
        free = {number for number in range(len(floors)) if number not in placed}
        if not free:
            offsets = [placed[number] for number in range(len(floors))]
            if self.problem.size(offsets) < self.size:
                self.best, self.size = offsets, self.problem.size(offsets)
            return
        # What ends below where another would start lies there in a placement that is as good.
        ceiling = min(floors[number] + self.blocks[number].size for number in free)
        for offset, number in sorted((floors[number], number) for number in free):
            self.tries -= 1
            if offset >= ceiling or self.tries < 0 or self.size <= self.problem.least:
                return
            if (offset, number) < last or not self._may_be_better(free, floors):
                continue
            above = list(floors)
            for other, own, _ in self.problem.together[number]:
                if other in free:
                    above[other] = max(floors[other], self.blocks[other].aligned(offset + own))
            self._extend({**placed, number: offset}, above, (offset, number))

    def _may_be_better(self, free: set[int], floors: list[int]) -> bool:
        """Whether what is free fits below the best size, at each step for itself."""
        for crowd in self.crowds:
            waiting = [(floors[number], size) for number, size in crowd if number in free]
            if waiting:
                unit = self.unit
                height = sum(-(-size // unit) * unit for _, size in waiting)
                waste = max(-size % unit for _, size in waiting)
                if min(waiting)[0] + height - waste >= self.size:
                    return False
        return True


def _crowds(blocks: Sequence[Block]) -> list[list[tuple[int, int]]]:
    """For each step where a part begins, the blocks that live then and their bytes."""
    steps = sorted({span.first for block in blocks for span, _ in block.parts})
    sizes = ([(number, block.at(step)) for number, block in enumerate(blocks)] for step in steps)
    return [[(number, size) for number, size in crowd if size] for crowd in sizes]
