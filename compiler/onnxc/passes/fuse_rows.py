"""fuse_rows: neighbouring kernels of plain loops with the same outer loop run row by row.

Each would stream its operands through the cache anew. In one loop, all of them for a row or a few
and then for the next, rows stay near; and what only they hand to each other needs no more than that
of memory.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from onnxc.expression import Axis, Buffer, Checked, Expr, Fold, Index, Load, along, load, static
from onnxc.kernel import Loops, Program, Rows, Step
from onnxc.passes.liveness import Span, Uses, bytes_live, lifetimes, taken_over
from onnxc.passes.merge_axes import merged
from onnxc.status import Status
from onnxc.summation import runs_across
from onnxc.traversal import axes_read, move_all, replace_loads, substitute, walk
from onnxc.tuned.walks import gathered

SHORTEST: Final = 16
SHORTEST_IN_VECTORS: Final = 64
"""Elements; shorter rows are better computed many at once, most of all in vectors."""
MOST: Final = 16
"""Kernels in one function."""
LAID_OUT: Final = 4096
"""Elements of a constant that may be laid out anew."""
NEAR: Final = 24 * 1024
"""Bytes that stay in the first level of the cache."""
TURNS: Final = (4, 2)
"""Rows at a time, where there are vectors: while one is added up the next can begin."""

_Places = Mapping[Buffer, Sequence[Index]]
"""Where a kernel reads and stores, by buffer: flat indices."""


def fuse_rows(program: Program) -> Program:
    """The program with such runs of kernels, those of nested programs aside, in one step each."""
    if program.target is None:
        return program
    return replace(program, steps=tuple(_Fusion(program).steps()))


class _Fusion:
    """Tries runs of the steps of a program.

    users  how many steps use a buffer
    last   the number of the last of them
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.vectors = program.target is not None and program.target.variants[-1].lanes > 1
        self.shortest = SHORTEST_IN_VECTORS if self.vectors else SHORTEST
        self.known = Uses()
        self.users: Counter[Buffer] = Counter()
        self.last: dict[Buffer, int] = {}
        for number, step in enumerate(program.steps):
            used = {*step.reads(), *step.writes()}
            self.users.update(used)
            self.last.update(dict.fromkeys(used, number))

    def steps(self) -> Iterator[Step]:
        given, position = self.program.steps, 0
        while position < len(given):
            found = self.longest(position)
            yield given[position] if found is None else found
            position += 1 if found is None else len(found.steps)

    def longest(self, start: int) -> Rows | None:
        """The longest run that begins with a step; None where it would stay alone."""
        kernels: list[Loops] = []
        best: Rows | None = None
        rows = 0
        for step in self.program.steps[start : start + MOST]:
            if not isinstance(step, Loops) or not _may_join(step, kernels):
                break
            kernels.append(step)
            if not rows and not _is_flat(step):
                rows = static(step.axes[0].extent)
            run = _run(kernels, rows) if rows else None
            if rows and run is None:
                break
            if run is not None and run.warm >= self.shortest:
                end = start + len(kernels) - 1
                found = self.step(run)
                if found.outputs and self.peak([found], end) <= self.peak(kernels, end):
                    best = found
        return best

    def step(self, run: _Run) -> Rows:
        rows, inside = static(run.axis.extent), {}
        turns = TURNS if self.vectors else ()
        count = next((n for n in turns if n <= rows and n * run.bytes_of_a_row() <= NEAR), 1)
        for buffer in dict.fromkeys(kernel.out for kernel in run.kernels):
            used = sum(buffer in places for places in run.places)
            if buffer.kind == "workspace" and 1 < used == self.users[buffer]:
                shape = (count, buffer.elements // rows)
                inside[buffer] = Buffer("", shape, buffer.dtype, "workspace")
        return Rows(run.axis, count, run.kernels, inside)

    def peak(self, steps: Sequence[Step], end: int) -> int:
        """Bytes of what `steps` use, in place of some up to number `end`, while they run."""
        uses = list(self.known.of(steps))
        after = [b for use in uses for b in use.memory if self.last.get(b, -1) > end]
        spans = lifetimes([*(use.memory for use in uses), after])
        written: set[Buffer] = set()
        for use in uses:
            spans |= {
                b: Span(0, spans[b].last) for b in use.reads if b in spans and b not in written
            }
            written.update(use.writes)
        return max(bytes_live(spans, taken_over(uses, spans)), default=0)


@dataclass(frozen=True)
class _Run:
    """Kernels that run row by row, of one first axis, and where each reads and stores."""

    axis: Axis
    kernels: tuple[Loops, ...]
    places: tuple[_Places, ...]

    @property
    def is_sound(self) -> bool:
        """Whether no row needs what is another's of all that a kernel stores and others use.

        And whether no other status could come before that of an earlier kernel.
        """
        for buffer in dict.fromkeys(kernel.out for kernel in self.kernels):
            used = [places[buffer] for places in self.places if buffer in places]
            indices = (index for found in used for index in found)
            if len(used) > 1 and not all(self._in_row(buffer, index) for index in indices):
                return False
        reported = list(filter(None, map(_reported, self.kernels)))
        return len(reported) <= 1 or len(set.union(*reported)) == 1

    def _in_row(self, buffer: Buffer, index: Index) -> bool:
        size, rest = divmod(buffer.elements, static(self.axis.extent))
        if rest or buffer.packed or index.dynamic or index.stride(self.axis) != size:
            return False
        span = (index + along(self.axis) * -size).span()
        return span is not None and span[0] >= 0 and span[1] < size

    @property
    def is_linked(self) -> bool:
        """Whether each kernel but the first reads by rows what one before it has read or stored."""
        return all(self._shared(number) for number in range(1, len(self.kernels)))

    @property
    def warm(self) -> int:
        """Of an operand of the last kernel that is in the cache: the most elements of a row."""
        return self._shared(len(self.kernels) - 1)

    def _shared(self, number: int) -> int:
        """The most elements of a row that a kernel reads and one before it has read or stored."""
        before = {buffer for places in self.places[:number] for buffer in places}
        found = (self.places[number][b] for b in self.kernels[number].reads() if b in before)
        return max(map(self._step, found), default=0)

    def _step(self, indices: Iterable[Index]) -> int:
        """Elements from row to row."""
        return max(abs(static(index.stride(self.axis))) for index in indices)

    def bytes_of_a_row(self) -> int:
        steps = {b: self._step(found) for places in self.places for b, found in places.items()}
        return sum(elements * buffer.dtype.size for buffer, elements in steps.items())


def _run(kernels: Sequence[Loops], rows: int) -> _Run | None:
    """The kernels in `rows` rows; None where they cannot run so, or have nothing to share."""
    axis = Axis(rows)
    parts = [_by_rows(kernel, axis) for kernel in kernels]
    found = tuple(part for part in parts if part is not None)
    if rows < 2 or len(found) < len(kernels):
        return None
    run = _Run(axis, found, tuple(map(_places, found)))
    return run if run.is_sound and run.is_linked else None


def _by_rows(kernel: Loops, axis: Axis) -> Loops | None:
    """The kernel with `axis` as its first; None where it has no such, or gains by many rows."""
    rows = static(axis.extent)
    kernel = _with_one_loop_of(kernel, rows)
    first, *others = kernel.axes
    extent = static(first.extent)
    place, inner = along(axis), tuple(others)
    if extent != rows:
        if not _is_flat(kernel) or extent % rows:
            return None
        inside = Axis(extent // rows)
        place, inner = along(axis) * inside.extent + along(inside), (inside,)
    moved = {first: place}
    part = replace(
        kernel,
        where=tuple(move_all(index, moved) for index in kernel.where),
        axes=(axis, *inner),
        value=substitute(kernel.value, moved),
    )
    # Sums must run the same way without the outer loop, and what is read be near in each row.
    same = runs_across(replace(part, axes=inner)) == runs_across(kernel)
    return part if same and not _reads_columns(part) else None


def _with_one_loop_of(kernel: Loops, rows: int) -> Loops:
    """The kernel with its first loops as one of `rows`, where only small constants are in the way.

    Such as a scale of channels in a batch of several: it is laid out once for each image.
    """
    extents = [static(axis.extent) for axis in kernel.axes]
    count = next((n for n in range(2, len(extents)) if math.prod(extents[:n]) == rows), 0)
    if not count or rows > LAID_OUT:
        return kernel
    first, rest = kernel.axes[:count], {*kernel.axes[count:]}
    anew: dict[Load, Expr] = {}
    for node in walk(kernel.value):
        if isinstance(node, Load) and node.buffer.data is not None and not node.flat.dynamic:
            moved = axes_read(node)
            if moved and not moved & rest and moved < {*first}:
                values = gathered(node, first)
                place = Buffer(node.buffer.name, values.shape, node.dtype, "constant", values)
                anew[node] = load(place, (place.flat(tuple(map(along, first))),))
    joined = merged(replace(kernel, value=replace_loads(kernel.value, anew))) if anew else kernel
    return joined if static(joined.axes[0].extent) == rows else kernel


def _is_flat(kernel: Loops) -> bool:
    """Whether its one loop may be two: whole tensors element by element."""
    folds = any(isinstance(node, Fold) for node in walk(*kernel.roots()))
    return len(kernel.axes) == 1 and not folds and not kernel.where[0].dynamic


def _may_join(kernel: Loops, before: Sequence[Loops]) -> bool:
    """Whether it has rows, and no kind of kernel for which the cache makes no difference.

    That are sums of products; and copies, of all memory at once or by tiles, but for those of what
    kernels `before` it have added up: a window of the sums, which then need no memory as a whole.
    """
    copies = isinstance(kernel.value, Load) and not kernel.accumulate
    copies &= not any(sums.accumulate and sums.out in kernel.reads() for sums in before)
    folds = (node for node in walk(*kernel.roots()) if isinstance(node, Fold))
    return bool(kernel.axes) and not copies and all(fold.hint in ("", "numbers") for fold in folds)


def _reads_columns(kernel: Loops) -> bool:
    """Whether neighbours in memory are in different rows: then whole rows waste cache lines."""
    first, last = kernel.axes[0], kernel.axes[-1]
    if first is last:
        return False
    indices = (index for found in _places(kernel).values() for index in found)
    return any(0 < abs(index.stride(first)) < abs(index.stride(last)) for index in indices)


def _places(kernel: Loops) -> _Places:
    found: dict[Buffer, list[Index]] = {kernel.out: list(kernel.where)}
    for node in walk(*kernel.roots()):
        if isinstance(node, Load):
            found.setdefault(node.buffer, []).append(node.flat)
    return found


def _reported(kernel: Loops) -> set[Status]:
    return {node.code for node in walk(*kernel.roots()) if isinstance(node, Checked)}
