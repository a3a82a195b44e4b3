"""What is known of the values that windows read: only of positive ones are the bits compared."""

from __future__ import annotations

import itertools
from typing import Any, Final

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, helper

from onnxc.kernel import Micro
from onnxc.pipeline import compile_model
from tests.models import declared, model, stored

SIDE: Final = 12
CHANNELS: Final = 32


def node(operator: str, *inputs: str, to: str, **attributes: Any) -> NodeProto:
    return helper.make_node(operator, inputs, [to], **attributes)


def network(*between: NodeProto, source: str = "m") -> ModelProto:
    """Two convolutions of x, c and d, what is between them and the pool, and one after it."""
    pool = node("MaxPool", source, to="p", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    nodes = [node("Conv", "x", "w", to="c"), node("Conv", "x", "w", to="d"), *between, pool]
    nodes.append(node("Conv", "p", "v", to="y"))
    x = np.empty((1, 4, SIDE, SIDE), np.float32)
    graph = helper.make_graph(nodes, "g", [declared("x", x)], [])
    graph.output.append(helper.make_tensor_value_info("y", 1, None))
    channels = 2 * CHANNELS if any(n.op_type == "Concat" for n in between) else CHANNELS
    arrays = {
        "w": np.ones((CHANNELS, 4, 1, 1)),
        "v": np.ones((8, channels, 1, 1)),
        "zero": np.array(0.0),
        "below": np.array(-1.0),
        "minus": np.array(-0.0),
        "six": np.array(6.0),
    }
    graph.initializer.extend(stored(n, a.astype(np.float32)) for n, a in arrays.items())
    return model(graph)


def positive(source: ModelProto) -> bool:
    """Of the one pool."""
    steps = compile_model(source).program.steps
    micros = (step for step in steps if isinstance(step, Micro) and step.name == "pool_windows")
    (pool,) = micros
    return bool(pool.parameters.positive)


RELU = node("Relu", "c", to="m")
JOINED = node("Concat", "a", "b", to="m", axis=1)
KNOWN = {
    "a Relu": (RELU,),
    "between zero and six": (node("Clip", "c", "zero", "six", to="m"),),
    "at most six of a Relu": (node("Relu", "c", to="a"), node("Min", "a", "six", to="m")),
    "the greater of a Relu and any": (node("Relu", "c", to="a"), node("Max", "a", "d", to="m")),
    "Relus joined": (node("Relu", "c", to="a"), node("Relu", "d", to="b"), JOINED),
}
UNKNOWN = {
    "any sum": (node("Add", "c", "d", to="m"),),
    "from minus one": (node("Clip", "c", "below", "six", to="m"),),
    "minus zero": (node("Max", "c", "minus", to="m"),),
    "the lesser of a Relu and any": (node("Relu", "c", to="a"), node("Min", "a", "d", to="m")),
    "a Relu and any joined": (node("Relu", "c", to="a"), node("Identity", "d", to="b"), JOINED),
    "what follows a Relu": (node("Relu", "c", to="a"), node("Sub", "a", "six", to="m")),
}


@pytest.mark.parametrize("name", KNOWN)
def test_no_value_is_below_zero(name: str) -> None:
    assert positive(network(*KNOWN[name]))


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_value_may_be_below_zero(name: str) -> None:
    assert not positive(network(*UNKNOWN[name]))


def test_a_long_chain_needs_no_stack() -> None:
    """Of values each of which tells what the next one is."""
    names = [f"n{i}" for i in range(1500)]
    lesser = [node("Min", a, "d", to=b) for a, b in itertools.pairwise(names)]
    relu = node("Relu", "c", to=names[0])
    assert not positive(network(relu, *lesser, source=names[-1]))
    assert positive(network(relu, *lesser, node("Max", names[-1], "zero", to="m")))


def test_plain_builds_have_plain_loops() -> None:
    steps = compile_model(network(RELU), plain=True).program.steps
    assert not any(isinstance(step, Micro) for step in steps)
