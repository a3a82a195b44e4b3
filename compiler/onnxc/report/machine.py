"""What this machine can do at most: products, memory and functions, a second.

Measured by a C program with the very instructions that generated C has here: the vector words of
the templates, in the variant that a run would pick.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from onnxc.emit.text import render, wrapped
from onnxc.emit.tuned import in_variant, section
from onnxc.report.profile import build, compiler, run_program
from onnxc.resources import runtime_functions, runtime_text
from onnxc.target import TARGETS
from onnxc.tuned.product import FUNCTIONS

SIZES: Final = tuple(kib << 10 for kib in (16, 64, 256, 1024, 2048, 4096, 8192, 32768, 98304))
"""Working sets of the bandwidths, in bytes."""
MEASURED: Final = frozenset({*FUNCTIONS, "div", "sqrt"})
"""Functions of a float that have a rate."""
KERNELS: Final = ("peak_", "read_", "write_", "copy_", "of_")
"""What the names of the measured functions start with."""


@dataclass(frozen=True)
class Bandwidth:
    """Bytes a second over a working set of so many: read, written, and moved (both, by a copy)."""

    bytes: int
    read: float
    write: float
    copy: float


@dataclass(frozen=True)
class Machine:
    """Rates a second.

    lanes      floats of a vector of the variant that runs here
    macs       multiply-accumulates, by arithmetic: float32, float64, int8
    memory     bandwidths, the smallest working set first
    functions  elements, by function of a float
    """

    lanes: int
    macs: Mapping[str, float]
    memory: Sequence[Bandwidth]
    functions: Mapping[str, float]

    def bandwidth(self, size: float) -> Bandwidth:
        """Over a working set of `size` bytes: of the largest measured one that is no larger."""
        fitting = (known for known in self.memory if known.bytes <= size)
        return max(fitting, key=lambda known: known.bytes, default=self.memory[0])

    def facts(self) -> dict[str, Any]:
        """As a report has it."""
        return {
            "macs_per_second": dict(self.macs),
            "bytes_per_second": [
                {"bytes": m.bytes, "rate": m.read, "write": m.write, "copy": m.copy}
                for m in self.memory
            ],
            "functions_per_second": dict(self.functions),
        }


def machine(functions: Iterable[str] = ()) -> Machine:
    """Of this machine, with these functions of MEASURED; measured once a process for the same.

    Raises NotMeasuredError where there is no compiler, or what it builds does not run.
    """
    return _machine(tuple(sorted(MEASURED.intersection(functions))))


@cache
def _machine(functions: tuple[str, ...]) -> Machine:
    command = compiler()
    with tempfile.TemporaryDirectory(prefix="onnxc-machine-") as name:
        folder = Path(name)
        source = folder / "machine.c"
        source.write_text(program(functions), encoding="utf-8")
        return parsed(run_program([build(command, folder, [str(source)])]))


def program(functions: Sequence[str]) -> str:
    """The C program that measures."""
    target = TARGETS["generic"]
    sections, chains = [], []
    for variant in reversed(target.variants):
        chains.append(24 if variant.registers >= 32 else 12)
        values = {"chains": chains[-1], "dot": bool(variant.dot), "functions": functions}
        text = render("machine_kernels.c.j2", **values)
        named = in_variant(text, variant, KERNELS)
        sections.append(section(["\n".join(map(wrapped, named.split("\n")))], variant))
    tuned = render("tuned.c.j2", dispatches=True, contracts=True, sections=sections)
    needed = {*re.findall(r"onnxc_\w+", tuned)} & runtime_functions().keys()
    return render(
        "machine.c.j2",
        dispatch=render("dispatch.c.j2", NAME="MACHINE", target=target, loops=False),
        runtime=runtime_text(needed),
        tuned=tuned,
        chains=chains,
        dot=target.variants[0].dot,
        functions=functions,
        sizes=SIZES,
    )


def parsed(printed: str) -> Machine:
    """From what the program prints."""
    lanes, macs, memory, rates = 1, {}, [], {}
    for line in printed.splitlines():
        match line.split():
            case "lanes", number:
                lanes = int(number)
            case "macs", name, rate:
                macs[name] = float(rate)
            case "memory", size, *found:
                read, write, copy = map(float, found)
                memory.append(Bandwidth(int(size), read, write, copy))
            case "function", name, rate:
                rates[name] = float(rate)
    return Machine(lanes, macs, memory, rates)
