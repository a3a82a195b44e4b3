"""What the report's drawings call things: amounts of bytes, tensors, kernels, places on a scale."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, Final

from onnxc.report.text import count

Facts = Mapping[str, Any]
"""The report's JSON, as report.schema.json describes it."""

KIB: Final = 1024
LONGEST_NAME: Final = 40
"""Characters of a name among others."""
LONGEST_LIST: Final = 12
"""Numbers in a sentence; what there is besides is counted."""


def amount(size: int) -> str:
    """As people compare them: 512 bytes, 1.5 KiB, 130 KiB, 12,288 KiB; halves are rounded up."""
    if size < KIB:
        return count(size, "byte")
    tenths = (size * 10 + KIB // 2) // KIB
    if tenths >= 1000:
        return f"{(size + KIB // 2) // KIB:,} KiB"
    return f"{tenths // 10} KiB" if tenths % 10 == 0 else f"{tenths / 10:.1f} KiB"


def exact_amount(size: int) -> str:
    """The bytes, and KiB where that says it shorter: 66,560 bytes (65 KiB)."""
    text = count(size, "byte")
    return f"{text} ({amount(size)})" if size >= KIB else text


def type_text(entry: Mapping[str, Any]) -> str:
    """float32[1, 16, 32, 32]; float32[] is one element."""
    return f"{entry['dtype']}[{', '.join(map(str, entry['shape']))}]"


def size_text(tensor: Mapping[str, Any]) -> str:
    """130 KiB; 18.1 KiB with padding, where the shape alone would take less."""
    return amount(tensor["bytes"]) + padding_text(tensor)


def padding_text(tensor: Mapping[str, Any]) -> str:
    """What to say after its bytes, which are more than its shape asks for; else nothing."""
    layout = tensor["layout"]
    return " with padding" if "padded" in layout else ", packed" if "packed" in layout else ""


def kernel_text(kernel: Mapping[str, Any]) -> str:
    """conv_relu_3, or what of control flow it is."""
    return str(kernel["function"] or kernel["kind"])


def shortened(name: str) -> str:
    """Both ends of a long name; many differ only in the last."""
    if len(name) <= LONGEST_NAME:
        return name
    end = (LONGEST_NAME - 1) // 2
    return f"{name[: LONGEST_NAME - 1 - end]}…{name[-end:]}"


def listed(numbers: Sequence[int]) -> str:
    """3, 4, 7 to 9 and 12 more: runs are put together, the list stays short."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    shown, left = runs[:LONGEST_LIST], runs[LONGEST_LIST:]
    texts = [_run(*run) for run in shown]
    more = sum(last - first + 1 for first, last in left)
    return ", ".join(texts) + (f" and {more:,} more" if more else "")


def _run(first: int, last: int) -> str:
    if first == last:
        return f"{first}"
    return f"{first}, {last}" if last == first + 1 else f"{first} to {last}"


def error_text(error: float | str | None) -> str:
    """An error in three digits, or as a whole number; what is no JSON number comes as text."""
    if error is None:
        return "-"
    if isinstance(error, str):
        return error
    if not isfinite(error):
        return str(error)
    return f"{error:,.0f}" if 1e3 <= abs(error) < 1e9 else f"{error:.3g}"


def percent(part: float, whole: float) -> float:
    """Of a drawing's width or height, to a ten-thousandth of a percent."""
    return round(100 * part / whole, 4) if whole else 0.0


def place(value: float) -> str:
    """A percentage as SVG writes it: 12.5%."""
    return f"{value:.4f}".rstrip("0").rstrip(".") + "%"


def by_number(entries: Iterable[Mapping[str, Any]]) -> dict[int, Mapping[str, Any]]:
    return {entry["number"]: entry for entry in entries}
