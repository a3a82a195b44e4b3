"""What of a model would fit into so much memory, and what stands in the way.

templates/report/budget.js says the same of any amount; the two are tested to agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from onnxc.report.html.words import (
    KIB,
    Facts,
    amount,
    by_number,
    kernel_text,
    listed,
    padding_text,
    percent,
    place,
    shortened,
    type_text,
)
from onnxc.report.text import count

BUDGETS: Final = (16, 32, 64, 128, 256, 512)
"""KiB; what microcontrollers have."""
USUAL: Final = 64
"""The budget that the page begins with, in KiB."""
HOST: Final = "host"
"""The machine that makes the report: it has no flash."""
ROOM: Final = 2.5
"""Percent of a bar from which on a part has its letter in it."""
NAMED: Final = 2
"""Tensors that a sentence names."""


@dataclass(frozen=True)
class Flash:
    """Code and constants of one target; spare is negative where they do not fit."""

    target: str
    bytes: int
    spare: int


@dataclass(frozen=True)
class Begun:
    """The constants that fit when they come in the order of the kernels that first read them.

    The first that does not fit ends it, so that more memory never holds fewer.

    number, bytes      of the constants that fit
    kernels, of        the first kernels that have all of theirs; of how many that read any
    """

    number: int
    bytes: int
    kernels: int
    of: int


@dataclass(frozen=True)
class Budget:
    """What so many bytes of memory are enough for.

    workspace, ram   bytes to spare with the workspace alone, and with inputs, outputs and the
                     stack; negative where it does not fit
    kernels          that have more live than the budget, whatever the plan
    tensors          that are larger by themselves, largest first
    flash            per target whose code was measured
    constants        those that fit in the order of the kernels
    """

    kib: int
    bytes: int
    workspace: int
    ram: int
    kernels: tuple[int, ...]
    tensors: tuple[int, ...]
    flash: tuple[Flash, ...]
    constants: Begun
    ram_sentence: str
    flash_sentence: str


@dataclass(frozen=True)
class Part:
    """Of a stacked bar: from x, so wide, in percent; letter is "" where there is no room."""

    name: str
    letter: str
    x: str
    width: str
    bytes: int


@dataclass(frozen=True)
class Stack:
    """A kind of memory and what goes into it."""

    name: str
    bytes: int
    parts: tuple[Part, ...]


def values(facts: Facts) -> dict[str, Any]:
    """What templates/report/budget.html.j2 asks for."""
    found = budgets(facts)
    scale = stack_scale(facts)
    return {
        "budgets": found,
        "usual": next(entry for entry in found if entry.kib == USUAL),
        "usual_at": place(percent(USUAL * KIB, scale)),
        "stacks": stacks(facts),
        "scale": scale,
        "stack_known": len(ram_parts(facts)) == 4,
    }


def budgets(facts: Facts) -> tuple[Budget, ...]:
    return tuple(budget(facts, kib) for kib in BUDGETS)


def budget(facts: Facts, kib: int) -> Budget:
    size = kib * KIB
    summary = facts["summary"]
    tensors = _larger(facts, size)
    kernels = tuple(n for n, live in enumerate(facts["memory"]["live"]) if live > size)
    return Budget(
        kib,
        size,
        size - summary["workspace_bytes"],
        size - ram_bytes(facts),
        kernels,
        tensors,
        tuple(_flash(facts, size)),
        begun(_constants(facts), size),
        ram_sentence(facts, size),
        flash_sentence(facts, size),
    )


def ram_parts(facts: Facts) -> tuple[tuple[str, str, int], ...]:
    """Name, letter and bytes of what a run has in RAM; the stack where it is known."""
    summary = facts["summary"]
    parts = (
        ("workspace", "W", int(summary["workspace_bytes"])),
        ("inputs", "I", int(summary["inputs_bytes"])),
        ("outputs", "O", int(summary["outputs_bytes"])),
    )
    stack = (summary["stack"] or {}).get("bytes")
    return parts if stack is None else (*parts, ("stack", "S", int(stack)))


def ram_bytes(facts: Facts) -> int:
    return sum(size for _, _, size in ram_parts(facts))


def _all_parts(facts: Facts) -> str:
    """workspace, inputs, outputs and stack."""
    names = [name for name, _, _ in ram_parts(facts)]
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _larger(facts: Facts, size: int) -> tuple[int, ...]:
    found = [t for t in facts["tensors"] if t["place"] == "workspace" and t["bytes"] > size]
    return tuple(t["number"] for t in sorted(found, key=lambda t: (-t["bytes"], t["number"])))


def measured(facts: Facts) -> list[Mapping[str, Any]]:
    """The targets whose compiler was there and took the code; the host only where it is alone."""
    found = [section for section in facts["sections"] if "text" in section]
    return [section for section in found if section["target"] != HOST] or found


def _flash(facts: Facts, size: int) -> Iterator[Flash]:
    for section in measured(facts):
        total = flash_bytes(section)
        yield Flash(section["target"], total, size - total)


def flash_bytes(section: Mapping[str, Any]) -> int:
    """Code, constants, and what the start-up copies into RAM."""
    return int(section["text"]) + int(section["rodata"]) + int(section["data"])


def _constants(facts: Facts) -> list[Mapping[str, Any]]:
    return [tensor for tensor in facts["tensors"] if tensor["place"] == "constant"]


def begun(constants: Sequence[Mapping[str, Any]], room: int) -> Begun:
    """The constants that fit into so many bytes, in the order of the kernels."""
    readers = {kernel for tensor in constants for kernel in tensor["readers"]}
    end = max(readers, default=0) + 1
    firsts = [(min(t["readers"], default=end), t["number"], int(t["bytes"])) for t in constants]
    number, used, stop = 0, 0, end
    for first, _, size in sorted(firsts):
        if used + size > room:
            stop = first
            break
        number, used = number + 1, used + size
    return Begun(number, used, sum(kernel < stop for kernel in readers), len(readers))


def ram_sentence(facts: Facts, size: int) -> str:
    """Whether a run fits into so many bytes, and what has to shrink where it does not."""
    workspace, total = facts["summary"]["workspace_bytes"], ram_bytes(facts)
    inside = f"{amount(size)} of RAM: "
    if total <= size:
        return (
            f"{inside}a run fits. {_all_parts(facts).capitalize()} take {total:,} bytes;"
            f" {size - total:,} are left."
        )
    if workspace <= size:
        return (
            f"{inside}the workspace fits ({workspace:,} bytes), but {_all_parts(facts)} together"
            f" are {total:,} bytes, {total - size:,} too many. Inputs and outputs are memory of the"
            " caller: they would have to be smaller, or lie elsewhere."
        )
    return (
        f"{inside}the workspace of {workspace:,} bytes is {workspace - size:,} too large. "
        + _others_alone(facts, size)
        + _what_must_shrink(facts, size)
    )


def _others_alone(facts: Facts, size: int) -> str:
    """Which of inputs, outputs and stack are too large by themselves."""
    parts = ram_parts(facts)[1:]
    return "".join(
        f"The {name} alone {'takes' if name == 'stack' else 'take'} {part:,} bytes. "
        for name, _, part in parts
        if part > size
    )


def _what_must_shrink(facts: Facts, size: int) -> str:
    bound = facts["summary"]["workspace_bound_bytes"]
    live = facts["memory"]["live"]
    over = [number for number, bytes_live in enumerate(live) if bytes_live > size]
    if not over:
        return (
            f"No more than {bound:,} bytes are live at once, so the tensors would fit: it is the"
            " gaps between them that would have to go."
        )
    peak = facts["memory"]["peak"]
    where = f"kernel {peak['kernel']} ({kernel_text(facts['kernels'][peak['kernel']])})"
    text = (
        f"No plan of these kernels can help: more than that is live at {len(over):,} of"
        f" {count(len(live), 'kernel')} ({listed(over)}). "
    )
    larger = _larger(facts, size)
    if larger:
        verb = "is larger by itself" if len(larger) == 1 else "are larger by themselves"
        text += f"{count(len(larger), 'tensor')} {verb}. "
    tensors = by_number(facts["tensors"])
    named = " and ".join(
        f"{shortened(tensor['label'])} ({type_text(tensor)}, {count(tensor['bytes'], 'byte')}"
        f"{padding_text(tensor)})"
        for tensor in map(tensors.__getitem__, peak["tensors"][:NAMED])
    )
    return text + (
        f"At {where}, where most is live, {peak['bytes'] - size:,} bytes have to go;"
        f" the largest there: {named}."
    )


def flash_sentence(facts: Facts, size: int) -> str:
    """Whether code and constants fit into so many bytes, and how many of the constants."""
    total = facts["summary"]["constants_bytes"]
    inside = f"{amount(size)} of flash: "
    texts = [_target_text(section, size) for section in measured(facts)]
    code = "; ".join(texts) + ". " if texts else "no code was measured. "
    constants = _constants(facts)
    if not constants:
        return f"{inside}{code}There are no constants."
    alone = f"The constants alone, as packed for {facts['model']['target']} ({total:,} bytes),"
    if total <= size:
        return f"{inside}{code}{alone} fit."
    part = begun(constants, size)
    return (
        f"{inside}{code}{alone} do not fit: in the order of the"
        f" kernels, the first {part.number:,} of {len(constants):,} would ({part.bytes:,} bytes),"
        f" all that the first {part.kernels:,} of {count(part.of, 'kernel')} with constants need."
    )


def _target_text(section: Mapping[str, Any], size: int) -> str:
    total = flash_bytes(section)
    spare = size - total
    fits = f" and fits, {spare:,} are left" if spare >= 0 else f", {-spare:,} too many"
    return f"{section['target']} takes {total:,} bytes{fits}"


def stacks(facts: Facts) -> tuple[Stack, ...]:
    """What goes into RAM and into the flash of each target, on one scale."""
    kinds = [("RAM", ram_parts(facts))]
    for section in measured(facts):
        parts = (
            ("constants", "C", section["rodata"]),
            ("code", "T", section["text"]),
            ("data", "D", section["data"]),
        )
        kinds.append((f"flash, {section['target']}", parts))
    scale = stack_scale(facts)
    return tuple(_stack(name, parts, scale) for name, parts in kinds)


def stack_scale(facts: Facts) -> int:
    """Bytes at the right end of the bars: room for the largest, and for the usual budget."""
    sizes = [ram_bytes(facts), *map(flash_bytes, measured(facts)), USUAL * KIB]
    return max(sizes)


def _stack(name: str, parts: Iterable[tuple[str, str, int]], scale: int) -> Stack:
    drawn, end = [], 0
    for part, letter, size in parts:
        width = percent(size, scale)
        if size:
            shown = letter if width >= ROOM else ""
            drawn.append(Part(part, shown, place(percent(end, scale)), place(width), size))
        end += size
    return Stack(name, end, tuple(drawn))
