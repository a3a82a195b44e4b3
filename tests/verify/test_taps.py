"""--per-node: the tensors between the kernels of the very C that ships."""

import re
from pathlib import Path

import onnx
import pytest

from onnxc.errors import UsageError
from onnxc.pipeline import compile_model
from onnxc.verify import Build, Node, Verification, verify_model
from onnxc.verify.source import subject
from onnxc.verify.taps import write_tapped

PAIRS = 25


@pytest.fixture(autouse=True)
def quick_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXC_CFLAGS", "-O0")


def chain() -> onnx.ModelProto:
    """50 nodes, MatMul and Softmax by turns; each widens its matrix, so that no two share C."""
    nodes, weights, name = [], [], "x"
    for n in range(PAIRS):
        rows, columns = 4 + n, 5 + n
        values = ", ".join(str((k * 7 + n) % 11 / 4 - 1) for k in range(rows * columns))
        weights.append(f"float[{rows}, {columns}] w{n} = {{{values}}}")
        result = f"s{n}" if n < PAIRS - 1 else "y"
        nodes.append(f"m{n} = MatMul({name}, w{n})  {result} = Softmax(m{n})")
        name = result
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        chain (float[3, 4] x) => (float[3, {4 + PAIRS}] y) <{", ".join(weights)}> {{
            {" ".join(nodes)}
        }}"""
    return onnx.parser.parse_model(text)


def written(model: onnx.ModelProto, folder: Path) -> Path:
    compiled = compile_model(model, name="chain", target="cortex-m4")  # one variant of each kernel
    source = folder / "chain.c"
    source.write_text(compiled.c_source, encoding="utf-8")
    source.with_suffix(".h").write_text(compiled.header, encoding="utf-8")
    return source


def damage(source: Path, function: str) -> None:
    """What the function stores becomes 1 % larger."""
    text = source.read_text()
    start = text.index(f" {function}(")
    end = text.index("\n}\n", start)
    changed = re.sub(r"((?:out|y)\[[^=]*\] \*?= )([^;]*);", r"\1 1.01f * (\2);", text[start:end])
    assert changed != text[start:end]
    source.write_text(text[:start] + changed + text[end:])


def function_of(value: str, source: Path, folder: Path) -> str:
    """The C function that computes a value of the chain and no other."""
    folder.mkdir()
    taps = write_tapped(subject(chain(), source, {}, {}), folder).taps
    (function,) = {tap.function for tap in taps if tap.name == value}
    assert [tap.name for tap in taps if tap.function == function] == [value]
    return function


def nodes(result: Verification) -> dict[str, Node]:
    assert result.nodes is not None
    return {node.value: node for node in result.nodes.list}


def test_every_stored_value_is_compared(tmp_path: Path) -> None:
    model = chain()
    result = verify_model(model, c_source=written(model, tmp_path), per_node=True)
    assert result.passed, result.to_json()
    assert result.nodes is not None
    assert (result.nodes.values, result.nodes.tapped) == (2 * PAIRS, 2 * PAIRS)
    assert [node.value for node in result.nodes.list[:4]] == ["m0", "s0", "m1", "s1"]
    assert result.nodes.first is None
    assert result.to_json()["nodes"]["first"] == ""


@pytest.mark.parametrize("value", ["m1", "s7", "m20", "s20", "y"])
def test_a_fault_in_one_of_50_kernels_is_named(value: str, tmp_path: Path) -> None:
    model = chain()
    source = written(model, tmp_path)
    damage(source, function_of(value, source, tmp_path / "taps"))
    result = verify_model(model, c_source=source, per_node=True)
    assert result.differs
    assert result.nodes is not None
    first = result.nodes.first
    assert first is not None
    assert first.value == value
    operator = "MatMul-13" if value.startswith("m") else "Softmax-13"
    assert first.nodes == (f"{operator} '{value}'",)
    assert result.to_json()["nodes"]["first"] == value


def test_the_error_shows_where_another_target_would_have_it(tmp_path: Path) -> None:
    """The taps come through the files of a built program, too."""
    model = chain()
    source = written(model, tmp_path)
    damage(source, function_of("m2", source, tmp_path / "taps"))
    result = verify_model(model, c_source=source, per_node=True, build=Build(cflags="-O1"))
    assert result.nodes is not None
    assert result.nodes.first is not None
    assert result.nodes.first.value == "m2"


def test_channels_last_and_padding_are_undone() -> None:
    """Of square images the shape does not tell the order of the dimensions."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
        m (float[1, 8, 8, 8] x) => (float[1, 8, 8, 8] y) {
            a = Conv<pads = [1, 1, 1, 1]>(x, w)
            b = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [1, 1]>(a)
            c = Conv<pads = [1, 1, 1, 1]>(b, w)
            d = AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [1, 1]>(c)
            y = Conv<pads = [1, 1, 1, 1]>(d, w)
        }"""
    model = onnx.parser.parse_model(text)
    weights = [k * 13 % 17 / 8 - 1 for k in range(8 * 8 * 9)]
    tensor = onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [8, 8, 3, 3], weights)
    model.graph.initializer.append(tensor)
    result = verify_model(model, per_node=True)
    assert result.passed, result.to_json()
    assert nodes(result).keys() >= {"b", "y"}
    program = compile_model(model).program
    assert any(placed.order != (0, 1, 2, 3) for placed in program.placed.values())


def test_a_file_with_another_run_function(tmp_path: Path) -> None:
    model = chain()
    source = written(model, tmp_path)
    text = source.read_text()
    source.write_text(text.replace("return ONNXC_OK;", "return (onnxc_status)0;"))
    assert verify_model(model, c_source=source).passed
    with pytest.raises(UsageError, match="the function chain_run is not as onnxc writes it"):
        verify_model(model, c_source=source, per_node=True)
