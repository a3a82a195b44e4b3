"""What `onnxc verify` says: which references were used, and how far apart each output is."""

from __future__ import annotations

from collections.abc import Iterator

from onnxc.report.text import columns, count, printable
from onnxc.verify import Comparison, Node, Nodes, Verification
from onnxc.verify.compare import Difference

ERRORS = ("max abs", "max rel", "of scale", "max ulp", "")
LONGEST_NAME = 60
"""Characters of a name in a table; those of some exporters have hundreds."""
WORDS = {"ok": "ok", "excused": "ok, see below", "not compared": "-", "differs": "DIFFERS"}


def lines(result: Verification) -> Iterator[str]:
    """The answer for people."""
    if result.build:
        yield printable(f"built by {result.build}")
    for reference in result.references:
        if reference.used:
            yield f"against {reference.title}"
        if reference.reason:
            often = "not always " if reference.used else "not "
            yield printable(
                f"{often}against {reference.title or reference.name}: {reference.reason}"
            )
    if result.comparisons:
        heads = ("output", "type", "inputs", "reference", *ERRORS)
        yield from columns([heads, *map(_cells, result.comparisons)], indent="")
    yield from map(printable, _facts(result))
    if result.nodes is not None:
        yield ""
        yield from _nodes(result.nodes)
    yield _verdict(result)


def _cells(comparison: Comparison) -> list[str]:
    shape = ", ".join(map(str, comparison.shape))
    cells = [comparison.output, f"{comparison.dtype}[{shape}]", comparison.inputs]
    cells += [comparison.reference, *_errors(comparison.difference, comparison.verdict)]
    return [printable(cell) for cell in cells]


def _errors(difference: Difference, verdict: str) -> list[str]:
    errors = (
        difference.max_abs_error,
        difference.max_rel_error,
        difference.max_scaled_error,
        difference.max_ulp_error,
    )
    compared = verdict != "not compared"
    texts = ["-" if e is None or not compared else f"{e:.3g}" for e in errors]
    return [*texts, WORDS[verdict]]


def _facts(result: Verification) -> Iterator[str]:
    """One line for each comparison that failed, and for each reason why something is no fault."""
    notes: dict[str, None] = {}
    for comparison in result.comparisons:
        where = f"output {comparison.output!r}, {comparison.inputs} inputs: "
        if not comparison.passed:
            yield where + _difference(comparison)
        elif comparison.verdict == "excused":
            notes[f"{where}{comparison.note}"] = None
        elif comparison.note:
            notes[f"{comparison.inputs} inputs, not compared: {comparison.note}"] = None
    yield from notes
    for skipped in result.skipped:
        yield f"{skipped.inputs} inputs, not compared: {skipped.note}"


def _difference(comparison: Comparison) -> str:
    difference, note = comparison.difference, comparison.note
    text = difference.note
    if difference.first is not None:
        first = difference.first
        text = (
            f"{difference.mismatches:,} of {count(difference.elements, 'element')}; "
            f"first at {list(first.index)}: {first.got}, not {first.expected}"
        )
    return f"{text} ({note})" if note else text


def _nodes(nodes: Nodes) -> Iterator[str]:
    """The errors from kernel to kernel, and where they begin."""
    heads = ("value", "type", "computed by", "reference", *ERRORS)
    yield from columns([heads, *map(_node_cells, nodes.list)], indent="")
    yield (
        f"{nodes.tapped:,} of {count(nodes.values, 'value')} of the graph are stored by a kernel"
        f" and were compared, on {nodes.inputs} inputs"
    )
    first = nodes.first
    if first is not None:
        function = f", by the function {first.function}" if first.function else ""
        work = ", ".join(first.nodes) or "a node without a name"
        yield printable(f"the first to differ is {first.value!r}, of {work}{function}")


def _node_cells(node: Node) -> list[str]:
    shape = ", ".join(map(str, node.shape))
    cells = [_short(node.value), f"{node.dtype}[{shape}]", f"{node.function or 'control flow'}"]
    errors = _errors(node.difference, node.verdict)
    if node.verdict == "excused":
        errors[-1] = f"ok: {node.note.partition(':')[0].partition(';')[0]}"
    cells += [node.reference, *errors]
    return [printable(cell) for cell in cells]


def _short(name: str) -> str:
    """Both ends of a long name, which --json has in full."""
    if len(name) <= LONGEST_NAME:
        return name
    half = (LONGEST_NAME - 3) // 2
    return f"{name[:half]}...{name[-half:]}"


def _verdict(result: Verification) -> str:
    if result.differs:
        return "values differ"
    if not result.complete:
        return "not verified: a reference that was asked for could not be run"
    return f"verified: {count(len(result.comparisons), 'comparison')}, no difference"
