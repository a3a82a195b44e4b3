"""--profile: macros around the call of each kernel, nothing else; without it, nothing at all."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxc
from onnxc.kernel import Branch, Repeat
from onnxc.kernel_numbers import numbered
from onnxc.pipeline import Compiled, compile_model
from onnxc.verify.source import subject
from onnxc.verify.taps import write_tapped
from tests.command_line import onnxc as command
from tests.models import STRICT

HOSTILE = 'a"\\*/b??/\nc'
FLOAT = TensorProto.FLOAT
COUNT = """\
#include <stdio.h>
#include "net.h"
int depth, last = -1, calls[NET_KERNELS];
#define PRINT(number, function, nodes) printf("%d|%s|%s\\n", number, function, nodes);
int main(void)
{
    static float x[NET_INPUT_X_ELEMENTS], y[NET_OUTPUT_Y_ELEMENTS];
    static net_workspace workspace;
    if (net_run(x, y, &workspace) || depth)
        return 1;
    NET_KERNEL_LIST(PRINT)
    for (int k = 0; k < NET_KERNELS; k++)
        printf("%d\\n", calls[k]);
    return 0;
}
"""
HOOKS = """\
extern int depth, last, calls[];
#define NET_KERNEL_BEGIN(number) (depth++, last = (number))
#define NET_KERNEL_END(number) (depth--, calls[number] += last == (number))
"""


def model(nodes: list[onnx.NodeProto], shape: list[int]) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_tensor_value_info("y", FLOAT, shape)],
    )
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=9)


def chain() -> onnx.ModelProto:
    """Several kernels, one of whose nodes has a name that C would not bear."""
    nodes = [
        helper.make_node("Softmax", ["x"], ["s"], name=HOSTILE, axis=0),
        helper.make_node("CumSum", ["s", "axis"], ["c"], name="cumulate"),
        helper.make_node("Softmax", ["c"], ["y"], name="last", axis=1),
    ]
    proto = model(nodes, [3, 4])
    proto.graph.initializer.append(helper.make_tensor("axis", TensorProto.INT32, [], [0]))
    return proto


def loop(times: int = 5) -> onnx.ModelProto:
    """Kernels inside of a loop over time: of doubles, for which there is no kernel of its own."""
    nodes = [
        helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.DOUBLE),
        helper.make_node("RNN", ["wide", "w", "r"], ["", "z"], "recur", hidden_size=4),
        helper.make_node("Cast", ["z"], ["narrow"], to=FLOAT),
        helper.make_node("Expand", ["narrow", "shape"], ["y"]),
    ]
    proto = model(nodes, [times, 1, 4])
    for name in "wr":
        tensor = helper.make_tensor(name, TensorProto.DOUBLE, [1, 4, 4], [0.1] * 16)
        proto.graph.initializer.append(tensor)
    shape = helper.make_tensor("shape", TensorProto.INT64, [3], [times, 1, 4])
    proto.graph.initializer.append(shape)
    return proto


def written(compiled: Compiled, folder: Path) -> Path:
    source = folder / "net.c"
    source.write_text(compiled.c_source, encoding="ascii")
    (folder / "net.h").write_text(compiled.header, encoding="ascii")
    return source


def marks(text: str) -> list[tuple[str, int]]:
    """The hooks of a text in order."""
    return [(kind, int(n)) for kind, n in re.findall(r"_KERNEL_(BEGIN|END)\((\d+)\);", text)]


@pytest.mark.parametrize("proto", [chain(), loop()], ids=["chain", "loop"])
def test_every_call_is_between_the_hooks_of_its_number(proto: onnx.ModelProto) -> None:
    compiled = compile_model(proto, name="net", profile=True)
    numbers = numbered(compiled.program)
    calls = {n for step, n in numbers.items() if not isinstance(step, Branch | Repeat)}
    found = marks(compiled.body)
    assert found == [pair for n in sorted(calls) for pair in (("BEGIN", n), ("END", n))]
    lines = compiled.body.splitlines()
    for place, line in enumerate(lines):
        if "_KERNEL_BEGIN(" in line:
            assert "_KERNEL_END(" in lines[place + 2], "one statement in between"
    assert f"#define NET_KERNELS {len(numbers)}\n" in compiled.header
    assert compiled.module.calls.keys() == {s for s, n in numbers.items() if n in calls}


def test_without_it_nothing_shows() -> None:
    compiled = compile_model(chain(), name="net")
    assert "KERNEL_" not in compiled.body + compiled.header
    assert compiled.c_source == compile_model(chain(), name="net", profile=False).c_source


def test_with_it_hooks_and_banner_are_all_that_differs() -> None:
    """And a program links both, as the interface is the same."""
    off, on = (compile_model(chain(), name="net", profile=p) for p in (False, True))
    assert re.sub(r" *NET_KERNEL_(BEGIN|END)\(\d+\);\n", "", on.body) == off.body
    assert "Options: --profile." in on.header
    assert re.findall("0x.{8}u", on.header)[0] == re.findall("0x.{8}u", off.header)[0]


def test_undefined_hooks_cost_nothing(tmp_path: Path, tool: Callable[[str], str]) -> None:
    """The same object file, to the byte."""
    objects = []
    for number, profile in enumerate((False, True)):
        folder = tmp_path / str(number)
        folder.mkdir()
        written(compile_model(chain(), name="net", profile=profile), folder)
        command = [tool("gcc"), "-std=c99", "-O2", "-c", "net.c", "-o", "net.o"]
        subprocess.run(command, cwd=folder, check=True)
        objects.append((folder / "net.o").read_bytes())
    assert objects[0] == objects[1]


@pytest.mark.parametrize("compiler", ["gcc", "clang", "tcc"])
def test_the_strict_compilers_take_it(
    compiler: str, tmp_path: Path, tool: Callable[[str], str]
) -> None:
    source = written(compile_model(loop(), name="net", profile=True), tmp_path)
    flags = ["-std=c99", *(["-Wall"] if compiler == "tcc" else STRICT)]
    output = ["-c", str(source), "-o", str(tmp_path / "net.o")]
    subprocess.run([tool(compiler), *flags, *output], check=True)


def test_the_header_is_cpp(tmp_path: Path, tool: Callable[[str], str]) -> None:
    compiled = compile_model(chain(), name="net", profile=True)
    written(compiled, tmp_path)
    names = '#include "net.h"\n#define NAME(n, f, nodes) nodes,\n'
    names += "const char *const names[] = {NET_KERNEL_LIST(NAME)};\n"
    (tmp_path / "user.cpp").write_text(names, encoding="ascii")
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-c"]
    subprocess.run([tool("g++"), *flags, "user.cpp", "-o", "user.o"], cwd=tmp_path, check=True)


@pytest.mark.parametrize("compiler", ["gcc", "tcc"])
def test_hooks_see_each_call_and_the_list_names_the_kernels(
    compiler: str, tmp_path: Path, tool: Callable[[str], str]
) -> None:
    for name, proto in (("chain", chain()), ("loop", loop(5))):
        folder = tmp_path / name
        folder.mkdir()
        compiled = compile_model(proto, name="net", profile=True)
        written(compiled, folder)
        (folder / "hooks.h").write_text(HOOKS, encoding="ascii")
        (folder / "main.c").write_text(COUNT, encoding="ascii")
        built = [tool(compiler), "-std=c99", "-include", "hooks.h", "net.c", "main.c"]
        subprocess.run([*built, "-o", "program", "-lm"], cwd=folder, check=True)
        printed = subprocess.run(["./program"], cwd=folder, capture_output=True, check=True)
        lines = printed.stdout.decode("ascii").splitlines()
        numbers = numbered(compiled.program)
        rows = [line.split("|") for line in lines[: len(numbers)]]
        assert [int(number) for number, _, _ in rows] == [*range(len(numbers))]
        functions = {n: compiled.module.calls.get(step, "") for step, n in numbers.items()}
        assert {int(number): function for number, function, _ in rows} == functions
        calls = [int(line) for line in lines[len(numbers) :]]
        inside = [row[2].endswith(": the state") for row in rows]
        expected = [
            0 if not function else 5 if within else 1
            for within, (_, function, _) in zip(inside, rows, strict=True)
        ]
        assert calls == expected


def test_hostile_names_stay_text() -> None:
    """Inside of a string literal, on lines that are not too long."""
    header = compile_model(chain(), name="net", profile=True).header
    listed = header[header.index("#define NET_KERNEL_LIST(X)") :]
    assert r"Softmax-13 'a\"\\u005c\\u002a/b?\\u003f/\\u000ac'" in listed
    assert all(len(line) < 100 for line in header.splitlines())
    assert header.isascii()


def test_the_command_line_and_python_have_it(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(chain(), path)
    command(path, "-o", tmp_path / "net.c", "--profile", "-q", cwd=tmp_path)
    header = (tmp_path / "net.h").read_text(encoding="ascii")
    assert header == onnxc.compile(path, name="net", profile=True).header


def test_verify_knows_the_file_by_its_banner(tmp_path: Path) -> None:
    """And looks between its kernels as between those of any other."""
    path = tmp_path / "net.onnx"
    onnx.save(chain(), path)
    source = tmp_path / "net.c"
    compiled = onnxc.compile(path, name="net", profile=True)
    compiled.save(source)
    checked = subject(path, source, {}, {})
    assert checked.compiled.header == compiled.header
    folder = tmp_path / "tapped"
    folder.mkdir()
    tapped = write_tapped(checked, folder)
    assert {tap.name for tap in tapped.inner} == {"s", "c"}


def test_results_are_the_same_with_hooks(tool: Callable[[str], str]) -> None:
    tool("cc")
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    off, on = (onnxc.compile(chain(), profile=p).run({"x": x})["y"] for p in (False, True))
    assert off.tobytes() == on.tobytes()
