"""The order of steps that do not depend on each other, changed where that lowers the peak."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from onnxc.expression import Buffer, Checked
from onnxc.kernel import Loops, Micro, Program, Rows, Step
from onnxc.passes.liveness import Use, Uses, least_peak, lifetimes
from onnxc.traversal import walk

WORTH: Final = 32
"""Steps stay in the order of the model unless that saves one part in so many of the peak."""


def order_steps(program: Program, known: Uses) -> Program:
    """The program with its steps in another order, if the values of the steps then need less room.

    What makes more than it frees runs right before what needs it, and what frees more than it makes
    right after what it needs. Steps of nested programs stay as they are.
    """
    uses = list(known.of(program.steps))
    before = least_peak(uses)
    alone = max((sum(buffer.bytes for buffer in use.memory) for use in uses), default=0)
    if before <= alone:
        return program
    orders = _Orders(uses)
    same = list(range(len(uses)))
    late, early = orders.late(same), orders.early(same)
    best, least = same, before - before // WORTH + 1
    for order in (late, early, orders.early(late), orders.late(early)):
        peak = least_peak([uses[number] for number in order])
        if peak < least:
            best, least = order, peak
    if best is same:
        return program
    return replace(program, steps=tuple(uses[number].step for number in best))


class _Orders:
    """Orders of steps, as lists of their numbers, in which each follows those that it needs."""

    def __init__(self, uses: Sequence[Use]) -> None:
        self.uses = uses
        self.needs = _needs(uses)

    def late(self, order: Sequence[int]) -> list[int]:
        """Each step that makes more than it frees goes to the first of those that need it."""
        growth = self._growth(order)
        place = {number: position for position, number in enumerate(order)}
        following: dict[int, int] = {}
        for number in reversed(order):
            if growth[number] > 0:
                place[number] = following.get(number, place[number])
            for other in self.needs[number]:
                following[other] = min(following.get(other, place[number]), place[number])
        return sorted(order, key=place.__getitem__)

    def early(self, order: Sequence[int]) -> list[int]:
        """Each step that frees more than it makes goes to the last of those that it needs."""
        growth = self._growth(order)
        place = {number: position for position, number in enumerate(order)}
        for number in order:
            if growth[number] < 0:
                needed = (place[other] for other in self.needs[number])
                place[number] = max(needed, default=place[number])
        return sorted(order, key=place.__getitem__)

    def _growth(self, order: Sequence[int]) -> dict[int, int]:
        """Bytes that each step is the first to use, less those that it is the last to use."""
        growth = dict.fromkeys(order, 0)
        spans = lifetimes(self.uses[number].memory for number in order)
        for buffer, span in spans.items():
            growth[order[span.first]] += buffer.bytes
            growth[order[span.last]] -= buffer.bytes
        return growth


def _needs(uses: Sequence[Use]) -> list[list[int]]:
    """Which steps must run before each: what it reads is written, what it overwrites is read.

    Those that may report a status stay in order too: the first one is returned.
    """
    readers: dict[Buffer, list[int]] = {}
    writers: dict[Buffer, list[int]] = {}
    reporting: list[int] = []
    found: list[list[int]] = []
    for number, use in enumerate(uses):
        needs = [n for buffer in (*use.reads, *use.writes) for n in writers.get(buffer, ())]
        needs += [n for buffer in use.writes for n in readers.get(buffer, ())]
        if _may_report(use.step):
            needs += reporting
            reporting = [number]
        for buffer in use.reads:
            readers.setdefault(buffer, []).append(number)
        for buffer in use.writes:
            writers.setdefault(buffer, []).append(number)
        found.append(list(dict.fromkeys(needs)))
    return found


def _may_report(step: Step) -> bool:
    match step:
        case Loops():
            return any(isinstance(node, Checked) for node in walk(*step.roots()))
        case Micro():
            return _may_report(step.twin)
        case Rows():
            return any(map(_may_report, step.steps))
    return True
