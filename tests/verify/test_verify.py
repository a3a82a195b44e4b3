"""verify_model: the C against onnxruntime and ONNX's reference evaluator."""

import importlib.util
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx.helper import (
    make_graph,
    make_model,
    make_node,
    make_opsetid,
    make_tensor,
    make_tensor_value_info,
)

from onnxc.dtypes import BY_NAME, ELEMENT_TYPES, ElementType, numpy_dtype
from onnxc.errors import CrashError, ToolError, UsageError
from onnxc.kernel import Program
from onnxc.pipeline import Compiled, Interface, compile_model
from onnxc.verify import Verification, verify_model
from onnxc.verify.oracle import ORACLES, OnnxRuntime, ReferenceEvaluator, RefusedError

IR_VERSION = 10  # so that an older onnxruntime takes part


def node_model(
    operator: str, dtype: ElementType, result: ElementType, *shapes: list[Any], opset: int = 21
) -> onnx.ModelProto:
    names = [f"x{position}" for position in range(len(shapes))]
    inputs = [
        make_tensor_value_info(name, dtype.code, shape)
        for name, shape in zip(names, shapes, strict=True)
    ]
    output = make_tensor_value_info("y", result.code, None)
    graph = make_graph([make_node(operator, names, ["y"])], "g", inputs, [output])
    model = make_model(graph, opset_imports=[make_opsetid("", opset)], ir_version=IR_VERSION)
    return onnx.shape_inference.infer_shapes(model)


def identity(name: str = "float", *shape: int, opset: int = 21) -> onnx.ModelProto:
    return node_model("Identity", BY_NAME[name], BY_NAME[name], list(shape), opset=opset)


def equal(name: str = "float") -> onnx.ModelProto:
    return node_model("Equal", BY_NAME[name], BY_NAME["bool"], [3, 1, 5], [4, 1])


def labels(result: Verification) -> list[tuple[str, str]]:
    return [(comparison.reference, comparison.inputs) for comparison in result.comparisons]


EQUAL_TYPES = (
    "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float double bfloat16 string"
)


@pytest.mark.parametrize("dtype", ELEMENT_TYPES, ids=str)
def test_identity_of_every_type(dtype: ElementType) -> None:
    """By the newest opset's Identity; the reference evaluator has every type."""
    result = verify_model(identity(dtype.name, 3, 5, opset=25), against="reference", exact=True)
    assert result.passed, result.to_json()
    assert len(result.comparisons) == 3


@pytest.mark.parametrize("name", EQUAL_TYPES.split())
def test_equal_of_every_type(name: str) -> None:
    result = verify_model(equal(name))
    assert result.passed, result.to_json()


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8e4m3fn", "float8e5m2fnuz"])
def test_onnxruntime_takes_the_small_types(name: str) -> None:
    model = identity(name, 3, 5)
    result = verify_model(model, against="onnxruntime")
    assert result.passed, result.to_json()
    assert result.references[0].title.startswith("onnxruntime ")


def test_onnxruntime_takes_packed_types() -> None:
    """int4 in and out, by operators that onnxruntime has for it."""
    int4 = BY_NAME["int4"]
    x, y = (make_tensor_value_info(name, int4.code, [3]) for name in "xy")
    one = make_tensor("one", onnx.TensorProto.FLOAT, [], [1.0])
    zero = make_tensor("zero", int4.code, [], [0])
    nodes = [
        make_node("DequantizeLinear", ["x", "one"], ["wide"]),
        make_node("QuantizeLinear", ["wide", "one", "zero"], ["y"]),
    ]
    graph = make_graph(nodes, "g", [x], [y], [one, zero])
    model = make_model(graph, opset_imports=[make_opsetid("", 21)], ir_version=IR_VERSION)
    ports = {
        "program": Program(),
        "inputs": [Interface("x", "x", int4, (3,))],
        "outputs": [Interface("y", "y", int4, (3,))],
    }
    oracle = OnnxRuntime(model, cast("Compiled", SimpleNamespace(**ports)))
    value = np.array([1, -2, 7]).astype(numpy_dtype(int4))
    (result,) = oracle.run({"x": value})
    assert result.dtype == value.dtype
    assert result.tolist() == [1, -2, 7]


def test_auto_prefers_onnxruntime() -> None:
    result = verify_model(equal())
    kinds = ["random", "special", "repeated"]
    assert labels(result) == [("onnxruntime", kind) for kind in kinds]
    assert result.complete


def test_auto_falls_back_and_says_why() -> None:
    result = verify_model(identity("complex64", 3))
    assert result.passed
    first, second = result.references
    assert (first.name, first.used) == ("onnxruntime", False)
    assert "complex64" in first.reason
    assert (second.name, second.used) == ("reference", True)


def test_auto_without_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    result = verify_model(equal())
    assert result.passed
    assert result.references[0].reason == "it is not installed (pip install onnxruntime)"


def test_auto_with_a_broken_onnxruntime(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "onnxruntime.py").write_text("import a_module_that_is_missing\n")
    monkeypatch.delitem(sys.modules, "onnxruntime", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    result = verify_model(equal())
    assert result.passed
    assert "a_module_that_is_missing" in result.references[0].reason


def test_both() -> None:
    result = verify_model(equal(), against="both")
    assert result.passed
    assert {name for name, _ in labels(result)} == {"onnxruntime", "reference"}


def test_both_wants_both() -> None:
    result = verify_model(identity("complex64", 3), against="both")
    assert not result.differs
    assert not result.complete
    assert not result.passed


def refuse(self: object, inputs: object) -> None:
    raise RefusedError("not today")


@pytest.mark.parametrize("against", ["auto", "onnxruntime", "reference", "both"])
def test_no_reference_is_no_pass(against: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for oracle in (OnnxRuntime, ReferenceEvaluator):
        monkeypatch.setattr(oracle, "run", refuse)
    result = verify_model(equal(), against=against)
    assert not result.passed
    assert not result.differs
    assert {reference.reason for reference in result.references} == {"not today"}
    assert result.to_json()["passed"] is False


class Wrong:
    title = "wrong 1"
    version = "1"

    def __init__(self, source: object, compiled: object, taps: object) -> None:
        pass

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        x = inputs["x0"].copy()
        x[1, 0] = 1e30
        return [x]


def test_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ORACLES, "reference", Wrong)
    result = verify_model(identity("float", 2, 2), against="reference")
    assert result.differs
    assert not result.passed
    facts = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert facts["passed"] is False
    assert facts["references"] == [
        {"name": "reference", "title": "wrong 1", "reason": "", "used": True},
    ]
    (comparison, *_) = facts["comparisons"]
    assert comparison["passed"] is False
    assert comparison["difference"]["mismatches"] == 1
    assert comparison["difference"]["first"]["index"] == [1, 0]
    assert comparison["difference"]["first"]["expected"] == "1e+30"


def test_given_inputs(tmp_path: Path) -> None:
    path = tmp_path / "in.npz"
    np.savez(path, x0=np.array([1, np.nan], np.float32))
    result = verify_model(identity("float", 2), inputs=path)
    assert result.passed
    assert labels(result) == [("onnxruntime", str(path))]
    np.savez(path, x=np.zeros(2))
    with pytest.raises(UsageError, match="no such input"):
        verify_model(identity("float", 2), inputs=path)


def test_dims(tmp_path: Path) -> None:
    model = identity("float", 2)
    for info in (model.graph.input[0], model.graph.output[0]):
        info.type.tensor_type.shape.dim[0].dim_param = "N"
    onnx.save(model, tmp_path / "open.onnx")
    result = verify_model(tmp_path / "open.onnx", dims={"N": 7}, against="both")
    assert result.passed
    assert {comparison.shape for comparison in result.comparisons} == {(7,)}


def write_c(model: onnx.ModelProto, path: Path, name: str, *, portable_bits: bool = False) -> Path:
    compiled = compile_model(model, name=name, portable_bits=portable_bits)
    path.write_text(compiled.c_source, encoding="utf-8")
    path.with_suffix(".h").write_text(compiled.header, encoding="utf-8")
    return path


def test_the_very_file_runs(tmp_path: Path) -> None:
    model = identity("float", 2)
    path = write_c(model, tmp_path / "mine.c", "mine")
    result = verify_model(model, c_source=path, against="reference")
    assert result.passed
    assert result.c_source == str(path)
    path.write_text(
        '#include "mine.h"\n'
        "onnxc_status mine_run(const float x0[2], float y[2], mine_workspace *workspace)\n"
        "{ (void)workspace; y[0] = x0[0]; y[1] = x0[0]; return ONNXC_OK; }\n"
    )
    assert verify_model(model, c_source=path, against="reference").differs
    path.write_text(path.read_text().replace("ONNXC_OK", "ONNXC_INDEX_OUT_OF_RANGE"))
    failed = verify_model(model, c_source=path, against="reference")
    assert failed.differs
    assert "ONNXC_INDEX_OUT_OF_RANGE" in failed.comparisons[0].difference.note


def test_c_that_crashes_is_told_of(tmp_path: Path) -> None:
    path = write_c(identity("float", 2), tmp_path / "mine.c", "mine")
    path.write_text(
        '#include "mine.h"\n#include <stdlib.h>\n'
        "onnxc_status mine_run(const float x0[2], float y[2], mine_workspace *workspace)\n"
        "{ (void)workspace; (void)x0; (void)y; abort(); }\n"
    )
    with pytest.raises(CrashError, match=r"crashed on random inputs \(SIGABRT\)"):
        verify_model(identity("float", 2), c_source=path, against="reference")


def test_what_a_caller_does_not_rely_on_may_differ(tmp_path: Path) -> None:
    """Licence, the order and spelling of --dim, the name of the model's file."""
    model = node_model("Equal", BY_NAME["float"], BY_NAME["bool"], ["H", "W"], ["W"])
    onnx.save(model, tmp_path / "one.onnx")
    onnx.save(model, tmp_path / "two.onnx")
    source = tmp_path / "one.c"
    compiled = compile_model(tmp_path / "one.onnx", dims={"H": 2, "W": 3}, license="MIT")
    source.write_text(compiled.c_source)
    source.with_suffix(".h").write_text(compiled.header)
    again = {"x1:0": 3, "H": 2}
    assert verify_model(tmp_path / "two.onnx", c_source=source, dims=again).passed


@pytest.mark.parametrize("portable", [False, True])
def test_a_file_says_whether_its_bits_are_portable(tmp_path: Path, portable: bool) -> None:
    """Without, the convolution takes a method that needs a larger workspace."""
    model = onnx.parser.parse_model(
        """
        <ir_version: 8, opset_import: ["" : 19]>
        m (float[1, 8, 6, 6] x) => (float[1, 8, 6, 6] y)
        <float[8, 8, 3, 3] w> { y = Conv <pads = [1, 1, 1, 1]> (x, w) }
        """
    )
    weights = np.linspace(-1, 1, 576, dtype=np.float32).reshape(8, 8, 3, 3)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    headers = [compile_model(model, name="m", portable_bits=p).header for p in (False, True)]
    assert headers[0] != headers[1]
    path = write_c(model, tmp_path / "m.c", "m", portable_bits=portable)
    assert verify_model(model, c_source=path, per_node=True).passed
    assert verify_model(model, portable_bits=portable).passed


def test_a_banner_of_many_options_has_several_lines(tmp_path: Path) -> None:
    from onnxc.verify.source import _options_of

    model = node_model("Equal", BY_NAME["float"], BY_NAME["bool"], ["height", "width"], ["width"])
    dims = {"height": 2, "width": 3}
    compiled = compile_model(
        model,
        dims=dims,
        target="cortex-m4",
        optimize="size",
        portable_bits=True,
        profile=True,
        name="m",
    )
    assert max(map(len, compiled.header.splitlines())) < 100
    assert _options_of(compiled.header) == {
        "target": "cortex-m4",
        "optimize": "size",
        "portable_bits": True,
        "profile": True,
    }
    (tmp_path / "m.c").write_text(compiled.c_source, encoding="utf-8")
    (tmp_path / "m.h").write_text(compiled.header, encoding="utf-8")
    assert verify_model(model, c_source=tmp_path / "m.c", dims=dims).passed


def test_a_file_of_another_model(tmp_path: Path) -> None:
    path = write_c(identity("float", 3), tmp_path / "mine.c", "mine")
    with pytest.raises(UsageError, match=r"(?s)not made from this model.*header has.*expected"):
        verify_model(identity("float", 2), c_source=path)
    path.with_suffix(".h").write_text("int x;\n")
    with pytest.raises(UsageError, match=r"mine\.h is no header that onnxc made"):
        verify_model(identity("float", 3), c_source=path)
    path.with_suffix(".h").unlink()
    with pytest.raises(UsageError, match=r"no such file: .*mine\.h"):
        verify_model(identity("float", 3), c_source=path)


def test_a_file_without_the_function(tmp_path: Path) -> None:
    source = write_c(equal(), tmp_path / "m.c", "m")
    source.write_text("typedef int nothing;\n")
    with pytest.raises(ToolError, match=r"m\.c has no function m_run"):
        verify_model(equal(), c_source=source)


def test_an_unknown_reference() -> None:
    with pytest.raises(UsageError, match="no reference 'tvm'; there are auto, onnxruntime"):
        verify_model(equal(), against="tvm")


def test_inputs_that_nobody_takes(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        m (float[4] x, int64[2] i) => (float[2] y) { y = Gather(x, i) }"""
    path = tmp_path / "in.npz"
    np.savez(path, x=np.zeros(4, np.float32), i=np.array([0, 9]))
    fact = r"in\.npz: .*ONNXC_INDEX_OUT_OF_RANGE.*, and no reference takes these inputs"
    with pytest.raises(UsageError, match=fact):
        verify_model(onnx.parser.parse_model(text), inputs=path)


def test_a_status_that_is_known_to_differ() -> None:
    """Integers divided by 0: onnxruntime refuses, the reference evaluator gives 0."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
        m (int32[300] a, int32[300] b) => (int32[300] y) { y = Div(a, b) }"""
    result = verify_model(onnx.parser.parse_model(text), against="both", seed=2)
    assert result.passed, result.to_json()


def test_a_reference_that_crashes(tmp_path: Path) -> None:
    """onnxruntime on x86-64 traps where the least integer is divided by -1."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
        m (int64[3] a, int64[3] b) => (int64[3] y) { y = Div(a, b) }"""
    path = tmp_path / "in.npz"
    np.savez(path, a=np.array([-(2**63)] * 3), b=np.array([-1] * 3))
    result = verify_model(onnx.parser.parse_model(text), inputs=path)
    assert result.passed, result.to_json()
    assert {reference.name for reference in result.references if reference.used} <= {
        "onnxruntime",
        "reference",
    }


SUMS = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[2, 8] x) => (float[2, 3] y, float[2, 8] z) <float[8, 3] w = {%s}> {
        a = MatMul(x, w)
        y = Tanh(a)
        z = Relu(x)
    }"""
WEIGHTS = [round((k * 7 % 13) / 6 - 1, 3) for k in range(24)]


def sums(*changed: float) -> onnx.ModelProto:
    values = [*changed, *WEIGHTS[len(changed) :]]
    return onnx.parser.parse_model(SUMS % ", ".join(map(str, values)))


def test_special_inputs_of_a_sum_prove_nothing() -> None:
    result = verify_model(sums())
    assert result.passed, result.to_json()
    special = {c.output: c for c in result.comparisons if c.inputs == "special"}
    assert special["z"].verdict == "ok"
    assert special["y"].verdict in ("ok", "not compared")


def test_one_weight_that_is_off_by_a_hundredth(tmp_path: Path) -> None:
    path = write_c(sums(1.01 * WEIGHTS[0]), tmp_path / "mine.c", "mine")
    assert verify_model(sums(1.01 * WEIGHTS[0]), c_source=path).passed
    assert verify_model(sums(), c_source=path).differs


def test_a_sign_that_is_flipped(tmp_path: Path) -> None:
    path = write_c(sums(), tmp_path / "mine.c", "mine")
    path.write_text(path.read_text().replace("+= a[", "-= a[").replace("+= x[", "-= x["))
    assert verify_model(sums(), c_source=path).differs


def test_a_known_range_and_one_that_is_given() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        m (float[9] x) => (float[9] y) { y = Sqrt(x) }"""
    model = onnx.parser.parse_model(text)
    result = verify_model(model, ranges={"x": (1, 2)})
    assert result.passed
    with pytest.raises(UsageError, match="the model has no input 'z'"):
        verify_model(model, ranges={"z": (1, 2)})


def test_rounding_is_no_difference() -> None:
    """What is left of large numbers that cancel: wrong beyond any tolerance, in every engine."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
        m (float[8, 400] x) => (float[8, 1] y) <float[1] big = {3000.0}> {
            a = Add(x, big)
            m = ReduceMean<axes = [1]>(a)
            b = Mul(a, a)
            n = ReduceMean<axes = [1]>(b)
            c = Mul(m, m)
            y = Sub(n, c)
        }"""
    result = verify_model(onnx.parser.parse_model(text))
    assert result.passed, result.to_json()
    assert "excused" in {comparison.verdict for comparison in result.comparisons}
    strict = verify_model(onnx.parser.parse_model(text), rtol=1e-5)
    assert strict.differs
