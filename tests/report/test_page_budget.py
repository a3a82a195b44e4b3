"""What a report's page says would fit into so much memory."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from onnxc.report.html import budget
from onnxc.report.html.words import shortened
from tests.report.drawn_facts import HOSTILE, KIB, facts, tensor


def test_sixty_four_kib_are_too_little_and_the_page_says_what_must_shrink() -> None:
    assert budget.ram_sentence(facts(), 64 * KIB) == (
        "64 KiB of RAM: the workspace of 102,400 bytes is 36,864 too large. No plan of these"
        " kernels can help: more than that is live at 1 of 4 kernels (1). At kernel 1 (softmax_1),"
        " where most is live, 32,768 bytes have to go; the largest there: large"
        f" (float32[16384], 65,536 bytes) and {shortened(HOSTILE)} (float32[1, 8192], 32,768"
        " bytes)."
    )


def test_what_is_too_large_outside_of_the_workspace_is_named() -> None:
    changed = facts()
    changed["summary"] |= {"inputs_bytes": 108 * KIB, "outputs_bytes": 65 * KIB}
    text = budget.ram_sentence(changed, 64 * KIB)
    assert "too large. The inputs alone take 110,592 bytes. The outputs alone take 66,560" in text


def test_a_tensor_with_padding_is_told_as_such() -> None:
    padded = facts()
    padded["tensors"][0]["layout"] = "channels last, padded to 34 x 34 x 16"
    assert "large (float32[16384], 65,536 bytes with padding) and" in (
        budget.ram_sentence(padded, 64 * KIB)
    )


def test_a_tensor_that_is_too_large_by_itself_is_counted() -> None:
    text = budget.ram_sentence(facts(), 32 * KIB)
    assert "at 3 of 4 kernels (0 to 2). 1 tensor is larger by itself. At kernel 1" in text
    assert budget.budget(facts(), 32).tensors == (0,)


def test_where_only_gaps_are_in_the_way_it_says_so() -> None:
    assert budget.ram_sentence(facts(), 96 * KIB).endswith(
        "is 4,096 too large. No more than 98,304 bytes are live at once, so the tensors would fit:"
        " it is the gaps between them that would have to go."
    )


def test_where_the_workspace_fits_alone_inputs_and_outputs_are_named() -> None:
    assert budget.ram_sentence(facts(), 100 * KIB) == (
        "100 KiB of RAM: the workspace fits (102,400 bytes), but workspace, inputs, outputs and"
        " stack together are 105,984 bytes, 3,584 too many. Inputs and outputs are memory of the"
        " caller: they would have to be smaller, or lie elsewhere."
    )


def test_where_all_fits_it_says_how_much_is_left() -> None:
    assert budget.ram_sentence(facts(), 128 * KIB) == (
        "128 KiB of RAM: a run fits. Workspace, inputs, outputs and stack take 105,984 bytes;"
        " 25,088 are left."
    )


def test_a_stack_that_is_not_known_is_not_counted() -> None:
    unknown = facts()
    unknown["summary"]["stack"] = {"reason": "no compiler"}
    assert budget.ram_bytes(unknown) == 103 * KIB
    assert budget.values(unknown)["stack_known"] is False


def test_flash_has_code_and_constants_of_the_targets_that_were_measured() -> None:
    assert budget.flash_sentence(facts(), 64 * KIB) == (
        "64 KiB of flash: cortex-m4 takes 102,400 bytes, 36,864 too many. The constants alone,"
        " as packed for generic (92,160 bytes), do not fit: in the order of"
        " the kernels, the first 0 of 2 would (0 bytes), all that the first 0 of 2 kernels"
        " with constants need."
    )
    assert budget.flash_sentence(facts(), 128 * KIB) == (
        "128 KiB of flash: cortex-m4 takes 102,400 bytes and fits, 28,672 are left. The constants"
        " alone, as packed for generic (92,160 bytes), fit."
    )


def test_the_host_has_no_flash_but_counts_where_nothing_else_was_built() -> None:
    host = {"target": "host", "command": "cc", "text": 1, "rodata": 2, "data": 3, "bss": 0}
    both = facts()
    both["sections"].append(host)
    assert [entry["target"] for entry in budget.measured(both)] == ["cortex-m4"]
    assert budget.measured(facts(sections=[host])) == [host]


def test_without_sections_and_constants_there_is_little_to_say() -> None:
    bare = facts(sections=[])
    bare["tensors"] = bare["tensors"][:5]
    assert budget.flash_sentence(bare, 64 * KIB) == (
        "64 KiB of flash: no code was measured. There are no constants."
    )


@pytest.mark.parametrize(
    ("kib", "workspace", "ram", "kernels"),
    [(16, -84, -87.5, (0, 1, 2)), (64, -36, -39.5, (1,)), (128, 28, 24.5, ())],
)
def test_rows_of_the_table(kib: int, workspace: int, ram: float, kernels: tuple[int, ...]) -> None:
    row = budget.budget(facts(), kib)
    assert (row.workspace, row.ram) == (workspace * KIB, ram * KIB)
    assert row.kernels == kernels


def _constants() -> list[dict[str, Any]]:
    """In the order of the kernels 5, 9 and 3 bytes, then one byte that none reads."""
    return [
        tensor(0, "w", bytes=9, readers=[2]),
        tensor(1, "w", bytes=3, readers=[3]),
        tensor(2, "w", bytes=5, readers=[0, 3]),
        tensor(3, "w", bytes=1),
    ]


@pytest.mark.parametrize(
    ("room", "number", "used", "kernels"),
    [(4, 0, 0, 0), (5, 1, 5, 1), (13, 1, 5, 1), (14, 2, 14, 2), (17, 3, 17, 3), (99, 4, 18, 3)],
)
def test_constants_come_in_the_order_of_the_kernels_that_first_read_them(
    room: int, number: int, used: int, kernels: int
) -> None:
    """The first that does not fit ends it, though a smaller one might follow."""
    assert budget.begun(_constants(), room) == budget.Begun(number, used, kernels, 3)


def test_more_memory_never_holds_fewer_constants() -> None:
    found = [budget.begun(_constants(), room) for room in range(20)]
    for less, more in pairwise(found):
        assert less.number <= more.number
        assert less.bytes <= more.bytes
        assert less.kernels <= more.kernels


def test_without_constants_none_fit() -> None:
    assert budget.begun([], 9) == budget.Begun(0, 0, 0, 0)


def test_stacks_lie_side_by_side_on_one_scale() -> None:
    ram, flash = budget.stacks(facts())
    assert budget.stack_scale(facts()) == 105_984
    assert [(part.letter, part.x, part.width) for part in ram.parts] == [
        ("W", "0%", "96.6184%"),
        ("", "96.6184%", "0.9662%"),
        ("", "97.5845%", "1.9324%"),
        ("", "99.5169%", "0.4831%"),
    ]
    assert (flash.name, flash.bytes) == ("flash, cortex-m4", 102_400)
    assert [part.letter for part in flash.parts] == ["C", "T"]
