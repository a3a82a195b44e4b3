"""Layers of 8-bit integers without vectors against the plain loops, bit for bit.

The library is built for this machine, where such C runs as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, helper

from onnxc.compiled import CompiledModel
from onnxc.kernel import Micro
from onnxc.pipeline import compile_model, evaluate_model
from tests.models import STRICT, declared, model, stored
from tests.toolchains import CORES, Core, Tool, run_on_core

Array = NDArray[Any]


@dataclass(frozen=True)
class Layer:
    """A convolution of x, of a type and with a zero point, by int8 filters.

    relu  whether a Relu comes before its results are quantised
    steps whether biases count in steps of the sums; else they are added to scaled sums
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
    steps: bool = True


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
    pytest.param(
        Layer(6, 75, (3, 5), (2, 3), pads=(0, 1, 1, 1), x=np.uint8, zero=255), id="chunks of lanes"
    ),
    pytest.param(
        Layer(68, 68, (5, 5), (3, 3), pads=(1, 1, 1, 1), groups=68), id="chunks of filters"
    ),
    pytest.param(Layer(37, 37, (5, 5), (3, 3), groups=37, relu=False), id="filters once more"),
    pytest.param(Layer(43, 61, (1, 1), (1, 1), x=np.uint8, zero=0), id="one pixel"),
    pytest.param(Layer(9, 35, (3, 5), (1, 1), steps=False), id="more than a scale"),
    pytest.param(Layer(8, 8, (6, 5), (3, 3), groups=8, steps=False, relu=False), id="of filters"),
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
        "b_scale": (scales / (4 if layer.steps else 5)).astype(np.float32),
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
@pytest.mark.parametrize(
    ("optimize", "kernel"), [("speed", "integers_scalar"), ("size", "shared_integers")]
)
@pytest.mark.parametrize("layer", LAYERS)
def test_convolutions(layer: Layer, optimize: str, kernel: str) -> None:
    source, given = network(layer)
    compiled = compile_model(source, target="cortex-m4", optimize=optimize)
    used = {step.name for step in compiled.program.steps if isinstance(step, Micro)}
    assert used == {kernel}
    wanted = CompiledModel(compile_model(source, plain=True)).run(given)["y"]
    np.testing.assert_array_equal(CompiledModel(compiled).run(given)["y"], wanted)
    np.testing.assert_array_equal(evaluate_model(source, given)["y"], wanted)
    assert len(np.unique(wanted)) > 8


@pytest.mark.usefixtures("compiler")
def test_layers_of_floats_and_of_integers_share_one_list_of_numbers() -> None:
    source, given = network(Layer(8, 16, (6, 8), (3, 3)))
    graph = source.graph
    graph.node.append(helper.make_node("DequantizeLinear", ["y", "y_scale", "y_zero"], ["f"]))
    graph.node.append(helper.make_node("Conv", ["f", "v"], ["z"], pads=[1, 1, 1, 1]))
    weights = np.random.default_rng(0).integers(-3, 4, (12, 16, 3, 3)).astype(np.float32)
    graph.initializer.append(stored("v", weights))
    graph.output.append(helper.make_tensor_value_info("z", 1, None))
    compiled = compile_model(source, target="cortex-m4", optimize="size")
    used = {step.name for step in compiled.program.steps if isinstance(step, Micro)}
    assert used == {"shared_integers", "shared_scalar"}
    wanted, found = evaluate_model(source, given), CompiledModel(compiled).run(given)
    np.testing.assert_array_equal(found["y"], wanted["y"])
    np.testing.assert_allclose(found["z"], wanted["z"], 1e-5, 1e-3)


CHECK = """
#include "layer{n}.h"

int layer{n}_differs(void)
{{
    static const union {{ uint8_t bytes[{read}]; {c_type} values[{read}]; }} x = {{ {{ {x} }} }};
    static const uint8_t wanted[] = {{ {wanted} }};
    static {c_type} y[{made}];
    static layer{n}_workspace workspace;

    return layer{n}_run(x.values, y, &workspace) || memcmp(y, wanted, sizeof wanted);
}}
"""


@pytest.mark.parametrize(
    "core", [core for core in CORES if core.name in ("M0", "M4", "M33")], ids=str
)
def test_each_core_gives_the_same_bytes(core: Core, tool: Tool, tmp_path: Path) -> None:
    """Those that multiply two halves of words at once, and those that do not."""
    lines = ["#include <stdio.h>", "#include <string.h>"]
    for n, layer in enumerate(case.values[0] for case in LAYERS):
        assert isinstance(layer, Layer)
        source, given = network(layer)
        compiled = compile_model(source, name=f"layer{n}", target="cortex-m4", optimize="size")
        (tmp_path / f"layer{n}.c").write_text(compiled.c_source, encoding="ascii")
        (tmp_path / f"layer{n}.h").write_text(compiled.header, encoding="ascii")
        wanted = evaluate_model(source, given)["y"]
        values = {
            "n": n,
            "read": given["x"].size,
            "made": wanted.size,
            "c_type": f"{wanted.dtype}_t",
            "x": ", ".join(map(str, given["x"].ravel().view(np.uint8))),
            "wanted": ", ".join(map(str, wanted.ravel().view(np.uint8))),
        }
        lines.append(CHECK.format(**values))
    calls = "".join(
        f'    if (layer{n}_differs())\n        puts("{n}");\n' for n in range(len(LAYERS))
    )
    lines.append(f"int main(void)\n{{\n{calls}    return 0;\n}}\n")
    (tmp_path / "main.c").write_text("\n".join(lines), encoding="ascii")
    files = ["main.c", *(f"layer{n}.c" for n in range(len(LAYERS)))]
    assert run_on_core(core, [Path(name) for name in files], tool, tmp_path, "-lm") == ""


@pytest.mark.usefixtures("compiler")
def test_filters_of_few_lanes_beyond_a_chunk_have_code_of_their_own() -> None:
    source, given = network(Layer(33, 33, (5, 5), (3, 3), groups=33))
    compiled = compile_model(source, target="cortex-m4", optimize="size")
    assert "integers_scalar" in {s.name for s in compiled.program.steps if isinstance(s, Micro)}
    wanted = evaluate_model(source, given)["y"]
    np.testing.assert_array_equal(CompiledModel(compiled).run(given)["y"], wanted)


def test_weights_that_are_no_bytes_less_their_zero_point_stay_in_plain_loops() -> None:
    source, _ = network(Layer(8, 16, (6, 8), (1, 1), w_zero=-100))
    compiled = compile_model(source, target="cortex-m4")
    assert not any(isinstance(step, Micro) for step in compiled.program.steps)
