"""The compilers and emulators of the portability tests, and how a test runs them."""

import shlex
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

SANITIZED: Final = shlex.split(
    "-std=c99 -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all"
)
MACHINES: Final = [
    ("s390x", "big-endian"),
    ("aarch64", "little-endian"),
    ("riscv64", "little-endian"),
]
STRICT_COMPILERS: Final = ["gcc", "clang", "arm-none-eabi-gcc --specs=picolibc.specs"]

Tool = Callable[[str], str]


def run(command: Sequence[str | Path], folder: Path) -> str:
    """The standard output of a command; its messages are shown when it fails."""
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, f"{command[0]}:\n{result.stdout[-2000:]}{result.stderr[:8000]}"
    return result.stdout


def run_on(
    machine: str, order: str, files: Sequence[Path], tool: Tool, folder: Path, *options: str
) -> str:
    """What a program prints on another machine, of which the byte order is checked.

    `options` of gcc, the libraries too.
    """
    compiler, emulator = tool(f"{machine}-linux-gnu-gcc"), tool(f"qemu-{machine}")
    macro = f"__ORDER_{order.replace('-', '_').upper()}__"
    (folder / "order.c").write_text(
        f"typedef char order[__BYTE_ORDER__ == {macro} ? 1 : -1];\n", encoding="ascii"
    )
    flags = ["-std=c99", "-O2", "-static", "-o", "program"]
    run([compiler, *flags, "order.c", *files, *options], folder)
    return run([emulator, folder / "program"], folder)
