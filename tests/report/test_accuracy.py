"""The accuracy of the report: what verify finds, by tensor, kernel and node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from onnxc import verify
from onnxc.errors import UsageError
from onnxc.report import accuracy, facts
from onnxc.verify.compare import Difference, Tolerance
from onnxc.verify.result import Comparison, Node, Nodes, Reference, Verification
from tests.report.facts_checks import quick, valid

TEXT = """
    <ir_version: 8, opset_import: ["" : 19]>
    m (float[2, 3] x, float[3, 4] w) => (float[2, 4] y) {
        [product] a = MatMul(x, w)
        [norm] b = Softmax(a)
        [last] y = Exp(b)
    }
"""


def measured(**options: Any) -> dict[str, Any]:
    subject = facts.subject(onnx.parser.parse_model(TEXT))
    found = quick(subject)
    facts.add_accuracy(found, subject, **options)
    valid(found)
    return found


def test_against_the_reference() -> None:
    found = measured(against="reference")
    told = found["accuracy"]
    assert told["reference"].startswith("ONNX reference evaluator")
    assert told["inputs"] == "random, special, repeated inputs"
    assert {(row["name"], row["verdict"]) for row in told["outputs"]} <= {
        ("y", "ok"),
        ("y", "excused"),
    }
    (product,) = (row for row in told["tensors"] if row["name"] == "a")
    kernel = found["kernels"][product["kernel"]]
    assert product["tensor"] in kernel["writes"]
    assert [found["nodes"][n]["name"] for n in product["nodes"]] == ["product"]
    assert product["max_abs_error"] < 1e-5
    assert told["first"] == ""


def test_on_given_inputs(tmp_path: Path) -> None:
    x, w = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
    np.savez(tmp_path / "in.npz", x=x, w=w)
    told = measured(inputs=tmp_path / "in.npz", against="reference")["accuracy"]
    assert [row["inputs"] for row in told["outputs"]] == [told["tensors_inputs"]]
    assert told["inputs"] == f"{told['tensors_inputs']} inputs"


def test_inputs_that_do_not_fit(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", other=np.ones(3))
    with pytest.raises(UsageError):
        measured(inputs=tmp_path / "in.npz")


def test_without_a_compiler_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    told = measured(against="reference")["accuracy"]
    assert list(told) == ["reason"]
    assert "no-such-compiler" in told["reason"]


def test_differences_are_told() -> None:
    """Of a verification that found some: infinities are text, as JSON has none."""
    difference = Difference(8, 3, None, float("inf"), 0.5, 7.0, 0.25)
    node = Node(
        "a", "float", (2, 4), ("MatMul-13 'product'",), "f", "reference", "differs", difference
    )
    row = Comparison("y", "float", (2, 4), "reference", "random", "differs", difference, "a note")
    result = Verification(
        model="",
        c_source="",
        build="",
        seed=0,
        tolerance=Tolerance(),
        references=(Reference("reference", "onnx 1", "", True), Reference("onnxruntime", "", "no")),
        skipped=(),
        comparisons=(row,),
        complete=True,
        nodes=Nodes(3, 1, "random", (node,)),
    )
    found = quick(facts.subject(onnx.parser.parse_model(TEXT)))
    found["accuracy"] = told = accuracy.facts(result, found)
    valid(found)
    assert told["first"] == "a"
    assert told["unused"] == ["onnxruntime: no"]
    (output,) = told["outputs"]
    errors = [output[name] for name in accuracy.ERRORS]
    assert (errors, output["note"]) == (["inf", 0.5, 0.25, 7.0], "a note")
    assert facts.text(found).isascii()


def test_what_verify_offers_is_what_the_command_offers() -> None:
    from onnxc.options import AGAINST
    from onnxc.verify.run import CHOICES

    assert verify.verify_model is not None
    assert [*CHOICES] == [*AGAINST]
