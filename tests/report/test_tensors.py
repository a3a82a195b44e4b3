"""Tensors and functions of the report: where they lie, how long they live, which text they have."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from onnxc.pipeline import compile_model
from onnxc.report import facts, functions
from tests.memory_models import TEXTS
from tests.models import model, stored
from tests.report.facts_checks import facts_of, quick


def by_label(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {tensor["label"]: tensor for tensor in found["tensors"] if tensor["name"]}


def test_a_chain() -> None:
    graph = onnx.parser.parse_graph(
        "m (float[1, 2, 9, 9] x) => (float[1, 4, 5, 5] y)"
        " { [one] a = Conv(x, v) [two] b = Conv(a, w) y = Relu(b) }"
    )
    values = np.random.default_rng(5)
    graph.initializer.append(stored("v", values.standard_normal((4, 2, 3, 3), np.float32)))
    graph.initializer.append(stored("w", values.standard_normal((4, 4, 3, 3), np.float32)))
    found = facts_of(model(graph), target="cortex-m4")
    tensors = by_label(found)
    assert {label: tensor["place"] for label, tensor in tensors.items()} == {
        "x": "input",
        "x (channels last)": "workspace",
        "y": "output",
        "a": "workspace",
        "v": "constant",
        "w": "constant",
    }
    middle = tensors["a"]
    (reader,) = (k for k in found["kernels"] if middle["number"] in k["reads"] and k["macs"])
    assert middle["readers"] == [reader["number"]]
    assert middle["last"] == reader["number"]
    assert (middle["shape"], middle["layout"]) == ([1, 4, 7, 7], "channels last")
    assert [found["nodes"][n]["name"] for n in middle["nodes"]] == ["one"]
    assert tensors["y"]["producer"] == found["kernels"][-1]["number"]
    assert tensors["x"]["producer"] is None


def test_a_name_that_ends_like_another_is_another() -> None:
    """Both tensors are made by one kernel, row by row."""
    graph = onnx.parser.parse_graph(
        "m (float[64, 300] x) => (float[64, 300] s, float[64, 300] ss)"
        " { [one] s = Softmax(x) [two] ss = Softmax(s) }"
    )
    found = facts_of(model(graph))
    assert [kernel["nodes"] for kernel in found["kernels"]] == [[0, 1]]
    tensors = by_label(found)
    assert (tensors["s"]["nodes"], tensors["ss"]["nodes"]) == ([0], [1])


def test_padding_is_told() -> None:
    found = facts_of(onnx.parser.parse_model(TEXTS["convolutions"]))
    (layout,) = (t["layout"] for t in found["tensors"] if t["name"] == "b")
    assert layout == "padded to 8 x 21 x 23"


def test_what_a_loop_carries_lives_through_it() -> None:
    found = facts_of(
        onnx.parser.parse_model("""
            <ir_version: 8, opset_import: ["" : 19]>
            m (float[7, 1, 2] x, float[1, 8, 2] w, float[1, 8, 2] r) => (float[7, 1, 1, 2] y) {
                y, h, c = LSTM<hidden_size = 2>(x, w, r)
            }
        """)
    )
    (loop,) = (k for k in found["kernels"] if k["kind"] == "repeat")
    inside = [k["number"] for k in found["kernels"] if k["inside"] == loop["number"]]
    states = [t for t in found["tensors"] if t["number"] in loop["writes"]]
    assert states
    for state in states:
        assert state["first"] <= loop["number"]
        assert state["last"] >= inside[-1]
    live = found["memory"]["live"]
    assert live[loop["number"]] == max(live[n] for n in (loop["number"], *inside))


def test_a_tensor_without_a_name_has_a_label() -> None:
    found = facts_of(onnx.parser.parse_model(TEXTS["sorting"]))
    labels = [t["label"] for t in found["tensors"] if not t["name"]]
    assert any(label.startswith("work area of kernel") for label in labels)
    assert all(labels)


def test_functions_in_the_file() -> None:
    given = onnx.parser.parse_model(TEXTS["attention"])
    source = compile_model(given).c_source
    found = facts_of(given)
    for function in found["functions"]:
        start = source.split("\n")[function["line"] - 1]
        assert function["c"].startswith(start)
        assert start.startswith(("/*", "static "))
        for kernel in function["kernels"]:
            assert found["kernels"][kernel]["function"] == function["name"]


def test_a_kernel_with_variants_shows_the_plainest() -> None:
    subject = facts.subject(onnx.parser.parse_model(TEXTS["convolutions"]))
    for function in quick(subject)["functions"]:
        assert "avx" not in function["c"]


def test_too_much_text_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "MOST", 10)
    found = quick(facts.subject(onnx.parser.parse_model(TEXTS["sorting"])))["functions"]
    assert found
    assert all(function["c"] == "" and function["line"] > 1 for function in found)


def test_a_function_says_for_which_registers_it_has_other_forms() -> None:
    """A product of matrices has them, a function of its elements has not."""
    graph = onnx.parser.parse_graph(
        "m (float[64, 64] a, float[64, 64] b) => (float[64, 64] y) { p = MatMul(a, b) y = Sin(p) }"
    )
    variants = {f["name"]: f["variants"] for f in quick(facts.subject(model(graph)))["functions"]}
    assert variants == {"mat_mul_sin_0": ["avx2", "avx512"], "mat_mul_sin_1": []}


def test_a_constant_in_another_order_than_the_operator_has_says_so() -> None:
    """Weights are packed for a tuned kernel; a bias lies as it is."""
    graph = onnx.parser.parse_graph(
        "m (float[64, 256] a) => (float[64, 2] y) { p = MatMul(a, w) y = Add(p, b) }"
    )
    values = np.random.default_rng(7)
    graph.initializer.append(stored("w", values.standard_normal((256, 2), np.float32)))
    graph.initializer.append(stored("b", values.standard_normal(2, np.float32)))
    found = facts_of(model(graph))["tensors"]
    layouts = {t["label"]: t["layout"] for t in found if t["place"] == "constant"}
    assert layouts == {"w": "packed for its kernel", "b": ""}
