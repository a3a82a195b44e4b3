"""keep_borders: the padding of layers of one shape that take turns in memory is stored once."""

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import onnxc
from onnxc.expression import Buffer
from onnxc.kernel import Program, Routine
from onnxc.passes.keep_borders import keep_borders, stores_nothing
from onnxc.pipeline import compile_model
from tests.kernels.programs import FLOAT, buffer, copy
from tests.models import Array


def chain(layers: int) -> ModelProto:
    """Convolutions 3x3 of one shape, each padded."""
    rng = np.random.default_rng(layers)
    nodes = [
        helper.make_node("Conv", [f"x{n}", "w"], [f"x{n + 1}"], pads=[1] * 4) for n in range(layers)
    ]
    values = [
        helper.make_tensor_value_info(f"x{n}", TensorProto.FLOAT, (1, 4, 10, 10))
        for n in (0, layers)
    ]
    weights = (rng.standard_normal((4, 4, 3, 3)) / 6).astype(np.float32)
    graph = helper.make_graph(
        nodes, "g", values[:1], values[1:], [numpy_helper.from_array(weights, "w")]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def borders(program: Program) -> list[bool]:
    """Of each border whether it still stores something."""
    found = [s for s in program.steps if isinstance(s, Routine) and s.name == "border"]
    return [not stores_nothing(step) for step in found]


def test_two_buffers_take_turns() -> None:
    assert borders(compile_model(chain(6)).program) == [True, True, False, False, False, False]


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
