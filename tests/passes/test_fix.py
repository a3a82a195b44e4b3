"""fix: --fix makes an input a constant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

import onnxc
from onnxc.cli import main
from onnxc.errors import UsageError
from onnxc.passes.bind import bind_dims
from onnxc.passes.fix import Fix, FixError, fix_inputs, options
from onnxc.passes.load import load
from onnxc.values import values_of
from tests.command_line import onnxc as command
from tests.command_line import save, uncoded
from tests.models import model

RATES = """
<ir_version: 8, opset_import: ["" : 19]>
rates (float[2] x, int64 rate, bool[2, N] mask) => (float[2] y, bool[2, N] z)
<int64 sixteen = {16}>
{
  c = Equal(rate, sixteen)
  y = If (c) <
    then_branch = then () => (float[2] t) { t = Neg(x) },
    else_branch = other () => (float[2] t) { t = Frobnicate(x) }
  >
  z = Not(mask)
}
"""


def fixed(dtype: int, shape: list[int | str], value: Fix, **dims: int) -> np.ndarray[Any, Any]:
    given = helper.make_tensor_value_info("x", dtype, shape)
    made = helper.make_tensor_value_info("y", dtype, shape)
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [given], [made])
    found = load(model(graph))
    bind_dims(found, dims)
    (array,) = fix_inputs(found, {"x": value}).values()
    assert not found.graph.inputs
    constant = found.graph.initializers["x"].const_value
    assert constant is not None
    assert values_of(constant).tobytes() == array.tobytes()
    return array


@pytest.mark.parametrize(
    ("dtype", "value", "wanted"),
    [
        (TensorProto.INT64, "16000", 16000),
        (TensorProto.INT64, -(2**63), -(2**63)),
        (TensorProto.UINT8, "255", 255),
        (TensorProto.INT4, "-8", -8),
        (TensorProto.FLOAT, "0.5", 0.5),
        (TensorProto.FLOAT, 3, 3.0),
        (TensorProto.FLOAT, "1e-3", np.float32(1e-3)),
        (TensorProto.FLOAT16, "inf", np.inf),
        (TensorProto.DOUBLE, 0.1, 0.1),
        (TensorProto.BOOL, "true", True),
        (TensorProto.BOOL, "False", False),
        (TensorProto.BOOL, "1", True),
        (TensorProto.BOOL, False, False),
    ],
)
def test_a_value_is_read_by_the_type_of_the_input(dtype: int, value: Fix, wanted: object) -> None:
    array = fixed(dtype, [], value)
    assert array.shape == ()
    assert array.dtype == helper.tensor_dtype_to_np_dtype(dtype)
    assert array.item() == wanted


def test_one_value_fills_the_input() -> None:
    assert fixed(TensorProto.INT32, [2, "N"], 7, N=3).tolist() == [[7] * 3] * 2


@pytest.mark.parametrize("value", ["1,2,3,4", [1, 2, 3, 4], (1, "2", 3, 4), [[1, 2], [3, 4]]])
def test_one_value_for_each_element(value: Fix) -> None:
    assert fixed(TensorProto.INT64, [2, 2], value).tolist() == [[1, 2], [3, 4]]


def test_an_array_of_values() -> None:
    array = np.array([[0.5, -1.0]], np.float32)
    assert fixed(TensorProto.FLOAT, [1, 2], array).tolist() == [[0.5, -1.0]]
    assert options({"x": array}) == "--fix x=0.5,-1.0"


@pytest.mark.parametrize(
    ("value", "fact"),
    [
        (
            "1,2,3",
            "3 values where int64[2][2] has 4: give one, which fills it, or as many",
        ),
        ([], "0 values where int64[2][2] has 4: give one, which fills it, or as many"),
        ([[1, 2], [3]], "not values of type int64"),
        ("1,,2,3", "not a value of type int64"),
    ],
)
def test_values_that_do_not_fit(value: Fix, fact: str) -> None:
    with pytest.raises(FixError) as caught:
        fixed(TensorProto.INT64, [2, 2], value)
    assert str(caught.value).endswith(f": {fact}")


@pytest.mark.parametrize(
    ("dtype", "value", "fact"),
    [
        (TensorProto.INT64, "1.5", "not a value of type int64"),
        (TensorProto.INT64, 1.5, "not a value of type int64"),
        (TensorProto.INT64, True, "not a value of type int64"),
        (TensorProto.UINT8, "256", "not a value of type uint8"),
        (TensorProto.UINT8, "-1", "not a value of type uint8"),
        (TensorProto.INT4, "8", "not a value of type int4"),
        (TensorProto.FLOAT, "one", "not a value of type float"),
        (TensorProto.FLOAT, "1e39", "not a value of type float"),
        (TensorProto.FLOAT16, "65520", "not a value of type float16"),
        (TensorProto.BOOL, "yes", "not a value of type bool"),
        (TensorProto.STRING, "a", "inputs of type string cannot be fixed"),
    ],
)
def test_what_is_no_value(dtype: int, value: Fix, fact: str) -> None:
    with pytest.raises(FixError) as caught:
        fixed(dtype, [], value)
    assert str(caught.value) == f"--fix x={value}: {fact}"


def test_an_open_shape_comes_first() -> None:
    with pytest.raises(FixError, match="the shape of the input is open: fix its dimensions with"):
        fixed(TensorProto.FLOAT, ["N"], 1)


def proto() -> ModelProto:
    return onnx.parser.parse_model(RATES)


def test_every_fault_is_told_and_the_model_stays() -> None:
    found = load(proto())
    with pytest.raises(FixError) as caught:
        fix_inputs(found, {"rat": 16, "rate": "fast", "x": 1})
    assert str(caught.value).splitlines() == [
        "--fix rat=16: the model has no such input; did you mean 'rate'?",
        "--fix rate=fast: not a value of type int64",
    ]
    assert [value.name for value in found.graph.inputs] == ["x", "rate", "mask"]


def test_the_same_for_python() -> None:
    with pytest.raises(UsageError) as caught:
        onnxc.compile(proto(), dims={"N": 1}, fix={"rate": "fast"})
    assert str(caught.value) == "fix['rate'] = 'fast': not a value of type int64"
    number: Any = 16000
    with pytest.raises(UsageError, match=r"fix=16000: give values by name"):
        onnxc.compile(proto(), fix=number)


def test_options_are_quoted_for_a_shell() -> None:
    assert options({"rate": 16, "a b": "x"}) == "--fix rate=16 --fix 'a b=x'"


def unwrapped(source: str) -> str:
    """The banner on one line."""
    return " ".join(source.split("*/")[0].replace("\n *", " ").split())


def test_compiled() -> None:
    """The input is no parameter, its If one branch, and the banner says so."""
    found = onnxc.compile(proto(), dims={"N": 2}, fix={"rate": 16, "mask": True})
    assert [interface.name for interface in found.inputs] == ["x"]
    assert "Options: --dim N=2 --fix rate=16 --fix mask=true." in unwrapped(found.header)
    outputs = found.run({"x": np.array([1, -2], np.float32)})
    assert outputs["y"].tolist() == [-1, 2]
    assert outputs["z"].tolist() == [[False] * 2] * 2


def test_the_command_line(tmp_path: Path) -> None:
    save(RATES, tmp_path / "rates.onnx")
    given = ("--dim", "N=1", "--fix", "rate=16")
    command("rates.onnx", *given, cwd=tmp_path)
    made = (tmp_path / "rates.h").read_text()
    assert "Options: --dim N=1 --fix rate=16." in unwrapped(made)
    told = json.loads(command("info", "rates.onnx", *given, "--json", cwd=tmp_path).stdout)
    assert [value["name"] for value in told["inputs"]] == ["x", "mask"]
    assert (told["unsupported"], told["problems"]) == ([], [])
    assert told["command"] == "onnxc rates.onnx --dim N=1 --fix rate=16"
    told = json.loads(command("info", "rates.onnx", "--dim", "N=1", "--json", cwd=tmp_path).stdout)
    assert [row["operator"] for row in told["unsupported"]] == ["If", "Frobnicate"]
    assert command("rates.onnx", "--fix", "x=1", "--fix", "r=1", cwd=tmp_path, status=2).stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--fix", "rate"],
            "--fix rate: write NAME=VALUE with a number, true or false, or several: 1,3,2",
        ),
        (
            ["--fix", "=1"],
            "--fix =1: write NAME=VALUE with a number, true or false, or several: 1,3,2",
        ),
        (
            ["--fix", "rate="],
            "--fix rate=: write NAME=VALUE with a number, true or false, or several: 1,3,2",
        ),
        (["--fix", "rate=1", "--fix", "rate=2"], "--fix rate is given twice: 1 and 2"),
        (["--fix", "rat=1"], "--fix rat=1: the model has no such input; did you mean 'rate'?"),
        (["--fix", "rate=a"], "--fix rate=a: not a value of type int64"),
    ],
)
def test_wrong_command_lines(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(RATES, tmp_path / "rates.onnx")
    for verb in ("compile", "info", "verify"):
        assert main([verb, str(tmp_path / "rates.onnx"), *arguments]) == 2
        assert uncoded(capsys.readouterr().err) == f"error: {said}\n"


def test_references_get_the_value_as_well(tmp_path: Path) -> None:
    """They run the model as it is, with all its inputs."""
    save(RATES.replace("Frobnicate", "Abs"), tmp_path / "rates.onnx")
    given = ("--dim", "N=3", "--fix", "rate=16", "--fix", "mask=true")
    told = json.loads(
        command("verify", "rates.onnx", *given, "--against", "both", "--json", cwd=tmp_path).stdout
    )
    assert told["passed"]
    assert all(reference["used"] for reference in told["references"])
