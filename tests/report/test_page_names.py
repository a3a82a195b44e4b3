"""Names without a place to break a line: the page shortens them, and stays within its width."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, Page, expect

from onnxc.report.html import page
from onnxc.report.html.words import shortened
from tests.report import drawn_facts
from tests.report.browser import IN_SIGHT, Shown, browser, show
from tests.report.sample_facts import facts

__all__ = ["browser"]

NAMES: Final = tuple(
    "_".join([f"n{number}", *(f"model;activation{part}" for part in range(20)), "end"])
    for number in range(4)
)
"""Some 400 characters, as joined names of converters are, without a space or a hyphen."""
HIGHEST_ROW: Final = 250
"""Pixels of a row whose kernel has two nodes of such names."""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kernels, nodes, tensors, an input and an output of such names; too large for 64 KiB."""
    path = tmp_path_factory.mktemp("names") / "report.html"
    long = facts(names=NAMES, quantized=True)
    for tensor in long["tensors"]:
        tensor["bytes"] *= 100
    for size in ("workspace_bytes", "workspace_bound_bytes"):
        long["summary"][size] *= 100
    long["memory"]["live"] = [100 * live for live in long["memory"]["live"]]
    long["memory"]["peak"]["bytes"] *= 100
    path.write_text(page(long), encoding="utf-8")
    return path


@pytest.fixture
def shown(browser: Browser, file: Path) -> Shown:
    return show(browser, file, reduced_motion="reduce")


@pytest.mark.parametrize("width", [400, 1280])
def test_the_page_does_not_scroll_sideways(browser: Browser, file: Path, width: int) -> None:
    """Nor does it where details are open, and where the table is in place of the graph."""
    shown = show(browser, file, viewport={"width": width, "height": 800})
    found = shown.page
    across = "document.documentElement.scrollWidth"
    assert found.evaluate(across) == width
    for details in found.locator("details > summary:visible").all():
        details.click()
    found.get_by_role("button", name="Details of kernel 1").click()
    found.get_by_role("button", name="as a table").click()
    assert found.evaluate(across) == width
    shown.assert_quiet()


def test_printed_it_is_no_wider_than_the_paper(shown: Shown) -> None:
    """A page that were wider would be shrunk as a whole."""
    found = shown.page
    found.emulate_media(media="print")
    found.set_viewport_size({"width": 700, "height": 1000})
    assert found.evaluate("document.documentElement.scrollWidth") == 700


def heights(found: Page, selector: str) -> list[float]:
    boxes = [row.bounding_box() for row in found.locator(selector).all()]
    return [box["height"] for box in boxes if box is not None]


@pytest.mark.parametrize("rows", ["#kernels-table > tbody", "#tensors-table > tbody > tr"])
def test_rows_stay_low(shown: Shown, rows: str) -> None:
    shown.page.locator(rows).first.scroll_into_view_if_needed()
    assert max(heights(shown.page, rows)) < HIGHEST_ROW


def test_a_short_name_has_the_whole_one_in_its_title(shown: Shown) -> None:
    name = shown.page.locator("#kernel-0 .nodes bdi").first
    expect(name).to_have_text(shortened(NAMES[0]))
    expect(name).to_have_attribute("title", NAMES[0])


def test_an_opened_row_has_the_whole_name(shown: Shown) -> None:
    found = shown.page
    found.get_by_role("button", name="Details of kernel 0").click()
    expect(found.locator("#kernel-0 .detail")).to_contain_text(NAMES[0])
    whole = found.locator("#tensor-2 details > bdi")
    expect(whole).to_be_hidden()
    found.evaluate("location.hash = 'tensor-2'")
    expect(whole).to_be_visible()
    expect(whole).to_have_text(NAMES[2])
    found.evaluate("location.hash = 'node-1'")
    expect(found.locator("#ways-detail h3")).to_contain_text(NAMES[1])


def test_the_filter_finds_what_a_short_name_leaves_out(shown: Shown) -> None:
    found = shown.page
    found.locator('input[data-filter="kernels-table"]').fill("n1_model;activation0_model")
    visible = found.locator("#kernels-table > tbody:not([hidden])")
    ids = visible.evaluate_all("all => all.map(one => one.id)")
    assert ids == ["kernel-0", "kernel-2", "kernel-4"]


def test_in_the_graph_both_ends_of_a_name_are_seen(shown: Shown) -> None:
    name = shown.page.locator("#way-node-1 bdi")
    said = name.inner_text()
    assert said.startswith("n1_mod")
    assert "…" in said
    assert said.endswith("end")
    expect(name).to_have_attribute("title", NAMES[1])


# What a narrow page does.


def test_beside_a_kernel_a_narrow_page_has_time_and_limit(browser: Browser, file: Path) -> None:
    """Without a second way to scroll; an opened row has what is left out."""
    found = show(browser, file, viewport={"width": 400, "height": 800}).page
    heads = found.locator("#kernels-table thead th:visible")
    assert [head.split("\n")[0] for head in heads.all_inner_texts()] == [
        "No.", "Kernel and its nodes", "Time", "Of the limit",
    ]  # fmt: skip
    box = "document.querySelector('#kernels .scroll')"
    assert found.evaluate(f"{box}.scrollWidth <= {box}.clientWidth")
    found.get_by_role("button", name="Details of kernel 0").click()
    expect(found.locator("#kernel-0 .detail")).to_contain_text("multiply-accumulates")


def test_what_is_told_of_a_node_is_in_sight(browser: Browser, file: Path) -> None:
    options = {"viewport": {"width": 400, "height": 800}, "reduced_motion": "reduce"}
    found = show(browser, file, **options).page
    found.locator("#way-node-1").click()
    expect(found.locator("#ways-detail h3")).to_be_in_viewport()
    found.wait_for_function(IN_SIGHT, arg="#way-node-1")


def test_a_table_that_goes_on_says_so_and_this_one_does_not(
    browser: Browser, tmp_path: Path
) -> None:
    """What fits is all in sight at 1,280 pixels with three targets; a narrow page has a shade."""
    three = drawn_facts.facts()
    three["sections"] = [
        three["sections"][0] | {"target": target} for target in ("cortex-m4", "aarch64", "riscv64")
    ]
    path = tmp_path / "three.html"
    path.write_text(page(three), encoding="utf-8")
    found = show(browser, path).page
    box = "document.querySelector('#budget .scroll')"
    assert found.evaluate(f"{box}.scrollWidth <= {box}.clientWidth")
    assert found.evaluate(f"getComputedStyle({box}).backgroundAttachment") == (
        "local, local, scroll, scroll"
    )
