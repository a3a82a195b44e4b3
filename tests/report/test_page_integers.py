"""What a report's page says of integers and floats."""

from __future__ import annotations

from typing import Any

import pytest

from onnxc.report.html import integers
from tests.report.drawn_facts import facts


def _with(by_arithmetic: dict[str, int], **other: Any) -> dict[str, Any]:
    changed = facts(**other)
    changed["summary"]["macs_by_arithmetic"] = by_arithmetic
    return changed


def test_a_float_model_has_one_sentence() -> None:
    found = integers.integers(facts())
    assert found.sentence == "This model is not quantised: its products are of float32."
    assert found.not_integer == ()


def test_a_model_without_products_says_so() -> None:
    assert integers.integer_sentence(_with({})) == (
        "This model is not quantised: no products are summed."
    )


def test_shares_have_integers_first_and_fill_the_bar() -> None:
    shares = integers.integers(_with({"float32": 100, "int8": 300})).shares
    assert [(s.arithmetic, s.x, s.width, s.text, s.integer) for s in shares] == [
        ("int8", "0%", "75%", "75.0 %", True),
        ("float32", "75%", "25%", "25.0 %", False),
    ]


def test_what_is_not_integer_has_kernel_nodes_and_reason() -> None:
    floats = [{"kernel": 1, "nodes": [2], "why": "Softmax: stated in float"}]
    found = integers.integers(_with({"float32": 100, "int8": 300}, not_integer=floats))
    assert found.sentence == (
        "300 of 400 multiply-accumulates (75.0 %) run in integers. 1 of 4 kernels computes in"
        " floats."
    )
    (entry,) = found.not_integer
    assert (entry.kernel, entry.name, entry.why) == (1, "softmax_1", "Softmax: stated in float")
    assert entry.nodes == ((2, "Softmax-13 /soft"),)


def test_of_many_nodes_some_are_named() -> None:
    floats = [{"kernel": 1, "nodes": [0, 1, 2, 3, 4], "why": ""}]
    (entry,) = integers.integers(_with({"int8": 300}, not_integer=floats)).not_integer
    assert ([number for number, _ in entry.nodes], entry.more) == ([0, 1, 2, 3], 1)


def test_products_of_integers_beside_floats_are_no_quantised_model() -> None:
    found = integers.integer_sentence(_with({"float32": 100, "int64": 300}))
    assert found == "This model is not quantised: its products are of float32 and int64."


def test_all_in_integers() -> None:
    whole = _with({"int8": 300})
    for kernel in whole["kernels"]:
        kernel["integer"] = True
    assert integers.integer_sentence(whole) == (
        "300 of 300 multiply-accumulates (100.0 %) run in integers. Nothing of it is computed in"
        " floats."
    )


def test_integer_sums_that_are_rescaled_in_floats_are_told() -> None:
    floats = [{"kernel": 1, "nodes": [2], "why": "Softmax: stated in float"}]
    changed = _with({"int8": 300}, not_integer=floats)
    for number, results in ((0, 1024), (2, 10)):
        changed["kernels"][number] |= {"rescaled": results, "rescaled_in": "float32"}
    assert integers.rescaling(changed) == integers.Rescaling((0, 2), 1034, "float32")
    assert integers.integer_sentence(changed) == (
        "300 of 300 multiply-accumulates (100.0 %) run in integers. 1 of 4 kernels computes in"
        " floats. 2 kernels with integer sums rescale them in float32, 1,034 results in all:"
        " kernels 0, 2."
    )


def test_where_all_floats_are_of_rescaling_it_says_so() -> None:
    changed = _with({"int8": 300})
    for kernel in changed["kernels"]:
        kernel["integer"] = True
    changed["kernels"][0] |= {"rescaled": 1, "rescaled_in": "float32"}
    assert integers.integer_sentence(changed) == (
        "300 of 300 multiply-accumulates (100.0 %) run in integers. No kernel computes in floats"
        " alone. 1 kernel with integer sums rescales them in float32, 1 result in all: kernel 0."
    )


@pytest.mark.parametrize(
    ("arithmetic", "integer"),
    [("int8", True), ("uint8", True), ("int32", True), ("float32", False), ("none", False)],
)
def test_arithmetic_of_integers(arithmetic: str, integer: bool) -> None:
    assert integers.is_integer(arithmetic) is integer
