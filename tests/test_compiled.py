"""CompiledModel: numpy arrays through the generated C."""

import gc
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

import onnxc
from onnxc import cli
from onnxc.arrays import object_array
from onnxc.compiled import CompiledModel
from onnxc.dtypes import BY_NAME, ELEMENT_TYPES, ElementType, numpy_dtype
from onnxc.errors import ModelError, RunError, ToolError, UsageError
from onnxc.packing import pack_elements, unpack_elements
from tests.models import any_bits

STRING = BY_NAME["string"]
FLOAT = BY_NAME["float"]
INT4 = BY_NAME["int4"]
NUMERIC = [dtype for dtype in ELEMENT_TYPES if dtype is not STRING]


def identity(dtype: ElementType, *shape: int) -> onnx.ModelProto:
    x, y = (make_tensor_value_info(name, dtype.code, shape) for name in "xy")
    graph = make_graph([make_node("Identity", ["x"], ["y"])], "g", [x], [y])
    return make_model(graph, opset_imports=[make_opsetid("", 25)])


def equal(*shape: int) -> onnx.ModelProto:
    a, b = (make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in "ab")
    y = make_tensor_value_info("y", onnx.TensorProto.BOOL, shape)
    graph = make_graph([make_node("Equal", ["a", "b"], ["y"])], "g", [a, b], [y])
    return make_model(graph, opset_imports=[make_opsetid("", 19)])


def run_identity(dtype: ElementType, value: Any) -> NDArray[Any]:
    return onnxc.compile(identity(dtype, *value.shape)).run({"x": value})["y"]


@pytest.mark.parametrize("dtype", NUMERIC, ids=str)
def test_every_type_keeps_every_bit(dtype: ElementType) -> None:
    value = any_bits(dtype, 3, 7)
    result = run_identity(dtype, value)
    assert result.dtype == numpy_dtype(dtype)
    assert result.shape == (3, 7)
    assert result.tobytes() == value.tobytes()


@pytest.mark.parametrize("dtype", NUMERIC, ids=str)
def test_rank_0_and_zero_size(dtype: ElementType) -> None:
    one = any_bits(dtype, 1)
    scalar = run_identity(dtype, one.reshape(()))
    assert isinstance(scalar, np.ndarray)
    assert scalar.shape == ()
    assert scalar.tobytes() == one.tobytes()
    assert run_identity(dtype, one[:0].reshape(3, 0, 2)).shape == (3, 0, 2)


def test_what_a_model_tells(tmp_path: Path) -> None:
    path = tmp_path / "same values.onnx"
    onnx.save(equal(2, 3), path)
    model = onnxc.compile(str(path), name="same")
    assert isinstance(model, onnxc.CompiledModel)
    assert model.name == "same"
    assert [(i.name, i.dtype.name, i.shape) for i in model.inputs] == [
        ("a", "float", (2, 3)),
        ("b", "float", (2, 3)),
    ]
    assert [(o.name, o.dtype.name, o.shape) for o in model.outputs] == [("y", "bool", (2, 3))]
    assert model.workspace_size == 0
    assert "onnxc_status same_run(" in model.header
    assert '#include "same.h"' in model.c_source
    assert repr(model) == "<onnxc.CompiledModel same>"


def test_dims() -> None:
    model = identity(FLOAT, 3)
    for info in (model.graph.input[0], model.graph.output[0]):
        info.type.tensor_type.shape.dim[0].dim_param = "N"
    x = np.arange(4, dtype=np.float32)
    assert onnxc.compile(model, dims={"N": 4}).run({"x": x})["y"].tolist() == x.tolist()


def test_arrays_that_c_cannot_take_as_they_are() -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    unaligned = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(4, 6)
    assert not unaligned.flags.aligned
    for value in (x.T, x[:, ::-2], x[::2], unaligned, np.broadcast_to(x[0], (3, 6)), x[2, 3]):
        np.testing.assert_array_equal(run_identity(FLOAT, value), value)
    packed = np.arange(-8, 8).astype(ml_dtypes.int4).reshape(4, 4).T
    assert run_identity(INT4, packed).tolist() == packed.tolist()


def test_everything_wrong_is_said_at_once() -> None:
    model = onnxc.compile(equal(2, 3))
    with pytest.raises(UsageError) as caught:
        model.run({"A": np.zeros(1), "b": np.zeros((2, 4))})
    assert str(caught.value).splitlines() == [
        "input 'A': the model has no such input; it has a, b",
        "input 'a': missing; expected float32[2,3]",
        "input 'b': expected float32[2,3], got float64[2,4]",
    ]


@pytest.mark.parametrize(
    ("value", "fact"),
    [
        ([1.0, 2.0], r"a numpy array float32\[2\], got list; convert it with numpy.asarray"),
        (1.0, "got float;"),
        (None, "got NoneType;"),
        (np.zeros(2, ">f4"), r"got >f4\[2\] \(byte-swapped\)"),
        (np.zeros(2, np.int32), r"got int32\[2\]"),
        (np.zeros(2, ml_dtypes.bfloat16), r"got bfloat16\[2\]"),
        (np.zeros((2, 1), np.float32), r"got float32\[2,1\]"),
        (np.float32(1), r"got float32\[\]"),
        (np.zeros(2, object), r"got object\[2\]"),
    ],
)
def test_nothing_is_converted(value: Any, fact: str) -> None:
    with pytest.raises(UsageError, match=fact):
        onnxc.compile(identity(FLOAT, 2)).run({"x": value})


TEXTS = ["", "a", "é日🙂", "a\0b", "a\0", "\0", "x" * 10_000]


@pytest.mark.parametrize(
    "value",
    [
        object_array(TEXTS, (7,)),
        object_array([text.encode() for text in TEXTS], (7,)),
        object_array([np.str_(text) for text in TEXTS], (7,)),
        np.array(TEXTS, np.dtypes.StringDType()),
    ],
    ids=["str", "bytes", "np.str_", "StringDType"],
)
def test_strings(value: NDArray[Any]) -> None:
    result = run_identity(STRING, value)
    assert result.dtype == object
    assert result.tolist() == TEXTS


@pytest.mark.parametrize("value", [np.array([["ab", "é"]]), np.array([[b"ab", b"\xc3\xa9"]])])
def test_fixed_size_strings(value: NDArray[Any]) -> None:
    assert run_identity(STRING, value).tolist() == [["ab", "é"]]


def test_bytes_that_are_no_text_survive() -> None:
    result = run_identity(STRING, object_array([b"\xff\x80a"], ()))
    assert result.shape == ()
    assert result.item().encode("utf-8", "surrogateescape") == b"\xff\x80a"
    assert run_identity(STRING, result).item() == result.item()


def test_strings_of_zero_size() -> None:
    assert run_identity(STRING, object_array([], (0, 2))).shape == (0, 2)


@pytest.mark.parametrize(
    ("value", "fact"),
    [
        (object_array(["a", 5], (2,)), "expected str or bytes .* got int 5 at flat index 1"),
        (object_array(["a", None], (2,)), "got NoneType None at flat index 1"),
        (object_array(["a", "\ud800"], (2,)), "at flat index 1 is no valid text: surrogates"),
        (np.zeros(2), r"expected object \(str or bytes\)\[2\], got float64\[2\]"),
    ],
)
def test_wrong_strings(value: NDArray[Any], fact: str) -> None:
    with pytest.raises(UsageError, match=fact):
        onnxc.compile(identity(STRING, 2)).run({"x": value})


def test_threads() -> None:
    model = onnxc.compile(identity(BY_NAME["int64"], 10_000))

    def runs(start: int) -> bool:
        x = np.arange(start, start + 10_000, dtype=np.int64)
        return all(np.array_equal(model.run({"x": x})["y"], x) for _ in range(20))

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(runs, range(8)))


def test_bind_reads_and_writes_the_arrays_themselves() -> None:
    x, y = np.zeros(3, np.float32), np.zeros(3, np.float32)
    call = onnxc.compile(identity(FLOAT, 3)).bind({"x": x}, {"y": y})
    gc.collect()
    for value in (1, 2):
        x[:] = value
        assert call() is None
        assert y.tolist() == [value] * 3


def test_bind_takes_packed_bytes() -> None:
    values = np.array([1, -2, 3], ml_dtypes.int4)
    y = np.empty(2, np.uint8)
    onnxc.compile(identity(INT4, 3)).bind({"x": pack_elements(values, INT4)}, {"y": y})()
    assert unpack_elements(y, 3, INT4).tolist() == values.tolist()


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("dtype", "y", "fact"),
    [
        (FLOAT, np.zeros(4, np.float32)[::2], "not C-contiguous and aligned"),
        (FLOAT, np.zeros(9, np.uint8)[1:].view(np.float32), "not C-contiguous and aligned"),
        (FLOAT, read_only(np.zeros(2, np.float32)), "read-only"),
        (FLOAT, np.zeros(2), r"expected float32\[2\], got float64\[2\]"),
        (FLOAT, [0.0, 0.0], "got list"),
        (INT4, np.zeros(2, ml_dtypes.int4), r"packed bytes uint8\[1\], got int4\[2\]"),
    ],
)
def test_what_bind_refuses(dtype: ElementType, y: Any, fact: str) -> None:
    x = np.zeros(1, np.uint8) if dtype is INT4 else np.zeros(2, np.float32)
    with pytest.raises(UsageError, match=f"output 'y': .*{fact}"):
        onnxc.compile(identity(dtype, 2)).bind({"x": x}, {"y": y})


def test_bind_refuses_strings_and_scalars() -> None:
    x = object_array(["", ""], (2,))
    with pytest.raises(UsageError, match=r"input 'x': strings cannot be bound; use run\(\)"):
        onnxc.compile(identity(STRING, 2)).bind({"x": x}, {"y": x})
    scalar: Any = np.float32(1)
    with pytest.raises(UsageError, match="input 'x': expected a numpy array, got the scalar"):
        onnxc.compile(identity(FLOAT)).bind({"x": scalar}, {"y": np.array(0, np.float32)})


def test_bind_refuses_shared_memory() -> None:
    memory = np.zeros(5, np.float32)
    model = onnxc.compile(equal(2))
    y = memory.view(np.bool_)[6:8]
    with pytest.raises(UsageError, match="output 'y' shares memory with input 'a'"):
        model.bind({"a": memory[:2], "b": memory[3:]}, {"y": y})
    model.bind({"a": memory[2:4], "b": memory[2:4]}, {"y": y})()


@pytest.mark.parametrize("values", [[np.zeros(2, np.float32)], np.zeros(2, np.float32)])
def test_values_without_names(values: Any) -> None:
    model = onnxc.compile(identity(FLOAT, 2))
    with pytest.raises(UsageError, match=r"inputs must .* by name, \{'x': \.\.\.\}, not "):
        model.run(values)
    with pytest.raises(UsageError, match=r"outputs must .* by name, \{'y': \.\.\.\}, not "):
        model.bind({"x": np.zeros(2, np.float32)}, values)


@pytest.mark.parametrize(
    ("model", "options", "fact"),
    [
        (b"\x08", {}, r"is bytes; give .* onnx\.load_model_from_string\(model\)"),
        (None, {}, r"is of type NoneType; give a path or an onnx\.ModelProto"),
        (equal(2), {"dims": ["batch"]}, r'dims=\[\'batch\'\]: .* such as dims=\{"batch": 1\}'),
        (equal(2), {"name": "int"}, "take 'int_m'"),
        (equal(2), {"dims": {"N": 1}}, r"^dims\['N'\] = 1: the model has no such dimension"),
    ],
)
def test_what_compile_refuses(model: Any, options: Any, fact: str) -> None:
    with pytest.raises(UsageError, match=fact):
        onnxc.compile(model, **options)


def test_open_dims_are_told_as_python_has_them() -> None:
    model = identity(FLOAT, 3)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    with pytest.raises(ModelError, match=r'give each one: dims=\{"N": 3\}$'):
        onnxc.compile(model)


def test_save_is_what_the_command_line_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(equal(2, 3), "equal.onnx")
    assert cli.main(["equal.onnx", "-q"]) == 0
    onnxc.compile("equal.onnx").save(tmp_path / "saved.c")
    written = [Path(name).read_text() for name in ("equal.c", "equal.h", "saved.c", "saved.h")]
    assert written[2] == written[0].replace('#include "equal.h"', '#include "saved.h"')
    assert written[3] == written[1]


def test_save_replaces_no_file_of_others(tmp_path: Path) -> None:
    onnx.save(equal(2, 3), tmp_path / "model.h")
    model = onnxc.compile(tmp_path / "model.h")
    with pytest.raises(UsageError, match="is the model itself"):
        model.save(tmp_path / "model.c", force=True)
    (tmp_path / "own.c").write_text("int mine;\n")
    with pytest.raises(ToolError, match="was not written by onnxc; force=True overwrites it"):
        model.save(tmp_path / "own.c")
    model.save(str(tmp_path / "own.c"), force=True)
    model.save(str(tmp_path / "own.c"))
    with pytest.raises(UsageError, match=r"does not end in \.c; write .*own\.c$"):
        model.save(tmp_path / "own")


def failing(tmp_path: Path) -> CompiledModel:
    compiled = onnxc.compile(identity(FLOAT, 2)).compiled
    (tmp_path / "model.h").write_text(compiled.header)
    (tmp_path / "model.c").write_text(
        '#include "model.h"\n'
        "onnxc_status model_run(const float x[2], float y[2], model_workspace *workspace)\n"
        "{ (void)x; (void)y; (void)workspace; return ONNXC_INDEX_OUT_OF_RANGE; }\n"
    )
    return CompiledModel(compiled, tmp_path / "model.c")


def test_a_status_is_an_error(tmp_path: Path) -> None:
    x = np.zeros(2, np.float32)
    with pytest.raises(RunError, match=r"status 2 \(ONNXC_INDEX_OUT_OF_RANGE\)"):
        failing(tmp_path).run({"x": x})
    with pytest.raises(RunError, match=r"status 2 \(ONNXC_INDEX_OUT_OF_RANGE\)"):
        failing(tmp_path).bind({"x": x}, {"y": x + 1})()


def test_importing_the_package_is_light() -> None:
    script = (
        f"import sys; sys.path[:0] = {sys.path!r}; import onnxc\n"
        "assert onnxc.__version__\n"
        "assert not {'numpy', 'onnx', 'cffi', 'jinja2'} & sys.modules.keys()\n"
        "assert set(onnxc.__all__) <= set(dir(onnxc))\n"
        "assert onnxc.UsageError.exit_status == 2\n"
        "assert 'numpy' not in sys.modules\n"
        "assert callable(onnxc.compile)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_unknown_names_of_the_package() -> None:
    with pytest.raises(AttributeError, match="module 'onnxc' has no attribute 'complie'"):
        _ = onnxc.complie  # type: ignore[attr-defined]  # mypy sees the mistake, too
