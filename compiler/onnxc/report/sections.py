"""How large the code is: the sections of the object file, by every compiler that is found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from onnxc.pipeline import Compiled
from onnxc.report import stack
from onnxc.report.build import Built, build, commands, is_asked_for

HOSTS: Final = ("generic", "x86-64")
"""Targets of onnxc whose C is for this machine as far as anybody knows."""
PLACES: Final[Mapping[str, str]] = {
    "host": "generic",
    "cortex-m4": "cortex-m4",
    "aarch64": "aarch64",
    "riscv64": "generic",
}
"""Where code may run, and the target of onnxc whose C that is."""
WORKERS: Final = 2


def place_of(target: str) -> str:
    """Where the C of a target of onnxc runs."""
    return "host" if target in HOSTS else target


def measure(
    compiled: Compiled,
    target: str,
    compile_for: Callable[[str], Compiled],
    *,
    others: bool = True,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The sections at each of PLACES, and the stack of `compiled`, whose target is `target`.

    `compile_for` compiles the model for another target. Without `others` only the place is asked
    where `compiled` runs.
    """
    known = {target: compiled}
    places = dict(PLACES) if others else {}
    places[place_of(target)] = target
    with ThreadPoolExecutor(WORKERS) as pool:
        started: dict[str, Future[Sequence[Built]]] = {}
        for place, wanted in places.items():
            if wanted not in known:
                known[wanted] = compile_for(wanted)
            started[place] = pool.submit(_tried, known[wanted], place)
        built = {place: future.result() for place, future in started.items()}
    found = [_entry(place, places[place], tries) for place, tries in built.items()]
    return found, _stack(compiled, built[place_of(target)])


def _tried(compiled: Compiled, place: str) -> Sequence[Built]:
    """By the compilers of a place, up to the first that makes an object and tells of the stack."""
    tries: list[Built] = []
    for command in dict.fromkeys(commands(place)):
        tries.append(build(compiled, command))
        made = tries[-1].sections is not None
        if (made and tries[-1].graph) or (is_asked_for(command) and not made):
            break
    return tries


def _entry(place: str, target: str, tries: Sequence[Built]) -> dict[str, Any]:
    best = next((built for built in tries if built.sections is not None), None)
    if best is None or best.sections is None:
        return {"target": place, "compiled_for": target, "reason": tries[-1].reason}
    return {
        "target": place,
        "compiled_for": target,
        "command": best.command,
        **best.sections,
    }


def _stack(compiled: Compiled, tries: Sequence[Built]) -> dict[str, Any]:
    found = [stack.bound(compiled, built) for built in tries]
    return next((bound for bound in found if "reason" not in bound), found[-1])
