"""The file of known deviations, and how it arbitrates between references."""

import onnx
import pytest

from onnxc.verify import Verification, verify_model
from onnxc.verify.deviations import FILE, deviations, known
from onnxc.verify.oracle import ORACLES

SCHEMAS = {schema.name for schema in onnx.defs.get_all_schemas_with_history()}
OLD_SOFTMAX = """<ir_version: 8, opset_import: ["" : %d]>
    m (float[2, 3, 4] x) => (float[2, 3, 4] y) { y = Softmax<axis = 1>(x) }"""


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


def test_the_file_is_a_table() -> None:
    head, *lines = FILE.read_text(encoding="utf-8").splitlines()
    assert head.split("\t") == list(deviations()[0].__dataclass_fields__)
    assert {len(line.split("\t")) for line in lines} == {9}
    assert lines == sorted(set(lines), key=lambda line: lines.index(line))


@pytest.mark.parametrize("one", deviations(), ids=lambda one: f"{one.operator}-{one.engine}")
def test_each_line_means_something(one: object) -> None:
    found = vars(one)
    assert found["operator"] in SCHEMAS
    assert found["engine"] in ORACLES
    assert found["inputs"] in ("any", "special")
    assert found["right"] in ("spec", "choice")
    assert found["what"]


def test_a_line_is_for_its_opsets_attributes_and_versions() -> None:
    old, new = model(OLD_SOFTMAX % 11), model(OLD_SOFTMAX % 13)
    assert [d.operator for d in known(old, "y", "reference", "1.23.2")] == ["Softmax"]
    assert known(new, "y", "reference", "1.23.2") == []
    assert known(old, "x", "reference", "1.23.2") == []
    (line,) = known(old, "y", "reference", "1.23.2")
    node = old.graph.node[0]
    fixed = type(line)(**{**vars(line), "fixed": "1.24"})
    assert fixed.applies(node, 11, "1.23.9")
    assert not fixed.applies(node, 11, "1.24.0")
    for when, right in (("axis", True), ("axis=1|2", True), ("axis=2", False), ("mode", False)):
        assert type(line)(**{**vars(line), "when": when}).applies(node, 11, "1") is right


def test_nodes_of_functions_and_branches_count() -> None:
    text = """<ir_version: 9, opset_import: ["" : 11, "own" : 1]>
        m (float[2, 3] x, bool b) => (float[2, 3] y) {
            y = If (b) <
                then_branch = t () => (float[2, 3] p) { p = own.soft(x) },
                else_branch = e () => (float[2, 3] q) { q = Identity(x) }
            >
        }
        <domain: "own", opset_import: ["" : 11]>
        soft (x) => (y) { y = Softmax(x) }"""
    assert [d.operator for d in known(model(text), "y", "reference", "1.23")] == ["Softmax"]


def verdicts(result: Verification, inputs: str) -> dict[str, str]:
    return {c.reference: c.verdict for c in result.comparisons if c.inputs == inputs}


def test_a_known_deviation_is_named() -> None:
    """Before opset 13 Softmax flattens its input, which the reference evaluator leaves out."""
    result = verify_model(model(OLD_SOFTMAX % 11), against="both")
    assert result.passed
    assert verdicts(result, "random") == {"onnxruntime": "ok", "reference": "excused"}
    (note,) = {
        c.note for c in result.comparisons if (c.reference, c.inputs) == ("reference", "random")
    }
    assert note.startswith(
        "reference deviates; the C follows onnxruntime. Softmax: before opset 13"
    )


MAX_POOL = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[1, 1, 64] x) => (float[1, 1, 62] y) { y = MaxPool<kernel_shape = [3]>(x) }"""


def test_auto_asks_the_second_reference_where_the_first_differs() -> None:
    result = verify_model(model(MAX_POOL))
    assert result.passed, result.to_json()
    assert verdicts(result, "random") == {"onnxruntime": "ok"}
    assert verdicts(result, "special").keys() == {"onnxruntime", "reference"}


def test_an_unknown_disagreement_differs() -> None:
    """Whoever is right: nobody has looked at it."""
    text = OLD_SOFTMAX % 11
    lone = verify_model(model(text), against="reference")
    assert lone.differs
    (note, *_) = [c.note for c in lone.comparisons if c.verdict == "differs"]
    assert note.startswith("perhaps a known deviation of reference. Softmax")


def test_special_values_may_follow_onnxc_alone() -> None:
    """Both references pass a NaN over in MaxPool; that onnxc does not is its documented choice."""
    result = verify_model(model(MAX_POOL), against="both")
    assert result.passed, result.to_json()
    special = [c for c in result.comparisons if c.inputs == "special"]
    assert {c.verdict for c in special} == {"excused"}
    assert all("the C follows onnxc's own evaluation" in c.note for c in special)
