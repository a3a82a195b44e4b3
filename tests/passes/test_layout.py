"""layout: channels last between convolutions, padding stored, copies where a layout stays."""

from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, helper

import onnxc
from onnxc.expression import Guard
from onnxc.kernel import Loops, Program, Routine
from onnxc.passes.layout import layout
from onnxc.pipeline import compile_model
from onnxc.traversal import walk
from tests.models import Array, float_network


def conv(x: str, w: str, y: str, **attributes: Any) -> NodeProto:
    return helper.make_node("Conv", [x, w], [y], name=y, **attributes)


def network(
    nodes: list[NodeProto], x: tuple[int, ...], y: tuple[int, ...], **weights: Array
) -> ModelProto:
    return float_network(nodes, {"x": x}, y, weights)


def laid_out(source: ModelProto) -> Program:
    """The program as the pass leaves it."""
    found: list[Program] = []

    def observe(name: str, thing: object) -> None:
        if name == "layout" and isinstance(thing, Program):
            found.append(thing)

    compile_model(source, observe=observe)
    return found[0]


def weights(*shape: int) -> Array:
    return np.random.default_rng(shape).standard_normal(shape)


TWO = network(
    [
        conv("x", "v", "m", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["m"], ["r"]),
        conv("r", "w", "y", pads=[1, 0, 2, 0]),
    ],
    (1, 3, 8, 9),
    (1, 6, 9, 7),
    v=weights(5, 3, 3, 3),
    w=weights(6, 5, 3, 3),
)


def test_the_input_is_copied_and_the_rest_made_in_place() -> None:
    program = laid_out(TWO)
    roles = [step.role for step in program.steps if isinstance(step, Loops | Routine)]
    assert roles == [
        "zeros around",
        "channels last",
        "zeros around",
        "",
        "channels last",
        "channels second",
    ]


def alone(channels: int, filters: int, kernel: int, **attributes: Any) -> Program:
    """A convolution of 20 x 20 pixels that reads the model's input and makes its output."""
    group = attributes.get("group", 1)
    size = (20 + 2 * attributes.get("pads", [0])[0] - kernel) // attributes.get("strides", [1])[0]
    w = weights(filters, channels // group, kernel, kernel)
    shapes = (1, channels, 20, 20), (1, filters, size + 1, size + 1)
    return laid_out(network([conv("x", "w", "y", **attributes)], *shapes, w=w))


def roles_of(program: Program) -> list[str]:
    return [step.role for step in program.steps if isinstance(step, Loops | Routine)]


def test_what_stays_with_channels_second() -> None:
    """Between the model's own tensors: rows of pixels as they lie, padded where need be."""
    assert roles_of(alone(5, 5, 3, group=5)) == [""]
    assert roles_of(alone(5, 5, 3, group=5, pads=[1] * 4)) == ["zeros around", "padded", ""]
    assert roles_of(alone(8, 4, 1)) == [""]


def test_what_is_read_with_channels_second() -> None:
    """Large windows that move on by two: each channel of them is of use again."""
    assert roles_of(alone(16, 4, 3, strides=[2, 2])) == ["channels last", "channels second"]
    assert roles_of(alone(8, 4, 3, strides=[2, 2])) == [
        "channels last",
        *["channels last"],
        "channels second",
    ]


def test_padding_is_part_of_the_shape() -> None:
    shapes = {buffer.name: buffer.shape for buffer in laid_out(TWO).writes()}
    assert shapes["x"] == (1, 10, 11, 3)
    assert shapes["r"] == (1, 11, 9, 5)
    assert shapes["y"] == (1, 6, 9, 7)


def test_no_guard_is_left() -> None:
    loops = (step for step in laid_out(TWO).steps if isinstance(step, Loops))
    assert not [node for step in loops for node in walk(step.value) if isinstance(node, Guard)]


def test_border_is_zeroed_before_its_buffer_is_filled() -> None:
    program = laid_out(TWO)
    first: dict[object, object] = {}
    for step in program.steps:
        for buffer in step.writes():
            first.setdefault(buffer, step)
    padded = [b for b in first if getattr(b, "name", "") in ("x", "r")]
    assert len(padded) == 2
    assert all(isinstance(first[buffer], Routine) for buffer in padded)


def test_one_channel_without_padding_needs_no_copy() -> None:
    source = network([conv("x", "w", "y")], (1, 1, 6, 6), (1, 1, 4, 4), w=weights(1, 1, 3, 3))
    assert len(laid_out(source).steps) == 1


def test_a_pool_between_convolutions_has_channels_last_too() -> None:
    pool = helper.make_node("MaxPool", ["m"], ["p"], kernel_shape=[2, 2], strides=[2, 2])
    nodes = [conv("x", "v", "m"), pool, conv("p", "w", "y")]
    source = network(
        nodes, (1, 2, 9, 9), (1, 4, 3, 3), v=weights(7, 2, 2, 2), w=weights(4, 7, 2, 2)
    )
    shapes = {buffer.name: buffer.shape for buffer in laid_out(source).writes()}
    assert (shapes["m"], shapes["p"]) == ((1, 8, 8, 7), (1, 4, 4, 7))


def test_a_flattened_result_keeps_its_layout() -> None:
    nodes = [
        conv("x", "v", "m"),
        helper.make_node("Flatten", ["m"], ["f"]),
        helper.make_node("Gemm", ["f", "w"], ["y"]),
    ]
    source = network(nodes, (1, 2, 6, 6), (1, 3), v=weights(4, 2, 3, 3), w=weights(64, 3))
    written = [buffer.shape for buffer in laid_out(source).writes()]
    assert (1, 4, 4, 4) in written
    model = compile_model(source)
    assert model.outputs[0].shape == (1, 3)


def test_without_a_target_nothing_changes() -> None:
    program = compile_model(TWO, plain=True).program
    assert layout(program) is program


def test_padding_of_a_dimension_of_one_stays_a_condition() -> None:
    x = np.array([[[[2.0, 3.0]]]], np.float32)
    node = conv("x", "w", "y", pads=[0, 0, 1, 1])
    source = network([node], (1, 1, 1, 2), (1, 1, 1, 3), w=np.array([[[[1.0], [5.0]]]]))
    assert onnxc.compile(source).run({"x": x})["y"].tolist() == [[[[2.0, 3.0, 0.0]]]]


def test_padding_around_the_outermost_dimension_is_stored_too() -> None:
    """Where the batch is not the first dimension of what is read, the rows are in memory."""
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2, 3])]
    nodes += [conv("t", "w", "y", pads=[1, 1, 1, 1])]
    source = network(nodes, (2, 1, 4, 3), (1, 1, 4, 3), w=np.ones((1, 2, 3, 3)))
    (border,) = (step for step in laid_out(source).steps if isinstance(step, Routine))
    parameters: dict[str, Any] = dict(border.parameters)
    filled = sum(length * count for _, length, count, _ in parameters["runs"])
    assert [buffer.shape for buffer in border.outputs] == [(6, 5, 2, 1)]
    assert parameters["batches"] * filled == 6 * 5 * 2 - 4 * 3 * 2
    x = np.arange(24, dtype=np.float32).reshape(2, 1, 4, 3)
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x.sum((0, 1)), 1), (3, 3))
    wanted = windows.sum((2, 3))[None, None]
    np.testing.assert_array_equal(onnxc.compile(source).run({"x": x})["y"], wanted)


def test_a_kernel_without_loops_stays_as_it_is() -> None:
    """What a product of matrices scales its addend by is computed once, apart."""
    nodes = [
        conv("x", "w", "c"),
        helper.make_node("Flatten", ["c"], ["f"], axis=2),
        helper.make_node("Gemm", ["f", "v", "s"], ["y"], beta=2.0),
    ]
    inputs: dict[str, tuple[int, ...]] = {"x": (1, 2, 2, 2), "s": ()}
    constants = {"w": np.ones((3, 2, 1, 1)), "v": np.ones((4, 5))}
    source = float_network(nodes, inputs, (3, 5), constants)
    assert () in [buffer.shape for buffer in laid_out(source).writes()]
    x = np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2)
    values = {"x": x, "s": np.array(0.5, np.float32)}
    assert onnxc.compile(source).run(values)["y"].tolist() == [[29.0] * 5] * 3
