"""The 23 examples of the operator pages: through C and through numpy, exactly."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnxc
from onnxc import pipeline
from onnxc.report import examples

DATA = Path(__file__).parent / "data"
PAGES = Path(__file__).parents[2] / "shared" / "spec"
OPERATORS = {"Equal": 16, "Identity": 3, "Size": 4}


def transcribed(operator: str) -> dict[str, Any]:
    page: dict[str, Any] = json.loads((DATA / f"{operator}.json").read_text(encoding="utf-8"))
    return page


CASES = [
    pytest.param(page["page"], example, id=example["name"])
    for page in map(transcribed, OPERATORS)
    for example in page["examples"]
]


def arrays(tensors: list[dict[str, Any]]) -> dict[str, examples.Array]:
    return {tensor["name"]: examples.array(tensor) for tensor in tensors}


def model_of(page: str, example: dict[str, Any]) -> onnx.ModelProto:
    """One node with inputs and outputs of the types that the example states."""
    version = int(page.rpartition("-")[2])
    inputs, outputs = (
        [
            onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in arrays(example[side]).items()
        ]
        for side in ("inputs", "outputs")
    )
    node = onnx.helper.make_node(
        example["node"]["operator"], example["node"]["inputs"], example["node"]["outputs"]
    )
    graph = onnx.helper.make_graph([node], example["name"], inputs, outputs)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", version)])


def assert_same(actual: dict[str, Any], expected: dict[str, examples.Array]) -> None:
    assert list(actual) == list(expected)
    for name, value in expected.items():
        assert actual[name].dtype == value.dtype
        assert actual[name].shape == value.shape
        np.testing.assert_array_equal(actual[name], value)


def test_there_are_23_examples() -> None:
    counts = {operator: len(transcribed(operator)["examples"]) for operator in OPERATORS}
    assert counts == OPERATORS
    assert len({case.id for case in CASES}) == 23


@pytest.mark.parametrize(("page", "example"), CASES)
def test_compiled(page: str, example: dict[str, Any]) -> None:
    compiled = onnxc.compile(model_of(page, example))
    assert_same(compiled.run(arrays(example["inputs"])), arrays(example["outputs"]))


@pytest.mark.parametrize(("page", "example"), CASES)
def test_evaluated(page: str, example: dict[str, Any]) -> None:
    outputs = pipeline.evaluate_model(model_of(page, example), arrays(example["inputs"]))
    assert_same(outputs, arrays(example["outputs"]))


@pytest.mark.parametrize("operator", OPERATORS)
def test_packaged_inputs_are_those_of_the_pages(operator: str) -> None:
    """What `onnxc ops` runs is what the pages state, less the results."""
    expected = [
        {key: value for key, value in example.items() if key != "outputs"}
        for example in transcribed(operator)["examples"]
    ]
    packaged = [{k: v for k, v in e.items() if k != "since"} for e in examples.stored(operator)]
    assert packaged == expected


TENSOR = re.compile(r"(\w+): shape=(\(.*\)), dtype=(\w+)")


def page_examples(text: str) -> list[dict[str, Any]]:
    """The examples of a page, whether it is reStructuredText or text copied from a browser."""
    found: list[dict[str, Any]] = []
    side = ""
    for line in (line.strip() for line in text.partition("\nDifferences")[0].splitlines()):
        if match := re.fullmatch(r"\**(test_\w+)\**", line):
            found.append({"name": match[1], "inputs": [], "outputs": []})
        elif line in ("Node:", "Inputs:", "Outputs:") and found:
            side = line.lower().rstrip(":")
        elif side == "node" and (match := re.fullmatch(r"(\w+)\((.*)\) -> \((.*)\)", line)):
            found[-1]["node"] = {
                "operator": match[1],
                "inputs": match[2].split(", "),
                "outputs": match[3].split(", "),
            }
        elif match := TENSOR.fullmatch(line):
            shape = list(ast.literal_eval(match[2]))
            found[-1][side].append(
                {"name": match[1], "dtype": match[3], "shape": shape, "text": ""}
            )
        elif side in ("inputs", "outputs") and line and not line.startswith(".. "):
            found[-1][side][-1]["text"] += line
    return found


@pytest.mark.skipif(not PAGES.is_dir(), reason="the raw operator pages are not beside the project")
@pytest.mark.parametrize("operator", OPERATORS)
def test_transcription(operator: str) -> None:
    page = transcribed(operator)
    raw = page_examples((PAGES / f"{page['page']}.txt").read_text(encoding="utf-8"))
    assert [example["name"] for example in raw] == [e["name"] for e in page["examples"]]
    for stated, kept in zip(raw, page["examples"], strict=True):
        assert stated["node"] == kept["node"]
        for side in ("inputs", "outputs"):
            for tensor, array in zip(stated[side], arrays(kept[side]).values(), strict=True):
                values = np.array(ast.literal_eval(tensor["text"]), dtype=array.dtype)
                assert tensor["dtype"] == str(array.dtype)
                assert tuple(tensor["shape"]) == array.shape
                np.testing.assert_array_equal(values.reshape(tensor["shape"]), array)
