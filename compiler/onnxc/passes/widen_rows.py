"""widen_rows: a short row that every outer iteration reads again becomes a long one.

[N][3] == [3] would run an inner loop of 3. With the row repeated into a buffer of a few hundred
elements the inner loop is long enough to vectorise (reference measurements: 9 to 52 times faster
than the short loop). The kernel turns into up to three: fill the row, whole rows, what is left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd
from typing import Final

from onnxc.expression import At, Axis, Buffer, Checked, Fold, Guard, Load, along, load
from onnxc.kernel import Loops, Program, map_loops
from onnxc.traversal import move, replace_loads, substitute, walk

SHORT: Final = 64
"""Inner loops shorter than this are widened."""
WIDEST: Final = 1024
"""Elements; a row whose whole vectors would need more is widened to about half of it."""
WORTH: Final = 4
"""How often the wide row must fit into the walk to pay for filling it."""


def widen_rows(program: Program) -> Program:
    return map_loops(program, widened)


@dataclass(frozen=True)
class _Row:
    """The two innermost loops, and the loads that repeat for every iteration of `outer`."""

    outer: Axis
    inner: Axis
    loads: tuple[Load, ...]
    repeats: int

    @property
    def width(self) -> int:
        return self.inner.extent * self.repeats


def widened(loops: Loops) -> list[Loops]:
    """The kernels that stand for a merged kernel; itself alone where nothing is gained."""
    row = _short_row(loops)
    if row is None:
        return [loops]
    filled, fills = {}, []
    for source in row.loads:
        buffer = Buffer("", (row.width,), source.buffer.dtype, "workspace")
        repeat = Axis(row.repeats)
        where = along(repeat) * row.inner.extent + along(row.inner)
        axes, role = (
            (repeat, row.inner),
            f"the row of {row.inner.extent}, repeated {row.repeats} times",
        )
        fills.append(Loops(buffer, (where,), axes, source, loops.origins, role))
        filled[source] = buffer
    return [*fills, _whole_rows(loops, row, filled), *_rows_left(loops, row)]


def _whole_rows(loops: Loops, row: _Row, filled: dict[Load, Buffer]) -> Loops:
    blocks, wide = Axis(row.outer.extent // row.repeats), Axis(row.width)
    value = replace_loads(
        loops.value, {source: load(buffer, [along(wide)]) for source, buffer in filled.items()}
    )
    moved = {row.outer: along(blocks) * row.repeats, row.inner: along(wide)}
    return replace(
        loops,
        where=(move(loops.where[0], moved),),
        axes=(*loops.axes[:-2], blocks, wide),
        value=substitute(value, moved),
        role=f"{row.repeats} rows at a time, against the repeated row",
    )


def _rows_left(loops: Loops, row: _Row) -> list[Loops]:
    rest = row.outer.extent % row.repeats
    if not rest:
        return []
    few = Axis(rest)
    moved = {row.outer: along(few) + (row.outer.extent - rest)}
    where, axes = (move(loops.where[0], moved),), (*loops.axes[:-2], few, row.inner)
    value = substitute(loops.value, moved)
    return [replace(loops, where=where, axes=axes, value=value, role="the rows left over")]


def _short_row(loops: Loops) -> _Row | None:
    """The row to widen: every load either walks the two loops as one or repeats in each row."""
    if loops.partial or len(loops.axes) < 2 or loops.axes[-1].extent >= SHORT:
        return None
    outer, inner = loops.axes[-2:]
    if not loops.where[0].walks_as_one(outer, inner):
        return None
    repeating = []
    for node in walk(loops.value):
        # Of the codes that a kernel finds it tells the lowest: with Checked it must stay whole.
        if isinstance(node, Fold | At | Checked | Guard):
            return None
        if isinstance(node, Load) and node.flat.dynamic:
            return None
        if isinstance(node, Load) and not node.flat.walks_as_one(outer, inner):
            if [axis for axis, _ in node.flat.terms] != [inner]:
                return None
            repeating.append(node)
    repeats = SHORT // gcd(inner.extent, SHORT)
    if inner.extent * repeats > WIDEST:
        repeats = WIDEST // 2 // inner.extent
    if outer.extent < WORTH * repeats or not repeating:
        return None
    return _Row(outer, inner, tuple(repeating), repeats)
