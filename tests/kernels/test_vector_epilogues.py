"""What follows a sum of products, on vectors, in the kernel that computes the sum."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
import pytest
from onnx import helper

from onnxc.compiled import CompiledModel
from onnxc.kernel import Micro
from onnxc.pipeline import Compiled, compile_model, evaluate_model
from tests.kernels.variants import VARIANTS, flags_of
from tests.models import STRICT, Array, declared, model, stored
from tests.toolchains import Tool

ACTIVATIONS: Final[dict[str, dict[str, Any]]] = {
    **{name: {} for name in ("Abs", "Ceil", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid")},
    **{name: {} for name in ("HardSwish", "LeakyRelu", "Log", "Mish", "Reciprocal", "Relu")},
    **{name: {} for name in ("Round", "Selu", "Sigmoid", "Sign", "Softplus", "Softsign", "Sqrt")},
    **{name: {} for name in ("Swish", "Tanh", "ThresholdedRelu")},
    "Shrink": {"bias": 0.25, "lambd": 0.5},
}
COLUMNS: Final = 37
"""Whole vectors, and a part of one, for vectors of any width."""


@cache
def networks() -> tuple[dict[str, Array], Compiled, dict[str, Array]]:
    """A product for each activation: the input, the model compiled, what the plain loops give."""
    draw = np.random.default_rng(5).standard_normal
    rows = draw((9, 16)).astype(np.float32)
    rows[2], rows[3:6] = np.nan, 0
    rows[3:5, 0] = np.inf, -np.inf
    graph = helper.make_graph(
        [],
        "g",
        [declared("x", rows)],
        [declared(name, np.zeros((9, COLUMNS), np.float32)) for name in ACTIVATIONS],
        [stored("w", draw((16, COLUMNS)).astype(np.float32))],
    )
    for name, attributes in ACTIVATIONS.items():
        graph.node.append(helper.make_node("MatMul", ["x", "w"], [f"sums_{name}"]))
        graph.node.append(helper.make_node(name, [f"sums_{name}"], [name], **attributes))
    source, given = model(graph), {"x": rows}
    return given, compile_model(source), evaluate_model(source, given)


def assert_near(found: dict[str, Array]) -> None:
    """But where a function jumps, or grows without bound, and the sums differ by a rounding."""
    _, _, wanted = networks()
    assert list(found) == list(wanted)
    for name, array in found.items():
        np.testing.assert_allclose(array, wanted[name], rtol=2e-5, atol=3e-6, err_msg=name)


def test_one_kernel_a_product() -> None:
    _, compiled, _ = networks()
    assert [type(step) for step in compiled.program.steps] == [Micro] * len(ACTIVATIONS)


@pytest.mark.parametrize("variant", VARIANTS)
def test_like_the_plain_loops(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given, compiled, _ = networks()
    monkeypatch.setenv("ONNXC_CFLAGS", " ".join([*STRICT, flags_of(variant)]))
    assert_near(CompiledModel(compiled).run(given))


def test_like_the_plain_loops_without_vectors(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    given, compiled, _ = networks()
    monkeypatch.setenv("CC", tool("tcc"))
    assert_near(CompiledModel(compiled).run(given))
