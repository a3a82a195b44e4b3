"""merge_axes: the fewest loops, flat indices, the same values."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxc.expression import Axis, Fold, Index, Load, along, at, compare, load
from onnxc.kernel import Loops, Program
from onnxc.passes.merge_axes import merge_axes
from onnxc.tensor import elementwise, of_buffer
from onnxc.traversal import walk
from tests.kernels.programs import (
    BOOL,
    FLOAT,
    INT64,
    assert_same_bits,
    buffer,
    evaluated,
    over,
)
from tests.kernels.strategies import Case, cases


def equal(*shapes: tuple[int, ...]) -> Program:
    inputs = [buffer(f"x{n}", "input", FLOAT, *shape) for n, shape in enumerate(shapes)]
    result = elementwise(lambda a, b: compare("equal", a, b), *map(of_buffer, inputs))
    y = buffer("y", "output", BOOL, *result.shape)
    loops = Loops(y, tuple(map(along, result.axes)), result.axes, result.value)
    return Program(tuple(inputs), (y,), (loops,))


def merged(program: Program) -> Loops:
    (step,) = merge_axes(program).steps
    assert isinstance(step, Loops)
    return step


def strides(loops: Loops) -> list[tuple[int, ...]]:
    """Of each load, one a loop."""
    loads = [node for node in walk(loops.value) if isinstance(node, Load)]
    return [tuple(node.flat.stride(axis) for axis in loops.axes) for node in loads]


@pytest.mark.parametrize(
    ("left", "right", "loops", "walks"),
    [
        ((2, 3, 4), (2, 3, 4), (24,), [(1,), (1,)]),
        ((2, 3, 4), (1, 2, 3, 4), (24,), [(1,), (1,)]),
        ((2, 3, 4), (), (24,), [(1,), (0,)]),
        ((2, 3, 4), (4,), (6, 4), [(4, 1), (0, 1)]),
        ((2, 3, 4), (3, 4), (2, 12), [(12, 1), (0, 1)]),
        ((2, 3, 4), (2, 1, 1), (2, 12), [(12, 1), (1, 0)]),
        ((2, 3, 4), (2, 1, 4), (2, 3, 4), [(12, 4, 1), (4, 0, 1)]),
        ((3, 1, 5), (4, 1), (3, 4, 5), [(5, 0, 1), (0, 1, 0)]),
        ((6, 1, 1, 1), (1, 4, 5), (6, 20), [(1, 0), (0, 1)]),
        ((1, 1), (1,), (), [(), ()]),
        ((), (), (), [(), ()]),
        ((2, 1, 3, 1, 2, 1, 1, 2), (2, 1, 3, 1, 2, 1, 1, 2), (24,), [(1,), (1,)]),
    ],
)
def test_known_cases(
    left: tuple[int, ...],
    right: tuple[int, ...],
    loops: tuple[int, ...],
    walks: list[tuple[int, ...]],
) -> None:
    found = merged(equal(left, right))
    assert tuple(axis.extent for axis in found.axes) == loops
    assert strides(found) == walks
    assert len(found.where) == 1


def test_views_stop_what_they_break() -> None:
    """A transposed read keeps both loops, a flipped one only needs its start."""
    i, j = Axis(3), Axis(4)
    x, y = buffer("x", "input", FLOAT, 4, 3), buffer("y", "output", FLOAT, 3, 4)
    turned = merged(Program((x,), (y,), (over(y, load(x, [along(j), along(i)]), i, j),)))
    assert strides(turned) == [(1, 3)]
    z = buffer("z", "input", FLOAT, 3, 4)
    back = load(z, [along(i) * -1 + 2, along(j) * -1 + 3])
    assert strides(merged(Program((z,), (y,), (over(y, back, i, j),)))) == [(-1,)]


def test_every_index_counts() -> None:
    """Those of At, of expressions inside indices, and those in Folds."""
    i, j, k = Axis(3), Axis(4), Axis(2)
    y = buffer("y", "output", INT64, 3, 4)
    assert len(merged(Program((), (y,), (over(y, at(along(i) * 4 + along(j)), i, j),))).axes) == 1
    assert len(merged(Program((), (y,), (over(y, at(along(j)), i, j),))).axes) == 2
    n, x = buffer("n", "input", INT64, 4), buffer("x", "input", INT64, 9)
    place = Index(0, (), ((load(n, [along(j)]), 1),))
    assert len(merged(Program((n, x), (y,), (over(y, load(x, [place]), i, j),))).axes) == 2
    part = buffer("part", "input", INT64, 3, 2)
    value = Fold(INT64, "sum", (k,), load(part, [along(i), along(k)]))
    assert len(merged(Program((part,), (y,), (over(y, value, i, j),))).axes) == 2


@given(cases())
@settings(max_examples=100)
def test_the_values_stay(case: Case) -> None:
    program = case.program
    (status, before), (changed, after) = (
        evaluated(p, case.inputs) for p in (program, merge_axes(program))
    )
    assert status == changed
    assert_same_bits(after[program.outputs[0]], before[program.outputs[0]])


shapes = st.lists(st.sampled_from([1, 2, 3]), max_size=6)


@given(shapes, st.data())
def test_broadcasts_keep_their_values_and_neighbours_always_differ(
    shape: list[int], data: st.DataObject
) -> None:
    """No pair of loops is left that could be one."""
    flags = data.draw(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=len(shape)))
    one, two = (
        tuple(extent if flag[side] else 1 for extent, flag in zip(shape, flags, strict=False))
        for side in (0, 1)
    )
    program = equal(one, two)
    inputs = {
        b: (np.arange(math.prod(b.shape), dtype=np.float32) % 3).reshape(b.shape)
        for b in program.inputs
    }
    found = merged(program)
    (_, before), (_, after) = (evaluated(p, inputs) for p in (program, merge_axes(program)))
    assert_same_bits(after[program.outputs[0]], before[program.outputs[0]])
    x, z = inputs.values()
    assert (before[program.outputs[0]] == (x == z)).all()
    indices = [node.flat for node in walk(found.value) if isinstance(node, Load)]
    for outer, inner in zip(found.axes, found.axes[1:], strict=False):
        assert not all(index.walks_as_one(outer, inner) for index in indices)
