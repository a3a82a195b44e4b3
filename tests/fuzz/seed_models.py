"""The models that the fuzzers start from."""

from __future__ import annotations

import onnx

from tests import backend_suite
from tests.malformed import GRAPHS
from tests.malformed_functions import FUNCTIONS
from tests.portable_models import models as portable_models

LARGEST = 32_000
"""Bytes of a model: larger ones have nothing that small ones lack."""


def seed_models() -> list[onnx.ModelProto]:
    """Of ONNX's backend tests and of this folder, in a fixed order."""
    found = [backend_suite.example(name).model for name in backend_suite.names() if _fit(name)]
    found += [model for _, model in portable_models()]
    found += [case.build() for case in (*GRAPHS, *FUNCTIONS)]
    return [model for model in found if model.ByteSize() <= LARGEST]


def compiling_seeds() -> list[onnx.ModelProto]:
    """Those of the backend tests that onnxc compiles."""
    refused = backend_suite.unsupported().keys()
    names = [name for name in backend_suite.names() if _fit(name) and name not in refused]
    return [backend_suite.example(name).model for name in names]


def _fit(name: str) -> bool:
    return name not in backend_suite.LIGHT
