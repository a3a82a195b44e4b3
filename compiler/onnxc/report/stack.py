"""How deep the stack of a model's C gets, by gcc's own account: a call graph with bytes a function.

The C is compiled with -fcallgraph-info=su (gcc 10 and later), nothing is run. No function
of the C calls itself, so the deepest path is the bound. A call whose function is picked at run time
may be to any function of the file. What functions of the C library need, such as memcpy, is not
known to the compiler of their caller: they are named.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from onnxc.pipeline import Compiled
from onnxc.report.build import Built, build, commands, is_asked_for
from onnxc.report.text import count

INDIRECT: Final = "__indirect_call"
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
    target, reason = compiled.program.target, ""
    for command in commands("generic" if target is None else target.name):
        built = build(compiled, command)
        found = bound(compiled, built)
        if "reason" not in found:
            return found
        reason = found["reason"]
        if is_asked_for(command) and built.sections is None:
            break
    return {"reason": reason}


def bound(compiled: Compiled, built: Built) -> dict[str, Any]:
    """As `measure`, of what one compiler made of the C."""
    if not built.graph:
        unable = f"{built.words[0]} gives no call graph (gcc 10 and later do)"
        return {"reason": unable if built.sections is not None else built.reason}
    found = frames(built.graph)
    return {
        "bytes": found.deepest(f"{compiled.name}_run"),
        "outside": found.outside(),
        "command": built.command,
    }


def text(found: Mapping[str, Any]) -> str:
    """What `measure` says, for people."""
    if "reason" in found:
        return f"not known: {found['reason']}"
    outside = f", and that of {', '.join(found['outside'])}" if found["outside"] else ""
    return f"at most {count(found['bytes'], 'byte')}{outside} [{found['command']}]"
