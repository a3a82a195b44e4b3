"""The facts of whole models: whatever the model, they are valid and agree with each other."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from onnx import TensorProto, helper

from onnxc.pipeline import compile_model
from onnxc.report import facts
from tests.memory_models import TEXTS
from tests.models import model, stored
from tests.report.facts_checks import facts_of, valid
from tests.shared_suite import MODELS, model_shapes, open_sizes
from tests.test_graph_properties import Drawn, graphs

REAL = [
    "audio-denoise/gtcrn_stream_simple.onnx",
    "audio-vad/silero_vad_16k_op15.onnx",
    "ocr/ppocr_v2_cls.onnx",
    "timeseries/aircraft_lstm.onnx",
    "tinyml/mlperf_kws_dscnn_int8.onnx",
    "vision-cls/mnist_factorio_quant.onnx",
]
HOSTILE = ("</script><script>alert(1)", "<!--", "\0", "\u2028", "\"'\\", "a\nb", "é🙂")


@pytest.mark.parametrize("target", ["generic", "cortex-m4"])
@pytest.mark.parametrize("name", TEXTS)
def test_small_models(name: str, target: str) -> None:
    facts_of(onnx.parser.parse_model(TEXTS[name]), target=target)


@pytest.mark.parametrize("name", REAL)
def test_real_models(name: str, shared: Path) -> None:
    given = onnx.load(MODELS / name, load_external_data=False)
    facts_of(MODELS / name, dims=open_sizes(given, model_shapes()[name]))


@given(graphs())
@settings(max_examples=40)
def test_drawn_models(drawn: Drawn) -> None:
    facts_of(drawn.model())


@pytest.mark.parametrize(("optimize", "portable_bits"), [("size", False), ("speed", True)])
def test_other_kernels(optimize: str, portable_bits: bool) -> None:
    given = onnx.parser.parse_model(TEXTS["convolutions"])
    found = facts_of(given, optimize=optimize, portable_bits=portable_bits)["model"]
    assert (found["optimize"], found["portable_bits"]) == (optimize, portable_bits)


def test_a_model_without_kernels() -> None:
    text = "m (float[0, 3] x) => (float[0, 3] y) { y = Neg(x) }"
    found = facts_of(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 19]> {text}'))
    assert found["kernels"] == found["functions"] == []
    assert found["memory"] == {
        "live": [],
        "peak": {"kernel": None, "bytes": 0, "shared": 0, "tensors": []},
    }
    assert found["nodes"][0]["fate"] == "dropped"


def test_hostile_names_stay_text() -> None:
    graph = onnx.GraphProto(name="hostile")
    for name in HOSTILE:
        graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]))
        graph.node.append(helper.make_node("Exp", [name], [f"{name}y"], name=f"{name}n"))
        graph.output.append(helper.make_tensor_value_info(f"{name}y", TensorProto.FLOAT, [3]))
    found = facts_of(model(graph))
    text = facts.text(found)
    assert text.isascii()
    assert json.loads(text) == found
    assert [node["name"] for node in found["nodes"]] == [f"{name}n" for name in HOSTILE]
    assert {value["name"] for value in found["inputs"]} == {*HOSTILE}


def test_json_has_an_object_in_a_line() -> None:
    found = facts_of(onnx.parser.parse_model(TEXTS["attention"]))
    lines = facts.text(found).splitlines()
    assert lines[:3] == ["{", '"schema": 1,', f'"onnxc": "{found["onnxc"]}",']
    for kernel in found["kernels"]:
        assert sum(line.rstrip(",") == json.dumps(kernel) for line in lines) == 1


def test_the_file_has_no_folder(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(TEXTS["sorting"]), tmp_path / "sorting.onnx")
    found = facts_of(tmp_path / "sorting.onnx")
    assert found["model"]["file"] == "sorting.onnx"
    assert str(tmp_path) not in facts.text(found)


def test_another_target_is_compiled_from_where_they_part() -> None:
    given = onnx.parser.parse_model(TEXTS["convolutions"])
    subject = facts.subject(given)
    for target in ("cortex-m4", "aarch64", "generic"):
        assert subject.compiled_for(target).body == compile_model(given, target=target).body


def test_an_output_whose_size_the_data_decides() -> None:
    graph = helper.make_graph(
        [helper.make_node("NonZero", ["x"], ["y"])],
        "sized",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, [2, None])],
    )
    found = facts_of(model(graph))
    (output,) = found["outputs"]
    assert (output["shape"], output["bytes"], output["maximum"]) == ([2, 6], 96, True)
    assert found["summary"]["outputs_bytes"] == 96 + 16


def test_a_constant_that_is_an_output() -> None:
    graph = onnx.GraphProto(name="constant")
    graph.initializer.append(stored("c", np.arange(20, dtype=np.float32)))
    graph.node.append(helper.make_node("Identity", ["c"], ["y"]))
    graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, [20]))
    found = facts_of(model(graph))
    valid(found)
    (node,) = found["nodes"]
    assert (node["fate"], node["kernels"]) == ("folded", [0])
