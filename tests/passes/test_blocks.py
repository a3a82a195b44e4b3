"""blocks: what a block needs at each step, and how much of two blocks must lie apart."""

from __future__ import annotations

import pytest

from onnxc.passes import blocks
from onnxc.passes.blocks import Block, Problem
from onnxc.passes.liveness import Span
from tests.passes.test_offsets import kept

SHRINKING = Block(((Span(0, 1), 100), (Span(1, 9), 10)), 16)


def test_a_block_of_parts() -> None:
    assert (SHRINKING.first, SHRINKING.last, SHRINKING.size) == (0, 9, 100)
    assert [SHRINKING.at(step) for step in (0, 1, 2, 9, 10)] == [100, 100, 10, 10, 0]
    assert [*SHRINKING.outline()] == [(0, 100), (1, 100), (2, 10), (10, 0)]


@pytest.mark.parametrize(("offset", "aligned"), [(0, 0), (1, 16), (16, 16), (17, 32)])
def test_alignment(offset: int, aligned: int) -> None:
    assert SHRINKING.aligned(offset) == aligned


def together(*given: Block) -> list[list[tuple[int, int, int]]]:
    problem = Problem.of(given, 0)
    assert problem is not None
    assert problem.pairs == sum(map(len, problem.together))
    return [sorted(others) for others in problem.together]


def test_blocks_meet_where_one_ends_and_the_other_begins() -> None:
    assert together(kept(0, 1, 5), kept(1, 2, 7)) == [[(1, 5, 7)], [(0, 7, 5)]]
    assert together(kept(0, 1, 5), kept(2, 3, 7)) == [[], []]


def test_blocks_are_told_by_their_numbers_in_whatever_order_they_begin() -> None:
    assert together(kept(4, 5, 1), kept(0, 9, 2), kept(5, 6, 3)) == [
        [(1, 1, 2), (2, 1, 3)],
        [(0, 2, 1), (2, 2, 3)],
        [(0, 3, 1), (1, 3, 2)],
    ]


def test_of_parts_those_count_that_live_together() -> None:
    assert together(SHRINKING, kept(2, 9, 90)) == [[(1, 10, 90)], [(0, 90, 10)]]
    assert together(SHRINKING, kept(1, 1, 90)) == [[(1, 100, 90)], [(0, 90, 100)]]
    growing = Block(((Span(0, 2), 3), (Span(2, 4), 30)), 1)
    assert together(SHRINKING, growing) == [[(1, 100, 30)], [(0, 30, 100)]]


def test_parts_between_which_another_lives_do_not_meet_it() -> None:
    apart = Block(((Span(0, 1), 5), (Span(4, 5), 6)), 1)
    assert together(apart, kept(2, 3, 8)) == [[], []]
    empty = Block(((Span(0, 1), 5), (Span(1, 4), 0)), 1)
    assert together(empty, kept(2, 3, 8)) == [[], []]


def test_too_many_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "MOST_PAIRS", 3)
    assert Problem.of([kept(0, 1, 5)] * 3, 0) is not None
    assert Problem.of([kept(0, 1, 5)] * 4, 0) is None


def test_the_size_of_a_placement() -> None:
    problem = Problem.of([kept(0, 1, 5), kept(2, 3, 7)], 7)
    assert problem is not None
    assert problem.least == 7
    assert problem.size([4, 0]) == 9
    empty = Problem.of([], 0)
    assert empty is not None
    assert empty.size([]) == 0
