"""dump: one line a kernel, a value and a step of control flow."""

import numpy as np

from onnxc.dump import dump
from onnxc.expression import Axis, Checked, Fold, Index, along, at, compare, load
from onnxc.kernel import Branch, Origin, Program, Repeat
from onnxc.passes.plan_memory import plan_memory
from onnxc.status import Status
from tests.kernels.programs import BOOL, FLOAT, INT64, buffer, const, constant, copy, over


def test_a_kernel() -> None:
    x, n, y = (
        buffer("x", "input", FLOAT, 3, 5),
        buffer("n", "input", BOOL),
        buffer("y", "output", FLOAT, 3),
    )
    i, k = Axis(3), Axis(5)
    place = Index(1, (), ((load(n, []), 1),))
    value = load(x, [place, along(k)])
    checked = Checked(FLOAT, value, compare("equal", value, const(2, FLOAT)), Status(2))
    step = over(y, Fold(FLOAT, "sum", (k,), checked), i)
    step = type(step)(step.out, step.where, step.axes, step.value, (Origin("Sum-1", "s", "x"),))
    lines = dump(Program((x, n), (y,), (step,))).splitlines()
    assert [line.strip() for line in lines[3:]] == [
        "for i0 < 3:  # Sum-1 's': x",
        "v3 = equal(x[n[]*1 + 1, i1*1], float:00000040)",
        "v4 = x[n[]*1 + 1, i1*1] if v3 else INDEX_OUT_OF_RANGE",
        "v5 = sum over i1 of v4",
        "y[i0*1] = v5",
    ]


def test_control_flow_and_places() -> None:
    flag, y = buffer("flag", "input", BOOL), buffer("y", "output", INT64, 2)
    state, other, round_ = (
        buffer("state", "workspace", INT64, 2),
        buffer("", "workspace", INT64, 2),
        buffer("round", "workspace", INT64),
    )
    three = constant(np.asarray(3, np.int64), INT64)
    i = Axis(2)
    loop = Repeat(
        three, None, round_, Program(steps=(over(other, at(along(i)), i),)), ((state, other),)
    )
    branch = Branch(flag, Program(steps=(copy(y, state),)), Program(steps=(copy(y, other),)))
    program = Program((flag,), (y,), (copy(state, other), loop, branch))
    text = dump(plan_memory(program))
    assert "workspace state: " in text
    assert " at 16" in text
    assert "counted by round:" in text
    assert "    state becomes %" in text
    assert "\nif flag:\n    for" in text
    assert "\nelse:\n    for" in text
