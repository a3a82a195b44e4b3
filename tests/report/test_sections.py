"""What C compilers say of the code: its sections and its stack."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxc.kernel import ALIGNMENT
from onnxc.pipeline import Compiled, compile_model
from onnxc.report import build, facts, sections, stack
from tests.memory_models import TEXTS
from tests.models import model, stored
from tests.report.facts_checks import valid
from tests.toolchains import Tool

SIZES = """
m.o  :
section           size   addr
.text              100      0
.text.run           20      0
.data                4      0
.bss                64      0
.rodata.cst4         8      0
.rodata            300      0
.data.rel.ro.local  16      0
.comment            40      0
.eh_frame          200      0
.sbss                2      0
Total              754
"""


def large(elements: int) -> Compiled:
    """A matrix of so many constants; it is large for build.LARGE bytes."""
    graph = onnx.parser.parse_graph(
        f"m (float[1, {elements // 256}] x) => (float[1, 256] y) {{ y = MatMul(x, w) }}"
    )
    values = np.random.default_rng(4).standard_normal((elements // 256, 256), np.float32)
    graph.initializer.append(stored("w", values))
    return compile_model(model(graph), name="model")


def test_sections_by_what_they_are_for() -> None:
    assert build.sections_of(SIZES) == {"text": 120, "rodata": 324, "data": 4, "bss": 66}


@pytest.mark.parametrize("name", TEXTS)
def test_an_object_of_the_host(name: str, tool: Tool) -> None:
    compiled = compile_model(onnx.parser.parse_model(TEXTS[name]), name="model")
    built = build.build(compiled, tool("gcc"))
    assert built.sections is not None
    assert built.sections["text"] > 100
    assert 0 <= built.sections["bss"] - compiled.workspace_size < ALIGNMENT
    assert built.sections["rodata"] >= compiled.constants_size
    assert "model_run" in built.graph


def test_clang_tells_sections_but_no_stack(tool: Tool) -> None:
    compiled = compile_model(onnx.parser.parse_model(TEXTS["sorting"]), name="model")
    built = build.build(compiled, tool("clang"))
    assert built.sections is not None
    assert built.graph == ""


def test_large_constants_are_added(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code is as large without them, but for how a compiler reaches them."""
    compiled, command = large(1 << 16), tool("gcc")
    whole = build.build(compiled, command)
    monkeypatch.setattr(build, "LARGE", 1 << 17)
    assert len(build.large_constants(compiled)) == 1
    without = build.build(compiled, command)
    assert whole.sections is not None
    assert without.sections is not None
    assert without.sections["rodata"] == pytest.approx(whole.sections["rodata"], rel=0.001)
    assert without.sections["text"] == pytest.approx(whole.sections["text"], rel=0.001)


def test_a_compiler_that_is_not_there_is_a_reason() -> None:
    compiled = compile_model(onnx.parser.parse_model(TEXTS["sorting"]), name="model")
    assert build.build(compiled, "no-such-gcc").reason == "no-such-gcc was not found"
    assert build.build(compiled, "gcc '").reason.startswith("gcc ' is no command line")


def test_a_compiler_that_fails_is_a_reason(tmp_path: Path) -> None:
    compiler = tmp_path / "failing-gcc"
    compiler.write_text("#!/bin/sh\necho 'model.c:1: error: no' >&2\nexit 1\n", encoding="ascii")
    compiler.chmod(0o755)
    compiled = compile_model(onnx.parser.parse_model(TEXTS["sorting"]), name="model")
    reason = build.build(compiled, str(compiler)).reason
    assert reason == f"{compiler} failed: model.c:1: error: no"


def test_every_place_has_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    found = facts.facts(facts.subject(onnx.parser.parse_model(TEXTS["sorting"])))
    valid(found)
    assert [entry["target"] for entry in found["sections"]] == [*sections.PLACES]
    assert [entry["reason"] for entry in found["sections"]] == [
        "gcc was not found",
        "arm-none-eabi-gcc was not found",
        "aarch64-linux-gnu-gcc was not found",
        "riscv64-unknown-elf-gcc was not found",
    ]
    assert found["summary"]["stack"] == {"reason": "gcc was not found"}


def test_the_code_is_that_of_the_target(tool: Tool) -> None:
    tool("arm-none-eabi-gcc")
    subject = facts.subject(onnx.parser.parse_model(TEXTS["convolutions"]), target="cortex-m4")
    found = facts.facts(subject)
    valid(found)
    by_place = {entry["target"]: entry for entry in found["sections"]}
    assert by_place["cortex-m4"]["compiled_for"] == "cortex-m4"
    assert 0 <= by_place["cortex-m4"]["bss"] - subject.compiled.workspace_size < ALIGNMENT
    assert by_place["host"]["compiled_for"] == "generic"
    assert found["summary"]["stack"]["command"].startswith("arm-none-eabi-gcc")


def test_no_other_compiler_stands_in_for_the_one_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CC", "false")
    compiled = large(1 << 8)
    places, bound = sections.measure(compiled, "generic", lambda _: compiled)
    host = next(entry for entry in places if entry["target"] == "host")
    assert host["reason"] == "false failed: status 1"
    assert bound == {"reason": "false failed: status 1"}
    assert stack.measure(compiled) == bound
