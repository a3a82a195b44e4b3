"""Where each node of the graph went: its fate, the kernels that do its work, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from onnxc.report.html.words import Facts, kernel_text
from onnxc.report.text import count


@dataclass(frozen=True)
class Fate:
    """What can become of a node.

    name    of the facts
    letter  that marks it beside its colour
    says    what it means
    number  of nodes of it
    """

    name: str
    letter: str
    says: str
    number: int = 0

    @property
    def style(self) -> str:
        """Its name in classes of the style."""
        return self.name if any(self.name == known.name for known in FATES) else OTHER


FATES: Final = (
    Fate("kernel", "K", "the first node of a kernel of its own"),
    Fate("fused", "F", "computed inside the kernel of another node"),
    Fate("folded", "C", "computed at compile time: part of the constants"),
    Fate("aliased", "A", "needs no code: its result is memory that is there anyhow"),
    Fate("dissolved", "S", "became how the kernel of another node reads or stores"),
    Fate("dropped", "D", "nothing needs it"),
)
NO_NODES: Final = {"border": ("fills padding", "fill padding"), "loops": ("copies", "copy")}
"""What kernels do that no node asks for, by their kind; of one, and of several."""
OTHER: Final = "other"
"""The style of a fate that this list does not know."""


@dataclass(frozen=True)
class Way:
    """A node's row in the table; without a name it goes by that of its first output."""

    number: int
    operator: str
    name: str
    fate: Fate
    kernels: tuple[tuple[int, str], ...]
    why: str


@dataclass(frozen=True)
class Ways:
    """fates: those that occur in the model; order: the numbers of the nodes as they run."""

    sentence: str
    fates: tuple[Fate, ...]
    ways: tuple[Way, ...]
    order: tuple[int, ...]


def values(facts: Facts) -> dict[str, Any] | None:
    """What templates/report/ways.html.j2 asks for; None of a model without nodes."""
    return {"ways": ways(facts)} if facts["nodes"] else None


def ways(facts: Facts) -> Ways:
    fates = fates_of(facts)
    return Ways(_sentence(facts, fates), fates, tuple(_ways(facts, fates)), order_of_run(facts))


def fates_of(facts: Facts) -> tuple[Fate, ...]:
    """Those that occur, with how often; those that FATES does not know come last."""
    numbers = Counter(node["fate"] for node in facts["nodes"])
    known = [
        Fate(fate.name, fate.letter, fate.says, numbers.pop(fate.name))
        for fate in FATES
        if fate.name in numbers
    ]
    others = [
        Fate(name, name[:1].upper() or "?", "", number) for name, number in sorted(numbers.items())
    ]
    return (*known, *others)


def order_of_run(facts: Facts) -> tuple[int, ...]:
    """The numbers of the nodes in the order of their kernels, and as in the model within one.

    A node without a kernel stands before the first that needs what it computes; where none does,
    after what it reads.
    """
    nodes = facts["nodes"]
    made = {name: node["number"] for node in nodes for name in node["outputs"] if name}
    sources = {n["number"]: [made[name] for name in n["inputs"] if name in made] for n in nodes}
    first = {node["number"]: min(node["kernels"]) for node in nodes if node["kernels"]}
    before = dict(first)
    for node in reversed(nodes):
        number = node["number"]
        if number in before:
            for source in sources[number]:
                if source not in first:
                    before[source] = min(before.get(source, before[number]), before[number])
    after, last = dict(before), -1
    for node in nodes:
        number = node["number"]
        if number not in after:
            known = [after[source] for source in sources[number] if source in after]
            after[number] = max(known, default=last)
        last = after[number]
    ranks = {n: 1 if n in first else 0 if n in before else 2 for n in after}
    return tuple(sorted(after, key=lambda number: (after[number], ranks[number], number)))


def _sentence(facts: Facts, fates: tuple[Fate, ...]) -> str:
    kernels = count(len(facts["kernels"]), "kernel")
    parts = ", ".join(f"{fate.number:,} {_as_many(fate)}" for fate in fates)
    nodes = count(len(facts["nodes"]), "node")
    return f"{nodes} became {kernels}: {parts}.{_others(facts, fates)}"


def _others(facts: Facts, fates: tuple[Fate, ...]) -> str:
    """Kernels beyond one for each node that has kernels of its own, and what they are."""
    own = sum(fate.number for fate in fates if fate.name == "kernel")
    more = len(facts["kernels"]) - own
    if more <= 0:
        return ""
    kinds = Counter(kernel["kind"] for kernel in facts["kernels"] if not kernel["nodes"])
    parts = [_without_node(kind, number) for kind, number in kinds.items()]
    if (rest := more - kinds.total()) > 0:
        parts.append(
            "1 is a further part of a node" if rest == 1 else f"{rest:,} are further parts of nodes"
        )
    return f" {more:,} more {'kernel' if more == 1 else 'kernels'}: {', '.join(parts)}."


def _without_node(kind: str, number: int) -> str:
    """What kernels of a kind do that no node asks for."""
    one, several_of_it = NO_NODES.get(kind, (f"is {kind}", f"are {kind}"))
    return f"{number:,} {one if number == 1 else several_of_it}"


def _as_many(fate: Fate) -> str:
    if fate.name == "kernel":
        return "with a kernel of its own" if fate.number == 1 else "with kernels of their own"
    return fate.name


def _ways(facts: Facts, fates: tuple[Fate, ...]) -> Iterator[Way]:
    by_name = {fate.name: fate for fate in fates}
    kernels: list[Mapping[str, Any]] = facts["kernels"]
    for node in facts["nodes"]:
        fate = by_name[node["fate"]]
        into = tuple((number, kernel_text(kernels[number])) for number in node["kernels"])
        yield Way(
            node["number"],
            node["operator"],
            node["name"] or next(filter(None, node["outputs"]), ""),
            fate,
            into,
            node["why"],
        )
