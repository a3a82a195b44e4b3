"""Tiles of a convolution or matrix product against exact sums, for every register file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from onnxc.expression import Axis, Buffer, Expr, Fold, along, apply, load
from onnxc.kernel import Loops, Micro, Program
from onnxc.passes.merge_axes import merged
from onnxc.target import TARGETS, Variant
from onnxc.tuned import contraction as tuned
from onnxc.tuned.product import product_of
from tests.kernels.programs import FLOAT, built, const, evaluated
from tests.kernels.variants import BUILDS, Build, require

Array = NDArray[Any]


@dataclass(frozen=True)
class Layer:
    """A convolution with channels last: `channels` and `outputs` of each group; no padding.

    bias, clip, residual    what follows the sums, in this order
    """

    rows: int
    columns: int
    channels: int
    outputs: int
    kernel: tuple[int, int] = (1, 1)
    stride: int = 1
    dilation: int = 1
    groups: int = 1
    bias: bool = True
    clip: bool = False
    residual: bool = False

    @property
    def read(self) -> tuple[int, int, int]:
        """The shape of what is read."""
        height, width = (
            (n - 1) * self.stride + (k - 1) * self.dilation + 1
            for n, k in zip((self.rows, self.columns), self.kernel, strict=True)
        )
        return height, width, self.groups * self.channels

    @property
    def written(self) -> tuple[int, int, int]:
        return self.rows, self.columns, self.groups * self.outputs


STREAMED = Layer(3, 20, 400, 180)
"""Many tiles and panels, of which the constants are not all in the cache."""

LAYERS = [
    pytest.param(STREAMED, id="panels asked for while tiles pass over the one before"),
    pytest.param(Layer(3, 20, 200, 128, groups=4), id="the same with groups"),
    pytest.param(Layer(5, 11, 7, 24), id="24 outputs: a vector and a half of 16 lanes"),
    pytest.param(Layer(3, 29, 5, 16, clip=True), id="one vector of 16 lanes, two of 8"),
    pytest.param(Layer(9, 10, 6, 8), id="half a vector of 16 lanes"),
    pytest.param(Layer(2, 30, 9, 40, residual=True), id="a panel and a quarter"),
    pytest.param(Layer(7, 7, 8, 71), id="two panels and an odd rest"),
    pytest.param(Layer(1, 3, 700, 3), id="few of all but the length"),
    pytest.param(Layer(1, 1, 130, 67), id="one row"),
    pytest.param(Layer(13, 17, 3, 32, (3, 3), stride=2), id="a first layer"),
    pytest.param(Layer(6, 5, 4, 35, (3, 2), dilation=2, clip=True), id="dilated"),
    pytest.param(Layer(4, 6, 5, 9, (1, 3), groups=3, residual=True), id="groups"),
    pytest.param(Layer(8, 8, 16, 64, bias=False), id="no addend"),
]


def program(layer: Layer, weights: Array, bias: Array) -> tuple[Program, list[Buffer]]:
    """The layer by its tuned kernel, and its inputs: x, and the residual where there is one."""
    x = Buffer("x", layer.read, FLOAT, "input")
    residual = Buffer("r", layer.written, FLOAT, "input")
    y = Buffer("y", layer.written, FLOAT, "output")
    row, column, group, channel = map(
        Axis, (layer.rows, layer.columns, layer.groups, layer.outputs)
    )
    down, right, inner = map(Axis, (*layer.kernel, layer.channels))
    place = (along(row), along(column), along(group) * layer.outputs + along(channel))
    source = load(
        x,
        (
            along(row) * layer.stride + along(down) * layer.dilation,
            along(column) * layer.stride + along(right) * layer.dilation,
            along(group) * layer.channels + along(inner),
        ),
    )
    filters = Buffer("w", weights.shape, FLOAT, "constant", weights)
    walks = tuple(map(along, (group, down, right, inner, channel)))
    product = source * load(filters, walks)
    value: Expr = Fold(FLOAT, "sum", (down, right, inner), product, "convolution")
    if layer.bias:
        value = value + load(Buffer("b", bias.shape, FLOAT, "constant", bias), (place[2],))
    if layer.clip:
        value = apply("min", apply("max", value, const(0.0, FLOAT)), const(6.0, FLOAT))
    if layer.residual:
        value = value + load(residual, place)
    target = TARGETS["generic"]
    loops = Loops(y, place, (row, column, group, channel), value)
    found = product_of(merged(loops))
    step = found and tuned.contraction(found, target)
    assert isinstance(step, Micro)
    inputs = [x, residual] if layer.residual else [x]
    return Program(tuple(inputs), (y,), (step,), target=target), inputs


def summed(layer: Layer, x: Array, weights: Array) -> Array:
    """The sums of products alone, in double."""
    total = np.zeros(layer.written)
    for n in range(layer.groups):
        out = slice(n * layer.outputs, (n + 1) * layer.outputs)
        taken = x[..., n * layer.channels : (n + 1) * layer.channels].astype(np.float64)
        for i, j in np.ndindex(*layer.kernel):
            top, left = i * layer.dilation, j * layer.dilation
            part = taken[top :: layer.stride, left :: layer.stride][: layer.rows, : layer.columns]
            total[..., out] += part @ weights[n, i, j]
    return total


def finished(layer: Layer, total: Array, bias: Array, residual: Array) -> Array:
    value = total + bias if layer.bias else total
    value = np.clip(value, 0, 6) if layer.clip else value
    return np.asarray(value + residual if layer.residual else value)


@pytest.mark.parametrize("build", BUILDS, ids=str)
@pytest.mark.parametrize("layer", LAYERS)
def test_sums_are_within_the_bound(layer: Layer, build: Build) -> None:
    """Of 2^-24 for each product, and each step of the epilogue, times the sum of magnitudes."""
    require(build)
    generator = np.random.default_rng(0)
    shape = (layer.groups, *layer.kernel, layer.channels, layer.outputs)
    weights, bias, x, residual = (
        generator.standard_normal(s).astype(np.float32)
        for s in (shape, layer.written[2:], layer.read, layer.written)
    )
    made, inputs = program(layer, weights, bias)
    given = dict(zip(inputs, (x, residual), strict=False))
    exact = finished(layer, summed(layer, x, weights), bias, residual)
    magnitude = summed(layer, abs(x), abs(weights)) + abs(bias) + abs(residual)
    length = layer.channels * layer.kernel[0] * layer.kernel[1]
    bound = (length + 3) * 2.0**-24 * magnitude
    (y,) = made.outputs
    for _, results in (built(made, build.compiler, build.flags).run(given), evaluated(made, given)):
        assert (abs(results[y] - exact) <= bound).all()


@pytest.mark.parametrize("build", BUILDS, ids=str)
def test_what_is_not_finite_stays_where_it_is(build: Build) -> None:
    """In the last vector too, of which a part is stored; a NaN passes the clip."""
    require(build)
    layer = Layer(12, 5, 4, 21, clip=True)
    weights = np.ones((1, 1, 1, 4, 21), np.float32)
    x = np.zeros(layer.read, np.float32)
    x[0, 1, 2], x[1, 2, 0], x[2, 4, 3] = np.nan, np.inf, -np.inf
    made, (given,) = program(layer, weights, np.zeros(21, np.float32))
    _, results = built(made, build.compiler, build.flags).run({given: x})
    wanted = np.zeros(layer.written, np.float32)
    wanted[0, 1], wanted[1, 2] = np.nan, 6
    np.testing.assert_array_equal(results[made.outputs[0]], wanted)


def test_a_long_panel_is_asked_for_ahead() -> None:
    """Where all constants together are more than stays in the cache, and only there."""
    asked = []
    for outputs in (32, 2 * tuned.NEARBY // (4 * 64)):
        layer = Layer(2, 2, 64, outputs, bias=False)
        weights = np.zeros((1, 1, 1, 64, outputs), np.float32)
        made, _ = program(layer, weights, np.zeros(outputs, np.float32))
        (step,) = made.steps
        assert isinstance(step, Micro)
        asked.append(step.parameters.prefetch > 0)
    assert asked == [False, True]


@pytest.mark.parametrize("variant", TARGETS["generic"].variants, ids=lambda v: v.suffix or "base")
def test_the_tiles_over_a_panel_ask_for_all_of_the_next(variant: Variant) -> None:
    """Each asks for an equal share, of whole floats a row."""
    weights = np.zeros((1, 1, 1, STREAMED.channels, STREAMED.outputs), np.float32)
    made, _ = program(STREAMED, weights, np.zeros(STREAMED.outputs, np.float32))
    (step,) = made.steps
    assert isinstance(step, Micro)
    parameters = step.parameters
    tile = tuned.tile_of(parameters, variant)
    span = tuned.span_of(parameters, tile)
    lanes = variant.lanes
    asked = tuned.stream_of(parameters, tile, span, lanes)
    tiles = -(-parameters.rows // tile.rows) * -(-parameters.columns // tile.columns)
    vectors = tuned.VECTORS * lanes
    assert not span
    assert vectors <= tiles * asked < vectors + tiles


def test_few_panels_are_asked_for_row_by_row() -> None:
    layer = Layer(6, 43, 600, 96)
    weights = np.zeros((1, 1, 1, layer.channels, layer.outputs), np.float32)
    made, _ = program(layer, weights, np.zeros(layer.outputs, np.float32))
    (step,) = made.steps
    assert isinstance(step, Micro)
    parameters = step.parameters
    assert parameters.prefetch
    assert not tuned.stream_of(parameters, tuned.Tile(1, 13), 0, 16)
