"""No function of the generated C needs more than 1 KiB of stack, as gcc counts it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from onnxc.pipeline import Compiled, compile_model
from tests.memory_models import REAL, TEXTS, real_model

MOST = 1024


def stack_usage(compiled: Compiled, folder: Path, compiler: str) -> dict[str, int]:
    """Bytes by function, spilled registers too; of those that -O2 has not inlined."""
    (folder / "model.h").write_text(compiled.header, encoding="utf-8")
    with (folder / "model.c").open("w", encoding="utf-8") as stream:
        compiled.write_c(stream, "model.h")
    command = [compiler, "-std=c99", "-O2", "-fstack-usage", "-c", "model.c", "-o", "model.o"]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert built.returncode == 0, built.stderr[:4000]
    found = {}
    for line in (folder / "model.su").read_text(encoding="utf-8").splitlines():
        place, size, kind = line.split("\t")
        name = place.rpartition(":")[2]
        assert kind in ("static", "dynamic,bounded"), f"{name} has no bound"
        found[name] = int(size)
    return found


def check(compiled: Compiled, folder: Path, compiler: str) -> None:
    found = stack_usage(compiled, folder, compiler)
    assert "model_run" in found
    assert {name: size for name, size in found.items() if size > MOST} == {}


@pytest.mark.parametrize("name", TEXTS)
def test_small_models(name: str, tmp_path: Path, tool: Callable[[str], str]) -> None:
    compiled = compile_model(onnx.parser.parse_model(TEXTS[name]), name="model")
    check(compiled, tmp_path, tool("gcc"))


@pytest.mark.parametrize("name", REAL)
def test_real_models(name: str, tmp_path: Path, tool: Callable[[str], str], shared: Path) -> None:
    check(real_model(name), tmp_path, tool("gcc"))
