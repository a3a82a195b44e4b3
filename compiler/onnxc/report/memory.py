"""How much memory a compiled model takes, as numbers and as lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final

from onnxc.check_plan import check_plan
from onnxc.diagnostics import Kind
from onnxc.errors import Problem
from onnxc.report.text import count

if TYPE_CHECKING:
    from onnxc.pipeline import Compiled, Interface


def sizes(compiled: Compiled) -> dict[str, int]:
    """Bytes of each kind; a string is counted apart, its size depends on the target."""
    return {
        "workspace_bytes": compiled.workspace_size,
        "inputs_bytes": _bytes(compiled.inputs),
        "inputs_strings": _strings(compiled.inputs),
        "outputs_bytes": _bytes(compiled.outputs),
        "outputs_strings": _strings(compiled.outputs),
        "constants_bytes": compiled.constants_size,
    }


LARGE: Final = {"cortex-m4": 1 << 20}
"""Bytes of workspace, by target, from which on a run may not fit its memory."""
LARGE_ON_HOSTS: Final = 1 << 30


def warnings(compiled: Compiled, target: str) -> Iterator[Problem]:
    """What of a compiled model is likely to go wrong where it runs."""
    size = compiled.workspace_size
    if size >= LARGE.get(target, LARGE_ON_HOSTS):
        fact = f"the workspace takes {count(size, 'byte')} ({_rounded(size)})"
        remedy = "smaller dimensions take less, and `onnxc info` shows what is needed"
        yield Problem(Kind.LARGE_WORKSPACE, "", fact, remedy)


def _rounded(size: int) -> str:
    """As in 1.5 GiB; from 1 MiB on."""
    return f"{size / (1 << 30):,.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):,.1f} MiB"


def plan(compiled: Compiled) -> dict[str, Any]:
    """The least that any plan of the workspace needs, and how many times that this one is.

    Raises InvalidProgramError where the plan is wrong, a fault of onnxc.
    """
    peak = check_plan(compiled.program)
    ratio = peak.planned / peak.bound if peak.bound else 1.0
    return {"workspace_bound_bytes": peak.bound, "workspace_ratio": round(ratio, 4)}


def ram_line(found: Mapping[str, int]) -> str:
    """What the program must have room for while the model runs."""
    workspace = count(found["workspace_bytes"], "byte")
    return f"RAM: inputs {side(found, 'inputs')}, outputs {side(found, 'outputs')}, " + (
        f"workspace {workspace}"
    )


def constants_line(found: Mapping[str, int]) -> str:
    return f"constants: {count(found['constants_bytes'], 'byte')}"


def side(found: Mapping[str, Any], name: str) -> str:
    """What the "inputs" or the "outputs" take, as in "24 bytes and 1 string"."""
    strings, size = found[f"{name}_strings"], count(found[f"{name}_bytes"], "byte")
    if not strings:
        return size
    texts = count(strings, "string")
    return f"{size} and {texts}" if found[f"{name}_bytes"] else texts


def bytes_of(value: Interface) -> int:
    """Of an input or output; of strings those of the pointers and lengths on a 64-bit host."""
    return value.dtype.packed_bytes(prod(value.shape))


def _bytes(side: Sequence[Interface]) -> int:
    shapes = [i.actual for i in side if i.actual is not None]
    return sum(bytes_of(i) for i in (*side, *shapes) if i.dtype.kind != "string")


def _strings(side: Sequence[Interface]) -> int:
    return sum(prod(i.shape) for i in side if i.dtype.kind == "string")
