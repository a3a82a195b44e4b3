"""The suites and models beside the checkout, and which of them are refused.

refused_shared.tsv has every model there that is refused, with the reason; `python -m
tests.shared_suite` writes it anew. Without the folder there are no tests.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, numpy_helper

import onnxc
from onnxc.arrays import object_array, text_bytes
from onnxc.errors import ModelError
from tests.backend_suite import reason_of

Array: TypeAlias = NDArray[Any]

HERE: Final = Path(__file__).parent
SHARED: Final = HERE.parents[1] / "shared"
SUITE: Final = SHARED / "suites" / "onnx-light"
CASES: Final = SHARED / "cases"
MODELS: Final = SHARED / "models"
REFUSED_FILE: Final = HERE / "refused_shared.tsv"


@dataclass(frozen=True)
class Example:
    """A model, its inputs, and the outputs that it must have, both by name.

    Values are arrays; of a sequence, lists of them.
    """

    model: ModelProto
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]

    @property
    def dims(self) -> dict[str, int]:
        """The sizes that the inputs have where the model says none."""
        return open_sizes(self.model, {name: np.shape(a) for name, a in self.inputs.items()})


def open_sizes(model: ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """For `dims`, of inputs with these shapes. A dimension named "?" has no name."""
    return {
        dim.dim_param.strip("?") or f"{value.name}:{axis}": shapes[value.name][axis]
        for value in model.graph.input
        if value.name in shapes
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
        if not dim.HasField("dim_value") or dim.dim_value < 0
    }


def suite_names() -> list[str]:
    return [path.parent.name for path in sorted(SUITE.glob("*/model.onnx"))]


def case_names() -> list[str]:
    return [path.stem for path in sorted(CASES.glob("*.onnx"))]


def model_shapes() -> dict[str, dict[str, tuple[int, ...]]]:
    """The shape of each input of each real model."""
    if not MODELS.is_dir():
        return {}
    with (MODELS / "MODELS.tsv").open(encoding="utf-8", newline="") as stream:
        rows = csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
        return {
            row["path"]: {name: tuple(s) for name, s in json.loads(row["feed_shapes"]).items()}
            for row in rows
        }


def refused() -> dict[str, str]:
    """The reason by the model's place in the shared folder."""
    with REFUSED_FILE.open(encoding="utf-8", newline="") as stream:
        rows = csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
        return {row["model"]: row["reason"] for row in rows}


def suite_example(name: str) -> Example:
    (data,) = (SUITE / name).glob("test_data_set_*")
    model = onnx.load(SUITE / name / "model.onnx")
    inputs = _values(data, "input", model.graph.input)
    return Example(model, inputs, _values(data, "output", model.graph.output))


def case_example(name: str) -> Example:
    model = onnx.load(CASES / f"{name}.onnx")
    with np.load(CASES / f"{name}.npz") as archive:
        data = dict(archive)
    initializers = {value.name for value in model.graph.initializer}
    names = [value.name for value in model.graph.input if value.name not in initializers]
    return Example(
        model,
        {key: data[f"in_{number}"] for number, key in enumerate(names)},
        {value.name: data[f"out_{number}"] for number, value in enumerate(model.graph.output)},
    )


def _values(folder: Path, side: str, infos: Sequence[onnx.ValueInfoProto]) -> dict[str, Any]:
    """By name, of the files SIDE_0.pb and so on."""
    return {info.name: _value(folder / f"{side}_{n}.pb", info) for n, info in enumerate(infos)}


def _value(path: Path, info: onnx.ValueInfoProto) -> Any:
    """An array, or a list of them for a sequence; an optional that is none has no file."""
    if info.type.HasField("tensor_type"):
        return _array(onnx.load_tensor(path))
    if info.type.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(path.read_bytes()))
    return numpy_helper.to_optional(onnx.OptionalProto.FromString(path.read_bytes()))


def _array(tensor: TensorProto) -> Array:
    if tensor.data_type == TensorProto.STRING:
        values = [text_bytes(value) for value in tensor.string_data]
        return object_array(values, tuple(tensor.dims))
    return np.asarray(numpy_helper.to_array(tensor))


def refusal(source: Path | ModelProto, dims: Mapping[str, int]) -> str:
    """Why the model is refused; "" when it is not."""
    try:
        onnxc.compile(source, dims=dims)
    except ModelError as error:
        return reason_of(error)
    except Exception as error:  # a fault of onnxc: the tests, which then expect success, show it
        print(f"{source!s:.60}: {error!r}", file=sys.stderr)
    return ""


def _refusals() -> dict[str, str]:
    found = {}
    for name in suite_names():
        example = suite_example(name)
        found[f"suites/onnx-light/{name}"] = refusal(example.model, example.dims)
    for name in case_names():
        example = case_example(name)
        found[f"cases/{name}"] = refusal(example.model, example.dims)
    for name, shapes in model_shapes().items():
        model = onnx.load(MODELS / name, load_external_data=False)
        found[f"models/{name}"] = refusal(MODELS / name, open_sizes(model, shapes))
    return {name: reason for name, reason in found.items() if reason}


if __name__ == "__main__":
    lines = ["model\treason", *map("\t".join, _refusals().items())]
    text = "".join(f"{line}\n" for line in lines)
    REFUSED_FILE.write_text(text, encoding="utf-8", newline="\n")
