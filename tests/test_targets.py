"""--target and --optimize: what the C for a microcontroller holds, and how much of it there is."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import onnxc
from onnxc.errors import UsageError
from onnxc.kernel import Micro
from onnxc.pipeline import Compiled, compile_model
from onnxc.target import OPTIMIZE, TARGETS
from tests.command_line import onnxc as command
from tests.models import STRICT, model

M4: Final = "--specs=picolibc.specs -mcpu=cortex-m4 -mthumb -mfpu=fpv4-sp-d16 -mfloat-abi=hard"
MOST_STACK: Final = 1024
LAYERS: Final[list[tuple[tuple[int, ...], dict[str, Any]]]] = [
    ((8, 3, 3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
    ((8, 1, 3, 3), {"pads": [1, 1, 1, 1], "group": 8}),
    ((14, 8, 1, 1), {}),
    ((14, 1, 3, 3), {"pads": [0, 0, 1, 1], "strides": [2, 2], "group": 14}),
    ((9, 14, 3, 3), {}),
]


def network() -> ModelProto:
    """Convolutions of each kind, a pool, a Gemm and a softmax."""
    generator = np.random.default_rng(0)
    weights, nodes, last = {}, [], "x"
    for n, (shape, attributes) in enumerate(LAYERS):
        weights[f"w{n}"] = generator.standard_normal(shape) / np.prod(shape[1:]) ** 0.5
        weights[f"b{n}"] = generator.standard_normal(shape[0])
        nodes.append(helper.make_node("Conv", [last, f"w{n}", f"b{n}"], [f"c{n}"], **attributes))
        nodes.append(helper.make_node("Relu", [f"c{n}"], [f"r{n}"]))
        last = f"r{n}"
    weights["g"], weights["h"] = generator.standard_normal((9, 30)), generator.standard_normal(30)
    nodes += [
        helper.make_node("GlobalAveragePool", [last], ["pool"]),
        helper.make_node("Flatten", ["pool"], ["flat"]),
        helper.make_node("Gemm", ["flat", "g", "h"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["y"], axis=1),
    ]
    told = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "network",
        [told("x", TensorProto.FLOAT, [1, 3, 21, 18])],
        [told("y", TensorProto.FLOAT, [1, 30])],
        [numpy_helper.from_array(w.astype(np.float32), name) for name, w in weights.items()],
    )
    return model(graph)


def built(compiled: Compiled, compiler: str, folder: Path, *flags: str) -> Path:
    """The object file, beside it the use of the stack."""
    (folder / "model.h").write_text(compiled.header, encoding="ascii")
    (folder / "model.c").write_text(compiled.c_source, encoding="ascii")
    words = [compiler, *M4.split(), *STRICT, *flags, "-fstack-usage", "-c", "model.c"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[:4000]
    return folder / "model.o"


def text_bytes(built: Path, tool: Callable[[str], str]) -> int:
    listing = subprocess.check_output([tool("arm-none-eabi-size"), "-A", built], text=True)
    return sum(int(line.split()[1]) for line in listing.splitlines() if line[:5] == ".text")


@pytest.mark.parametrize("optimize", OPTIMIZE)
def test_nothing_of_x86_is_in_c_for_a_microcontroller(optimize: str) -> None:
    compiled = compile_model(network(), target="cortex-m4", optimize=optimize)
    assert any(isinstance(step, Micro) for step in compiled.program.steps)
    assert not re.search(r"avx|sse|x86|cpu_supports|vector_size|target\(", compiled.body, re.I)


@pytest.mark.parametrize(("optimize", "level"), [("speed", "-O2"), ("size", "-Os")])
def test_strict_c_with_a_bounded_stack(
    optimize: str, level: str, tmp_path: Path, tool: Callable[[str], str]
) -> None:
    compiled = compile_model(network(), target="cortex-m4", optimize=optimize)
    built(compiled, tool("arm-none-eabi-gcc"), tmp_path, level)
    usage = [line.split("\t") for line in (tmp_path / "model.su").read_text().splitlines()]
    assert all(kind == "static" for _, _, kind in usage)
    assert max(int(size) for _, size, _ in usage) <= MOST_STACK


def test_layers_share_code_for_size(tmp_path: Path, tool: Callable[[str], str]) -> None:
    sizes = {}
    for optimize in OPTIMIZE:
        compiled = compile_model(network(), target="cortex-m4", optimize=optimize)
        made = built(compiled, tool("arm-none-eabi-gcc"), tmp_path, "-Os")
        sizes[optimize] = text_bytes(made, tool)
    assert sizes["size"] < sizes["speed"] / 2


def test_padding_takes_no_memory_on_a_microcontroller() -> None:
    """The most that lives at once is what the third convolution reads and writes."""
    compiled = compile_model(network(), target="cortex-m4")
    assert 0 <= compiled.workspace_size - 4 * (8 + 14) * 11 * 9 < 64


@pytest.mark.parametrize("optimize", OPTIMIZE)
@pytest.mark.parametrize("target", TARGETS)
def test_every_target_gives_the_same_values(target: str, optimize: str) -> None:
    x = {"x": np.random.default_rng(1).standard_normal((1, 3, 21, 18)).astype(np.float32)}
    found = onnxc.compile(network(), target=target, optimize=optimize).run(x)["y"]
    wanted = onnxc.compile(network()).run(x)["y"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)


def test_what_is_no_target_is_refused() -> None:
    with pytest.raises(UsageError, match="target='m4': give one of generic, x86-64, aarch64, "):
        onnxc.compile(network(), target="m4")
    with pytest.raises(UsageError, match="optimize='fast': give one of speed, size"):
        onnxc.compile(network(), optimize="fast")


def test_the_banner_says_which(tmp_path: Path) -> None:
    onnx.save(network(), tmp_path / "m.onnx")
    command("m.onnx", "--target", "cortex-m4", "--optimize", "size", cwd=tmp_path)
    header = (tmp_path / "m.h").read_text(encoding="ascii")
    assert "Options: --target cortex-m4 --optimize size." in header
    command("m.onnx", "--target", "generic", "--optimize", "speed", cwd=tmp_path)
    assert "Options: none." in (tmp_path / "m.h").read_text(encoding="ascii")


def test_each_choice_is_told(tmp_path: Path) -> None:
    onnx.save(network(), tmp_path / "m.onnx")
    told = command("m.onnx", "-v", "--target", "cortex-m4", cwd=tmp_path).stderr.splitlines()
    lines = {
        line.split("'")[1]: line.partition("): ")[2] or line.partition("': ")[2]
        for line in told
        if line.startswith("  ") and "'" in line
    }
    assert lines["c0"].startswith("windows_scalar, 6 x 4 floats; the sums of a tile stay")
    assert lines["c1"].startswith("depthwise_scalar, 3 x 3 floats; each lane has a filter")
    assert lines["pool"] == "plain loops; no sum of products of floats"
