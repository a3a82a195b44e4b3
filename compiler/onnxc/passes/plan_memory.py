"""plan_memory: lifetimes, buffers that share memory in place, and offsets in one workspace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from onnxc.diagnostics import Kind
from onnxc.dtypes import INT64_MAX, UINT8
from onnxc.errors import ModelError, Problem
from onnxc.expression import Buffer
from onnxc.kernel import ALIGNMENT, Branch, Program, Repeat, Step
from onnxc.passes.blocks import Block
from onnxc.passes.liveness import Span, Use, Uses, bytes_live, lifetimes, taken_over
from onnxc.passes.offsets import place
from onnxc.passes.order_steps import order_steps
from onnxc.passes.update_states import update_states

ALIGNMENTS: Final = (ALIGNMENT, 16, 1)
"""Bytes; offsets are multiples of one of these and of what the element type needs."""
WORTH: Final = 64
"""A coarser alignment may cost one part in so many of the workspace."""


@dataclass(frozen=True)
class Plan:
    """Offsets from the start of the workspace, its size, and a bound of the size, all in bytes."""

    offsets: dict[Buffer, int]
    size: int
    least: int


def plan_memory(program: Program) -> Program:
    """Gives every workspace buffer its offset, those of nested programs too.

    Steps change places where that lowers the peak. The offsets are aligned as coarsely as costs
    next to nothing: to whole cache lines, but in a workspace of a few hundred bytes to elements.
    """
    known = Uses()
    program = order_steps(update_states(program), known)
    plan = _aligned_plan(program, known)
    return replace(program, offsets=plan.offsets, workspace_size=plan.size)


def _aligned_plan(program: Program, known: Uses) -> Plan:
    plans: list[Plan] = []
    for alignment in ALIGNMENTS:
        plans.append(plan := _Planner(known, alignment).plan(program, frozenset()))
        padding = len(plan.offsets) * (alignment - 1)
        if min(plan.size - plan.least, padding) * WORTH <= plan.size:
            break
    finest = min(plan.size for plan in plans)
    return next(plan for plan in plans if plan.size <= finest + finest // WORTH)


@dataclass(frozen=True)
class _Planner:
    known: Uses
    alignment: int

    def plan(
        self, program: Program, foreign: frozenset[Buffer], kept: Sequence[Buffer] = ()
    ) -> Plan:
        """Offsets for the buffers of `program` that are not somebody else's.

        What only one nested program uses is planned there. Each step with nested programs has one
        sub-arena, which lives for the step: of the two programs of a Branch only one runs. What is
        `kept` is read once more after the last step.
        """
        uses = list(self.known.of(program.steps))
        lives = lifetimes([*(use.memory for use in uses), kept])
        spans = {buffer: span for buffer, span in lives.items() if buffer not in foreign}
        arenas: dict[Buffer, dict[Buffer, int]] = {}
        for position, inner, size in self._nested(uses, spans):
            for buffer in inner:
                del spans[buffer]
            arena = Buffer("", (size,), UINT8, "workspace")
            arenas[arena] = inner
            spans[arena] = Span(position, position)
        plan = self._placed(spans, taken_over(uses, spans), arenas)
        for arena, inner in arenas.items():
            base = plan.offsets.pop(arena)
            plan.offsets.update({buffer: base + offset for buffer, offset in inner.items()})
        return plan

    def _nested(
        self, uses: Sequence[Use], spans: Mapping[Buffer, Span]
    ) -> Iterator[tuple[int, dict[Buffer, int], int]]:
        """Of each step with programs inside: its position, offsets in its arena, and their size."""
        users = Counter(buffer for use in uses for buffer in use.memory)
        for position, use in enumerate(uses):
            programs = _programs(use.step)
            inside = [self._memory(program) for program in programs]
            users.update(buffer for buffers in inside for buffer in buffers)
            inner: dict[Buffer, int] = {}
            size = 0
            for program, buffers in zip(programs, inside, strict=True):
                own = _named_by(use.step)
                private = {b for b in buffers if users[b] == 2 and b in spans and b not in own}
                ends = [value for value in _carried(use.step) if value in private]
                plan = self.plan(program, frozenset(buffers - private), ends)
                inner, size = inner | plan.offsets, max(size, plan.size)
            if programs:
                yield position, inner, size

    def _memory(self, program: Program) -> set[Buffer]:
        return {buffer for use in self.known.of(program.steps) for buffer in use.memory}

    def _placed(
        self,
        spans: Mapping[Buffer, Span],
        pairs: Mapping[Buffer, Buffer],
        arenas: Mapping[Buffer, Mapping[Buffer, int]],
    ) -> Plan:
        """Offsets for buffers; what takes over another's memory may also go elsewhere."""
        if sum(-(-buffer.bytes // ALIGNMENT) * ALIGNMENT for buffer in spans) > INT64_MAX:
            fact = "the values between its nodes need more memory than C can address"
            raise ModelError(
                [Problem(Kind.MEMORY_TOO_LARGE, "model", fact, "use smaller dimensions")]
            )
        needed = {arena: max(map(_natural, inner), default=1) for arena, inner in arenas.items()}
        least = max(bytes_live(spans, pairs), default=0)
        best: Plan | None = None
        for chosen in _choices(spans, pairs):
            roots = _roots(spans, chosen)
            parts: dict[Buffer, list[Buffer]] = {}
            for buffer, root in roots.items():
                parts.setdefault(root, []).append(buffer)
            blocks = [
                Block(
                    tuple((spans[buffer], buffer.bytes) for buffer in group),
                    max(self.alignment, *(needed.get(b, _natural(b)) for b in group)),
                )
                for group in parts.values()
            ]
            found = place(blocks)
            if best is None or found.size < best.size:
                bases = dict(zip(parts, found.offsets, strict=True))
                best = Plan({b: bases[root] for b, root in roots.items()}, found.size, least)
            if best.size <= max(least, found.least):
                break
        assert best is not None  # there is always one choice
        return best


def _programs(step: Step) -> tuple[Program, ...]:
    match step:
        case Branch():
            return (step.then, step.otherwise)
        case Repeat():
            return (step.body,)
    return ()


def _named_by(step: Step) -> set[Buffer | None]:
    """The buffers that a control-flow step itself needs before its programs or after the last."""
    match step:
        case Branch():
            return {step.condition}
        case Repeat():
            states = (state for state, _ in step.carried)
            return {step.count, step.condition, step.counter, *states}
    return set()


def _carried(step: Step) -> list[Buffer]:
    """What is copied to the states of a Repeat at the end of its body."""
    return [value for _, value in step.carried] if isinstance(step, Repeat) else []


def _choices(
    spans: Mapping[Buffer, Span], pairs: Mapping[Buffer, Buffer]
) -> Iterator[Mapping[Buffer, Buffer]]:
    """Which results take over an operand: all that can; or, as free places are easier to find,
    only those that do not outgrow it and those without which the peak would be higher; or only the
    latter.
    """
    yield pairs
    live = bytes_live(spans, pairs)
    peak = max(live, default=0)
    spare = {
        result
        for result, operand in pairs.items()
        if live[spans[result].first] + min(result.bytes, operand.bytes) <= peak
    }
    growing = {result for result in spare if result.bytes > pairs[result].bytes}
    for left_out in (growing, spare):
        if left_out:
            yield {result: operand for result, operand in pairs.items() if result not in left_out}


def _roots(buffers: Iterable[Buffer], pairs: Mapping[Buffer, Buffer]) -> dict[Buffer, Buffer]:
    """Of each buffer the first of the chain of buffers that took over from each other."""
    roots: dict[Buffer, Buffer] = {}
    for buffer in buffers:
        operand = pairs.get(buffer, buffer)
        roots[buffer] = roots.get(operand, operand)
    return roots


def _natural(buffer: Buffer) -> int:
    """What C asks of the address of an element: no type needs more than 8 bytes."""
    return min(buffer.dtype.size, 8)
