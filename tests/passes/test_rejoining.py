"""A value whose readers all lead to one node gets no buffer: that node computes it too."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import TensorProto, helper

from onnxc.passes.infer import infer
from onnxc.passes.load import load
from onnxc.passes.rejoining import rejoins
from onnxc.pipeline import compile_model
from tests.malformed import parse
from tests.models import model, stored

FLOAT = TensorProto.FLOAT
Node = tuple[str, list[str], str]


def kernels(nodes: list[Node], outputs: list[str]) -> list[list[str]]:
    """Of h = x w, then `nodes` as (operator, inputs, output): the operators of each kernel."""
    shape = [16, 16]
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["h"]),
            *(helper.make_node(operator, reads, [made]) for operator, reads, made in nodes),
        ],
        "g",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_tensor_value_info(name, FLOAT, shape) for name in outputs],
        [
            stored("w", np.ones(shape, np.float32)),
            stored("half", np.array(0.5, np.float32)),
            stored("root", np.array(2**0.5, np.float32)),
            stored("one", np.array(1, np.float32)),
        ],
    )
    steps = compile_model(model(graph)).program.steps
    return [[origin.operator.partition("-")[0] for origin in step.origins] for step in steps]


SWISH: list[Node] = [("Sigmoid", ["h"], "s"), ("Mul", ["h", "s"], "y")]
GELU: list[Node] = [
    ("Div", ["h", "root"], "a"),
    ("Erf", ["a"], "b"),
    ("Add", ["b", "one"], "c"),
    ("Mul", ["h", "c"], "d"),
    ("Mul", ["d", "half"], "y"),
]
MISH: list[Node] = [
    ("Softplus", ["h"], "s"),
    ("Tanh", ["s"], "t"),
    ("Mul", ["h", "t"], "y"),
]


@pytest.mark.parametrize("nodes", [SWISH, GELU, MISH], ids=["x sigmoid(x)", "Gelu", "Mish"])
def test_one_kernel_where_all_readers_meet(nodes: list[Node]) -> None:
    assert kernels(nodes, ["y"]) == [["MatMul", *(operator for operator, _, _ in nodes)]]


def test_a_value_that_leaves_on_the_way() -> None:
    """The sums would be computed for each output."""
    (product, *others) = kernels(SWISH, ["s", "y"])
    assert product == ["MatMul"]
    assert len(others) == 2


def test_readers_that_do_not_meet() -> None:
    product, *others = kernels([("Sigmoid", ["h"], "s"), ("Tanh", ["h"], "y")], ["s", "y"])
    assert product == ["MatMul"]
    assert sorted(others) == [["Sigmoid"], ["Tanh"]]


def test_a_reader_of_other_elements() -> None:
    """A row's largest element needs the whole row."""
    nodes: list[Node] = [("Softmax", ["h"], "s"), ("Mul", ["h", "s"], "y")]
    assert kernels(nodes, ["y"])[0] == ["MatMul"]


def test_one_reader_of_two_reads_other_elements() -> None:
    nodes: list[Node] = [
        ("Sigmoid", ["h"], "s"),
        ("Softmax", ["h"], "t"),
        ("Mul", ["s", "t"], "y"),
    ]
    assert kernels(nodes, ["y"])[0] == ["MatMul"]


def test_two_readers_whose_results_meet() -> None:
    nodes: list[Node] = [("Sigmoid", ["h"], "s"), ("Tanh", ["h"], "t"), ("Mul", ["s", "t"], "y")]
    assert kernels(nodes, ["y"]) == [["MatMul", "Sigmoid", "Tanh", "Mul"]]


@pytest.mark.parametrize(("length", "together"), [(5, True), (6, False)])
def test_readers_meet_after_few_nodes(length: int, together: bool) -> None:
    """Six nodes, with the one where they meet."""
    names = ["h", *(f"a{n}" for n in range(length))]
    nodes: list[Node] = [("Neg", [one], other) for one, other in itertools.pairwise(names)]
    nodes.append(("Mul", ["h", names[-1]], "y"))
    assert (len(kernels(nodes, ["y"])) == 1) == together


@pytest.mark.parametrize(
    ("nodes", "found"),
    [
        ("s = Sigmoid(h) t = Neg(h) y = Mul(s, t)", True),
        ("s = Sigmoid(h) t = Add(h, z) y = Mul(s, t)", False),
        ("s = Sigmoid(h) t = Transpose(h) u = Transpose(t) y = Mul(s, u)", False),
        ("s = Softmax(h) y = Mul(h, s)", False),
        ("s, t = Split <axis = 0, num_outputs = 2> (h) y = Concat <axis = 0> (s, t)", False),
        ("y = Neg(h)", True),
        ("s = Add(h, z) y = Neg(s)", False),
    ],
)
def test_where_all_readers_lead(nodes: str, found: bool) -> None:
    """Element by element, in one shape."""
    kind = "float[4, 2, 3]" if "z" in nodes else "float[2, 3]"
    text = f"g (float[2, 3] x, float[4, 2, 3] z) => ({kind} y) {{ h = Exp(x) {nodes} }}"
    graph = load(parse(text))
    infer(graph)
    positions = {node: number for number, node in enumerate(graph.graph)}
    assert rejoins(next(iter(graph.graph)).outputs[0], positions.__getitem__) == found
