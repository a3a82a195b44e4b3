"""The statements of a kernel as data: what kernels/loops.c.j2 writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from onnxc.dtypes import ElementType
from onnxc.summation import GROUP, Summation


@dataclass(frozen=True)
class Loop:
    """Where `unless` holds, an iteration does nothing."""

    name: str
    extent: int
    unless: str = ""


@dataclass(frozen=True)
class Block:
    """Neighbouring points of an axis side by side, `lanes` at once: compilers make vectors of them.

    name    of the axis' variable, `counter` of the loop inside: the same where one block is all
    extent  of the axis; where it is no multiple of `lanes`, the last block starts earlier
    """

    name: str
    counter: str
    lanes: int
    extent: int

    @property
    def first(self) -> str:
        """The variable of the first point of the block."""
        return f"{self.name}_first"

    @property
    def alone(self) -> bool:
        return self.lanes == self.extent


@dataclass(frozen=True)
class Local:
    """const c_type name = text;"""

    kind: ClassVar[str] = "local"
    c_type: str
    name: str
    text: str


@dataclass(frozen=True)
class Check:
    """Reports `code` unless `condition`."""

    kind: ClassVar[str] = "check"
    condition: str
    code: int


@dataclass(frozen=True)
class Reduce:
    """Folds `value`, after `body`, over `loops` into the local `name`.

    lanes    of which `name` is an array; 0 where it is one number. Without `block` each is a part
             of the result, elements n, n + lanes ... of the innermost loop
    block    the points that are folded side by side, each in its lane
    walks    whether body or value need the point of the block
    loose    a max or min that leaves out NaNs
    lane     the variable of the loops over lanes
    long     a compensated sum: groups of `group` iterations of the innermost loop, or blocks of
             `lanes` of them, go to `totals` numbers of two parts
    """

    kind: ClassVar[str] = "reduce"
    start: str
    operation: str
    dtype: ElementType
    name: str
    loops: tuple[Loop, ...]
    body: tuple[Statement, ...]
    value: str
    lanes: int
    block: Block | None = None
    walks: bool = True
    long: Summation | None = None
    loose: bool = False
    lane: str = "lane"
    group: int = GROUP

    @property
    def whole(self) -> int:
        """Iterations of the innermost loop that fill blocks of lanes."""
        extent = self.loops[-1].extent
        if self.long is not None and not self.long.grouped:
            return 0
        return extent // self.lanes * self.lanes if extent > self.lanes > 0 else 0

    @property
    def totals(self) -> int:
        """Lanes that are left for halving."""
        return self.lanes if self.long is None or self.block else self.long.totals


@dataclass(frozen=True)
class When:
    """`name` is `value`, after `body`, where `condition` holds, else `otherwise`."""

    kind: ClassVar[str] = "when"
    c_type: str
    name: str
    condition: str
    body: tuple[Statement, ...]
    value: str
    otherwise: str


Statement = Local | Check | Reduce | When


@dataclass(frozen=True)
class Near:
    """The fast form of a Part with a loop, by blocks of points: see emit/near.py.

    tests       of each point, after `before`: 1 where the fast form is not for it
    statements  of the fast form, and its `value`
    """

    block: int
    before: tuple[Statement, ...]
    tests: tuple[str, ...]
    statements: tuple[Statement, ...]
    value: str


@dataclass(frozen=True)
class Part:
    """A range of the innermost axis, or what there is inside of all axes.

    loop    over the range, if it has one of its own, but for a block
    sign    of its assignment: = or, of what accumulates, += or *=
    tile    two loops that run by tiles of `tile_size` iterations of each, for one walks what is
            read, the other what is written: cache lines of both stay until they are used up
    folds   what runs side by side before the statements, one after the other
    """

    loop: Loop | None
    block: Block | None
    folds: tuple[Reduce, ...]
    statements: tuple[Statement, ...]
    target: str
    value: str
    sign: str = "="
    tile: tuple[Loop, ...] = ()
    tile_size: int = 0
    near: Near | None = None


@dataclass(frozen=True)
class Body:
    """What computes one Loops, inside of loops around it.

    numbered   whether it needs the number of the row, of those that run by rows
    """

    loops: tuple[Loop, ...]
    parts: tuple[Part, ...]
    comment: str = ""
    numbered: bool = False

    @property
    def is_flat(self) -> bool:
        """Whether there is no loop in it."""
        parts = (p for p in self.parts if p.loop or p.block or p.tile or p.folds)
        return not self.loops and not any(parts) and all(map(_is_flat, self.parts))


def _is_flat(part: Part) -> bool:
    return not any(isinstance(statement, Reduce | When) for statement in part.statements)


@dataclass(frozen=True)
class Variable:
    """One element that a row, or each of `rows`, leaves for what follows in it."""

    c_type: str
    name: str
    rows: int
