"""merge_axes: flat indices, and one loop where neighbouring loops walk memory as one."""

from __future__ import annotations

import math
from dataclasses import replace

from onnxc.expression import At, Axis, Expr, Fold, Guard, Index, Load, along
from onnxc.kernel import Loops, Program, map_loops
from onnxc.traversal import map_indices, move_all, substitute, walk


def merge_axes(program: Program) -> Program:
    return map_loops(program, lambda loops: [merged(loops)])


def merged(loops: Loops) -> Loops:
    """The same kernel with the fewest loops; equal shapes become one flat loop."""
    place = loops.where[0] if len(loops.where) == 1 else loops.out.flat(loops.where)
    dynamic = ((_flattened(expr), stride) for expr, stride in place.dynamic)
    place = Index(place.const, place.terms, tuple(dynamic))
    value = _flattened(loops.value)
    loops = replace(loops, where=(place,), value=value)
    axes, moved = _joined(loops.axes, [place, *_indices(*loops.roots())])
    where = (move_all(place, moved),)
    return replace(loops, axes=axes, where=where, value=substitute(value, moved))


def _flattened(value: Expr) -> Expr:
    """With flat indices, and the fewest axes in each Fold."""

    def fold(old: Fold) -> Expr:
        axes, moved = _joined(old.axes, _indices(old.value))
        inner = substitute(old.value, moved)
        return Fold(old.dtype, old.operation, axes, inner, old.hint) if axes else inner

    return map_indices(value, lambda index: index, flat=True, folds=fold)


def _joined(
    axes: tuple[Axis, ...], indices: list[Index]
) -> tuple[tuple[Axis, ...], dict[Axis, Index]]:
    """The fewest axes, and what the old ones become: those that every index walks as one join."""
    moved = {axis: Index() for axis in axes if axis.extent == 1}
    looping = [axis for axis in axes if axis.extent != 1]
    runs: list[list[Axis]] = []
    for axis in looping:
        if runs and all(index.walks_as_one(runs[-1][-1], axis) for index in indices):
            runs[-1].append(axis)
        else:
            runs.append([axis])
    joined = []
    for run in runs:
        if len(run) == 1:
            joined += run
            continue
        axis = Axis(math.prod(part.extent for part in run))
        moved |= {part: Index() for part in run[:-1]} | {run[-1]: along(axis)}
        joined.append(axis)
    return tuple(joined), moved


def _indices(*roots: Expr) -> list[Index]:
    found: list[Index] = []
    for node in walk(*roots):
        match node:
            case Load(_, _, indices):
                found.extend(indices)
            case At(_, index):
                found.append(index)
            case Guard(_, bounds):
                found.extend(index for index, _ in bounds)
    return found
