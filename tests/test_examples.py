"""Each example runs as its README says: `make run`, in a copy of its folder."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.command_line import COMMAND, PYTHON

EXAMPLES = Path(__file__).parents[1] / "examples"
CROSS_TOOLS = ["arm-none-eabi-gcc", "arm-none-eabi-size", "qemu-system-arm"]
KEYPAD = "build/keypad.o"
HELLO = """\
x[0] == 0: 1 0 0 0 0
x[0] == 1: 0 1 0 0 0
x[0] == 2: 0 0 1 0 0
x[0] == 3: 0 0 0 1 0
x[1] == 0: 0 0 0 0 0
x[1] == 1: 1 1 0 0 0
x[1] == 2: 0 0 1 0 0
x[1] == 3: 0 0 0 1 0
x[2] == 0: 0 0 0 1 1
x[2] == 1: 0 0 0 0 0
x[2] == 2: 0 0 0 0 0
x[2] == 3: 0 0 0 0 0
"""


def make_run(name: str, folder: Path, target: str = "run") -> tuple[str, str]:
    """What `make run` prints in a copy of the example, made in `folder`, and what on stderr."""
    copy = folder / name
    folder.mkdir(exist_ok=True)
    shutil.copytree(EXAMPLES / name, copy, ignore=shutil.ignore_patterns("build", "__pycache__"))
    command = [
        "make",
        "--no-print-directory",
        target,
        f"PYTHON={PYTHON}",
        f"ONNXC={shlex.join(COMMAND)}",
    ]
    result = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout, result.stderr


def test_every_example_is_tested_and_documented() -> None:
    folders = {entry.name for entry in EXAMPLES.iterdir() if entry.is_dir()}
    assert folders - {"__pycache__"} == {"hello", "cortex_m", "python_verify"}
    for name in folders - {"__pycache__"}:
        assert "make run" in (EXAMPLES / name / "README.md").read_text(encoding="utf-8")


def test_hello(tool: Callable[[str], str], tmp_path: Path) -> None:
    tool("make")
    assert make_run("hello", tmp_path)[0].endswith(HELLO)


def test_cortex_m(tool: Callable[[str], str], tmp_path: Path) -> None:
    for name in ["make", *CROSS_TOOLS]:
        tool(name)
    lines = make_run("cortex_m", tmp_path)[0].splitlines()
    assert lines[-2:] == ["workspace: 0 bytes", "code 141421 is number 2"]
    sizes = next(fields for line in lines if (fields := line.split())[5:] == [KEYPAD])
    text, data, bss = map(int, sizes[:3])
    assert (data, bss) == (0, 0)
    assert text < 1024


def test_cortex_m_counts_the_instructions_of_each_kernel(
    tool: Callable[[str], str], tmp_path: Path
) -> None:
    """Exactly: the same in every run, and less than those of the whole program."""
    for name in ["make", "cc", *CROSS_TOOLS]:
        tool(name)
    runs = []
    for folder in ("once", "again"):
        printed, counted = make_run("cortex_m", tmp_path / folder, "kernels")
        names = re.findall(r"^kernel (\d+) is (\w+): (.*)$", printed, re.MULTILINE)
        assert [(number, nodes) for number, _, nodes in names] == [
            ("0", "Equal-19 'compare'"),
            ("1", "Cast-19 'ones', ReduceSum-13 'count'"),
        ]
        assert printed.endswith("code 141421 is number 2\n")
        kernel = r"^kernel (\d+): (\d+) instructions, (\d+) call$"
        kernels = [tuple(map(int, found)) for found in re.findall(kernel, counted, re.MULTILINE)]
        assert [(number, calls) for number, _, calls in kernels] == [(0, 1), (1, 1)]
        total = int(counted.rpartition("instructions=")[2])
        assert all(0 < instructions < total for _, instructions, _ in kernels)
        assert sum(instructions for _, instructions, _ in kernels) < total
        runs.append((kernels, total))
    assert runs[0] == runs[1]


def test_python_verify(tool: Callable[[str], str], tmp_path: Path) -> None:
    tool("make")
    output, _ = make_run("python_verify", tmp_path)
    assert "same: bool[2, 3]" in output
    assert "[[False  True False]\n [False False  True]]" in output
