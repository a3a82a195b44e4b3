"""fixable: the inputs that decide a value, and what to try for each of them."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import pytest

from onnxc.diagnostics import Kind
from onnxc.errors import Problem
from onnxc.passes import fixable
from onnxc.passes.fix import Fix
from onnxc.passes.fixable import FixProblem, with_inputs
from onnxc.passes.load import load
from tests.malformed import parse

Candidates = dict[str, tuple[Fix, ...]]
PROBLEM = Problem(
    Kind.CONSTANT_REQUIRED, "node 'n'", "it must be known", "a remedy", "its operands"
)


def value_of(graph: ir.Graph, name: str) -> ir.Value:
    made = [value for node in graph for value in node.outputs]
    return next(v for v in (*graph.inputs, *graph.initializers.values(), *made) if v.name == name)


def candidates(text: str, *late: str, lengths: Sequence[int] = ()) -> Candidates | None:
    """By input what to try, so that the `late` values are known; None where nothing is proposed."""
    graph = load(parse(text)).graph
    found = with_inputs(PROBLEM, [value_of(graph, name) for name in late], lengths)
    if not isinstance(found, FixProblem):
        assert found is PROBLEM
        return None
    kept = (found.kind, found.where, found.fact, found.remedy, found.operands, found.python)
    wanted = (PROBLEM.kind, PROBLEM.where, PROBLEM.fact, PROBLEM.remedy, PROBLEM.operands)
    assert kept == (*wanted, PROBLEM.remedy)
    return dict(found.candidates)


def given(kind: str) -> Candidates | None:
    """Where an input of a type is needed itself."""
    return candidates(f"g ({kind} s, float[2] x) => (float[2] y) {{ y = Foo(x, s) }}", "s")


@pytest.mark.parametrize(
    ("kind", "tried"),
    [
        ("int64", (1, 0)),
        ("int64[1]", (1, 0)),
        ("int64[2]", (1, [-1, 1], 0)),
        ("int32[2, 2]", (1, [-1, 1, 1, 1], 0)),
        ("uint8", (1, 0)),
        ("bool", (False, True)),
        ("float", (1.0, 0.0)),
        ("float[4]", (1.0, 0.0)),
        ("int64[16]", (1, [-1, *[1] * 15], 0)),
    ],
)
def test_values_of_the_type(kind: str, tried: tuple[Fix, ...]) -> None:
    found = given(kind)
    assert found == {"s": tried}
    assert [type(value) for value in found["s"]] == [type(value) for value in tried]


@pytest.mark.parametrize("kind", ["int64[17]", "int64[0]", "string", "int64[N]", "float[17]"])
def test_what_nobody_would_write_on_a_command_line(kind: str) -> None:
    assert given(kind) is None


def test_a_shape_is_tried_where_it_has_as_many_elements() -> None:
    text = "g (int64[2] s, float[12] x) => (float[2, 6] y) { y = Reshape(x, s) }"
    assert candidates(text, "s", lengths=[2, 6]) == {"s": (1, [2, 6], [-1, 1], 0)}
    assert candidates(text, "s", lengths=[12]) == {"s": (1, [-1, 1], 0)}
    text = "g (float[2] s, float[12] x) => (float[2, 6] y) { y = Resize(x, s) }"
    assert candidates(text, "s", lengths=[2, 6]) == {"s": (1.0, 0.0)}
    text = "g (int64[1] s, float[12] x) => (float[6] y) { y = Foo(x, s) }"
    assert candidates(text, "s", lengths=[6]) == {"s": (1, 0)}


def test_constants_on_the_way_are_tried_first() -> None:
    """Those of the input's type, that have one element."""
    text = """g (int64 rate) => (bool c)
    <int64 a = {16000}, int32 b = {8}, int64[2] two = {5, 6}, int64[1] last = {7}>
    { d = Foo(rate, a) e = Foo(d, b) f = Foo(e, two) c = Foo(f, last) }"""
    found = candidates(text, "c")
    assert found is not None
    assert found["rate"] in ((7, 16000, 1, 0), (16000, 7, 1, 0))


def test_all_inputs_that_decide_it() -> None:
    text = "g (int64 a, bool b, float[9] x) => (bool c) { d = Foo(a, b) c = Foo(d, a) }"
    assert candidates(text, "c") == {"a": (1, 0), "b": (False, True)}
    assert candidates(text, "c", "b") == {"a": (1, 0), "b": (False, True)}


def test_data_is_nothing_to_fix() -> None:
    """Of floats only one, or those that are asked for themselves."""
    text = "g (float[2] x, int64 a) => (bool c) { c = Foo(x, a) }"
    assert candidates(text, "c") is None
    assert candidates(text, "x") == {"x": (1.0, 0.0)}
    assert candidates("g (float x) => (bool c) { c = Foo(x) }", "c") == {"x": (1.0, 0.0)}


def test_a_shape_depends_on_no_data() -> None:
    text = "g (float[20] x, int64 a) => (bool c) { s = Shape(x) n = Size(x) c = Foo(s, n, a) }"
    assert candidates(text, "c") == {"a": (1, 0)}
    assert candidates("g (float[20] x) => (int64[1] s) { s = Shape(x) }", "s") is None


def test_not_too_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixable, "MAX_NODES", 1)
    nodes = "b = Foo(a) c = Foo(b)"
    assert candidates(f"g (int64 a) => (bool c) {{ {nodes} }}", "c") == {"a": (1, 0)}
    assert candidates(f"g (int64 a) => (bool d) {{ {nodes} d = Foo(c) }}", "d") is None
