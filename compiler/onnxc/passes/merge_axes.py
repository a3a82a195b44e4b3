"""merge_axes: flat indices, and one loop where neighbouring loops walk memory as one."""

from __future__ import annotations

from dataclasses import replace

from onnxc.kernel import (
    At,
    Axis,
    Index,
    Load,
    Loops,
    Program,
    along,
    map_indices,
    map_loops,
    move,
    substitute,
    walk,
)


def merge_axes(program: Program) -> Program:
    return map_loops(program, lambda loops: [merged(loops)])


def merged(loops: Loops) -> Loops:
    """The same kernel with the fewest loops; equal shapes become one flat loop."""
    where = loops.where[0] if len(loops.where) == 1 else loops.out.flat(loops.where)
    value = map_indices(loops.value, lambda index: index, flat=True)
    single = {axis: Index() for axis in loops.axes if axis.extent == 1}
    loops = _moved(replace(loops, where=(where,), value=value), single)
    axes = [axis for axis in loops.axes if axis.extent != 1]
    position = 0
    while position + 1 < len(axes):
        outer, inner = axes[position : position + 2]
        if all(index.walks_as_one(outer, inner) for index in _indices(loops)):
            joined = Axis(outer.extent * inner.extent)
            # The walk of the pair is the inner stride on the joined axis.
            loops = _moved(loops, {outer: Index(), inner: along(joined)})
            axes[position : position + 2] = [joined]
            position = max(0, position - 1)
        else:
            position += 1
    return replace(loops, axes=tuple(axes))


def _moved(loops: Loops, values: dict[Axis, Index]) -> Loops:
    where = tuple(move(index, values) for index in loops.where)
    return replace(loops, where=where, value=substitute(loops.value, values))


def _indices(loops: Loops) -> list[Index]:
    found = list(loops.where)
    for node in walk(loops.value):
        match node:
            case Load(_, _, indices):
                found.extend(indices)
            case At(_, index):
                found.append(index)
    return found
