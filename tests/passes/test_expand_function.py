"""expand_function: what has no function of its own becomes the body of its schema."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx import ModelProto, helper

from onnxc.errors import ModelError
from onnxc.op import REGISTRY, load_operators, supported
from onnxc.passes.check_graph import check_graph
from onnxc.passes.expand_function import expandable
from onnxc.passes.infer import infer
from onnxc.passes.load import load
from onnxc.pipeline import evaluate_model
from tests.models import Array, declared, model

X = np.array([-2, -0.5, 0, 0.5, 4], np.float32)
# Operators whose bodies are made of the others.
WITHOUT = ("Celu", "CastLike", "HardSwish", "HardSigmoid", "GreaterOrEqual", "Softplus", "Clip")


@pytest.fixture
def bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if these operators had no functions."""
    load_operators()
    for name in WITHOUT:
        monkeypatch.delitem(REGISTRY, ("", name), raising=False)


def of(operator: str, *inputs: Array, name: str = "n", **attributes: Any) -> ModelProto:
    names = [f"x{position}" for position in range(len(inputs))]
    return model(
        helper.make_graph(
            [helper.make_node(operator, names, ["y"], name=name, **attributes)],
            "g",
            [declared(x, array) for x, array in zip(names, inputs, strict=True)],
            [helper.make_empty_tensor_value_info("y")],
        )
    )


def inferred(proto: ModelProto) -> ir.Graph:
    found = load(proto)
    infer(found)
    check_graph(found)
    return found.graph


@pytest.mark.usefixtures("bodies")
def test_attributes_reach_the_body() -> None:
    y = evaluate_model(of("Celu", X, alpha=2.0), {"x0": X})["y"]
    negative = 2 * (np.exp(X.astype(np.float64) / 2) - 1)
    np.testing.assert_allclose(y, np.where(X > 0, X, negative), rtol=1e-6)
    y = evaluate_model(of("Celu", X), {"x0": X})["y"]
    np.testing.assert_allclose(y, np.where(X > 0, X, np.exp(X.astype(float)) - 1), rtol=1e-6)


@pytest.mark.usefixtures("bodies")
def test_bodies_in_bodies() -> None:
    """HardSwish is made of HardSigmoid, that of CastLike, that of Cast."""
    y = evaluate_model(of("HardSwish", X), {"x0": X})["y"]
    np.testing.assert_allclose(y, X * np.clip(X / 6 + 0.5, 0, 1), rtol=1e-6)
    operators = {node.op_type for node in inferred(of("HardSwish", X))}
    assert operators.isdisjoint(WITHOUT)


@pytest.mark.usefixtures("bodies")
def test_a_body_that_depends_on_the_node() -> None:
    """Clip's has no Max where no minimum is given."""
    y = evaluate_model(of("GreaterOrEqual", X, X[::-1].copy()), {"x0": X, "x1": X[::-1]})["y"]
    assert y.tolist() == [False, False, True, True, True]
    graph = inferred(of("Clip", X))
    assert [node.op_type for node in graph] == ["Identity"]


@pytest.mark.usefixtures("bodies")
def test_a_value_that_is_called_as_one_of_the_body_would_be() -> None:
    proto = of("GreaterOrEqual", X, X)
    inner = [value.name or "" for node in inferred(proto) for value in node.outputs]
    proto.graph.node[0].output[0] = proto.graph.output[0].name = inner[0]
    names = [value.name or "" for node in inferred(proto) for value in node.outputs]
    assert names == [f"{inner[0]}_2", *inner[1:-1], inner[0]]


@pytest.mark.usefixtures("bodies")
def test_names_begin_with_that_of_the_node_and_are_unique() -> None:
    proto = of("GreaterOrEqual", X, X)
    again = proto.graph.node.add()
    again.CopyFrom(proto.graph.node[0])
    again.output[0] = "z"
    proto.graph.output.append(helper.make_empty_tensor_value_info("z"))
    graph = inferred(proto)
    names = [value.name or "" for node in graph for value in node.outputs]
    assert len(set(names)) == len(names) == 6
    assert [name for name in names if not name.startswith("n/")] == ["y", "z"]
    assert all((node.name or "").startswith("n/") for node in graph)


@pytest.mark.usefixtures("bodies")
def test_only_a_body_of_supported_operators_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {("", name) for name in WITHOUT} <= expandable()
    assert ("", "HardSwish") in {(domain, name) for domain, name, _ in supported()}
    monkeypatch.delitem(REGISTRY, ("", "Cast"))
    assert ("", "HardSwish") not in expandable()
    with pytest.raises(ModelError) as caught:
        inferred(of("HardSwish", X))
    assert [str(problem) for problem in caught.value.problems] == [
        "node 'n' (HardSwish-22): the operator is not supported yet; see `onnxc ops`"
    ]


def test_no_body_has_control_flow_that_only_the_data_decides() -> None:
    """Range and LinearAttention loop."""
    assert expandable().isdisjoint({("", "Range"), ("", "LinearAttention"), ("", "SequenceMap")})


@pytest.mark.usefixtures("bodies")
def test_types_are_those_of_the_node() -> None:
    x = X.astype(np.float64)
    (y,) = inferred(of("HardSwish", x)).outputs
    assert y.dtype is ir.DataType.DOUBLE


def test_a_body_among_nodes_that_replace_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Softmax of version 11 between two Reshapes, without a function of its own."""
    load_operators()
    monkeypatch.delitem(REGISTRY, ("", "Softmax"))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    proto = of("Softmax", x, axis=0)
    proto.opset_import[0].version = 11
    y = evaluate_model(proto, {"x0": x})["y"]
    power = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(y, power / power.sum(), rtol=1e-6)
