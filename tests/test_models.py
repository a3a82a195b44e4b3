"""The real models and the benchmark's networks beside the checkout, as `onnxc verify` sees them.

Each agrees with the references by the default rules, or is refused with the reason in
refused_shared.tsv.
"""

from __future__ import annotations

import importlib.util
from typing import Final

import onnx
import pytest

import onnxc
from onnxc.errors import ModelError
from onnxc.verify import verify_model
from tests.backend_suite import reason_of
from tests.shared_suite import MODELS, model_shapes, open_sizes, refused

SHAPES = model_shapes()
REFUSED = {
    name.removeprefix("models/"): reason
    for name, reason in refused().items()
    if name.startswith("models/")
}
# Inputs that decide which branch the model takes: constants of the compiled model.
FIXED: Final[dict[str, dict[str, int]]] = {
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
    assert FIXED.keys() <= SHAPES.keys()


@pytest.mark.parametrize("name", SHAPES)
def test_model(name: str) -> None:
    dims = open_sizes(onnx.load(MODELS / name, load_external_data=False), SHAPES[name])
    if name in REFUSED:
        with pytest.raises(ModelError) as caught:
            onnxc.compile(MODELS / name, dims=dims)
        assert reason_of(caught.value) == REFUSED[name]
        return
    result = verify_model(MODELS / name, dims=dims, fix=FIXED.get(name), per_node=True)
    assert result.passed, result.to_json()
    assert not result.skipped
    assert result.nodes is not None
    assert result.nodes.tapped
