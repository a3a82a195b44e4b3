"""A checker of memory plans: every compilation ends with it, and `onnxc info` shows its bound.

It shares no code with the passes whose work it proves: liveness and overlap are computed anew, by
walking every step backwards with the set of what is still needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from onnxc.check import InvalidProgramError, described, filled, stored
from onnxc.check_rows import same_rows
from onnxc.dtypes import ElementType
from onnxc.expression import Axis, Buffer, Index, Load
from onnxc.kernel import Branch, Loops, Micro, Program, Repeat, Rows, Step
from onnxc.traversal import walk

_Live = dict[Buffer, int]
"""Maps each buffer that a later step reads to how many of the stores that fill it are to come.

Walking backwards, it is free again before the first of them.
"""


@dataclass(frozen=True)
class Peak:
    """Bytes of the plan, and the least that any plan of the same steps needs.

    The bound is the most that lives at one step, a result and the operand that it may overwrite
    counted once.
    """

    planned: int
    bound: int


def check_plan(program: Program) -> Peak:
    """Raises InvalidProgramError unless no write destroys what a later step still reads.

    Every buffer of the workspace must have a place, within it and aligned for its type.
    """
    plan = _Plan(program)
    faults = [*plan.placement_faults(), *plan.lost_data()]
    if faults:
        raise InvalidProgramError("\n".join(faults))
    return Peak(program.workspace_size, plan.bound)


def _alignment(dtype: ElementType) -> int:
    """Bytes that C asks for; a string is a pointer and a size, complex numbers are two floats."""
    parts = 2 if dtype.kind in ("string", "complex") else 1
    return dtype.size // parts


@dataclass(frozen=True)
class Account:
    """Where the bytes of the workspace go, in the steps of a program and those nested in it.

    live     the most that is needed at once while a step runs: what it reads, what it fills, and
             what later steps still read. A result and the operand that it may overwrite count
             once, by the smaller of the two
    at       the step whose number that is the greatest of, the first of several
    buffers  what is needed then, the largest first
    spared   how many of their bytes are counted once
    """

    live: Mapping[Step, int]
    at: Step | None
    buffers: tuple[Buffer, ...]
    spared: int


def account(program: Program) -> Account:
    """Of a planned program, by the walk that proves its plan."""
    plan = _Plan(program)
    plan.lost_data()
    largest = sorted(plan.needed, key=lambda b: -b.bytes)
    return Account(plan.live, plan.at, tuple(largest), plan.spared)


class _Plan:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.offsets: Mapping[Buffer, int] = program.offsets
        self.first_store: dict[Buffer, int] = {}
        self.numbers: dict[Step, int] = {}
        self.bound = 0
        self.live: dict[Step, int] = {}
        self.at: Step | None = None
        self.needed: set[Buffer] = set()
        self.spared = 0
        self._number(program, None)

    def _number(self, program: Program, cycle: int | None) -> None:
        """Steps in order of the text; what a cycle stores may be there from its start on."""
        for step in program.steps:
            number = self.numbers[step] = len(self.numbers)
            start = number if cycle is None else cycle
            match step:
                case Branch():
                    self._number(step.then, cycle)
                    self._number(step.otherwise, cycle)
                case Repeat():
                    for buffer in step.writes():
                        self.first_store.setdefault(buffer, start)
                    self._number(step.body, start)
                case _:
                    for buffer in step.writes():
                        self.first_store.setdefault(buffer, start)

    def placement_faults(self) -> Iterator[str]:
        used = {*self.program.reads(), *self.program.writes()}
        needed = {buffer for buffer in used if buffer.kind == "workspace"}
        for buffer in needed - set(self.offsets):
            yield f"{described(buffer)} has no place"
        for buffer, offset in self.offsets.items():
            if buffer.kind != "workspace":
                yield f"{described(buffer)} is placed in the workspace"
            if offset < 0 or offset % _alignment(buffer.dtype):
                yield f"{described(buffer)} is at {offset}"
        size = max((offset + b.bytes for b, offset in self.offsets.items()), default=0)
        if size != self.program.workspace_size:
            yield f"the workspace has {self.program.workspace_size} bytes, its buffers {size}"

    def lost_data(self) -> list[str]:
        faults: list[str] = []
        self._before(self.program, {}, faults.append)
        return list(dict.fromkeys(faults))

    def _before(self, program: Program, live: _Live, report: Callable[[str], None]) -> _Live:
        for step in reversed(program.steps):
            match step:
                case Loops():
                    self._store(step, step.out, step.reads(), filled(step), live, report)
                case Branch():
                    then = self._before(step.then, dict(live), report)
                    live = _either(then, self._before(step.otherwise, dict(live), report))
                    _read(live, [step.condition])
                case Repeat():
                    live = self._before_repeat(step, live, report)
                case _:
                    self._whole(step, live, report)
        return live

    def _before_repeat(self, step: Repeat, after: _Live, report: Callable[[str], None]) -> _Live:
        """`head` is what the test before an iteration needs: found when it no longer grows."""
        limits = [b for b in (step.count, step.condition) if b is not None]
        head = dict(after)
        _read(head, limits)
        while True:
            live = dict(head)
            for state, value in reversed(step.carried):
                self._store(step, state, [value], stored(state), live, report)
            live = self._before(step.body, live, report)
            if step.counter is not None:
                self._store(step, step.counter, [], 1, live, report)
            grown = _either(head, live)
            if grown == head:
                return head
            head = grown

    def _whole(self, step: Step, live: _Live, report: Callable[[str], None]) -> None:
        """A step that reads to the end what it reads, and writes all along what it writes."""
        reads = [buffer for buffer in step.reads() if buffer not in step.writes()]
        for out in step.writes():
            others = [buffer for buffer in step.writes() if buffer is not out]
            beside = {other: stored(other) for other in others if other.kind == "workspace"}
            self._store(step, out, reads, _stores(step, out), live | beside, report)
        for out in step.writes():
            live[out] = live.get(out, 0) - _stores(step, out)
            if live[out] <= 0:
                del live[out]
        _read(live, step.reads())

    def _store(
        self,
        step: Step,
        out: Buffer,
        reads: Iterable[Buffer],
        stores: int,
        live: _Live,
        report: Callable[[str], None],
    ) -> None:
        """Checks one store against what is live after it; makes `live` what is live before."""
        number = self.numbers[step]
        reads = [b for b in reads if b.kind == "workspace"]
        kept = [b for b in live if b is not out and self.first_store.get(b, number + 1) <= number]
        dying = [b for b in reads if b is not out and b not in live]
        result = step.outputs[0] if isinstance(step, Rows) else out
        open_ = [b for b in reads if _may_overwrite(step, b)]
        lost = [b for b in kept if self._overlap(out, b)]
        taken = [b for b in open_ if out is result and self._in_place(out, b)]
        lost += [b for b in dying if self._overlap(out, b) and b not in taken]
        partial = isinstance(step, Loops) and step.partial
        lost += [out] if out in reads and out not in open_ and not partial else []
        for buffer in lost:
            report(f"step {number}: writing {described(out)} destroys {described(buffer)}")
        spared = max((min(b.bytes, result.bytes) for b in dying if b in open_), default=0)
        needed = {*kept, *dying, *([out] if out.kind == "workspace" else [])}
        size = sum(b.bytes for b in needed) - spared
        self.live[step] = max(self.live.get(step, 0), size)
        if size and size >= self.bound:
            self.bound, self.at, self.needed, self.spared = size, step, needed, spared
        if out in live:
            live[out] -= stores
            if live[out] <= 0:
                del live[out]
        _read(live, reads)

    def _in_place(self, out: Buffer, operand: Buffer) -> bool:
        return self._overlap(out, operand) and self.offsets[operand] == self.offsets[out]

    def _overlap(self, one: Buffer, other: Buffer) -> bool:
        start, begin = self.offsets.get(one), self.offsets.get(other)
        if start is None or begin is None:
            return False
        return start < begin + other.bytes and begin < start + one.bytes


def _stores(step: Step, out: Buffer) -> int:
    """How many elements of one of its results a step without a body stores."""
    if not isinstance(step, Micro | Rows) or out in step.scratch:
        return stored(out)
    return sum(filled(part) for part in step.steps if isinstance(part, Loops) and part.out is out)


def _read(live: _Live, buffers: Iterable[Buffer]) -> None:
    for buffer in buffers:
        if buffer.kind == "workspace":
            live[buffer] = stored(buffer)


def _either(one: _Live, other: _Live) -> _Live:
    return {b: max(one.get(b, 0), other.get(b, 0)) for b in (one | other)}


def _may_overwrite(step: Step, buffer: Buffer) -> bool:
    """Whether a step may store its one result where it reads `buffer`."""
    if isinstance(step, Loops):
        return _overwritable(step, buffer)
    if isinstance(step, Micro) and step.in_place:
        return _overwritable(step.twin, buffer)
    if not isinstance(step, Rows) or not same_rows(step, buffer):
        return False
    first = next(kernel for kernel in step.steps if kernel.out is step.outputs[0])
    after = step.steps[step.steps.index(first) + 1 :]
    unread = buffer not in first.reads() and not first.partial
    return all(buffer not in k.reads() for k in after) and (unread or _overwritable(first, buffer))


def _overwritable(loops: Loops, buffer: Buffer) -> bool:
    """Whether nothing of `buffer` is read once a store of `out` at the same place has destroyed it.

    Either each point reads only the element that it, and no other, then stores; or the stores
    ascend from point to point, and each point reads at or above the place of its own.
    """
    alike = buffer.dtype.c_type == loops.out.dtype.c_type and not loops.partial
    if not alike or any(b.bytes != b.elements * b.dtype.size for b in (buffer, loops.out)):
        return False
    target = _flat(loops.out, loops.where)
    loads = [n for n in walk(*loops.roots()) if isinstance(n, Load) and n.buffer is buffer]
    reads = [_flat(buffer, load.indices) for load in loads]
    if all(read == target for read in reads):
        # A copy of one place to the same is memcpy, which needs two places.
        steps = [(abs(stride), extent) for stride, extent in _steps(target, loops.axes)]
        return not isinstance(loops.value, Load) and _separate(sorted(steps))
    ascending = _separate([*reversed(_steps(target, loops.axes))])
    return ascending and all(_least_distance(read, target) >= 0 for read in reads)


def _flat(buffer: Buffer, indices: tuple[Index, ...]) -> Index:
    return indices[0] if len(indices) == 1 else buffer.flat(indices)


def _steps(index: Index, axes: tuple[Axis, ...]) -> list[tuple[int, int]]:
    """The stride and the number of points of each axis that has more than one."""
    return [(index.stride(axis), axis.extent) for axis in axes if axis.extent > 1]


def _separate(walks: list[tuple[int, int]]) -> bool:
    """Whether each stride, from the inside, is beyond all that the walks before it reach."""
    reach = 0
    for stride, extent in walks:
        if stride <= reach:
            return False
        reach += stride * (extent - 1)
    return True


def _least_distance(read: Index, target: Index) -> int:
    """By how many elements the read is above the store at least; negative where that is unknown."""
    if read.dynamic or target.dynamic:
        return -1
    least = read.const - target.const
    for axis in {axis for axis, _ in (*read.terms, *target.terms)}:
        least += min(0, (read.stride(axis) - target.stride(axis)) * (axis.extent - 1))
    return least
