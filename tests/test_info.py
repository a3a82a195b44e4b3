"""`onnxc info`: an answer for every model, supported or not."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import onnx
import pytest

from onnxc import cli


def save(text: str, path: Path) -> str:
    onnx.save(onnx.parser.parse_model(text), path)
    return str(path)


def info(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(["info", *words]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


@pytest.fixture
def model(tmp_path: Path) -> str:
    return save(
        """
        <ir_version: 8, opset_import: ["" : 19]>
        m (float[2, 3] x, string[1] s) => (bool[2, 3] y, bool[1] t, int64 n)
        { z = Identity(x) y = Equal(x, z) t = Equal(s, s) n = Size(x) }
        """,
        tmp_path / "m.onnx",
    )


@pytest.fixture
def unsupported(tmp_path: Path) -> str:
    return save(
        """
        <ir_version: 8, opset_import: ["" : 19, "com.example" : 2]>
        u (float[batch, 3] x, float["wide side", ?] w) => (float[batch, 3] y)
        {
            a = Bernoulli(x) b = Bernoulli(a) c = com.example.Frob(b) d = Identity(c)
            k = Equal(d, x)
            y = If(k) <
                then_branch = g () => (float[N, 3] e) { e = RandomUniformLike(d) },
                else_branch = h () => (float[N, 3] f) { f = Bernoulli(d) }
            >
        }
        """,
        tmp_path / "u.onnx",
    )


def test_supported(
    model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    lines = info(capsys, model).splitlines()
    assert lines[0] == f"{model}: IR version 8, ai.onnx 19; 4 nodes"
    assert lines[1:] == [
        "inputs:",
        "  x  float[2, 3]",
        "  s  string[1]",
        "outputs:",
        "  y  bool[2, 3]",
        "  t  bool[1]",
        "  n  int64[]",
        "summary:",
        "  kernels               3",
        "  multiply-accumulates  0",
        "  constants             0 bytes",
        "  inputs                24 bytes and 1 string",
        "  outputs               15 bytes",
        "  workspace             0 bytes",
        "  least workspace       0 bytes; ratio 1.00",
        "  tensors unshared      0 bytes",
        "  stack                 not known: gcc was not found",
        "unsupported operators: none",
    ]


def test_supported_as_json(
    model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    found: dict[str, Any] = json.loads(info(capsys, model, "--json"))
    assert found.pop("summary") == {
        "kernels": 3,
        "macs": 0,
        "macs_note": "",
        "macs_by_arithmetic": {},
        "workspace_bytes": 0,
        "inputs_bytes": 24,
        "inputs_strings": 1,
        "outputs_bytes": 15,
        "outputs_strings": 0,
        "constants_bytes": 0,
        "workspace_bound_bytes": 0,
        "workspace_ratio": 1.0,
        "tensors_bytes": 0,
        "stack": {"reason": "gcc was not found"},
    }
    assert found == {
        "model": model,
        "ir_version": 8,
        "opsets": {"ai.onnx": 19},
        "nodes": 4,
        "inputs": [
            {"name": "x", "type": "tensor(float)", "shape": [2, 3]},
            {"name": "s", "type": "tensor(string)", "shape": [1]},
        ],
        "outputs": [
            {"name": "y", "type": "tensor(bool)", "shape": [2, 3]},
            {"name": "t", "type": "tensor(bool)", "shape": [1]},
            {"name": "n", "type": "tensor(int64)", "shape": []},
        ],
        "open_dims": [],
        "dim_options": [],
        "command": f"onnxc {model}",
        "int8_as_float": [],
        "unsupported": [],
        "problems": [],
    }


def test_unsupported(unsupported: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = info(capsys, unsupported).splitlines()
    assert lines[0] == f"{unsupported}: IR version 8, ai.onnx 19, com.example 2; 8 nodes"
    assert lines[1:] == [
        "inputs:",
        "  x  float[batch, 3]",
        "  w  float[wide side, ?]",
        "outputs:",
        "  y  float[batch, 3]",
        "open dims:",
        "  batch      axis 0 of 'x'",
        "  wide side  axis 0 of 'w'",
        "  (unnamed)  axis 1 of 'w'",
        f"  once what is below is solved: onnxc {unsupported}"
        " --dim batch=1 --dim 'wide side=1' --dim w:1=1",
        "memory: not known before the model compiles",
        "unsupported operators (6 nodes):",
        "         3 x  Bernoulli-15",
        "         1 x  com.example.Frob-2",
        "         1 x  If-19",
        "         1 x  RandomUniformLike-1",
    ]


def test_unsupported_as_json(unsupported: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(info(capsys, unsupported, "--json"))
    assert found["summary"] is None
    assert found["open_dims"] == [
        {"input": "x", "axis": 0, "name": "batch"},
        {"input": "w", "axis": 0, "name": "wide side"},
        {"input": "w", "axis": 1, "name": None},
    ]
    assert found["unsupported"] == [
        {"domain": "ai.onnx", "operator": "Bernoulli", "version": 15, "count": 3},
        {"domain": "com.example", "operator": "Frob", "version": 2, "count": 1},
        {"domain": "ai.onnx", "operator": "If", "version": 19, "count": 1},
        {"domain": "ai.onnx", "operator": "RandomUniformLike", "version": 1, "count": 1},
    ]


def test_the_bound_of_the_workspace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of two values that live at once: the sorted rows and their places."""
    path = save(
        """
        <ir_version: 8, opset_import: ["" : 19]>
        m (float[100] x, int64[1] k) => (float[100] y, int64[100] z) {
            k2 = Constant<value_ints = [100]>()
            a, b = TopK(x, k2)
            y, c = TopK(a, k2)
            z = Add(b, c)
        }
        """,
        tmp_path / "m.onnx",
    )
    found = json.loads(info(capsys, path, "--json"))["summary"]
    bound = found["workspace_bound_bytes"]
    assert 0 < bound <= found["workspace_bytes"] <= 1.05 * bound
    assert found["workspace_ratio"] == round(found["workspace_bytes"] / bound, 4)
    (line,) = (text for text in info(capsys, path).splitlines() if "least" in text)
    assert line == f"  least workspace       {bound:,} bytes; ratio 1.00"


@pytest.mark.parametrize("weights", ["float", "int8"])
def test_int8_executed_as_float(
    weights: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A MatMul of what was int8; of floats it is no news."""
    path = save(
        f"""
        <ir_version: 8, opset_import: ["" : 19]>
        m ({weights}[4, 4] w, float[4, 4] x) => (float[4, 4] y) {{
            scale = Constant<value_float = 0.5>()
            v = {"DequantizeLinear(w, scale)" if weights == "int8" else "Identity(w)"}
            y = MatMul(x, v)
        }}
        """,
        tmp_path / "m.onnx",
    )
    rows = [{"operator": "MatMul", "count": 1}] if weights == "int8" else []
    assert json.loads(info(capsys, path, "--json"))["int8_as_float"] == rows
    lines = info(capsys, path).splitlines()
    assert ("int8 executed as float (1 node):" in lines) == bool(rows)
    assert ("         1 x  MatMul" in lines) == bool(rows)


def test_a_dim_of_two_inputs_is_listed_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(
        """
        <ir_version: 8, opset_import: ["" : 19]>
        m (float[N, M] x, float[N, M] y) => (bool[N, M] z) { z = Equal(x, y) }
        """,
        tmp_path / "m.onnx",
    )
    lines = info(capsys, path, "--dim", "M=4").splitlines()
    start = lines.index("open dims:")
    assert lines[start + 1 : start + 3] == [
        "  N  axis 0 of 'x', axis 0 of 'y'",
        f"  compile with: onnxc {path} --dim M=4 --dim N=1",
    ]


def test_an_if_that_the_proposed_sizes_settle_is_supported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(
        """
        <ir_version: 8, opset_import: ["" : 19]>
        m (float[N] x) => (float[N] y)
        {
            size = Size(x) one = Constant <value_int = 1> () small = Equal(size, one)
            y = If(small) <
                then_branch = g () => (float[N] e) { e = Neg(x) },
                else_branch = h () => (float[N] f) { f = Abs(x) }
            >
        }
        """,
        tmp_path / "m.onnx",
    )
    lines = info(capsys, path).splitlines()
    assert f"  compile with: onnxc {path} --dim N=1" in lines
    assert lines[-1] == "unsupported operators: none"


def test_outputs_have_the_shapes_that_come_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever name the model gives to a dimension of an output."""
    path = save(
        """
        <ir_version: 8, opset_import: ["" : 19]>
        m (float[N, 2] x) => (float[other, 2] y) { y = Neg(x) }
        """,
        tmp_path / "m.onnx",
    )
    assert "  y  float[other, 2]\n" in info(capsys, path)
    assert "  y  float[3, 2]\n" in info(capsys, path, "--dim", "N=3")


def test_dims_close_what_is_open(unsupported: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = json.loads(info(capsys, unsupported, "--json"))["dim_options"]
    closed = json.loads(info(capsys, unsupported, *shlex.split(" ".join(options)), "--json"))
    assert closed["open_dims"] == []
    assert closed["inputs"][1] == {"name": "w", "type": "tensor(float)", "shape": [1, 1]}


def test_sequences_and_optionals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(
        """
        <ir_version: 8, opset_import: ["" : 19]>
        s (seq(float[N]) x, optional(float[2]) o) => (seq(float[N]) y) { y = Identity(x) }
        """,
        tmp_path / "s.onnx",
    )
    found = json.loads(info(capsys, path, "--json"))
    assert [value["type"] for value in found["inputs"]] == [
        "seq(tensor(float))",
        "optional(tensor(float))",
    ]
    assert found["summary"] is None
    assert "  x  no tensor (seq(tensor(float)))\n" in info(capsys, path)
    assert found["problems"] == [
        {
            "code": "ONNXC0213",
            "where": f"input '{name}'",
            "fact": f"{kind}(tensor(float)) is not supported",
            "operands": "",
            "remedy": "only tensors are",
        }
        for name, kind in (("x", "seq"), ("o", "optional"))
    ]
    assert "problems:\n  ONNXC0213: input 'x': seq(tensor(float)) is not supported" in info(
        capsys, path
    )


@pytest.mark.parametrize("content", [b"", b"\xff" * 100, b"int main(void);\n"])
def test_no_model(tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    assert cli.main(["info", str(path)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error[ONNXC010")
