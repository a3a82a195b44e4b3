"""upgrade: the oldest forms become the newest, with the same meaning."""

from typing import Any

import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from onnxc.errors import ModelError, RefusalError
from onnxc.op import schema_at
from onnxc.passes.infer import infer
from onnxc.passes.load import load
from onnxc.passes.upgrade import upgrade
from onnxc.values import values_of
from tests.models import model

INT32 = TensorProto.INT32


def legacy(
    opset: int, left: tuple[int, ...], right: tuple[int, ...], **attributes: Any
) -> ir.Model:
    node = helper.make_node("Equal", ["a", "b"], ["y"], name="n", **attributes)
    inputs = [
        helper.make_tensor_value_info("a", INT32, left),
        helper.make_tensor_value_info("b", INT32, right),
    ]
    output = helper.make_tensor_value_info("y", TensorProto.BOOL, left)
    return load(model(helper.make_graph([node], "g", inputs, [output]), opset))


@pytest.mark.parametrize(
    ("left", "right", "axis", "aligned"),
    [
        ((2, 3, 4, 5), (2,), 0, (2, 1, 1, 1)),
        ((2, 3, 4, 5), (3, 4), 1, (3, 4, 1)),
        ((2, 3, 4, 5), (3, 4), -3, (3, 4, 1)),
        ((2, 3, 4, 5), (4, 5), 2, (4, 5)),
        ((2, 3, 4, 5), (5,), None, (5,)),
        ((2, 3, 4, 5), (5,), -1, (5,)),
        ((2, 3, 4, 5), (2, 3, 4, 5), None, (2, 3, 4, 5)),
        ((2, 3, 4, 5), (2, 3, 4, 5), 0, (2, 3, 4, 5)),
        ((2, 3), (1,), 0, (1,)),
        ((2, 3), (), None, ()),
        ((2, 3), (1, 1), None, (1, 1)),
    ],
)
def test_legacy_broadcast(
    left: tuple[int, ...], right: tuple[int, ...], axis: int | None, aligned: tuple[int, ...]
) -> None:
    """B's dimensions stand at `axis` of A's: it gets dimensions of 1 after its own."""
    given = {"broadcast": 1} | ({} if axis is None else {"axis": axis})
    found = legacy(6, left, right, **given)
    infer(found)
    *before, node = found.graph
    b = node.inputs[1]
    assert b is not None
    assert b.shape == ir.Shape(aligned)
    assert [extra.op_type for extra in before] == (["Unsqueeze"] if aligned != right else [])
    assert not node.attributes


@pytest.mark.parametrize(
    ("left", "right", "attributes"),
    [
        ((2, 3), (3,), {}),
        ((2, 3), (1,), {"broadcast": 0}),
        ((2, 3), (2,), {"broadcast": 1}),
        ((2, 3), (3,), {"broadcast": 1, "axis": 0}),
        ((2, 3), (3,), {"broadcast": 1, "axis": 2}),
        ((2, 3), (2, 1), {"broadcast": 1, "axis": 0}),
        ((3,), (2, 3), {"broadcast": 1}),
        ((1,), (1, 1), {"broadcast": 1}),
    ],
)
def test_what_legacy_broadcast_does_not_do(
    left: tuple[int, ...], right: tuple[int, ...], attributes: dict[str, int]
) -> None:
    with pytest.raises(ModelError, match=r"node 'n' \(Equal-1\)"):
        infer(legacy(6, left, right, **attributes))


def test_newer_versions_broadcast_by_themselves() -> None:
    found = legacy(7, (2, 3), (3,))
    infer(found)
    assert [node.op_type for node in found.graph] == ["Equal"]


def one_node(operator: str, inputs: list[str], opset: int, **attributes: Any) -> ir.Node:
    node = helper.make_node(operator, inputs, ["y"], name="n", **attributes)
    given = [helper.make_tensor_value_info(name, INT32, [2, 3]) for name in inputs]
    output = helper.make_tensor_value_info("y", INT32, None)
    found = load(model(helper.make_graph([node], "g", given, [output]), opset))
    return next(iter(found.graph))


def test_an_attribute_that_became_an_input_is_a_constant() -> None:
    """By the schemas alone: here Unsqueeze, whose axes moved in version 13."""
    node = one_node("Unsqueeze", ["x"], 11, axes=[0, 3])
    schema = schema_at("", "Unsqueeze", 11)
    assert schema is not None
    assert upgrade(node, schema) == [node]
    x, axes = node.inputs
    assert axes is not None
    assert axes.const_value is not None
    assert values_of(axes.const_value).tolist() == [0, 3]
    assert (axes.dtype, axes.shape) == (ir.DataType.INT64, ir.Shape([2]))
    assert x is not None
    assert not node.attributes


def test_the_newest_form_stays_as_it_is() -> None:
    node = one_node("Equal", ["a", "b"], 19)
    schema = schema_at("", "Equal", 19)
    assert schema is not None
    assert upgrade(node, schema) == [node]
    assert (len(node.inputs), len(node.attributes)) == (2, 0)


def test_a_refusal_says_what_to_do() -> None:
    node = one_node("Equal", ["a", "b"], 6)
    b = node.inputs[1]
    assert b is not None
    b.shape = ir.Shape([3])
    schema = schema_at("", "Equal", 6)
    assert schema is not None
    with pytest.raises(RefusalError, match="broadcast is 0") as caught:
        upgrade(node, schema)
    assert "opset 7" in caught.value.remedy
