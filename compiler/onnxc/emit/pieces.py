"""Where the innermost axis of a kernel is cut, and how wide its blocks are."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Final

from onnxc.expression import Axis, Fold, Guard, Index, Load, along, static
from onnxc.kernel import Loops
from onnxc.summation import WIDEST
from onnxc.traversal import move_all, substitute, walk

CACHE_LINE: Final = 64
"""Bytes."""
LONGEST_TILE: Final = 32
LONG_ENOUGH: Final = 8
"""Points that are worth a loop without a condition."""
MOST_PIECES: Final = 4
MOST_LANES: Final = 64
LEAST_OVERLAPPED: Final = 24
"""Points that are worth two blocks where one would have an odd number of lanes."""
STEP: Final = 8
"""Lanes are a multiple of it where there are several blocks."""


def pieces(loops: Loops) -> list[tuple[int, int]]:
    """The ranges of the innermost axis: between them conditions of Guards change.

    All of it where there are too many, or none is long.
    """
    if not loops.axes:
        return [(0, 1)]
    axis = loops.axes[-1]
    extent = static(axis.extent)
    cuts = {0, extent}
    if not loops.partial:
        bounds = {b for n in walk(*loops.roots()) if isinstance(n, Guard) for b in n.bounds}
        for index, limit in bounds:
            cuts.update(_inside(index, static(limit), axis))
    found = list(itertools.pairwise(sorted(cuts)))
    longest = max((stop - start for start, stop in found), default=0)
    few = len(found) <= MOST_PIECES and longest >= LONG_ENOUGH
    return found if few else [(0, extent)]


def _inside(index: Index, limit: int, axis: Axis) -> tuple[int, ...]:
    """Start and stop of the range of `axis` where an index surely is in 0 .. limit - 1."""
    step = static(index.stride(axis))
    others = tuple((other, stride) for other, stride in index.terms if other is not axis)
    span = Index(index.const, others, index.dynamic).span()
    if step == 0 or span is None:
        return ()
    least, greatest = span
    if step > 0:
        start, stop = -(least // step), (limit - 1 - greatest) // step + 1
    else:
        start, stop = -((limit - 1 - greatest) // -step), least // -step + 1
    start, stop = max(0, start), min(static(axis.extent), stop)
    return (start, stop) if start < stop else ()


def restricted(loops: Loops, start: int, stop: int) -> Loops:
    """The kernel on a range of its innermost axis, as an axis from 0; of one point, without it."""
    if not loops.axes or (start, stop) == (0, static(loops.axes[-1].extent)):
        return loops
    *outer, old = loops.axes
    new = Axis(stop - start)
    moved = {old: along(new) + start if stop - start > 1 else Index(start)}
    return replace(
        loops,
        where=tuple(move_all(index, moved) for index in loops.where),
        axes=(*outer, new) if stop - start > 1 else tuple(outer),
        value=substitute(loops.value, moved),
    )


def block_lanes(extent: int, loops: Loops, *, twice: bool = True) -> int:
    """How many of `extent` points are folded side by side, so that few are folded twice.

    Without `twice` none is where `extent` is a multiple of it or no more than one block.
    Of loads with gaps compilers compute the end of a block one by one: then blocks are long.
    """
    nodes = list(walk(*loops.roots()))
    size = sum(node.dtype.size for node in nodes if isinstance(node, Fold))
    steps = (abs(static(n.flat.stride(loops.axes[-1]))) for n in nodes if isinstance(n, Load))
    gaps = any(step > 1 for step in steps)
    widest = max(STEP, min(MOST_LANES, WIDEST // size // STEP * STEP))
    if extent <= widest and (gaps or not twice or extent % STEP == 0 or extent < LEAST_OVERLAPPED):
        return extent
    blocks = max(2, -(-extent // widest))
    return -(-extent // (blocks * STEP)) * STEP


def tiled_axis(loops: Loops) -> Axis | None:
    """The outer axis along which a kernel reads memory that it does not read along the innermost.

    None where there is none, or tiles of both make no difference.
    """
    nodes = list(walk(*loops.roots()))
    if loops.partial or len(loops.axes) < 2 or any(isinstance(n, Fold | Guard) for n in nodes):
        return None
    *outer, last = loops.axes
    loads = [n for n in nodes if isinstance(n, Load) and not n.buffer.packed]
    flats = [load.flat for load in loads if not load.flat.dynamic]
    if loops.where[0].stride(last) != 1 or static(last.extent) < LONG_ENOUGH:
        return None
    for axis in outer:
        along_it = any(flat.stride(axis) == 1 and flat.stride(last) > 1 for flat in flats)
        if along_it and static(axis.extent) >= LONG_ENOUGH:
            return axis
    return None


def tile_size(loops: Loops) -> int:
    """Iterations of each of the two loops of a tile: a cache line of the result."""
    return min(LONGEST_TILE, CACHE_LINE // max(1, loops.out.dtype.size))
