"""--cc, --cflags, --sanitize, --runner and --guard: the C as a program of its own."""

import re
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from onnxc.dtypes import ELEMENT_TYPES, ElementType
from onnxc.errors import CrashError, ToolError, UsageError
from onnxc.pipeline import compile_model
from onnxc.verify import Build, verify_model
from tests.memory_models import REAL, TEXTS
from tests.shared_suite import MODELS, model_shapes, open_sizes
from tests.toolchains import MACHINES

CHAIN = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[5, 8] x, int16[5] k, bool[5] b) => (float[5, 8] y, int16[5] n, bool[5] c) {
        e = Exp(x)
        s = CumSum(e, one)
        y = Softmax(s)
        n = Add(k, k)
        c = Not(b)
    }"""


def chain() -> onnx.ModelProto:
    model = onnx.parser.parse_model(CHAIN)
    one = onnx.helper.make_tensor("one", onnx.TensorProto.INT64, [], [1])
    model.graph.initializer.append(one)
    return model


def written(folder: Path, weights: str = "inline") -> Path:
    compiled = compile_model(chain(), name="chain", weights=weights)
    source = folder / "chain.c"
    with source.open("w", encoding="utf-8") as stream:
        compiled.write_c(stream)
    source.with_suffix(".h").write_text(compiled.header, encoding="utf-8")
    if compiled.has_weights_file:
        with source.with_suffix(".bin").open("wb") as binary:
            compiled.write_weights(binary)
    return source


@pytest.mark.parametrize(
    ("cc", "build"),
    [
        ("gcc", Build(cflags="-O0")),
        ("clang", Build(cflags="-O3 -march=native")),
        ("tcc", Build(guard=True)),
        ("gcc", Build(sanitize=True)),
        ("clang", Build(sanitize=True, guard=True)),
    ],
    ids=str,
)
def test_another_compiler(cc: str, build: Build, tool: Callable[[str], str]) -> None:
    build = Build(tool(cc), build.cflags, build.sanitize, build.runner, build.guard)
    result = verify_model(chain(), build=build)
    assert result.passed, result.to_json()
    assert result.build.startswith(f"{tool(cc)} -std=c99")


@pytest.mark.parametrize(("machine", "order"), MACHINES)
def test_another_machine(machine: str, order: str, tool: Callable[[str], str]) -> None:
    """Its byte order may be another than that of the files."""
    build = Build(tool(f"{machine}-linux-gnu-gcc"), "-O2 -static", runner=tool(f"qemu-{machine}"))
    result = verify_model(chain(), build=build, per_node=True)
    assert result.passed, result.to_json()
    assert result.nodes is not None
    assert "e" in {node.value for node in result.nodes.list}


@pytest.mark.parametrize("dtype", ELEMENT_TYPES, ids=str)
def test_every_type_passes_through_files(dtype: ElementType, tool: Callable[[str], str]) -> None:
    text = """<ir_version: 13, opset_import: ["" : 25]>
        m (float[3, 5] x) => (float[3, 5] y) { y = Identity(x) }"""
    model = onnx.parser.parse_model(text)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = dtype.code
    result = verify_model(model, against="reference", exact=True, build=Build(tool("gcc"), "-O0"))
    assert result.passed, result.to_json()


def test_a_size_that_the_data_decides(tool: Callable[[str], str]) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        m (float[4, 5] x) => (int64[2, n] y) { y = NonZero(x) }"""
    result = verify_model(onnx.parser.parse_model(text), build=Build(tool("gcc"), guard=True))
    assert result.passed, result.to_json()


@pytest.mark.parametrize("weights", ["file", "incbin"])
def test_weights_in_a_file(weights: str, tmp_path: Path, tool: Callable[[str], str]) -> None:
    source = written(tmp_path, weights)
    result = verify_model(chain(), c_source=source, build=Build(tool("gcc"), guard=True))
    assert result.passed, result.to_json()


def spoil(source: Path, pattern: str, replacement: str) -> None:
    text = source.read_text()
    changed = re.sub(pattern, replacement, text)
    assert changed != text
    source.write_text(changed)


def test_a_read_beyond_an_input_is_found(tmp_path: Path, tool: Callable[[str], str]) -> None:
    source = written(tmp_path)
    spoil(source, r"onnxc_exp_float\(a\[(\w+)\]\)", r"onnxc_exp_float(a[\1 + 1])")
    with pytest.raises(CrashError, match=r"ended with SIGSEGV on \w+ inputs, between guard pages"):
        verify_model(chain(), c_source=source, build=Build(tool("gcc"), guard=True))
    with pytest.raises(CrashError, match="heap-buffer-overflow"):
        verify_model(chain(), c_source=source, build=Build(tool("gcc"), sanitize=True))


RUN_FUNCTION = r"(\nonnxc_status chain_run\([^)]*\)\n\{)((?s:.*?))(\n    return ONNXC_OK;)"
LEFT = "const unsigned char left = *(const unsigned char *)workspace;"


@pytest.mark.parametrize(
    ("first", "last", "fact"),
    [
        (LEFT, "c[0] = left;", "depends on what the workspace held before"),
        ("", "((unsigned char *)workspace)[CHAIN_WORKSPACE_BYTES] = 0;", "guard pages"),
        ("((volatile unsigned char *)workspace)[-1] = 0;", "", "SIGSEGV"),
    ],
)
def test_guard_finds(
    first: str, last: str, fact: str, tmp_path: Path, tool: Callable[[str], str]
) -> None:
    """What was left in the workspace, a write right behind it, one before it."""
    source = written(tmp_path)
    spoil(source, RUN_FUNCTION, rf"\1\n    {first}\2\n    {last}\3")
    with pytest.raises(CrashError, match=fact):
        verify_model(chain(), c_source=source, build=Build(tool("gcc"), guard=True))


@pytest.mark.parametrize("name", TEXTS)
def test_the_stated_workspace_is_enough(name: str, tool: Callable[[str], str]) -> None:
    model = onnx.parser.parse_model(TEXTS[name])
    assert compile_model(model).workspace_size > 0
    result = verify_model(model, build=Build(tool("gcc"), "-O1", guard=True))
    assert result.passed, result.to_json()


@pytest.mark.parametrize("name", REAL)
def test_the_stated_workspace_of_real_models_is_enough(
    name: str, shared: Path, tool: Callable[[str], str]
) -> None:
    path = MODELS / name
    dims = open_sizes(onnx.load(path, load_external_data=False), model_shapes()[name])
    result = verify_model(path, dims=dims, build=Build(tool("gcc"), "-O1", guard=True))
    assert result.passed, result.to_json()


@pytest.mark.parametrize(
    ("build", "error", "fact"),
    [
        (Build(cc="no-such-compiler"), ToolError, "cannot be started"),
        (Build(cflags="-no-such-flag"), ToolError, "the C compiler failed"),
        (Build(runner="no-such-runner"), ToolError, "'no-such-runner' cannot be started"),
        (
            Build(runner="false"),
            ToolError,
            "'false' ended with status 1 and did not run",
        ),
        (Build(runner="true"), ToolError, "'true' ended with status 0 and did not run the program"),
        (Build(runner="""sh -c '"$@"; exit 1' -"""), CrashError, "the program ended with status 1"),
        (Build(cc="'gcc"), UsageError, "No closing quotation"),
    ],
)
def test_what_cannot_be_built_or_run(build: Build, error: type[Exception], fact: str) -> None:
    with pytest.raises(error, match=fact):
        verify_model(chain(), build=build)
