"""split_axes: a loop that reads every element several times in a row becomes two.

Where a constant says which element each iteration reads, and that is 0 0 1 1 2 2 and so on, as when
an image is enlarged, compilers find vectors once the loop over elements and that over their copies
are two.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from onnxc.expression import Apply, Axis, Checked, Expr, Fold, Guard, Load, along, at, static
from onnxc.kernel import Loops, Program, map_loops
from onnxc.traversal import map_indices, move, move_all, walk

INNERMOST: Final = (2, 3, 4, 8)
"""Copies of which compilers make vectors."""


def split_axes(program: Program) -> Program:
    return map_loops(program, lambda loops: [_split(loops)])


def _split(loops: Loops) -> Loops:
    """The kernel with each such axis as two."""
    if loops.partial or any(isinstance(node, Fold) for node in walk(*loops.roots())):
        return loops
    for axis in loops.axes:
        tables, times = _tables(loops, axis)
        if tables and (axis is not loops.axes[-1] or times in INNERMOST):
            loops = _as_two(loops, axis, times, tables)
    return loops


def _tables(loops: Loops, axis: Axis) -> tuple[list[Load], int]:
    """Loads from constants that repeat every number along an axis, and how often they do.

    All of them say which element is read: a number of another type has no affine index.
    """
    found: list[Load] = []
    times = 0
    values = _values(loops)
    for node in walk(loops.value):
        if isinstance(node, Load) and node.indices == (along(axis),) and node not in values:
            repeated = _repeats(node) if node.buffer.elements == axis.extent else 0
            if repeated > 1 and times in (0, repeated):
                times = repeated
                found.append(node)
    return found, times


def _values(loops: Loops) -> set[Expr]:
    """What the kernel computes with or stores, other than to find an element."""
    found = {loops.value}
    for node in walk(loops.value):
        match node:
            case Apply(_, _, args):
                found.update(args)
            case Guard(_, _, value, otherwise):
                found |= {value, otherwise}
            case Checked(_, value, condition):
                found |= {value, condition}
    return found


def _repeats(table: Load) -> int:
    """How often a constant has each of the numbers from 0 on, one after the other; else 0."""
    data = table.buffer.data
    if data is None or data.ndim != 1 or table.dtype.kind != "signed" or data.size < 2:
        return 0
    times = int(np.count_nonzero(data == 0))
    if times < 2 or data.size % times:
        return 0
    return times if np.array_equal(data, np.arange(data.size) // times) else 0


def _as_two(loops: Loops, axis: Axis, times: int, tables: list[Load]) -> Loops:
    element, copy = Axis(static(axis.extent) // times), Axis(times)
    values = {axis: along(element) * times + along(copy)}
    nodes: dict[Expr, Expr] = {table: at(along(element)) for table in tables}
    value = map_indices(loops.value, lambda index: move(index, values), nodes=nodes)
    position = loops.axes.index(axis)
    return replace(
        loops,
        where=tuple(move_all(index, values) for index in loops.where),
        axes=(*loops.axes[:position], element, copy, *loops.axes[position + 1 :]),
        value=value,
    )
