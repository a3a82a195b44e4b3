"""Tuned kernels against exact sums: every template, over shapes, tails, strides and lanes.

The bound of a sum of n products a b and the addends of its epilogue is
max(4 ulp, c * 2^-24 * sum |a b|), with c = n + 8: what any order of the additions keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

import onnxc
from onnxc.kernel import Micro
from onnxc.pipeline import compile_model
from tests.kernels.variants import require_processor
from tests.models import float_network

Array = NDArray[Any]

# Of every build of the base and of the variants: the compiler, its flags, and what these need.
BUILDS = {
    "avx512": ("gcc", "-O2 -march=x86-64-v4", "avx512f"),
    "avx2": ("gcc", "-O2 -march=x86-64-v3 -DTUNED_NO_DISPATCH", "avx2"),
    "sse2": ("gcc", "-O1 -march=x86-64 -DTUNED_NO_DISPATCH", "sse2"),
    "dispatch": ("clang", "-O1 -march=x86-64", "sse2"),
    "scalar": ("tcc", "", ""),
}


@dataclass(frozen=True)
class Convolution:
    """x[batch, channels, *size], filters of `kernel` to `outputs` channels."""

    channels: int
    outputs: int
    size: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...] = (1, 1)
    pads: tuple[int, ...] = (0, 0, 0, 0)
    dilations: tuple[int, ...] = (1, 1)
    group: int = 1
    batch: int = 1


CONVOLUTIONS = {
    "3x3, by Winograd": Convolution(16, 32, (9, 11), (3, 3), pads=(1, 1, 1, 1)),
    "3x3, by Winograd, odd channels": Convolution(9, 21, (8, 8), (3, 3), pads=(1, 1, 1, 1)),
    "3x3 of few channels": Convolution(3, 24, (13, 17), (3, 3), (2, 2), (1, 1, 1, 1)),
    "3x3 to ten channels": Convolution(4, 10, (7, 30), (3, 3), pads=(0, 1, 2, 0)),
    "1x1": Convolution(20, 48, (7, 7), (1, 1)),
    "1x1, stride 2": Convolution(12, 17, (9, 9), (1, 1), (2, 2)),
    "5x4, dilated": Convolution(3, 33, (14, 15), (5, 4), (1, 2), (2, 3, 2, 3), (2, 1)),
    "two images": Convolution(5, 18, (6, 9), (3, 3), pads=(1, 1, 1, 1), batch=2),
    "in one dimension": Convolution(6, 20, (40,), (5,), (2,), (2, 2), (1,)),
    "in three dimensions": Convolution(
        2, 16, (5, 6, 7), (3, 3, 3), (1, 1, 1), (1, 1, 1, 1, 1, 1), (1, 1, 1)
    ),
    "in groups": Convolution(12, 18, (8, 8), (3, 3), pads=(1, 1, 1, 1), group=3),
    "depthwise 3x3": Convolution(24, 24, (9, 10), (3, 3), pads=(1, 1, 1, 1), group=24),
    "depthwise 3x3, stride 2": Convolution(35, 35, (9, 11), (3, 3), (2, 2), (0, 0, 1, 1), group=35),
    "depthwise 5x5, eight channels": Convolution(
        8, 8, (12, 16), (5, 5), pads=(2, 2, 2, 2), group=8
    ),
    "depthwise, dilated": Convolution(16, 16, (12, 12), (3, 3), (1, 1), (2, 2, 2, 2), (2, 2), 16),
    "depthwise in one dimension": Convolution(17, 17, (50,), (3,), (1,), (1, 1), (1,), 17),
}


def convolution_model(case: Convolution, rng: np.random.Generator) -> onnx.ModelProto:
    """relu(conv(x) + bias + residual), its input x, and the residual the second input."""
    shape = (case.batch, case.channels, *case.size)
    weights = rng.standard_normal((case.outputs, case.channels // case.group, *case.kernel))
    node = helper.make_node(
        "Conv",
        ["x", "w", "b"],
        ["c"],
        strides=case.strides,
        pads=case.pads,
        dilations=case.dilations,
        group=case.group,
    )
    nodes = [
        node,
        helper.make_node("Add", ["c", "r"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    spatial = [
        (n + before + after - (k - 1) * d - 1) // s + 1
        for n, k, s, d, before, after in zip(
            case.size,
            case.kernel,
            case.strides,
            case.dilations,
            case.pads[: len(case.size)],
            case.pads[len(case.size) :],
            strict=True,
        )
    ]
    result = (case.batch, case.outputs, *spatial)
    bias = rng.standard_normal(case.outputs)
    return float_network(nodes, {"x": shape, "r": result}, result, {"w": weights, "b": bias})


def windows_of(x: Array, case: Convolution) -> Array:
    """x as [batch, channels, *outputs, *kernel], in double, with zeros around it."""
    rank = len(case.size)
    pads = [(0, 0), (0, 0), *zip(case.pads[:rank], case.pads[rank:], strict=True)]
    padded = np.pad(x.astype(np.float64), pads)
    reach = [(k - 1) * d + 1 for k, d in zip(case.kernel, case.dilations, strict=True)]
    seen = np.lib.stride_tricks.sliding_window_view(padded, reach, tuple(range(2, 2 + rank)))
    steps = [slice(None, None, s) for s in case.strides]
    taps = [slice(None, None, d) for d in case.dilations]
    return seen[(slice(None), slice(None), *steps, *taps)]


def convolved(x: Array, weights: Array, case: Convolution) -> Array:
    """The sums of products, in double."""
    rank, each = len(case.size), case.outputs // case.group
    inputs = case.channels // case.group
    seen = windows_of(x, case)
    axes = [1, *range(2 + rank, 2 + 2 * rank)]
    parts = [
        np.tensordot(
            seen[:, g * inputs : (g + 1) * inputs],
            weights[g * each : (g + 1) * each].astype(np.float64),
            (axes, range(1, 2 + rank)),
        )
        for g in range(case.group)
    ]
    return np.moveaxis(np.concatenate(parts, -1), -1, 1)


def assert_within(actual: Array, wanted: Array, magnitude: Array, length: int) -> None:
    bound = np.maximum(4 * np.spacing(np.abs(wanted).astype(np.float32)), 0)
    bound = np.maximum(bound, (length + 8) * 2.0**-24 * magnitude)
    assert (np.abs(actual - wanted) <= bound).all()


def compiled(source: onnx.ModelProto, build: str, tool: Callable[[str], str], patch: Any) -> Any:
    command, flags, needs = BUILDS[build]
    if needs:
        require_processor(needs)
    patch.setenv("CC", tool(command))
    patch.setenv("ONNXC_CFLAGS", flags)
    return onnxc.compile(source, name="tuned")


def kernels(source: onnx.ModelProto) -> set[str]:
    program = compile_model(source).program
    return {step.name for step in program.steps if isinstance(step, Micro)}


@pytest.mark.parametrize(
    ("name", "build"), [*product(CONVOLUTIONS, ("avx512", "scalar")), ("1x1", "dispatch")]
)
def test_convolution(
    name: str, build: str, tool: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    check_convolution(name, build, tool, monkeypatch)


@pytest.mark.parametrize("build", ["avx2", "sse2", "dispatch"])
@pytest.mark.parametrize(
    "name", ["3x3, by Winograd, odd channels", "3x3 to ten channels", "depthwise 3x3, stride 2"]
)
def test_convolution_in_other_builds(
    name: str, build: str, tool: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    check_convolution(name, build, tool, monkeypatch)


def check_convolution(name: str, build: str, tool: Callable[[str], str], patch: Any) -> None:
    case, rng = CONVOLUTIONS[name], np.random.default_rng(len(name))
    source = convolution_model(case, rng)
    constants = {t.name: numpy_helper.to_array(t) for t in source.graph.initializer}
    shapes = {
        v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in source.graph.input
    }
    x, r = (rng.standard_normal(shapes[n]).astype(np.float32) for n in ("x", "r"))
    bias = constants["b"].reshape(-1, *(1 for _ in case.size)).astype(np.float64)
    wanted = convolved(x, constants["w"], case) + bias + r
    magnitude = convolved(np.abs(x), np.abs(constants["w"]), case) + np.abs(bias) + np.abs(r)
    actual = compiled(source, build, tool, patch).run({"x": x, "r": r})["y"]
    length = constants["w"][0].size
    assert_within(actual, np.maximum(wanted, 0), magnitude, length)


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("3x3, by Winograd", "winograd"),
        ("1x1", "contraction"),
        ("5x4, dilated", "contraction"),
        ("two images", "contraction"),
        ("in one dimension", "contraction"),
        ("depthwise 3x3", "depthwise"),
        ("depthwise, dilated", "depthwise"),
    ],
)
def test_the_kernel_that_is_meant(name: str, kernel: str) -> None:
    source = convolution_model(CONVOLUTIONS[name], np.random.default_rng(0))
    assert kernels(source) == {kernel}


@pytest.mark.parametrize("build", ["avx512", "sse2", "scalar"])
@pytest.mark.parametrize(
    ("left", "right", "constant"),
    [
        ((3, 40), (40, 21), True),
        ((1, 65), (65, 100), True),
        ((30, 24), (24, 37), True),
        ((30, 24), (24, 37), False),
        ((2, 3, 17, 8), (2, 3, 8, 19), False),
        ((2, 3, 17, 8), (8, 33), True),
        ((20, 16), (3, 16, 40), False),
    ],
)
def test_matrix_product(
    left: tuple[int, ...],
    right: tuple[int, ...],
    constant: bool,
    build: str,
    tool: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(left)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in (left, right))
    wanted = a.astype(np.float64) @ b
    magnitude = np.abs(a.astype(np.float64)) @ np.abs(b)
    inputs = {"a": left} if constant else {"a": left, "b": right}
    node = helper.make_node("MatMul", ["a", "b"], ["y"])
    source = float_network([node], inputs, wanted.shape, {"b": b} if constant else {})
    values = {"a": a} if constant else {"a": a, "b": b}
    actual = compiled(source, build, tool, monkeypatch).run(values)["y"]
    assert_within(actual, wanted, magnitude, left[-1])


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
@pytest.mark.parametrize("columns", [12, 20, 28, 44])
def test_last_panels_of_an_odd_number_of_vectors(rows: int, columns: int) -> None:
    rng = np.random.default_rng(columns)
    a, b = (rng.integers(-4, 5, shape) for shape in ((rows, 24), (24, columns)))
    node = helper.make_node("MatMul", ["a", "b"], ["y"])
    source = float_network([node], {"a": a.shape}, (rows, columns), {"b": b})
    model = onnxc.compile(source, target="aarch64")
    np.testing.assert_array_equal(model.run({"a": a.astype(np.float32)})["y"], a @ b)


@pytest.mark.parametrize("target", ["generic", "cortex-m4"])
@pytest.mark.parametrize("rows", [2, 20])
@pytest.mark.parametrize("again", ["m", "b"])
def test_sums_and_addends_that_are_read_twice(again: str, rows: int, target: str) -> None:
    """y = (a w + b) a w, or (a w + b) b."""
    rng = np.random.default_rng(rows)
    a, w, b = (rng.integers(-4, 5, shape) for shape in ((rows, 24), (24, 18), 18))
    nodes = [
        helper.make_node("MatMul", ["a", "w"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["s"]),
        helper.make_node("Mul", ["s", again], ["y"]),
    ]
    source = float_network(nodes, {"a": a.shape}, (rows, 18), {"w": w, "b": b})
    actual = onnxc.compile(source, target=target).run({"a": a.astype(np.float32)})["y"]
    np.testing.assert_array_equal(actual, (a @ w + b) * (a @ w if again == "m" else b))


def test_transposed_run_time_operand_is_laid_out_first(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    q, k = (rng.standard_normal((4, 30, 16)).astype(np.float32) for _ in range(2))
    nodes = [
        helper.make_node("Transpose", ["k"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "t"], ["y"]),
    ]
    source = float_network(nodes, {"q": q.shape, "k": k.shape}, (4, 30, 30), {})
    assert kernels(source) >= {"contraction"}
    wanted = q.astype(np.float64) @ k.transpose(0, 2, 1)
    magnitude = np.abs(q).astype(np.float64) @ np.abs(k).transpose(0, 2, 1)
    actual = onnxc.compile(source).run({"q": q, "k": k})["y"]
    assert_within(actual, wanted, magnitude, 16)


def test_special_values_reach_the_sums_that_read_them_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((8, 20)), rng.standard_normal((20, 40))
    a[1, 3], a[2, 5], a[3, 7] = np.nan, np.inf, -np.inf
    a, b = a.astype(np.float32), b.astype(np.float32)
    node = [helper.make_node("MatMul", ["a", "b"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]
    source = float_network(node, {"a": a.shape}, (8, 40), {"b": b})
    actual = onnxc.compile(source).run({"a": a})["y"]
    wanted = np.maximum(a.astype(np.float64) @ b, 0)
    assert np.isnan(actual[1]).all()
    np.testing.assert_array_equal(np.isfinite(actual), np.isfinite(wanted))
    np.testing.assert_array_equal(actual[2:4], wanted[2:4])


def test_two_runs_give_the_same_bits() -> None:
    rng = np.random.default_rng(3)
    source = convolution_model(CONVOLUTIONS["3x3, by Winograd"], rng)
    shapes = {
        v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in source.graph.input
    }
    values = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    model = onnxc.compile(source)
    first, second = model.run(values)["y"], model.run(values)["y"]
    assert first.tobytes() == second.tobytes()
