"""keep_borders: the padding of layers of one shape that take turns in memory is stored once."""

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import onnxc
from onnxc.expression import Buffer
from onnxc.kernel import Program, Routine, Step
from onnxc.passes.keep_borders import keep_borders, stores_nothing
from onnxc.pipeline import compile_model
from tests.kernels.programs import FLOAT, INT32, buffer, copy
from tests.models import Array


def chain(layers: int, channels: int = 4) -> ModelProto:
    """Convolutions 3x3 of one shape, each padded."""
    rng = np.random.default_rng(layers)
    nodes = [
        helper.make_node("Conv", [f"x{n}", "w"], [f"x{n + 1}"], pads=[1] * 4) for n in range(layers)
    ]
    values = [
        helper.make_tensor_value_info(f"x{n}", TensorProto.FLOAT, (1, channels, 10, 10))
        for n in (0, layers)
    ]
    weights = (rng.standard_normal((channels, channels, 3, 3)) / 6).astype(np.float32)
    graph = helper.make_graph(
        nodes, "g", values[:1], values[1:], [numpy_helper.from_array(weights, "w")]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def borders(program: Program) -> list[bool]:
    """Of each border whether it still stores something."""
    found = [s for s in program.steps if isinstance(s, Routine) and s.name == "border"]
    return [not stores_nothing(step) for step in found]


def test_two_buffers_take_turns() -> None:
    program = compile_model(chain(6, channels=8)).program
    assert borders(program) == [True, True, False, False, False, False]


def test_the_values_are_the_same() -> None:
    x = np.random.default_rng(0).standard_normal((1, 4, 10, 10)).astype(np.float32)
    source = chain(6)
    fast = onnxc.compile(source).run({"x0": x})["x6"]
    plain: Array = compile_and_run_plain(source, x)
    np.testing.assert_allclose(fast, plain, rtol=1e-5, atol=1e-6)


def compile_and_run_plain(source: ModelProto, x: Array) -> Any:
    from onnxc import evaluate

    program = compile_model(source, plain=True).program
    (given,) = program.inputs
    return evaluate.run(program, {given: x})[program.outputs[0]]


def border(out: Buffer, runs: tuple[tuple[int, int, int, int], ...]) -> Routine:
    parameters = (("batches", 1), ("size", out.elements), ("runs", runs))
    return Routine("border", (), (out,), parameters)


@pytest.mark.parametrize(("between", "kept"), [((0, 16), False), ((64, 16), True)])
def test_what_is_stored_in_between(between: tuple[int, int], kept: bool) -> None:
    """At 0 to 63 are the two padded buffers; another store there destroys the first's zeros."""
    one, two = (buffer(name, "workspace", FLOAT, 1, 4, 4) for name in ("one", "two"))
    source = buffer("x", "input", FLOAT, between[1] // 4)
    other = buffer("other", "workspace", FLOAT, between[1] // 4)
    runs = ((0, 5, 1, 0),)
    steps = (border(one, runs), copy(other, source), border(two, runs))
    offsets = {one: 0, two: 0, other: between[0]}
    program = Program((source,), (), steps, offsets=offsets, workspace_size=128)
    assert borders(keep_borders(program)) == [True, not kept]


ROWS = (1, 4, 4)
RUNS = ((0, 5, 1, 0),)
A, B, C = (buffer(name, "workspace", FLOAT, *ROWS) for name in "abc")
"""Padded, 64 bytes each."""


def kept(places: dict[Buffer, int], *steps: Step) -> list[bool]:
    """Of each border whether its zeros are there already."""
    size = max(offset + b.bytes for b, offset in places.items())
    planned = Program((), (), steps, offsets=places, workspace_size=size)
    after = keep_borders(planned)
    assert [step.writes() for step in after.steps] == [step.writes() for step in steps]
    return [not stores for stores in borders(after)]


def filled(out: Buffer) -> Step:
    """All but the padding."""
    return Routine("fill", (), (out,))


def test_the_same_padding_in_the_same_place() -> None:
    places = {A: 0, B: 0}
    assert kept(places, border(A, RUNS), filled(A), border(B, RUNS)) == [False, True]
    assert kept(places, border(A, RUNS), border(B, ((0, 6, 1, 0),))) == [False, False]
    assert kept({A: 0, B: 64}, border(A, RUNS), border(B, RUNS)) == [False, False]
    assert kept({A: 0, B: 4}, border(A, RUNS), border(B, RUNS)) == [False, False]


def test_padding_of_another_shape_or_type_is_another() -> None:
    turned = buffer("t", "workspace", FLOAT, 4, 4, 1)
    numbers = buffer("n", "workspace", INT32, *ROWS)
    for other in (turned, numbers):
        assert kept({A: 0, other: 0}, border(A, RUNS), border(other, RUNS)) == [False, False]


@pytest.mark.parametrize(("place", "still"), [(0, False), (60, False), (64, True), (128, True)])
def test_what_another_step_stores_there_destroys_it(place: int, still: bool) -> None:
    small = buffer("small", "workspace", FLOAT, 1)
    steps = (border(A, RUNS), filled(small), border(B, RUNS))
    assert kept({A: 0, B: 0, small: place}, *steps) == [False, still]


@pytest.mark.parametrize(("place", "still"), [(4, False), (12, False), (8, False), (0, True)])
def test_what_ends_before_it_leaves_it(place: int, still: bool) -> None:
    small = buffer("small", "workspace", FLOAT, 1)
    steps = (border(A, RUNS), filled(small), border(B, RUNS))
    assert kept({A: 4, B: 4, small: place}, *steps) == [False, still]


def test_another_padded_buffer_over_it_destroys_it() -> None:
    wide = buffer("wide", "workspace", FLOAT, 2, 4, 4)
    steps = (border(A, RUNS), border(wide, RUNS), border(B, RUNS))
    assert kept({A: 0, B: 0, wide: 0}, *steps) == [False, False, False]
    assert kept({A: 0, B: 0, wide: 64}, *steps) == [False, False, True]


def test_padding_is_kept_more_than_once_and_in_several_places() -> None:
    d = buffer("d", "workspace", FLOAT, *ROWS)
    steps = (border(A, RUNS), border(B, RUNS), border(C, RUNS), filled(C), border(d, RUNS))
    assert kept({A: 0, B: 64, C: 0, d: 0}, *steps) == [False, False, True, True]


def test_outputs_are_no_part_of_the_workspace() -> None:
    y = buffer("y", "output", FLOAT, *ROWS)
    assert kept({A: 0, B: 0}, border(A, RUNS), filled(y), border(B, RUNS)) == [False, True]


def test_a_border_stores_nothing_without_runs() -> None:
    assert stores_nothing(border(A, ()))
    assert not stores_nothing(border(A, RUNS))
    assert not stores_nothing(filled(A))
    assert not stores_nothing(copy(A, B))
