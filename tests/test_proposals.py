"""What refusals propose to add to a command works.

tests/proposal_suite.py counts it over all of ONNX's tests; here it is a share of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import onnx
import pytest

import onnxc
from onnxc.errors import ModelError
from tests.malformed import parse
from tests.proposal_suite import Outcome, backend_outcomes, outcome, shared_outcomes

WINDOW = "g (float[N, 3, H, W] x, float[4, 3, 5, 5] w) => (float[A, B, C, D] y) { y = Conv(x, w) }"
RATE = """
g (float[2] x, int64 rate) => (float[2] y) <int64 sixteen = {16000}>
{
  c = Equal(rate, sixteen)
  y = If (c) <
    then_branch = then () => (float[2] t) { t = Neg(x) },
    else_branch = other () => (float[2] t) { t = Frobnicate(x) }
  >
}
"""
RESHAPE = "g (float[2, 6] x, int64[2] s) => (float[M, N] y) { y = Reshape(x, s) }"
DROPOUT = "g (float[2] x, float r, bool t) => (float[M] y) { y = Dropout(x, r, t) }"
BOTH = "g (float[N] x, int64[1] r) => (float[M] y) { y = Tile(x, r) }"
DERIVED = "g (float[2, 3] x, int64 k) => (float[M, N] y) <int64[1] o = {1}, int64[1] a = {0}>\
 { u = Unsqueeze(k, a) n = Mul(u, o) y = Slice(x, a, n, a) }"
DATA = "g (float[2] x) => (float[M, N] y) { c = Cast <to = 7> (x) y = ConstantOfShape(c) }"
BLOCKED = "g (float[N] x) => (float[N] y) { a = Bernoulli(x) y = Frobnicate(a) }"


UNLIKELY = "g (float[N, 33, H] x, float[N, 7, H] w) => (float[N, A] y)\
 <int64[2] s = {33, 31}, int64[2] t = {7, 31}>\
 { a = Reshape(x, s) b = Reshape(w, t) c = Concat <axis = 0> (a, b) y = Identity(c) }"


def remedies(text: str, **options: Any) -> list[str]:
    with pytest.raises(ModelError) as caught:
        onnxc.compile(parse(text), **options)
    return [problem.remedy for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "proposed", "options"),
    [
        (WINDOW, 'give each one: dims={"N": 1, "H": 224, "W": 224}', {}),
        (WINDOW, 'give each one: dims={"W": 224}', {"dims": {"N": 2, "H": 9}}),
        (RATE, 'fix what decides it: fix={"rate": 16000}', {}),
        (RESHAPE, 'fix what decides it: fix={"s": [2, 6]}', {}),
        (DROPOUT, 'fix what decides it: fix={"t": False}', {}),
        (BOTH, 'give each one: dims={"N": 1}, fix={"r": 1}', {}),
        (DERIVED, 'fix what decides it: fix={"k": 1}', {}),
    ],
)
def test_what_is_proposed(text: str, proposed: str, options: dict[str, Any]) -> None:
    assert remedies(text, **options) == [proposed]


def test_the_command_line_proposes_the_same(tmp_path: Path) -> None:
    onnx.save(parse(BOTH), tmp_path / "m.onnx")
    found = outcome(tmp_path / "m.onnx")
    assert found is not None
    assert found.options == "--dim N=1 --fix r=1"
    assert found.works


def test_nothing_is_proposed_where_only_the_data_decides() -> None:
    (remedy,) = remedies(DATA)
    assert remedy == "declare it in the model, or make what decides it a constant"


def test_nothing_is_proposed_that_would_be_refused() -> None:
    *others, dims = remedies(BLOCKED)
    assert len(others) == 2
    assert dims == "give each one in dims, once the other problems are solved"


def test_sizes_that_nothing_suggests_are_left_to_the_user(tmp_path: Path) -> None:
    onnx.save(parse(UNLIKELY), tmp_path / "m.onnx")
    assert outcome(tmp_path / "m.onnx") is None
    (remedy,) = remedies(UNLIKELY)
    assert remedy == "give each one a size that fits, none of those tried does: dims={...}"


def check_nine_in_ten(outcomes: Iterable[tuple[str, Outcome]]) -> None:
    found = list(outcomes)
    failed = [f"{name}: {outcome.options}" for name, outcome in found if not outcome.works]
    assert found
    assert len(failed) <= len(found) // 10, failed


@pytest.mark.usefixtures("shared")
def test_nine_in_ten_work_for_the_shared_models() -> None:
    check_nine_in_ten(shared_outcomes())


def test_nine_in_ten_work_for_the_tests_of_onnx() -> None:
    check_nine_in_ten(backend_outcomes(step=60))
