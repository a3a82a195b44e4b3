"""The examples that `onnxc ops` shows: all run, and what they give is right.

The 23 of the pages that the project started from go through C and numpy, exactly; the others are
compared with ONNX's reference evaluator or, where that is wrong or silent, with values by hand.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.defs import OpSchema
from onnx.reference import ReferenceEvaluator

import onnxc
from onnxc import op, pipeline
from onnxc.arrays import text_bytes
from onnxc.passes.check_node import is_supported
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


SUPPORTED = [name for domain, name in sorted(op.operator_names()) if is_supported(domain, name)]


def forms(operator: str) -> Iterator[tuple[OpSchema, examples.Example]]:
    """Every version with the examples in its form, newest first."""
    for schema in reversed(op.schemas("", operator)):
        for example in examples.stored(operator):
            if (formed := examples.at(example, schema)) is not None:
                yield schema, formed


def test_every_version_of_every_operator_has_an_example() -> None:
    assert examples.families().keys() == set(SUPPORTED)
    for operator in SUPPORTED:
        shown = {schema.since_version for schema, _ in forms(operator)}
        assert shown == {schema.since_version for schema in op.schemas("", operator)}, operator


def test_every_example_is_shown_by_a_version_and_has_a_name_of_its_own() -> None:
    for operator in SUPPORTED:
        names = [example.name for example in examples.stored(operator)]
        assert len(names) == len(set(names))
        assert {example.name for _, example in forms(operator)} == set(names)


@pytest.mark.parametrize("operator", SUPPORTED)
def test_every_version_runs_its_examples(operator: str) -> None:
    """An example means the same in every version that shows it, unless another tells them apart."""
    first: dict[str, dict[str, Any]] = {}
    for schema, example in forms(operator):
        outputs = pipeline.evaluate_model(examples.model(example, schema), example.given)
        known = first.setdefault(example.name, outputs)
        if (operator, schema.since_version) not in OTHER_MEANINGS:
            assert_same(outputs, known)


OTHER_MEANINGS = {("Selu", 1)}
"""Versions whose defaults are others."""

BY_HAND: dict[str, list[Any]] = {
    # Out of range: to the nearest value, where the reference evaluator wraps.
    "cast_to_a_byte_saturates": [[0, 0, 2, 255]],
    "cast_to_names_a_type": [[-1, 0, 2, 300]],
    # The reference evaluator has no such operator.
    "globallppool": [[[[[5.0]], [[10.0]]]]],
    "globallppool_p_is_a_float": [[[[[5.0]], [[10.0]]]]],
    "lppool_p_is_a_float": [[[[[5.0, np.sqrt(160.0)]]]]],
    "maxroipool": [[[[[6.0, 8.0]]]]],
    "split_attribute": [[1.0, 2.0], [3.0, 4.0, 5.0]],
    "scatter": [[-2.0, 2.0, 3.0, -1.0]],
    "batchnormalization_consumed_inputs": [
        [
            [
                [[-0.5 / np.sqrt(1 + 1e-5), 0.5 / np.sqrt(1 + 1e-5)]],
                [[1, 1 + 0.5 / np.sqrt(4 + 1e-5)]],
            ]
        ]
    ],
    "dropout_test_mode": [[1.0, -2.0, 3.0]],
    "resize_scales": [[[[[1.0, 1.0, 2.0, 2.0], [3.0, 3.0, 4.0, 4.0]]]]],
    "tile_one_axis": [[[1.0, 2.0, 1.0, 2.0]]],
    "upsample_scales": [[[[[1.0, 1.0, 2.0, 2.0], [3.0, 3.0, 4.0, 4.0]]]]],
    "upsample_two_scales": [[[[[1.0, 1.0, 2.0, 2.0], [3.0, 3.0, 4.0, 4.0]]]]],
    # It knows the newer name of the mode only.
    "gridsample_bilinear": [[[[[1.0, 2.5], [4.0, 2.0]]]]],
    # It looks only at as many channels as there are batches.
    "lrn": [
        np.reshape([1, 2, 3, 4], (1, 4, 1, 1))
        / np.reshape([1 + 0.5 / 3 * s for s in (5, 14, 29, 25)], (1, 4, 1, 1)) ** 0.75
    ],
    # It does not flatten as versions before 13 do.
    "hardmax_flattens_before_13": [[[[0.0, 0.0], [1.0, 0.0]]]],
    "softmax_flattens_before_13": [
        np.exp([[[1.0, 2.0], [3.0, 4.0]]]) / np.exp([1.0, 2.0, 3.0, 4.0]).sum()
    ],
    "logsoftmax_flattens_before_13": [
        np.array([[[1.0, 2.0], [3.0, 4.0]]]) - np.log(np.exp([1.0, 2.0, 3.0, 4.0]).sum())
    ],
    # It subtracts the half pixel of the newer versions.
    "roialign_without_the_half_pixel": [[[[[3.5, 4.5], [7.5, 8.5]]]]],
}
"""Outputs of the examples whose values the reference evaluator does not give."""


@pytest.mark.parametrize("operator", SUPPORTED)
def test_the_values_are_right(operator: str) -> None:
    """Of each example in the newest version that shows it."""
    seen = set()
    for schema, example in forms(operator):
        if example.name in seen:
            continue
        seen.add(example.name)
        source = examples.model(example, schema)
        actual = list(pipeline.evaluate_model(source, example.given).values())
        if example.name in BY_HAND:
            wanted = BY_HAND[example.name]
        else:
            feeds = {n: a for n, a in example.given.items() if n not in example.constants}
            with np.errstate(all="ignore"):
                wanted = list(ReferenceEvaluator(source).run(None, feeds))
        assert len(actual) == len(wanted)
        for one, other in zip(actual, wanted, strict=True):
            assert_near(one, np.asarray(other))


def test_values_by_hand_are_of_examples() -> None:
    names = {example.name for operator in SUPPORTED for example in examples.stored(operator)}
    assert BY_HAND.keys() <= names


def assert_near(actual: examples.Array, wanted: examples.Array) -> None:
    """Equal, or for floats within a few units of the last place of float, and near zero."""
    assert actual.shape == wanted.shape
    if actual.dtype == object:
        assert [text_bytes(word) for word in actual] == [text_bytes(word) for word in wanted]
    elif actual.dtype.kind in "biu":
        assert actual.tolist() == wanted.tolist()
    else:
        np.testing.assert_allclose(
            actual.astype(np.float64), wanted.astype(np.float64), rtol=4.8e-7, atol=1.2e-7
        )


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
