"""Forms for vectors: of functions whose fast form is not for all points, of integer division."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
import onnx
import pytest
from onnx import helper

from onnxc.compiled import CompiledModel
from onnxc.errors import RunError
from onnxc.pipeline import Compiled, compile_model, evaluate_model
from tests.kernels.variants import VARIANTS, flags_of
from tests.models import STRICT, Array, declared, model

FAR: Final = (1600.0, -1e6, 3e38, np.inf, -np.inf)
NOT_FAR: Final = (np.nan, -np.nan, 0.0, -0.0, 1e-40, 1599.9)
EXACT: Final = ("Mod", "of_rest")
SHAPES: Final = {
    "flat": ((5, 700), (5, 700)),
    "rows": ((5, 700), (5, 1)),
    "few": ((90, 40), (90, 1)),
}
"""Of x and y: in blocks of one loop, of several, and rows shorter than a block."""


def values(shape: tuple[int, ...], seed: int) -> Array:
    """Of which every other block of 256 has some that are far."""
    x = np.random.default_rng(seed).uniform(-100, 100, shape).astype(np.float32)
    flat = x.reshape(-1)
    if flat.size > 512:
        for place, value in enumerate(FAR):
            flat[place + seed :: 512] = value
        flat[300 : 300 + len(NOT_FAR)] = NOT_FAR
    return x


@cache
def functions(form: str) -> tuple[dict[str, Array], Compiled, dict[str, Array]]:
    """The inputs, a model of kernels that have the fast forms, and what it is to give."""
    shapes = SHAPES[form]
    given = {
        name: values(shape, n) for n, (name, shape) in enumerate(zip("xy", shapes, strict=True))
    }
    nodes = [
        helper.make_node("Add", ["x", "y"], ["sum"]),
        *(helper.make_node(name, ["sum"], [name]) for name in ("Sin", "Cos", "Tan")),
        helper.make_node("Sin", ["Cos"], ["twice"]),
        helper.make_node("Mod", ["x", "y"], ["Mod"], fmod=1),
        helper.make_node("Mod", ["Mod", "x"], ["of_rest"], fmod=1),
    ]
    results = ("Sin", "Cos", "Tan", "twice", "Mod", "of_rest")
    outputs = [declared(name, np.zeros(shapes[0], np.float32)) for name in results]
    inputs = [declared(name, array) for name, array in given.items()]
    source = model(helper.make_graph(nodes, "g", inputs, outputs))
    return given, compile_model(source), evaluate_model(source, given)


@pytest.mark.parametrize("form", SHAPES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_point_is_right(form: str, variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also next to points that are beyond the fast form; mod is exact, a sine within 2 ulp."""
    monkeypatch.setenv("ONNXC_CFLAGS", " ".join([*STRICT, flags_of(variant)]))
    given, compiled, wanted = functions(form)
    found = CompiledModel(compiled).run(given)
    for name, array in found.items():
        exact = wanted[name]
        assert np.array_equal(np.isnan(array), np.isnan(exact)), name
        unit = np.spacing(np.abs(exact)) * (0 if name in EXACT else 2)
        wrong = np.abs(array.astype(np.float64) - exact) > unit
        assert not wrong[~np.isnan(exact)].any(), name


def test_only_large_kernels_of_a_target_with_variants_test() -> None:
    x = np.ones(4096, np.float32)
    for count, tests in ((2048, True), (2047, False)):
        node = helper.make_node("Sin", ["x"], ["y"])
        part = [declared(name, x[:count]) for name in "xy"]
        source = model(helper.make_graph([node], "g", part[:1], part[1:]))
        assert ("far |= onnxc_far_angle_float(a[i]);" in compile_model(source).c_source) == tests
        plain = compile_model(source, target="cortex-m4").c_source
        assert "onnxc_far_angle_float" not in plain


@pytest.mark.parametrize("dtype", [np.int32, np.int16, np.int8, np.uint8, np.uint16])
@pytest.mark.parametrize("variant", VARIANTS)
def test_integers_are_divided_exactly(
    dtype: type[Any], variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Next to multiples, where a quotient would be rounded to the next integer first, too."""
    monkeypatch.setenv("ONNXC_CFLAGS", " ".join([*STRICT, flags_of(variant)]))
    limits, random = np.iinfo(dtype), np.random.default_rng(1)
    ends = np.array([limits.min, limits.min + 1, -1, 1, 2, 3, limits.max - 1, limits.max])
    x, y = np.meshgrid(ends, np.concatenate([ends, random.integers(limits.min, limits.max, 500)]))
    small = np.arange(1, 1 + y.size // 4)
    x = np.concatenate([x.ravel(), y.ravel(), small * (limits.max // small) - 1])
    y = np.concatenate([y.ravel(), x[: y.size], small]).astype(dtype)
    given = {"x": x.astype(dtype), "y": np.where(y == 0, dtype(1), y)}
    nodes = [
        helper.make_node("Div", ["x", "y"], ["div"]),
        helper.make_node("Mod", ["x", "y"], ["mod"]),
        helper.make_node("Mod", ["x", "y"], ["rest"], fmod=1),
    ]
    inputs = [declared(name, array) for name, array in given.items()]
    outputs = [declared(name, given["x"]) for name in ("div", "mod", "rest")]
    source = model(helper.make_graph(nodes, "g", inputs, outputs))
    compiled = compile_model(source)
    assert "_lanes_int" in compiled.c_source
    runner, wanted = CompiledModel(compiled), evaluate_model(source, given)
    for name, array in runner.run(given).items():
        assert np.array_equal(array, wanted[name]), name
    given["y"][-1] = 0
    with pytest.raises(RunError, match="DIVISION_BY_ZERO"):
        runner.run(given)


def test_a_loop_that_would_count_past_int32_has_no_blocks() -> None:
    """2^31 - 256 points: after the last block their number would not fit."""

    def source(points: int) -> str:
        text = f"""<ir_version: 10, opset_import: ["" : 21]>
            g (float[{points}] x) => (float[{points}] y) {{ y = Sin(x) }}"""
        return compile_model(onnx.parser.parse_model(text)).c_source

    assert "i_first += 256" in source(2**31 - 1 - 256)
    assert "i_first += 256" not in source(2**31 - 256)
