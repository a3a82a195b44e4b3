"""Fuzzes the generated C of small models with libFuzzer under ASan and UBSan.

    python -m tests.fuzz.generated_c --seconds 60 --seed 1 [NAME ...]

For any bits in the inputs, and in the workspace, a run must read and write only what it was
given and do nothing undefined. NAME is a model of fuzzed_models. Ends with status 1 where there
was a finding; libFuzzer's report is printed, and the input that shows it is left in --save.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from onnxc.pipeline import Compiled, Interface, compile_model
from tests.fuzz.fuzzed_models import fuzzed_models

HERE: Final = Path(__file__).parent
SANITIZE: Final = (
    *("-std=c99", "-D_POSIX_C_SOURCE=200809L", "-O1", "-g"),
    "-fsanitize=fuzzer,address,undefined,float-cast-overflow",
    "-fno-sanitize-recover=all",
)


@dataclass(frozen=True)
class Report:
    """`finding` is libFuzzer's report, "" where there was nothing to report."""

    runs: int
    features: int
    seconds: float
    finding: str


def harness(compiled: Compiled) -> str:
    """The C of the fuzz target; harness.h has what all have in common."""
    name = compiled.name
    rows = [_row("input", f"in_{n}", value) for n, value in enumerate(compiled.inputs)]
    arguments = [f"(const void *)in_{n}.data" for n in range(len(compiled.inputs))]
    for n, value in enumerate(compiled.outputs):
        rows.append(_row("output", f"out_{n}", value))
        arguments.append(f"(void *)out_{n}.data")
        if value.actual is not None:
            rows.append(_row("output", f"out_{n}_shape", value.actual))
            arguments.append(f"(void *)out_{n}_shape.data")
    arguments.append(f"({name}_workspace *)workspace.data")
    workspace = f"{name.upper()}_WORKSPACE_BYTES, 1, 1, {name.upper()}_WORKSPACE_ALIGNMENT"
    checks = [line for n, v in enumerate(compiled.outputs) for line in _checks(f"out_{n}", v)]
    own = [row.partition(" = ")[0].removeprefix("static part ") for row in rows]
    return "\n".join(
        [
            f'#include "{name}.h"',
            '#include "harness.h"',
            "",
            *rows,
            f"static part workspace = {{BYTES, {workspace}, NULL}};",
            "",
            "int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)",
            "{",
            "    source from = begin(data, size);",
            *(f"    fill(&{part}, &from);" for part in own if part.startswith("in_")),
            *(f"    spoil(&{part}, &from);" for part in own if part.startswith("out_")),
            "    spoil(&workspace, &from);",
            f"    const onnxc_status status = {name}_run({', '.join(arguments)});",
            "    used += (unsigned)status;",
            *(f"    {line}" for line in checks),
            *(f"    release(&{part});" for part in own if part.startswith("in_")),
            "    return 0;",
            "}",
            "",
        ]
    )


def _row(direction: str, variable: str, value: Interface) -> str:
    """The definition of a tensor: kind, bytes, size of a number, numbers, alignment."""
    elements = math.prod(value.shape)
    dtype = value.dtype
    if dtype.kind == "string":
        return (
            f"static part {variable} = {{STRINGS, {elements} * sizeof(onnxc_string), "
            f"sizeof(onnxc_string), {elements}, sizeof(void *), NULL}};"
        )
    size = 1 if dtype.packed else dtype.size // (2 if dtype.kind == "complex" else 1)
    count = dtype.packed_bytes(elements)
    kinds = {"signed": "INTEGERS", "unsigned": "INTEGERS", "bool": "INTEGERS"}
    kind = "BYTES" if dtype.packed else kinds.get(dtype.kind, "BYTES")
    if dtype.name in ("float", "double"):
        kind = "FLOATS"
    return f"static part {variable} = {{{kind}, {count}, {size}, {count // size}, {size}, NULL}};"


def _checks(variable: str, value: Interface) -> list[str]:
    """Every string that comes out can be read; an actual shape is within the declared one."""
    lines = []
    if value.actual is not None:
        extents = ", ".join(map(str, value.shape))
        lines.append(f"check_shape(&{variable}_shape, (const int64_t[]){{{extents}}});")
    if value.dtype.kind == "string":
        shape = "NULL" if value.actual is None else f"&{variable}_shape"
        lines.append(f"read_strings(&{variable}, {shape});")
    return lines


def build(compiled: Compiled, folder: Path, clang: str) -> Path:
    """The fuzzer of a model."""
    name = compiled.name
    (folder / f"{name}.h").write_text(compiled.header, encoding="ascii")
    (folder / f"{name}.c").write_text(compiled.c_source, encoding="ascii")
    (folder / "fuzz.c").write_text(harness(compiled), encoding="ascii")
    program = folder / f"fuzz_{name}"
    sources = [f"{name}.c", "fuzz.c", f"-I{HERE}", "-lm", "-o", str(program)]
    subprocess.run([clang, *SANITIZE, *sources], cwd=folder, check=True)
    return program


def fuzz(program: Path, seed: int, seconds: int, runs: int = -1) -> Report:
    """Runs a fuzzer without a corpus until the time or the number of runs is spent."""
    limits = [f"-seed={seed}", f"-max_total_time={seconds}", f"-runs={runs}"]
    others = ["-max_len=2048", "-len_control=0", "-timeout=20", "-detect_leaks=0"]
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}  # of the buffers, made once
    begin = time.monotonic()
    done = subprocess.run(
        [program, *limits, *others],
        cwd=program.parent,
        env=environment,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    counts = re.findall(r"^#(\d+)\s.* ft: (\d+)", done.stderr, re.MULTILINE)
    number, features = counts[-1] if counts else ("0", "0")
    finding = done.stderr[-6000:] if done.returncode else ""
    return Report(int(number), int(features), time.monotonic() - begin, finding)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seconds", type=int, default=60, help="for each model")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clang", default="clang")
    parser.add_argument("--save", type=Path, help="folder for C and input where there is a finding")
    options = parser.parse_args(arguments)
    findings = 0
    for name, model in fuzzed_models().items():
        if options.names and name not in options.names:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            folder = options.save / name if options.save else Path(scratch)
            folder.mkdir(parents=True, exist_ok=True)
            program = build(compile_model(model, name="m"), folder, options.clang)
            report = fuzz(program, options.seed, options.seconds)
        speed = report.runs / max(report.seconds, 0.001)
        print(f"{name:48} {report.runs:9,} runs {speed:8,.0f}/s {report.features:6,} features")
        if report.finding:
            findings += 1
            print(report.finding)
    return int(findings > 0)


if __name__ == "__main__":
    sys.exit(main())
