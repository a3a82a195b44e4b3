"""check_graph: each rule of a graph that passes rely on."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir
import pytest

from onnxc.passes.check_graph import InvalidGraphError, check_graph
from onnxc.passes.infer import infer
from onnxc.passes.load import load
from tests.malformed import parse


def sound() -> ir.Model:
    found = load(parse("g (float[2] x) => (float[2] y) { [a] t = Neg(x) [b] y = Relu(t) }"))
    infer(found)
    return found


def test_a_sound_graph() -> None:
    check_graph(sound())
    check_graph(sound(), simplified=True)


def values(model: ir.Model) -> dict[str, ir.Value]:
    return {str(value.name): value for node in model.graph for value in node.outputs}


def no_shape(model: ir.Model) -> None:
    values(model)["t"].shape = None


def open_shape(model: ir.Model) -> None:
    values(model)["t"].shape = ir.Shape(["N"])


def no_type(model: ir.Model) -> None:
    model.graph.inputs[0].type = None


def same_name(model: ir.Model) -> None:
    values(model)["t"].name = "x"


def wrong_order(model: ir.Model) -> None:
    first, second = model.graph
    model.graph.remove(first)
    model.graph.insert_after(second, first)


def wrong_constant(model: ir.Model) -> None:
    values(model)["t"].const_value = ir.tensor([1.0, 2.0, 3.0])


def unknown_operator(model: ir.Model) -> None:
    next(iter(model.graph)).op_type = "Frobnicate"


def impossible_version(model: ir.Model) -> None:
    next(iter(model.graph)).op_type = "HardSwish"
    next(iter(model.graph)).version = 1


@pytest.mark.parametrize(
    ("spoil", "fact"),
    [
        (no_shape, "Neg 'a': 't' has no type or no static shape"),
        (open_shape, "Neg 'a': 't' has no type or no static shape"),
        (no_type, "input: 'x' has no type or no static shape"),
        (same_name, "Neg 'a': another value is called 'x' as well"),
        (wrong_order, "Relu 'b': reads 't' before it is made"),
        (wrong_constant, r"Neg 'a': the constant of 't' is FLOAT\[3\]"),
        (unknown_operator, "Frobnicate 'a': there is no function for it"),
        (impossible_version, "HardSwish 'a': it has no version 1"),
    ],
)
def test_what_is_wrong(spoil: Callable[[ir.Model], None], fact: str) -> None:
    model = sound()
    spoil(model)
    with pytest.raises(InvalidGraphError, match=fact):
        check_graph(model)


def test_nodes_that_nothing_needs() -> None:
    text = "g (float[2] x) => (float[2] y) { [a] t = Neg(x) [b] y = Relu(x) }"
    found = load(parse(text))
    infer(found)
    check_graph(found)
    with pytest.raises(InvalidGraphError, match="Neg 'a': nothing needs it"):
        check_graph(found, simplified=True)
