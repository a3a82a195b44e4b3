"""The generated C on other compilers and machines: no warning, the same values, no hidden state."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxc.dtypes import BY_CODE
from onnxc.pipeline import Compiled, compile_model
from tests.models import STRICT
from tests.portable_models import LARGE_CONSTANTS, write_models
from tests.portable_program import Call, program
from tests.toolchains import MACHINES, SANITIZED, STRICT_COMPILERS, Tool, run, run_on


@dataclass(frozen=True)
class Sources:
    """A folder with NAME.c and NAME.h of every model.

    program.c runs them all, save the one with large constants: that has large_program.c.
    """

    folder: Path
    models: list[Compiled]

    @property
    def c_files(self) -> list[Path]:
        return [self.folder / f"{model.name}.c" for model in self.models]

    @property
    def program(self) -> list[Path]:
        large = self.folder / f"{LARGE_CONSTANTS}.c"
        return [self.folder / "program.c", *(path for path in self.c_files if path != large)]

    @property
    def large_program(self) -> list[Path]:
        return [self.folder / "large_program.c", self.folder / f"{LARGE_CONSTANTS}.c"]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    folder = tmp_path_factory.mktemp("portability")
    models = [compile_model(path) for path in write_models(folder)]
    for model in models:
        (folder / f"{model.name}.h").write_text(model.header, encoding="ascii")
        with (folder / f"{model.name}.c").open("w", encoding="ascii") as stream:
            model.write_c(stream)
    large = [model for model in models if model.name == LARGE_CONSTANTS]
    others = [model for model in models if model.name != LARGE_CONSTANTS]
    (folder / "program.c").write_text(program(map(Call, others)), encoding="ascii")
    (folder / "large_program.c").write_text(program(map(Call, large)), encoding="ascii")
    (folder / "portable.h").write_bytes(Path(__file__).with_name("portable.h").read_bytes())
    return Sources(folder, models)


@pytest.fixture(scope="module")
def expected(sources: Sources, tool: Tool, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the program prints on this machine, built by gcc without optimisation."""
    folder = tmp_path_factory.mktemp("host")
    run([tool("gcc"), "-std=c99", "-O0", *sources.program, "-o", "program"], folder)
    return run([folder / "program"], folder)


def test_the_models_are_what_the_tests_need(sources: Sources) -> None:
    names = [model.name for model in sources.models]
    assert any(model.workspace_size for model in sources.models)
    assert names[-3:] == ["foo", "foo_run_m", "NULL_m"]


def test_every_model_runs_with_either_workspace(sources: Sources, expected: str) -> None:
    names = [model.name for model in sources.models if model.name != LARGE_CONSTANTS]
    calls = expected.split("\n-- ")[1:]
    for name, own, static in zip(names, calls[::2], calls[1::2], strict=True):
        assert own.startswith(f"{name} 0\n")
        assert own.rstrip() == static.rstrip()


@pytest.mark.parametrize("level", ["-O0", "-O2", "-O3"])
@pytest.mark.parametrize("compiler", STRICT_COMPILERS)
def test_no_warning(
    compiler: str, level: str, sources: Sources, tool: Tool, tmp_path: Path
) -> None:
    """Of the C files, which include their headers first; on arm, where size_t has 32 bits, too."""
    program, *options = compiler.split()
    run([tool(program), *options, *STRICT, level, "-c", *sources.c_files], tmp_path)


def test_tcc(sources: Sources, expected: str, tool: Tool, tmp_path: Path) -> None:
    run([tool("tcc"), "-Wall", "-Werror", *sources.program, "-o", "program"], tmp_path)
    assert run([tmp_path / "program"], tmp_path) == expected


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_optimised(
    compiler: str, sources: Sources, expected: str, tool: Tool, tmp_path: Path
) -> None:
    run([tool(compiler), "-std=c99", "-O3", *sources.program, "-o", "program"], tmp_path)
    assert run([tmp_path / "program"], tmp_path) == expected


def test_sanitizers_find_nothing(
    sources: Sources, expected: str, tool: Tool, tmp_path: Path
) -> None:
    run([tool("gcc"), *SANITIZED, *sources.program, "-o", "program"], tmp_path)
    assert run([tmp_path / "program"], tmp_path) == expected


MISALIGNED = """
#include "m.h"

int main(void)
{
    static m_workspace workspace[3];
    static const uint8_t x[200];
    uint8_t y[200];
    int bad = m_run(x, x, y, NULL) != ONNXC_MISALIGNED_WORKSPACE;

    for (int n = 0; n <= M_WORKSPACE_ALIGNMENT; n++) {
        onnxc_status wanted = n % M_WORKSPACE_ALIGNMENT ? ONNXC_MISALIGNED_WORKSPACE : ONNXC_OK;

        bad += m_run(x, x, y, (m_workspace *)(void *)(workspace->bytes + n)) != wanted;
    }
    return bad;
}
"""


def test_a_misaligned_workspace_is_no_undefined_behaviour(tool: Tool, tmp_path: Path) -> None:
    nodes = [
        onnx.helper.make_node("Equal", ["a", "b"], ["t"]),
        onnx.helper.make_node("Equal", ["t", "a"], ["y"]),
    ]
    a, b, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.BOOL, [200]) for n in "aby")
    graph = onnx.helper.make_graph(nodes, "g", [a, b], [y])
    compiled = compile_model(onnx.helper.make_model(graph), name="m", plain=True)
    assert compiled.workspace_size > 64
    (tmp_path / "m.c").write_text(compiled.c_source, encoding="ascii")
    (tmp_path / "m.h").write_text(compiled.header, encoding="ascii")
    (tmp_path / "main.c").write_text(MISALIGNED, encoding="ascii")
    run([tool("gcc"), *SANITIZED, "main.c", "m.c", "-o", "program"], tmp_path)
    run([tmp_path / "program"], tmp_path)


@pytest.mark.parametrize(("machine", "order"), MACHINES)
def test_other_machines_print_the_same(
    machine: str, order: str, sources: Sources, expected: str, tool: Tool, tmp_path: Path
) -> None:
    assert run_on(machine, order, sources.program, tool, tmp_path) == expected


def printed_constants(path: Path) -> list[str]:
    """The lines that the program must print of a model whose outputs are initializers."""
    lines = []
    for data in onnx.load(path).graph.initializer:
        if data.data_type == onnx.TensorProto.STRING:
            values = [f"{len(text)}:{text.hex()}" for text in data.string_data]
        else:
            bits = BY_CODE[data.data_type].bits
            bits //= 2 if BY_CODE[data.data_type].kind == "complex" else 1
            raw = np.frombuffer(data.raw_data, f"<u{max(bits, 8) // 8}")
            values = [f"{value:x}" for value in raw]
        lines.append(" ".join([f"{data.name}:", *values]))
    return lines


def test_small_constants(sources: Sources, expected: str) -> None:
    found = expected.split("-- constants 0\n")[1].split("\n--")[0]
    assert found.splitlines() == printed_constants(sources.folder / "constants.onnx")


@pytest.mark.parametrize(
    ("compiler", "emulator"),
    [
        *(("gcc", ""), ("clang", ""), ("tcc", ""), (f"gcc {' '.join(SANITIZED)}", "")),
        ("aarch64-linux-gnu-gcc -static", "qemu-aarch64"),
    ],
)
def test_large_constants(
    compiler: str, emulator: str, sources: Sources, tool: Tool, tmp_path: Path
) -> None:
    name, *options = compiler.split()
    run([tool(name), *options, *sources.large_program, "-o", "program"], tmp_path)
    start = [tool(emulator)] if emulator else []
    lines = run([*start, tmp_path / "program"], tmp_path).splitlines()[1:]
    expected = printed_constants(sources.folder / f"{LARGE_CONSTANTS}.onnx")
    status = f"-- {LARGE_CONSTANTS} 0"
    assert lines == [status, *expected, status, *expected]


def test_large_constants_refuse_a_big_endian_target(
    sources: Sources, tool: Tool, tmp_path: Path
) -> None:
    command = [tool("s390x-linux-gnu-gcc"), "-c", f"{sources.folder / LARGE_CONSTANTS}.c"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode != 0
    assert "are for little-endian targets" in result.stderr


@pytest.mark.parametrize("standard", ["c++11", "c++17"])
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_headers_in_one_cpp_file(
    compiler: str, standard: str, sources: Sources, tool: Tool, tmp_path: Path
) -> None:
    """Each header twice, in both orders, and a call of a C function from C++."""
    names = [model.name for model in sources.models]
    includes = "".join(f'#include "{name}.h"\n' for name in names + names[::-1])
    source = f"""{includes}
int main()
{{
    const float x[FOO_INPUT_A0_ELEMENTS] = {{}}, y[FOO_INPUT_B0_ELEMENTS] = {{}};
    uint8_t equal[FOO_OUTPUT_C0_ELEMENTS];
    static foo_workspace workspace;
    return foo_run(x, y, equal, &workspace) == ONNXC_OK && equal[0] == 1 ? 0 : 1;
}}
"""
    (tmp_path / "main.cpp").write_text(source, encoding="ascii")
    run([tool("gcc"), "-std=c99", "-c", sources.folder / "foo.c"], tmp_path)
    warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wundef", "-Werror"]
    command = [tool(compiler), f"-std={standard}", *warnings, f"-I{sources.folder}"]
    run([*command, "main.cpp", "foo.o", "-o", "main"], tmp_path)
    run([tmp_path / "main"], tmp_path)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_each_header_alone(compiler: str, sources: Sources, tool: Tool, tmp_path: Path) -> None:
    for model in sources.models:
        (tmp_path / f"use_{model.name}.c").write_text(
            f'#include "{model.name}.h"\n', encoding="ascii"
        )
    files = sorted(tmp_path.glob("use_*.c"))
    run([tool(compiler), *STRICT, f"-I{sources.folder}", "-fsyntax-only", *files], tmp_path)


def symbols(sources: Sources, tool: Tool, folder: Path, *flags: str) -> dict[str, set[str]]:
    """What nm shows of each model, as "kind name". Constants with pointers are read-only data
    only where the code need not be moved, hence -fno-pie."""
    run([tool("gcc"), "-std=c99", "-O2", "-fno-pie", *flags, "-c", *sources.c_files], folder)
    found = {}
    for model in sources.models:
        listing = run([tool("nm"), "-P", folder / f"{model.name}.o"], folder)
        found[model.name] = {" ".join(line.split()[1::-1]) for line in listing.splitlines()}
    return found


def test_symbols(sources: Sources, tool: Tool, tmp_path: Path) -> None:
    """Two functions, no malloc or other library than mem*, no variable but the workspace.

    __cpu_model, of the compiler's own library, tells what the processor has.
    """
    memory = {f"U {name}" for name in ("memcmp", "memcpy", "memmove", "memset", "__cpu_model")}
    for name, found in symbols(sources, tool, tmp_path).items():
        outside = {symbol for symbol in found if symbol[0].isupper()} - memory
        assert outside == {f"T {name}_run", f"T {name}_run_static"}
        variables = {symbol for symbol in found if symbol[0] in "bdsgBDSGC"}
        assert len(variables) <= 1
        assert all("workspace" in symbol for symbol in variables)


def test_symbols_without_a_static_workspace(sources: Sources, tool: Tool, tmp_path: Path) -> None:
    flags = [f"-D{model.name.upper()}_NO_STATIC_WORKSPACE" for model in sources.models]
    for name, found in symbols(sources, tool, tmp_path, *flags).items():
        assert {symbol for symbol in found if symbol[0] in "TWV"} == {f"T {name}_run"}
        assert not {symbol for symbol in found if symbol[0] in "bdsgBDSGC"}
