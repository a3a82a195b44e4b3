"""What of a model runs in integers, what in floats, and why what is no integer is none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from onnxc.report.html.words import (
    Facts,
    by_number,
    kernel_text,
    listed,
    percent,
    place,
    shortened,
)
from onnxc.report.text import count
from onnxc.report.work import MOVES, is_float

NODES: Final = 4
"""Of a kernel that the table names."""


@dataclass(frozen=True)
class Share:
    """Of the multiply-accumulates; x and width in percent of the bar."""

    arithmetic: str
    macs: int
    text: str
    x: str
    width: str
    integer: bool


@dataclass(frozen=True)
class NotInteger:
    """A kernel that computes in floats; more: nodes besides those that are named."""

    kernel: int
    name: str
    nodes: tuple[tuple[int, str], ...]
    more: int
    macs: int
    why: str


@dataclass(frozen=True)
class Rescaling:
    """Kernels of integer sums whose results are computed from these in floats.

    results  of all of them in a run; arithmetic  as in float32
    """

    kernels: tuple[int, ...]
    results: int
    arithmetic: str


@dataclass(frozen=True)
class Integers:
    sentence: str
    shares: tuple[Share, ...]
    not_integer: tuple[NotInteger, ...]
    as_float: tuple[tuple[str, int], ...]


def values(facts: Facts) -> dict[str, Any]:
    """What templates/report/integers.html.j2 asks for."""
    return {"integers": integers(facts)}


def integers(facts: Facts) -> Integers:
    shares = tuple(_shares(facts["summary"]["macs_by_arithmetic"]))
    as_float = tuple((entry["operator"], entry["count"]) for entry in facts["int8_as_float"])
    return Integers(integer_sentence(facts), shares, tuple(_not_integer(facts)), as_float)


def is_integer(arithmetic: str) -> bool:
    return arithmetic != MOVES and not is_float(arithmetic)


def is_quantised(facts: Facts) -> bool:
    """Whether it has quantised nodes, or computes in integers alone."""
    if facts["not_integer"] or facts["int8_as_float"]:
        return True
    whole = any(
        macs and is_integer(n) for n, macs in facts["summary"]["macs_by_arithmetic"].items()
    )
    return whole and all(kernel["integer"] for kernel in facts["kernels"])


def rescaling(facts: Facts) -> Rescaling | None:
    """None of a model whose integer sums stay integers."""
    found = [kernel for kernel in facts["kernels"] if kernel["rescaled"]]
    if not found:
        return None
    floats = " and ".join(sorted({kernel["rescaled_in"] for kernel in found}))
    numbers = tuple(kernel["number"] for kernel in found)
    return Rescaling(numbers, sum(kernel["rescaled"] for kernel in found), floats)


def _rescaling_sentence(facts: Facts) -> str:
    found = rescaling(facts)
    if found is None:
        return ""
    one = len(found.kernels) == 1
    which = f"{'kernel' if one else 'kernels'} {listed(found.kernels)}"
    return (
        f" {count(len(found.kernels), 'kernel')} with integer sums"
        f" {'rescales' if one else 'rescale'} them in {found.arithmetic},"
        f" {count(found.results, 'result')} in all: {which}."
    )


def integer_sentence(facts: Facts) -> str:
    by_arithmetic = facts["summary"]["macs_by_arithmetic"]
    total = sum(by_arithmetic.values())
    whole = sum(macs for name, macs in by_arithmetic.items() if is_integer(name))
    floats = facts["not_integer"]
    if not is_quantised(facts):
        kinds = " and ".join(name for name, macs in by_arithmetic.items() if macs)
        what = f"its products are of {kinds}" if kinds else "no products are summed"
        return f"This model is not quantised: {what}."
    share = f"{whole:,} of {count(total, 'multiply-accumulate')}" + (
        f" ({100 * whole / total:.1f} %) run in integers. " if total else " run in integers. "
    )
    rescaled = _rescaling_sentence(facts)
    if not floats:
        nothing = "No kernel computes in floats alone." if rescaled else ""
        return share + (nothing or "Nothing of it is computed in floats.") + rescaled
    return (
        share
        + f"{len(floats):,} of {count(len(facts['kernels']), 'kernel')} "
        + ("computes in floats." if len(floats) == 1 else "compute in floats.")
        + rescaled
    )


def _shares(by_arithmetic: Mapping[str, int]) -> Iterator[Share]:
    total, end = sum(by_arithmetic.values()), 0
    ordered = sorted(by_arithmetic.items(), key=lambda item: (not is_integer(item[0]), -item[1]))
    for name, macs in ordered:
        if macs:
            x, width = place(percent(end, total)), place(percent(macs, total))
            yield Share(name, macs, f"{100 * macs / total:.1f} %", x, width, is_integer(name))
        end += macs


def _not_integer(facts: Facts) -> Iterator[NotInteger]:
    kernels, nodes = by_number(facts["kernels"]), by_number(facts["nodes"])
    for entry in facts["not_integer"]:
        kernel = kernels[entry["kernel"]]
        of_it = entry["nodes"]
        named = tuple((number, node_title(nodes[number])) for number in of_it[:NODES])
        more, macs = max(len(of_it) - NODES, 0), kernel["macs"] or 0
        name = kernel_text(kernel)
        yield NotInteger(entry["kernel"], name, named, more, macs, entry["why"])


def node_title(node: Mapping[str, Any]) -> str:
    """Softmax-13 /head/softmax; of a long name both ends."""
    return f"{node['operator']} {shortened(node['name'])}".strip()
