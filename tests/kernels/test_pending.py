"""Steps that operators ask for: which run, in which order, and in which buffers."""

from __future__ import annotations

import numpy as np

from onnxc.evaluate import constant_value
from onnxc.expression import Axis, Buffer, Expr, along, load
from onnxc.kernel import (
    Branch,
    Loops,
    Program,
    Repeat,
    Routine,
    Step,
    define,
    pending,
    relocate,
)
from onnxc.tensor import Tensor, compute, dynamic, elementwise, of_buffer
from tests.kernels.programs import (
    BOOL,
    FLOAT,
    INT64,
    buffer,
    const,
    constant,
    copy,
    evaluated,
    over,
)


def workspace(name: str, *shape: int) -> Buffer:
    return buffer(name, "workspace", FLOAT, *shape)


def fills(out: Buffer, *sources: Buffer) -> Loops:
    """out = the sum of the sources."""
    axes = tuple(map(Axis, out.shape))
    value: Expr = const(1, FLOAT)
    for source in sources:
        value = value + load(source, map(along, axes))
    return over(out, value, *axes)


def names(steps: list[Step]) -> list[str]:
    return [step.writes()[0].name for step in steps]


X = buffer("x", "input", FLOAT, 4)


def test_what_a_step_reads_comes_before_it() -> None:
    a, b, c = (workspace(name, 4) for name in "abc")
    for step in (fills(c, b), fills(b, a), fills(a, X)):
        define((step,))
    assert names(list(pending(copy(workspace("y", 4), c)))) == ["a", "b", "c"]


def test_each_once_though_read_twice() -> None:
    """A diamond, and a long ladder of them that would take for ever as a tree."""
    a, b, c, d = (workspace(name, 4) for name in "abcd")
    for step in (fills(a, X), fills(b, a), fills(c, a), fills(d, b, c)):
        define((step,))
    found = list(pending(copy(workspace("y", 4), d)))
    assert names(found) == ["a", "b", "c", "d"]
    last = d
    for number in range(3000):
        following = workspace(f"n{number}", 4)
        define((fills(following, last, last, a),))
        last = following
    assert len(list(pending(copy(workspace("y", 4), last)))) == 3004


def test_what_was_defined_together_stays_together() -> None:
    """In its order, after what any of it reads; whichever of its buffers is asked for."""
    a, b, c, other = (workspace(name, 4) for name in ("a", "b", "c", "other"))
    define((fills(other, X),))
    define((fills(a), fills(b, a, other), Loops(a, (), (), const(0, FLOAT), accumulate="add")))
    define((fills(c, b),))
    y = workspace("y", 4)
    for step in (copy(y, a), copy(y, b)):
        assert names(list(pending(step))) == ["other", "a", "b", "a"]
    assert names(list(pending(copy(y, c)))) == ["other", "a", "b", "a", "c"]
    assert names(list(pending(copy(y, a), copy(y, c)))) == ["other", "a", "b", "a", "c"]


def test_what_is_done_is_not_done_again() -> None:
    a, b, c = (workspace(name, 4) for name in "abc")
    one, two, three = fills(a, X), fills(b, a), fills(c, b)
    for step in (one, two, three):
        define((step,))
    last = copy(workspace("y", 4), c)
    assert list(pending(last, done={one, two})) == [three]
    assert list(pending(last, done={three})) == []


def test_what_nothing_reads_is_not_needed() -> None:
    a, b = workspace("a", 4), workspace("b", 4)
    define((fills(a, X),))
    define((fills(b, X),))
    assert names(list(pending(copy(workspace("y", 4), b)))) == ["b"]
    assert list(pending(copy(workspace("y", 4), X))) == []


def test_what_nested_programs_read_is_needed() -> None:
    a, b, state = (workspace(name, 4) for name in ("a", "b", "state"))
    flag = Buffer("flag", (), BOOL, "input")
    define((fills(a, X),))
    define((fills(state, a),))
    body, count = Program(steps=(fills(b, state, a),)), constant(np.asarray(3), INT64)
    repeat = Repeat(count, None, None, body, ((state, b),))
    branch = Branch(flag, Program(steps=(copy(b, a),)), Program(steps=(copy(b, X),)))
    assert names(list(pending(repeat))) == ["a", "state"]
    assert names(list(pending(branch))) == ["a"]


def test_folding_runs_the_steps_that_a_value_needs() -> None:
    """And knows a value that depends on the input through a stored one."""
    w = of_buffer(constant(np.array([1, 2, 3], np.float32), FLOAT))
    twice = elementwise(lambda a: a + a, w).stored()
    again = elementwise(lambda a, b: a * b, twice, twice).stored()
    found = constant_value(elementwise(lambda a: a + 1, again))
    assert found is not None
    assert found.tolist() == [5, 17, 37]
    x: Tensor = of_buffer(buffer("x", "input", FLOAT, 3))
    assert constant_value(elementwise(lambda a, b: a + b, again, x.stored())) is None


# Other buffers in place of those that a step names.


def test_relocate_changes_what_is_read_and_written() -> None:
    a, b, c, d = (workspace(name, 4) for name in "abcd")
    moved = relocate(fills(b, a, X), {a: c, b: d})
    assert moved.writes() == (d,)
    assert set(moved.reads()) == {c, X}
    same = fills(b, a)
    assert relocate(same, {c: d}) is same
    assert relocate(same, {}) is same


def test_relocate_to_another_shape_of_as_many_elements() -> None:
    """The place and the loads become flat."""
    a, b = workspace("a", 2, 3), workspace("b", 2, 3)
    wide, flat = buffer("y", "output", FLOAT, 3, 2), constant(np.arange(6, dtype=np.float32), FLOAT)
    step = relocate(fills(b, a), {a: flat, b: wide})
    assert isinstance(step, Loops)
    assert len(step.where) == 1
    program = Program((), (wide,), (step,))
    assert evaluated(program, {})[1][wide].reshape(-1).tolist() == [1, 2, 3, 4, 5, 6]


def test_relocate_reaches_run_time_places_guards_and_nested_programs() -> None:
    n, m = buffer("n", "workspace", INT64), buffer("m", "workspace", INT64)
    a, b, c = (workspace(name, 4) for name in "abc")
    place = dynamic(load(n, ()))
    inner = Loops(a, (place,), (), load(b, [place]), accumulate="add")
    places = {n: m, a: c}
    moved = relocate(inner, places)
    assert set(moved.reads()) == {m, b, c}
    program = Program(steps=(inner,))
    flag, count = Buffer("flag", (), BOOL, "workspace"), Buffer("count", (), INT64, "workspace")
    repeat = Repeat(count, flag, n, program, ((a, b),))
    moved = relocate(repeat, {**places, count: m, flag: FLAG})
    assert isinstance(moved, Repeat)
    assert (moved.count, moved.condition, moved.counter) == (m, FLAG, m)
    assert moved.carried == ((c, b),)
    assert moved.body.writes() == (c,)
    branch = relocate(Branch(flag, program, Program()), {flag: FLAG, **places})
    assert isinstance(branch, Branch)
    assert branch.condition is FLAG
    assert branch.then.writes() == (c,)
    routine = relocate(Routine("sort", (a,), (b,), (), (n,)), places)
    assert isinstance(routine, Routine)
    assert (routine.inputs, routine.outputs, routine.scratch) == ((c,), (b,), (m,))


FLAG = Buffer("f", (), BOOL, "input")


def test_one_buffer_for_two_readers() -> None:
    """A stored value that two results read is computed once, and first."""
    x = of_buffer(X)
    shared = elementwise(lambda a: a * a, x).stored()
    one = elementwise(lambda a: a + 1, shared)
    other = compute((4,), lambda i: shared[[i * -1 + 3]])
    y, z = buffer("y", "output", FLOAT, 4), buffer("z", "output", FLOAT, 4)
    steps = [over(out, t.value, *t.axes) for out, t in ((y, one), (z, other))]
    before = list(pending(*steps))
    assert len(before) == 1
    program = Program((X,), (y, z), (*before, *steps))
    found = evaluated(program, {X: np.array([1, 2, 3, 4], np.float32)})[1]
    assert (found[y].tolist(), found[z].tolist()) == ([2, 5, 10, 17], [16, 9, 4, 1])
