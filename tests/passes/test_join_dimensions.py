"""join_dimensions: what convolutions read of a buffer with more dimensions is that with theirs."""

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, helper

import onnxc
from onnxc.compiled import CompiledModel
from onnxc.kernel import Micro, Program
from onnxc.passes.join_dimensions import join_dimensions
from onnxc.pipeline import compile_model
from tests.models import Array, float_network


def reshape(x: str, shape: str, y: str) -> NodeProto:
    return helper.make_node("Reshape", [x, shape], [y])


def conv(x: str, w: str, y: str, *, group: int, pads: int = 0) -> NodeProto:
    return helper.make_node("Conv", [x, w], [y], group=group, pads=[pads] * 4)


def shuffled(
    order: list[int], window: int = 3, whole: tuple[int, ...] = (1, 16, 12, 12)
) -> ModelProto:
    """The channels of 2 groups of 8, in another order, between two convolutions.

    order   of the dimensions [batch, 2, 8, rows, columns]
    whole   the shape that the second convolution, which is depthwise, reads
    """
    generator = np.random.default_rng(window)
    weights: dict[str, Array] = {
        "v": generator.standard_normal((16, 4, 1, 1)),
        "w": generator.standard_normal((whole[1], 1, window, window)),
    }
    nodes = [
        conv("x", "v", "a", group=2),
        reshape("a", "split", "b"),
        helper.make_node("Transpose", ["b"], ["c"], perm=order),
        reshape("c", "whole", "d"),
        conv("d", "w", "y", group=whole[1], pads=window // 2),
    ]
    model = float_network(nodes, {"x": (1, 8, 12, 12)}, whole, weights)
    for name, shape in (("split", (1, 2, 8, 12, 12)), ("whole", whole)):
        model.graph.initializer.append(helper.make_tensor(name, 7, [len(shape)], shape))
    return model


SHUFFLED = shuffled([0, 2, 1, 3, 4])
IMAGES = ({"x": (1, 3, 8, 8)}, (1, 3, 8, 8))


def after(name: str, model: ModelProto) -> Program:
    found: list[Program] = []

    def observe(done: str, thing: object) -> None:
        if done == name and isinstance(thing, Program):
            found.append(thing)

    compile_model(model, observe=observe)
    return found[0]


def shapes(program: Program) -> dict[str, tuple[int, ...]]:
    return {buffer.name: buffer.shape for buffer in program.writes()}


def test_groups_of_channels_are_channels() -> None:
    assert shapes(after("lower", SHUFFLED))["c"] == (1, 8, 2, 12, 12)
    assert shapes(after("join_dimensions", SHUFFLED))["c"] == (1, 16, 12, 12)


def test_the_convolution_after_shuffled_channels_is_tuned() -> None:
    program = after("keep_borders", SHUFFLED)
    kernels = [step.name for step in program.steps if isinstance(step, Micro)]
    assert "depthwise" in kernels
    assert shapes(program)["c"] == (1, 14, 14, 16), "with padding, channels last"


def test_the_shape_of_the_value_is_remembered() -> None:
    program = after("keep_borders", SHUFFLED)
    (placed,) = (p for buffer, p in program.placed.items() if buffer.name == "c")
    assert (placed.shape, placed.whole) == ((1, 16, 12, 12), (1, 8, 2, 12, 12))


def test_what_no_joined_dimensions_are_stays() -> None:
    """Two of eight groups of channels are one channel of images four times as large."""
    program = after("lower", shuffled([0, 2, 1, 3, 4], whole=(1, 4, 24, 24)))
    assert join_dimensions(program) is program


def test_what_is_read_with_its_own_dimensions_stays() -> None:
    nodes = [conv("x", "w", "a", group=1), conv("a", "w", "y", group=1)]
    program = after("lower", float_network(nodes, *IMAGES, {"w": np.ones((3, 3, 1, 1))}))
    assert join_dimensions(program) is program


@pytest.mark.parametrize("window", [1, 3, 5])
def test_the_values_are_those_of_plain_loops(window: int) -> None:
    x = {"x": np.random.default_rng(1).standard_normal((1, 8, 12, 12)).astype(np.float32)}
    model = shuffled([0, 2, 1, 3, 4], window)
    plain = CompiledModel(compile_model(model, plain=True)).run(x)["y"]
    np.testing.assert_allclose(onnxc.compile(model).run(x)["y"], plain, rtol=1e-5, atol=1e-5)
