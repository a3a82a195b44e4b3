"""RNN, GRU and LSTM against their equations, row by row and time by time in double."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.models import refusal
from tests.ops.node_batch import NodeBatch
from tests.ops.run_time import assert_status, one_node

Array = NDArray[Any]
TIMES, ROWS, INPUTS, HIDDEN = 4, 3, 2, 3
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
# Hand-written, without a word of onnxc's.
FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "Tanh": np.tanh,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Relu": lambda x: np.maximum(x, 0),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Softplus": lambda x: np.log1p(np.exp(x)),
    "HardSigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "Elu": lambda x: np.where(x < 0, np.expm1(x), x),
    "LeakyRelu": lambda x: np.where(x < 0, 0.01 * x, x),
}
USUAL = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}


@dataclass
class Case:
    """The inputs of one node in layout 0, and its attributes."""

    operator: str
    direction: str = "forward"
    lengths: list[int] | None = None
    initial: bool = False
    peepholes: bool = False
    bias: bool = True
    activations: list[str] | None = None
    clip: float | None = None
    linear_before_reset: int = 0
    input_forget: int = 0
    layout: int = 0

    def __post_init__(self) -> None:
        draw = np.random.default_rng(1).standard_normal
        gates = GATES[self.operator]
        self.directions = 2 if self.direction == "bidirectional" else 1
        self.x = draw((TIMES, ROWS, INPUTS))
        self.w = draw((self.directions, gates * HIDDEN, INPUTS))
        self.r = draw((self.directions, gates * HIDDEN, HIDDEN))
        self.b = draw((self.directions, 2 * gates * HIDDEN)) * self.bias
        self.h = draw((self.directions, ROWS, HIDDEN)) * self.initial
        self.c = draw((self.directions, ROWS, HIDDEN)) * self.initial
        self.p = draw((self.directions, 3 * HIDDEN)) * self.peepholes

    def expected(self) -> list[Array]:
        y = np.zeros((TIMES, self.directions, ROWS, HIDDEN))
        last = [self.h.copy(), self.c.copy()]
        for d in range(self.directions):
            backward = self.direction == "reverse" or d == 1
            for row in range(ROWS):
                length = TIMES if self.lengths is None else self.lengths[row]
                times = range(length)[::-1] if backward else range(length)
                h, c = self.h[d, row], self.c[d, row]
                for time in times:
                    h, c = self.cell(d, self.x[time, row], h, c)
                    y[time, d, row] = h
                last[0][d, row], last[1][d, row] = h, c
        return [y, *last[: 2 if self.operator == "LSTM" else 1]]

    def cell(self, d: int, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        """One time of one row: the new state and cell state."""
        names = self.activations or USUAL[self.operator] * self.directions
        count = len(USUAL[self.operator])
        f, *others = (self.clipped(name) for name in names[d * count : (d + 1) * count])
        gates = GATES[self.operator]
        w, r = self.w[d].reshape(gates, HIDDEN, -1), self.r[d].reshape(gates, HIDDEN, -1)
        wb, rb = self.b[d].reshape(2, gates, HIDDEN)
        inner = [w[n] @ x + wb[n] for n in range(gates)]
        outer = [r[n] @ h + rb[n] for n in range(gates)]
        if self.operator == "RNN":
            return f(inner[0] + outer[0]), c
        if self.operator == "GRU":
            z, reset = f(inner[0] + outer[0]), f(inner[1] + outer[1])
            left = reset * outer[2] if self.linear_before_reset else r[2] @ (reset * h) + rb[2]
            return (1 - z) * others[0](inner[2] + left) + z * h, c
        pi, po, pf = self.p[d].reshape(3, HIDDEN)
        i = f(inner[0] + outer[0] + pi * c)
        forget = 1 - i if self.input_forget else f(inner[2] + outer[2] + pf * c)
        new = forget * c + i * others[0](inner[3] + outer[3])
        o = f(inner[1] + outer[1] + po * new)
        # The clip is for the gates: engines agree that the cell state goes in whole.
        return o * FUNCTIONS[names[d * count + 2]](new), new

    def clipped(self, name: str) -> Callable[[Array], Array]:
        limit = np.inf if self.clip is None else self.clip
        return lambda x: FUNCTIONS[name](np.clip(x, -limit, limit))

    def add_to(self, batch: NodeBatch, dtype: type = np.float32) -> None:
        """With what is not asked for left out."""
        lengths = None if self.lengths is None else np.array(self.lengths, np.int32)
        states = [self.h, self.c] if self.operator == "LSTM" else [self.h]
        arrays = [self.x, self.w, self.r, self.b if self.bias else None]
        extra = [self.p if self.peepholes else None] if self.operator == "LSTM" else []
        initial = [state if self.initial else None for state in states]
        outputs = self.expected()
        if self.layout:
            turned = [None if s is None else s.transpose(1, 0, 2) for s in initial]
            arrays[0], initial = self.x.transpose(1, 0, 2), turned
            outputs = [
                outputs[0].transpose(2, 0, 1, 3),
                *(o.transpose(1, 0, 2) for o in outputs[1:]),
            ]
        inputs: list[Array | None]
        inputs = [None if a is None else a.astype(dtype) for a in (*arrays, *initial, *extra)]
        inputs.insert(4, lengths)
        while inputs[-1] is None:
            del inputs[-1]
        attributes: dict[str, Any] = {"hidden_size": HIDDEN, "direction": self.direction}
        attributes |= {"clip": self.clip} if self.clip is not None else {}
        attributes |= {"activations": self.activations} if self.activations else {}
        attributes |= {"layout": self.layout} if self.layout else {}
        if self.operator == "GRU":
            attributes["linear_before_reset"] = self.linear_before_reset
        if self.operator == "LSTM":
            attributes["input_forget"] = self.input_forget
        batch.add_node(self.operator, inputs, [o.astype(dtype) for o in outputs], **attributes)


DIRECTIONS = ("forward", "reverse", "bidirectional")
LENGTHS = (None, [4, 2, 1], [0, 3, 4])


@pytest.mark.parametrize("operator", GATES)
def test_directions_lengths_and_states(operator: str) -> None:
    """A row that has ended keeps its state, gives zeros, and is reversed within its length."""
    batch = NodeBatch()
    for direction in DIRECTIONS:
        for lengths in LENGTHS:
            for initial in (False, True):
                Case(operator, direction, lengths, initial).add_to(batch)
    batch.check_within(4, 1e-5)


@pytest.mark.parametrize("operator", GATES)
def test_layout_clip_and_bias(operator: str) -> None:
    batch = NodeBatch()
    for direction in DIRECTIONS:
        Case(operator, direction, [4, 2, 1], True, layout=1).add_to(batch)
        Case(operator, direction, clip=0.3).add_to(batch)
        Case(operator, direction, bias=False).add_to(batch)
    batch.check_within(4, 1e-5)


def test_activations() -> None:
    """By name in any case, for each direction its own."""
    batch = NodeBatch()
    for name in FUNCTIONS:
        Case("RNN", activations=[name]).add_to(batch)
    Case("RNN", "bidirectional", activations=["Relu", "Softsign"]).add_to(batch)
    Case("GRU", activations=["HardSigmoid", "Elu"]).add_to(batch)
    Case("LSTM", activations=["HardSigmoid", "Softsign", "Softplus"]).add_to(batch)
    Case("LSTM", "reverse", activations=["Sigmoid", "LeakyRelu", "Tanh"]).add_to(batch)
    batch.check_within(4, 1e-4)


def test_options_of_gru_and_lstm() -> None:
    batch = NodeBatch()
    for direction in DIRECTIONS:
        Case("GRU", direction, [4, 2, 1], True, linear_before_reset=1).add_to(batch)
        Case("GRU", direction, linear_before_reset=1, bias=False).add_to(batch)
        Case("LSTM", direction, [4, 2, 1], True, peepholes=True).add_to(batch)
        Case("LSTM", direction, input_forget=1, peepholes=True, clip=0.5).add_to(batch)
    batch.check_within(4, 1e-5)


@pytest.mark.parametrize("operator", GATES)
def test_double_and_half(operator: str) -> None:
    batch = NodeBatch()
    Case(operator, "bidirectional", [4, 2, 1], True).add_to(batch, np.float64)
    batch.check_within(4, 1e-13)
    batch = NodeBatch()
    Case(operator, "bidirectional", [4, 2, 1], True).add_to(batch, np.float16)
    batch.check_within(2, 5e-3)


def test_alpha_and_beta_go_to_the_functions_that_take_them() -> None:
    """Tanh takes none, so that the first alpha is Affine's and the first beta too."""
    x = np.array([[[0.25]], [[1.0]]], np.float32)
    one = np.ones((1, 1, 1), np.float32)
    h, y = 0.0, []
    for value in (0.25, 1.0):
        h = 2 * (value + h) + 0.5
        y.append(h)
    output = np.array(y, np.float32).reshape(2, 1, 1, 1)
    attributes: dict[str, Any] = {
        "activations": ["Affine"],
        "activation_alpha": [2.0],
        "activation_beta": [0.5],
    }
    one_node("RNN", [x, one, one], output, hidden_size=1, **attributes).check_within(0)


def test_no_times_and_no_rows() -> None:
    """The last state is the initial one."""
    batch = NodeBatch()
    w, h = np.ones((1, 2, 3), np.float32), np.full((1, 2, 2), 5, np.float32)
    r = np.ones((1, 2, 2), np.float32)
    x = np.zeros((0, 2, 3), np.float32)
    inputs = [x, w, r, None, None, h]
    batch.add_node("RNN", inputs, [np.zeros((0, 1, 2, 2), np.float32), h], hidden_size=2)
    x, h = np.zeros((4, 0, 3), np.float32), np.zeros((1, 0, 2), np.float32)
    batch.add_node("RNN", [x, w, r], [np.zeros((4, 1, 0, 2), np.float32), h], hidden_size=2)
    batch.check_within(0)


def test_a_length_beyond_the_times() -> None:
    x, w = np.ones((2, 2, 1), np.float32), np.ones((1, 1, 1), np.float32)
    lengths, y = np.array([1, 3], np.int32), np.zeros((2, 1, 2, 1), np.float32)
    batch = one_node("RNN", [x, w, w, None, lengths], y, hidden_size=1)
    assert_status("VALUE_OUT_OF_RANGE", batch)


@pytest.mark.parametrize(
    ("attributes", "fact"),
    [
        ({"direction": "sideways"}, "direction is 'sideways'"),
        ({"activations": ["Sine"]}, "activation 'Sine' is not known"),
        ({"activations": ["Tanh"] * 3}, "has 3 activations for 1 directions"),
        ({"hidden_size": 7}, "hidden_size is 7 but R is for 1"),
    ],
)
def test_refused(attributes: dict[str, Any], fact: str) -> None:
    x, w = np.ones((2, 2, 1), np.float32), np.ones((1, 1, 1), np.float32)
    y = np.zeros((2, 1, 2, attributes.get("hidden_size", 1)), np.float32)
    batch = one_node("RNN", [x, w, w], y, **attributes)
    assert fact in refusal(batch.model())[0]
