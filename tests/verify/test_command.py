"""`onnxc verify` on the command line: its options and what it prints."""

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from onnxc.verify.result import Comparison, Node, Nodes, Verification
from tests.command_line import onnxc, save

TWO_NODES = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[2, 3] x) => (float[2, 3] y) {
        c = CumSum(x, one)
        y = Softmax(c)
    }"""
MODEL = TWO_NODES.replace("(float[2, 3] y)", "(float[2, 3] y) <int64 one = {1}>")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save(MODEL, tmp_path / "m.onnx")


def test_per_node(model: Path) -> None:
    done = onnxc("verify", "m.onnx", "--per-node", cwd=model.parent)
    lines = done.stdout.splitlines()
    assert re.search(r"^c +float\[2, 3\] +cumulate_0 +onnxruntime +0 .* ok$", done.stdout, re.M)
    assert lines[-2] == (
        "2 of 2 values of the graph are stored by a kernel and were compared, on random inputs"
    )
    assert lines[-1] == "verified: 3 comparisons, no difference"


def test_per_node_names_the_first(model: Path) -> None:
    onnxc("m.onnx", "-q", cwd=model.parent)
    source = model.with_suffix(".c")
    text = source.read_text()
    source.write_text(text.replace("y[place] = total;", "y[place] = 2 * total;"))
    assert source.read_text() != text
    words = ("verify", "m.onnx", "--source", "m.c", "--per-node")
    done = onnxc(*words, cwd=model.parent, status=3)
    assert done.stdout.splitlines()[-2:] == [
        "the first to differ is 'c', of CumSum-14 'c', by the function cumulate_0",
        "values differ",
    ]
    facts = json.loads(onnxc(*words, "--json", cwd=model.parent, status=3).stdout)
    assert facts["nodes"]["first"] == "c"


def test_a_program(model: Path, tool: Callable[[str], str]) -> None:
    words = ("--cc", tool("gcc"), "--cflags", "-O1", "--sanitize", "--guard")
    done = onnxc("verify", "m.onnx", *words, cwd=model.parent)
    first = done.stdout.splitlines()[0]
    assert first.startswith(f"built by {tool('gcc')} -std=c99 -O1 -g -fsanitize=address,undefined")
    assert first.endswith(", between guard pages, with two poisons")
    other = ("--cc", tool("aarch64-linux-gnu-gcc"), "--cflags", "-O2 -static")
    done = onnxc("verify", "m.onnx", *other, "--runner", tool("qemu-aarch64"), cwd=model.parent)
    assert f"run by {tool('qemu-aarch64')}" in done.stdout


def test_values(model: Path) -> None:
    np.save(model.parent / "x.npy", np.ones((2, 3), np.float32))
    assert "x.npy" in onnxc("verify", "m.onnx", "--inputs", "x.npy", cwd=model.parent).stdout
    done = onnxc("verify", "m.onnx", "--range", "x=-1:2.5", "--seed", "4", cwd=model.parent)
    assert done.stdout.splitlines()[-1] == "verified: 3 comparisons, no difference"


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        (("--range", "x=1"), "--range x=1: write NAME=LO:HI with two numbers"),
        (("--range", "z=0:1"), "the model has no input 'z'; it has x"),
        (("--range", "x=0:1", "--inputs", "x.npy"), "--inputs excludes --range"),
        (("--runner", "'"), "--runner ': No closing quotation"),
    ],
)
def test_wrong_options(words: tuple[str, ...], fact: str, model: Path) -> None:
    assert fact in onnxc("verify", "m.onnx", *words, cwd=model.parent, status=2).stderr


def test_what_is_done_shows_on_a_terminal(model: Path) -> None:
    """And nowhere else; standard output has the result alone."""
    assert onnxc("verify", "m.onnx", cwd=model.parent).stderr == ""
    terminal, other = pty.openpty()
    with (model.parent / "out.txt").open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "onnxc", "verify", "m.onnx"],
            cwd=model.parent,
            stdout=out,
            stderr=other,
            env={**os.environ, "TERM": "xterm"},
        )
    os.close(other)
    shown = b""
    with contextlib.suppress(OSError):  # the end, as Linux tells it
        while chunk := os.read(terminal, 4096):
            shown += chunk
    os.close(terminal)
    assert process.wait() == 0
    assert b"compile the model" in shown
    assert (model.parent / "out.txt").read_bytes().startswith(b"against onnxruntime")


@pytest.mark.parametrize("kind", [Verification, Comparison, Node, Nodes])
def test_the_fields_of_json_are_explained(kind: type) -> None:
    """In the docstring of the module."""
    from onnxc.verify import result

    words = set(re.findall(r"\w+", result.__doc__ or ""))
    assert set(vars(kind)["__dataclass_fields__"]) - {"output"} <= words
