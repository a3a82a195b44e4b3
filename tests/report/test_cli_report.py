"""`onnxc report` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from onnxc import cli
from onnxc.report.sections import PLACES
from tests.command_line import EQUAL, OPEN, save
from tests.report.facts_checks import valid

QUICK = ("report", "m.onnx", "--no-times")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In an empty folder, without any C compiler."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    save(EQUAL, tmp_path / "m.onnx")
    return tmp_path


def run(*words: str) -> int:
    return cli.main(words)


def test_a_page_beside(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*QUICK) == 0
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines()[0] == "wrote m.html"
    assert told.err.splitlines()[1].startswith("RAM: inputs 36 bytes")
    page = (model / "m.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert '<meta name="generator" content="onnxc ' in page[:400]


def test_json_is_printed(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*QUICK, "--json") == 0
    told = capsys.readouterr()
    found = json.loads(told.out)
    valid(found)
    assert told.err == ""
    assert found["model"]["file"] == "m.onnx"
    assert [*model.iterdir()] == [model / "m.onnx"]


def test_json_in_a_file(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):  # what onnxc wrote it overwrites
        assert run(*QUICK, "--json", "-o", "facts.json", "-q") == 0
    assert capsys.readouterr() == ("", "")
    valid(json.loads((model / "facts.json").read_text(encoding="ascii")))


def test_to_standard_output(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*QUICK, "-o", "-") == 0
    assert capsys.readouterr().out.startswith("<!DOCTYPE html>")
    assert not (model / "m.html").exists()


def test_the_code_for_one_target_alone(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = {}
    for option in ((), ("--no-targets",)):
        assert run(*QUICK, "--json", "--target", "aarch64", *option) == 0
        told = json.loads(capsys.readouterr().out)
        valid(told)
        places[option] = [section["target"] for section in told["sections"]]
    assert places == {(): [*PLACES], ("--no-targets",): ["aarch64"]}


def test_the_options_of_the_compiler(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(OPEN, model / "m.onnx")
    sizes = ("--dim", "batch=5", "--dim", "a b=5")
    options = (*sizes, "--target", "cortex-m4", "--optimize", "size", "--portable-bits")
    assert run(*QUICK, "--json", *options) == 0
    found = json.loads(capsys.readouterr().out)["model"]
    assert found["options"] == " ".join(options)
    assert (found["target"], found["optimize"], found["portable_bits"]) == (
        "cortex-m4",
        "size",
        True,
    )


def test_without_a_compiler_the_reasons_are_told(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("report", "m.onnx", "--json", "--against", "reference") == 0
    found = json.loads(capsys.readouterr().out)
    valid(found)
    assert "'cc' was not found" in found["times"]["reason"]
    assert "cc" in found["accuracy"]["reason"]


@pytest.mark.parametrize("out", ["foreign.html", "foreign.json"])
def test_what_is_not_ours_stays(out: str, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (model / out).write_text("mine", encoding="ascii")
    words = (*QUICK, "-o", out, *(["--json"] if out.endswith("json") else []))
    assert run(*words) == 4
    assert "was not written by onnxc; --force overwrites it" in capsys.readouterr().err
    assert (model / out).read_text(encoding="ascii") == "mine"
    assert run(*words, "--force") == 0
    assert run(*words) == 0


@pytest.mark.parametrize(
    ("words", "status", "fact"),
    [
        (["-o", "m.htm"], 2, "'m.htm' does not end in .html; write -o m.html"),
        (["-o", "a b.json"], 2, "write -o 'a b.html', or add --json"),
        (["--json", "-o", "m.html"], 2, "'m.html' does not end in .json; write -o m.json"),
        (["-o", "."], 2, "is a folder; write -o m.html"),
        (["-o", "nowhere/m.html"], 4, "there is no folder 'nowhere'"),
        (["--inputs", "none.npz"], 2, "none.npz"),
        (["--against", "nobody"], 2, "nobody"),
        (["--dim", "N=1"], 2, "the model has no such dimension"),
        (["--fix", "z=1"], 2, "z"),
    ],
)
def test_wrong_words(
    words: list[str], status: int, fact: str, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*QUICK, *words) == status
    told = capsys.readouterr()
    assert fact in told.err
    assert told.out == ""
    assert [*model.iterdir()] == [model / "m.onnx"]


def test_a_model_that_does_not_compile(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same errors and status as of the compiler."""
    save("g (float[2] x) => (float[2] y) { y = Bernoulli(x) }", model / "m.onnx")
    statuses = []
    told = []
    for words in (("m.onnx",), QUICK):
        statuses.append(run(*words))
        told.append(capsys.readouterr().err)
    assert statuses == [1, 1]
    assert told[0] == told[1]
    assert not (model / "m.html").exists()


def test_inputs_are_read_before_anything_is_measured(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(model / "in.npz", other=np.ones(3))
    assert run("report", "m.onnx", "--inputs", "in.npz") == 2
    assert not (model / "m.html").exists()
