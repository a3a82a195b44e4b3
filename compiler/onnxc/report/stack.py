"""How deep the stack of a model's C gets, by gcc's own account: a call graph with bytes a function.

The C is compiled to assembly with -fcallgraph-info=su (gcc 10 and later), nothing is run. No
function of the C calls itself, so the deepest path is the bound. A call whose function is picked at
run time may be to any function of the file. What functions of the C library need, such as memcpy,
is not known to the compiler of their caller: they are named.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from onnxc.emit.interface import Banner
from onnxc.pipeline import Compiled, emit_program
from onnxc.report.text import count

LEVELS: Final = {"speed": "-O2", "size": "-Os"}
COMPILERS: Final[Mapping[str, tuple[str, ...]]] = {
    "aarch64": ("aarch64-linux-gnu-gcc",),
    "cortex-m4": (
        "arm-none-eabi-gcc --specs=picolibc.specs -mcpu=cortex-m4 -mthumb -mfpu=fpv4-sp-d16"
        " -mfloat-abi=hard",
        "arm-none-eabi-gcc -mcpu=cortex-m4 -mthumb -mfpu=fpv4-sp-d16 -mfloat-abi=hard",
    ),
}
"""Compilers of a target, the best first; of every other one it is what CC names, or cc or gcc."""
INDIRECT: Final = "__indirect_call"
LARGE: Final = 1 << 20
"""Bytes of constants that need not be read to know what the code does."""
_NODE: Final = re.compile(r'^node: \{ title: "([^"]+)" label: "([^"]*)"')
_EDGE: Final = re.compile(r'^edge: \{ sourcename: "([^"]+)" targetname: "([^"]+)"')
_BYTES: Final = re.compile(r"(\d+) bytes \((static|dynamic|dynamic,bounded|bounded)\)")


@dataclass(frozen=True)
class Frames:
    """One C file's functions: bytes of stack of those that it defines, and who calls whom."""

    bytes: Mapping[str, int]
    calls: Mapping[str, frozenset[str]]

    def outside(self) -> list[str]:
        """Functions that are called and not defined."""
        called = {name for names in self.calls.values() for name in names}
        return sorted(called - self.bytes.keys() - {INDIRECT})

    def deepest(self, entry: str) -> int:
        """Bytes from the call of `entry` to the end of the deepest path below it."""
        indirect = self._possible_targets()

        @functools.cache
        def depth(name: str) -> int:
            called = set(self.calls.get(name, ()))
            if INDIRECT in called:
                called = called - {INDIRECT} | indirect
            return self.bytes.get(name, 0) + max(map(depth, called), default=0)

        return depth(entry)

    def _possible_targets(self) -> frozenset[str]:
        """Functions that an indirect call may reach: those that call no function indirectly."""
        return frozenset(self.bytes) - {n for n, called in self.calls.items() if self._leads(n)}

    def _leads(self, name: str) -> bool:
        called = self.calls.get(name, frozenset())
        return INDIRECT in called or any(map(self._leads, called))


def frames(text: str) -> Frames:
    """What a .ci file of gcc says. Raises ValueError where a function's stack has no bound."""
    sizes: dict[str, int] = {}
    calls: dict[str, set[str]] = {}
    for line in text.splitlines():
        if node := _NODE.match(line):
            size = _BYTES.search(node[2])
            if size and size[2] == "dynamic":
                raise ValueError(f"the stack of {node[1]} has no bound")
            if size:
                sizes[node[1]] = int(size[1])
        elif edge := _EDGE.match(line):
            calls.setdefault(edge[1], set()).add(edge[2])
    return Frames(sizes, {name: frozenset(called) for name, called in calls.items()})


def measure(compiled: Compiled) -> dict[str, Any]:
    """{"bytes", "outside", "command"}, or {"reason"} where no compiler here can tell.

    bytes    of a call of <model>_run, its own frame too
    outside  functions of the C library that it calls, whose stack comes on top
    """
    compiled, target = _without_constants(compiled), compiled.program.target
    level = LEVELS["size" if target is not None and target.small else "speed"]
    reason = ""
    for command in _commands("generic" if target is None else target.name):
        words = [*shlex.split(command), "-std=c99", level]
        found, reason = _graph(words, compiled)
        if found is not None:
            entry = f"{compiled.name}_run"
            return {
                "bytes": found.deepest(entry),
                "outside": found.outside(),
                "command": shlex.join(words),
            }
    return {"reason": reason}


def line(found: Mapping[str, Any]) -> str:
    if "reason" in found:
        return f"stack: not known: {found['reason']}"
    outside = f", and that of {', '.join(found['outside'])}" if found["outside"] else ""
    return f"stack: at most {count(found['bytes'], 'byte')}{outside} [{found['command']}]"


def _without_constants(compiled: Compiled) -> Compiled:
    """The same code without many megabytes of numbers, which the assembler would read."""
    if compiled.constants_size < LARGE:
        return compiled
    banner = Banner(compiled.name, "", "", "", "")
    return emit_program(compiled.program, banner, "incbin")


def _commands(target: str) -> Iterator[str]:
    yield from COMPILERS.get(target, (os.environ.get("CC") or "cc", "gcc"))


def _graph(words: list[str], compiled: Compiled) -> tuple[Frames | None, str]:
    """The call graph, or why there is none."""
    if shutil.which(words[0]) is None:
        return None, f"{words[0]} was not found"
    with tempfile.TemporaryDirectory(prefix="onnxc-") as name:
        folder = Path(name)
        (folder / "model.h").write_text(compiled.header, encoding="utf-8")
        with (folder / "model.c").open("w", encoding="utf-8") as stream:
            compiled.write_c(stream, "model.h")
        flags = ["-fcallgraph-info=su", "-S", "model.c", "-o", "model.s"]
        done = subprocess.run([*words, *flags], cwd=folder, capture_output=True, check=False)
        graph = folder / "model.ci"
        if done.returncode or not graph.is_file():
            return None, f"{words[0]} gives no call graph (gcc 10 and later do)"
        return frames(graph.read_text(encoding="utf-8", errors="replace")), ""
