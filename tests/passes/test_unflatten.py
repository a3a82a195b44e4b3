"""unflatten: rows and columns of what convolutions read by flat indices, so that tuned kernels may.

All numbers are small and whole: sums of products are exact in any order.
"""

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, helper
from onnx.reference import ReferenceEvaluator

import onnxc
from onnxc.expression import Axis, Buffer, Index, along
from onnxc.kernel import Loops, Micro
from onnxc.passes.unflatten import by_dimension
from onnxc.pipeline import compile_model
from tests.kernels.programs import FLOAT
from tests.kernels.programs import buffer as buffer_of
from tests.models import Array, float_network

Shape = tuple[int, ...]


def small(*shape: int) -> Array:
    return np.random.default_rng(shape).integers(-4, 5, shape).astype(np.float32)


def numbers(name: str, *values: int) -> NodeProto:
    return helper.make_node("Constant", [], [name], value_ints=values)


def conv(x: str, y: str, **attributes: Any) -> NodeProto:
    return helper.make_node("Conv", [x, "w"], [y], **attributes)


def reshaped(given: Shape, shape: Shape, filters: Shape, y: Shape, **attributes: Any) -> ModelProto:
    """An input that a convolution reads in another shape."""
    nodes = [numbers("s", *shape), helper.make_node("Reshape", ["x", "s"], ["r"])]
    nodes += [conv("r", "y", **attributes)]
    return float_network(nodes, {"x": given}, y, {"w": small(*filters)})


def transposed(given: Shape, perm: list[int], filters: Shape, y: Shape, **more: Any) -> ModelProto:
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=perm), conv("t", "y", **more)]
    return float_network(nodes, {"x": given}, y, {"w": small(*filters)})


def unsqueezed(given: Shape, axes: list[int], filters: Shape, y: Shape, **more: Any) -> ModelProto:
    nodes = [numbers("a", *axes), helper.make_node("Unsqueeze", ["x", "a"], ["u"])]
    nodes += [conv("u", "y", **more)]
    return float_network(nodes, {"x": given}, y, {"w": small(*filters)})


AROUND = {"pads": [1, 1, 1, 1]}
NETWORKS = {
    "one row of all elements": reshaped(
        (1, 240), (1, 1, 20, 12), (5, 1, 3, 3), (1, 5, 20, 12), **AROUND
    ),
    "channels": reshaped((3, 240), (1, 3, 20, 12), (5, 3, 3, 3), (1, 5, 20, 12), **AROUND),
    "a batch": reshaped((720,), (2, 3, 10, 12), (5, 3, 3, 3), (2, 5, 10, 12), **AROUND),
    "groups": reshaped((1, 720), (1, 6, 10, 12), (6, 3, 3, 3), (1, 6, 10, 12), group=2, **AROUND),
    "depthwise": reshaped(
        (1, 720), (1, 6, 10, 12), (6, 1, 3, 3), (1, 6, 10, 12), group=6, **AROUND
    ),
    "strides": reshaped(
        (1, 480), (1, 2, 20, 12), (8, 2, 3, 5), (1, 8, 10, 4), strides=[2, 3], pads=[1, 2, 1, 2]
    ),
    "dilations": reshaped(
        (480,), (1, 2, 20, 12), (8, 2, 3, 3), (1, 8, 18, 12), dilations=[2, 3], pads=[1, 3, 1, 3]
    ),
    "columns alone are padded": reshaped(
        (480,), (1, 2, 20, 12), (8, 2, 3, 3), (1, 8, 18, 12), pads=[0, 1, 0, 1]
    ),
    "rows alone are padded": reshaped(
        (2, 480), (2, 2, 20, 12), (8, 2, 3, 3), (2, 8, 20, 10), pads=[1, 0, 1, 0]
    ),
    "one dimension": reshaped((90,), (1, 3, 30), (16, 3, 5), (1, 16, 30), pads=[2, 2]),
    "one dimension more": unsqueezed((1, 90), [1], (16, 1, 5), (1, 16, 90), pads=[2, 2]),
    "two dimensions more": unsqueezed((20, 12), [0, 1], (5, 1, 3, 3), (1, 5, 20, 12), **AROUND),
    "channels last": transposed(
        (1, 10, 12, 3), [0, 3, 1, 2], (5, 3, 3, 3), (1, 5, 10, 12), **AROUND
    ),
    "a row": reshaped((1, 90), (1, 1, 1, 90), (8, 1, 1, 5), (1, 8, 1, 90), pads=[0, 2, 0, 2]),
    "a row between padding": reshaped(
        (1, 90), (1, 1, 1, 90), (8, 1, 3, 5), (1, 8, 2, 90), pads=[1, 2, 2, 2]
    ),
}


def assert_right(source: ModelProto) -> None:
    model = onnxc.compile(source)
    inputs = {port.name: small(*port.shape) for port in model.inputs}
    (wanted,) = ReferenceEvaluator(source).run(None, inputs)
    np.testing.assert_array_equal(model.run(inputs)["y"], wanted)


def tuned(source: ModelProto, **options: Any) -> list[str]:
    """The kernels that compute the sums of products."""
    steps = compile_model(source, **options).program.steps
    return [step.name for step in steps if isinstance(step, Micro) and step.name != "transpose"]


@pytest.mark.parametrize("source", NETWORKS.values(), ids=list(NETWORKS))
def test_a_tuned_kernel_computes_the_same(source: ModelProto) -> None:
    assert len(tuned(source)) == 1
    assert_right(source)


def test_without_padding_it_is_read_where_it_lies() -> None:
    source = reshaped((1, 240), (1, 1, 20, 12), (5, 1, 3, 3), (1, 5, 18, 10))
    (step, *_) = compile_model(source).program.steps
    assert isinstance(step, Micro)
    assert [buffer.kind for buffer in step.inputs] == ["input", "constant"]


def test_it_is_stored_once_with_its_padding() -> None:
    program = compile_model(NETWORKS["channels"]).program
    (copy,) = (s for s in program.steps if isinstance(s, Loops) and s.role == "rows and columns")
    assert copy.out.shape == (1, 22, 14, 3)


def test_a_processor_without_vectors_reads_it_where_it_lies() -> None:
    steps = compile_model(NETWORKS["channels"], target="cortex-m4").program.steps
    assert not any(step.role == "rows and columns" for step in steps if isinstance(step, Loops))


def test_what_follows_a_convolution_may_give_its_result_another_shape() -> None:
    """Both convolutions have tuned kernels: what the second reads is flat, and what it stores."""
    nodes = [
        numbers("s", 1, 1, 2, 2, 10, 12),
        helper.make_node("Conv", ["x", "v"], ["m"], pads=[1, 1, 1, 1]),
        conv("m", "c", pads=[1, 1, 1, 1]),
        helper.make_node("Reshape", ["c", "s"], ["r"]),
        helper.make_node("Transpose", ["r"], ["y"], perm=[0, 1, 4, 2, 5, 3]),
    ]
    constants = {"v": small(16, 1, 3, 3), "w": small(4, 16, 3, 3)}
    source = float_network(nodes, {"x": (1, 1, 10, 12)}, (1, 1, 10, 2, 12, 2), constants)
    assert tuned(source) == ["contraction", "contraction"]
    assert_right(source)


@pytest.mark.parametrize("mode", ["reflect", "edge"])
def test_what_lies_around_in_another_mode_is_stored_once(mode: str) -> None:
    nodes = [
        numbers("p", 0, 6, 0, 6),
        numbers("a", 1),
        helper.make_node("Pad", ["x", "p"], ["m"], mode=mode),
        helper.make_node("Unsqueeze", ["m", "a"], ["u"]),
        conv("u", "y", strides=[8]),
    ]
    source = float_network(nodes, {"x": (1, 132)}, (1, 12, 17), {"w": small(12, 1, 16)})
    assert len(tuned(source)) == 1
    assert_right(source)


ROWS, COLUMNS, TAP, CHANNEL = Axis(5), Axis(4), Axis(3), Axis(2)


def test_padding_says_which_dimension_a_walk_is_in() -> None:
    row, column, c = along(ROWS) + along(TAP) + -1, along(COLUMNS), along(CHANNEL)
    image: Buffer = buffer_of("x", "workspace", FLOAT, 2, 5, 4)
    flat = image.flat((c, row, column))
    assert by_dimension(image.shape, flat) is None
    assert by_dimension(image.shape, flat, [(row, 5)]) == (c, row, column)
    assert by_dimension(image.shape, flat, [(row, 6)]) is None
    assert by_dimension(image.shape, flat + 40, [(row, 5)]) is None
    assert by_dimension((2, 20), flat, [(row, 5)]) is None


def test_a_walk_by_two_padded_dimensions() -> None:
    row, column = along(ROWS) * 2 + -3, along(COLUMNS) + along(TAP) * 2 + -2
    shape = (1, 7, 4)
    flat = buffer_of("x", "workspace", FLOAT, *shape).flat((Index(), row, column))
    assert by_dimension(shape, flat, [(row, 7), (column, 4)]) == (Index(), row, column)
