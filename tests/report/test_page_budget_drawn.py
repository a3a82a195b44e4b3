"""The budget of a report's page in headless Chromium: any amount of memory, and no amount."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from onnxc.report.html import budget, page
from onnxc.report.text import printable
from tests.report.browser import Shown, browser
from tests.report.drawn_facts import KIB, facts
from tests.report.drawn_page import at, file, shown, still, texts

__all__ = ["browser", "file", "shown"]


def test_page_and_script_say_the_same_of_any_budget(shown: Shown) -> None:
    found, drawn = shown.page, facts()
    for kib in (1, 16, 64, 96, 100, 103, 128, 5000):
        found.locator("#budget-kib").fill(str(kib))
        said = [found.locator(f"#budget-{what}").text_content() for what in ("ram", "flash")]
        assert said == [
            budget.ram_sentence(drawn, kib * KIB),
            budget.flash_sentence(drawn, kib * KIB),
        ]
    shown.assert_quiet()


def test_both_write_control_characters_as_escapes(browser: Browser, tmp_path: Path) -> None:
    odd = facts()
    odd["tensors"][0]["label"] = "\u202egnp.exe a\x00b\x1b\t\xa0\u2028\udc80\U000e0001\n."
    odd["tensors"][0]["layout"] = "padded to 130 x 130"
    path = tmp_path / "odd.html"
    path.write_text(page(odd), encoding="utf-8")
    found = still(browser, path).page
    said = found.locator("#budget-ram").text_content()
    assert said == printable(budget.ram_sentence(odd, 64 * KIB))
    assert said is not None
    assert r"\u202egnp.exe a\x00b\x1b\t\xa0\u2028\x80\U000e0001" in said


def test_the_budget_begins_at_64_kib_and_is_drawn_into_the_map(shown: Shown) -> None:
    found = shown.page
    assert found.locator("#budget-kib").input_value() == "64"
    expect(found.locator("#budget-ram")).to_contain_text("live at 1 of 4 kernels (1)")
    line = found.locator("#memory-line line")
    assert line.get_attribute("y1") == "36%"
    expect(found.locator("#memory-budget-key")).to_have_text("budget 64 KiB")
    over = found.locator(".memory-over[x]")
    assert (over.get_attribute("x"), over.get_attribute("width")) == ("25%", "25%")
    found.get_by_role("button", name="512", exact=True).click()
    expect(line).to_have_count(0)
    expect(over).to_have_count(0)
    expect(found.locator("#memory-budget-key")).to_have_text("budget 512 KiB, above the map")
    expect(found.locator("tr.budget-chosen th")).to_have_text("512 KiB")


@pytest.mark.parametrize("wrong", ["", "0", "-3", "1e-9"])
def test_what_is_no_size_is_answered_with_what_is_wanted(shown: Shown, wrong: str) -> None:
    """Nothing that was said of another size stays, neither in the sentences nor in the map."""
    found = shown.page
    box = found.locator("#budget-kib")
    box.fill(wrong)
    wanted = found.locator("#budget-wanted")
    expect(wanted).to_have_text("Give a size in KiB: a number greater than 0.")
    expect(box).to_have_attribute("aria-invalid", "true")
    for stale in ("#budget-ram", "#budget-flash", "#budget-kernels-title", "#memory-budget-key"):
        expect(found.locator(stale)).to_be_hidden()
    expect(found.locator("#memory-line line")).to_have_count(0)
    expect(found.locator(".budget-line").first).to_be_hidden()
    expect(found.locator(".budget-chosen, [aria-pressed=true]")).to_have_count(0)
    box.fill("64")
    expect(wanted).to_be_empty()
    expect(box).to_have_attribute("aria-invalid", "false")
    expect(found.locator("#budget-ram")).to_be_visible()
    expect(found.locator("#memory-budget-key")).to_have_text("budget 64 KiB")
    shown.assert_quiet()


def test_what_is_too_large_is_listed_with_links(shown: Shown) -> None:
    found = shown.page
    found.locator("#budget-kib").fill("32")
    found.get_by_text("3 kernels with more live than 32 KiB").click()
    assert texts(found, "#budget-kernels a") == ["0 conv_0", "1 softmax_1", "2 gemm_2"]
    found.get_by_text("1 tensor larger by themselves than 32 KiB").click()
    found.locator("#budget-tensors a").click()
    at(found, "#tensor-0")
