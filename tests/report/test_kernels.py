"""The numbers of kernels, and what is said of those in control flow."""

from __future__ import annotations

import numpy as np
import onnx

from onnxc.dtypes import BOOL, FLOAT, INT64
from onnxc.expression import Axis, Buffer, along, apply, load
from onnxc.kernel import Branch, Loops, Program, Repeat, Routine, every_step
from onnxc.kernel_numbers import numbered
from onnxc.passes.keep_borders import stores_nothing
from onnxc.pipeline import compile_model, planned
from onnxc.report.facts import memory_facts
from onnxc.report.kernels import kernels_of
from onnxc.report.tensors import lives, numbered_tensors
from tests.models import model, stored


def workspace(name: str) -> Buffer:
    return Buffer(name, (8,), FLOAT, "workspace")


def step(operation: str, source: Buffer, out: Buffer) -> Loops:
    """out[i] = operation(source[i])"""
    axis = Axis(8)
    value = apply(operation, load(source, (along(axis),)))
    return Loops(out, (along(axis),), (axis,), value)


def branching() -> Program:
    """a = -x; c ? b = exp(a) : b = sqrt(a); d = abs(b); five times e = -d, d = e; y = abs(d)."""
    x, y = Buffer("x", (8,), FLOAT, "input"), Buffer("y", (8,), FLOAT, "output")
    condition = Buffer("c", (), BOOL, "input")
    a, b, d, e = map(workspace, "abde")
    five = Buffer("", (), INT64, "constant", np.array(5))
    return Program(
        (x, condition),
        (y,),
        (
            step("neg", x, a),
            Branch(
                condition,
                Program(steps=(step("exp", a, b),)),
                Program(steps=(step("sqrt", a, b),)),
            ),
            step("abs", b, d),
            Repeat(five, None, None, Program(steps=(step("neg", d, e),)), ((d, e),)),
            step("abs", d, y),
        ),
    )


def test_control_flow_has_a_number_before_what_is_inside() -> None:
    program = planned(branching())
    found = kernels_of(program)
    assert [k.kind for k in found] == [
        *("loops", "branch", "loops", "loops", "loops", "repeat", "loops", "loops")
    ]
    assert [k.inside for k in found] == [None, None, 1, 1, None, None, 5, None]
    assert [k.repeats for k in found] == [1, 1, 1, 1, 1, 1, 5, 1]
    assert [k.number for k in found] == [*range(8)]
    assert [k.step for k in found] == [*every_step(program)]


def test_what_a_branch_reads_and_makes() -> None:
    program = planned(branching())
    kernels = kernels_of(program)
    tensors = numbered_tensors(program, ())
    found = {buffer.name: life for buffer, life in lives(kernels, tensors).items()}
    assert found["c"].readers == [1]
    assert (found["a"].first, found["a"].last) == (0, 3)
    assert found["b"].writers == [2, 3]
    assert (found["b"].first, found["b"].last) == (2, 4)
    assert (found["d"].writers, found["d"].readers) == ([4, 6], [6, 7])  # in place
    assert (found["d"].first, found["d"].last) == (4, 7)
    live = memory_facts(program, kernels, tensors)["live"]
    assert live[1] == max(live[2], live[3])
    assert live[5] == live[6]


def test_a_border_that_is_there_already_has_no_number() -> None:
    graph = onnx.parser.parse_graph("""
        m (float[1, 16, 20, 20] x) => (float[1, 16, 20, 20] y) {
            a = Conv<pads = [1, 1, 1, 1]>(x, w)
            b = Conv<pads = [1, 1, 1, 1]>(a, w)
            c = Conv<pads = [1, 1, 1, 1]>(b, w)
            d = Conv<pads = [1, 1, 1, 1]>(c, w)
            y = Conv<pads = [1, 1, 1, 1]>(d, w)
        }
    """)
    weights = np.random.default_rng(6).standard_normal((16, 16, 3, 3), np.float32)
    graph.initializer.append(stored("w", weights))
    program = compile_model(model(graph)).program
    borders = [s for s in program.steps if isinstance(s, Routine) and s.name == "border"]
    kept = [border for border in borders if stores_nothing(border)]
    assert kept
    numbers = numbered(program)
    assert len(numbers) == len(program.steps) - len(kept)
    assert not any(border in numbers for border in kept)
    assert [*numbers.values()] == [*range(len(numbers))]
