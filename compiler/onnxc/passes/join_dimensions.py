"""join_dimensions: a buffer that convolutions read with fewer dimensions than it has gets those.

As between the shuffled channels of groups and the convolution after them: what is stored as groups
of channels is read as channels. A flat index says no more which of them is the channel, and so
neither the layout nor the padding of the buffer could be chosen.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from onnxc.expression import Buffer, Expr, Fold, Guard, Index, Load
from onnxc.kernel import Loops, Placed, Program, Step
from onnxc.traversal import map_indices, walk

HINT: Final = "convolution"
"""Of the Folds whose sources this is about."""
RANKS: Final = range(4, 8)
"""Of the buffers: that have more than a batch, channels and something that windows slide over."""
Bounds = tuple[tuple[Index, int], ...]
Groups = tuple[tuple[int, ...], ...]


@dataclass
class _Use:
    """How the loops of a program walk a buffer.

    flat      the flat indices of its loads, each with the bounds of the Guard around it
    sliding   whether a convolution has one of them
    """

    flat: dict[Index, Bounds] = field(default_factory=dict)
    sliding: bool = False


def join_dimensions(program: Program) -> Program:
    """The program with neighbouring dimensions of such buffers as one, nested programs aside."""
    if program.target is None:
        return program
    joined: dict[Buffer, _Joined] = {}
    for buffer, use in _uses(program).items():
        found = _joined(buffer, use) if use.sliding else None
        if found is not None:
            joined[buffer] = found
    if not joined:
        return program
    steps = tuple(_moved(step, joined) for step in program.steps)
    placed = {j.new: j.described for j in joined.values()}
    return replace(program, steps=steps, placed={**program.placed, **placed})


@dataclass(frozen=True)
class _Joined:
    """A buffer with fewer dimensions.

    groups   the dimensions of `old` that each of `new` has
    flat     of each flat index of a load, one index a dimension
    """

    old: Buffer
    new: Buffer
    groups: Groups
    flat: Mapping[Index, tuple[Index, ...]]

    @property
    def described(self) -> Placed:
        rank = len(self.new.shape)
        return Placed(self.new.shape, tuple(range(rank)), (0,) * rank, self.old.shape)

    def indices(self, indices: tuple[Index, ...]) -> tuple[Index, ...]:
        """Of a load or a store."""
        if len(indices) == 1:
            return self.flat[indices[0]]
        parts = []
        for group in self.groups:
            inner = Buffer("", tuple(self.old.shape[d] for d in group), self.old.dtype, "workspace")
            parts.append(inner.flat(tuple(indices[d] for d in group)))
        return tuple(parts)

    def load(self, indices: tuple[Index, ...]) -> Expr:
        return Load(self.new.dtype, self.new, self.indices(indices))


def _uses(program: Program) -> dict[Buffer, _Use]:
    """Of the buffers of the workspace that loops alone walk, none of them by run-time indices."""
    found: dict[Buffer, _Use] = {}
    others: set[Buffer] = set(program.written)
    for step in program.steps:
        if not isinstance(step, Loops):
            others |= {*step.reads(), *step.writes()}
            continue
        if len(step.where) != len(step.out.shape) or step.partial:
            others.add(step.out)
        slid = _slid(step)
        for load, bounds in _loads(step):
            use = found.setdefault(load.buffer, _Use())
            if any(index.dynamic for index in load.indices):
                others.add(load.buffer)
            elif len(load.indices) == 1:
                (index,) = load.indices
                if use.flat.setdefault(index, bounds) != bounds:
                    others.add(load.buffer)
                use.sliding |= load in slid
    return {
        buffer: use
        for buffer, use in found.items()
        if buffer not in others and buffer.kind == "workspace" and len(buffer.shape) in RANKS
    }


def _loads(step: Loops) -> Iterator[tuple[Load, Bounds]]:
    """Each load, with the bounds of the Guard that it is the value of, if it is one's."""
    guarded = {n.value: n.bounds for n in walk(*step.roots()) if isinstance(n, Guard)}
    for node in walk(*step.roots()):
        if isinstance(node, Load):
            yield node, guarded.get(node, ())


def _slid(step: Loops) -> set[Expr]:
    """The loads that convolutions multiply, padded or not."""
    found: set[Expr] = set()
    for fold in walk(step.value):
        if isinstance(fold, Fold) and fold.hint == HINT:
            for factor in fold.value.operands():
                found.add(factor.value if isinstance(factor, Guard) else factor)
    return found


def _joined(buffer: Buffer, use: _Use) -> _Joined | None:
    """With as few dimensions as the loads need less; None where they need all or one could not."""
    for groups in _groups(len(buffer.shape)):
        shape = tuple(math.prod(buffer.shape[d] for d in group) for group in groups)
        flat = {index: _by_dimension(shape, index, bounds) for index, bounds in use.flat.items()}
        if all(flat.values()):
            if len(shape) == len(buffer.shape):
                return None
            new = Buffer(buffer.name, shape, buffer.dtype, "workspace")
            return _Joined(buffer, new, groups, {i: p for i, p in flat.items() if p})
    return None


def _groups(rank: int) -> Iterator[Groups]:
    """The ways to join neighbouring dimensions, those that leave most of them first."""
    for number in range(rank - 1, 1, -1):
        for cuts in itertools.combinations(range(1, rank), number):
            ends = (0, *cuts, rank)
            yield tuple(tuple(range(a, b)) for a, b in itertools.pairwise(ends))


def _by_dimension(shape: Sequence[int], flat: Index, bounds: Bounds) -> tuple[Index, ...] | None:
    """One index a dimension; of those that leave theirs, only such as a bound keeps inside."""
    found: list[Index] = []
    rest, const, stride = list(flat.terms), flat.const, math.prod(shape)
    for extent in shape:
        stride //= extent
        mine = [(axis, step) for axis, step in rest if step >= stride and step % stride == 0]
        rest = [term for term in rest if term not in mine]
        terms = tuple((axis, step // stride) for axis, step in mine)
        kept = [i for i, e in bounds if e == extent and i.terms == terms and terms]
        if kept:
            const -= kept[0].const * stride
        found.append(kept[0] if kept else Index(0, terms))
    for d, extent in enumerate(shape):  # what the bounds do not tell
        stride = math.prod(shape[d + 1 :])
        if not any(index is found[d] for index, _ in bounds):
            begin, const = divmod(const, stride)
            found[d] += begin
            span = found[d].span()
            if span is None or span[0] < 0 or span[1] >= extent:
                return None
    return None if rest or const else tuple(found)


def _moved(step: Step, joined: Mapping[Buffer, _Joined]) -> Step:
    if not isinstance(step, Loops):
        return step
    value, out, where = step.value, step.out, step.where
    if any(buffer in joined for buffer in step.reads()):
        places = {buffer: j.load for buffer, j in joined.items()}
        value = map_indices(value, lambda index: index, places=places)
    if out in joined:
        out, where = joined[out].new, joined[out].indices(where)
    return replace(step, out=out, where=where, value=value)
