"""infer: an If whose condition is known is the branch that it takes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from onnxc.errors import ModelError
from onnxc.passes.check_graph import check_graph
from onnxc.passes.infer import infer
from onnxc.passes.load import load
from onnxc.passes.simplify import simplify
from onnxc.pipeline import evaluate_model
from tests.models import model, stored

FLOAT, BOOL = TensorProto.FLOAT, TensorProto.BOOL
tensor = helper.make_tensor_value_info
X = np.array([-1, 2], np.float32)


def branch(nodes: list[NodeProto], *outputs: str, **constants: np.ndarray) -> GraphProto:
    infos = [helper.make_empty_tensor_value_info(name) for name in outputs]
    data = [stored(name, array) for name, array in constants.items()]
    return helper.make_graph(nodes, "branch", [], infos, data)


def choice(
    then: GraphProto, otherwise: GraphProto, *outputs: str, condition: str = "c", name: str = "if"
) -> NodeProto:
    return helper.make_node(
        "If", [condition], outputs, name=name, then_branch=then, else_branch=otherwise
    )


def chosen(nodes: list[NodeProto], taken: bool | None, *outputs: str) -> ModelProto:
    """With the condition c as a constant, or as an input where `taken` is None."""
    graph = helper.make_graph(
        nodes,
        "g",
        [tensor("x", FLOAT, [2]), *([tensor("c", BOOL, [])] if taken is None else [])],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [] if taken is None else [stored("c", np.array(taken))],
    )
    return model(graph, 21)


def inferred(proto: ModelProto) -> ir.Graph:
    found = load(proto)
    infer(found)
    check_graph(found)
    simplify(found)
    check_graph(found, simplified=True)
    return found.graph


def problems(proto: ModelProto) -> list[str]:
    with pytest.raises(ModelError) as caught:
        inferred(proto)
    return [str(problem) for problem in caught.value.problems]


NEGATE = branch([helper.make_node("Neg", ["x"], ["t"])], "t")
SCALE = branch([helper.make_node("Mul", ["x", "w"], ["t"])], "t", w=np.array([2, 3], np.float32))


@pytest.mark.parametrize(("taken", "wanted"), [(True, [1, -2]), (False, [-2, 6])])
def test_the_branch_taken_stands_in_its_place(taken: bool, wanted: list[float]) -> None:
    """Both use the name t, one a constant of its own."""
    proto = chosen([choice(NEGATE, SCALE, "y")], taken, "y")
    operators = [node.op_type for node in inferred(proto)]
    assert operators == ["Neg" if taken else "Mul", "Identity"]
    assert evaluate_model(proto, {"x": X})["y"].tolist() == wanted


def test_an_unknown_condition_is_not_supported_yet() -> None:
    (line,) = problems(chosen([choice(NEGATE, SCALE, "y")], None, "y"))
    assert line == (
        "node 'if' (If-21): the condition 'c' is known at run time only, and one branch can be "
        "compiled; make it a constant of the model, or export the model without the If"
    )


def test_names_stay_unique() -> None:
    """Two of them with the same names inside."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        choice(NEGATE, SCALE, "a", name="first"),
        choice(SCALE, NEGATE, "b", name="second"),
        helper.make_node("Sum", ["r", "a", "b"], ["y"]),
    ]
    graph = inferred(chosen(nodes, True, "y"))
    names = [value.name for node in graph for value in node.outputs]
    assert names == ["r", "t", "a", "t_2", "b", "y"]
    assert evaluate_model(chosen(nodes, True, "y"), {"x": X})["y"].tolist() == [-1, 6]


def test_nested() -> None:
    """The inner condition is known by folding."""
    inner = branch(
        [
            helper.make_node("Not", ["c"], ["d"]),
            choice(NEGATE, SCALE, "u", condition="d", name="inner"),
        ],
        "u",
    )
    proto = chosen([choice(inner, NEGATE, "y")], True, "y")
    assert evaluate_model(proto, {"x": X})["y"].tolist() == [-2, 6]


def test_results_that_are_constants_and_the_same_twice() -> None:
    taken = branch([helper.make_node("Identity", ["x"], ["u"])], *"uww", w=np.array([5], "f4"))
    other = branch([helper.make_node("Neg", ["x"], [name]) for name in "def"], *"def")
    proto = chosen([choice(taken, other, *"pqr")], True, *"pqr")
    found = evaluate_model(proto, {"x": X})
    assert {name: array.tolist() for name, array in found.items()} == {
        "p": [-1, 2],
        "q": [5],
        "r": [5],
    }


def test_a_result_that_nobody_asks_for() -> None:
    two = branch([helper.make_node("Neg", ["x"], [name]) for name in "ab"], *"ab")
    proto = chosen([choice(two, two, "", "y")], False, "y")
    assert [node.op_type for node in inferred(proto)] == ["Neg", "Identity"]


def test_what_only_the_other_branch_would_need_is_no_problem() -> None:
    """Neither the nodes inside nor those outside that only it reads."""
    bad = branch(
        [
            helper.make_node("Frobnicate", ["x"], ["u"]),
            helper.make_node("Add", ["u", "lost"], ["t"]),
        ],
        "t",
    )
    nodes = [
        helper.make_node("Add", ["x", "three"], ["lost"], name="wrong"),
        choice(NEGATE, bad, "y"),
    ]
    proto = chosen(nodes, True, "y")
    proto.graph.initializer.append(stored("three", np.zeros(3, np.float32)))
    assert [node.op_type for node in inferred(proto)] == ["Neg", "Identity"]


def test_what_the_graph_does_not_need_at_all_is_still_checked() -> None:
    nodes = [
        helper.make_node("Add", ["x", "three"], ["unused"], name="wrong"),
        choice(NEGATE, SCALE, "y"),
    ]
    proto = chosen(nodes, True, "y")
    proto.graph.initializer.append(stored("three", np.zeros(3, np.float32)))
    (line,) = problems(proto)
    assert line.startswith("node 'wrong' (Add-14): ")


def test_problems_inside_the_branch_taken_are_told() -> None:
    bad = branch([helper.make_node("Frobnicate", ["x"], ["t"], name="n")], "t")
    (line,) = problems(chosen([choice(bad, NEGATE, "y")], True, "y"))
    assert line.startswith("node 'n' (Frobnicate-21): ")


def test_a_declaration_outside_holds_for_the_branch() -> None:
    proto = chosen([choice(NEGATE, SCALE, "y")], True, "y")
    proto.graph.output[0].CopyFrom(tensor("y", FLOAT, [3]))
    (line,) = problems(proto)
    assert "output 'y' has shape [2]; the model declares [3]" in line
