"""Every kind of fault: its code, its text, and something that provokes it.

`--update-golden` writes data/diagnostics.txt, the text of each, and docs/diagnostics.md anew, and
adds new codes to data/diagnostic_codes.txt, from which none is ever taken away.
"""

from __future__ import annotations

import os
import pickle
import re
from functools import cache, reduce
from pathlib import Path
from typing import Final

import pytest

from onnxc import cli
from onnxc.diagnostics import Kind, texts
from onnxc.errors import OnnxcError
from onnxc.report import explanation
from tests.provoked import PROVOKED

DATA: Final = Path(__file__).parent / "data"
CODES: Final = DATA / "diagnostic_codes.txt"
SNAPSHOT: Final = DATA / "diagnostics.txt"
PAGE: Final = Path(__file__).parents[1] / "docs" / "diagnostics.md"


@cache
def snapshot() -> dict[str, str]:
    """What each kind says, by its code and name; a section starts with them."""
    sections = SNAPSHOT.read_text(encoding="utf-8").split("\n\n") if SNAPSHOT.exists() else []
    return {head: text for head, _, text in (s.strip("\n").partition("\n") for s in sections)}


def said(kind: Kind, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """The messages of a kind that something provokes."""
    try:
        PROVOKED[kind](patch)
    except OnnxcError as error:
        lines = [f"error[{p.code}]: {p}" for p in error.problems]
    else:
        lines = re.split(r"^(?=error\[|warning\[|and \d)", capsys.readouterr().err, flags=re.M)
    told = "\n".join(line.strip("\n") for line in lines if f"[{kind.code}]: " in line)
    temporary = os.environ["ONNXC_CACHE_DIR"], str(Path.cwd())
    told = re.sub(r"build-\w+|(?<=The passes: ).*", "...", told)
    return reduce(lambda text, path: text.replace(path, "..."), temporary, told)


@pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name)
def test_a_kind_is_provoked_and_says(
    kind: Kind,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    update_golden: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    text = said(kind, monkeypatch, capsys)
    assert text, f"{kind} was not provoked"
    head = f"{kind.code} {kind.name}"
    if update_golden:
        known = snapshot() | {head: text}
        found = {head: known[head] for head in known if head.split()[1] in Kind.__members__}
        snapshot.cache_clear()
        SNAPSHOT.write_text(
            "\n\n".join(f"{k}\n{found[k]}" for k in sorted(found)) + "\n", encoding="utf-8"
        )
    else:
        assert text == snapshot()[head]


def test_no_code_is_given_to_another_kind(update_golden: bool) -> None:
    """A kind may go, and its number with it, but the list keeps them for good."""
    listed = CODES.read_text(encoding="ascii").split("\n") if CODES.exists() else []
    used = dict(line.split()[:2] for line in listed if line)
    new = {kind.code: kind.name for kind in Kind if kind.code not in used}
    if update_golden:
        lines = sorted(f"{code} {name}\n" for code, name in (used | new).items())
        CODES.write_text("".join(lines), encoding="ascii")
    else:
        assert not new
    assert {kind.code: kind.name for kind in Kind}.items() <= (used | new).items()


def test_the_page_of_codes(update_golden: bool) -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split("<!-- codes -->\n")
    after = rest.partition("<!-- /codes -->")[2]
    new = f"{before}<!-- codes -->\n{explanation.markdown()}<!-- /codes -->{after}"
    if update_golden:
        PAGE.write_text(new, encoding="utf-8")
    else:
        assert text == new


@pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name)
def test_a_kind_is_explained(kind: Kind) -> None:
    """In sentences."""
    text = texts()[kind]
    for part in (text.meaning, text.remedy):
        assert part[0].isupper() or part[0] in "`-" or part.startswith("onnxc")
        assert part.endswith(".")
        assert "|" not in part


@pytest.mark.parametrize("word", ["ONNXC0403", "onnxc0403", "0403", "403"])
def test_explain(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", word]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("ONNXC0403: shapes do not broadcast\n\nTwo shapes do not broadcast:")
    assert all(len(line) < 80 for line in printed.splitlines())


def test_every_problem_has_a_code_in_python() -> None:
    with pytest.raises(OnnxcError) as caught:
        PROVOKED[Kind.UNKNOWN_OPERATOR](pytest.MonkeyPatch())
    assert [problem.code for problem in caught.value.problems] == ["ONNXC0301"]
    assert caught.value.code == "ONNXC0301"


@pytest.mark.parametrize("kind", [Kind.RUN_STATUS, Kind.UNKNOWN_OPERATOR, Kind.INPUT_ARRAYS])
def test_errors_survive_the_way_between_processes(kind: Kind) -> None:
    with pytest.raises(OnnxcError) as caught:
        PROVOKED[kind](pytest.MonkeyPatch())
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value)
    assert again.problems == caught.value.problems
    assert str(again) == str(caught.value)
