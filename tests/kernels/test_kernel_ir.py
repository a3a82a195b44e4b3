"""Interning, walks without recursion, and the algebra of indices."""

import gc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxc import expression
from onnxc.dtypes import BY_NAME
from onnxc.expression import (
    Apply,
    At,
    Axis,
    Const,
    Expr,
    Fold,
    Index,
    Load,
    affine,
    along,
    apply,
    at,
    compare,
    load,
)
from onnxc.kernel import Program
from onnxc.tensor import Tensor, compute, elementwise, of_buffer
from onnxc.traversal import map_indices, move, replace_loads, substitute, walk
from tests.kernels.programs import BOOL, FLOAT, INT64, buffer, const, evaluated, over

DEEP = 20_000


def chain(start: Expr, length: int) -> Expr:
    """Every node uses the one before twice: as a tree it would have 2 ** length nodes."""
    value = start
    for _ in range(length):
        value = Apply(BOOL, "equal", (value, value))
    return value


def test_equal_constructions_are_one_object() -> None:
    x, i = buffer("x", "input", FLOAT, 4), Axis(4)
    assert load(x, [along(i)]) is load(x, [along(i)])
    assert load(x, [along(i)]) is not load(x, [along(i) + 1])
    assert load(x, [along(i)]) is not load(buffer("x", "input", FLOAT, 4), [along(i)])
    assert const(1, FLOAT) is const(1, FLOAT)
    assert const(0.0, FLOAT) is not const(-0.0, FLOAT)
    assert const(0, INT64) is not const(0, BY_NAME["uint64"])
    assert at(along(i) * 2) is at(along(i) + along(i))


def test_axes_are_never_equal() -> None:
    assert Axis(3) != Axis(3)
    assert along(Axis(3)) != along(Axis(3))


def test_a_deep_dag_is_built_walked_rewritten_and_freed() -> None:
    gc.collect()
    before = len(expression._interned)
    x, i, j = buffer("x", "input", BOOL, 4), Axis(4), Axis(4)
    deep = chain(load(x, [along(i)]), DEEP)
    assert sum(1 for _ in walk(deep)) == DEEP + 1
    assert substitute(deep, {i: along(j)}) is chain(load(x, [along(j)]), DEEP)
    del deep
    gc.collect()
    assert len(expression._interned) <= before


def test_walk_gives_each_node_once_and_operands_first() -> None:
    x, i = buffer("x", "input", BOOL, 4), Axis(4)
    leaf = load(x, [along(i)])
    root = compare("equal", apply("truth", leaf), leaf)
    assert list(walk(root, leaf)) == [leaf, apply("truth", leaf), root]


def test_walk_can_stay_outside_of_folds() -> None:
    x, i = buffer("x", "input", FLOAT, 4), Axis(4)
    fold = Fold(FLOAT, "sum", (i,), load(x, [along(i)]))
    assert list(walk(fold, inner=False)) == [fold]
    assert len(list(walk(fold))) == 2


def test_an_index_in_a_load_is_walked() -> None:
    x, n = buffer("x", "input", FLOAT, 4), buffer("n", "input", INT64)
    place = load(n, [])
    found = load(x, [affine(0, [], [(place, 1)])])
    assert list(walk(found)) == [place, found]


def test_comparing_a_value_with_itself() -> None:
    """Known for integers and strings; a float may be a NaN. C compilers warn of the former."""
    i = Axis(4)
    for name, known in (("int8", True), ("bool", True), ("string", True), ("float", False)):
        one = load(buffer("x", "input", BY_NAME[name], 4), [along(i)])
        assert isinstance(compare("equal", one, one), Const) is known
    assert compare("equal", const(1, INT64), const(1, INT64)) is const(True, BOOL)


points = st.integers(-3, 3)


@st.composite
def indices(draw: st.DrawFn, axes: tuple[Axis, ...]) -> Index:
    terms = draw(st.lists(st.tuples(st.sampled_from(axes), points), max_size=4))
    return affine(draw(points), terms)


AXES = (Axis(3), Axis(4), Axis(2))


def value_at(index: Index, point: dict[Axis, int]) -> int:
    return index.const + sum(point[axis] * stride for axis, stride in index.terms)


@given(indices(AXES), indices(AXES), points, st.tuples(points, points, points))
def test_index_arithmetic(one: Index, two: Index, factor: int, numbers: tuple[int, ...]) -> None:
    point = dict(zip(AXES, numbers, strict=True))
    a, b = value_at(one, point), value_at(two, point)
    assert value_at(one + two, point) == a + b
    assert value_at(one + factor, point) == a + factor
    assert value_at(one * factor, point) == a * factor
    assert one + two == two + one
    assert one + two == affine((one + two).const, (one + two).terms)


@given(indices(AXES), indices(AXES), st.tuples(points, points, points))
def test_move_is_substitution_at_once(one: Index, two: Index, numbers: tuple[int, ...]) -> None:
    """The axes that come in are not replaced again."""
    point = dict(zip(AXES, numbers, strict=True))
    moved = move(one, {AXES[0]: two})
    assert value_at(moved, point) == value_at(one, point | {AXES[0]: value_at(two, point)})


@given(indices(AXES))
def test_span_is_exact_at_both_ends(index: Index) -> None:
    corners = [
        value_at(index, dict(zip(AXES, (a, b, c), strict=True)))
        for a in range(3)
        for b in range(4)
        for c in range(2)
    ]
    assert index.span() == (min(corners), max(corners))


def test_a_broken_up_loop_walks_as_one() -> None:
    outer, inner = Axis(3), Axis(4)
    assert (along(outer) * 4 + along(inner)).walks_as_one(outer, inner)
    assert (along(outer) * 8 + along(inner) * 2 + 5).walks_as_one(outer, inner)
    assert Index(7).walks_as_one(outer, inner)
    assert not along(inner).walks_as_one(outer, inner)
    assert not (along(outer) + along(inner) * 3).walks_as_one(outer, inner)


def test_map_indices_reaches_every_index() -> None:
    """In loads, in At, in the expressions of dynamic parts, and inside Folds."""
    i, j, k = Axis(4), Axis(4), Axis(2)
    x, n = buffer("x", "input", FLOAT, 9), buffer("n", "input", INT64, 4)

    def tree(axis: Axis) -> Expr:
        place = load(n, [along(axis)])
        inner = load(x, [affine(0, [(axis, 1), (k, 1)], [(place, 1)])])
        return compare("equal", Fold(FLOAT, "sum", (k,), inner), const(1, FLOAT))

    assert substitute(tree(i), {i: along(j)}) is tree(j)
    assert substitute(at(along(i)), {i: along(j)}) is at(along(j))
    assert substitute(tree(i), {}) is tree(i)


def test_flat_indices() -> None:
    """Row-major; what depends on data counts too."""
    i, j = Axis(3), Axis(4)
    x, n = buffer("x", "input", FLOAT, 3, 5, 4), load(buffer("n", "input", INT64), [Index()])
    where = [along(i), affine(1, [], [(n, 1)]), along(j)]
    flat = map_indices(load(x, where), lambda index: index, flat=True)
    assert flat is load(x, [affine(4, [(i, 20), (j, 1)], [(n, 4)])])
    assert map_indices(flat, lambda index: index, flat=True) is flat


def test_replace_loads_in_a_fold() -> None:
    i = Axis(4)
    x, y = (load(buffer(name, "input", FLOAT, 4), [along(i)]) for name in "xy")
    fold = Fold(FLOAT, "max", (i,), x)
    assert replace_loads(fold, {x: y}) is Fold(FLOAT, "max", (i,), y)
    assert replace_loads(fold, {}) is fold


# Lazy tensors.


def test_a_tensor_used_three_times_is_one_node() -> None:
    x = of_buffer(buffer("x", "input", FLOAT, 4))
    one = elementwise(lambda a, b: compare("equal", a, b), x, x)
    two = elementwise(lambda a, b: compare("equal", a, b), x, x)
    three = elementwise(lambda *values: Apply(BOOL, "all", values), one, two, one)
    assert one.value is two.value
    assert [type(node) for node in walk(three.value)] == [Load, Apply, Apply]


def test_views_only_change_indices() -> None:
    """Broadcasting is a stride of 0: an axis without a term."""
    x = of_buffer(buffer("x", "input", FLOAT, 4, 1))
    wide = x.expand((3, 4, 5))
    assert isinstance(wide.value, Load)
    assert wide.value.indices == (along(wide.axes[1]), Index())
    assert x.unsqueeze([0, 3]).shape == (1, 4, 1, 1)


def test_which_buffer_a_tensor_is() -> None:
    store = buffer("x", "input", FLOAT, 4, 4)
    x = of_buffer(store)
    turned = compute((4, 4), lambda i, j: x[[j, i]])
    assert x.buffer is store
    assert turned.buffer is None
    assert compute((4, 4), lambda i, j: turned[[j, i]]).buffer is store
    assert x.expand((2, 4, 4)).buffer is None


def test_tensors_of_one_shape_meet_however_many_shapes_there_are() -> None:
    """Axes are shared by a cache; a tensor whose axes it has dropped is still understood."""
    a = of_buffer(buffer("a", "input", FLOAT, 7))
    for extent in range(1000, 6000):
        of_buffer(buffer("other", "input", FLOAT, extent))
    b = of_buffer(buffer("b", "input", FLOAT, 7))
    same: Tensor = elementwise(lambda p, q: compare("equal", p, q), a, b)
    out = buffer("y", "output", BOOL, 7)
    program = Program((), (out,), (over(out, same.value, *same.axes),))
    inputs = {
        node.buffer: np.arange(7, dtype=np.float32)
        for node in walk(same.value)
        if isinstance(node, Load)
    }
    assert evaluated(program, inputs)[1][out].all()


@pytest.mark.parametrize("kind", [At, Load])
def test_leaves_have_no_operands(kind: type) -> None:
    i = Axis(4)
    leaf = at(along(i)) if kind is At else load(buffer("x", "input", FLOAT, 4), [along(i)])
    assert leaf.operands() == ()


def test_replace_loads_in_an_index() -> None:
    """What takes a load's place is not looked into again."""
    i = Axis(4)
    n, m = (load(buffer(name, "input", INT64, 4), [along(i)]) for name in "nm")
    x = buffer("x", "input", FLOAT, 9)
    found = replace_loads(load(x, [affine(0, [], [(n, 2)])]), {n: m, m: n})
    assert found is load(x, [affine(0, [], [(m, 2)])])
