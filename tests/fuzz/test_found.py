"""What the fuzzers found, each kind by its smallest model: a refusal, or C, and never a fault."""

from __future__ import annotations

import subprocess
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from onnxc.errors import ModelError
from onnxc.pipeline import compile_model
from onnxc.protobuf.wire import read_model
from tests.malformed import GRAPHS, Malformed, parse, sound
from tests.malformed_functions import FUNCTIONS

WRONG_RANKS = {
    "a cumulation along no axis": (
        "g (float[5] x) => (float[5] y) <int64[0] axis = {}> { y = CumSum (x, axis) }",
        "axis has 0 elements",
    ),
    "a window of rank 0": (
        "g (int64 size) => (float y) { y = HannWindow (size) }",
        "a window has 1 dimension, not 0",
    ),
    "Squeeze by a matrix of axes": (
        "g (float[1,3] x, int64[1,1] axes) => (float[3] y) { y = Squeeze (x, axes) }",
        "axes has 2 dimensions, not 1",
    ),
    "Resize by a matrix of scales": (
        "g (float[1,4] x, float[2,2] s) => (float[1,2] y) { y = Resize (x, , s) }",
        "an operand of the sizes has 2 dimensions, not 1",
    ),
    "Split into tensors of another rank": (
        """g (float[2,6] x, int64[2] s) => (float[2] y, float[2,4] z)
        { y, z = Split <axis = 1> (x, s) }""",
        "an output of 1 dimensions has no axis 1",
    ),
}
TOO_LARGE = {
    "a mean of that many windows": f"""g (float[1,1,{2**40}] x) => (float[1,1,n] y)
        {{ y = AveragePool <kernel_shape = [3], pads = [1, 1]> (x) }}""",
    "that many elements to reflect": f"""g (float[{2**40}] x) => (float[n] y)
        <int64[2] pads = {{1, 1}}> {{ y = Pad <mode = "reflect"> (x, pads) }}""",
    "a transform of that length": f"""g (float[1,{2**40},1] x) => (float[1,{2**40},2] y)
        {{ y = DFT (x) }}""",
    "a window of that length": f"""g () => (float[n] y) <int64 size = {{{2**40}}}>
        {{ y = HannWindow (size) }}""",
    "that many resampled elements": f"""g (float[{2**40}] x) => (float[n] y)
        <float[1] scales = {{0.5}}> {{ y = Resize (x, , scales) }}""",
}
SOUND = {
    "a mean of that many whole windows": f"""g (float[1,1,{2**40}] x) => (float[1,1,n] y)
        {{ y = AveragePool <kernel_shape = [3]> (x) }}""",
    "a result that nobody reads": """g (float[3,5] x, int64[3] y) => (float[3,5] p)
        { z, p = SoftmaxCrossEntropyLoss <reduction = "none"> (x, y) }""",
    "a constant that is rounded to infinity": """g () => (float y)
        <float[2,2] x = {1e38, 1e38, -1e38, 1e38}> { y = Det (x) }""",
}


def refusal(text: str) -> str:
    with pytest.raises(ModelError) as caught:
        compile_model(parse(text))
    return str(caught.value)


@pytest.mark.parametrize("name", WRONG_RANKS)
def test_an_operand_or_result_of_a_wrong_rank_is_refused(name: str) -> None:
    text, fact = WRONG_RANKS[name]
    assert fact in refusal(text)


@pytest.mark.parametrize("name", TOO_LARGE)
def test_a_table_too_large_to_make_is_refused(name: str) -> None:
    assert "numbers would be needed; use smaller dimensions" in refusal(TOO_LARGE[name])


def test_more_axes_than_can_be_listed_are_refused() -> None:
    text = f"g (float[3,2] x, int64[{2**40}] a) => (float[1,1] y) {{ y = ReduceSum (x, a) }}"
    assert "no sets of" in refusal(text)


@pytest.mark.parametrize("name", SOUND)
def test_an_odd_model_compiles_in_silence(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compile_model(parse(SOUND[name]))


def test_a_small_file_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save_model(sound(), path)
    tracemalloc.start()
    try:
        read_model(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**20


@pytest.mark.parametrize("field", ["op_type", "domain"])
def test_an_operator_of_two_lines_is_told_on_one(field: str) -> None:
    model = sound()
    setattr(model.graph.node[0], field, "a\nerror: b")
    model.opset_import.add(domain="a\nerror: b", version=1)
    with pytest.raises(ModelError) as caught:
        compile_model(model)
    assert all("\n" not in str(problem) for problem in caught.value.problems)
    assert r"a\nerror: b" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("a\n'b", r"$'a\012\047b="),
        ("é\x1b\\ c", r"$'\303\251\033\134 c="),
        ("é", "'é="),
        ("\u202e", r"$'\342\200\256="),
    ],
)
def test_an_odd_dimension_is_proposed_on_one_line_for_a_shell(
    name: str, word: str, tool: Callable[[str], str]
) -> None:
    model = sound()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = name
    with pytest.raises(ModelError) as caught:
        compile_model(model)
    (problem,) = caught.value.problems
    option = problem.remedy.partition(": ")[2]
    assert option.startswith(f"--dim {word}")
    assert "\n" not in str(problem)
    script = f'set -- {option}; printf "%s" "$2"'
    given = subprocess.run([tool("bash"), "-c", script], capture_output=True, check=True)
    assert given.stdout.startswith(f"{name}=".encode())


def test_a_declared_shape_of_two_lines_is_told_on_one() -> None:
    model = parse("g (float[3] x) => (float[3,9] y) { y = Neg (x) }")
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "a\nerror: b"
    with pytest.raises(ModelError) as caught:
        compile_model(model)
    assert str(caught.value).count("\n") == 0


def test_a_result_of_negative_extents_is_refused() -> None:
    """By ONNX's inference of what the expanded AffineGrid makes of a negative size."""
    text = """g () => (float[n] y) <int64[1] size = {-4}>
        { z = Constant <value_float = 1.0> () y = Expand (z, size) }"""
    assert "negative" in refusal(text)


def test_names_that_are_no_text_beside_names_that_are(tmp_path: Path) -> None:
    model = parse("g (float[2] x, float[2] www) => (float[2] y) { y = Add (x, www) }")
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString().replace(b"www", b"\xff\xfe\xfd"))
    assert [value.name for value in compile_model(path).inputs] == ["x", r"\xff\xfe\xfd"]


@pytest.mark.parametrize("case", [*GRAPHS, *FUNCTIONS], ids=lambda case: case.name)
def test_every_problem_has_a_code(case: Malformed) -> None:
    with pytest.raises(ModelError) as caught:
        compile_model(case.build())
    assert all(problem.code.startswith("ONNXC0") for problem in caught.value.problems)
