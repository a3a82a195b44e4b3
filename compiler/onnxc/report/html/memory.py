"""The memory map of the report: which bytes of the workspace each tensor has, and when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from onnxc.report.html.words import (
    KIB,
    Facts,
    amount,
    by_number,
    exact_amount,
    kernel_text,
    listed,
    padding_text,
    percent,
    place,
    shortened,
    size_text,
    type_text,
)
from onnxc.report.text import count

MOST_TICKS: Final = 8
"""On the axis of the offsets."""
MOST_KERNEL_TICKS: Final = 16
"""On the axis of the kernels, as wide as a page; the script adds some where it is wider."""
WIDEST: Final = 8
"""Doublings of the map's width, for thousands of kernels."""
LABELLED: Final = (8.0, 4.0)
"""Percent of the map, across and up, from which on a bar has its name in it without the script."""
ROWS_AT_PEAK: Final = 40
"""Tensors that the table of the peak names; it sums up what there is besides."""


@dataclass(frozen=True)
class Tick:
    """at: percent of the axis."""

    at: str
    text: str


@dataclass(frozen=True)
class Bar:
    """A tensor in the map; x, y, width and height are percentages of it, y from the top."""

    number: int
    kernel: int
    x: str
    y: str
    width: str
    height: str
    at_peak: bool
    title: str
    label: str


@dataclass(frozen=True)
class Level:
    """A horizontal line at so many bytes; y in percent from the top."""

    name: str
    y: str
    text: str


@dataclass(frozen=True)
class Map:
    """The drawing of the workspace.

    top    bytes at its upper edge
    wider  doublings of the width that make sense
    live   the path of the live bytes, in kernels and bytes from the top
    peak   x and width of the peak's kernel
    """

    kernels: int
    top: int
    wider: int
    bars: tuple[Bar, ...]
    levels: tuple[Level, ...]
    offsets: tuple[Tick, ...]
    numbers: tuple[Tick, ...]
    live: str
    peak: tuple[str, str]


@dataclass(frozen=True)
class Row:
    """A tensor that is live at the peak.

    padding   what to say after its bytes, which are more than its shape asks for
    others    kernels that write to it besides its producer, such as one that fills its border
    """

    number: int
    name: str
    type: str
    bytes: int
    padding: str
    share: str
    first: int
    last: int
    producer: int | None
    producer_name: str
    others: tuple[int, ...]
    readers: tuple[int, ...]


@dataclass(frozen=True)
class Outside:
    """Tensors that have no place in the workspace."""

    place: str
    name: str
    type: str
    bytes: int


@dataclass(frozen=True)
class Memory:
    """map is None where nothing needs a workspace."""

    sentence: str
    map: Map | None
    rows: tuple[Row, ...]
    rest: str
    outside: tuple[Outside, ...]


def values(facts: Facts) -> dict[str, Any]:
    """What templates/report/memory.html.j2 asks for."""
    return {"memory": memory(facts)}


def memory(facts: Facts) -> Memory:
    rows = tuple(_rows(facts))
    shown, hidden = rows[:ROWS_AT_PEAK], rows[ROWS_AT_PEAK:]
    rest = ""
    if hidden:
        rest = f"and {count(len(hidden), 'tensor')} of {amount(sum(row.bytes for row in hidden))}"
    return Memory(peak_sentence(facts), memory_map(facts), shown, rest, tuple(_outside(facts)))


def peak_sentence(facts: Facts) -> str:
    """What makes the workspace as large as it is."""
    summary, peak = facts["summary"], facts["memory"]["peak"]
    live = by_number(facts["tensors"])
    largest = [live[number] for number in peak["tensors"]]
    if not largest or not summary["workspace_bytes"]:
        return "No tensor needs room in a workspace: there is none."
    kernel = facts["kernels"][peak["kernel"]]
    where = f"kernel {peak['kernel']} ({kernel_text(kernel)})"
    text = (
        f"Most is live at {where}: {exact_amount(peak['bytes'])} in"
        f" {count(len(largest), 'tensor')}. "
    )
    sizes = enumerate(facts["memory"]["live"])
    also = [n for n, size in sizes if size == peak["bytes"] and n != peak["kernel"]]
    if also:
        text += f"As much is live at {'kernel' if len(also) == 1 else 'kernels'} {listed(also)}. "
    if len(largest) == 1:
        return text + f"That is {_named(largest[0])}."
    if peak["shared"]:
        text += f"{amount(peak['shared'])} of them are of two at once: written where another ends. "
    share = (largest[0]["bytes"] + largest[1]["bytes"]) / max(_sizes(peak), 1)
    two = f"{_named(largest[0])} and {_named(largest[1])}"
    return text + f"The two largest, {two}, are {100 * share:.0f} % of it."


def _sizes(peak: Mapping[str, Any]) -> int:
    """Of the tensors at the peak together; what two of them share counts twice."""
    return int(peak["bytes"]) + int(peak["shared"])


def _named(tensor: Mapping[str, Any]) -> str:
    return f"{shortened(tensor['label'])} ({type_text(tensor)}, {size_text(tensor)})"


def memory_map(facts: Facts) -> Map | None:
    top, kernels = facts["summary"]["workspace_bytes"], len(facts["kernels"])
    tensors = _in_workspace(facts)
    if not top or not kernels or not tensors:
        return None
    at_peak = set(facts["memory"]["peak"]["tensors"])
    kernel_list = facts["kernels"]
    bars = (_bar(tensor, kernels, top, at_peak, kernel_list) for tensor in tensors)
    peak = facts["memory"]["peak"]["kernel"]
    return Map(
        kernels,
        top,
        min(max((kernels // 4).bit_length(), 1), WIDEST),
        tuple(bars),
        tuple(_levels(facts, top)),
        tuple(offset_ticks(top)),
        tuple(number_ticks(kernels)),
        live_path(facts["memory"]["live"], top),
        (place(percent(peak, kernels)), place(percent(1, kernels))),
    )


def _in_workspace(facts: Facts) -> list[Mapping[str, Any]]:
    """In the order of the keyboard: by time, then by offset."""
    tensors = [t for t in facts["tensors"] if t["place"] == "workspace" and t["first"] is not None]
    return sorted(tensors, key=lambda t: (t["first"], t["offset"], t["number"]))


def _bar(
    tensor: Mapping[str, Any],
    kernels: int,
    top: int,
    at_peak: set[int],
    kernel_list: Sequence[Mapping[str, Any]],
) -> Bar:
    first, last, offset, size = (tensor[key] for key in ("first", "last", "offset", "bytes"))
    producer = first if tensor["producer"] is None else tensor["producer"]
    width, height = percent(last - first + 1, kernels), percent(size, top)
    labelled = width >= LABELLED[0] and height >= LABELLED[1]
    return Bar(
        tensor["number"],
        producer,
        place(percent(first, kernels)),
        place(percent(top - offset - size, top)),
        place(width),
        place(height),
        tensor["number"] in at_peak,
        _title(tensor, kernel_text(kernel_list[producer])),
        tensor["label"] if labelled else "",
    )


def _title(tensor: Mapping[str, Any], producer: str) -> str:
    readers = f"read by {listed(tensor['readers'])}" if tensor["readers"] else "read by none"
    others = [number for number in tensor["writers"] if number != tensor["producer"]]
    also = f" and {listed(others)}" if others else ""
    written = f"by kernel {tensor['producer']} {producer}{also}, "
    if tensor["producer"] is None:
        written = ""
    return (
        f"{tensor['label']} {type_text(tensor)}, {tensor['bytes']:,} bytes at"
        f" {tensor['offset']:,}, {written}{readers}"
    )


def _levels(facts: Facts, top: int) -> Iterator[Level]:
    bound = facts["summary"]["workspace_bound_bytes"]
    yield Level("workspace", place(0.0), f"workspace {amount(top)}")
    yield Level("bound", place(percent(top - bound, top)), f"least of any plan {amount(bound)}")


def offset_ticks(top: int) -> Iterator[Tick]:
    """Round numbers of KiB, or of bytes where the whole is less than two KiB."""
    unit, name = (KIB, "KiB") if top >= 2 * KIB else (1, "B")
    step = unit
    while top // step > MOST_TICKS:
        step *= 2
    for value in range(0, top + 1, step):
        yield Tick(place(percent(top - value, top)), f"{value // unit:,} {name}")


def number_ticks(kernels: int) -> Iterator[Tick]:
    """Numbers of kernels, each in the middle of its column."""
    step = number_step(kernels, MOST_KERNEL_TICKS)
    for number in range(0, kernels, step):
        yield Tick(place(percent(number + 0.5, kernels)), f"{number:,}")


def number_step(kernels: int, most: int) -> int:
    """1, 2, 5, 10, 20, ...: the least that leaves at most so many numbers."""
    step = 1
    while kernels > most * step:
        step = step * 5 // 2 if str(step).startswith("2") else step * 2
    return step


def live_path(live: Sequence[int], top: int) -> str:
    """An area from the lower edge, a step for each kernel; where nothing changes, none."""
    path, level = [f"M0 {top}"], None
    for number, size in enumerate(live):
        if size != level:
            path.append(f"H{number}V{top - size}")
            level = size
    return "".join(path) + f"H{len(live)}V{top}Z"


def _rows(facts: Facts) -> Iterator[Row]:
    peak, tensors = facts["memory"]["peak"], by_number(facts["tensors"])
    for number in peak["tensors"]:
        tensor = tensors[number]
        producer = tensor["producer"]
        name = "" if producer is None else kernel_text(facts["kernels"][producer])
        share = f"{100 * tensor['bytes'] / max(_sizes(peak), 1):.1f} %"
        yield Row(
            number,
            tensor["label"],
            type_text(tensor),
            tensor["bytes"],
            padding_text(tensor),
            share,
            tensor["first"],
            tensor["last"],
            producer,
            name,
            tuple(number for number in tensor["writers"] if number != producer),
            tuple(tensor["readers"]),
        )


def _outside(facts: Facts) -> Iterator[Outside]:
    for side in ("input", "output"):
        for entry in facts[f"{side}s"]:
            yield Outside(side, entry["name"], type_text(entry), entry["bytes"])
    constants = [tensor for tensor in facts["tensors"] if tensor["place"] == "constant"]
    if constants:
        size = facts["summary"]["constants_bytes"]
        yield Outside("constants", count(len(constants), "tensor"), "", size)
