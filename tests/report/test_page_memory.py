"""The memory map of a report's page, as numbers: where each bar is, and what the sentences say."""

from __future__ import annotations

import pytest

from onnxc.report.html import memory
from onnxc.report.html.words import amount, exact_amount, listed, shortened
from tests.report.drawn_facts import HOSTILE, KIB, facts, tensor


def _map() -> memory.Map:
    found = memory.memory_map(facts())
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("number", "place"),
    [
        (0, ("0%", "36%", "50%", "64%")),
        (1, ("25%", "4%", "50%", "32%")),
        (2, ("50%", "0%", "50%", "4%")),
    ],
)
def test_a_bar_is_as_wide_as_the_tensor_lives_and_as_high_as_it_is_large(
    number: int, place: tuple[str, str, str, str]
) -> None:
    bar = next(bar for bar in _map().bars if bar.number == number)
    assert (bar.x, bar.y, bar.width, bar.height) == place


def test_bars_are_in_the_order_of_time_and_only_of_the_workspace() -> None:
    assert [bar.number for bar in _map().bars] == [0, 1, 2]


def test_what_lives_at_the_peak_is_marked() -> None:
    assert [bar.at_peak for bar in _map().bars] == [True, True, False]
    assert _map().peak == ("25%", "25%")


def test_a_bar_tells_name_shape_producer_and_readers() -> None:
    assert _map().bars[0].title == (
        "large float32[16384], 65,536 bytes at 0, by kernel 0 conv_0, read by 1"
    )
    assert _map().bars[0].kernel == 0


def test_a_bar_without_producer_leads_to_the_kernel_where_it_begins() -> None:
    orphan = tensor(7, "kept", producer=None, first=2, last=3)
    changed = facts()
    changed["tensors"].append(orphan)
    found = memory.memory_map(changed)
    assert found is not None
    bar = next(bar for bar in found.bars if bar.number == 7)
    assert bar.kernel == 2
    assert bar.title == "kept float32[256], 1,024 bytes at 0, read by none"


def test_a_tensor_that_no_kernel_uses_has_no_bar() -> None:
    changed = facts()
    changed["tensors"].append(tensor(7, "unused", first=None, last=None, producer=None))
    found = memory.memory_map(changed)
    assert found is not None
    assert [bar.number for bar in found.bars] == [0, 1, 2]


def test_lines_of_the_workspace_and_of_the_least_of_any_plan() -> None:
    levels = [(level.name, level.y, level.text) for level in _map().levels]
    assert levels == [
        ("workspace", "0%", "workspace 100 KiB"),
        ("bound", "4%", "least of any plan 96 KiB"),
    ]


def test_the_live_bytes_are_steps_in_kernels_and_bytes_from_the_top() -> None:
    assert memory.live_path([64, 64, 96, 0], 100) == "M0 100H0V36H2V4H3V100H4V100Z"


@pytest.mark.parametrize(
    ("top", "texts"),
    [
        (100, ["0 B", "16 B", "32 B", "48 B", "64 B", "80 B", "96 B"]),
        (2048, ["0 KiB", "1 KiB", "2 KiB"]),
        (12 << 20, ["0 KiB", "2,048 KiB", "4,096 KiB", "6,144 KiB", "8,192 KiB", "10,240 KiB"]),
    ],
)
def test_offsets_are_round_numbers(top: int, texts: list[str]) -> None:
    assert [tick.text for tick in memory.offset_ticks(top)][: len(texts)] == texts


def test_offsets_are_at_their_height() -> None:
    assert [tick.at for tick in memory.offset_ticks(4096)] == [
        "100%", "75%", "50%", "25%", "0%",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kernels", "step"), [(1, 1), (16, 1), (17, 2), (33, 5), (100, 10), (161, 20), (2000, 200)]
)
def test_numbers_of_kernels_keep_a_distance(kernels: int, step: int) -> None:
    assert memory.number_step(kernels, 16) == step


def test_a_number_is_in_the_middle_of_its_column() -> None:
    ticks = [(tick.text, tick.at) for tick in memory.number_ticks(4)]
    assert ticks == [("0", "12.5%"), ("1", "37.5%"), ("2", "62.5%"), ("3", "87.5%")]


def test_only_a_bar_with_room_has_its_name_in_it() -> None:
    assert [bar.label for bar in _map().bars] == ["large", HOSTILE, "small"]
    many = facts()
    many["kernels"] *= 10
    found = memory.memory_map(many)
    assert found is not None
    assert [bar.label for bar in found.bars] == ["", "", ""]


def test_the_sentence_names_the_two_that_make_the_peak() -> None:
    assert memory.peak_sentence(facts()) == (
        "Most is live at kernel 1 (softmax_1): 98,304 bytes (96 KiB) in 2 tensors. The two largest,"
        f" large (float32[16384], 64 KiB) and {shortened(HOSTILE)} (float32[1, 8192], 32 KiB), are"
        " 100 % of it."
    )


def test_bytes_that_two_share_count_for_both() -> None:
    shared = facts()
    shared["memory"]["peak"] |= {"bytes": 64 * KIB, "shared": 32 * KIB}
    shared["memory"]["live"] = [32 * KIB, 64 * KIB, 36 * KIB, 4 * KIB]
    assert memory.peak_sentence(shared).startswith(
        "Most is live at kernel 1 (softmax_1): 65,536 bytes (64 KiB) in 2 tensors. 32 KiB of them"
        " are of two at once: written where another ends. The two largest,"
    )
    assert [row.share for row in memory.memory(shared).rows] == ["66.7 %", "33.3 %"]


def test_a_kernel_with_as_much_live_is_named_too() -> None:
    twice = facts()
    twice["memory"]["live"] = [64 * KIB, 96 * KIB, 96 * KIB, 4 * KIB]
    assert "in 2 tensors. As much is live at kernel 2. The two largest," in (
        memory.peak_sentence(twice)
    )


def test_a_border_is_written_too_and_padding_is_told() -> None:
    padded = facts()
    padded["tensors"][1] |= {"writers": [0, 1], "layout": "channels last, padded to 34 x 34"}
    assert [(row.others, row.padding) for row in memory.memory(padded).rows] == [
        ((), ""),
        ((0,), " with padding"),
    ]
    found = memory.memory_map(padded)
    assert found is not None
    assert ", by kernel 1 softmax_1 and 0, read by 2" in found.bars[1].title


def test_without_a_workspace_there_is_no_map() -> None:
    none = facts(
        memory={"live": [0], "peak": {"kernel": None, "bytes": 0, "shared": 0, "tensors": []}}
    )
    none["summary"]["workspace_bytes"] = 0
    found = memory.memory(none)
    assert found.map is None
    assert found.rows == ()
    assert found.sentence == "No tensor needs room in a workspace: there is none."


def test_the_table_of_the_peak_has_the_largest_first_and_sums_up_the_rest() -> None:
    many = facts()
    count = memory.ROWS_AT_PEAK + 2
    many["tensors"] = [tensor(number, f"t{number}") for number in range(count)]
    many["memory"]["peak"]["tensors"] = [*range(count)]
    found = memory.memory(many)
    assert [row.name for row in found.rows[:2]] == ["t0", "t1"]
    assert len(found.rows) == memory.ROWS_AT_PEAK
    assert found.rest == "and 2 tensors of 2 KiB"


def test_inputs_outputs_and_constants_are_outside() -> None:
    outside = [(o.place, o.name, o.bytes) for o in memory.memory(facts()).outside]
    assert outside == [
        ("input", "x", 1024),
        ("output", "y", 2048),
        ("constants", "2 tensors", 92160),
    ]


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (1, "1 byte"),
        (1023, "1,023 bytes"),
        (1024, "1 KiB"),
        (1280, "1.3 KiB"),
        (102_349, "100 KiB"),
        (12 << 20, "12,288 KiB"),
    ],
)
def test_amounts_round_halves_up(size: int, text: str) -> None:
    assert amount(size) == text


def test_exact_amounts_say_the_bytes_too() -> None:
    assert exact_amount(512) == "512 bytes"
    assert exact_amount(66_560) == "66,560 bytes (65 KiB)"


def test_lists_put_runs_together_and_end_in_a_count() -> None:
    assert listed([5, 1, 2, 3, 8, 9]) == "1 to 3, 5, 8, 9"
    assert listed(range(0, 40, 2)) == "0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22 and 8 more"
