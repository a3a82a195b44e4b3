"""fuse_bands: kernels that follow each other run by turns on bands of rows.

What they hand to each other is then never stored as a whole, which saves its memory and, where it
is too large for the cache, most of the time that it takes to write and read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from onnxc.kernel import Micro, Program, Routine, Step
from onnxc.passes.liveness import Uses, least_peak
from onnxc.tuned.bands import Bands, Link, Part, cost, fused, gain, in_bands, link_of, part_of

MOST: Final = 16
"""Kernels of a band. The buffers of more hardly fit into the cache, and to try all runs of a long
chain would take the cube of its length.
"""


def fuse_bands(program: Program) -> Program:
    """The program with such runs of kernels, nested programs aside, in one kernel each.

    None that would need more memory at once: a band has buffers beside what it reads and writes.
    """
    target = program.target
    if target is None or target.variants[-1].lanes == 1:
        return program
    runs, known = list(_Fusion(program).runs()), Uses()
    steps = [run.steps for run in runs]
    for number, run in enumerate(runs):
        banded = run.fused()
        if banded != run.steps:
            changed = [*steps[:number], banded, *steps[number + 1 :]]
            if not grows(known, steps, changed):
                steps = changed
    return replace(program, steps=tuple(step for run in steps for step in run))


def grows(known: Uses, before: Sequence[Sequence[Step]], after: Sequence[Sequence[Step]]) -> bool:
    """Whether the steps of the runs need more memory after than before."""
    least, most = (least_peak(list(known.of(chain(*runs)))) for runs in (before, after))
    return least < most


@dataclass
class _Chain:
    """Kernels of which each alone reads what the one before writes, and the links between them.

    steps   the kernels and the borders that stand before and between them
    """

    steps: list[Step] = field(default_factory=list)
    kernels: list[Micro] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)

    def bands(self, first: int, last: int) -> tuple[float, Bands | None]:
        """The nanoseconds that bands of some of the kernels, both ends included, save."""
        links = self.links[first:last]
        around = self.kernels[first].inputs[0].bytes, self.kernels[last].twin.out.bytes
        most = gain(links, around)
        found = in_bands(self.parts[first : last + 1], links) if most > 0 else None
        return (most - cost(found), found) if found else (0, None)

    def divided(self) -> list[tuple[int, int, Bands]]:
        """The bands that save most in all: each with the numbers of its first and last kernel."""
        best: list[tuple[float, list[tuple[int, int, Bands]]]] = [(0, [])]
        for last in range(len(self.kernels)):
            choices = [best[-1]]
            for first in range(max(0, last + 1 - MOST), last):
                saved, bands = self.bands(first, last)
                if bands is not None:
                    before, chosen = best[first]
                    choices.append((before + saved, [*chosen, (first, last, bands)]))
            best.append(max(choices, key=lambda choice: choice[0]))
        return best[-1][1]

    def fused(self) -> list[Step]:
        """The steps, with those that run in bands in the place of the last of them."""
        steps = list(self.steps)
        for first, last, bands in self.divided():
            inner = {kernel.twin.out for kernel in self.kernels[first:last]}
            own = {*self.kernels[first:last]}
            moved = [s for s in steps if s in own or (_is_border(s) and s.writes()[0] in inner)]
            before = [twin for s in moved for twin in (s.steps if isinstance(s, Micro) else (s,))]
            place = steps.index(self.kernels[last])
            steps[place] = fused(bands, tuple(before))
            steps = [step for step in steps if step not in moved]
        return steps


class _Fusion:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.readers = Counter(b for step in program.steps for b in step.reads())
        self.writers = Counter(b for step in program.steps for b in step.writes())
        self.borders = {b for step in program.steps if _is_border(step) for b in step.writes()}

    def runs(self) -> Iterator[_Chain]:
        """The steps in order; those that are of no use to bands in a chain without kernels."""
        found, borders = _Chain(), list[Step]()
        for step in self.program.steps:
            part = part_of(step) if isinstance(step, Micro) else None
            if _is_border(step):
                borders.append(step)
                continue
            if isinstance(step, Micro) and part is not None:
                link = self.link(found.parts[-1], part) if found.parts else None
                if link is None:
                    yield found
                    found = _Chain()
                else:
                    found.links.append(link)
                found.steps += [*borders, step]
                found.kernels.append(step)
                found.parts.append(part)
            else:
                yield from (found, _Chain([*borders, step]))
                found = _Chain()
            borders = []
        yield from (found, _Chain(borders))

    def link(self, first: Part, second: Part) -> Link | None:
        """Between two kernels of which the second alone reads what the first writes, by rows."""
        out, reader = first.kernel.twin.out, second.kernel
        bordered = out in self.borders
        added = {load.buffer for load in reader.addends}
        alone = self.readers[out] == 1 and self.writers[out] == 1 + bordered
        if out.kind != "workspace" or not alone or out is not reader.inputs[0] or out in added:
            return None
        return link_of(first, second, zeros=bordered)


def _is_border(step: Step) -> bool:
    return isinstance(step, Routine) and step.name == "border"
