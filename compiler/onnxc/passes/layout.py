"""layout: what convolutions read and write has its channels last, and its padding stored.

A buffer in another layout is another buffer, of the shape that lies in memory; the indices of all
who use it change with it, so that no other pass knows of layouts. Buffers that keep their layout
(the model's own, those that flat indices or routines walk) are copied where a convolution needs
another. Not those of few channels, such as images: they are read row by row where they are, or
from a copy of whole rows with what is beside them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from onnxc.centred import centred
from onnxc.dtypes import FLOAT
from onnxc.expression import (
    Apply,
    Axis,
    Buffer,
    Const,
    Expr,
    Fold,
    Guard,
    Index,
    Load,
    along,
    literal,
    load,
)
from onnxc.kernel import Loops, Program, Step, map_loops
from onnxc.passes.channels_second import (
    BATCH,
    CHANNEL,
    SPATIAL,
    in_planes,
    in_rows,
    in_windows,
    row_by_row,
)
from onnxc.passes.placement import Placement, border
from onnxc.passes.unflatten import around, unflattened, view_of, with_rows
from onnxc.tensor import axes_of
from onnxc.traversal import map_indices, replace_subexpression, walk
from onnxc.tuned.padded_rows import PADDED

HINT: Final = "convolution"
"""Of the Folds whose operands this is about."""
WIDEST: Final = 3
"""How many times as large as itself a buffer may become by its padding."""
WIDEST_IMAGE: Final = 8
"""The same of an image of few rows, where time is worth more than memory: without padding, loops
that ask at each tap where it lies take fifty times as long.
"""
IMAGE: Final = 1 << 20
"""Bytes of such an image with its padding: it stays in the second-level cache."""


@dataclass
class _Wish:
    """What convolutions want of a buffer: order, and padding of `fill` around each dimension."""

    order: tuple[int, ...]
    begin: list[int]
    end: list[int]
    fill: int
    guards: set[Guard] = field(default_factory=set)

    @property
    def rows(self) -> bool:
        """Whether rows of one channel are whole, which a copy stores with their padding."""
        return self.order[-1] == len(self.order) - 1 and bool(self.begin[-1] or self.end[-1])


def layout(program: Program) -> Program:
    """The program with the buffers of its convolutions, nested programs aside, laid out anew."""
    if program.target is None:
        return program
    return _Layout(program).program()


class _Layout:
    def __init__(self, program: Program) -> None:
        program = map_loops(program, lambda loops: [_with_rows(unflattened(loops))])
        target = program.target
        vectors = target is not None and target.variants[-1].lanes > 1
        self.vectors = vectors and not (target and target.portable)  # then all targets' are one
        self.spacious = self.vectors and not (target and target.small)
        self.before = program = self.with_views(program) if self.vectors else program
        self.pinned = _pinned(program)
        self.guarded = {
            load.buffer
            for step in program.steps
            if isinstance(step, Loops)
            for load, guards, _ in _sources(step)
            if guards
        }
        self.sources: dict[Buffer, _Wish] = {}
        self.orders: dict[Buffer, tuple[int, ...]] = {}

    def program(self) -> Program:
        convolutions = [s for s in self.before.steps if isinstance(s, Loops) and _folds(s)]
        if not convolutions:
            return self.before
        for convolution in convolutions:
            self.read(convolution)
            self.write(convolution)
        self.spread()
        steps: list[Step] = []
        placed = {b: p for b in self.orders if (p := self.placement(b))}
        copied = {b: p for b in self.sources if b not in placed and (p := self.placement(b))}
        last_writers = _last_writers(self.before)
        for buffer in (b for b in copied if b not in last_writers):
            steps += self.copy(copied[buffer])
        bordered: set[Buffer] = set()
        for position, step in enumerate(self.before.steps):
            written = [placed[b] for b in step.writes() if b in placed and b not in bordered]
            for placement in written:
                steps += border(placement)
            bordered |= {p.old for p in written}
            steps += self.moved(step, placed, copied)
            for buffer in step.writes():
                if buffer in copied and last_writers[buffer] == position:
                    steps += self.copy(copied[buffer])
        joined = self.before.placed
        laid_out = {b: described for b, described in joined.items() if b not in placed}
        for p in (*placed.values(), *copied.values()):
            whole = joined[p.old].whole if p.old in joined else ()
            laid_out[p.new] = replace(p.described, whole=whole)
        return replace(self.before, steps=tuple(steps), placed=laid_out)

    def with_views(self, program: Program) -> Program:
        """With what convolutions read by flat indices, within padding, in buffers of its shape.

        No tuned kernel can read it as it lies: the copy is that with padding.
        """
        steps: list[Step] = []
        for step in program.steps:
            steps += self.with_view(step) if isinstance(step, Loops) else [step]
        return replace(program, steps=tuple(steps))

    def with_view(self, step: Loops) -> Iterator[Step]:
        changes: dict[Expr, Expr] = {}
        for fold, guarded, source in _padded(step):
            known = len(source.buffer.shape) > 2 and _of_padding(guarded)
            view = None if known else view_of(step, fold, guarded, source)
            if view is not None and self.fits(source.buffer, view.elements, view.padded_elements):
                copy = view.copied(source.buffer)
                yield copy
                changes[guarded] = around(guarded, source, load(copy.out, view.indices))
        yield _with_nodes(step, changes)

    def stays(self, step: Loops) -> bool:
        """Whether the convolution has its channels second: two copies would cost more than it."""
        folds, sources = _folds(step), _sources(step)
        if not self.vectors or len(folds) != 1 or len(sources) != 1:
            return False
        ((source, _, fill),) = sources
        pinned = {step.out, source.buffer} <= self.pinned
        return pinned and fill == 0 and in_planes(step, folds[0], source)

    def order_of(self, step: Loops, source: Load) -> tuple[int, ...] | None:
        """In which the convolution wants the dimensions of what it reads; None: in any."""
        as_it_lies = tuple(range(len(source.indices)))
        if self.stays(step):
            return as_it_lies
        kinds = _kinds(source, step, source.buffer in self.pinned)
        if kinds is None:
            return None
        folds = _folds(step)
        own = self.vectors and source.buffer in self.pinned and len(folds) == 1
        if own and (in_rows(folds[0], source, kinds) or in_windows(step, folds[0], source)):
            return row_by_row(kinds) if source.buffer in self.guarded else as_it_lies
        return tuple(sorted(as_it_lies, key=lambda d: kinds[d]))

    def read(self, step: Loops) -> None:
        """Notes what the convolution wants of what it reads."""
        for source, guards, fill in _sources(step):
            order = self.order_of(step, source)
            if order is None:
                continue
            shape = source.buffer.shape
            wish = self.sources.setdefault(
                source.buffer, _Wish(order, [0] * len(shape), [0] * len(shape), fill)
            )
            if (wish.order, wish.fill) != (order, fill):
                continue
            wish.guards |= guards
            for d, index in enumerate(source.indices):
                span = index.span()
                if span is not None:
                    wish.begin[d] = max(wish.begin[d], -span[0])
                    wish.end[d] = max(wish.end[d], span[1] - (shape[d] - 1))

    def write(self, step: Loops) -> None:
        order = _filters_last(step)
        if step.out not in self.pinned and order is not None:
            self.orders[step.out] = order

    def spread(self) -> None:
        """To the buffers that are walked along with those that have channels last."""
        self.orders |= {b: w.order for b, w in self.sources.items() if b not in self.pinned}
        links: dict[Buffer, set[Buffer]] = {}
        for step in self.before.steps:
            if isinstance(step, Loops) and len(step.where) == len(step.out.shape) > 2:
                for one in _walked_along(step):
                    links.setdefault(one, set()).add(step.out)
                    links.setdefault(step.out, set()).add(one)
        stack = list(self.orders)
        while stack:
            buffer = stack.pop()
            for other in links.get(buffer, ()):
                if other not in self.orders and other not in self.pinned:
                    self.orders[other] = self.orders[buffer]
                    stack.append(other)

    def placement(self, buffer: Buffer) -> Placement | None:
        """None where the buffer is right as it is."""
        wish = self.sources.get(buffer)
        order = self.orders.get(buffer) or (wish.order if wish else ())
        rank = len(buffer.shape)
        begin, end = [0] * rank, [0] * rank
        if wish and wish.order == order and self.before.target and self.before.target.halo:
            begin, end = wish.begin, wish.end
        shape = tuple(b + n + e for b, n, e in zip(begin, buffer.shape, end, strict=True))
        if not self.fits(buffer, buffer.elements, math.prod(shape)):
            begin, end, shape = [0] * rank, [0] * rank, buffer.shape
        kept = [d for d in order if shape[d] != 1]
        if kept == sorted(kept) and shape == buffer.shape:
            return None
        physical = tuple(shape[d] for d in order)
        new = Buffer(buffer.name, physical, buffer.dtype, "workspace")
        rows = bool(wish and wish.rows and shape[-1] != buffer.shape[-1] and buffer in self.pinned)
        return Placement(buffer, new, order, tuple(begin), wish.fill if wish else 0, rows)

    def fits(self, buffer: Buffer, elements: int, padded: int) -> bool:
        """Whether so many elements of the buffer's type may become as many as with padding."""
        if self.spacious and padded * buffer.dtype.size <= IMAGE:
            return padded <= WIDEST_IMAGE * elements
        return padded <= WIDEST * elements

    def copy(self, placement: Placement) -> list[Step]:
        old = placement.old
        axes = axes_of(old.shape)
        if placement.rows:
            axes = (*axes[:-1], Axis(placement.new.shape[-1]))
        walks = tuple(Index() if axis.extent == 1 else along(axis) for axis in axes)
        value: Expr = load(old, walks)
        if placement.rows:
            walks = (*walks[:-1], walks[-1] + -placement.begin[-1])
            fill = literal(old.dtype, placement.fill)
            value = Guard(old.dtype, ((walks[-1], old.shape[-1]),), load(old, walks), fill)
        ordered = tuple(axes[d] for d in placement.order)
        last = placement.order[-1] != len(old.shape) - 1
        step = Loops(
            placement.new,
            placement.indices(walks),
            ordered,
            value,
            (),
            "channels last" if last else PADDED,
        )
        return [*border(placement), step]

    def moved(
        self, step: Step, placed: Mapping[Buffer, Placement], copied: Mapping[Buffer, Placement]
    ) -> list[Step]:
        """The step on the new buffers; one that stores channels last where it must not, in two."""
        if not isinstance(step, Loops):
            return [step]
        mine = dict(placed)
        if _folds(step):
            read = {source.buffer for source, _, _ in _sources(step)}
            mine |= {b: p for b, p in copied.items() if b in read}
        needless = {g for b, p in mine.items() for g in self.needless(b, p)}
        places = {b: p.load for b, p in mine.items()}

        def changed(root: Expr) -> Expr:
            return map_indices(root, lambda index: index, places=places, needless=needless)

        out, where = step.out, step.where
        if out in placed:
            out, where = placed[out].new, placed[out].indices(where)
        where = tuple(
            Index(i.const, i.terms, tuple((changed(e), s) for e, s in i.dynamic)) for i in where
        )
        after = replace(step, out=out, where=where, value=changed(step.value))
        later = out is step.out and _folds(step) and not self.stays(step)
        if later and len(step.where) == len(out.shape) > 2:
            return _stored_later(after)
        return [_reordered(after)]

    def needless(self, buffer: Buffer, placement: Placement) -> Iterable[Guard]:
        """The Guards whose padding the placement stores."""
        grown = placement.new.elements != buffer.elements
        wish = self.sources.get(buffer)
        return wish.guards if wish and grown else ()


def _with_nodes(step: Loops, nodes: Mapping[Expr, Expr]) -> Loops:
    """With other expressions for some nodes of its value."""
    if not nodes:
        return step
    return replace(step, value=map_indices(step.value, lambda index: index, nodes=nodes))


def _padded(step: Loops) -> Iterator[tuple[Fold, Guard, Load]]:
    """The factors of its convolutions that are read within padding: zeros, or the zero point."""
    for fold in _folds(step):
        for factor in fold.value.args if isinstance(fold.value, Apply) else ():
            if isinstance(factor, Guard) and _is_zero(factor.otherwise):
                value, fill = _filled(factor.value)
                if isinstance(value, Load) and fill is not None and value.buffer.data is None:
                    yield fold, factor, value


def _with_rows(step: Loops) -> Loops:
    """With an index for each dimension that the padding of its convolutions bounds."""
    found = ((guarded, with_rows(guarded, source)) for _, guarded, source in _padded(step))
    return _with_nodes(step, {old: new for old, new in found if new is not None})


def _pinned(program: Program) -> set[Buffer]:
    """What is not in the workspace, is read by others than loops, or by flat indices."""
    pinned: set[Buffer] = set(program.written)
    for step in program.steps:
        if not isinstance(step, Loops):
            pinned |= {*step.reads(), *step.writes()}
            continue
        if len(step.where) != len(step.out.shape) or step.out.packed:
            pinned.add(step.out)
        for node in walk(*step.roots()):
            if isinstance(node, Load) and (
                len(node.indices) != len(node.buffer.shape) or node.buffer.kind != "workspace"
            ):
                pinned.add(node.buffer)
    return pinned


def _folds(step: Loops) -> list[Fold]:
    return [n for n in walk(step.value) if isinstance(n, Fold) and n.hint == HINT]


def _sources(step: Loops) -> list[tuple[Load, set[Guard], int]]:
    """What the convolutions of a kernel read besides constants, the Guards of their padding, and
    what this holds: of 8-bit numbers the zero point.
    """
    found = []
    for fold in _folds(step):
        factors = fold.value.args if isinstance(fold.value, Apply) else ()
        for factor in factors:
            value, fill = _filled(factor.value if isinstance(factor, Guard) else factor)
            guards = {factor} if isinstance(factor, Guard) and _of_padding(factor) else set()
            if (
                isinstance(value, Load)
                and fill is not None
                and value.buffer.data is None
                and len(value.indices) == len(value.buffer.shape) > 2
                and not any(index.dynamic for index in value.indices)
            ):
                found.append((value, guards, fill))
    return found


def _filled(value: Expr) -> tuple[Expr, int | None]:
    """The Load that an operand is, and what stands for its zero; None where that is not known."""
    integers = centred(value)
    if integers is not None:
        return integers.source, integers.constant
    return value, 0 if isinstance(value, Load) and value.dtype is FLOAT else None


def _of_padding(found: Guard) -> bool:
    """Whether it is zero where an index of what it guards leaves the buffer, and only there.

    A dimension of one element is read at 0 wherever the Guard holds: then it may not be left out.
    """
    value, _ = _filled(found.value)
    if not isinstance(value, Load) or len(value.indices) != len(value.buffer.shape):
        return False
    inside = {*zip(value.indices, value.buffer.shape, strict=True)}
    return _is_zero(found.otherwise) and all(bound in inside for bound in found.bounds)


def _is_zero(value: Expr) -> bool:
    return isinstance(value, Const) and not any(value.raw)


def _weight_axes(step: Loops) -> set[Axis]:
    """The axes that walk the constants of its convolutions: filters, groups, taps."""
    return {
        axis
        for fold in _folds(step)
        for node in walk(fold.value)
        if isinstance(node, Load) and node.buffer.data is not None
        for axis, _ in node.flat.terms
    }


def _taps(step: Loops) -> set[Axis]:
    """The axes that walk the filters of its convolutions from the third dimension on."""
    return {
        axis
        for fold in _folds(step)
        for node in walk(fold.value)
        if isinstance(node, Load) and node.buffer.data is not None
        for index in node.indices[2:]
        for axis, _ in index.terms
    }


def _kinds(source: Load, step: Loops, pinned: bool) -> list[int] | None:
    """Of a source's dimensions: BATCH, SPATIAL that windows slide over, the rest CHANNEL.

    One that a single window covers is among the former, unless a copy would be for it alone.
    """
    if len(step.where) < 3:
        return None
    sliding = set(step.axes) - _weight_axes(step)
    sliding |= set() if pinned else _taps(step)
    batch = {axis for axis, _ in step.where[0].terms}
    kinds = []
    for d, index in enumerate(source.indices):
        axes = {axis for axis, _ in index.terms}
        if not axes:
            kinds.append((BATCH, CHANNEL)[d] if d < 2 else SPATIAL)
        else:
            kinds.append(BATCH if axes & batch else SPATIAL if axes & sliding else CHANNEL)
    return kinds


def _filters_last(step: Loops) -> tuple[int, ...] | None:
    """The order of the output's dimensions: the filters, or channels, innermost."""
    rank = len(step.out.shape)
    if len(step.where) != rank or rank < 3:
        return None
    filters = _weight_axes(step)
    kinds = [
        0 if d == 0 else 2 if {axis for axis, _ in index.terms} & filters or d == 1 else 1
        for d, index in enumerate(step.where)
    ]
    return tuple(sorted(range(rank), key=lambda d: kinds[d]))


def _walked_along(step: Loops) -> set[Buffer]:
    """What is read with the channel of the output, element by element or window by window."""
    channel = step.where[1].terms
    return {
        node.buffer
        for node in walk(step.value)
        if isinstance(node, Load)
        and len(node.indices) == len(step.where) == len(node.buffer.shape)
        and node.indices[1].terms == channel
        and node.buffer.kind == "workspace"
    }


def _last_writers(program: Program) -> dict[Buffer, int]:
    return {b: n for n, step in enumerate(program.steps) for b in step.writes()}


def _stored_later(step: Loops) -> list[Step]:
    """A convolution that must store another layout than channels last: there, then copied."""
    order = _filters_last(step) or ()
    kept = [d for d in order if step.out.shape[d] != 1]
    whole = math.prod(axis.extent for axis in step.axes) == step.out.elements
    if kept == sorted(kept) or not whole or len(_folds(step)) != 1:
        return [_reordered(step)]
    shape = tuple(step.out.shape[d] for d in order)
    (fold,) = _folds(step)
    others = (n for n in walk(step.value, inner=False) if isinstance(n, Load))
    alone = any(other.buffer.data is None for other in others)
    between = Buffer("", shape, fold.dtype if alone else step.out.dtype, "workspace")
    where = tuple(step.where[d] for d in order)
    value: Expr = load(between, where)
    first = replace(step, out=between, where=where, role=step.role or "channels last")
    if alone:
        first = replace(first, value=fold)
        value = replace_subexpression(step.value, fold, value)
    return [_reordered(first), replace(step, value=value, role="channels second")]


def _reordered(step: Loops) -> Loops:
    """With the loops in the order in which the output lies in memory."""
    if step.partial or any(index.dynamic for index in step.where):
        return step
    place = step.where[0] if len(step.where) == 1 else step.out.flat(step.where)
    axes: tuple[Axis, ...] = tuple(
        sorted(step.axes, key=lambda axis: -abs(place.stride(axis)) if axis.extent > 1 else 0)
    )
    return replace(step, axes=axes)
