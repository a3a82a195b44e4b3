"""Layers of 8-bit integers without vectors against the plain loops, bit for bit.

The library is built for this machine, where such C runs as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, helper

from onnxc.compiled import CompiledModel
from onnxc.kernel import Micro
from onnxc.pipeline import compile_model, evaluate_model
from tests.models import STRICT, declared, model, stored

Array = NDArray[Any]


@dataclass(frozen=True)
class Layer:
    """A convolution of x, of a type and with a zero point, by int8 filters.

    relu  whether a Relu comes before its results are quantised
    kind  of the filters' zero points: none, or one each
    """

    channels: int
    outputs: int
    source: tuple[int, int]
    window: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    groups: int = 1
    x: type = np.int8
    zero: int = -5
    w_zero: int = 0
    bias: bool = True
    relu: bool = True


LAYERS = [
    pytest.param(Layer(8, 16, (6, 8), (1, 1)), id="1x1"),
    pytest.param(Layer(5, 7, (3, 3), (1, 1), x=np.uint8, zero=9), id="rests of both"),
    pytest.param(Layer(9, 6, (7, 5), (1, 1), strides=(2, 2), relu=False), id="1x1, apart"),
    pytest.param(Layer(4, 9, (6, 7), (3, 3), bias=False), id="3x3 without padding"),
    pytest.param(Layer(3, 8, (9, 9), (3, 3), pads=(1, 1, 1, 1), zero=127), id="3x3 with padding"),
    pytest.param(
        Layer(1, 5, (13, 10), (10, 4), (2, 2), pads=(4, 1, 5, 1), zero=-128), id="one channel"
    ),
    pytest.param(Layer(3, 4, (12, 12), (3, 3), (2, 2), pads=(0, 0, 1, 1)), id="a first layer"),
    pytest.param(
        Layer(8, 8, (6, 7), (3, 3), pads=(1, 1, 1, 1), groups=8, x=np.uint8, zero=200),
        id="depthwise",
    ),
    pytest.param(
        Layer(5, 5, (9, 9), (3, 2), (2, 1), (1, 2), (1, 0, 0, 1), groups=5), id="depthwise, apart"
    ),
    pytest.param(Layer(6, 6, (9, 9), (1, 5), groups=6, w_zero=-1), id="depthwise, zero points"),
    pytest.param(Layer(8, 4, (4, 4), (2, 2), w_zero=-1), id="zero points of filters"),
]


def network(layer: Layer) -> tuple[ModelProto, dict[str, Array]]:
    """The model, whose biases count in the steps of the sums, and its input."""
    generator = np.random.default_rng(0)
    info = np.iinfo(layer.x)
    x = generator.integers(
        info.min, info.max, (1, layer.channels, *layer.source), layer.x, endpoint=True
    )
    shape = (layer.outputs, layer.channels // layer.groups, *layer.window)
    scales = np.float32(2) ** -generator.integers(3, 7, layer.outputs)
    constants = {
        "w": generator.integers(-120, 120, shape, np.int8, endpoint=True),
        "x_scale": np.array(0.25, np.float32),
        "x_zero": np.array(layer.zero, layer.x),
        "w_scale": scales.astype(np.float32),
        "w_zero": np.full(layer.outputs, layer.w_zero, np.int8),
        "y_scale": np.array(7.1, np.float32),
        "y_zero": np.array(11, layer.x),
        "b": generator.integers(-3000, 3000, layer.outputs, np.int32),
        "b_scale": (scales / 4).astype(np.float32),
    }
    bias = ["B"] if layer.bias else []
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["X"]),
        helper.make_node("DequantizeLinear", ["w", "w_scale", "w_zero"], ["W"], axis=0),
        helper.make_node("DequantizeLinear", ["b", "b_scale"], ["B"], axis=0),
        helper.make_node(
            "Conv",
            ["X", "W", *bias],
            ["sums"],
            strides=layer.strides,
            dilations=layer.dilations,
            pads=layer.pads,
            group=layer.groups,
        ),
        helper.make_node("Relu" if layer.relu else "Identity", ["sums"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "y_scale", "y_zero"], ["y"]),
    ]
    result = helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(x.dtype), None)
    graph = helper.make_graph(
        nodes, "g", [declared("x", x)], [result], [stored(k, v) for k, v in constants.items()]
    )
    return model(graph, 21), {"x": x}


@pytest.fixture(params=["gcc", "clang", "tcc"])
def compiler(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tool: Callable[[str], str]
) -> None:
    monkeypatch.setenv("CC", tool(request.param))
    monkeypatch.setenv("ONNXC_CFLAGS", " ".join([*STRICT, "-O2"]))


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("layer", LAYERS)
def test_convolutions(layer: Layer) -> None:
    source, given = network(layer)
    compiled = compile_model(source, target="cortex-m4")
    used = {step.name for step in compiled.program.steps if isinstance(step, Micro)}
    assert used == {"integers_scalar"}
    wanted = CompiledModel(compile_model(source, plain=True)).run(given)["y"]
    np.testing.assert_array_equal(CompiledModel(compiled).run(given)["y"], wanted)
    np.testing.assert_array_equal(evaluate_model(source, given)["y"], wanted)
    assert len(np.unique(wanted)) > 8


def test_little_code_is_plain_loops() -> None:
    source, _ = network(Layer(8, 16, (6, 8), (1, 1)))
    compiled = compile_model(source, target="cortex-m4", optimize="size")
    assert not any(isinstance(step, Micro) for step in compiled.program.steps)


def test_weights_that_are_no_bytes_less_their_zero_point_stay_in_plain_loops() -> None:
    source, _ = network(Layer(8, 16, (6, 8), (1, 1), w_zero=-100))
    compiled = compile_model(source, target="cortex-m4")
    assert not any(isinstance(step, Micro) for step in compiled.program.steps)
