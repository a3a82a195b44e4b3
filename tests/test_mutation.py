"""The data of mutation.py is that of the sources: without mutmut, which makes the mutants."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import pytest

from tests.mutation import (
    PACKAGE,
    Mutant,
    difference,
    equivalents,
    interval,
    meaningless,
    statement_around,
)
from tests.mutation_groups import AT_IMPORT, GROUPS

SOURCE = """\
def place(blocks):
    if blocks and (
        blocks[0]
    ):
        total = sum(
            blocks, 1
        )
    return total
"""


def test_every_pass_is_in_one_group() -> None:
    found = [path for group in GROUPS.values() for path in group.mutated]
    passes = {f"passes/{file.name}" for file in (PACKAGE / "passes").glob("[a-z]*.py")}
    assert passes <= set(found)
    assert len(found) == len(set(found))
    assert all((PACKAGE / path).is_file() for path in found)


def test_the_tests_of_groups_exist() -> None:
    named = [name for group in GROUPS.values() for name in group.tests]
    assert not [name for name in named if not Path(__file__).parent.joinpath(name).is_file()]


def test_equivalent_mutants_are_of_lines_that_exist() -> None:
    for path, before, after, reason in equivalents():
        lines = (line.strip() for line in (PACKAGE / path).read_text("utf-8").splitlines())
        assert before in " ".join(lines), path
        assert before != after
        assert reason


def test_functions_that_run_at_import_exist() -> None:
    for path, function in AT_IMPORT:
        assert f"def {function}(" in (PACKAGE / path).read_text("utf-8")


@pytest.mark.parametrize(
    ("line", "lines"), [(1, [*range(1, 9)]), (3, [2, 3, 4]), (6, [5, 6, 7]), (8, [8])]
)
def test_the_statement_around_a_line(line: int, lines: list[int]) -> None:
    assert [*statement_around(ast.parse(SOURCE), line)] == lines


def test_what_differs() -> None:
    assert difference("a\n  b\nc\n", "a\n  d\n  e\nc\n") == ("b", "d e")
    assert difference("a\nb\nc\n", "a\nc\n") == ("b", "")


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("zip(a, b, strict=True)", "zip(a, b, strict=False)", True),
        ("zip(a, b, strict=True)", "zip(a, b, )", True),
        ("zip(a, b, strict=True)", "zip(a, strict=True)", False),
        ('Buffer("", shape)', "Buffer(None, shape)", True),
        ('Buffer("", shape)', 'Buffer("other", shape)', False),
        ("a < b", "a <= b", False),
    ],
)
def test_changes_that_mean_nothing(before: str, after: str, same: bool) -> None:
    assert meaningless(Mutant("", "", range(1), before, after, "")) is same


def test_the_interval_of_a_share() -> None:
    low, high = interval(90, 100)
    assert (round(low, 3), round(high, 3)) == (0.826, 0.945)
    assert math.isclose(interval(10, 10)[1], 1)
