"""The conformance suites beside the checkout, as far as these operators go: exactly."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

import onnxc
from onnxc.arrays import object_array, text_bytes
from onnxc.errors import ModelError
from onnxc.op import supported
from tests.conftest import ROOT
from tests.models import Array, assert_same, run

SHARED = ROOT.parent / "shared"
SUITE, CASES = SHARED / "suites" / "onnx-light", SHARED / "cases"
OPERATORS = {name for _, name, _ in supported()}
# Identity of a sequence and of an optional, which other operators make.
REFUSED = {
    "test_cc_identity_sequence": "SequenceConstruct-11",
    "test_cc_identity_opt": "Optional-15",
}

pytestmark = [
    pytest.mark.skipif(not SHARED.is_dir(), reason="no folder 'shared' beside the checkout"),
    pytest.mark.usefixtures("strict_c"),
]


@cache
def operators(path: Path) -> frozenset[str]:
    graph = onnx.load(path, load_external_data=False).graph
    return frozenset(node.op_type for node in graph.node)


def only_supported(path: Path) -> bool:
    return bool(operators(path)) and operators(path) <= OPERATORS


def found_tests() -> list[str]:
    paths = sorted(SUITE.glob("*/model.onnx"))
    return [path.parent.name for path in paths if only_supported(path)]


def found_cases() -> list[str]:
    return [path.stem for path in sorted(CASES.glob("*.onnx")) if only_supported(path)]


def array(tensor: TensorProto) -> Array:
    if tensor.data_type == TensorProto.STRING:
        values = [text_bytes(value) for value in tensor.string_data]
        return object_array(values, tuple(tensor.dims))
    return np.asarray(numpy_helper.to_array(tensor))


def arrays(folder: Path, side: str) -> list[Array]:
    paths = sorted(folder.glob(f"{side}_*.pb"), key=lambda path: int(path.stem.split("_")[1]))
    return [array(onnx.load_tensor(path)) for path in paths]


def test_how_many_there_are() -> None:
    """Exactly, else one that is lost would not be missed; a new operator brings its own."""
    paths = [SUITE / name / "model.onnx" for name in found_tests()]
    counts = Counter(operator for path in paths for operator in operators(path))
    assert counts == {"Constant": 8, "Equal": 16, "Identity": 3, "Size": 4}
    assert found_cases() == ["unsqueeze_attr_opset11"]


def test_what_is_left_out() -> None:
    """Every other test of a supported operator has a reason. Constant is in tests of any other."""
    others = {*SUITE.glob("*/model.onnx")} - {SUITE / name / "model.onnx" for name in found_tests()}
    names = {path.parent.name for path in others if operators(path) & (OPERATORS - {"Constant"})}
    assert names == REFUSED.keys()


@pytest.mark.parametrize("name", found_tests())
def test_suite(name: str) -> None:
    source = onnx.load(SUITE / name / "model.onnx")
    for folder in sorted((SUITE / name).glob("test_data_set_*")):
        names = [value.name for value in source.graph.input]
        given = dict(zip(names, arrays(folder, "input"), strict=True))
        results = [value.name for value in source.graph.output]
        wanted = dict(zip(results, arrays(folder, "output"), strict=True))
        assert_same(run(source, given), wanted)


@pytest.mark.parametrize(("name", "operator"), REFUSED.items())
def test_suite_of_what_is_no_tensor(name: str, operator: str) -> None:
    with pytest.raises(ModelError, match=rf"\({operator}\): the operator is not supported"):
        onnxc.compile(SUITE / name / "model.onnx")


@pytest.mark.parametrize("name", found_cases())
def test_case(name: str) -> None:
    source = onnx.load(CASES / f"{name}.onnx")
    with np.load(CASES / f"{name}.npz") as archive:
        data = dict(archive)
    initializers = {value.name for value in source.graph.initializer}
    names = [value.name for value in source.graph.input if value.name not in initializers]
    given = {key: data[f"in_{n}"] for n, key in enumerate(names)}
    wanted = {value.name: data[f"out_{n}"] for n, value in enumerate(source.graph.output)}
    assert_same(run(source, given), wanted)
