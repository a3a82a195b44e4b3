"""What upgrade refuses, whole: the kind of the fault, the fact, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import helper

from onnxc.diagnostics import Kind
from onnxc.errors import RefusalError
from tests.models import Array
from tests.passes.test_upgrade_rules import upgraded

Operands = Sequence[Array | None]


def refused(opset: int, operator: str, inputs: Operands, **named: Any) -> tuple[Kind, str, str]:
    with pytest.raises(RefusalError) as caught:
        upgraded(opset, operator, inputs, **named)
    return caught.value.kind, caught.value.fact, caught.value.remedy


def zeros(*shapes: tuple[int, ...]) -> list[Array]:
    return [np.zeros(shape, np.float32) for shape in shapes]


STATISTICS = zeros((2, 3, 4), (3,), (3,), (3,), (3,))


@pytest.mark.parametrize(
    ("opset", "shapes", "given", "fact", "remedy"),
    [
        (
            6,
            [(2, 3), (3,)],
            {},
            "shapes [2, 3] and [3] differ and broadcast is 0",
            "set broadcast, or re-export with opset 7 or newer",
        ),
        (
            6,
            [(2, 3, 4), (2,)],
            {"broadcast": 1},
            "the shape [2] of B is no run of A's [2, 3, 4] from axis 2 on",
            "re-export with opset 7 or newer",
        ),
        (
            6,
            [(2, 3, 4), (3, 4)],
            {"broadcast": 1, "axis": 2},
            "the shape [3, 4] of B is no run of A's [2, 3, 4] from axis 2 on",
            "re-export with opset 7 or newer",
        ),
        (
            6,
            [(2,), (2, 1)],
            {"broadcast": 1},
            "the shape [2, 1] of B is no run of A's [2] from axis 0 on",
            "re-export with opset 7 or newer",
        ),
    ],
)
def test_shapes_that_did_not_broadcast(
    opset: int, shapes: list[tuple[int, ...]], given: dict[str, Any], fact: str, remedy: str
) -> None:
    wanted = (Kind.SHAPES_DO_NOT_BROADCAST, fact, remedy)
    assert refused(opset, "Add", zeros(*shapes), **given) == wanted


@pytest.mark.parametrize(
    ("opset", "operator", "shapes", "fact", "remedy"),
    [
        (
            7,
            "Sum",
            [(2,), (2,), (1,)],
            "shapes [2] and [1] differ and this version does not broadcast",
            "re-export with opset 8 or newer",
        ),
        (6, "PRelu", [(2, 3, 4), (4,)], "the slope has 4 elements for 3 channels", ""),
        (
            6,
            "Gemm",
            [(2, 3), (3, 4), (4,)],
            "C has shape [4], the product [2, 4], and broadcast is 0",
            "set broadcast, or re-export with opset 7 or newer",
        ),
    ],
)
def test_other_operators_that_did_not_broadcast(
    opset: int, operator: str, shapes: list[tuple[int, ...]], fact: str, remedy: str
) -> None:
    wanted = (Kind.SHAPES_DO_NOT_BROADCAST, fact, remedy)
    assert refused(opset, operator, zeros(*shapes)) == wanted


@pytest.mark.parametrize(
    ("a", "b", "given"),
    [
        ((2, 3), (3, 4), {}),
        ((3, 2), (3, 4), {"transA": 1}),
        ((2, 3), (4, 3), {"transB": 1}),
        ((3, 2), (4, 3), {"transA": 1, "transB": 1}),
    ],
)
def test_a_bias_of_the_shape_of_the_product(
    a: tuple[int, ...], b: tuple[int, ...], given: dict[str, Any]
) -> None:
    assert len(upgraded(6, "Gemm", zeros(a, b, (2, 4)), **given)) == 1
    fact = "C has shape [4, 2], the product [2, 4], and broadcast is 0"
    assert refused(6, "Gemm", zeros(a, b, (4, 2)), **given)[1] == fact
    assert len(upgraded(6, "Gemm", zeros(a, b, (4,)), broadcast=1, **given)) == 1


@pytest.mark.parametrize(
    ("opset", "operator", "shape", "axis", "fact"),
    [
        (11, "Softmax", (2, 3), 2, "axis 2 is not in an input of 2 dimensions"),
        (11, "Softmax", (2, 3), -3, "axis -3 is not in an input of 2 dimensions"),
        (11, "Split", (2, 3), 2, "axis 2 is not in an input of 2 dimensions"),
        (11, "Split", (2, 3), -3, "axis -3 is not in an input of 2 dimensions"),
    ],
)
def test_an_axis_that_is_not_there(
    opset: int, operator: str, shape: tuple[int, ...], axis: int, fact: str
) -> None:
    found = refused(opset, operator, zeros(shape), axis=axis)
    assert found == (Kind.AXIS_OUT_OF_RANGE, fact, "")


@pytest.mark.parametrize("axis", [2, -3])
def test_tiles_of_an_axis_that_is_not_there(axis: int) -> None:
    given = [*zeros((2, 3)), np.array(2, np.float32), np.array(axis, np.float32)]
    fact = f"axis {axis} is not in an input of 2 dimensions"
    assert refused(5, "Tile", given, constants=[1, 2]) == (Kind.AXIS_OUT_OF_RANGE, fact, "")
    given[2] = np.array(-2, np.float32)
    (node,) = upgraded(5, "Tile", given, [1, 2])
    repeats = node.inputs[1]
    assert repeats is not None
    assert repeats.const_value is not None
    assert repeats.const_value.numpy().tolist() == [2, 1]


def test_what_must_be_known() -> None:
    given = [*zeros((2, 3)), np.array(2, np.float32), np.array(0, np.float32)]
    for place, name in (1, "tiles"), (2, "axis"):
        fact = f"input {name} must be known at compile time for this version"
        wanted = (Kind.CONSTANT_REQUIRED, fact, "make it an initializer")
        assert refused(5, "Tile", given, constants=[3 - place]) == wanted


@pytest.mark.parametrize(
    ("is_test", "outputs", "fact", "remedy"),
    [
        (
            0,
            "y",
            "is_test is 0, but no result of training is among the outputs",
            "set is_test to 1",
        ),
        (
            1,
            "y mean",
            "is_test is 1, but the statistics of training are among the outputs",
            "set is_test to 0",
        ),
    ],
)
def test_training_or_not(is_test: int, outputs: str, fact: str, remedy: str) -> None:
    named = {"outputs": outputs.split(), "is_test": is_test, "consumed_inputs": [0] * 5}
    for opset in (1, 6):
        given = named if opset == 1 else {k: v for k, v in named.items() if k != "consumed_inputs"}
        found = refused(opset, "BatchNormalization", STATISTICS, **given)
        assert found == (Kind.TRAINING_MODE, fact, remedy)


def test_statistics_that_are_no_longer_made() -> None:
    outputs = ["y", "mean", "var", "saved_mean"]
    assert refused(9, "BatchNormalization", STATISTICS, outputs=outputs) == (
        Kind.TRAINING_MODE,
        "output saved_mean is not supported",
        "newer versions do not have it",
    )


def test_what_dropped_at_random() -> None:
    for opset in (1, 6):
        assert refused(opset, "Dropout", zeros((2,)), is_test=0) == (
            Kind.TRAINING_MODE,
            "is_test is 0, so that it drops at random",
            "set is_test to 1",
        )


def test_parts() -> None:
    assert refused(1, "Split", zeros((4,)), outputs=["a", "b"]) == (
        Kind.ATTRIBUTE_MISSING,
        "attribute axis is missing",
        "version 1 has no default for it",
    )
    assert refused(11, "Split", zeros((3,)), outputs=["a", "b"]) == (
        Kind.SPLIT_SIZES,
        "3 elements on axis 0 are no 2 equal parts",
        "give split",
    )


def test_groups() -> None:
    def found(groups: int, *shapes: tuple[int, ...]) -> tuple[Kind, str, str]:
        return refused(18, "GroupNormalization", zeros(*shapes), num_groups=groups)

    kind = Kind.CHANNELS_AND_GROUPS
    assert found(4, (1, 6, 2), (4,), (4,)) == (kind, "6 channels are no 4 groups of one size", "")
    assert found(0, (1, 6, 2), (4,), (4,)) == (kind, "6 channels are no 0 groups of one size", "")
    kind = Kind.OPERAND_SHAPE
    assert found(2, (1, 6, 2), (6,), (2,)) == (kind, "scale has shape [6], not [2]", "")
    assert found(2, (1, 6, 2), (2,), (6,)) == (kind, "bias has shape [6], not [2]", "")


@pytest.mark.parametrize(
    ("opset", "operator", "shapes", "given", "wanted"),
    [
        (
            5,
            "Cast",
            [(2,)],
            {"to": "INT65"},
            (Kind.ATTRIBUTE_VALUE, "to is 'INT65', which is no element type", ""),
        ),
        (
            1,
            "GlobalLpPool",
            [(1, 1, 2)],
            {"p": 1.5},
            (Kind.OLD_VERSION, "attribute p is 1.5", "newer versions take integers only"),
        ),
        (
            8,
            "Scan",
            [(1,), (1, 1)],
            {"num_scan_inputs": 1, "body": helper.make_graph([], "b", [], [])},
            (
                Kind.OLD_VERSION,
                "the batched form of version 8 is not supported",
                "re-export with opset 9",
            ),
        ),
        (
            10,
            "QuantizeLinear",
            [(2, 3), (3,)],
            {},
            (
                Kind.OLD_VERSION,
                "y_scale has shape [3], not one element",
                "re-export with opset 13 or newer",
            ),
        ),
        (
            1,
            "Upsample",
            [(1, 2, 3)],
            {"height_scale": 2.0, "width_scale": 2.0},
            (Kind.OLD_VERSION, "this version takes four dimensions only", ""),
        ),
        (
            1,
            "Reshape",
            [(2,)],
            {},
            (Kind.OLD_VERSION, "shape is missing", "newer versions require it"),
        ),
        (
            1,
            "LpPool",
            [(1, 1, 2)],
            {},
            (
                Kind.OLD_VERSION,
                "attribute kernel_shape is missing",
                "newer versions require it",
            ),
        ),
    ],
)
def test_what_newer_versions_cannot_say(
    opset: int,
    operator: str,
    shapes: list[tuple[int, ...]],
    given: dict[str, Any],
    wanted: tuple[Kind, str, str],
) -> None:
    assert refused(opset, operator, zeros(*shapes), **given) == wanted


def test_one_zero_point() -> None:
    given = [*zeros((2, 3), (1,)), np.zeros(3, np.uint8)]
    fact = "y_zero_point has shape [3], not one element"
    wanted = (Kind.OLD_VERSION, fact, "re-export with opset 13 or newer")
    assert refused(10, "QuantizeLinear", given) == wanted


def test_the_attribute_and_the_input() -> None:
    given = [*zeros((2, 3)), np.array([6], np.int64)]
    assert refused(1, "Reshape", given, shape=[6]) == (
        Kind.ATTRIBUTES_CONFLICT,
        "shape is given as attribute and as input",
        "give one of them",
    )


def test_an_operand_that_is_left_out() -> None:
    found = refused(6, "Add", [None, *zeros((2,))])
    assert found == (Kind.OPERAND_LEFT_OUT, "input 0 is left out", "")
