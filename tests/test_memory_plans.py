"""The workspace of every real model: proved, and close to the least that its values need."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest

from onnxc.check_plan import Peak, check_plan
from onnxc.pipeline import compile_model
from tests.shared_suite import MODELS, model_shapes, open_sizes
from tests.test_models import FIXED, REFUSED

MOST = 1.05
"""How many times the bound a workspace may be."""


def peak(model: Path | onnx.ModelProto, **options: Any) -> Peak:
    return check_plan(compile_model(model, **options).program)


def assert_small(found: Peak) -> None:
    assert found.bound <= found.planned <= MOST * found.bound


@pytest.mark.parametrize("name", [name for name in model_shapes() if name not in REFUSED])
def test_real_models(name: str) -> None:
    dims = open_sizes(onnx.load(MODELS / name, load_external_data=False), model_shapes()[name])
    fix = {key: np.array(value, np.int64) for key, value in FIXED.get(name, {}).items()}
    assert_small(peak(MODELS / name, dims=dims, fix=fix))


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("name", ["ad", "dscnn", "mobilenet", "mobilenetv2", "resnet8"])
def test_benchmark_networks(
    name: str, plain: bool, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of shared/bench that need no other file."""
    script = builder(shared / "bench" / "build_models.py", monkeypatch)
    monkeypatch.setattr(script, "OUT", str(tmp_path))
    made = getattr(script, name)()
    saved = [*tmp_path.glob("*.onnx")]
    assert_small(peak(saved[0] if saved else made, plain=plain))


def builder(path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_models", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "argv", ["build_models.py"])
    spec.loader.exec_module(module)
    return module
