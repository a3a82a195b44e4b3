"""Random graphs of many nodes: fused, realised, in C and in numpy, they give the same."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from onnx import GraphProto, ModelProto, helper

from onnxc.dtypes import BY_NAME
from onnxc.pipeline import evaluate_model
from tests.models import Array, any_bits, assert_same, declared, model, run, stored

EXTENTS = (2, 3, 5)
TYPES = ["bool", "int64", "float", "string"]


@dataclass
class Drawn:
    """A graph, what it is given, and what each of its values is by numpy."""

    graph: GraphProto = field(default_factory=lambda: GraphProto(name="drawn"))
    given: dict[str, Array] = field(default_factory=dict)
    values: dict[str, Array] = field(default_factory=dict)

    def add(self, operator: str, inputs: list[str], value: Array) -> None:
        name = f"v{len(self.values)}"
        self.graph.node.append(helper.make_node(operator, inputs, [name]))
        self.values[name] = value

    def model(self) -> ModelProto:
        return model(self.graph)

    @property
    def wanted(self) -> dict[str, Array]:
        return {value.name: self.values[value.name] for value in self.graph.output}


@st.composite
def shapes(draw: st.DrawFn) -> tuple[int, ...]:
    """All of these broadcast with each other: counted from the end, an extent is fixed or 1."""
    rank = draw(st.integers(0, len(EXTENTS)))
    return tuple(draw(st.sampled_from((1, extent))) for extent in EXTENTS[len(EXTENTS) - rank :])


@st.composite
def graphs(draw: st.DrawFn) -> Drawn:
    drawn = Drawn()
    for number in range(draw(st.integers(1, 6))):
        name = f"x{number}"
        x = any_bits(BY_NAME[draw(st.sampled_from(TYPES))], *draw(shapes()))
        drawn.values[name] = x
        if draw(st.booleans()):
            drawn.graph.initializer.append(stored(name, x))
        else:
            drawn.graph.input.append(declared(name, x))
            drawn.given[name] = x
    drawn.graph.initializer.append(stored("front", np.array([0])))
    for _ in range(draw(st.integers(1, 60))):
        add_node(draw, drawn)
    names = draw(st.lists(st.sampled_from(sorted(drawn.values)), min_size=1, unique=True))
    drawn.graph.output.extend(declared(name, drawn.values[name]) for name in names)
    return drawn


def add_node(draw: st.DrawFn, drawn: Drawn) -> None:
    """A node that reads old or, more often, new values; most are Equal."""
    names = list(drawn.values)
    recent = st.sampled_from(names[-4:]) | st.sampled_from(names)
    first = draw(recent)
    x = drawn.values[first]
    match draw(st.sampled_from(["Equal"] * 6 + ["Identity", "Identity", "Size", "Unsqueeze"])):
        case "Equal":
            second = draw(recent.filter(lambda name: drawn.values[name].dtype == x.dtype))
            with np.errstate(invalid="ignore"):
                value = np.asarray(x == drawn.values[second], np.bool_)
            drawn.add("Equal", [first, second], value)
        case "Identity":
            drawn.add("Identity", [first], x)
        case "Size":
            drawn.add("Size", [first], np.array(x.size))
        case "Unsqueeze" if x.ndim < 8:
            drawn.add("Unsqueeze", [first, "front"], x[None])


@given(graphs())
@settings(max_examples=60)
def test_in_numpy(drawn: Drawn) -> None:
    assert_same(evaluate_model(drawn.model(), drawn.given), drawn.wanted)


@pytest.mark.usefixtures("strict_c")
@given(graphs())
@settings(max_examples=10, phases=(Phase.generate,))  # to shrink would take minutes
def test_in_c(drawn: Drawn) -> None:
    for plain in (False, True):
        assert_same(run(drawn.model(), drawn.given, plain=plain), drawn.wanted)
