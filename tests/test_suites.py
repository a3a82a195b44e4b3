"""The conformance suite and the difficult cases beside the checkout.

The C is built with every warning an error. Each test passes or is refused with the reason in
refused_shared.tsv.
"""

from __future__ import annotations

import numpy as np
import pytest

import onnxc
from onnxc.errors import ModelError
from onnxc.verify.compare import Tolerance, compare
from tests.backend_suite import as_bytes, reason_of
from tests.shared_suite import (
    SHARED,
    Example,
    case_example,
    case_names,
    refused,
    suite_example,
    suite_names,
)

REFUSED = refused()
# The suite's values are rounded to 8 digits, of the inputs too; others as onnxc.verify has them.
TOLERANCES = {"double": Tolerance(rtol=1e-6, atol=1e-7)}
# A float out of the integer's range: the suite wraps, ONNX leaves it undefined, onnxc saturates.
OUT_OF_RANGE = {
    f"suites/onnx-light/test_cc_cast_{source}_to_{target}"
    for source in ("FLOAT", "DOUBLE")
    for target in ("UINT8", "UINT16")
}
EXACT = {"Constant", "Equal", "Identity", "Size"}

pytestmark = [
    pytest.mark.skipif(not SHARED.is_dir(), reason="no folder 'shared' beside the checkout"),
    pytest.mark.usefixtures("strict_c"),
]


def test_how_many_there_are() -> None:
    assert (len(suite_names()), len(case_names())) == (328, 57)
    places = {f"suites/onnx-light/{name}" for name in suite_names()}
    places |= {f"cases/{name}" for name in case_names()}
    assert {name for name in REFUSED if not name.startswith("models/")} <= places


@pytest.mark.parametrize("name", suite_names())
def test_suite(name: str) -> None:
    check(suite_example(name), f"suites/onnx-light/{name}")


@pytest.mark.parametrize("name", case_names())
def test_case(name: str) -> None:
    check(case_example(name), f"cases/{name}")


def check(example: Example, place: str) -> None:
    if place in REFUSED:
        with pytest.raises(ModelError) as caught:
            onnxc.compile(example.model, dims=example.dims)
        assert reason_of(caught.value) == REFUSED[place]
        return
    compiled = onnxc.compile(example.model, dims=example.dims)
    found = compiled.run(example.inputs)
    exact = {node.op_type for node in example.model.graph.node} <= EXACT
    assert list(found) == list(example.outputs)
    for output in compiled.outputs:
        tolerance = TOLERANCES.get(output.dtype.name, Tolerance(exact=exact))
        wanted = as_bytes(example.outputs[output.name])
        if place in OUT_OF_RANGE:
            limits = np.iinfo(wanted.dtype)
            (given,) = example.inputs.values()
            wanted = np.clip(np.trunc(given), limits.min, limits.max).astype(wanted.dtype)
        difference = compare(as_bytes(found[output.name]), wanted, output.dtype, tolerance)
        assert difference.passed, f"{output.name}: {difference}"
