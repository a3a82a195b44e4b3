"""The real models beside the checkout, against onnxruntime with its optimisations off.

Each agrees or is refused with the reason in refused_shared.tsv.

The error of a float output may be TOLERANCE of the output's largest value: what is small beside it
is a difference of larger numbers, whose rounding depends on the order of a sum. Integers that are
no quantised numbers (a class, a version) must be equal.
"""

from __future__ import annotations

import importlib.util
import inspect
from typing import Any

import numpy as np
import onnx
import pytest

import onnxc
from onnxc.compiled import CompiledModel
from onnxc.dtypes import numpy_dtype
from onnxc.errors import ModelError
from onnxc.pipeline import Interface
from onnxc.verify.inputs import random_cases
from onnxc.verify.oracle import OnnxRuntime
from tests.backend_suite import reason_of
from tests.shared_suite import MODELS, Array, model_shapes, open_sizes, refused

SHAPES = model_shapes()
REFUSED = {
    name.removeprefix("models/"): reason
    for name, reason in refused().items()
    if name.startswith("models/")
}
TOLERANCE = 1e-4
# onnxruntime's sigmoid adds 0.5 at its end, so that a small result has the error of a large one.
ABSOLUTE = 1e-6
# Where a value lies between two steps of a quantised type, the last bit of a sum decides: of an
# 8-bit tensor a step is 1/255 of the range, and one that differs moves those that follow.
STEPS = 2
QUANTISED = 0.02
# Every value between two nodes is rounded to 11 bits.
HALF = 5e-3
TOLERANCES = {
    "tinyml/mlperf_kws_dscnn_fp32.onnx": QUANTISED,
    "tinyml/micro_kws_m_qdq.onnx": QUANTISED,
    "tinyml/micro_kws_m_qoperator.onnx": QUANTISED,
    "audio-vad/pulsevad_2_1k_int8.onnx": QUANTISED,
    "vision-cls/mnist_factorio_quant.onnx": QUANTISED,
    "vision-cls/squeezenet_fp16.onnx": HALF,
}
# Inputs of which most numbers have no meaning: their values, drawn from these.
VALUES: dict[tuple[str, str], list[int]] = {
    ("nlp/magika_standard_v3_3.onnx", "bytes"): list(range(257)),
    ("control-rl/mlagents_hallway_lstm.onnx", "action_masks"): [0, 1],
}
# Inputs that decide which branch the model takes: constants of the compiled model.
FIXED: dict[str, dict[str, int]] = {
    "audio-vad/silero_vad_16k_op15.onnx": {"sr": 16000},
}

pytestmark = [
    pytest.mark.skipif(not MODELS.is_dir(), reason="no folder 'shared' beside the checkout"),
    pytest.mark.skipif(
        importlib.util.find_spec("onnxruntime") is None, reason="onnxruntime is not installed"
    ),
]


def test_the_lists_are_complete() -> None:
    assert len(SHAPES) == 42
    assert REFUSED.keys() <= SHAPES.keys()
    assert {*TOLERANCES, *FIXED, *(name for name, _ in VALUES)} <= SHAPES.keys()


@pytest.mark.parametrize("name", SHAPES)
def test_model(name: str) -> None:
    if name in REFUSED:
        with pytest.raises(ModelError) as caught:
            compiled_model(name)
        assert reason_of(caught.value) == REFUSED[name]
        return
    model = compiled_model(name)
    inputs = {value.name: drawn(name, value) for value in model.inputs}
    fixed = {key: np.array(value, np.int64) for key, value in FIXED.get(name, {}).items()}
    wanted = OnnxRuntime(MODELS / name, model.compiled).run(inputs | fixed)
    found = model.run(inputs).values()
    for output, got, expected in zip(model.outputs, found, wanted, strict=True):
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        assert error(got, expected) <= allowed(name, expected), output.name


def compiled_model(name: str) -> CompiledModel:
    dims = open_sizes(onnx.load(MODELS / name, load_external_data=False), SHAPES[name])
    options: dict[str, Any] = {"fix": FIXED[name]} if name in FIXED and takes_fix() else {}
    return onnxc.compile(MODELS / name, dims=dims, **options)


def takes_fix() -> bool:
    return "fix" in inspect.signature(onnxc.compile).parameters


def drawn(name: str, value: Interface) -> Array:
    """The same numbers every time: normally distributed, or of all steps of an 8-bit type."""
    generator = np.random.default_rng(3)
    if (name, value.name) in VALUES:
        chosen = generator.choice(VALUES[name, value.name], size=value.shape)
        return chosen.astype(numpy_dtype(value.dtype))
    if value.dtype.bits == 8 and value.dtype.kind in ("signed", "unsigned"):
        limits = np.iinfo(numpy_dtype(value.dtype))
        return generator.integers(
            limits.min, limits.max, size=value.shape, dtype=limits.dtype, endpoint=True
        )
    return random_cases([value], seed=3)[0].values[value.name]


def error(got: Array, expected: Array) -> float:
    """The largest difference; infinite where one side alone is NaN."""
    if got.dtype.kind in "OUS":
        return 0.0 if got.tolist() == expected.tolist() else np.inf
    wide, reference = got.astype(np.float64), expected.astype(np.float64)
    same = (wide == reference) | (np.isnan(wide) & np.isnan(reference))
    difference = np.where(same, 0.0, np.abs(wide - reference))
    return float(np.nan_to_num(difference, nan=np.inf).max(initial=0.0))


def allowed(name: str, expected: Array) -> float:
    if expected.dtype.kind in "iu" and expected.dtype.itemsize == 1:
        return STEPS
    if expected.dtype.kind != "f":
        return 0.0
    largest = float(np.abs(expected.astype(np.float64)).max(initial=0.0))
    return TOLERANCES.get(name, TOLERANCE) * largest + ABSOLUTE
