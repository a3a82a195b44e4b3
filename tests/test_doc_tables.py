"""The tables of the documents, and the numbers in them, are those of the code.

`--update-golden` writes those that are generated anew.
"""

from __future__ import annotations

import importlib
import math
import re
import textwrap
from pathlib import Path
from typing import Final

import click
import pytest

from onnxc import cli, op
from onnxc.dtypes import ELEMENT_TYPES
from onnxc.pipeline import PASS_NAMES
from onnxc.report import schema
from onnxc.report.operators import table, table_markdown
from onnxc.resources import runtime_functions
from onnxc.status import Status
from onnxc.verify.compare import DEFAULT_TOLERANCES
from onnxc.verify.deviations import deviations

ROOT: Final = Path(__file__).parents[1]
README: Final = ROOT / "README.md"
GUIDE: Final = ROOT / "docs" / "guide.md"
NUMERICS: Final = ROOT / "docs" / "numerics.md"
ARCHITECTURE: Final = ROOT / "docs" / "architecture.md"
BENCHMARKS: Final = ROOT / "benchmarks" / "README.md"
REPORT: Final = ROOT / "docs" / "report.md"
LIST: Final = ROOT / "docs" / "operators.md"


def rows(page: Path, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading or a paragraph that starts so."""
    text = page.read_text(encoding="utf-8").split(f"\n{heading}", 1)[1]
    lines = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert lines is not None
    cells = [line.strip("|").split("|") for line in lines[0].splitlines()[2:]]
    return [[cell.strip().strip("`") for cell in row] for row in cells]


def check_generated(page: Path, mark: str, generated: str, update_golden: bool) -> None:
    """Asserts that a page has the text between its marks; or puts it there."""
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(f"<!-- {mark} -->\n")
    after = rest.partition(f"<!-- /{mark} -->")[2]
    new = f"{before}<!-- {mark} -->\n{generated}\n<!-- /{mark} -->{after}"
    if update_golden:
        page.write_text(new, encoding="utf-8")
    else:
        assert text == new


def test_the_list_of_operators(update_golden: bool) -> None:
    check_generated(LIST, "operators", table_markdown(), update_golden)


def test_the_fields_of_the_report(update_golden: bool) -> None:
    check_generated(REPORT, "fields", schema.markdown(), update_golden)


def test_the_order_of_passes(update_golden: bool) -> None:
    line = textwrap.fill(" → ".join((*PASS_NAMES, "emit")), 98, break_on_hyphens=False)
    check_generated(ARCHITECTURE, "passes", f"`{line}`", update_golden)


def test_the_table_of_deviations(update_golden: bool) -> None:
    settled = {"spec": "ONNX", "choice": "open"}
    lines = ["| Operator | Engine | What it returns | Settled by |", "|---|---|---|---|"]
    compiled = {row["name"] for row in table()}
    for known in (known for known in deviations() if known.operator in compiled):
        names = [known.operator]
        names += [f"opsets {known.opsets}"] if known.opsets != "*" else []
        names += [f"`{known.when}`"] if known.when != "-" else []
        engine = f"{known.engine} {known.seen}"
        lines.append(f"| {', '.join(names)} | {engine} | {known.what} | {settled[known.right]} |")
    check_generated(NUMERICS, "deviations", "\n".join(lines), update_golden)


def test_the_numbers_of_operators() -> None:
    text = " ".join(README.read_text(encoding="utf-8").split())
    known = len([name for domain, name in op.operator_names() if domain == ""])
    supported = len(table())
    assert f"compiles {supported} of the {known} operators of ai.onnx" in text
    assert f" {supported} operators of ai.onnx, in every version; " in text
    assert f" The other {known - supported} need " in text


def test_the_table_of_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its marks, with the columns and rows that the command under it prints."""
    pytest.importorskip("onnxruntime")
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    elementwise = importlib.import_module("elementwise")
    text = BENCHMARKS.read_text(encoding="utf-8")
    (table,) = re.findall(r"<!-- benchmark -->\n((?:.*\n)+?)<!-- /benchmark -->\n", text)
    lines = [line for line in table.splitlines() if line.startswith("|")]
    head, _, *found = ([cell.strip() for cell in line[1:-1].split("|")] for line in lines)
    titles = [case.title for case in elementwise.cases()]
    titles += [f"Equal string [{elementwise.MILLION}], {n} bytes each" for n in (9, 19)]
    assert tuple(head) == elementwise.HEAD
    assert [row[0] for row in found] == titles
    assert {len(row) for row in found} == {len(head)}


def test_the_table_of_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every network of the benchmark, in its order, with its floor."""
    pytest.importorskip("onnxruntime")
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    models = importlib.import_module("network_models")
    found = rows(README, "<!-- networks -->")
    wanted = [(network.name, f"{network.floor:.2f}") for network in models.NETWORKS]
    assert [(row[0], row[5]) for row in found] == wanted


def test_the_table_of_element_types() -> None:
    wanted = [[t.name, "uint8_t" if t.packed else t.c_type] for t in ELEMENT_TYPES]
    found = rows(GUIDE, "## Element types")
    assert [row[:2] for row in found] == wanted
    for element_type, row in zip(ELEMENT_TYPES, found, strict=True):
        packed = f"packed, {element_type.per_byte} in a byte"
        assert element_type.packed == (row[2] == packed)


def test_the_table_of_status_codes() -> None:
    found = {name: number for name, number, _ in rows(GUIDE, "**The status**")}
    assert found == {f"ONNXC_{code.name}": str(code.value) for code in Status.__members__.values()}


def table_of_functions() -> str:
    """What the comments of runtime_c state of each function of float and double."""
    stated: dict[str, dict[str, str]] = {}
    for name, text in runtime_functions().items():
        comment = " ".join(text.partition("*/")[0].replace("*", " ").split())
        function = re.fullmatch(r"onnxc_(\w+)_(float|double)", name)
        if function and (bound := re.search(r"/ At most ([\d.]+) ulp", comment)):
            stated.setdefault(function[1], {})[function[2]] = bound[1]
    lines = [
        f"| {name} | {bounds['float']} | {bounds['double']} |"
        for name, bounds in sorted(stated.items())
    ]
    return "\n".join(["| Function | float | double |", "|---|---|---|", *lines])


def test_the_table_of_functions(update_golden: bool) -> None:
    table = table_of_functions()
    assert len(table.splitlines()) > 20
    check_generated(NUMERICS, "functions", table, update_golden)


def test_the_table_of_tolerances() -> None:
    found = {
        name: (number(rtol), number(atol))
        for names, rtol, atol in rows(GUIDE, "Integers, bool and strings must be equal.")
        for name in names.split(", ")
    }
    assert found == {**DEFAULT_TOLERANCES, "float8": (0, 0), "float4": (0, 0)}


def number(text: str) -> float:
    base, _, exponent = text.partition("**")
    return math.pow(float(base), float(exponent or 1))


@pytest.mark.parametrize("verb", ["compile", "verify", "info", "ops", "report"])
def test_every_option_is_in_the_guide(verb: str) -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in (GUIDE, README, REPORT))
    for parameter in cli.commands.commands[verb].params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert re.search(rf"{parameter.opts[0]}\b", text), f"onnxc {verb} {parameter.opts[0]}"
