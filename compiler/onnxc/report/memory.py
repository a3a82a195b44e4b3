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


def plan_line(found: Mapping[str, Any]) -> str:
    """How good the plan is: values that live at once need their bytes, wherever they are."""
    bound = count(found["workspace_bound_bytes"], "byte")
    return f"least workspace of any plan: {bound}; ratio {found['workspace_ratio']:.2f}"


def ram_line(found: Mapping[str, int]) -> str:
    """What the program must have room for while the model runs."""
    workspace = count(found["workspace_bytes"], "byte")
    return f"RAM: inputs {_side(found, 'inputs')}, outputs {_side(found, 'outputs')}, " + (
        f"workspace {workspace}"
    )


def constants_line(found: Mapping[str, int]) -> str:
    return f"constants: {count(found['constants_bytes'], 'byte')}"


def _side(found: Mapping[str, int], side: str) -> str:
    strings, size = found[f"{side}_strings"], count(found[f"{side}_bytes"], "byte")
    if not strings:
        return size
    texts = count(strings, "string")
    return f"{size} and {texts}" if found[f"{side}_bytes"] else texts


def _bytes(side: Sequence[Interface]) -> int:
    shapes = [i.actual for i in side if i.actual is not None]
    numbers = [i for i in (*side, *shapes) if i.dtype.kind != "string"]
    return sum(i.dtype.packed_bytes(prod(i.shape)) for i in numbers)


def _strings(side: Sequence[Interface]) -> int:
    return sum(prod(i.shape) for i in side if i.dtype.kind == "string")
