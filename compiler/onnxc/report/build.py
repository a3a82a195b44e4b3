"""A model's C as an object file, by the compilers of a target: its sections and its call graph.

Nothing is linked and nothing is run. Of a model with many megabytes of constants the large ones are
only declared: a compiler would need minutes for them, and their size is known.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from onnxc.emit.literals import Constant
from onnxc.emit.text import wrapped
from onnxc.pipeline import Compiled
from onnxc.report.text import printable

LEVELS: Final = {"speed": "-O2", "size": "-Os"}
_M4: Final = "-mcpu=cortex-m4 -mthumb -mfpu=fpv4-sp-d16 -mfloat-abi=hard"
COMPILERS: Final[Mapping[str, tuple[str, ...]]] = {
    "aarch64": ("aarch64-linux-gnu-gcc",),
    "cortex-m4": (
        f"arm-none-eabi-gcc --specs=picolibc.specs {_M4}",
        f"arm-none-eabi-gcc {_M4}",
    ),
    "riscv64": ("riscv64-linux-gnu-gcc", "riscv64-unknown-elf-gcc"),
}
"""Compilers of a target or place, the best first; of every other: what CC names, or cc, or gcc."""
LARGE: Final = 1 << 20
"""Bytes of all constants from which on the large ones are only declared."""
OUTSIDE_FROM: Final = 4096
"""Bytes of such a large one."""
KINDS: Final = {
    "text": re.compile(r"\.(text|init|fini)\b"),
    "rodata": re.compile(r"\.(rodata|data\.rel\.ro|srodata)\b"),
    "data": re.compile(r"\.s?data\b"),
    "bss": re.compile(r"\.s?bss\b|COMMON"),
}
"""What the sections of an object file are for; the first that matches."""
_COMPILER: Final = re.compile(r"(gcc|clang|cc)(-[0-9.]+)?$")
PATIENCE: Final = 600.0
"""Seconds that a C compiler may take."""
SAID: Final = 200
"""Characters of what a compiler says."""


@dataclass(frozen=True)
class Built:
    """What a compiler made of the C, or why it made nothing.

    words     the command without the files
    sections  bytes by the words of KINDS, those of constants that were only declared too; None
              where there is no object
    graph     what gcc says of functions, their stack and calls; "" of other compilers
    """

    words: tuple[str, ...]
    sections: Mapping[str, int] | None = None
    graph: str = ""
    reason: str = ""

    @property
    def command(self) -> str:
        return shlex.join(self.words)


def commands(target: str) -> Iterator[str]:
    yield from COMPILERS.get(target, (os.environ.get("CC") or "cc", "gcc"))


def is_asked_for(command: str) -> bool:
    """Whether it is what CC names: where that makes no object, no other compiler stands in."""
    return command == os.environ.get("CC")


def build(compiled: Compiled, command: str) -> Built:
    """Compiles the C, optimised for what the model was compiled for, with one compiler."""
    target = compiled.program.target
    level = LEVELS["size" if target is not None and target.small else "speed"]
    try:
        words = (*shlex.split(command), "-std=c99", level)
    except ValueError as error:
        return Built((command,), reason=f"{command} is no command line: {error}")
    if shutil.which(words[0]) is None:
        return Built(words, reason=f"{words[0]} was not found")
    outside = large_constants(compiled)
    with tempfile.TemporaryDirectory(prefix="onnxc-") as name:
        folder = Path(name)
        (folder / "model.h").write_text(compiled.header, encoding="utf-8")
        (folder / "model.c").write_text(_source(compiled, outside), encoding="utf-8")
        said = _compiled([*words, "-fcallgraph-info=su"], folder)
        if said is not None:
            said = _compiled(words, folder)
        if said is not None:
            return Built(words, reason=f"{words[0]} failed: {said}")
        graph = folder / "model.ci"
        text = graph.read_text(encoding="utf-8", errors="replace") if graph.is_file() else ""
        sections, reason = _sections(words[0], folder)
    if sections is not None:
        sections["rodata"] += sum(constant.buffer.bytes for constant in outside)
    return Built(words, sections, text, reason)


def large_constants(compiled: Compiled) -> tuple[Constant, ...]:
    """The constants that need not be read to know what the code does."""
    if compiled.constants_size < LARGE:
        return ()
    inline = (c for c in compiled.module.constants if c.form != "outside")
    return tuple(c for c in inline if c.buffer.bytes >= OUTSIDE_FROM)


def _source(compiled: Compiled, outside: Sequence[Constant]) -> str:
    """The C without the definitions of some constants, which are then another file's."""
    left = {id(constant) for constant in outside}
    inside = tuple(c for c in compiled.module.constants if id(c) not in left)
    stream = io.StringIO()
    replace(compiled.module, constants=inside).write_c(stream, "model.h")
    text = stream.getvalue()
    for constant in outside:
        declared = wrapped(f"static const {constant.declaration};")
        elsewhere = declared.replace("static const", "extern const", 1)
        hidden = '__attribute__((visibility("hidden")));'
        assert declared in text
        text = text.replace(declared, f"{elsewhere[:-1]} {hidden}", 1)
    return text


def _compiled(words: Sequence[str], folder: Path) -> str | None:
    """None where there is an object; else what the compiler says first."""
    command = [*words, "-c", "model.c", "-o", "model.o"]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, check=False, timeout=PATIENCE
        )
    except OSError as error:
        return str(error.strerror)
    except subprocess.TimeoutExpired:
        return f"it took more than {PATIENCE:.0f} s"
    if done.returncode == 0 and (folder / "model.o").is_file():
        return None
    said = done.stderr.decode(errors="replace").strip().splitlines()
    errors = [line for line in said if "error" in line] or said
    return printable(errors[0])[:SAID] if errors else f"status {done.returncode}"


def _sections(compiler: str, folder: Path) -> tuple[dict[str, int] | None, str]:
    """The sections by what they are for, as the `size` that belongs to the compiler counts them."""
    own = _COMPILER.sub("size", compiler)
    tool = next((name for name in (own, "size", "llvm-size") if shutil.which(name)), None)
    if tool is None:
        return None, f"{own} was not found"
    done = subprocess.run(
        [tool, "-A", "-d", "model.o"], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        return None, f"{tool} failed: {printable(done.stderr.strip())[:SAID]}"
    found = sections_of(done.stdout)
    return (found, "") if found["text"] else (None, f"{tool} tells nothing of its sections")


def sections_of(text: str) -> dict[str, int]:
    """Of what `size -A` prints; unwind tables, notes and the like count nowhere."""
    found = dict.fromkeys(KINDS, 0)
    for line in text.splitlines():
        words = line.split()
        if len(words) == 3 and words[1].isdigit():
            kind = next((kind for kind, names in KINDS.items() if names.match(words[0])), None)
            if kind is not None:
                found[kind] += int(words[1])
    return found
