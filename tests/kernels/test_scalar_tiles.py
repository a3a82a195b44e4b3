"""Kernels without vectors, each layer's own and those that layers share, against the plain loops.

Of small integers every sum is exact, so that results are equal whatever the order; the library is
built for this machine, where such C runs as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper

from onnxc.compiled import CompiledModel
from onnxc.kernel import Micro
from onnxc.pipeline import compile_model, evaluate_model
from tests.models import STRICT, model

Array = NDArray[Any]
WINDOWS, DEPTHWISE, SHARED = "windows_scalar", "depthwise_scalar", "shared_scalar"


@dataclass(frozen=True)
class Layer:
    """A convolution, and what follows it.

    kernel   that computes it for speed; it is SHARED for size
    after    a residual of the output's shape that is added, a clip to 0 .. 9
    """

    kernel: str
    channels: int
    outputs: int
    source: tuple[int, ...]
    window: tuple[int, ...]
    strides: tuple[int, ...] = (1, 1)
    dilations: tuple[int, ...] = (1, 1)
    pads: tuple[int, ...] = (0, 0, 0, 0)
    groups: int = 1
    bias: bool = True
    after: str = ""


LAYERS = [
    pytest.param(Layer(WINDOWS, 8, 16, (6, 8), (1, 1)), id="1x1"),
    pytest.param(Layer(WINDOWS, 5, 7, (3, 3), (1, 1)), id="1x1: a rest of pixels and of lanes"),
    pytest.param(Layer(WINDOWS, 9, 6, (7, 5), (1, 1), strides=(2, 2)), id="1x1, apart"),
    pytest.param(Layer(WINDOWS, 4, 9, (6, 7), (3, 3), bias=False), id="3x3 without padding"),
    pytest.param(Layer(WINDOWS, 3, 8, (9, 9), (3, 3), pads=(1, 1, 1, 1)), id="3x3 with padding"),
    pytest.param(
        Layer(WINDOWS, 3, 4, (12, 12), (3, 3), (2, 2), pads=(0, 0, 1, 1)), id="a first layer"
    ),
    pytest.param(
        Layer(WINDOWS, 1, 5, (13, 10), (10, 4), (2, 2), pads=(4, 1, 5, 1)), id="one channel"
    ),
    pytest.param(
        Layer(WINDOWS, 4, 4, (9, 8), (3, 2), dilations=(2, 3), pads=(2, 3, 1, 0)), id="dilated"
    ),
    pytest.param(
        Layer(WINDOWS, 4, 6, (5, 6), (3, 3), pads=(1, 1, 1, 1), after="add"), id="a residual"
    ),
    pytest.param(
        Layer(WINDOWS, 6, 5, (4, 5), (3, 3), pads=(1, 1, 1, 1), after="clip"), id="a clip"
    ),
    pytest.param(Layer(WINDOWS, 6, 5, (2, 2), (4, 4), pads=(3, 3, 3, 3)), id="most is padding"),
    pytest.param(
        Layer(WINDOWS, 5, 8, (17,), (3,), (2,), (1,), (1, 1), after="clip"), id="one dimension"
    ),
    pytest.param(
        Layer(DEPTHWISE, 8, 8, (6, 11), (3, 3), pads=(1, 1, 1, 1), groups=8), id="depthwise"
    ),
    pytest.param(
        Layer(DEPTHWISE, 5, 5, (9, 8), (3, 3), (2, 2), pads=(0, 0, 1, 1), groups=5, after="clip"),
        id="depthwise, strides",
    ),
    pytest.param(
        Layer(DEPTHWISE, 4, 4, (8, 9), (3, 3), (2, 2), pads=(1, 1, 1, 1), groups=4, after="add"),
        id="depthwise, a residual",
    ),
    pytest.param(
        Layer(DEPTHWISE, 6, 6, (5, 16), (1, 2), (1, 3), groups=6, bias=False),
        id="depthwise, windows apart",
    ),
    pytest.param(
        Layer(DEPTHWISE, 6, 6, (7, 3), (5, 1), dilations=(2, 1), pads=(4, 0, 4, 0), groups=6),
        id="depthwise, columns",
    ),
    pytest.param(
        Layer(SHARED, 7, 7, (8, 8), (5, 5), pads=(2, 2, 2, 2), groups=7),
        id="depthwise, too large for registers",
    ),
    pytest.param(
        Layer(SHARED, 4, 4, (9, 9), (3, 3), dilations=(2, 2), pads=(2, 2, 2, 2), groups=4),
        id="depthwise, dilated",
    ),
]


def integers(generator: np.random.Generator, *shape: int) -> Array:
    return generator.integers(-4, 5, shape).astype(np.float32)


def convolution(layer: Layer) -> tuple[ModelProto, dict[str, Array]]:
    """The model, and its inputs."""
    generator = np.random.default_rng(0)
    given = {"x": integers(generator, 1, layer.channels, *layer.source)}
    shape = (layer.outputs, layer.channels // layer.groups, *layer.window)
    weights = {"w": integers(generator, *shape)}
    if layer.bias:
        weights["b"] = integers(generator, layer.outputs)
    rank = len(layer.source)
    spread = [d * (k - 1) + 1 for d, k in zip(layer.dilations, layer.window, strict=False)]
    made = [
        (size + layer.pads[n] + layer.pads[n + rank] - spread[n]) // layer.strides[n] + 1
        for n, size in enumerate(layer.source)
    ]
    written = (1, layer.outputs, *made)
    nodes = [
        helper.make_node(
            "Conv",
            ["x", *weights],
            ["sums" if layer.after else "y"],
            strides=layer.strides[:rank],
            dilations=layer.dilations[:rank],
            pads=layer.pads[: 2 * rank],
            group=layer.groups,
        )
    ]
    if layer.after == "add":
        given["r"] = integers(generator, *written)
        nodes.append(helper.make_node("Add", ["sums", "r"], ["y"]))
    if layer.after == "clip":
        weights |= {"low": np.array(0, np.float32), "high": np.array(9, np.float32)}
        nodes.append(helper.make_node("Clip", ["sums", "low", "high"], ["y"]))
    return _model(nodes, given, weights, written), given


def _model(nodes: Any, given: Any, weights: Any, written: tuple[int, ...]) -> ModelProto:
    told = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [told(name, TensorProto.FLOAT, array.shape) for name, array in given.items()],
        [told("y", TensorProto.FLOAT, written)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return model(graph)


@pytest.fixture(params=["gcc", "tcc"])
def compiler(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tool: Callable[[str], str]
) -> None:
    monkeypatch.setenv("CC", tool(request.param))
    monkeypatch.setenv("ONNXC_CFLAGS", " ".join([*STRICT, "-O2"]))


def kernels(source: ModelProto, optimize: str) -> tuple[CompiledModel, set[str]]:
    compiled = compile_model(source, target="cortex-m4", optimize=optimize)
    steps = compiled.program.steps
    return CompiledModel(compiled), {step.name for step in steps if isinstance(step, Micro)}


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("optimize", ["speed", "size"])
@pytest.mark.parametrize("layer", LAYERS)
def test_convolutions(layer: Layer, optimize: str) -> None:
    source, given = convolution(layer)
    compiled, used = kernels(source, optimize)
    assert used == {SHARED if optimize == "size" else layer.kernel}
    np.testing.assert_array_equal(compiled.run(given)["y"], evaluate_model(source, given)["y"])


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("optimize", ["speed", "size"])
@pytest.mark.parametrize("rows", [1, 3, 8])
@pytest.mark.parametrize("columns", [4, 13, 40])
def test_products_of_matrices(rows: int, columns: int, optimize: str) -> None:
    generator = np.random.default_rng(1)
    given = {"a": integers(generator, rows, 96)}
    weights = {"b": integers(generator, 96, columns), "c": integers(generator, columns)}
    nodes = [
        helper.make_node("Gemm", ["a", "b", "c"], ["sums"]),
        helper.make_node("Relu", ["sums"], ["y"]),
    ]
    source = _model(nodes, given, weights, (rows, columns))
    compiled, used = kernels(source, optimize)
    assert used == {SHARED if optimize == "size" else WINDOWS}
    np.testing.assert_array_equal(compiled.run(given)["y"], evaluate_model(source, given)["y"])


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("optimize", ["speed", "size"])
def test_errors_are_bounded(optimize: str) -> None:
    """By 2^-24 for each product and the bias, times the sum of magnitudes."""
    generator = np.random.default_rng(2)
    given = {"x": generator.standard_normal((1, 9, 6, 5)).astype(np.float32)}
    weights = {
        "w": generator.standard_normal((7, 9, 3, 3)).astype(np.float32),
        "b": generator.standard_normal(7).astype(np.float32),
    }
    node = helper.make_node("Conv", ["x", *weights], ["y"], pads=[1, 1, 1, 1])
    found = kernels(_model([node], given, weights, (1, 7, 6, 5)), optimize)[0].run(given)["y"]
    padded = np.pad(given["x"][0].astype(np.float64), ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    exact = np.einsum("cyxij,ocij->oyx", windows, weights["w"]) + weights["b"][:, None, None]
    most = np.einsum("cyxij,ocij->oyx", abs(windows), abs(weights["w"]).astype(np.float64))
    most += abs(weights["b"])[:, None, None]
    assert (abs(found[0] - exact) <= (9 * 3 * 3 + 1) * 2.0**-24 * most).all()


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("optimize", ["speed", "size"])
@pytest.mark.parametrize("groups", [1, 4])
def test_infinities_and_nan_reach_what_reads_them_alone(groups: int, optimize: str) -> None:
    """Padding is zeros: an infinite weight makes them NaN, as in the plain loops."""
    layer = Layer(WINDOWS, 4, 4, (6, 6), (3, 3), pads=(1, 1, 1, 1), groups=groups)
    source, given = convolution(layer)
    given["x"][0, 0, 1, 1], given["x"][0, 2, 4, 4] = np.nan, -np.inf
    compiled, _ = kernels(source, optimize)
    np.testing.assert_array_equal(compiled.run(given)["y"], evaluate_model(source, given)["y"])
    odd = numpy_helper.to_array(source.graph.initializer[0]).copy()
    odd[1, 0, 0, 0] = np.inf
    source.graph.initializer[0].CopyFrom(numpy_helper.from_array(odd, "w"))
    compiled, _ = kernels(source, optimize)
    np.testing.assert_array_equal(compiled.run(given)["y"], evaluate_model(source, given)["y"])
