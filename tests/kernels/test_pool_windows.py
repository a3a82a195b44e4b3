"""The greatest of windows in vectors of channels: the same values as in plain loops.

Every case has a channel that no vector of its own holds, or not, and values of every kind: a NaN
is the greatest, and +0 is greater than -0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, helper

from onnxc.compiled import CompiledModel
from onnxc.kernel import Micro
from onnxc.pipeline import compile_model, evaluate_model
from onnxc.tuned import windows_pool
from tests.kernels.variants import BUILDS, Build, require
from tests.models import STRICT, declared, model, stored

Array = NDArray[Any]
KINDS = (np.nan, -np.inf, np.inf, 0.0, -0.0, 1e-40, -3.5, 2.25)


@dataclass(frozen=True)
class Windows:
    """MaxPool of x[images, *size, channels] with channels last."""

    channels: int
    size: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...] = (1, 1)
    pads: tuple[int, ...] = (0, 0, 0, 0)
    dilations: tuple[int, ...] = (1, 1)
    ceil_mode: int = 0
    images: int = 1

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.images, *self.size, self.channels)

    def node(self, x: str, y: str) -> Any:
        return helper.make_node(
            "MaxPool",
            [x],
            [y],
            kernel_shape=self.kernel,
            strides=self.strides,
            pads=self.pads,
            dilations=self.dilations,
            ceil_mode=self.ceil_mode,
        )


CASES = {
    "3x3, stride 2": Windows(32, (9, 23), (3, 3), (2, 2)),
    "3x3, stride 2, zeros before": Windows(24, (9, 16), (3, 3), (2, 2), (1, 1, 0, 0)),
    "3x3, all sides": Windows(17, (7, 9), (3, 3), (1, 1), (1, 1, 1, 1)),
    "2x2": Windows(16, (8, 12), (2, 2), (2, 2)),
    "rounded up": Windows(33, (8, 11), (3, 2), (2, 3), ceil_mode=1),
    "5x5 in a small image": Windows(40, (3, 4), (5, 5), (1, 1), (2, 2, 2, 2)),
    "dilated": Windows(19, (11, 13), (3, 2), (1, 2), (2, 3, 3, 2), (2, 3)),
    "two images": Windows(18, (6, 7), (3, 3), (2, 1), (1, 1, 1, 1), images=2),
    "rows only": Windows(20, (9, 5), (4, 1)),
    "columns only": Windows(20, (3, 18), (1, 6), (2, 1), (0, 5, 0, 5)),
    "in one dimension": Windows(21, (30,), (3,), (2,), (1, 1), (1,)),
}


@pytest.fixture(autouse=True)
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXC_DEBUG", "1")
    monkeypatch.setattr(windows_pool, "LEAST", 1)


def values(shape: tuple[int, ...]) -> Array:
    """Of every kind, among others that differ."""
    generator = np.random.default_rng(list(shape))
    kinds = generator.choice(np.array(KINDS, np.float32), shape)
    others = generator.standard_normal(shape).astype(np.float32)
    return np.where(generator.random(shape) < 0.3, kinds, others).astype(np.float32)


def alone(case: Windows, after: tuple[Any, ...] = ()) -> ModelProto:
    """x with channels last to y with channels last: both transpositions are views."""
    rank = len(case.shape)
    back = [0, *range(2, rank), 1]
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, rank - 1, *range(1, rank - 1)]),
        case.node("t", "m"),
        *after,
        helper.make_node("Transpose", ["s" if after else "m"], ["y"], perm=back),
    ]
    graph = helper.make_graph(nodes, "p", [declared("x", np.empty(case.shape, np.float32))], [])
    graph.output.append(helper.make_tensor_value_info("y", 1, None))
    return model(graph)


def behind_relu(case: Windows) -> tuple[ModelProto, Array]:
    """Between convolutions, whose sums are exact; and x, some pixels of which make NaNs."""
    generator = np.random.default_rng(case.channels)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        case.node("r", "m"),
        helper.make_node("Conv", ["m", "v"], ["y"]),
    ]
    x = generator.integers(-9, 10, (1, 2, *case.size)).astype(np.float32)
    x[:, :, :: case.size[0] - 1, 4:8] = np.inf
    graph = helper.make_graph(nodes, "p", [declared("x", x)], [])
    graph.output.append(helper.make_tensor_value_info("y", 1, None))
    for name, shape in {"w": (case.channels, 2), "v": (16, case.channels)}.items():
        weights = generator.integers(-3, 4, (*shape, 1, 1))
        graph.initializer.append(stored(name, weights.astype(np.float32)))
    return model(graph), x


def pools(source: ModelProto) -> list[windows_pool.Pool]:
    steps = compile_model(source, name="p").program.steps
    kernels = (step for step in steps if isinstance(step, Micro))
    return [step.parameters for step in kernels if step.name == "pool_windows"]


def assert_same(actual: Array, wanted: Array) -> None:
    """In every bit but those of a NaN."""
    np.testing.assert_array_equal(actual, wanted)
    numbers = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(actual[numbers]), np.signbit(wanted[numbers]))


def results(source: ModelProto, x: Array, **options: Any) -> Array:
    compiled = compile_model(source, name="p", **options)
    return np.asarray(CompiledModel(compiled).run({"x": x})["y"])


@pytest.mark.parametrize("build", BUILDS, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_any_value_in_every_register_file(
    name: str, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    require(build)
    case = CASES[name]
    source, x = alone(case), values(case.shape)
    (pool,) = pools(source)
    assert not pool.positive
    wanted = results(source, x, plain=True)
    monkeypatch.setenv("CC", build.compiler)
    monkeypatch.setenv("ONNXC_CFLAGS", " ".join((*build.flags, *STRICT)))
    assert_same(results(source, x), wanted)
    assert_same(np.asarray(evaluate_model(source, {"x": x})["y"]), wanted)


@pytest.mark.parametrize("build", BUILDS, ids=str)
@pytest.mark.parametrize("name", ["3x3, stride 2", "3x3, all sides", "dilated"])
def test_behind_a_relu_bits_are_compared(
    name: str, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    require(build)
    case = CASES[name]
    source, x = behind_relu(case)
    (pool,) = pools(source)
    assert pool.positive
    wanted = results(source, x, plain=True)
    monkeypatch.setenv("CC", build.compiler)
    monkeypatch.setenv("ONNXC_CFLAGS", " ".join((*build.flags, *STRICT)))
    assert_same(results(source, x), wanted)


@pytest.mark.parametrize("build", ["clang", "tcc"])
def test_other_compilers(build: str, tool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["3x3, all sides"]
    monkeypatch.setenv("CC", tool(build))
    monkeypatch.setenv("ONNXC_CFLAGS", "-O2")
    x = values(case.shape)
    assert_same(results(alone(case), x), results(alone(case), x, plain=True))


def test_what_follows_the_maximum() -> None:
    """A factor of each channel, a term of each pixel, and a bound, in the same kernel."""
    case = CASES["3x3, all sides"]
    generator = np.random.default_rng(0)
    source = alone(
        case,
        (
            helper.make_node("Mul", ["m", "factors"], ["f"]),
            helper.make_node("Add", ["f", "terms"], ["a"]),
            helper.make_node("Relu", ["a"], ["s"]),
        ),
    )
    factors = 2.0 ** generator.integers(-2, 3, (case.channels, 1, 1))  # the product is exact
    terms = generator.standard_normal(case.size)
    for name, data in {"factors": factors, "terms": terms}.items():
        source.graph.initializer.append(stored(name, data.astype(np.float32)))
    (pool,) = pools(source)
    assert sorted((step.row, step.column, step.channel) for step in pool.addends) == [
        (0, 0, 1),
        (case.size[1], 1, 0),
    ]
    x = values(case.shape)
    assert_same(results(source, x), results(source, x, plain=True))


@pytest.mark.parametrize("channels", [16, 24, 64])
def test_the_result_may_take_the_place_of_the_operand(channels: int) -> None:
    """The pool of a value that nothing else reads needs no memory beside it."""
    case = Windows(channels, (11, 13), (3, 3), (2, 2))
    source, x = behind_relu(case)
    program = compile_model(source).program
    (step,) = (s for s in program.steps if isinstance(s, Micro) and s.name == "pool_windows")
    assert program.offsets[step.inputs[0]] == program.offsets[step.twin.out]
    assert_same(results(source, x), results(source, x, plain=True))


REFUSED = {
    "in three dimensions": Windows(16, (4, 5, 6), (2, 2, 2), (1, 1, 1), (0,) * 6, (1, 1, 1)),
    "fewer channels than a vector": Windows(15, (8, 12), (2, 2)),
    "a window of padding alone": Windows(16, (1, 12), (2, 2), pads=(1, 0, 1, 0), dilations=(2, 1)),
    "more columns than a tile reads": Windows(16, (8, 40), (1, 33)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_windows_stay_in_plain_loops(name: str) -> None:
    case = REFUSED[name]
    source, x = alone(case), values(case.shape)
    assert not pools(source)
    assert_same(results(source, x), results(source, x, plain=True))


def test_little_results_stay_in_plain_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    source = alone(CASES["2x2"])
    monkeypatch.setattr(windows_pool, "LEAST", 16 * 4 * 6 + 1)
    assert not pools(source)
    monkeypatch.setattr(windows_pool, "LEAST", 16 * 4 * 6)
    assert pools(source)


@pytest.mark.parametrize("options", [{"target": "cortex-m4"}, {"optimize": "size"}])
def test_little_code_has_plain_loops(options: dict[str, Any]) -> None:
    steps = compile_model(alone(CASES["2x2"]), **options).program.steps
    assert not any(isinstance(step, Micro) for step in steps)
