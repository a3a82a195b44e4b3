"""offsets: what lives at the same time lies apart, and a few blocks lie as low as they can."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxc.passes import offsets
from onnxc.passes.blocks import Block, Problem
from onnxc.passes.liveness import Span
from onnxc.passes.offset_search import Search
from onnxc.passes.offsets import FEW, Placement, _in_order, _orders, _tried, least_size, place

Offsets = tuple[int, ...]


def kept(first: int, last: int, size: int, alignment: int = 1) -> Block:
    return Block(((Span(first, last), size),), alignment)


@st.composite
def some_blocks(draw: st.DrawFn, most: int) -> list[Block]:
    """Some of two or three parts, each of which takes over from the one before."""
    blocks = []
    for _ in range(draw(st.integers(0, most))):
        ends = sorted(draw(st.lists(st.integers(0, 12), min_size=2, max_size=4)))
        spans = itertools.starmap(Span, itertools.pairwise(ends))
        sizes = st.integers(0, 20)
        parts = tuple((span, draw(sizes)) for span in spans)
        blocks.append(Block(parts, draw(st.sampled_from([1, 4, 16]))))
    return blocks


def assert_apart(blocks: list[Block], offsets: Offsets) -> None:
    """At every step, and each offset at a multiple of the alignment."""
    for block, offset in zip(blocks, offsets, strict=True):
        assert offset >= 0
        assert offset % block.alignment == 0
    for step in range(1 + max((block.last for block in blocks), default=0)):
        places = sorted((o, o + b.at(step)) for o, b in zip(offsets, blocks, strict=True))
        used = [place for place in places if place[0] < place[1]]
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(used))


@given(some_blocks(most=30))
@settings(max_examples=30)
def test_blocks_that_live_together_lie_apart(blocks: list[Block]) -> None:
    found = place(blocks)
    assert_apart(blocks, found.offsets)
    ends = [offset + block.size for offset, block in zip(found.offsets, blocks, strict=True)]
    assert found.size == max(ends, default=0)
    assert found.least <= found.size


@given(some_blocks(most=4))
@settings(max_examples=40)
def test_of_a_few_blocks_none_is_better(blocks: list[Block]) -> None:
    """In a best placement each block lies at 0 or upon another: all orders find it."""
    filled = [block for block in blocks if block.size]
    assert place(blocks).size == best_of_all_orders(filled)


def best_of_all_orders(blocks: list[Block]) -> int:
    best = sum(-(-block.size // 16) * 16 for block in blocks)
    for order in itertools.permutations(range(len(blocks))):
        tops: dict[int, int] = {}
        for number in order:
            tops[number] = lowest(blocks, number, tops)
        ends = [tops[number] + block.size for number, block in enumerate(blocks)]
        best = min(best, max(ends, default=0))
    return best


def lowest(blocks: list[Block], number: int, placed: dict[int, int]) -> int:
    """The least aligned offset at which a block overlaps none of those that are placed."""
    block, offset = blocks[number], 0
    while any(overlap(block, offset, blocks[n], o) for n, o in placed.items()):
        offset += block.alignment
    return offset


def overlap(one: Block, offset: int, other: Block, its: int) -> bool:
    return any(
        offset < its + other.at(step) and its < offset + one.at(step)
        for step in range(13)
        if one.at(step) and other.at(step)
    )


@given(some_blocks(most=15))
@settings(max_examples=10)
def test_the_same_blocks_get_the_same_places(blocks: list[Block]) -> None:
    assert place(blocks) == place(list(blocks))


def test_a_chain_needs_two_places() -> None:
    blocks = [kept(n, n + 1, 100) for n in range(50)]
    assert place(blocks).size == 200


def test_smaller_parts_leave_room_behind_them() -> None:
    """The first is 100 bytes only at first: the second lies behind what it keeps."""
    shrinking = Block(((Span(0, 1), 100), (Span(1, 9), 10)), 1)
    blocks = [shrinking, kept(2, 9, 90)]
    assert place(blocks).size == 100
    assert place(blocks).offsets == (0, 10)


def test_each_block_lies_in_the_smallest_gap_that_fits_it() -> None:
    """Two gaps are free at step 1, of 8 and of 5."""
    blocks = [kept(0, 0, 8), kept(0, 9, 6), kept(0, 0, 5), kept(0, 9, 4), kept(1, 1, 5)]
    assert place(blocks).offsets == (0, 8, 14, 19, 14)


def test_what_ends_leaves_one_gap_with_those_beside_it() -> None:
    blocks = [kept(0, 0, 8), kept(0, 1, 7), kept(0, 0, 6), kept(0, 2, 5), kept(2, 2, 21)]
    assert place(blocks).offsets == (0, 8, 15, 21, 0)


def test_offsets_in_gaps_are_aligned() -> None:
    blocks = [kept(0, 1, 3), kept(0, 1, 2, 4), kept(1, 1, 1)]
    assert place(blocks).offsets == (0, 4, 3)


def test_blocks_without_bytes_lie_at_0() -> None:
    assert place([kept(0, 1, 3), kept(0, 1, 0, 4), kept(0, 1, 2)]).offsets == (0, 0, 3)
    assert place([kept(0, 1, 0)]) == Placement((0,), 0, 0)
    assert place([]) == Placement((), 0, 0)


@pytest.mark.parametrize(
    ("blocks", "least"),
    [
        ([], 0),
        ([kept(0, 1, 5), kept(1, 2, 7), kept(2, 3, 6)], 13),
        ([kept(0, 1, 5), kept(2, 3, 7)], 7),
        # The smallest alignment counts; what is last need not end at a multiple.
        ([kept(0, 0, 5, 4), kept(0, 0, 8, 16)], 13),
        ([kept(0, 0, 5, 4), kept(0, 0, 6, 4)], 13),
        ([kept(0, 0, 8, 4), kept(0, 0, 8, 4)], 16),
        ([Block(((Span(0, 1), 100), (Span(1, 9), 10)), 1), kept(2, 9, 95)], 105),
    ],
)
def test_what_the_fullest_step_needs(blocks: list[Block], least: int) -> None:
    assert least_size(blocks) == least


# Greedy orders leave a gap in each of these; rows of (first, last, size), and the best size.
HARD = {
    "a small one that outlives its neighbours": ([(0, 1, 4), (0, 2, 2), (2, 3, 5), (1, 3, 1)], 8),
    "one between two that alternate": ([(0, 2, 3), (1, 4, 2), (3, 6, 4), (5, 8, 3), (2, 7, 1)], 8),
}


@pytest.mark.parametrize("name", HARD)
def test_search(name: str) -> None:
    """From the worst placement there is: one upon the other."""
    rows, wanted = HARD[name]
    blocks = [kept(*row) for row in rows]
    problem = Problem.of(blocks, least_size(blocks))
    assert problem is not None
    piled = list(itertools.accumulate((block.size for block in blocks[:-1]), initial=0))
    found = Search(problem, piled, 100_000)
    assert_apart(blocks, tuple(found.best))
    assert found.size == problem.size(found.best) == wanted


def test_a_search_passes_over_what_cannot_be_better(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what the blocks that are left need at least, of which the last need not be aligned."""
    rows = [(6, 9, 1), (4, 7, 7), (3, 5, 10), (4, 5, 5), (6, 6, 10)]
    blocks = [kept(*row, 4) for row in rows]
    problem = Problem.of(blocks, least_size(blocks))
    assert problem is not None

    def looks() -> int:
        found = Search(problem, [0, 4, 12, 24, 32], 8000)
        assert found.size == 25
        return 1000 - found.tries  # at five blocks, of which seven meet at the steps

    assert looks() == 41
    monkeypatch.setattr(Search, "_may_be_better", lambda *_: True)
    assert looks() == 55


def test_a_search_without_work_keeps_what_it_has() -> None:
    blocks = [kept(0, 1, 4), kept(2, 3, 4)]
    problem = Problem.of(blocks, 4)
    assert problem is not None
    assert Search(problem, [0, 4], 0).best == [0, 4]


def test_orders() -> None:
    """By size, size and lifetime, lifetime, what lives beside; then by size, the longest or the
    last first.
    """
    blocks = [kept(2, 3, 6), kept(0, 9, 6), kept(4, 4, 50), kept(1, 3, 7), kept(2, 4, 6)]
    problem = Problem.of(blocks, 0)
    assert problem is not None
    assert _orders(problem) == [
        [2, 3, 1, 0, 4],
        [1, 2, 3, 4, 0],
        [1, 3, 4, 0, 2],
        [1, 4, 2, 3, 0],
        [2, 3, 1, 4, 0],
        [2, 3, 1, 4, 0],
    ]
    assert _orders(problem)[0] != _orders(problem)[4]


def test_in_an_order_each_block_lies_in_the_lowest_gap() -> None:
    """The last fits exactly where the second, which is gone by then, was."""
    blocks = [kept(0, 9, 4), kept(0, 0, 3), kept(0, 9, 5), kept(5, 9, 3), kept(5, 9, 4)]
    problem = Problem.of(blocks, 0)
    assert problem is not None
    assert _in_order(problem, range(4)) == [0, 4, 7, 4, -1]
    assert _in_order(problem, [0, 1, 2, 4]) == [0, 4, 7, -1, 12]


@pytest.mark.parametrize(
    ("work", "rounds"), [(27, 2), (28 * 3 - 1, 2), (28 * 3, 3), (28 * 9 + 5, 9), (500_000, 200)]
)
def test_rounds_of_as_much_work_as_there_is(
    work: int, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round looks at each of 12 pairs, and four times at each of four blocks."""
    monkeypatch.setattr(offsets, "WORK", work)
    problem = Problem.of([kept(0, 1, 5)] * 4, 20)
    assert problem is not None
    assert len([*_tried(problem)]) == rounds


def test_what_came_to_lie_too_high_is_placed_earlier() -> None:
    """The first round has the order by size: the third block ends above the bound."""
    blocks = [kept(0, 0, 4), kept(0, 1, 3), kept(1, 1, 2)]
    problem = Problem.of(blocks, 4)
    assert problem is not None
    greedy = [*_tried(problem)]
    assert greedy[0] == greedy[6] == [0, 4, 0]
    assert greedy[7] == [3, 0, 3]


@pytest.mark.parametrize(("count", "searched"), [(FEW, True), (FEW + 1, False)])
def test_few_blocks_are_searched(
    count: int, searched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a problem that no greedy order solves, and others that live at other times."""
    seen: list[int] = []

    class Spy(Search):
        def __init__(self, problem: Problem, best: Sequence[int], work: int) -> None:
            seen.append(work)
            super().__init__(problem, best, work)

    monkeypatch.setattr(offsets, "Search", Spy)
    rows, _ = HARD["one between two that alternate"]
    blocks = [kept(*row) for row in rows]
    blocks += [kept(20 + n, 20 + n, 1) for n in range(count - len(blocks))]
    monkeypatch.setattr(offsets, "_tried", lambda _problem: ())
    place(blocks)
    assert bool(seen) == searched


def test_very_many_blocks_at_once() -> None:
    """More pairs than are looked at: they are placed by time alone."""
    blocks = [kept(n // 1000, n // 1000 + 1, 64, 64) for n in range(3000)]
    assert Problem.of(blocks, 0) is None
    found = place(blocks)
    assert_apart(blocks, found.offsets)
    assert found.size == found.least == 2000 * 64
