"""plan_memory: lifetimes, buffers that share memory in place, and offsets in one workspace."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from onnxc.dtypes import INT64_MAX, UINT8
from onnxc.errors import ModelError, Problem
from onnxc.expression import Buffer, Load
from onnxc.kernel import ALIGNMENT, Branch, Loops, Program, Repeat, Step
from onnxc.traversal import walk


def plan_memory(program: Program) -> Program:
    """Gives every workspace buffer its offset, those of nested programs too."""
    offsets, size = _plan(program, frozenset())
    return replace(program, offsets=offsets, workspace_size=size)


@dataclass(frozen=True)
class Span:
    """The first and the last step, both included, between which a buffer holds something."""

    first: int
    last: int


def lifetimes(program: Program) -> dict[Buffer, Span]:
    """Of every workspace buffer; one that a nested program uses lives through its whole step."""
    spans: dict[Buffer, Span] = {}
    for position, step in enumerate(program.steps):
        for buffer in _used(step):
            spans[buffer] = Span(spans.get(buffer, Span(position, position)).first, position)
    return spans


def nested_programs(step: Step) -> tuple[Program, ...]:
    match step:
        case Branch():
            return (step.then, step.otherwise)
        case Repeat():
            return (step.body,)
    return ()


def _used(part: Step | Program) -> list[Buffer]:
    """The workspace buffers that a step or program reads or writes."""
    buffers = dict.fromkeys((*part.reads(), *part.writes()))
    return [buffer for buffer in buffers if buffer.kind == "workspace"]


def _plan(program: Program, foreign: frozenset[Buffer]) -> tuple[dict[Buffer, int], int]:
    """Offsets and size for the buffers of `program` that are not somebody else's.

    What only one nested program uses is planned there. Each step with nested programs has one
    sub-arena, which lives for the step: of the two programs of a Branch only one runs.
    """
    spans = {b: span for b, span in lifetimes(program).items() if b not in foreign}
    users = Counter(buffer for step in program.steps for buffer in _used(step))
    arenas: list[tuple[Buffer, dict[Buffer, int]]] = []
    for position, step in enumerate(program.steps):
        nested = nested_programs(step)
        if not nested:
            continue
        users.update(buffer for part in nested for buffer in _used(part))
        inner: dict[Buffer, int] = {}
        size = 0
        for part in nested:
            used, own = set(_used(part)), _named_by(step)
            private = {b for b in used if users[b] == 2 and b in spans and b not in own}
            placed, needed = _plan(part, frozenset(used - private))
            inner, size = inner | placed, max(size, needed)
            spans = {b: span for b, span in spans.items() if b not in private}
        arena = Buffer("", (size,), UINT8, "workspace")
        arenas.append((arena, inner))
        spans[arena] = Span(position, position)
    offsets, size = _placed(spans, _in_place(program, spans))
    for arena, inner in arenas:
        base = offsets.pop(arena)
        offsets |= {buffer: base + offset for buffer, offset in inner.items()}
    return offsets, size


def _named_by(step: Step) -> set[Buffer | None]:
    """The buffers that a control-flow step itself reads or writes around its programs."""
    match step:
        case Branch():
            return {step.condition}
        case Repeat():
            pairs = {buffer for pair in step.carried for buffer in pair}
            return {step.count, step.condition, step.counter, *pairs}
    return set()


def _in_place(program: Program, spans: dict[Buffer, Span]) -> dict[Buffer, Buffer]:
    """Maps a result to the dying operand whose memory it takes over."""
    shared: dict[Buffer, Buffer] = {}
    for position, step in enumerate(program.steps):
        if not isinstance(step, Loops) or spans.get(step.out) is None:
            continue
        if spans[step.out].first != position:
            continue
        for buffer in step.reads():
            if buffer in spans and spans[buffer].last == position and _overwritable(step, buffer):
                shared[step.out] = shared.get(buffer, buffer)
                break
    return shared


def _overwritable(step: Loops, buffer: Buffer) -> bool:
    """Whether the kernel reads each element of `buffer` only just before it writes the same.

    A plain copy is memcpy, which needs two places.
    """
    if step.partial or isinstance(step.value, Load):
        return False
    if buffer is step.out or buffer.bytes != step.out.bytes:
        return False
    if buffer.dtype.c_type != step.out.dtype.c_type or not _one_to_one(step):
        return False
    loads = [n for n in walk(*step.roots()) if isinstance(n, Load) and n.buffer is buffer]
    return all(node.flat == step.where[0] for node in loads)


def _one_to_one(step: Loops) -> bool:
    """Whether no two iterations store to one element: each axis walks within the next stride."""
    looping = [axis for axis in step.axes if axis.extent > 1]
    strides = [(abs(step.where[0].stride(axis)), axis.extent) for axis in looping]
    room = step.out.elements
    for stride, extent in sorted(strides, reverse=True):
        if not 0 < stride * extent <= room:
            return False
        room = stride
    return True


def _placed(
    spans: dict[Buffer, Span], shared: dict[Buffer, Buffer]
) -> tuple[dict[Buffer, int], int]:
    """Offsets: the largest first, each in the lowest gap among those that live at the same time."""
    groups: dict[Buffer, Span] = {}
    for buffer, span in spans.items():
        root = shared.get(buffer, buffer)
        old = groups.get(root, span)
        groups[root] = Span(min(old.first, span.first), max(old.last, span.last))
    if sum(-(-buffer.bytes // ALIGNMENT) * ALIGNMENT for buffer in groups) > INT64_MAX:
        fact = "the values between its nodes need more memory than C can address"
        raise ModelError([Problem("model", fact, "use smaller dimensions")])
    order = sorted(groups, key=lambda b: (-b.bytes, groups[b].first))
    first, last, start, end = np.zeros((4, len(order)), np.int64)
    roots: dict[Buffer, int] = {}
    for n, buffer in enumerate(order):
        span, size = groups[buffer], -(-buffer.bytes // ALIGNMENT) * ALIGNMENT
        together = np.nonzero((first[:n] <= span.last) & (last[:n] >= span.first))[0]
        offset = 0
        for other in together[np.argsort(start[together], kind="stable")]:
            if offset + size <= start[other]:
                break
            offset = max(offset, int(end[other]))
        first[n], last[n], start[n], end[n] = span.first, span.last, offset, offset + size
        roots[buffer] = offset
    offsets = {buffer: roots[shared.get(buffer, buffer)] for buffer in spans}
    return offsets, max((offset + b.bytes for b, offset in offsets.items()), default=0)
