"""Kernels in bands of rows: the same bits as one after the other, in less memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, helper

from onnxc.check_plan import check_plan
from onnxc.compiled import CompiledModel
from onnxc.kernel import Micro, Program
from onnxc.passes import fuse_bands
from onnxc.pipeline import Compiled, compile_model, evaluate_model
from onnxc.tuned import windows_pool
from onnxc.tuned.bands import Bands, Link, Part, bands_of
from tests.kernels.variants import BUILDS, Build, require
from tests.models import declared, model, stored

Array = NDArray[Any]


@dataclass(frozen=True)
class Layer:
    """One convolution; without `outputs` it is depthwise. `pads` before and after, both ways.

    pooled  whether it is the greatest of windows instead
    """

    outputs: int = 0
    kernel: int = 1
    stride: int = 1
    dilation: int = 1
    pads: tuple[int, int] = (0, 0)
    pooled: bool = False

    def node(self, number: int, value: str, channels: int) -> NodeProto:
        before, after = self.pads
        attributes: dict[str, Any] = {
            "strides": [self.stride] * 2,
            "dilations": [self.dilation] * 2,
            "pads": [before, before, after, after],
        }
        if self.pooled:
            size = [self.kernel] * 2
            return helper.make_node(
                "MaxPool", [value], [f"c{number}"], kernel_shape=size, **attributes
            )
        operands = [value, f"w{number}", f"b{number}"]
        group = 1 if self.outputs else channels
        return helper.make_node("Conv", operands, [f"c{number}"], group=group, **attributes)


@dataclass(frozen=True)
class Network:
    """A chain of layers, each followed by Relu6 but the last, which the input may be added to.

    With `signed` nothing follows them.
    """

    shape: tuple[int, ...]
    layers: tuple[Layer, ...]
    residual: bool = False
    signed: bool = False

    def model(self) -> ModelProto:
        generator = np.random.default_rng(0)
        graph = model(helper.make_graph([], "p", [], [])).graph
        value, channels, shape = "x", self.shape[1], self.shape
        graph.input.append(declared("x", np.empty(self.shape, np.float32)))
        for name, bound in (("zero", 0), ("six", 6)):
            graph.initializer.append(stored(name, np.array(bound, np.float32)))
        for n, layer in enumerate(self.layers):
            groups, outputs = (1, layer.outputs) if layer.outputs else (channels, channels)
            filters = (outputs, channels // groups, layer.kernel, layer.kernel)
            weights = generator.standard_normal(filters).astype(np.float32)
            bias = generator.standard_normal(outputs).astype(np.float32)
            graph.initializer.extend([stored(f"w{n}", weights), stored(f"b{n}", bias)])
            graph.node.append(layer.node(n, value, channels))
            before, after = layer.pads
            reach = (layer.kernel - 1) * layer.dilation + 1
            sides = ((e + before + after - reach) // layer.stride + 1 for e in shape[2:])
            shape, channels, value = (shape[0], outputs, *sides), outputs, f"c{n}"
            if n < len(self.layers) - 1 and not (self.signed or layer.pooled):
                graph.node.append(helper.make_node("Clip", [value, "zero", "six"], [f"r{n}"]))
                value = f"r{n}"
        if self.residual:
            graph.node.append(helper.make_node("Add", [value, "x"], ["sum"]))
            value = "sum"
        graph.node.append(helper.make_node("Neg", [value], ["y"]))
        graph.output.append(declared("y", np.empty(shape, np.float32)))
        return model(graph)


def block(kernel: int, stride: int, pads: tuple[int, int], outputs: int = 7) -> tuple[Layer, ...]:
    return Layer(24), Layer(0, kernel, stride, pads=pads), Layer(outputs)


POOL = Layer(0, 3, 2, pooled=True)


def padded(pool: Layer, before: int, after: int, kernel: int = 3) -> Layer:
    return replace(pool, kernel=kernel, pads=(before, after))


NETWORKS = [
    pytest.param(Network((1, 5, 13, 9), block(3, 1, (1, 1), 5), True), id="with a residual"),
    pytest.param(Network((1, 5, 14, 11), block(3, 2, (1, 1))), id="every second row"),
    pytest.param(Network((1, 5, 14, 12), block(3, 2, (0, 1))), id="zeros below only"),
    pytest.param(Network((1, 5, 11, 9), block(3, 1, (0, 0))), id="no zeros"),
    pytest.param(Network((1, 5, 12, 9), block(5, 1, (2, 2))), id="two rows of zeros"),
    pytest.param(
        Network((1, 3, 13, 9), (Layer(16, 3, 1, pads=(0, 1)), *block(3, 1, (1, 1))[1:])),
        id="a copy of rows, zeros below only",
    ),
    pytest.param(
        Network((1, 1, 14, 12), (Layer(16, 5, 2, pads=(2, 1)), Layer(5))), id="rows of one channel"
    ),
    pytest.param(
        Network((1, 3, 19, 16), (Layer(16, 3, 2, pads=(1, 1)), *block(3, 1, (1, 1))[1:])),
        id="a first layer",
    ),
    pytest.param(
        Network(
            (1, 8, 15, 10),
            (
                Layer(0, 3, 1, 2, (2, 2)),
                Layer(20),
                Layer(0, 5, 2, 1, (2, 2)),
                Layer(12, 3, 2, 1, (1, 1)),
                Layer(9),
            ),
        ),
        id="windows after windows",
    ),
    pytest.param(
        Network((1, 3, 25, 22), (Layer(20, 3, 2, pads=(1, 1)), POOL, Layer(4))),
        id="a first layer and a pool",
    ),
    pytest.param(
        Network((1, 5, 20, 25), (Layer(20), POOL, Layer(7)), signed=True), id="a pool between"
    ),
    pytest.param(
        Network((1, 5, 21, 23), (Layer(33), padded(POOL, 1, 1), Layer(7))), id="a padded pool"
    ),
    pytest.param(
        Network(
            (1, 5, 20, 22), (Layer(33), padded(POOL, 0, 1), Layer(0, 3, pads=(1, 1)), Layer(4))
        ),
        id="a pool cut off below",
    ),
    pytest.param(
        Network((1, 5, 19, 21), (Layer(16), Layer(0, 3, 1, 2, (2, 2), pooled=True), Layer(7))),
        id="dilated windows",
    ),
    pytest.param(
        Network(
            (1, 4, 24, 21), (Layer(16), padded(POOL, 2, 2, 5), Layer(0, 3, pads=(1, 1)), Layer(4))
        ),
        id="a pool of large windows",
    ),
]


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Bands pay, however small the values, and memory does not count."""
    monkeypatch.setenv("ONNXC_DEBUG", "1")
    monkeypatch.setattr(fuse_bands, "grows", lambda known, before, after: False)
    monkeypatch.setattr(windows_pool, "LEAST", 1)
    monkeypatch.setattr(fuse_bands, "gain", lambda links, around: 1e9 * len(links))
    return monkeypatch


def of_rows(patch: pytest.MonkeyPatch, band: int) -> None:
    patch.setattr(fuse_bands, "in_bands", lambda parts, links: bands_of(parts, links, band))


def micros(program: Program) -> list[str]:
    return [step.name for step in program.steps if isinstance(step, Micro)]


def separate(patch: pytest.MonkeyPatch, source: ModelProto) -> Compiled:
    with patch.context() as inner:
        inner.setattr(fuse_bands, "in_bands", lambda parts, links: None)
        return compile_model(source, name="p")


def given(network: Network) -> dict[str, Array]:
    generator = np.random.default_rng(1)
    return {"x": generator.standard_normal(network.shape).astype(np.float32)}


@pytest.mark.parametrize("band", [1, 3, 100])
@pytest.mark.parametrize("network", NETWORKS)
def test_bands_have_the_bits_of_whole_passes(
    network: Network, band: int, always: pytest.MonkeyPatch
) -> None:
    source, inputs = network.model(), given(network)
    whole = separate(always, source)
    of_rows(always, band)
    banded = compile_model(source)
    assert micros(banded.program) == ["bands"]
    wanted = CompiledModel(whole).run(inputs)["y"]
    np.testing.assert_array_equal(CompiledModel(banded).run(inputs)["y"], wanted)
    evaluated = evaluate_model(source, inputs)["y"]
    np.testing.assert_allclose(evaluated, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("build", BUILDS, ids=str)
def test_every_register_file_has_bands(build: Build, always: pytest.MonkeyPatch) -> None:
    require(build)
    network = Network((1, 5, 14, 11), block(3, 2, (1, 1)))
    always.setenv("CC", build.compiler)
    always.setenv("ONNXC_CFLAGS", " ".join(build.flags))
    whole = CompiledModel(separate(always, network.model()))
    of_rows(always, 2)
    banded = CompiledModel(compile_model(network.model(), name="p"))
    inputs = given(network)
    np.testing.assert_array_equal(banded.run(inputs)["y"], whole.run(inputs)["y"])


@pytest.mark.parametrize("name", ["a padded pool", "a pool cut off below"])
def test_bands_that_begin_with_a_pool(name: str, always: pytest.MonkeyPatch) -> None:
    """What it reads is all in memory: no pointer to a row above the first one is made."""

    def from_pool(parts: Sequence[Part], links: Sequence[Link]) -> Bands | None:
        return bands_of(parts, links, 3) if parts[0].kernel.name == "pool_windows" else None

    (network,) = (case.values[0] for case in NETWORKS if case.id == name)
    assert isinstance(network, Network)
    source, inputs = network.model(), given(network)
    whole = CompiledModel(separate(always, source)).run(inputs)["y"]
    always.setattr(fuse_bands, "in_bands", from_pool)
    banded = compile_model(source)
    (step,) = (s for s in banded.program.steps if isinstance(s, Micro) and s.name == "bands")
    assert step.parameters.parts[0].source.start >= 0
    np.testing.assert_array_equal(CompiledModel(banded).run(inputs)["y"], whole)


def test_bands_of_a_part_of_a_chain(always: pytest.MonkeyPatch) -> None:
    """Two kernels each: the zeros around what is stored between the pairs stay where they are."""

    def pairs(parts: Sequence[Part], links: Sequence[Link]) -> Bands | None:
        return bands_of(parts, links, 3) if len(parts) == 2 else None

    (network,) = (case.values[0] for case in NETWORKS if case.id == "windows after windows")
    assert isinstance(network, Network)
    source, inputs = network.model(), given(network)
    whole = CompiledModel(separate(always, source)).run(inputs)["y"]
    always.setattr(fuse_bands, "in_bands", pairs)
    banded = compile_model(source)
    assert micros(banded.program).count("bands") == 2
    np.testing.assert_array_equal(CompiledModel(banded).run(inputs)["y"], whole)


def test_a_long_chain_is_divided(always: pytest.MonkeyPatch) -> None:
    """Of five kernels at most two run together."""
    always.setattr(fuse_bands, "MOST", 2)
    network = Network((1, 16, 12, 12), (Layer(16),) * 5)
    banded = compile_model(network.model()).program
    parts = [len(s.parameters.parts) for s in banded.steps if isinstance(s, Micro) and s.scratch]
    assert parts == [2, 2]


def test_what_is_between_is_not_in_the_plan(always: pytest.MonkeyPatch) -> None:
    """The scratch holds 4 + 2 of 34 rows of the one value, and 4 of 32 of the other."""
    network = Network((1, 4, 32, 32), block(3, 1, (1, 1)))
    whole = separate(always, network.model())
    of_rows(always, 4)
    banded = compile_model(network.model())
    check_plan(banded.program)
    (step,) = (s for s in banded.program.steps if isinstance(s, Micro))
    assert step.scratch[0].elements == (6 * 34 + 4 * 32) * 24
    assert banded.workspace_size < whole.workspace_size / 2


@pytest.mark.parametrize(
    ("outer", "inner", "names"),
    [(8, 48, ["bands"]), (48, 8, ["contraction", "contraction"])],
    ids=["large between small", "small between large"],
)
def test_bands_need_no_more_memory(
    outer: int, inner: int, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ends of bands are in memory at once, with a buffer between them."""
    monkeypatch.setattr(fuse_bands, "gain", lambda links, around: 1e9)
    source = Network((1, outer, 16, 16), (Layer(inner), Layer(outer))).model()
    compiled = compile_model(source, name="p")
    assert [name for name in micros(compiled.program) if name != "transpose"] == names
    assert compiled.workspace_size <= separate(monkeypatch, source).workspace_size


def test_a_pool_between_two_convolutions_is_not_stored() -> None:
    """As a network of images begins: of 4 MB that the first one makes a few rows are kept."""
    layers = (Layer(32, 3, 1, pads=(1, 1)), padded(POOL, 1, 1), Layer(16))
    source = Network((1, 3, 180, 180), layers).model()
    program = compile_model(source).program
    (step,) = (s for s in program.steps if isinstance(s, Micro) and s.name == "bands")
    assert [part.kernel.name for part in step.parameters.parts] == [
        "padded_rows",
        "contraction",
        "pool_windows",
        "contraction",
    ]
    assert step.scratch[0].bytes < 4 * 32 * 180 * 180 / 8


def test_only_what_leaves_the_cache_is_fused() -> None:
    """Of 32 to 192 to 32 channels: at 28 x 28 values of 0.6 MB, at 7 x 7 of 0.04 MB."""
    layers = (Layer(192), Layer(0, 3, 1, pads=(1, 1)), Layer(32))
    sizes = {}
    for size in (28, 7):
        program = compile_model(Network((1, 32, size, size), layers).model()).program
        sizes[size] = [name for name in micros(program) if name != "transpose"]
    assert sizes == {28: ["bands"], 7: ["contraction", "depthwise", "contraction"]}


def test_a_value_with_two_readers_is_stored(always: pytest.MonkeyPatch) -> None:
    source = Network((1, 5, 12, 9), (Layer(8), Layer(0, 3, 1, pads=(1, 1)), Layer(8))).model()
    add = next(node for node in source.graph.node if node.op_type == "Neg")
    add.op_type, add.input[:] = "Add", ["c2", "r0"]
    source.graph.output[0].CopyFrom(declared("y", np.empty((1, 8, 12, 9), np.float32)))
    assert "contraction" in micros(compile_model(source).program)


def test_an_output_of_the_model_is_stored(always: pytest.MonkeyPatch) -> None:
    source = Network((1, 5, 12, 9), block(3, 1, (1, 1))).model()
    source.graph.output.append(declared("r1", np.empty((1, 24, 12, 9), np.float32)))
    assert micros(compile_model(source).program)[-1] == "contraction"


def test_several_images_are_not_rows_of_one(always: pytest.MonkeyPatch) -> None:
    source = Network((2, 5, 12, 9), block(3, 1, (1, 1))).model()
    assert "bands" not in micros(compile_model(source).program)


def test_a_processor_without_vectors_has_no_bands(always: pytest.MonkeyPatch) -> None:
    source = Network((1, 5, 12, 9), block(3, 1, (1, 1))).model()
    assert "bands" not in micros(compile_model(source, target="cortex-m4").program)
