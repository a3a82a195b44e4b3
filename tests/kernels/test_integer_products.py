"""Tiles of 8-bit products against exact sums modulo 2^32, for every register file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto

from onnxc.dtypes import BY_NAME, FLOAT, INT32
from onnxc.expression import Axis, Buffer, Expr, Fold, Index, along, apply, cast, load
from onnxc.kernel import Loops, Micro, Program
from onnxc.passes.choose import chosen
from onnxc.passes.merge_axes import merged
from onnxc.pipeline import compile_model
from onnxc.target import TARGETS
from tests.kernels.programs import built, const, evaluated
from tests.kernels.variants import ALONE, BUILDS, Build, require
from tests.ops.node_batch import NodeBatch
from tests.ops.test_convolution import convolution
from tests.ops.test_quantization import RANGES, codes, requantised

Array = NDArray[Any]

WITHOUT = "-D__builtin_cpu_supports(name)=0"
"""A processor that cannot sum four products of bytes in one instruction."""
WIDE = ("-march=x86-64-v4", ALONE)
ALL = [
    pytest.param(Build(16, "gcc", WIDE, "avx512_vnni"), id="avx512vnni"),
    pytest.param(Build(16, "clang", WIDE, "avx512_vnni"), id="avx512vnni clang"),
    pytest.param(Build(16, "gcc", (*WIDE, WITHOUT), "avx512f"), id="avx512"),
    *(pytest.param(build, id=str(build)) for build in BUILDS[1:]),
    pytest.param(Build(1, "tcc", (), "sse2"), id="tcc"),
]

TYPES = [("uint8", "int8", "uint8"), ("int8", "int8", "int8"), ("uint8", "uint8", "int8")]


@dataclass(frozen=True)
class Case:
    """(rows, columns) of pixels, `channels` read by a window, `lanes` made.

    x, w           types of the operands
    x_zero         of x; run_time says that it is an input
    w_zero         of w: one, or one a lane
    given          whether w is an input too
    extreme        whether all numbers are those that overflow first
    """

    rows: int
    columns: int
    channels: int
    lanes: int
    window: tuple[int, int] = (1, 1)
    x: str = "uint8"
    w: str = "int8"
    x_zero: int = 0
    w_zero: int | str = 0
    run_time: bool = False
    given: bool = False
    extreme: bool = False


CASES = [
    pytest.param(Case(1, 40, 64, 64), id="whole panels"),
    pytest.param(Case(1, 29, 67, 71, x_zero=113, w_zero=-5), id="rests of everything"),
    pytest.param(Case(1, 5, 3, 300), id="less than a group"),
    pytest.param(Case(1, 1, 130, 48, x="int8", x_zero=-128, w_zero=127), id="one row"),
    pytest.param(Case(1, 31, 40, 16, x="int8", w="uint8", x_zero=3, w_zero=128), id="a vector"),
    pytest.param(Case(1, 27, 33, 7, w="uint8", w_zero=0, x_zero=255), id="a part of a vector"),
    pytest.param(Case(1, 9, 64, 40, w="uint8", w_zero="each", x_zero=7), id="a zero a lane"),
    pytest.param(Case(6, 11, 5, 35, (3, 3), x_zero=9), id="windows"),
    pytest.param(Case(4, 15, 8, 33, (2, 3), w="uint8", w_zero=77, x_zero=200), id="and sums"),
    pytest.param(Case(1, 23, 70, 45, x_zero=31, run_time=True, w_zero=3), id="zero at run time"),
    pytest.param(Case(1, 30, 66, 83, w="uint8", w_zero=91, given=True), id="both at run time"),
    pytest.param(
        Case(1, 12, 31, 32, w_zero="each", x="int8", x_zero=4, run_time=True, given=True),
        id="everything at run time",
    ),
    pytest.param(Case(1, 15, 1000, 33, x_zero=0, w_zero=0, extreme=True), id="255 * -128"),
    pytest.param(
        Case(1, 15, 1000, 33, x="int8", w="uint8", x_zero=127, w_zero=255, extreme=True),
        id="-255 * -255",
    ),
]


def values(case: Case) -> tuple[Array, Array, Array]:
    """x, w and the zero points of w."""
    generator = np.random.default_rng(0)
    (kernel_rows, kernel_columns), lanes = case.window, case.lanes
    shape = (case.rows + kernel_rows - 1, case.columns + kernel_columns - 1, case.channels)
    limits = [np.iinfo(kind) for kind in (case.x, case.w)]
    if case.extreme:
        x = np.full(shape, limits[0].max if case.x == "uint8" else limits[0].min, case.x)
        w = np.full((*case.window, case.channels, lanes), limits[1].min, case.w)
    else:
        x = generator.integers(limits[0].min, limits[0].max + 1, shape).astype(case.x)
        full = (*case.window, case.channels, lanes)
        w = generator.integers(limits[1].min, limits[1].max + 1, full).astype(case.w)
    if case.w_zero == "each":
        return x, w, generator.integers(limits[1].min, limits[1].max + 1, lanes).astype(case.w)
    return x, w, np.full(lanes, case.w_zero, case.w)


def program(case: Case, w: Array, zeros: Array) -> tuple[Program, list[Buffer]]:
    """The product by its tuned kernel, and its inputs: x, w, the zero points, where given."""
    row, column, lane = Axis(case.rows), Axis(case.columns), Axis(case.lanes)
    down, right, inner = Axis(case.window[0]), Axis(case.window[1]), Axis(case.channels)
    shape = tuple(n + k - 1 for n, k in zip((case.rows, case.columns), case.window, strict=True))
    x = Buffer("x", (*shape, case.channels), BY_NAME[case.x], "input")
    weights = Buffer("w", w.shape, BY_NAME[case.w], "input" if case.given else "constant", w)
    each = Buffer("z", zeros.shape, BY_NAME[case.w], "input" if case.given else "constant", zeros)
    if case.given:
        weights, each = (Buffer(b.name, b.shape, b.dtype, "input") for b in (weights, each))
    single = Buffer("a", (1,), BY_NAME[case.x], "input")
    y = Buffer("y", (case.rows, case.columns, case.lanes), INT32, "output")
    place = (along(row) + along(down), along(column) + along(right), along(inner))
    left: Expr = cast(load(x, place), INT32)
    right_: Expr = cast(load(weights, tuple(map(along, (down, right, inner, lane)))), INT32)
    zero = cast(load(single, (Index(),)), INT32) if case.run_time else const(case.x_zero, INT32)
    taken = cast(load(each, (along(lane),)), INT32)
    if isinstance(case.w_zero, int) and not case.given:
        taken = const(case.w_zero, INT32)
    value = Fold(
        INT32, "sum", (down, right, inner), (left - zero) * (right_ - taken), "contraction"
    )
    loops = Loops(y, tuple(map(along, (row, column, lane))), (row, column, lane), value)
    target = TARGETS["generic"]
    (step,) = chosen(loops, target)
    assert isinstance(step, Micro)
    assert step.name == "integer_product"
    inputs = [x, *([weights, each] if case.given else []), *([single] if case.run_time else [])]
    return Program(tuple(inputs), (y,), (step,), target=target), inputs


def exact(case: Case, x: Array, w: Array, zeros: Array) -> Array:
    left = x.astype(np.int64) - case.x_zero
    right = w.astype(np.int64) - zeros.astype(np.int64)
    total = np.zeros((case.rows, case.columns, case.lanes), np.int64)
    for i, j in np.ndindex(*case.window):
        total += left[i : i + case.rows, j : j + case.columns] @ right[i, j]
    return total.astype(np.int32)


@pytest.mark.parametrize("build", ALL)
@pytest.mark.parametrize("case", CASES)
def test_sums_are_exact(case: Case, build: Build) -> None:
    require(build)
    x, w, zeros = values(case)
    made, inputs = program(case, w, zeros)
    named = {"x": x, "w": w, "z": zeros, "a": np.array([case.x_zero], case.x)}
    given = {buffer: named[buffer.name] for buffer in inputs}
    _, results = built(made, build.compiler, build.flags).run(given)
    np.testing.assert_array_equal(results[made.outputs[0]], exact(case, x, w, zeros))


@pytest.mark.parametrize("case", CASES)
def test_evaluate_agrees(case: Case) -> None:
    x, w, zeros = values(case)
    made, inputs = program(case, w, zeros)
    named = {"x": x, "w": w, "z": zeros, "a": np.array([case.x_zero], case.x)}
    _, results = evaluated(made, {buffer: named[buffer.name] for buffer in inputs})
    np.testing.assert_array_equal(results[made.outputs[0]], exact(case, x, w, zeros))


def tuned_steps(source: ModelProto) -> list[str]:
    return [s.name for s in compile_model(source).program.steps if isinstance(s, Micro)]


@pytest.mark.parametrize(("x_type", "w_type", "y_type"), TYPES, ids="-".join)
@pytest.mark.parametrize("stride", [1, 2])
def test_padding_is_the_zero_point(x_type: str, w_type: str, y_type: str, stride: int) -> None:
    """Of a convolution and one after it, each stored as bytes by the kernel that sums."""
    x, w = codes(x_type, 1, 6, 13, 11), codes(w_type, 40, 6, 3, 3, seed=1)
    zero_x, zero_w = (np.array(RANGES[name][1] - 101, name) for name in (x_type, w_type))
    scales = np.random.default_rng(0).uniform(0.001, 0.002, 40).astype(np.float32)
    bias = np.random.default_rng(1).integers(-9000, 9000, 40).astype(np.int32)
    one, size = np.array(0.75, np.float32), np.array(0.125, np.float32)
    zero_y = np.array(RANGES[y_type][0] + 99, y_type)
    total = convolution(
        x.astype(np.int32) - int(zero_x),
        w.astype(np.int32) - int(zero_w),
        [stride] * 2,
        [1] * 2,
        [1] * 4,
    )
    scale = (one * scales / size).reshape(-1, 1, 1)
    wanted = requantised(total + bias.reshape(-1, 1, 1), scale, int(zero_y), y_type)
    batch = NodeBatch()
    inputs = [x, one, zero_x, w, scales, zero_w, size, zero_y, bias]
    attributes = {"pads": [1] * 4, "strides": [stride] * 2}
    batch.add_node("QLinearConv", inputs, [wanted], constants=range(1, 9), **attributes)
    assert "integer_product" in tuned_steps(batch.model())
    batch.check()


def test_matrices_of_quantised_networks() -> None:
    """Sums that are stored as they are, as bytes with a scale for each column, at run time too."""
    a, b = codes("uint8", 21, 50), codes("int8", 50, 37, seed=1)
    zero_a, zero_b, zero_y = (
        np.array(117, np.uint8),
        codes("int8", 37, seed=2),
        np.array(-3, "int8"),
    )
    total = (a.astype(np.int32) - 117) @ (b.astype(np.int32) - zero_b.astype(np.int32))
    batch = NodeBatch()
    batch.add_node("MatMulInteger", [a, b, zero_a, zero_b], [total])
    batch.add_node("MatMulInteger", [a, b, zero_a, zero_b], [total], constants=[1, 3])
    scale_a, size = np.array(0.5, np.float32), np.array(3.0, np.float32)
    scale_b = np.random.default_rng(0).uniform(0.001, 0.02, 37).astype(np.float32)
    wanted = requantised(total, scale_a * scale_b / size, -3, "int8")
    inputs = [a, scale_a, zero_a, b, scale_b, zero_b, size, zero_y]
    batch.add_node("QLinearMatMul", inputs, [wanted], constants=range(1, 8))
    batch.add_node("QLinearMatMul", inputs, [wanted], constants=[3, 4, 5, 6, 7])
    batch.add_node("QLinearMatMul", inputs, [wanted])
    assert tuned_steps(batch.model()).count("integer_product") == 5
    batch.check()


def finished(total: Expr, lane: Axis, y_type: str, bias: Array, scales: Array) -> Expr:
    """(total + bias) * scale, to bytes around 100."""
    added, factor = (
        load(Buffer("", values.shape, dtype, "constant", values), (along(lane),))
        for values, dtype in ((bias, INT32), (scales, FLOAT))
    )
    ratio = cast(total + added, FLOAT) * factor
    return apply("quantise", ratio, const(100, FLOAT), dtype=BY_NAME[y_type])


def layer(kind: str, lanes: int, y_type: str, values: dict[str, Array]) -> tuple[Program, Buffer]:
    """A 3x3 convolution of `lanes` channels each with a filter of its own, or of 5 to `lanes`."""
    x = Buffer("x", values["x"].shape, BY_NAME["int8"], "input")
    w = Buffer("w", values["w"].shape, BY_NAME["uint8"], "constant", values["w"])
    row, column, lane, down, right, inner = map(Axis, (6, 11, lanes, 3, 3, 5))
    each = kind == "integer_depthwise"
    taps = (down, right) if each else (down, right, inner)
    place = (along(row) + along(down), along(column) + along(right), along(lane if each else inner))
    left: Expr = cast(load(x, place), INT32) - const(-7, INT32)
    filters: Expr = cast(load(w, tuple(map(along, (*taps, lane)))), INT32) - const(130, INT32)
    total = Fold(INT32, "sum", taps, left * filters, "convolution")
    value: Expr = total
    if y_type != "int32":
        value = finished(total, lane, y_type, values["bias"], values["scales"])
    y = Buffer("y", (6, 11, lanes), BY_NAME[y_type], "output")
    target = TARGETS["generic"]
    loops = Loops(y, tuple(map(along, (row, column, lane))), (row, column, lane), value)
    (step,) = chosen(loops, target)
    assert isinstance(step, Micro)
    assert step.name == kind
    return Program((x,), (y,), (step,), target=target), x


@pytest.mark.parametrize("build", ALL)
@pytest.mark.parametrize("y_type", ["int32", "int8", "uint8"])
@pytest.mark.parametrize("lanes", [32, 21])
@pytest.mark.parametrize("kind", ["integer_product", "integer_depthwise"])
def test_what_follows_the_sums(kind: str, lanes: int, y_type: str, build: Build) -> None:
    """Scales that are not finite too: of a NaN comes the zero point."""
    require(build)
    generator = np.random.default_rng(lanes)
    each = kind == "integer_depthwise"
    x = codes("int8", 8, 13, lanes if each else 5)
    w = codes("uint8", 3, 3, *([] if each else [5]), lanes, seed=1)
    bias = generator.integers(-9000, 9000, lanes).astype(np.int32)
    scales = generator.uniform(-0.01, 0.01, lanes).astype(np.float32)
    scales[1:4] = np.inf, np.nan, 1e30
    values = {"x": x, "w": w, "bias": bias, "scales": scales}
    total = np.zeros((6, 11, lanes), np.int64)
    for i, j in np.ndindex(3, 3):
        left, right = x[i : i + 6, j : j + 11].astype(np.int64) + 7, w[i, j].astype(np.int64) - 130
        total += left * right if each else left @ right
    wanted = total.astype(np.int32)
    if y_type != "int32":
        with np.errstate(all="ignore"):
            ratio = (total + bias).astype(np.float32) * scales
        near = np.clip(np.nan_to_num(np.rint(ratio), nan=0.0) + 100, *RANGES[y_type])
        wanted = near.astype(y_type)
    made, given = layer(kind, lanes, y_type, values)
    _, results = built(made, build.compiler, build.flags).run({given: x})
    np.testing.assert_array_equal(results[made.outputs[0]], wanted)


@dataclass(frozen=True)
class Filters:
    """Of `channels`, each with its own window: (rows, columns) of outputs, taps, and from an output
    and a tap to the next.

    x, w     types of the operands, of the greatest magnitudes where `extreme`
    factors  whether results are int8: sums by a factor a channel
    """

    points: tuple[int, int]
    channels: int
    window: tuple[int, int] = (3, 3)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    x: str = "int8"
    w: str = "int8"
    x_zero: int = -7
    w_zero: int = 0
    extreme: bool = False
    factors: bool = False


FILTERS = [
    Filters((6, 48), 8),
    Filters((25, 17), 3, x="uint8", x_zero=200, w="uint8", w_zero=255, factors=True),
    Filters((16, 5), 3, (5, 5), factors=True),
    Filters((9, 11), 24, factors=True),
    Filters((7, 13), 12, (3, 2), (2, 1)),
    Filters((11, 9), 8, strides=(2, 2), x="uint8", x_zero=3, factors=True),
    Filters((13, 9), 5, strides=(2, 3), dilations=(3, 2)),
    Filters((5, 10), 21, (5, 1), dilations=(2, 1), w="uint8", w_zero=130),
    Filters((4, 8), 21, (1, 9), dilations=(1, 2), factors=True),
    Filters((3, 10), 40, (7, 7), x="uint8", x_zero=0, w_zero=5, extreme=True),
    Filters((1, 1), 67, (8, 8), x_zero=-128, factors=True),
    Filters((25, 1), 33, (1, 5), w_zero=-128, extreme=True),
    Filters((9, 1), 16, (30, 1), x="uint8", x_zero=255, w="uint8", w_zero=0, extreme=True),
    Filters((3, 40), 2, (2, 30), x="uint8", x_zero=128),
]


def filtered(case: Filters, number: int) -> tuple[Loops, Buffer, Array, Array]:
    """The sums, or bytes; the input, what it holds, and what is exact."""
    (down, right), (step, stride) = case.window, case.strides
    shape = tuple(
        (points - 1) * s + (taps - 1) * d + 1
        for points, taps, s, d in zip(
            case.points, case.window, case.strides, case.dilations, strict=True
        )
    )
    values = codes(case.x, *shape, case.channels, seed=number)
    weights = codes(case.w, *case.window, case.channels, seed=number + 1)
    if case.extreme:
        values[:], weights[:] = RANGES[case.x][1], RANGES[case.w][0 if case.w_zero >= 0 else 1]
    row, column, lane = Axis(case.points[0]), Axis(case.points[1]), Axis(case.channels)
    over, along_ = Axis(down), Axis(right)
    x = Buffer(f"x{number}", values.shape, BY_NAME[case.x], "input")
    w = Buffer(f"w{number}", weights.shape, BY_NAME[case.w], "constant", weights)
    place = (
        along(row) * step + along(over) * case.dilations[0],
        along(column) * stride + along(along_) * case.dilations[1],
        along(lane),
    )
    left: Expr = cast(load(x, place), INT32) - const(case.x_zero, INT32)
    filters: Expr = cast(load(w, (along(over), along(along_), along(lane))), INT32)
    total = Fold(INT32, "sum", (over, along_), left * (filters - const(case.w_zero, INT32)), "conv")
    exact = np.zeros((*case.points, case.channels), np.int64)
    for i, j in np.ndindex(*case.window):
        top, first = i * case.dilations[0], j * case.dilations[1]
        part = values[top::step, first::stride][: case.points[0], : case.points[1]]
        exact += (part.astype(np.int64) - case.x_zero) * (weights[i, j].astype(int) - case.w_zero)
    value: Expr = total
    if case.factors:
        generator = np.random.default_rng(number)
        bias = generator.integers(-9000, 9000, case.channels).astype(np.int32)
        scales = generator.uniform(-0.01, 0.01, case.channels).astype(np.float32)
        value = finished(total, lane, "int8", bias, scales)
        ratio = (exact + bias).astype(np.float32) * scales
        exact = np.clip(np.rint(ratio) + 100, -128, 127)
    dtype = BY_NAME["int8"] if case.factors else INT32
    y = Buffer(f"y{number}", exact.shape, dtype, "output")
    loops = Loops(y, tuple(map(along, (row, column, lane))), (row, column, lane), value)
    return loops, x, values, exact.astype(dtype.numpy)


@pytest.mark.parametrize("build", ALL)
def test_filters_of_their_own(build: Build) -> None:
    """Pixels side by side where channels are few, taps in pairs and those that are left over."""
    require(build)
    target = TARGETS["generic"]
    found = [filtered(case, 2 * number) for number, case in enumerate(FILTERS)]
    steps = [step for loops, *_ in found for step in chosen(merged(loops), target)]
    assert [getattr(step, "name", "") for step in steps] == ["integer_depthwise"] * len(FILTERS)
    made = Program(
        tuple(x for _, x, _, _ in found),
        tuple(loops.out for loops, *_ in found),
        tuple(steps),
        target=target,
    )
    _, results = built(made, build.compiler, build.flags).run({x: v for _, x, v, _ in found})
    for case, (loops, _, _, exact) in zip(FILTERS, found, strict=True):
        np.testing.assert_array_equal(results[loops.out], exact, str(case))
