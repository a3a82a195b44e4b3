"""ONNX's backend tests: their names, their models and arrays, and which of them are refused.

All names are in backend_tests.txt, so that pytest need not make up every example (seconds) to know
them. unsupported_backend_tests.tsv has those whose model is refused, with the reason;
refused_variants.tsv has the supported tests of which a variant is. `python -m tests.backend_suite`
writes all three anew.
"""

from __future__ import annotations

import csv
import re
import sys
import unittest
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, numpy_helper
from onnx.backend.test import BackendTest, loader
from onnx.backend.test.case import model as model_cases
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.runner import Runner

from onnxc.arrays import object_array, text_bytes
from onnxc.backend import OnnxcBackend
from onnxc.compiled import compile
from onnxc.diagnostics import Kind
from onnxc.errors import ModelError, Problem

Array = NDArray[Any]

HERE: Final = Path(__file__).parent
NAMES_FILE: Final = HERE / "backend_tests.txt"
UNSUPPORTED_FILE: Final = HERE / "unsupported_backend_tests.tsv"
REFUSED_VARIANTS_FILE: Final = HERE / "refused_variants.tsv"
LIGHT: Final = frozenset(
    {
        "test_bvlc_alexnet",
        "test_densenet121",
        "test_inception_v1",
        "test_inception_v2",
        "test_resnet50",
        "test_shufflenet",
        "test_squeezenet",
        "test_vgg19",
        "test_zfnet512",
    }
)
"""The large networks, each of constant weights."""
FOLDER_KINDS: Final = ("simple", "pytorch-converted", "pytorch-operator")


def names() -> list[str]:
    """Of all tests, sorted."""
    return NAMES_FILE.read_text(encoding="ascii").split()


def unsupported() -> dict[str, str]:
    """The reason (`reason_of`) by test."""
    return {row["test"]: row["reason"] for row in _rows(UNSUPPORTED_FILE)}


def refused_variants() -> dict[tuple[str, str], str]:
    """The reason by test and variant."""
    rows = _rows(REFUSED_VARIANTS_FILE)
    return {(row["test"], row["variant"]): row["reason"] for row in rows}


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))


def reason_of(error: ModelError) -> str:
    """The first problem: the operator and its version, or the input, and the fact."""
    return _reason(error.problems[0])


def _reason(problem: Problem) -> str:
    operator = re.search(r"\(([\w.]+-\d+)\)$", problem.where)
    return f"{operator[1] if operator else problem.where}: {problem.fact}"


class NoSecondCompilation(OnnxcBackend):
    """Refuses a model in `prepare` alone, where the runner would skip what is not compatible."""

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        return True


@cache
def _cases() -> dict[str, TestCase]:
    """The runner's cases; those of folders have no model yet."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = list(loader.load_node_model_tests())
        model_cases.collect_testcases()
    found += _generated_models()
    for kind in (*FOLDER_KINDS, "real"):
        found += loader.load_model_tests(kind=kind)
    return {case.name: case for case in found}


def _generated_models() -> list[TestCase]:
    """The simple models that ONNX generates but does not ship as a folder, as the others are."""
    shipped = {case.name for case in loader.load_model_tests(kind="simple")}
    return [case for case in model_cases._SimpleModelTestCases if case.name not in shipped]


@cache
def runner_tests() -> dict[str, unittest.TestCase]:
    """The runner's test of each name. Of the light models it writes files to $ONNX_MODELS."""
    cases = _cases()
    runner = BackendTest(NoSecondCompilation, __name__)
    for case in _generated_models():
        runner._add_model_test(case, "Node")
    tests = {}
    for test_class in runner.test_cases.values():
        for function in (key for key in vars(test_class) if key.endswith("_cpu")):
            tests[function.removesuffix("_cpu")] = test_class(function)
    assert tests.keys() == cases.keys()
    return tests


@dataclass(frozen=True)
class Example:
    """A test's model, its inputs and the outputs that ONNX expects.

    Sequences are lists of arrays. `rtol` and `atol` are the runner's.
    """

    model: ModelProto
    inputs: list[Any]
    outputs: list[Any]
    rtol: float
    atol: float

    def assert_close(self, outputs: Sequence[Any]) -> None:
        """As the runner does it."""
        Runner.assert_similar_outputs(self.outputs, outputs, self.rtol, self.atol)


@cache
def example(name: str) -> Example:
    case = _cases()[name]
    if case.model is not None:
        ((inputs, outputs),) = case.data_sets or ()
        read, written = ([_plain(value) for value in side] for side in (inputs, outputs))
        return Example(case.model, read, written, case.rtol, case.atol)
    if case.model_dir is None:
        return _light_example(case)
    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    (data,) = folder.glob("test_data_set*")
    inputs = _stored(data, "input", model.graph.input)
    return Example(model, inputs, _stored(data, "output", model.graph.output), case.rtol, case.atol)


def as_bytes(array: Array) -> Array:
    """An array of strings as one of bytes, which is what the numpy evaluation works on."""
    if array.dtype.kind not in "OUS":
        return array
    return object_array([text_bytes(value) for value in array.reshape(-1).tolist()], array.shape)


def _plain(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def _stored(folder: Path, side: str, infos: Sequence[onnx.ValueInfoProto]) -> list[Any]:
    return [
        _read(folder / f"{side}_{number}.pb", infos[number].type)
        for number in range(len(list(folder.glob(f"{side}_*.pb"))))
    ]


def _read(path: Path, kind: onnx.TypeProto) -> Any:
    """An array, or a list of them."""
    if kind.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(path.read_bytes()))
    return numpy_helper.to_array(onnx.load_tensor(path))


def _light_example(case: TestCase) -> Example:
    """One of the large networks with constant weights, on the runner's own inputs."""
    assert case.url is not None
    path = Path(onnx.__file__).parents[1] / case.url
    model = onnx.load(path)
    initializers = {value.name for value in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in initializers]
    outputs = [
        numpy_helper.to_array(onnx.load_tensor(path.with_name(f"{path.stem}_output_{number}.pb")))
        for number in range(len(model.graph.output))
    ]
    dummies = [Runner.generate_dummy_data(value) for value in inputs]
    return Example(model, dummies, outputs, case.rtol, case.atol)


Variant: TypeAlias = tuple[ModelProto, dict[str, int]]
"""A model that says less, and the sizes that `dims` has to give."""


def without_output_shapes(model: ModelProto) -> Variant:
    """Nothing but the element types of what nodes make is declared."""
    changed = _copy(model)
    del changed.graph.value_info[:]
    for value in changed.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    return changed, {}


def with_symbolic_inputs(model: ModelProto) -> Variant:
    """Every dimension of an input has a name in place of its size."""
    changed = _copy(model)
    sizes = {}
    initializers = {value.name for value in changed.graph.initializer}
    for value in changed.graph.input:
        if value.name not in initializers:
            for axis, dim in enumerate(value.type.tensor_type.shape.dim):
                if dim.HasField("dim_value"):
                    name = f"{value.name}_{axis}"
                    sizes[name] = dim.dim_value
                    dim.dim_param = name
    return changed, sizes


VARIANTS: Final[Mapping[str, Callable[[ModelProto], Variant]]] = {
    "without_output_shapes": without_output_shapes,
    "with_symbolic_inputs": with_symbolic_inputs,
}


def _copy(model: ModelProto) -> ModelProto:
    changed = ModelProto()
    changed.CopyFrom(model)
    return changed


def refusal(model: ModelProto, dims: Mapping[str, int]) -> str:
    """Why the model is refused; "" when it is not, as far as open dimensions let that be known."""
    try:
        compile(model, dims=dims)
    except ModelError as error:
        if not all(problem.kind is Kind.OPEN_DIMENSIONS for problem in error.problems):
            return reason_of(error)
    except Exception as error:  # a fault of onnxc: the tests, which then expect success, show it
        print(f"{model.graph.name}: {error!r}", file=sys.stderr)
    return ""


def _write_lists() -> None:
    names = sorted(_cases())
    refused = {name: reason for name in names if (reason := refusal(example(name).model, {}))}
    variants = [
        f"{name}\t{variant}\t{reason}"
        for name in names
        if name not in refused
        for variant, change in VARIANTS.items()
        if (reason := refusal(*change(example(name).model)))
    ]
    _write(NAMES_FILE, names)
    _write(UNSUPPORTED_FILE, ["test\treason", *map("\t".join, refused.items())])
    _write(REFUSED_VARIANTS_FILE, ["test\tvariant\treason", *variants])


def _write(path: Path, lines: Sequence[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    _write_lists()
