"""When the buffers of a program hold something, which take over which, and the bytes that takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from onnxc.expression import Buffer
from onnxc.kernel import Rows, Step
from onnxc.passes.in_place import overwritable


@dataclass(frozen=True)
class Span:
    """The first and the last step, both included, between which a buffer holds something."""

    first: int
    last: int


@dataclass(frozen=True, eq=False)
class Use:
    """What one step does with buffers.

    results       what it writes but what it only works in
    memory        the workspace buffers among those that it reads and writes, each once
    overwritable  those of them that it may overwrite with its result
    """

    step: Step
    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]
    results: tuple[Buffer, ...]
    memory: tuple[Buffer, ...]
    overwritable: tuple[Buffer, ...]


class Uses:
    """Of steps; each is looked at once, however many orders and places of steps are tried."""

    def __init__(self) -> None:
        self.known: dict[Step, Use] = {}

    def of(self, steps: Iterable[Step]) -> Iterator[Use]:
        for step in steps:
            if step not in self.known:
                self.known[step] = _use(step)
            yield self.known[step]


def _use(step: Step) -> Use:
    reads, writes = step.reads(), step.writes()
    both = dict.fromkeys((*reads, *writes))
    memory = tuple(buffer for buffer in both if buffer.kind == "workspace")
    results = step.outputs if isinstance(step, Rows) else writes
    return Use(step, reads, writes, results, memory, tuple(overwritable(step)))


def lifetimes(memory: Iterable[Iterable[Buffer]]) -> dict[Buffer, Span]:
    """By what each step uses; a buffer of a nested program lives through its whole step."""
    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    for position, buffers in enumerate(memory):
        for buffer in buffers:
            first.setdefault(buffer, position)
            last[buffer] = position
    return {buffer: Span(begin, last[buffer]) for buffer, begin in first.items()}


def taken_over(uses: Sequence[Use], spans: Mapping[Buffer, Span]) -> dict[Buffer, Buffer]:
    """Maps a result to the operand, read for the last time, whose memory it takes over.

    Of several the one that shares most with the result, then the smallest, which leaves least idle.
    """
    pairs: dict[Buffer, Buffer] = {}
    for position, use in enumerate(uses):
        dying = [b for b in use.overwritable if b in spans and spans[b].last == position]
        fresh = [b for b in use.results if b in spans and spans[b].first == position]
        if dying and len(fresh) == 1:
            most = fresh[0].bytes
            pairs[fresh[0]] = min(dying, key=lambda b: (-min(b.bytes, most), b.bytes))
    return pairs


def bytes_live(spans: Mapping[Buffer, Span], pairs: Mapping[Buffer, Buffer]) -> list[int]:
    """At each step; what a result shares with the operand that it takes over counts once."""
    steps = 1 + max((span.last for span in spans.values()), default=-1)
    change = [0] * (steps + 1)
    for buffer, span in spans.items():
        change[span.first] += buffer.bytes
        change[span.last + 1] -= buffer.bytes
    for buffer, operand in pairs.items():
        change[spans[buffer].first] -= min(buffer.bytes, operand.bytes)
        change[spans[buffer].first + 1] += min(buffer.bytes, operand.bytes)
    return list(accumulate(change))[:steps]


def least_peak(uses: Sequence[Use]) -> int:
    """Bytes that no plan of these steps in this order can do without: the most that live at once.

    A result and the operand whose memory it takes over count once. What a nested program uses
    counts as living through its whole step.
    """
    spans = lifetimes(use.memory for use in uses)
    return max(bytes_live(spans, taken_over(uses, spans)), default=0)
