"""Running the command line in tests, as users have it.

ONNXC names the command to test, "/path/to/onnxc" of a virtual environment; by default it is this
Python's onnxc.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import onnx

from onnxc.diagnostics import Kind

COMMAND = shlex.split(os.environ.get("ONNXC", "")) or [sys.executable, "-m", "onnxc"]
PYTHON = str(Path(COMMAND[0]).with_name("python")) if len(COMMAND) == 1 else sys.executable
"""The Python that has that onnxc: beside the command, where it is a path."""
CC = shlex.split(os.environ.get("CC", "cc"))

EQUAL = """
<ir_version: 8, opset_import: ["" : 19]>
equal (float[2, 3] x, float[3] y) => (bool[2, 3] z) { z = Equal(x, y) }
"""
OPEN = """
<ir_version: 8, opset_import: ["" : 19]>
open (float[batch, 3] x, float["a b", 1] y) => (bool[N, 3] z) { z = Equal(x, y) }
"""


def onnxc(
    *arguments: str | Path, cwd: Path, status: int = 0, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs one command, which must end with `status`."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd,
        env=os.environ | environment,
        text=True,
        capture_output=True,
        errors="surrogateescape",
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done


def uncoded(text: str) -> str:
    """Messages without the codes of their errors, which must all exist."""
    for number in re.findall(r"^error\[ONNXC(\d{4})\]: ", text, re.MULTILINE):
        Kind(int(number))
    return re.sub(r"^error\[ONNXC\d{4}\]: ", "error: ", text, flags=re.MULTILINE)


def save(text: str, path: Path) -> Path:
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}
