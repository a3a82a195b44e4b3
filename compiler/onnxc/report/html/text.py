"""Figures and names of a report as its page says them: the filters of the templates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from markupsafe import Markup

from onnxc.report.html.words import (
    amount,
    exact_amount,
    shortened,
    size_text,
    type_text,
)
from onnxc.report.text import count

EXACT: Final = 10_000
"""Counts up to which a short form gives every digit."""


def grouped(number: int) -> str:
    """1,234,567."""
    return f"{number:,}"


def macs(number: int) -> str:
    """950, 12.3 k, 1.23 M, 4.56 G: a count, rounded to three digits where it is large."""
    if number < EXACT:
        return f"{number:,}"
    value = float(number)
    for unit in ("k", "M", "G"):
        value /= 1000
        if value < 999.5:
            return f"{_digits(value)} {unit}"
    return f"{_digits(value / 1000)} T"


def duration(nanoseconds: float) -> str:
    """12.0 ns, 3.45 µs, 678 ms, 9.01 s."""
    value = float(nanoseconds)
    for unit in ("ns", "µs", "ms"):
        if value < 999.5:
            return f"{_digits(value)} {unit}"
        value /= 1000
    return f"{_digits(value)} s"


def percent(share: float) -> str:
    """62 %; 0.4 % below ten per cent, <0.1 % of next to nothing."""
    value = 100 * share
    if value <= 0 or value >= 9.95:
        return f"{value:.0f} %"
    text = "<0.1" if value < 0.1 else f"{value:.1f}"
    return f"{text} %"


def _digits(value: float) -> str:
    """Three digits: 1.23, 12.3, 123."""
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"


def together(text: str) -> Markup:
    """Words that stay on one line, as a number and its unit do."""
    return Markup("&nbsp;").join(text.split(" "))


FILTERS: Final[Mapping[str, Callable[..., str]]] = {
    "amount": amount,
    "duration": lambda nanoseconds: together(duration(nanoseconds)),
    "exact_amount": exact_amount,
    "grouped": grouped,
    "macs": lambda number: together(macs(number)),
    "percent": lambda share: together(percent(share)),
    "several": count,
    "shortened": shortened,
    "size": size_text,
    "type": type_text,
}
