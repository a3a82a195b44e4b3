"""The command line: words, options, messages and exit statuses."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from onnxc import __version__, cli, pipeline
from onnxc.diagnostics import Kind
from onnxc.errors import ModelError, Problem
from tests.command_line import EQUAL, OPEN, names, onnxc, save, uncoded


def test_version(tmp_path: Path) -> None:
    done = onnxc("--version", cwd=tmp_path)
    assert (done.stdout, done.stderr) == (f"onnxc {__version__}\n", "")


def test_version_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys; from onnxc.cli import main; main(['--version']); "
        "print(sorted({'onnx', 'onnx_ir', 'numpy', 'jinja2', 'cffi', 'rich'} & set(sys.modules)))"
    )
    printed = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert printed.splitlines()[1] == "[]"


def test_help(tmp_path: Path) -> None:
    done = onnxc("--help", cwd=tmp_path)
    assert re.findall(r"^  (\w+) ", done.stdout, re.MULTILINE)[-5:] == [
        "explain",
        "info",
        "ops",
        "report",
        "verify",
    ]
    assert "--dump-after" not in done.stdout
    assert onnxc(cwd=tmp_path, status=2).stderr == done.stdout
    assert onnxc("-h", cwd=tmp_path).stdout == done.stdout


def test_help_of_a_verb(tmp_path: Path) -> None:
    """What compile takes is in the help of onnxc as well: the verb may be left out."""
    whole = onnxc("--help", cwd=tmp_path).stdout
    for option in re.findall(r"^  (-.+?)  ", onnxc("compile", "-h", cwd=tmp_path).stdout, re.M):
        assert option in whole
    assert "--source" in onnxc("verify", "-h", cwd=tmp_path).stdout


@pytest.mark.parametrize("words", [("--help-debug",), ("compile", "--help-debug")])
def test_debug_help(tmp_path: Path, words: tuple[str, ...]) -> None:
    printed = onnxc(*words, cwd=tmp_path).stdout
    assert "--dump-after PASS" in printed
    assert "ONNXC_DEBUG=1" in printed
    for name in pipeline.PASS_NAMES:
        assert name in printed


def test_first_word_is_neither_verb_nor_file(tmp_path: Path) -> None:
    done = onnxc("verfy", cwd=tmp_path, status=2)
    assert done.stderr == "error[ONNXC0702]: no verb or file 'verfy'; did you mean verify?\n"


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("", "[ONNXC0702]: no verb or file ''"),
        (".", "[ONNXC0102]: '.' is a directory; give an ONNX model file"),
        ("..", "[ONNXC0102]: '..' is a directory; give an ONNX model file"),
    ],
)
def test_first_word_names_no_file(tmp_path: Path, word: str, message: str) -> None:
    assert onnxc(word, cwd=tmp_path, status=2).stderr == f"error{message}\n"


def test_first_word_resembles_a_file(equal: Path) -> None:
    done = onnxc("equl.onnx", cwd=equal.parent, status=2)
    assert done.stderr == "error[ONNXC0101]: no such file: equl.onnx; did you mean equal.onnx?\n"
    done = onnxc("equl", cwd=equal.parent, status=2)
    assert done.stderr == "error[ONNXC0702]: no verb or file 'equl'; did you mean equal.onnx?\n"
    folder = equal.parent / "deep"
    folder.mkdir()
    done = onnxc("../equa.onnx", cwd=folder, status=2)
    message = "no such file: ../equa.onnx; did you mean ../equal.onnx?"
    assert done.stderr == f"error[ONNXC0101]: {message}\n"


@pytest.mark.parametrize("word", ["missing.onnx", "models/verify", "verify.onnx"])
def test_missing_file_that_resembles_nothing(equal: Path, word: str) -> None:
    done = onnxc(word, cwd=equal.parent, status=2)
    assert done.stderr == f"error[ONNXC0101]: no such file: {word}\n"


@pytest.mark.parametrize("words", [("./ops",), ("compile", "ops"), ("-q", "ops")])
def test_model_named_like_a_verb(tmp_path: Path, words: tuple[str, ...]) -> None:
    save(EQUAL, tmp_path / "ops")
    onnxc(*words, "-o", "m.c", cwd=tmp_path)
    assert names(tmp_path) == {"ops", "m.c", "m.h"}


def test_verb_wins_over_a_file_of_its_name(tmp_path: Path) -> None:
    save(EQUAL, tmp_path / "ops")
    assert "Equal" in onnxc("ops", cwd=tmp_path).stdout
    assert names(tmp_path) == {"ops"}


def test_no_such_file(tmp_path: Path) -> None:
    for words in (
        ("compile", "absent.onnx"),
        ("info", "absent.onnx"),
        ("-o", "a.c", "absent.onnx"),
    ):
        refused = onnxc(*words, cwd=tmp_path, status=2).stderr
        assert refused == "error[ONNXC0101]: no such file: absent.onnx\n"
    assert names(tmp_path) == set()


def test_open_dims_are_ready_to_paste(tmp_path: Path) -> None:
    save(OPEN, tmp_path / "open.onnx")
    refused = onnxc("open.onnx", cwd=tmp_path, status=1).stderr
    options = re.findall(r"--dim (?:'[^']*'|\S+=\d+)", refused)
    assert {shlex.split(option)[1].partition("=")[0] for option in options} == {"batch", "a b"}
    onnxc("open.onnx", *shlex.split(" ".join(dict.fromkeys(options))), cwd=tmp_path)


def test_dims(tmp_path: Path) -> None:
    save(OPEN, tmp_path / "open.onnx")
    onnxc("open.onnx", "--dim", "x:0=2", "--dim", "a b=1", cwd=tmp_path)
    assert "const float x[6]" in (tmp_path / "open.h").read_text()
    unknown = onnxc("open.onnx", "--dim", "M=2", cwd=tmp_path, status=2).stderr
    assert "batch" in unknown
    assert "a b" in unknown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--dim", "a=1..64"], "--dim a=1..64: ranges are not supported yet; give one number"),
        (["--dim", "a"], "--dim a: write KEY=N with a number N of 0 or more"),
        (["--dim", "a=-1"], "--dim a=-1: write KEY=N with a number N of 0 or more"),
        (["--dim", "=1"], "--dim =1: write KEY=N with a number N of 0 or more"),
        (["--dim", "a=1", "--dim", "a=2"], "--dim a is given twice: 1 and 2"),
        (["--dump-after", "lowr"], "no pass 'lowr'; did you mean lower? The passes: load infer "),
        (["--dump-after", "x"], "no pass 'x'; the passes: load infer "),
        (["--frce"], "No such option '--frce'. Did you mean '--force'? See onnxc compile --help"),
        (
            ["--dim", "M=2,a b=3"],
            "--dim M=2,a b=3: one size each; repeat --dim for each: --dim M=2 --dim 'a b=3'\n",
        ),
        (["second.onnx"], "Got unexpected extra argument (second.onnx); see onnxc compile --help"),
    ],
)
def test_wrong_option(
    equal: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([str(equal), "-o", str(equal.parent / "m.c"), *words]) == 2
    assert uncoded(capsys.readouterr().err).startswith(f"error: {message}")


def test_several_sizes_in_one_option(equal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not an unknown dimension, as one size of a wrong name is."""
    for words, code in (("M=2,N=3", "ONNXC0605"), ("M=2", "ONNXC0603")):
        assert cli.main(["info", str(equal), "--dim", words]) == 2
        assert capsys.readouterr().err.startswith(f"error[{code}]: --dim {words}: ")
    assert names(equal.parent) == {"equal.onnx"}


@pytest.mark.parametrize("name", pipeline.PASS_NAMES)
def test_dump_after(equal: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(equal), "-o", str(equal.with_suffix(".c")), "-q", "--dump-after", name]
    assert cli.main(words) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Equal" in printed.err


def test_file_that_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("int main(void) { return 0; }\n")
    done = onnxc("text.onnx", cwd=tmp_path, status=1)
    assert done.stderr.startswith("error[ONNXC0104]: ")
    assert names(tmp_path) == {"text.onnx"}


def test_all_problems_at_once(tmp_path: Path) -> None:
    nodes = " ".join(f"a{i} = Foo{i}(x)" for i in range(130))
    save(
        f'<ir_version: 8, opset_import: ["" : 19]> g (float[2] x) => (float[2] a0) {{ {nodes} }}',
        tmp_path / "g.onnx",
    )
    lines = onnxc("g.onnx", cwd=tmp_path, status=1).stderr.splitlines()
    assert len(lines) == 101
    assert all("(Foo" in line for line in lines[:100])
    assert lines[100] == "and 30 more"
    assert names(tmp_path) == {"g.onnx"}


def test_odd_path(tmp_path: Path) -> None:
    """A path that is no UTF-8 and one with an escape sequence: compiled, and shown as text."""
    folder = tmp_path / os.fsdecode(b"caf\xe9\x1b[31m")
    folder.mkdir()
    save(EQUAL, folder / "equal.onnx")
    done = onnxc(folder / "equal.onnx", "-o", folder / "m.c", cwd=tmp_path)
    assert r"caf\xe9\x1b[31m/m.c" in done.stderr
    assert names(folder) == {"equal.onnx", "m.c", "m.h"}


def test_ascii_terminal(tmp_path: Path) -> None:
    save(EQUAL.replace("float[3] y", 'float["größe"] y'), tmp_path / "m.onnx")
    done = onnxc("info", "m.onnx", cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert r"gr\xf6\xdfe" in done.stdout


def test_verify(equal: Path) -> None:
    done = onnxc("verify", "equal.onnx", "--against", "reference", cwd=equal.parent)
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"against ONNX reference evaluator .*", lines[0])
    assert re.fullmatch(r"output +type +inputs +reference +max abs.*", lines[1])
    assert re.fullmatch(r"z +bool\[2, 3\] +random +reference +0 .* ok", lines[2])
    assert re.fullmatch(r"verified: \d+ comparisons?, no difference", lines[-1])
    assert names(equal.parent) == {"equal.onnx"}


def test_verify_the_file_that_ships(equal: Path) -> None:
    """A C file that was tampered with differs from the model."""
    onnxc("equal.onnx", "-q", cwd=equal.parent)
    source = equal.with_suffix(".c")
    words = ("verify", "equal.onnx", "--source", "equal.c", "--json", "--against", "reference")
    assert json.loads(onnxc(*words, cwd=equal.parent).stdout)["passed"] is True
    before = source.read_text()
    source.write_text(before.replace(" == ", " != "))
    assert source.read_text() != before
    assert json.loads(onnxc(*words, cwd=equal.parent, status=3).stdout)["passed"] is False
    printed = onnxc(*words[:4], cwd=equal.parent, status=3).stdout
    assert "DIFFERS" in printed
    assert printed.splitlines()[-1] == "values differ"


def test_verify_given_inputs(equal: Path) -> None:
    x = np.array([[1, np.nan, 3], [0, 2, 3]], np.float32)
    np.savez(equal.parent / "in.npz", x=x, y=np.array([1, 2, 3], np.float32))
    words = ("verify", "equal.onnx", "--inputs", "in.npz", "--against", "reference", "--exact")
    assert "in.npz" in onnxc(*words, cwd=equal.parent).stdout


def test_verify_cannot_build(equal: Path) -> None:
    done = onnxc("verify", "equal.onnx", cwd=equal.parent, status=4, CC="no-such-compiler")
    assert "no-such-compiler" in done.stderr


def test_verify_wrong_options(equal: Path) -> None:
    for words in (("--exact", "--rtol", "1"), ("--against", "nobody"), ("--source", "absent.c")):
        onnxc("verify", "equal.onnx", *words, cwd=equal.parent, status=2)


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (KeyboardInterrupt(), 130, "\ninterrupted\n"),
        (MemoryError(), 1, "error[ONNXC0002]: out of memory\n"),
        (
            RecursionError("maximum recursion depth exceeded"),
            70,
            "error[ONNXC0001]: internal error: the model nests too deeply; "
            "this is a bug in onnxc, not in the model: please report it, with what --debug shows\n",
        ),
        (
            KeyError("x"),
            70,
            "error[ONNXC0001]: internal error: KeyError: 'x'; "
            "this is a bug in onnxc, not in the model: please report it, with what --debug shows\n",
        ),
        (
            ModelError([Problem(Kind.NAME_TAKEN, "input 'x\x1b'", "is odd", "rename it")]),
            1,
            "error[ONNXC0203]: input 'x\\x1b': is odd; rename it\n",
        ),
    ],
)
def test_no_traceback(
    equal: Path,
    error: BaseException,
    status: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(pipeline, "compile_model", raiser(error))
    monkeypatch.delenv("ONNXC_DEBUG", raising=False)
    assert cli.main([str(equal), "-o", str(equal.parent / "m.c")]) == status
    assert capsys.readouterr() == ("", message)
    assert names(equal.parent) == {"equal.onnx"}


def test_traceback_on_request(
    equal: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pipeline, "compile_model", raiser(KeyError("x")))
    monkeypatch.setenv("ONNXC_DEBUG", "1")
    assert cli.main([str(equal), "-o", "-"]) == 70
    assert capsys.readouterr().err.startswith("Traceback (most recent call last):\n")
    monkeypatch.delenv("ONNXC_DEBUG")
    assert cli.main([str(equal), "-o", "-", "--debug"]) == 70
    assert capsys.readouterr().err.startswith("Traceback (most recent call last):\n")
    assert os.environ.get("ONNXC_DEBUG", "") == ""


def raiser(error: BaseException) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail
