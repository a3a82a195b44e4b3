"""The kernel of LSTM and GRU over all times, against the plain loops that it stands for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

import numpy as np
import pytest

from onnxc.compiled import CompiledModel
from onnxc.dtypes import BOOL
from onnxc.expression import Buffer
from onnxc.kernel import Branch, Loops, Micro, Program, Repeat, every_step
from onnxc.pipeline import Compiled, compile_model, evaluate_model
from onnxc.target import TARGETS
from onnxc.tuned.recurrent import Recurrent, with_recurrent_kernels
from tests.kernels.variants import VARIANTS, flags_of
from tests.models import STRICT, Array
from tests.ops.node_batch import NodeBatch
from tests.toolchains import Tool

GATES: Final = {"LSTM": 4, "GRU": 3}


@dataclass
class Case:
    """One node with constant weights; of the inputs those that are asked for."""

    operator: str
    times: int = 3
    batch: int = 1
    hidden: int = 16
    direction: str = "forward"
    initial: bool = False
    peepholes: bool = False
    bias: bool = True
    layout: int = 0
    outputs: tuple[int, ...] = (0, 1, 2)
    lengths: bool = False
    special: bool = False
    constant: bool = True
    attributes: dict[str, Any] = field(default_factory=dict)

    def add_to(self, batch: NodeBatch) -> None:
        draw = np.random.default_rng(self.hidden + self.batch).standard_normal
        gates, hidden, inputs = GATES[self.operator] * self.hidden, self.hidden, 5
        directions = 2 if self.direction == "bidirectional" else 1
        x = draw((self.times, self.batch, inputs))
        if self.special:
            x[1, 0, 0], x[1, 1, 1], x[2, 2, 2] = np.nan, np.inf, -np.inf
        h, c = (draw((directions, self.batch, hidden)) for _ in "hc")
        y = np.zeros((self.times, directions, self.batch, hidden))
        if self.layout:
            x, h, c = (array.swapaxes(0, 1) for array in (x, h, c))
            y = y.transpose(2, 0, 1, 3)
        states = [h, c] if self.operator == "LSTM" else [h]
        arrays = [
            x,
            draw((directions, gates, inputs)) / np.sqrt(inputs),
            draw((directions, gates, hidden)) / np.sqrt(hidden),
            draw((directions, 2 * gates)) / 4 if self.bias else None,
            np.full(self.batch, self.times, np.int32) if self.lengths else None,
            *(state if self.initial else None for state in states),
            draw((directions, 3 * hidden)) / 2 if self.peepholes else None,
        ]
        while arrays[-1] is None:
            arrays.pop()
        made = [y, *(np.zeros_like(state) for state in states)]
        batch.add_node(
            self.operator,
            [a if a is None or a.dtype == np.int32 else a.astype(np.float32) for a in arrays],
            [a.astype(np.float32) if n in self.outputs else None for n, a in enumerate(made)],
            constants=(1, 2, 3, 7) if self.constant else (),
            hidden_size=hidden,
            direction=self.direction,
            layout=self.layout,
            **self.attributes,
        )


def lbr(*arguments: Any, **keywords: Any) -> Case:
    return replace(Case("GRU", *arguments, **keywords), attributes={"linear_before_reset": 1})


CASES: Final = [
    # Rows that fill tiles and leave some; units that end with a block and do not.
    *(Case("LSTM", 3, batch, hidden) for batch, hidden in ((1, 16), (2, 48), (7, 20), (13, 5))),
    *(Case("GRU", 3, batch, hidden) for batch, hidden in ((1, 64), (2, 100), (7, 83), (9, 16))),
    *(lbr(3, batch, hidden) for batch, hidden in ((1, 37), (2, 32), (9, 33))),
    *(Case(op, 4, 2, 18, direction="reverse", outputs=(0,)) for op in GATES),
    *(Case(op, 4, 3, 33, direction="bidirectional", initial=True, layout=1) for op in GATES),
    *(Case(op, 1, 1, 40, initial=True, outputs=(1,)) for op in GATES),
    Case("LSTM", 3, 2, 19, outputs=(2,), bias=False),
    Case("LSTM", 4, 1, 37, "bidirectional", initial=True, peepholes=True),
    Case("LSTM", 3, 2, 17, peepholes=True, attributes={"clip": 0.5, "input_forget": 1}),
    Case("LSTM", 3, 2, 16, attributes={"activations": ["HardSigmoid", "Softsign", "Elu"]}),
    Case("LSTM", 3, 3, 21, special=True),
    Case("GRU", 3, 2, 17, attributes={"clip": 0.25}),
    Case("GRU", 3, 2, 16, attributes={"activations": ["Softplus", "LeakyRelu"]}),
    Case("GRU", 3, 3, 21, special=True),
    lbr(3, 3, 18, "bidirectional", bias=False),
    lbr(3, 3, 18, special=True),
]


@cache
def every_case() -> tuple[NodeBatch, Compiled, dict[str, Array]]:
    """A model of a node a case, compiled, and what the plain loops give."""
    batch = NodeBatch()
    for case in CASES:
        case.add_to(batch)
    return batch, compile_model(batch.model()), evaluate_model(batch.model(), batch.given)


def assert_near(found: dict[str, Array], wanted: dict[str, Array]) -> None:
    """Within some ulp of what lies near 1, where the functions and the order of sums differ."""
    assert list(found) == list(wanted)
    for name, array in found.items():
        np.testing.assert_allclose(array, wanted[name], rtol=4e-6, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("variant", VARIANTS)
def test_like_the_plain_loops(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batch, compiled, wanted = every_case()
    monkeypatch.setenv("ONNXC_CFLAGS", " ".join([*STRICT, flags_of(variant)]))
    assert_near(CompiledModel(compiled).run(batch.given), wanted)


def test_like_the_plain_loops_without_vectors(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    batch, compiled, wanted = every_case()
    monkeypatch.setenv("CC", tool("tcc"))
    assert_near(CompiledModel(compiled).run(batch.given), wanted)


def kernels(case: Case) -> list[Recurrent]:
    """Of the model of one node; that a direction with a kernel has no loop is checked."""
    batch = NodeBatch()
    case.add_to(batch)
    program = compile_model(batch.model()).program
    micros = [step for step in every_step(program) if isinstance(step, Micro)]
    found = [step.parameters for step in micros if isinstance(step.parameters, Recurrent)]
    loops = [step for step in every_step(program) if isinstance(step, Repeat)]
    directions = 2 if case.direction == "bidirectional" else 1
    assert len(found) + len(loops) == directions
    return found


def test_one_kernel_a_direction() -> None:
    """Which begins where its direction does, and computes only what is wanted."""
    forward, backward = kernels(Case("LSTM", 4, 2, 20, "bidirectional", outputs=(0, 2)))
    assert forward.x_step == -backward.x_step == 2 * 4 * 20
    assert forward.y_step == -backward.y_step == 2 * 2 * 20
    assert forward.outputs == backward.outputs == ("y", "y_c")
    assert forward.initial == ()


@pytest.mark.parametrize(
    "case",
    [
        Case("LSTM", lengths=True),
        Case("LSTM", constant=False),
        Case("GRU", hidden=3),
        Case("GRU", attributes={"activations": ["Sigmoid", "ThresholdedRelu"]}, constant=False),
    ],
)
def test_others_keep_their_loops(case: Case) -> None:
    """Rows of different lengths, weights known only at run time, and next to no work."""
    assert kernels(case) == []


def test_activations_of_two_directions() -> None:
    """Each with its own functions."""
    names = ["Sigmoid", "Tanh", "HardSigmoid", "Relu"]
    forward, backward = kernels(
        Case("GRU", 3, 2, 24, "bidirectional", attributes={"activations": names})
    )
    assert forward.functions != backward.functions


def test_in_a_branch() -> None:
    """Nested programs have kernels too."""
    batch, lowered = NodeBatch(), list[Any]()
    Case("LSTM", 3, 2, 20, outputs=(0,)).add_to(batch)
    compile_model(
        batch.model(), observe=lambda name, made: lowered.append(made) if name == "lower" else None
    )
    condition = Buffer("yes", (), BOOL, "input")
    then = Program(steps=lowered[0].steps)
    branch = Branch(condition, then, Program())
    (found,) = with_recurrent_kernels(Program(steps=(branch,)), TARGETS["generic"]).steps
    assert isinstance(found, Branch)
    inside = [*every_step(found.then)]
    assert [type(step) for step in inside if not isinstance(step, Loops)] == [Micro]
