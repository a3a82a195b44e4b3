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
from onnxc.tuned import contraction
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
    "depthwise, rows as they lie": Convolution(5, 5, (9, 43), (3, 3), pads=(1, 1, 1, 1), group=5),
    "depthwise, dilated rows, two images": Convolution(
        3, 3, (12, 70), (2, 3), (2, 1), (2, 2, 2, 2), (2, 2), 3, 2
    ),
    "depthwise, rows of one vector": Convolution(6, 6, (8, 18), (3, 3), group=6),
    "1x1, planes as they lie": Convolution(20, 48, (6, 18), (1, 1)),
    "1x1, two images, few filters": Convolution(12, 3, (5, 31), (1, 1), batch=2),
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
@pytest.mark.parametrize("name", ["depthwise, dilated rows, two images"])
def test_rows_in_other_builds(
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
        ("depthwise, rows as they lie", "rowwise"),
        ("depthwise, rows of one vector", "rowwise"),
        ("1x1, planes as they lie", "contraction"),
        ("depthwise, dilated", "depthwise"),
    ],
)
def test_the_kernel_that_is_meant(name: str, kernel: str) -> None:
    """Beside the copy of rows with their padding, where there is one."""
    source = convolution_model(CONVOLUTIONS[name], np.random.default_rng(0))
    assert kernels(source) - {"padded_rows"} == {kernel}


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


@pytest.mark.parametrize("build", ["avx512", "avx2", "sse2", "scalar"])
@pytest.mark.parametrize(
    ("left", "right", "constant"),
    [
        ((40, 24), (24, 37), True),
        ((40, 24), (24, 37), False),
        ((3, 48), (48, 32), False),
        ((2, 30, 16), (2, 16, 5), False),
    ],
)
def test_matrix_product_of_doubles(
    left: tuple[int, ...],
    right: tuple[int, ...],
    constant: bool,
    build: str,
    tool: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """(a b - 3) * c, of which the tuned kernel stores the result."""
    rng = np.random.default_rng(left)
    a, b = (rng.standard_normal(shape) for shape in (left, right))
    c = rng.standard_normal(right[-1])
    product = a.astype(np.longdouble) @ b
    wanted = (product - 3) * c
    nodes = [
        helper.make_node("MatMul", ["a", "b"], ["m"]),
        helper.make_node("Sub", ["m", "three"], ["s"]),
        helper.make_node("Mul", ["s", "c"], ["y"]),
    ]
    given = {"a": a} if constant else {"a": a, "b": b}
    constants = {"three": np.array(3.0), "c": c, **({"b": b} if constant else {})}
    graph = helper.make_graph(
        nodes,
        "doubles",
        [
            helper.make_tensor_value_info(n, onnx.TensorProto.DOUBLE, v.shape)
            for n, v in given.items()
        ],
        [helper.make_tensor_value_info("y", onnx.TensorProto.DOUBLE, wanted.shape)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    source = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 22)])
    assert kernels(source) == {"contraction"}
    actual = compiled(source, build, tool, monkeypatch).run(given)["y"]
    magnitude = (np.abs(a).astype(np.longdouble) @ np.abs(b) + 3) * np.abs(c)
    assert (np.abs(actual - wanted) <= (left[-1] + 8) * 2.0**-53 * magnitude).all()


@pytest.mark.parametrize("left", [(30, 24), (28, 40)])
@pytest.mark.parametrize("columns", [1, 3, 16, 40, 71])
def test_panels_of_a_run_time_operand_are_copied_together(
    left: tuple[int, int], columns: int
) -> None:
    """Short rows too, and last panels that are not whole: zeros stand for what is not there."""
    rng = np.random.default_rng(columns)
    a, b = (rng.integers(-4, 5, shape) for shape in (left, (left[1], columns)))
    node = helper.make_node("MatMul", ["a", "b"], ["y"])
    source = float_network([node], {"a": a.shape, "b": b.shape}, (left[0], columns), {})
    (step,) = compile_model(source).program.steps
    if isinstance(step, Micro) and step.name == "contraction":
        assert step.parameters.copied
    given = {"a": a.astype(np.float32), "b": b.astype(np.float32)}
    np.testing.assert_array_equal(onnxc.compile(source).run(given)["y"], a @ b)


@pytest.mark.parametrize("target", ["generic", "aarch64", "cortex-m4"])
@pytest.mark.parametrize("element", ["FLOAT", "DOUBLE"])
def test_copied_panels_have_room(element: str, target: str) -> None:
    """In every variant, those of doubles without vectors too, which are two columns wide."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["y"])],
        "g",
        [
            helper.make_tensor_value_info(name, onnx.TensorProto.DataType.Value(element), shape)
            for name, shape in (("a", (28, 40)), ("b", (40, 33)))
        ],
        [helper.make_empty_tensor_value_info("y")],
    )
    model = onnx.shape_inference.infer_shapes(helper.make_model(graph, ir_version=10))
    (step,) = compile_model(model, target=target).program.steps
    assert isinstance(step, Micro)
    assert step.parameters.copied
    (panels,) = step.scratch
    assert panels.shape[0] * panels.shape[2] >= 34


@pytest.mark.parametrize("columns", [1, 2, 9])
def test_copied_panels_take_at_most_twice_the_operand(columns: int) -> None:
    node = helper.make_node("MatMul", ["a", "b"], ["y"])
    shapes = {"a": (32, 20_000), "b": (20_000, columns)}
    program = compile_model(float_network([node], shapes, (32, columns), {})).program
    assert program.workspace_size <= 2 * 20_000 * columns * 4


def test_no_tuned_kernel_for_offsets_beyond_int32() -> None:
    node = helper.make_node("MatMul", ["a", "b"], ["y"])
    shape = (40, 8000, 8000)
    source = float_network([node], {"a": shape, "b": shape}, shape, {})
    assert not kernels(source)


@pytest.mark.parametrize("few", [0, 1 << 18])
def test_rows_in_spans_give_the_same_sums(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where what is read is more than the cache holds: a product, and a convolution by rows."""
    monkeypatch.setattr(contraction, "FEW", few)
    monkeypatch.setattr(contraction, "NARROW", 1 << 12)
    monkeypatch.setattr(contraction, "SPAN", 1 << 12)
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-4, 5, shape) for shape in ((101, 48), (48, 70)))
    node = helper.make_node("MatMul", ["a", "b"], ["y"])
    for constant in (True, False):
        inputs = {"a": a.shape} if constant else {"a": a.shape, "b": b.shape}
        source = float_network([node], inputs, (101, 70), {"b": b} if constant else {})
        values = {"a": a, "b": b}
        given = {name: values[name].astype(np.float32) for name in inputs}
        model = onnxc.compile(source)
        assert "int32_t first" in model.c_source
        np.testing.assert_array_equal(model.run(given)["y"], a @ b)
    case = Convolution(8, 40, (31, 20), (3, 3), (2, 2), (1, 1, 1, 1))
    source = convolution_model(case, rng)
    model = onnxc.compile(source)
    assert "int32_t first" in model.c_source
    constants = {t.name: numpy_helper.to_array(t) for t in source.graph.initializer}
    x, r = rng.standard_normal((1, 8, 31, 20)), rng.standard_normal((1, 40, 16, 10))
    x, r = x.astype(np.float32), r.astype(np.float32)
    bias = constants["b"].reshape(-1, 1, 1).astype(np.float64)
    wanted = convolved(x, constants["w"], case) + bias + r
    magnitude = convolved(np.abs(x), np.abs(constants["w"]), case) + np.abs(bias) + np.abs(r)
    assert_within(model.run({"x": x, "r": r})["y"], np.maximum(wanted, 0), magnitude, 72)


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
