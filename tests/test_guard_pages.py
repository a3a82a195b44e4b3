"""<MODEL>_WORKSPACE_BYTES bytes are enough: a run with pages around them that nothing may touch.

The workspace lies right behind a page without access, then right before one. Bytes that alignment
leaves between its end and that page must stay as they are.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from onnxc.pipeline import Compiled, Interface, compile_model
from tests.memory_models import REAL, TEXTS, real_model

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="mmap and mprotect as Linux has them"
)

GARBAGE = 0xA5

DRIVER = """
#define _DEFAULT_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "model.h"

{storage}

static unsigned long run(unsigned char *workspace)
{{
    unsigned long sum = (unsigned long)model_run({arguments}, (void *)workspace);
{sums}
    return sum;
}}

int main(void)
{{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t room = (MODEL_WORKSPACE_BYTES + page - 1) / page * page;
    unsigned char *const whole = mmap(
        NULL, room + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (whole == MAP_FAILED || mprotect(whole, page, PROT_NONE) != 0
        || mprotect(whole + page + room, page, PROT_NONE) != 0)
        return 2;
    unsigned char *const first = whole + page;
    unsigned char *const last = first
        + (room - MODEL_WORKSPACE_BYTES) / MODEL_WORKSPACE_ALIGNMENT * MODEL_WORKSPACE_ALIGNMENT;
    memset(first, {garbage}, room);
    const unsigned long one = run(first);
    memset(first, {garbage}, room);
    const unsigned long other = run(last);
    for (const unsigned char *p = last + MODEL_WORKSPACE_BYTES; p < first + room; p++)
        if (*p != {garbage})
            return 3;
    return one == other ? 0 : 4; /* the status and the outputs */
}}
"""


def driver(compiled: Compiled) -> str:
    """Every input holds bytes of any kind: there is no input for which a run may go astray."""
    storage, arguments, sums = [], [], []
    for number, value in enumerate(compiled.inputs):
        content = ", ".join(str((k * 37 + number) % 251) for k in range(min(size_of(value), 997)))
        storage.append(f"{declared(f'in{number}', value)} = {{{{{content}}}}};")
        arguments.append(f"(const void *)in{number}.bytes")
    outputs = [v for o in compiled.outputs for v in (o, o.actual) if v is not None]
    for number, value in enumerate(outputs):
        storage.append(f"{declared(f'out{number}', value)};")
        arguments.append(f"(void *)out{number}.bytes")
        sums.append(
            f"    for (size_t k = 0; k < sizeof out{number}.bytes; k++)\n"
            f"        sum = sum * 31 + out{number}.bytes[k];"
        )
    return DRIVER.format(
        storage="\n".join(storage),
        arguments=", ".join(arguments),
        sums="\n".join(sums),
        garbage=GARBAGE,
    )


def declared(name: str, value: Interface) -> str:
    return f"static union {{ unsigned char bytes[{size_of(value)}]; double d; }} {name}"


def size_of(value: Interface) -> int:
    return max(1, value.dtype.packed_bytes(math.prod(value.shape)))


def check(compiled: Compiled, folder: Path, compiler: str) -> None:
    (folder / "model.h").write_text(compiled.header, encoding="utf-8")
    with (folder / "model.c").open("w", encoding="utf-8") as stream:
        compiled.write_c(stream, "model.h")
    (folder / "driver.c").write_text(driver(compiled), encoding="utf-8")
    command = [compiler, "-std=c99", "-O1", "-o", "driver", "driver.c", "model.c", "-lm"]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert built.returncode == 0, built.stderr[:4000]
    ran = subprocess.run(folder / "driver", capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, f"exit status {ran.returncode}"


@pytest.mark.parametrize("name", TEXTS)
def test_small_models(name: str, tmp_path: Path, tool: Callable[[str], str]) -> None:
    compiled = compile_model(onnx.parser.parse_model(TEXTS[name]), name="model")
    assert compiled.workspace_size > 0
    check(compiled, tmp_path, tool("gcc"))


@pytest.mark.parametrize("name", REAL)
def test_real_models(name: str, tmp_path: Path, tool: Callable[[str], str], shared: Path) -> None:
    check(real_model(name), tmp_path, tool("gcc"))
