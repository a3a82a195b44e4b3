"""What `onnxc verify` says: which references were used, and how far apart each output is."""

from __future__ import annotations

from collections.abc import Iterator

from onnxc.report.text import columns, count, printable
from onnxc.verify import Comparison, Verification


def lines(result: Verification) -> Iterator[str]:
    """The answer for people."""
    for reference in result.references:
        if reference.used:
            yield f"against {reference.title}"
        else:
            yield printable(f"not against {reference.title or reference.name}: {reference.reason}")
    if result.comparisons:
        heads = ("output", "type", "inputs", "reference", "max abs", "max rel", "max ulp", "")
        yield from columns([heads, *map(_cells, result.comparisons)], indent="")
    yield from map(printable, _facts(result))
    yield _verdict(result)


def _cells(comparison: Comparison) -> list[str]:
    shape = ", ".join(map(str, comparison.shape))
    difference = comparison.difference
    errors = (difference.max_abs_error, difference.max_rel_error, difference.max_ulp_error)
    cells = [comparison.output, f"{comparison.dtype}[{shape}]", comparison.inputs]
    cells += [comparison.reference, *("-" if e is None else f"{e:.3g}" for e in errors)]
    cells.append("ok" if comparison.passed else "DIFFERS")
    return [printable(cell) for cell in cells]


def _facts(result: Verification) -> Iterator[str]:
    """One line for each comparison that failed."""
    for comparison in result.comparisons:
        difference = comparison.difference
        where = f"output {comparison.output!r}, {comparison.inputs} inputs: "
        if difference.note:
            yield where + difference.note
        elif difference.first is not None:
            first = difference.first
            yield (
                f"{where}{difference.mismatches:,} of {count(difference.elements, 'element')}; "
                f"first at {list(first.index)}: {first.got}, not {first.expected}"
            )


def _verdict(result: Verification) -> str:
    if result.differs:
        return "values differ"
    if not result.complete:
        return "not verified: a reference that was asked for could not be run"
    return f"verified: {count(len(result.comparisons), 'comparison')}, no difference"
