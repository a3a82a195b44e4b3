"""Unsqueeze: the same elements under a shape with more dimensions of 1."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from onnxc.dtypes import ELEMENT_TYPES, ElementType
from onnxc.pipeline import compile_model
from tests.models import Array, Batch, any_bits, model, refusal, run, stored

FLOAT = ELEMENT_TYPES[0]

# Shape, axes; the axes are positions in the result, in any order.
CASES: list[tuple[tuple[int, ...], list[int]]] = [
    ((), [0]),
    ((), [0, 1]),
    ((3,), [0]),
    ((3,), [1]),
    ((3,), [-1]),
    ((3, 4, 5), [0, 4]),
    ((3, 4, 5), [4, 2, 5]),
    ((3, 4, 5), [-1, 0]),
    ((3, 4, 5), [2, 1]),
    ((3, 4, 5), []),
    ((0, 2), [1]),
    ((1, 1), [0, 1, 2]),
    ((2, 3), [0, 1, 2, 3, 6, 7, 8, 9]),
]


def unsqueezed(x: Array, axes: list[int]) -> Array:
    rank = x.ndim + len(axes)
    new = {axis % rank for axis in axes}
    rest = iter(x.shape)
    return x.reshape([1 if axis in new else next(rest) for axis in range(rank)])


def add(batch: Batch, x: Array, axes: list[int]) -> None:
    """Before opset 13 the axes are an attribute."""
    wanted = unsqueezed(x, axes)
    if batch.opset < 13:
        batch.add("Unsqueeze", [x], wanted, axes=axes)
    else:
        batch.add("Unsqueeze", [x, np.array(axes, np.int64)], wanted, constants=[1])


@pytest.mark.usefixtures("strict_c")
@pytest.mark.parametrize("opset", [1, 11, 13, 28])
def test_axes(opset: int) -> None:
    """Negative ones count from the end, which opsets before 11 do not say but do not forbid."""
    batch = Batch(opset)
    for shape, axes in CASES:
        if axes:
            add(batch, any_bits(FLOAT, *shape), axes)
    batch.check()


@pytest.mark.usefixtures("strict_c")
def test_no_axes() -> None:
    batch = Batch()
    x = any_bits(FLOAT, 2, 3)
    batch.add("Unsqueeze", [x, np.zeros(0, np.int64)], x, constants=[1])
    batch.check()


@given(
    dtype=st.sampled_from(ELEMENT_TYPES),
    shape=st.lists(st.integers(0, 4), max_size=5).map(tuple),
    data=st.data(),
)
@settings(max_examples=60)
def test_any_shape_and_axes(
    dtype: ElementType, shape: tuple[int, ...], data: st.DataObject
) -> None:
    rank = len(shape) + data.draw(st.integers(1, 5))
    positions = st.sampled_from(range(rank))
    count = rank - len(shape)
    axes = data.draw(st.lists(positions, min_size=count, max_size=count, unique=True))
    negative = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    axes = [axis - rank if n else axis for axis, n in zip(axes, negative, strict=True)]
    batch = Batch()
    add(batch, any_bits(dtype, *shape), axes)
    batch.check_evaluated()


@pytest.mark.usefixtures("strict_c")
def test_it_is_fused_into_what_reads_it() -> None:
    """A column by a row, without a buffer between."""
    graph = helper.make_graph(
        [
            helper.make_node("Unsqueeze", ["x", "axes"], ["column"]),
            helper.make_node("Equal", ["column", "x"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.INT32, [5])],
        [helper.make_tensor_value_info("y", TensorProto.BOOL, [5, 5])],
        [stored("axes", np.array([1]))],
    )
    table = model(graph)
    assert len(compile_model(table).program.steps) == 1
    x = np.array([1, 2, 1, 3, 2], np.int32)
    assert run(table, {"x": x})["y"].tolist() == (x[:, None] == x).tolist()


@pytest.mark.parametrize(
    ("axes", "fact"),
    [
        ([3], "Unexpected axis value: 3. Expected range [-3, 3)"),
        ([-4], "Unexpected axis value: -4. Expected range [-3, 3)"),
        ([0, 0], "Axis 0 is referred to more than once"),
        ([0, -4], "Axis 0 is referred to more than once"),
    ],
)
@pytest.mark.parametrize("opset", [11, 13])
def test_axes_that_make_no_sense(axes: list[int], fact: str, opset: int) -> None:
    """Out of range, or twice the same."""
    node = helper.make_node("Unsqueeze", ["x"], ["y"], name="n")
    if opset < 13:
        node.attribute.append(helper.make_attribute("axes", axes))
    else:
        node.input.append("axes")
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_empty_tensor_value_info("y")],
        [stored("axes", np.array(axes))],
    )
    (line,) = refusal(model(graph, opset))
    assert line.startswith(f"node 'n' (Unsqueeze-{opset}): ")
    assert fact in line


def test_a_result_of_too_many_dimensions() -> None:
    graph = helper.make_graph(
        [helper.make_node("Unsqueeze", ["x", "axes"], ["y"], name="n")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1] * 60)],
        [helper.make_empty_tensor_value_info("y")],
        [stored("axes", np.arange(5))],
    )
    assert refusal(model(graph)) == [
        "node 'n' (Unsqueeze-25): the result has 65 dimensions, more than 64"
    ]
