"""in_place: an operand is overwritten only where nothing that is still to be read gets lost.

Small kernels are run point by point with the operand and the result in one memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from onnxc.check_plan import check_plan
from onnxc.expression import Axis, Buffer, Fold, Index, Load, affine, along, load
from onnxc.kernel import Loops, Program
from onnxc.passes.in_place import overwritable
from onnxc.traversal import walk
from tests.kernels.programs import FLOAT, buffer

A, B = buffer("a", "workspace", FLOAT, 12), buffer("b", "workspace", FLOAT, 12)
AXES = (Axis(3), Axis(4), Axis(2))


def loses_data(step: Loops, operand: Buffer) -> bool:
    """Whether some point reads an element after it, or another point, has been stored over."""
    folded = [n for n in walk(step.value) if isinstance(n, Fold)]
    inner = tuple(axis for fold in folded for axis in fold.axes)
    loads = [n for n in walk(step.value) if isinstance(n, Load) and n.buffer is operand]
    destroyed: set[int] = set()
    for point in points(step.axes):
        for place in points(inner):
            if any(value(one.flat, point | place) in destroyed for one in loads):
                return True
        destroyed.add(value(step.where[0], point))
    return False


def points(axes: tuple[Axis, ...]) -> Iterator[dict[Axis, int]]:
    for numbers in itertools.product(*(range(axis.extent) for axis in axes)):
        yield dict(zip(axes, numbers, strict=True))


def value(index: Index, point: dict[Axis, int]) -> int:
    return index.const + sum(stride * point[axis] for axis, stride in index.terms)


@st.composite
def kernels(draw: st.DrawFn) -> Loops:
    """Of one to three loops in any order, that load twice or fold; all indices are in range."""
    axes = tuple(draw(st.permutations(AXES))[: draw(st.integers(1, 3))])

    def index(*more: Axis) -> Index:
        strides = [(axis, draw(st.integers(-4, 12))) for axis in (*axes, *more)]
        free = affine(0, strides)
        least, _ = free.span() or (0, 0)
        return free + (draw(st.integers(0, 3)) - least)

    row_major = affine(0, zip(axes, [12, 4, 1][-len(axes) :], strict=True))
    where = draw(st.sampled_from([row_major, index()]))
    inner = Axis(2)
    body = Fold(FLOAT, "sum", (inner,), load(A, [draw(st.just(where)) + along(inner)]))
    loads = [load(A, [draw(st.sampled_from([where, where + 1, index()]))]) for _ in range(2)]
    result = draw(st.sampled_from([loads[0] + loads[1], loads[0] * 2.0, loads[0], body]))
    return Loops(B, (where,), axes, result)


@given(kernels())
def test_random_kernels(step: Loops) -> None:
    if A in overwritable(step):
        assert not loses_data(step, A)


@given(kernels())
def test_the_checker_agrees(step: Loops) -> None:
    """It has a proof of its own: a plan that puts both at 0 is refused, or nothing gets lost."""
    size = max(A.bytes, B.bytes)
    plan = Program((), (), (step,), offsets={A: 0, B: 0}, workspace_size=size)
    try:
        check_plan(plan)
    except AssertionError:
        assert A not in overwritable(step)
    else:
        assert not loses_data(step, A)
