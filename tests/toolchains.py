"""The compilers and emulators of the portability tests, and how a test runs them."""

import shlex
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
EMULATORS: Final = {"i686": "qemu-i386"}
"""Those that have another name than the machine."""
STRICT_COMPILERS: Final = ["gcc", "clang", "arm-none-eabi-gcc --specs=picolibc.specs"]


@dataclass(frozen=True)
class Core:
    """A Cortex-M, in a machine of QEMU that runs its code.

    flags  of gcc
    code   where it has memory for code, `size` bytes, and `data` where 4 MB for data
    far    where else it has memory, if the other is not large enough for constants
    """

    name: str
    machine: str
    flags: str
    code: str = "0"
    size: str = "4M"
    data: str = "0x20000000"
    far: str = ""

    def __str__(self) -> str:
        return self.name


CORES: Final = [
    Core("M0", "mps2-an385", "-mcpu=cortex-m0"),
    Core("M3", "mps2-an385", "-mcpu=cortex-m3"),
    Core("M4", "mps2-an386", "-mcpu=cortex-m4 -mfpu=fpv4-sp-d16 -mfloat-abi=hard"),
    Core("M7", "mps2-an500", "-mcpu=cortex-m7 -mfpu=fpv5-d16 -mfloat-abi=hard"),
    Core(
        "M33", "mps2-an505", "-mcpu=cortex-m33 -mfloat-abi=hard", "0x10000000", "4M", "0x38000000"
    ),
    Core(
        "M55",
        "mps3-an547",
        "-mcpu=cortex-m55 -mfloat-abi=hard",
        size="512k",
        data="0x21000000",
        far="0x60000000",
    ),
]

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
    emulator = tool(EMULATORS.get(machine, f"qemu-{machine}"))
    compiler = tool(f"{machine}-linux-gnu-gcc")
    macro = f"__ORDER_{order.replace('-', '_').upper()}__"
    (folder / "order.c").write_text(
        f"typedef char order[__BYTE_ORDER__ == {macro} ? 1 : -1];\n", encoding="ascii"
    )
    flags = ["-std=c99", "-O2", "-static", "-o", "program"]
    run([compiler, *flags, "order.c", *files, *options], folder)
    return run([emulator, folder / "program"], folder)


def run_on_core(
    core: Core, files: Sequence[Path], tool: Tool, folder: Path, *options: str | Path
) -> str:
    """What a program prints on a Cortex-M, with picolibc; `options` of gcc, the libraries too."""
    compiler, emulator = tool("arm-none-eabi-gcc"), tool("qemu-system-arm")
    places = {
        "flash": core.code,
        "flash_size": core.size,
        "ram": core.data,
        "ram_size": "4M",
        "stack_size": "8k",
    }
    linked = [f"-Wl,--defsym=__{name}={value}" for name, value in places.items()]
    linked += [f"-Wl,--section-start=.far={core.far}"] if core.far else []
    system = shlex.split("--specs=picolibc.specs --crt0=hosted --oslib=semihost -T picolibc.ld")
    flags = shlex.split(f"-std=c99 -O2 -mthumb {core.flags} -ffunction-sections -Wl,--gc-sections")
    run([compiler, *system, *flags, *linked, "-o", "program.elf", *files, *options], folder)
    console = (
        "-chardev stdio,id=console -semihosting-config enable=on,target=native,chardev=console"
    )
    quiet = "-nographic -monitor none -serial none"
    command = [emulator, "-M", core.machine, *shlex.split(f"{quiet} {console}")]
    return run([*command, "-kernel", folder / "program.elf"], folder)
