"""The errors of a report's page: of each output, and of each value along the kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import floor, isfinite, log10
from typing import Any, Final

from onnxc.report.html.memory import Tick, number_ticks
from onnxc.report.html.words import (
    Facts,
    by_number,
    error_text,
    kernel_text,
    percent,
    place,
    type_text,
)
from onnxc.report.text import count

LEAST_DECADES: Final = 3
"""That the axis of the errors has, however little they differ."""
LOWEST: Final = -18
"""The power of ten below which an error is drawn as if it were that."""
HEIGHT: Final = 80.0
"""Percent of the drawing that the decades take; below lie the exact values, above what is not
finite."""
TOP: Final = 6.0
EXACT: Final = 97.0
WORDS: Final = {"ok": "ok", "excused": "ok, excused", "not compared": "not compared"}


@dataclass(frozen=True)
class Line:
    """An output, or a value, in a table; on: which inputs, and against what."""

    name: str
    type: str
    verdict: str
    differs: bool
    errors: tuple[str, ...]
    on: str
    note: str


@dataclass(frozen=True)
class Mark:
    """A value in the drawing; x and y in percent, y from the top."""

    kernel: int
    tensor: int | None
    x: str
    y: str
    level: str
    title: str


@dataclass(frozen=True)
class Decade:
    y: str
    text: str


@dataclass(frozen=True)
class Drawing:
    """first: the x of the first value that differs, "" where none does; numbers: of kernels."""

    marks: tuple[Mark, ...]
    decades: tuple[Decade, ...]
    first: str
    numbers: tuple[Tick, ...]


@dataclass(frozen=True)
class Accuracy:
    """worst: numbers and names of kernels with the values that differ most."""

    sentence: str
    outputs: tuple[Line, ...]
    drawing: Drawing | None
    worst: tuple[tuple[int, str, Line], ...]
    unused: tuple[str, ...]


WORST: Final = 20
"""Values that the table under the drawing names."""


def values(facts: Facts) -> dict[str, Any]:
    """What templates/report/accuracy.html.j2 asks for; accuracy is None where none is known."""
    found = facts["accuracy"] or {}
    known = "outputs" in found
    return {"accuracy": accuracy(facts) if known else None, "reason": found.get("reason", "")}


def accuracy(facts: Facts) -> Accuracy:
    found = facts["accuracy"]
    outputs = tuple(map(_line, found["outputs"]))
    worst, unused = tuple(_worst(facts)), tuple(found.get("unused", ()))
    return Accuracy(_sentence(facts), outputs, drawing(facts), worst, unused)


def _sentence(facts: Facts) -> str:
    found = facts["accuracy"]
    if not found["reference"]:
        return "Nothing was compared: no reference could run this model."
    on = f", on {found['inputs']}" if found["inputs"] else ""
    against = f"Compared with {found['reference']}{on}: "
    names = dict.fromkeys(entry["name"] for entry in found["outputs"])
    differ = {entry["name"] for entry in found["outputs"] if entry["verdict"] == "differs"}
    if differ:
        verb = "differs" if len(differ) == 1 else "differ"
        text = f"{len(differ):,} of {count(len(names), 'output')} {verb}."
    else:
        text = "no output differs."
    if found["first"]:
        text += f" The first value to differ is {found['first']}."
    return against + text


def _line(entry: Mapping[str, Any]) -> Line:
    names = ("max_abs_error", "max_rel_error", "max_scaled_error", "max_ulp_error")
    compared = entry["verdict"] != "not compared"
    errors = tuple(error_text(entry[name] if compared else None) for name in names)
    kind = type_text(entry) if "shape" in entry else entry["dtype"]
    verdict = WORDS.get(entry["verdict"], entry["verdict"].upper())
    on = ", ".join(filter(None, (entry.get("inputs"), entry.get("reference"))))
    differs = entry["verdict"] == "differs"
    return Line(entry["name"], kind, verdict, differs, errors, on, entry["note"])


def _worst(facts: Facts) -> Iterator[tuple[int, str, Line]]:
    """The values with the largest errors beside their scale, with their kernels."""
    entries = [entry for entry in facts["accuracy"]["tensors"] if entry["kernel"] is not None]
    kernels = by_number(facts["kernels"])
    entries.sort(key=lambda entry: -_size(entry))
    for entry in entries[:WORST]:
        if _size(entry) > 0:
            yield entry["kernel"], kernel_text(kernels[entry["kernel"]]), _line(entry)


def _size(entry: Mapping[str, Any]) -> float:
    """The error beside the scale of the tensor; without one, as of integers, the absolute one."""
    error = entry["max_scaled_error"]
    if error is None:
        error = entry["max_abs_error"]
    return 0.0 if error is None else float(error)


def _error(entry: Mapping[str, Any]) -> str:
    """1e-07 of its scale, 2 ulp; of integers how far they are off."""
    scaled, ulp = entry["max_scaled_error"], entry["max_ulp_error"]
    if scaled is None:
        return f"off by {error_text(entry['max_abs_error'])}"
    more = "" if ulp is None else f", {error_text(ulp)} ulp"
    return f"{error_text(scaled)} of its scale{more}"


def level(entry: Mapping[str, Any]) -> str:
    """How a value is marked: differs, exact, close (of rounding), or none."""
    if entry["verdict"] == "differs":
        return "differs"
    if entry["verdict"] == "not compared":
        return "none"
    return "exact" if _size(entry) == 0 else "close"


def drawing(facts: Facts) -> Drawing | None:
    """None where no value between the kernels was compared."""
    entries = [
        entry
        for entry in facts["accuracy"]["tensors"]
        if entry["kernel"] is not None and level(entry) != "none"
    ]
    kernels = len(facts["kernels"])
    if not entries or not kernels:
        return None
    low, high = _decades(entries)
    names = by_number(facts["kernels"])
    marks = tuple(_mark(entry, names, kernels, low, high) for entry in entries)
    lines = [(power, f"1e{power}") for power in range(low, high + 1, _step(high - low))]
    decades = [Decade(place(EXACT), "exact")]
    decades += [Decade(place(_height(float(power), low, high)), text) for power, text in lines]
    if any(not isfinite(_size(entry)) for entry in entries):
        decades.append(Decade(place(TOP / 3), "not finite"))
    first = next((mark.x for mark in marks if mark.level == "differs"), "")
    return Drawing(marks, tuple(decades), first, tuple(number_ticks(kernels)))


def _step(decades: int) -> int:
    return max(1, -(-decades // 6))


def _decades(entries: list[Mapping[str, Any]]) -> tuple[int, int]:
    """The powers of ten below the least and above the largest error."""
    sizes = [size for size in map(_size, entries) if size > 0 and isfinite(size)]
    powers = [max(floor(log10(size)), LOWEST) for size in sizes] or [-8]
    low, high = min(powers), max(powers) + 1
    return (low, high) if high - low >= LEAST_DECADES else (high - LEAST_DECADES, high)


def _height(power: float, low: int, high: int) -> float:
    """Percent from the top of an error of ten to that power."""
    inside = min(max((high - power) / (high - low), 0.0), 1.0)
    return round(TOP + inside * HEIGHT, 4) - 0.0


def _mark(
    entry: Mapping[str, Any],
    kernels: Mapping[int, Mapping[str, Any]],
    number: int,
    low: int,
    high: int,
) -> Mark:
    size = _size(entry)
    if size == 0:
        y = EXACT
    elif isfinite(size):
        y = _height(log10(size), low, high)
    else:
        y = TOP / 3
    kernel = entry["kernel"]
    title = f"{entry['name']}: {_error(entry)}, by kernel {kernel} {kernel_text(kernels[kernel])}"
    title += f": {entry['verdict']}"
    x = place(percent(kernel + 0.5, number))
    return Mark(kernel, entry.get("tensor"), x, place(y), level(entry), title)
