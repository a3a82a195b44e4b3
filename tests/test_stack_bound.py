"""The stack bound that `onnxc info` shows: gcc's account, and what a painted stack measures."""

from __future__ import annotations

import math
import shlex
from pathlib import Path

import onnx
import pytest

from onnxc.pipeline import Compiled, compile_model
from onnxc.report import build, stack
from tests.memory_models import TEXTS
from tests.toolchains import Tool, run

GRAPH = """
graph: { title: "m.c"
node: { title: "m.c:small" label: "small\\nm.c:1:1\\n8 bytes (static)" }
node: { title: "m.c:large" label: "large\\nm.c:2:1\\n300 bytes (static)" }
node: { title: "memcpy" label: "__builtin_memcpy\\n<built-in>" shape : ellipse }
edge: { sourcename: "m.c:small" targetname: "memcpy" }
node: { title: "m_run" label: "m_run\\nm.c:3:1\\n40 bytes (static)" }
node: { title: "__indirect_call" label: "Indirect Call Placeholder" shape : ellipse }
edge: { sourcename: "m_run" targetname: "m.c:small" label: "m.c:4:5" }
"""
INDIRECT = 'edge: { sourcename: "m_run" targetname: "__indirect_call" label: "m.c:5:5" }\n'

MAIN = """
#include <stdint.h>
#include <stdio.h>

#include "model.h"

enum { WORDS = 1500 };

{arrays}
static model_workspace workspace;

/* Bytes below this function's own frame that the run wrote to. */
static int depth(void)
{
    uintptr_t pointer;
    volatile uint32_t *below;
    int n;

    __asm volatile("mov %0, sp" : "=r"(pointer));
    below = (volatile uint32_t *)pointer;
    for (n = 1; n <= WORDS; n++)
        below[-n] = 0xA5C35A3Cu;
    if ({call} != ONNXC_OK)
        return -1;
    for (n = WORDS; n > 0 && below[-n] == 0xA5C35A3Cu; n--)
        ;
    return 4 * n;
}

int main(void)
{
    printf("%d\\n", depth());
    return 0;
}
"""
PADDING = 8
"""Bytes that frames of 8-byte alignment have and nothing writes to: paint stays on them."""
LINK = shlex.split(
    "--crt0=hosted --oslib=semihost -T picolibc.ld -Wl,--defsym=__flash=0"
    " -Wl,--defsym=__flash_size=4M -Wl,--defsym=__ram=0x20000000 -Wl,--defsym=__ram_size=4M"
    " -Wl,--defsym=__stack_size=8k"
)
MACHINE = shlex.split(
    "-M mps2-an386 -nographic -monitor none -serial none -chardev stdio,id=console"
    " -semihosting-config enable=on,target=native,chardev=console -kernel"
)


def test_the_deepest_path_counts() -> None:
    found = stack.frames(GRAPH)
    assert found.deepest("m_run") == 48
    assert found.outside() == ["memcpy"]


def test_an_indirect_call_may_reach_every_function() -> None:
    assert stack.frames(GRAPH + INDIRECT).deepest("m_run") == 340


def test_a_stack_without_a_bound_is_no_number() -> None:
    with pytest.raises(ValueError, match="has no bound"):
        stack.frames(GRAPH.replace("300 bytes (static)", "300 bytes (dynamic)"))


def test_without_a_compiler_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    compiled = compile_model(onnx.parser.parse_model(TEXTS["sorting"]), name="model")
    assert stack.measure(compiled) == {"reason": "gcc was not found"}


def painted(compiled: Compiled, command: str, level: str, folder: Path) -> int:
    """Bytes of stack that one run takes on an emulated Cortex-M4."""
    ports = [*compiled.inputs, *compiled.outputs]
    types = {"float": "float", "int64": "int64_t"}
    arrays = [f"static {types[p.dtype.name]} {p.c_name}[{math.prod(p.shape)}];" for p in ports]
    call = f"model_run({', '.join(port.c_name for port in ports)}, &workspace)"
    text = MAIN.replace("{arrays}", "\n".join(arrays)).replace("{call}", call)
    (folder / "main.c").write_text(text, encoding="ascii")
    (folder / "model.h").write_text(compiled.header, encoding="ascii")
    (folder / "model.c").write_text(compiled.c_source, encoding="ascii")
    flags = ["-std=gnu99", level, "main.c", "model.c", *LINK, "-lm", "-o", "model.elf"]
    run([*shlex.split(command), *flags], folder)
    return int(run(["qemu-system-arm", *MACHINE, "model.elf"], folder))


@pytest.mark.parametrize("goal", build.LEVELS)
@pytest.mark.parametrize("name", TEXTS)
def test_a_painted_stack_on_a_cortex_m4(name: str, goal: str, tmp_path: Path, tool: Tool) -> None:
    for program in ("arm-none-eabi-gcc", "qemu-system-arm"):
        tool(program)
    model = onnx.parser.parse_model(TEXTS[name])
    compiled = compile_model(model, name="model", target="cortex-m4", optimize=goal)
    found = stack.measure(compiled)
    command = build.COMPILERS["cortex-m4"][0]
    measured = painted(compiled, command, build.LEVELS[goal], tmp_path)
    assert found["bytes"] - PADDING <= measured <= found["bytes"]
