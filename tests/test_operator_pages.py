"""`onnxc ops`: the list, and the three pages that the project started from, field by field."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import onnx
import pytest

from onnxc import cli, op
from onnxc.dtypes import ELEMENT_TYPES
from onnxc.passes.check_node import is_supported
from onnxc.report import examples
from onnxc.report.differences import differences
from onnxc.report.operators import NOT_SUPPORTED, TYPE_GROUPS, table, types_text

DATA = Path(__file__).parent / "data"
PAGES = Path(__file__).parents[2] / "shared" / "spec"
OPERATORS = ["Equal", "Identity", "Size"]

beside_the_pages = pytest.mark.skipif(
    not PAGES.is_dir(), reason="the raw operator pages are not beside the project"
)


def transcribed(operator: str) -> dict[str, Any]:
    page: dict[str, Any] = json.loads((DATA / f"{operator}.json").read_text(encoding="utf-8"))
    return page


def ops(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(["ops", *words]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def page_json(capsys: pytest.CaptureFixture[str], name: str) -> dict[str, Any]:
    page: dict[str, Any] = json.loads(ops(capsys, name, "--json"))
    return page


def changes(page: dict[str, Any]) -> dict[str, list[str]]:
    found = page["differences"]["changes"]
    return {heading: [change["text"] for change in group] for heading, group in found.items()}


def fields(page: dict[str, Any]) -> dict[str, Any]:
    """Of a page, what tests/data states besides the examples."""
    return {
        "domain": page["domain"],
        "since_version": page["since_version"],
        "latest_version": page["latest_version"],
        "attributes": [attribute["name"] for attribute in page["attributes"]],
        "inputs": {formal["name"]: formal["type"] for formal in page["inputs"]},
        "outputs": {formal["name"]: formal["type"] for formal in page["outputs"]},
        "type_constraints": {c["name"]: c["allowed_types"] for c in page["type_constraints"]},
        "differences": {
            "old_version": page["differences"]["old_version"],
            "new_version": page["differences"]["new_version"],
            "breaking": page["differences"]["breaking"],
            **changes(page),
        },
    }


@pytest.mark.parametrize("operator", OPERATORS)
def test_fields(operator: str, capsys: pytest.CaptureFixture[str]) -> None:
    expected = transcribed(operator)
    assert fields(page_json(capsys, expected["page"])) == expected["fields"]


@pytest.mark.parametrize("operator", OPERATORS)
def test_examples_have_the_values_of_the_page(
    operator: str, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = transcribed(operator)
    shown = page_json(capsys, expected["page"])["examples"]
    for example in shown:
        assert example["node"].pop("attributes") == {}
    assert shown == expected["examples"]


def page_fields(text: str) -> dict[str, Any]:
    """The fields and prose of a raw page: reStructuredText, or text copied from a browser."""
    text = re.sub(r"[*`]", "", text.replace("\u2018", "'").replace("\u2019", "'"))
    text = re.sub(r"\n *Allowed", " Allowed", text)
    latest = re.search(r"since version (\d+)", text)
    since = int(re.findall(r"Since version: (\d+)", text)[0])
    before, _, after = text.partition("Examples")
    formals = re.findall(r"^[- ]*(\w+) \((\w+)\): (.+)$", before, re.MULTILINE)
    outputs = before.index("\nOutputs")
    constraints = re.findall(r"^[- ]*(\w+): (.+) Allowed types: (.+)\.$", before, re.MULTILINE)
    changed = re.findall(r"(changed '.+'\])", after)
    return {
        "domain": re.findall(r"Domain:\s+(ai\.onnx)", text)[0],
        "since_version": since,
        "latest_version": int(latest[1]) if latest else since,
        "attributes": [],
        "inputs": {n: t for n, t, d in formals if before.index(f"({t}): {d}") < outputs},
        "outputs": {n: t for n, t, d in formals if before.index(f"({t}): {d}") > outputs},
        "type_constraints": {name: types.split(", ") for name, _, types in constraints},
        "differences": {
            "old_version": int(re.findall(r"old version: (\d+)", after)[0]),
            "new_version": int(re.findall(r"new version: (\d+)", after)[0]),
            "breaking": re.findall(r"breaking: (\w+)", after)[0] == "yes",
            "Type constraints": changed,
        },
        "prose": {name: description for name, _, description in formals}
        | {name: description for name, description, _ in constraints},
    }


@beside_the_pages
@pytest.mark.parametrize("operator", OPERATORS)
def test_transcribed_fields_and_prose(operator: str, capsys: pytest.CaptureFixture[str]) -> None:
    expected = transcribed(operator)
    raw = page_fields((PAGES / f"{expected['page']}.txt").read_text(encoding="utf-8"))
    prose = raw.pop("prose")
    assert raw == expected["fields"]
    page = page_json(capsys, expected["page"])
    described = [*page["inputs"], *page["outputs"], *page["type_constraints"]]
    assert {item["name"]: item["description"] for item in described} == prose


@beside_the_pages
@pytest.mark.parametrize("operator", OPERATORS)
def test_summary(operator: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The page of Equal leaves out Markdown and a paragraph that onnx has."""
    page = page_json(capsys, transcribed(operator)["page"])
    raw = " ".join((PAGES / f"{transcribed(operator)['page']}.txt").read_text("utf-8").split())
    first_paragraph = page["summary"].partition("\n\n")[0].replace("`", "")
    assert " ".join(first_paragraph.split()).lower() in raw.lower()
    assert page["summary"] == (onnx.defs.get_schema(operator, 28).doc or "").strip()


@pytest.mark.parametrize("operator", OPERATORS)
def test_printed_page_is_the_raw_page(operator: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every printed field and example value stands in tests/data."""
    expected = transcribed(operator)
    printed = ops(capsys, expected["page"])
    stated = expected["fields"]
    lines = printed.splitlines()
    assert lines[0] == expected["page"]
    assert f"Domain: {stated['domain']}" in lines
    assert f"Since version: {stated['since_version']}" in lines
    assert f"Latest version: {stated['latest_version']}" in lines
    for name, types in stated["type_constraints"].items():
        assert re.search(
            rf"^{name}: .* Allowed types: {re.escape(', '.join(types))}\.$", printed, re.M
        )
    differences = stated["differences"]
    for line in (
        f"Differences with previous version ({differences['old_version']})",
        f"old version: {differences['old_version']}",
        f"new version: {differences['new_version']}",
        f"breaking: {'yes' if differences['breaking'] else 'no'}",
        *differences["Type constraints"],
    ):
        assert line in lines
    for example in expected["examples"]:
        assert example["name"] in lines


VALUES = """\
test_cc_equal_bcast

    Node:
      Equal(x, y) -> (z)
    Inputs:
      x: shape=(2, 2), dtype=float32
        [[1., 2.],
         [3., 4.]]
      y: shape=(), dtype=float32
        2.
    Outputs:
      z: shape=(2, 2), dtype=bool
        [[False,  True],
         [False, False]]

test_cc_equal_bfloat16

    Node:
      Equal(x, y) -> (z)
    Inputs:
      x: shape=(2, 3), dtype=bfloat16
        [[1, 4, 3],
         [6, 5, 2]]
      y: shape=(2, 3), dtype=bfloat16
        [[2, 3, 3],
         [5, 6, 1]]
    Outputs:
      z: shape=(2, 3), dtype=bool
        [[False, False,  True],
         [False, False, False]]
"""


def test_printed_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert VALUES in ops(capsys, "Equal-19")


@beside_the_pages
@pytest.mark.parametrize("operator", OPERATORS)
def test_printed_examples_are_those_of_the_raw_page(
    operator: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Line by line, white space and markup aside."""
    page = transcribed(operator)["page"]
    raw = (PAGES / f"{page}.txt").read_text(encoding="utf-8")
    assert example_lines(ops(capsys, page)) == example_lines(raw)


def example_lines(text: str) -> list[str]:
    examples = text.partition("\nExamples")[2].partition("\nDifferences")[0]
    lines = (
        re.sub(r"[*#=-]{2,}|\.\. code-block::.*|\s|^#", "", line) for line in examples.split("\n")
    )
    return [line for line in lines if line]


def test_c_of_the_first_example(capsys: pytest.CaptureFixture[str]) -> None:
    page = page_json(capsys, "Equal-19")
    assert page["c"]["example"] == "test_cc_equal"
    assert "model_run(" in page["c"]["source"]
    assert "==" in page["c"]["source"]
    printed = ops(capsys, "Equal-19")
    assert printed.partition("The C of test_cc_equal\n")[2].strip() != ""
    titles = ["Type Constraints", "The C of test_cc_equal", "Examples", "Differences with"]
    places = [printed.index(f"\n{title}") for title in titles]
    assert places == sorted(places)
    assert f"```c\n{page['c']['source'].strip(chr(10))}\n```" in ops(capsys, "Equal", "--markdown")


def test_a_constant_is_data(capsys: pytest.CaptureFixture[str]) -> None:
    printed = ops(capsys, "Constant")
    assert "\nThe C of constant_tensor (the result is data)\n" in printed
    assert "Constant(value=float32[2, 2] [[1.0, 2.0], [3.0, 4.5]]) -> (y)\n" in printed
    shown = {e["name"]: e for e in page_json(capsys, "Constant")["examples"]}
    assert shown["constant_value_strings"]["outputs"] == [
        {"name": "y", "dtype": "object", "shape": [2], "values": ["red", "green"]}
    ]
    assert shown["constant_tensor"]["outputs"][0]["values"] == [[1.0, 2.0], [3.0, 4.5]]
    (only,) = page_json(capsys, "Constant-1")["examples"]
    assert only["name"] == "constant_tensor"


def test_axes_are_an_attribute_or_an_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Unsqueeze(x, axes=[0, -1]) -> (y)" in ops(capsys, "Unsqueeze-11")
    shown = {e["name"]: e["outputs"][0] for e in page_json(capsys, "Unsqueeze")["examples"]}
    assert shown.keys() == {"unsqueeze_first_axis", "unsqueeze_negative_axis"}
    assert shown["unsqueeze_negative_axis"]["shape"] == [1, 2, 2, 1]


@pytest.mark.parametrize("words", [(), ("--markdown",)])
def test_dead_links_are_text(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert "](Broadcasting.md)" in page_json(capsys, "Equal")["summary"]
    printed = ops(capsys, "Equal", *words)
    assert "](" not in printed
    assert "check the doc." in printed


def test_an_operator_that_becomes_another(capsys: pytest.CaptureFixture[str]) -> None:
    page = page_json(capsys, "Upsample-9")
    assert page["supported"]
    assert not page["deprecated"]
    (shown,) = page["examples"]
    assert shown["outputs"][0]["values"] == [[[[1.0, 1.0, 2.0, 2.0], [3.0, 3.0, 4.0, 4.0]]]]
    assert "Deprecated: yes" in ops(capsys, "Upsample-10")


def test_an_input_that_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert "  Resize(X, , , sizes, mode='linear') -> (Y)\n" in ops(capsys, "Resize")


def test_a_version_without_an_example_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examples, "stored", lambda operator: [])
    printed = ops(capsys, "Equal-13")
    assert "\nNo example is of version 13.\n" in printed
    assert "The C of" not in printed


def test_any_opset_names_the_version_in_force(capsys: pytest.CaptureFixture[str]) -> None:
    printed = ops(capsys, "Equal-18").splitlines()
    assert printed[0] == "Equal-13"
    assert "Opset 18 has Equal-13" in printed


@pytest.mark.parametrize("word", ["ai.onnx::Equal-19", "ai.onnx.Equal"])
def test_the_default_domain_may_be_named(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ops(capsys, word).splitlines()[0] == "Equal-19"


def test_without_a_version_the_newest(capsys: pytest.CaptureFixture[str]) -> None:
    assert ops(capsys, "Identity").splitlines()[0] == "Identity-25"


def test_older_versions_show_the_examples_that_they_allow(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = page_json(capsys, "Equal-1")
    assert [example["name"] for example in page["examples"]] == [
        "test_cc_equal_int64",
        "test_equal",
    ]
    assert [attribute["name"] for attribute in page["attributes"]] == ["axis", "broadcast"]
    assert page["differences"] is None


def test_operator_that_is_not_supported(capsys: pytest.CaptureFixture[str]) -> None:
    printed = ops(capsys, "SequenceAt")
    assert printed.splitlines()[3] == "not supported yet: onnxc refuses models with this operator"
    assert "The C of" not in printed


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("equal", "ONNX has no operator 'equal'; did you mean Equal?"),
        ("Equall-19", "ONNX has no operator 'Equall'; did you mean Equal?"),
        ("Xyzzy", "ONNX has no operator 'Xyzzy'"),
        ("ai.onnx.ml::Scaler", "domain 'ai.onnx.ml': onnxc knows the operators of ai.onnx only"),
        ("com.microsoft.Gelu", "domain 'com.microsoft': onnxc knows the operators of ai.onnx only"),
        ("ai.onnx.Equall", "ONNX has no operator 'Equall'; did you mean Equal?"),
        ("Equal-x", "'x' is no version; write Equal-VERSION, as in Equal-19"),
        ("Equal-0", "opset 0 has no Equal; its versions are 1, 7, 11, 13, 19"),
        ("Equal-99", "opset 99 is newer than 28; Equal has 1, 7, 11, 13, 19"),
    ],
)
def test_unknown(word: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ops", word]) == 2
    assert capsys.readouterr() == ("", f"error[ONNXC0708]: {message}\n")


@pytest.mark.parametrize(
    ("name", "old", "new", "breaking", "expected"),
    [
        ("Equal", 1, 7, True, {"Attributes": ["removed 'axis'", "removed 'broadcast'"]}),
        (
            "Softmax",
            11,
            13,
            True,
            {
                "Type constraints": ["changed 'T': added types: ['tensor(bfloat16)']"],
                "Attributes": ["changed 'axis': default 1 -> -1"],
            },
        ),
        ("Slice", 10, 11, False, {}),
        ("Upsample", 9, 10, True, {"Support": ["changed 'deprecated': no -> yes"]}),
        (
            "Dropout",
            7,
            10,
            True,
            {
                "Outputs": [
                    "changed 'mask': removed types: "
                    "['tensor(double)', 'tensor(float)', 'tensor(float16)']"
                ],
                "Type constraints": ["added 'T1'"],
            },
        ),
        (
            "TopK",
            1,
            10,
            True,
            {"Attributes": ["removed 'k'"], "Inputs": ["added 'K': required"]},
        ),
        (
            "BatchNormalization",
            14,
            15,
            False,
            {"Type constraints": ["changed 'U': renamed to 'T2'", "added 'T1'"]},
        ),
    ],
)
def test_differences(
    name: str, old: int, new: int, breaking: bool, expected: dict[str, list[str]]
) -> None:
    found = differences(onnx.defs.get_schema(name, old), onnx.defs.get_schema(name, new))
    texts = {heading: [str(change) for change in group] for heading, group in found.items()}
    assert texts == expected
    assert any(change.breaking for group in found.values() for change in group) is breaking


def test_every_page_of_onnx_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """Prose, defaults and differences of whatever ONNX defines are no obstacle.

    Of a supported operator, whose examples run and compile, the newest version.
    """
    for domain, name in op.operator_names():
        versions = [schema.since_version for schema in op.schemas(domain, name)]
        for version in versions[-1:] if is_supported(domain, name) else versions:
            assert cli.main(["ops", f"{name}-{version}"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out.count("\nThe C of ") == len(table())


def test_table_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    lines = ops(capsys, "--markdown").splitlines()
    place = lines.index("## Elementwise")
    assert lines[place + 1 : place + 4] == [
        "",
        "| Operator | Versions | Element types |",
        "|---|---|---|",
    ]
    assert "| Equal | 1, 7, 11, 13, 19 | floats, integers, string, bool |" in lines
    assert "| Identity | 1, 13, 14, 16, 19, 21, 23, 24, 25 | all |" in lines
    assert lines[place:].index("## Not supported") > 0
    upsample = next(line for line in lines if line.startswith("| Upsample "))
    assert upsample.startswith("| Upsample (becomes Resize) | 1, 7, 9, 10 | integers, complex, ")


@pytest.mark.parametrize("group", TYPE_GROUPS)
def test_a_group_of_types_is_named_where_it_is_whole(group: str) -> None:
    names = [dtype.name for dtype in ELEMENT_TYPES if dtype.name in TYPE_GROUPS[group]]
    assert len(names) == len(TYPE_GROUPS[group])
    assert types_text(names) == group
    assert types_text(names[1:]) == ", ".join(names[1:])
    assert types_text([*names, "x"]) == f"{group}, x"


def test_the_operators_of_onnx_are_supported_or_said_not_to_be() -> None:
    refused = [name for names in NOT_SUPPORTED.values() for name in names]
    supported = [row["name"] for row in table()]
    assert sorted(refused + supported) == sorted(name for d, name in op.operator_names() if not d)


def test_table_json_and_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(ops(capsys, "--json"))
    assert [row["name"] for row in rows] == [row["name"] for row in table()]
    size = next(row for row in rows if row["name"] == "Size")
    assert (size["domain"], size["versions"]) == ("ai.onnx", [1, 13, 19, 21, 23, 24, 25])
    assert (size["family"], size["becomes"]) == ("shape", "")
    assert len(size["types"]) == 26
    printed = ops(capsys)
    for row in rows:
        assert re.search(rf"\b{row['name']}\b", printed)
