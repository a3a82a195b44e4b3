"""The C of small models under libFuzzer: some thousand inputs each, and that it sees a fault."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from onnxc.pipeline import Compiled, compile_model
from tests.fuzz.fuzzed_models import BACKEND, WRITTEN, fuzzed_models
from tests.fuzz.generated_c import build, fuzz
from tests.malformed import parse

RUNS = 4000
TARGET = """
int LLVMFuzzerTestOneInput(const unsigned char *data, unsigned long size);
int LLVMFuzzerTestOneInput(const unsigned char *data, unsigned long size)
{
    (void)data, (void)size;
    return 0;
}
"""
SECONDS = 2
"""At most; of most models 4000 runs take a tenth of one."""


@pytest.fixture(scope="module")
def clang(tool: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """With the library of libFuzzer, which .ci/run installs."""
    path = tool("clang")
    folder = tmp_path_factory.mktemp("clang")
    (folder / "t.c").write_text(TARGET)
    command = [path, "-fsanitize=fuzzer,address", "t.c", "-o", "t"]
    if subprocess.run(command, cwd=folder, check=False).returncode != 0:
        reason = "clang has no libFuzzer (.ci/run lists the packages)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return path


def finding(compiled: Compiled, folder: Path, clang: str) -> str:
    return fuzz(build(compiled, folder, clang), seed=1, seconds=SECONDS, runs=RUNS).finding


@pytest.mark.parametrize("name", [*BACKEND.split(), *WRITTEN])
def test_any_input(name: str, clang: str, tmp_path: Path) -> None:
    compiled = compile_model(fuzzed_models()[name], name="m")
    assert finding(compiled, tmp_path, clang) == ""


SPOILT = {
    "an element too many is read": ("i < 8", "i < 9", "heap-buffer-overflow"),
    "an element too many is written": ("out[i]", "out[i + 1]", "heap-buffer-overflow"),
    "an integer overflows": ("+ 1.0f", "+ (float)(2147483647 + (int)a[i])", "runtime error"),
    "a cast overflows": ("+ 1.0f", "+ (float)(int)a[i]", "outside the range of representable"),
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_fault_is_found(name: str, clang: str, tmp_path: Path) -> None:
    """Of the C of an addition, changed as a fault of onnxc could."""
    text = "g (float[8] x) => (float[8] y) <float c = {1}> { y = Add (x, c) }"
    compiled = compile_model(parse(text), name="m", plain=True)
    old, new, report = SPOILT[name]
    body = compiled.module.body
    assert body.count(old) == 1
    spoilt = replace(compiled, module=replace(compiled.module, body=body.replace(old, new)))
    assert report in finding(spoilt, tmp_path, clang)
