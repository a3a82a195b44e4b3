"""Times of a model and its kernels on this machine, each beside what the machine's limits allow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from onnxc.arrays import elements
from onnxc.kernel import Step
from onnxc.kernel_numbers import numbered
from onnxc.pipeline import Compiled
from onnxc.report import limits, profile, reasons
from onnxc.report.effort import Effort
from onnxc.report.machine import Machine, machine
from onnxc.target import TARGETS
from onnxc.verify.inputs import Bounds

if TYPE_CHECKING:
    from numpy.typing import NDArray


def attach(
    found: dict[str, Any],
    compiled: Compiled,
    *,
    values: Mapping[str, NDArray[Any]] | None = None,
    ranges: Mapping[str, Bounds] | None = None,
    seed: int = 0,
) -> None:
    """Puts "times" into the facts of a report, and "time" into each of its kernels.

    The arguments are those of profile.measure. A kernel that no run reached has no time, nor has
    control flow; without what the machine can do, a time has no limit.
    """
    times, kernels = timed(compiled, values=values, ranges=ranges, seed=seed)
    found["times"] = times
    for kernel in found["kernels"]:
        kernel["time"] = kernels.get(kernel["number"])


def timed(
    compiled: Compiled,
    *,
    values: Mapping[str, NDArray[Any]] | None = None,
    ranges: Mapping[str, Bounds] | None = None,
    seed: int = 0,
    here: Machine | None = None,
) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    """What `attach` puts into facts: of the model, and of its kernels by number.

    here  what this machine can do, with every function; by default it is measured
    """
    measured = profile.measure(compiled, values=values, ranges=ranges, seed=seed)
    if "reason" in measured:
        return measured, {}
    visited = {n: k for n, k in measured.pop("kernels").items() if k["visits"] > 0}
    asked = limits.efforts(compiled.program)
    try:
        here = here or machine(limits.functions_of(asked.values()))
        measured["machine"] = here.facts()
    except profile.NotMeasuredError as error:
        measured["machine"] = {"reason": str(error)}
    total = sum(kernel["ns"] for kernel in visited.values())
    numbers = numbered(compiled.program)
    kernels, before = {}, 0
    for step, effort in asked.items():
        if numbers[step] in visited:
            kernel = visited[numbers[step]]
            kernels[numbers[step]] = _time(compiled, step, effort, before, kernel, total, here)
        before = effort.bytes
    return measured, kernels


def _time(
    compiled: Compiled,
    step: Step,
    asked: Effort,
    before: int,
    kernel: Mapping[str, float],
    total: float,
    here: Machine | None,
) -> dict[str, Any]:
    ns, visits = kernel["ns"], kernel["visits"]
    share = ns / total if total else 0.0
    if here is None:
        nothing = {"limit_ns": None, "of_limit": None, "bound_by": "", "reason": ""}
        return {"ns": ns, "share": share, **nothing}
    limit = limits.limit(asked, here, footprint(compiled), before)
    target = compiled.program.target or TARGETS["generic"]
    case = reasons.Case(step, asked, limit, ns / visits, here, target)
    return {
        "ns": ns,
        "share": share,
        "limit_ns": limit.ns * visits,
        "of_limit": limit.ns * visits / ns if ns else None,
        "bound_by": limit.bound_by,
        "reason": reasons.reason(case) if ns else "",
    }


def footprint(compiled: Compiled) -> int:
    """Bytes that a run of the model touches."""
    ports = [port for o in compiled.outputs for port in (o, o.actual) if port is not None]
    sizes = [port.dtype.packed_bytes(elements(port)) for port in (*compiled.inputs, *ports)]
    return limits.footprint_of(compiled.program, [*sizes, compiled.constants_size])
