"""Outputs whose size the data decides: the C, its header, and all that runs it."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper

import onnxc
from onnxc import backend
from onnxc.check import InvalidProgramError, check_program
from onnxc.dtypes import BY_NAME
from onnxc.errors import RunError, UsageError
from onnxc.expression import Buffer
from onnxc.kernel import Program, Routine
from onnxc.pipeline import Compiled, compile_model
from onnxc.report import info
from onnxc.verify.run import verify_model
from tests.models import STRICT, assert_same, model, run, strings
from tests.ops import test_selection as selection
from tests.ops.node_batch import NodeBatch
from tests.portable_program import Call, program
from tests.toolchains import SANITIZED, Tool
from tests.toolchains import run as call_tool

X = np.array([[1, 0, 2], [0, 0, 3]], np.float32)
WHERE = np.array([[0, 0, 1], [0, 2, 2]])
INT64 = BY_NAME["int64"]


def where_not_zero(*outputs: str, node: str = "") -> onnx.ModelProto:
    """NonZero of a float[2, 3]; a name listed twice is one value."""
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 3])
    names = outputs or ("y",)
    infos = [helper.make_tensor_value_info(n, onnx.TensorProto.INT64, [2, "n"]) for n in names]
    nodes = [helper.make_node("NonZero", ["x"], [name], name=node) for name in dict.fromkeys(names)]
    return model(helper.make_graph(nodes, "g", [x], infos))


def test_the_header_tells_the_maximum() -> None:
    compiled = compile_model(where_not_zero())
    assert "onnxc_status model_run(const float x[6], int64_t y[12], int64_t y_shape[2]," in (
        compiled.header
    )
    assert ' * output  y: int64, at most [2][6] "y"\n' in compiled.header
    assert " * output  y_shape: int64[2], the actual shape of y\n" in compiled.header
    assert "#define MODEL_OUTPUT_Y_ELEMENTS 12\n" in compiled.header
    assert "#define MODEL_OUTPUT_Y_SHAPE {2, 6}\n" in compiled.header
    assert "Y_SHAPE_" not in compiled.header
    comment = compiled.header.partition("/* output y:")[2].partition("*/")[0]
    assert " ".join(comment.replace("*", "").split()) == (
        'int64, at most [2][6] "y"; y_shape receives its actual shape, '
        "its elements are the first of the array. Of the maximum:"
    )


def test_the_interface_has_the_array_of_the_shape() -> None:
    (y,) = compile_model(where_not_zero()).outputs
    assert (y.name, y.shape) == ("y", (2, 6))
    assert y.actual is not None
    assert (y.actual.name, y.actual.c_name, y.actual.dtype, y.actual.shape) == (
        *("y_shape", "y_shape"),
        *(INT64, (2,)),
    )


def test_an_output_keeps_its_name_beside_that_of_a_shape() -> None:
    compiled = compile_model(where_not_zero("y", "y_shape"))
    names = [(o.name, o.c_name, *_actual_names(o)) for o in compiled.outputs]
    assert names == [
        ("y", "y", "y_shape_2", "y_shape_2"),
        ("y_shape", "y_shape", "y_shape_shape", "y_shape_shape"),
    ]
    assert_same(run(where_not_zero("y", "y_shape"), {"x": X}), {"y": WHERE, "y_shape": WHERE})


def _actual_names(output: Any) -> tuple[str, str]:
    assert output.actual is not None
    return output.actual.name, output.actual.c_name


def test_one_value_as_two_outputs() -> None:
    assert_same(run(where_not_zero("y", "y"), {"x": X}), {"y": WHERE, "y_2": WHERE})


def test_run_returns_what_there_is_each_time() -> None:
    ready = onnxc.compile(where_not_zero())
    for count in (0, 6, 1, 5):
        x = np.zeros(6, np.float32)
        x[:count] = 1
        y = ready.run({"x": x.reshape(2, 3)})["y"]
        assert y.shape == (2, count)
        np.testing.assert_array_equal(y, np.nonzero(x.reshape(2, 3)))


def test_bind_takes_the_maximum_and_the_shape() -> None:
    ready = onnxc.compile(where_not_zero())
    x, y, shape = X.copy(), np.full((2, 6), -1), np.zeros(2, np.int64)
    call = ready.bind({"x": x}, {"y": y, "y_shape": shape})
    call()
    assert shape.tolist() == [2, 3]
    assert y.reshape(-1).tolist() == [*WHERE.reshape(-1), *[-1] * 6]
    x[:] = 0
    call()
    assert shape.tolist() == [2, 0]
    with pytest.raises(UsageError, match=r"output 'y_shape': missing; expected int64\[2\]"):
        ready.bind({"x": x}, {"y": y})


def test_strings_of_an_actual_shape() -> None:
    x = strings(b"a", b"", b"b\0")
    batch = NodeBatch()
    batch.add_node("Compress", [x, np.array([0, 1, 1], np.bool_)], [x[1:]])
    selection.undeclared(batch).check()


def test_backend() -> None:
    (y,) = backend.run_model(where_not_zero(), [X])
    np.testing.assert_array_equal(y, WHERE)
    node = helper.make_node("Unique", ["x"], ["y", "", "", "counts"])
    found = backend.run_node(node, [np.array([3, 1, 3])])
    assert [value.tolist() for value in found] == [[1, 3], [1, 2]]


def test_verify_compares_actual_shapes() -> None:
    for against in ("onnxruntime", "reference"):
        verification = verify_model(where_not_zero(), against=against)
        assert verification.passed
        shapes = {comparison.shape for comparison in verification.comparisons}
        assert len(shapes) > 1
        assert (2, 6) in shapes


def test_info_says_at_most(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(where_not_zero(), path)
    found = info.gather(path, {})
    assert found["outputs"] == [
        {"name": "y", "type": "tensor(int64)", "shape": [2, 6], "maximum": True}
    ]
    assert found["summary"]["outputs_bytes"] == (12 + 2) * 8
    lines = [" ".join(line.split()) for line in info.lines(found)]
    assert "y int64 of at most [2, 6]" in lines


def test_more_than_the_declared_maximum() -> None:
    source = where_not_zero()
    source.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 2
    ready = onnxc.compile(source)
    assert ready.run({"x": np.zeros((2, 3), np.float32)})["y"].shape == (2, 0)
    with pytest.raises(RunError, match="ONNXC_SHAPE_MISMATCH"):
        ready.run({"x": X})


def test_the_checker_knows_actual_shapes() -> None:
    x = Buffer("x", (6,), BY_NAME["bool"], "input")
    y, shape = (Buffer(n, s, INT64, "output") for n, s in (("y", (1, 6)), ("y_shape", (2,))))
    step = Routine("non_zero", (x,), (y, shape))
    check_program(Program((x,), (y,), (step,), (), {y: shape}))
    wrong = Buffer("y_shape", (3,), INT64, "output")
    for program_of_it, fault in (
        (Program((x,), (y,), (Routine("non_zero", (x,), (y, wrong)),), (), {y: wrong}), "is int64"),
        (Program((x,), (shape,), (step,), (), {y: shape}), "is no output"),
        (Program((x,), (y,), (Routine("non_zero", (x,), (y,)),), (), {y: shape}), "not written"),
    ):
        with pytest.raises(InvalidProgramError, match=fault):
            check_program(program_of_it)


# The routines on other compilers


def every_routine() -> NodeBatch:
    """Each template in every form that it has."""
    batch = NodeBatch()
    generator = np.random.default_rng(7)
    numbers = {
        name: generator.integers(0, 4, (3, 4, 2)).astype(BY_NAME[name].numpy)
        for name in ("float", "double", "int8", "uint64")
    }
    for x in numbers.values():
        for axis, largest in ((1, 1), (-1, 0)):
            values, indices = selection.first(x, 2, axis=axis, largest=largest)
            selection.top_k(batch, x, 2, values, indices, axis=axis, largest=largest)
        batch.add_node("NonZero", [x], [np.array(np.nonzero(x))])
        for along, in_order in ((None, 1), (1, 0), (0, 1)):
            selection.add_unique(batch, x, along, in_order)
    selection.add_unique(batch, strings(b"b", b"", b"a", b"b"), None, 1)
    x, flags = numbers["float"], np.array([1, 0, 1, 0, 0], np.bool_)
    batch.add_node("NonZero", [x > 1], [np.array(np.nonzero(x > 1))])
    batch.add_node("Compress", [x, flags], [x[:, [0, 2]]], axis=1)
    batch.add_node("Compress", [x, flags], [x.reshape(-1)[[0, 2]]])
    boxes, scores, three = selection.BOXES, selection.SCORES, np.array([3])
    for thresholds in ([selection.HALF, selection.NONE], [selection.HALF]):
        inputs: list[NDArray[Any] | None] = [boxes, scores, three, *thresholds]
        selection.suppress(batch, inputs, selection.rows(3, 0, 5))
    return batch


@pytest.fixture(scope="module", params=["declared", "undeclared"])
def sources(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Compiled]:
    """A folder with a model of every routine, and a program that runs it."""
    batch = (
        every_routine() if request.param == "declared" else selection.undeclared(every_routine())
    )
    assert_same(run(batch.model(), batch.given), batch.wanted)
    compiled = compile_model(batch.model(), name="routines")
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "routines.h").write_text(compiled.header, encoding="ascii")
    (folder / "routines.c").write_text(compiled.c_source, encoding="ascii")
    text = program([Call(compiled, {i.name: batch.given[i.name] for i in compiled.inputs})])
    (folder / "program.c").write_text(text, encoding="ascii")
    (folder / "portable.h").write_bytes(Path(__file__).with_name("portable.h").read_bytes())
    return folder, compiled


@pytest.mark.parametrize(
    "compiler", ["gcc", "clang", "tcc", "g++ -x c++ -std=c++11", "clang++ -x c++ -std=c++17"]
)
def test_no_warning(
    compiler: str, sources: tuple[Path, Compiled], tool: Tool, tmp_path: Path
) -> None:
    name, *options = compiler.split()
    not_of_cpp = ("-std=c99", "-Wmissing-prototypes", "-Wstrict-prototypes")
    warnings = [flag for flag in STRICT if not options or flag not in not_of_cpp]
    restrict = ["-Drestrict=__restrict"] if options else []
    files = [sources[0] / "routines.c"]
    call_tool([tool(name), *options, *warnings, *restrict, "-O1", "-c", *files], tmp_path)


def test_sanitizers_find_nothing_and_compilers_agree(
    sources: tuple[Path, Compiled], tool: Tool, tmp_path: Path
) -> None:
    files = [sources[0] / "program.c", sources[0] / "routines.c"]
    call_tool([tool("gcc"), *SANITIZED, *files, "-o", "sanitized"], tmp_path)
    call_tool([tool("tcc"), *files, "-o", "small"], tmp_path)
    printed = call_tool([tmp_path / "sanitized"], tmp_path)
    assert "-- routines 0" in printed
    assert call_tool([tmp_path / "small"], tmp_path) == printed
    assert all(len(line) < 100 for line in sources[1].body.splitlines())
