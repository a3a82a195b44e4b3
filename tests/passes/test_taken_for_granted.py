"""taken_for_granted: what onnx's inference would end the process for, or find nonsense."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest

from onnxc.diagnostics import Kind
from onnxc.errors import RefusalError
from onnxc.passes.taken_for_granted import check_taken_for_granted
from tests.passes.test_infer_sizes import node


def fault(found: ir.Node) -> tuple[Kind, str, str] | None:
    try:
        check_taken_for_granted(found)
    except RefusalError as error:
        return error.kind, error.fact, error.remedy
    return None


def split(shape: tuple[int, ...], outputs: int, **attributes: Any) -> tuple[Kind, str, str] | None:
    return fault(node("Split", [shape], outputs, **attributes))


def test_as_many_parts_as_outputs() -> None:
    assert split((4,), 2, num_outputs=2) is None
    assert split((4,), 2) is None
    fact = "num_outputs is 3, and there are 2 outputs"
    assert split((4,), 2, num_outputs=3) == (Kind.SPLIT_SIZES, fact, "")


@pytest.mark.parametrize("axis", [1, -1])
def test_parts_of_a_few_elements(axis: int) -> None:
    assert split((9, 5), 3, num_outputs=3, axis=axis) is None
    assert split((9, 2), 3, num_outputs=3, axis=axis) is None
    fact = "[1, 1, 1, -1] are no 4 parts of 2 elements"
    wanted = (Kind.SPLIT_SIZES, fact, "give a size for each output")
    assert split((9, 2), 4, num_outputs=4, axis=axis) == wanted
    assert split((2,), 4, num_outputs=4) == wanted
    assert split((2,), 4) is None


def test_parts_of_what_is_not_known_are_not_counted() -> None:
    found = node("Split", [(2,)], 4, num_outputs=4)
    value = found.inputs[0]
    assert value is not None
    for shape in (ir.Shape(["N"]), None):
        value.shape = shape
        assert fault(found) is None
    assert fault(node("Split", [(9, 2)], 4, num_outputs=4, axis=2)) is None
    assert fault(node("Split", [(9, 2)], 4, num_outputs=4, axis=-3)) is None


@pytest.mark.parametrize("operator", ["LayerNormalization", "RMSNormalization"])
@pytest.mark.parametrize(("axis", "right"), [(1, True), (-2, True), (2, False), (-3, False)])
def test_the_first_axis_of_a_normalisation(operator: str, axis: int, right: bool) -> None:
    found = fault(node(operator, [(2, 3), (3,)], axis=axis))
    fact = f"axis {axis} is not in a tensor of 2 dimensions"
    assert found == (None if right else (Kind.AXIS_OUT_OF_RANGE, fact, ""))
    assert fault(node(operator, [(2, 3), (3,)])) is None
    assert fault(node("Softmax", [(2, 3)], axis=axis)) is None


@pytest.mark.parametrize(
    ("batch", "shapes", "right"),
    [
        (0, [(2, 3), (1,)], True),
        (1, [(2, 3), (2, 1)], True),
        (1, [(2, 3), (1,)], False),
        (1, [(2,), (2, 1)], False),
        (-1, [(2, 3), (2, 1)], False),
    ],
)
def test_batches_that_are_gathered_from(
    batch: int, shapes: list[tuple[int, ...]], right: bool
) -> None:
    ranks = [len(shape) for shape in shapes]
    fact = f"batch_dims is {batch} for tensors of {ranks} dimensions"
    found = fault(node("GatherND", shapes, batch_dims=batch))
    assert found == (None if right else (Kind.ATTRIBUTE_VALUE, fact, ""))


def test_operands_that_are_not_there_are_not_counted() -> None:
    assert fault(node("GatherND", [(2, 3)], batch_dims=1)) is None
    assert fault(ir.Node("", "LayerNormalization", [None])) is None


def test_operators_of_others_are_not_looked_at() -> None:
    values = node("Split", [(4,)]).inputs
    given = ir.convenience.convert_attributes({"num_outputs": 3})
    assert fault(ir.Node("own", "Split", values, given)) is None
