"""The drawings of a report's page in headless Chromium: what pointer, keyboard and links do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from onnxc.report.html import page
from tests.report import sample_facts
from tests.report.browser import IN_SIGHT, Shown, browser
from tests.report.drawn_facts import HOSTILE, KIB, accuracy, facts, kernel
from tests.report.drawn_page import at, file, settled, shown, still, texts

__all__ = ["browser", "file", "shown"]


# The memory map.


def test_a_bar_under_the_pointer_tells_name_shape_producer_and_readers(shown: Shown) -> None:
    found = shown.page
    found.locator("#bar-1 rect").first.hover()
    assert texts(found, "#tip p") == [
        HOSTILE,
        "float32[1, 8192]",
        "32,768 bytes at 65,536",
        "live in kernels 1 to 2",
        "written by kernel 1 softmax_1",
        "read by kernel 2 gemm_2",
    ]
    assert found.locator("#memory-bands text").all_text_contents() == ["P", "R"]
    found.locator("#memory h2").hover()
    expect(found.locator("#tip")).to_be_hidden()
    expect(found.locator("#memory-bands text")).to_have_count(0)
    shown.assert_quiet()


def test_marks_of_producer_and_reader_are_above_the_bars(shown: Shown) -> None:
    """What is drawn later lies above: a mark under a bar at the peak could not be read."""
    found = shown.page
    found.locator("#bar-1 rect").first.hover()
    below = found.locator("#memory-bands text").evaluate_all(
        "marks => marks.map(mark => [...document.querySelectorAll('#memory-plot a')].every("
        "bar => bar.compareDocumentPosition(mark) & Node.DOCUMENT_POSITION_FOLLOWING))"
    )
    assert below == [True, True]


def test_each_kernel_that_writes_a_tensor_is_marked(browser: Browser, tmp_path: Path) -> None:
    """As the one that fills the border of a padded tensor before its producer runs."""
    padded = facts()
    padded["tensors"][1] |= {"first": 0, "writers": [0, 1]}
    path = tmp_path / "padded.html"
    path.write_text(page(padded), encoding="utf-8")
    found = still(browser, path).page
    found.locator("#bar-1 rect").first.hover()
    assert found.locator("#memory-bands text").all_text_contents() == ["P", "P", "R"]
    expect(found.locator("#tip")).to_contain_text("written by kernel 1 softmax_1 and 0 conv_0")


def test_a_thin_bar_is_found_a_few_pixels_beside_it(browser: Browser, tmp_path: Path) -> None:
    thin = facts()
    thin["tensors"][2] |= {"bytes": 4, "offset": 50 * KIB, "first": 3, "label": "thin"}
    path = tmp_path / "thin.html"
    path.write_text(page(thin), encoding="utf-8")
    found = still(browser, path).page
    plot = found.locator("#memory-plot")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None
    found.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + box["height"] / 2 + 3)
    expect(found.locator("#tip p").first).to_have_text("thin")
    found.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + box["height"] / 2 + 30)
    expect(found.locator("#tip")).to_be_hidden()


def test_a_click_goes_to_the_kernel_that_writes_and_keeps_the_marks(shown: Shown) -> None:
    found = shown.page
    found.locator("#bar-1 rect").first.click()
    at(found, "#kernel-1")
    expect(found.locator("#kernel-1")).to_be_in_viewport()
    expect(found.locator("#bar-1")).to_have_class("memory-peak memory-held")
    assert found.locator("#memory-bands text").all_text_contents() == ["P", "R"]
    shown.assert_quiet()


def test_the_strip_of_live_bytes_tells_of_each_kernel(shown: Shown) -> None:
    found = shown.page
    strip = settled(found, "#memory-live")
    box = strip.bounding_box()
    assert box is not None
    found.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + box["height"] / 2)
    assert texts(found, "#tip p") == [
        "kernel 1 softmax_1",
        "98,304 bytes live, in 2 tensors",
        "of 102,400 bytes of the workspace",
    ]
    found.locator("#memory h2").hover()
    expect(found.locator("#tip")).to_be_hidden()
    shown.assert_quiet()


def test_arrows_walk_along_time_and_up_and_down(shown: Shown) -> None:
    found = shown.page
    found.locator("#bar-0").focus()
    expect(found.locator("#memory-plot a[tabindex='0']")).to_have_count(1)
    for key, bar in (
        ("ArrowRight", "#bar-1"),
        ("ArrowDown", "#bar-0"),
        ("End", "#bar-2"),
        ("ArrowDown", "#bar-1"),
        ("ArrowLeft", "#bar-0"),
        ("ArrowLeft", "#bar-0"),
    ):
        found.keyboard.press(key)
        expect(found.locator(bar)).to_be_focused()
    expect(found.locator("#tip p").first).to_have_text("large")
    found.keyboard.press("Enter")
    at(found, "#kernel-0")
    shown.assert_quiet()


def test_zoom_makes_the_map_wider_and_taller_in_a_box_that_scrolls(shown: Shown) -> None:
    found = shown.page
    size = "(({clientWidth, clientHeight}) => [clientWidth, clientHeight])"
    plot = f"{size}(document.getElementById('memory-plot'))"
    width, height = found.evaluate(plot)
    found.get_by_role("button", name="wider").click()
    found.get_by_role("button", name="taller").click()
    wider, taller = found.evaluate(plot)
    assert wider == pytest.approx(2 * width, abs=2)
    assert taller == pytest.approx(2 * height, abs=2)
    assert found.evaluate("document.documentElement.scrollWidth") <= 1280
    assert found.locator("#memory-numbers text").all_text_contents() == ["0", "1", "2", "3"]
    shown.assert_quiet()


def test_names_stand_in_bars_that_have_room(shown: Shown) -> None:
    labels = shown.page.locator("#memory-labels text")
    expect(labels).to_have_count(3)
    assert labels.nth(0).text_content() == "large"
    assert shown.page.title() == "drawn.onnx: onnxc report"


def test_a_narrow_bar_has_its_name_upwards(browser: Browser, tmp_path: Path) -> None:
    """Forty kernels leave no room across for the name of a bar of one of them, but up there is."""
    narrow = facts()
    narrow["kernels"] = [kernel(number, f"f_{number}", nodes=[]) for number in range(40)]
    narrow["memory"]["live"] = [64 * KIB] * 40
    narrow["tensors"][0] |= {"label": "a_long_name", "first": 0, "last": 0}
    path = tmp_path / "narrow.html"
    path.write_text(page(narrow), encoding="utf-8")
    label = still(browser, path).page.locator("#memory-labels text").first
    expect(label).to_have_text("a_long_name")
    expect(label).to_have_attribute("transform", "rotate(-90)")


def test_a_link_to_a_tensor_marks_its_bar(shown: Shown) -> None:
    shown.page.evaluate("location.hash = 'tensor-2'")
    expect(shown.page.locator("#bar-2")).to_have_class("memory-held")


# Where each node went.


def node_rows(found: Page) -> list[str]:
    keys = found.locator(".ways-node").evaluate_all("all => all.map(one => one.dataset.key)")
    return [*keys]


def marked(found: Page, how: str) -> set[str]:
    keys = found.locator(f".ways-row.ways-{how}").evaluate_all(
        "all => all.map(one => one.dataset.key)"
    )
    return {*keys}


def test_a_kernel_stands_level_with_the_middle_of_its_nodes(shown: Shown) -> None:
    """Nodes 1 and 2 are kernel 1; node 4 is kernels 2 and 3, which cannot share a row."""
    tops = shown.page.locator(".ways-made").evaluate_all("all => all.map(one => one.style.top)")
    assert tops == ["0px", "44px", "88px", "110px"]


def test_a_node_under_the_pointer_lights_its_kernels_and_neighbours(shown: Shown) -> None:
    found = shown.page
    settled(found, "#way-node-2").hover()
    assert marked(found, "lit") == {"node-2", "kernel-1"}
    assert marked(found, "near") == {"node-1", "node-3", "kernel-0", "kernel-2"}
    detail = found.locator("#ways-detail")
    expect(detail.locator("h3")).to_have_text("K Softmax-13 /soft")
    expect(detail).to_contain_text("kernel: no function of elements")
    expect(detail.locator("a")).to_have_attribute("href", "#kernel-1")
    expect(detail).to_contain_text("v1 from Relu-14 </title>")
    found.locator("#ways h2").hover()
    assert marked(found, "lit") == set()


def test_a_kernel_under_the_pointer_lights_its_nodes(shown: Shown) -> None:
    found = shown.page
    settled(found, "#way-kernel-1").hover()
    assert marked(found, "lit") == {"kernel-1", "node-1", "node-2"}
    assert texts(found, "#ways-detail h3") == ["kernel 1 softmax_1"]
    expect(found.locator("#ways-detail")).to_contain_text("■ 1.0e-7 of the scale")


def test_lines_join_nodes_and_kernels_and_end_where_there_is_none(shown: Shown) -> None:
    ends = shown.page.locator("#ways-lines path").evaluate_all(
        "all => all.map(one => [one.dataset.node, one.dataset.kernel ?? ''])"
    )
    assert sorted(map(tuple, ends)) == [
        ("node-0", "kernel-0"),
        ("node-1", "kernel-1"),
        ("node-2", "kernel-1"),
        ("node-3", ""),
        ("node-4", "kernel-2"),
        ("node-4", "kernel-3"),
    ]
    assert shown.page.locator("#ways-lines text").all_text_contents() == ["alias"]


def test_fates_are_filtered(shown: Shown) -> None:
    found = shown.page
    found.get_by_role("checkbox", name="kernel 3").uncheck()
    assert node_rows(found) == ["node-1", "node-3"]
    expect(found.locator("#ways-found")).to_have_text("2 of 5 nodes")
    assert texts(found, ".ways-made bdi") == ["softmax_1"]


def test_the_search_finds_names_values_and_functions(shown: Shown) -> None:
    found = shown.page
    box = found.locator("#ways-search")
    for asked, rows in {
        "/fc": ["node-4"],
        "<script>": ["node-1"],
        "v2": ["node-2", "node-3"],
        "softmax_3 gemm": ["node-4"],
        "nothing": [],
    }.items():
        box.fill(asked)
        assert node_rows(found) == rows
    box.press("Escape")
    assert len(node_rows(found)) == 5
    shown.assert_quiet()


def test_a_click_holds_and_a_second_lets_go(shown: Shown) -> None:
    found = shown.page
    row = settled(found, "#way-node-3")
    row.click()
    found.locator("#ways h2").hover()
    expect(found.locator("#ways-detail h3")).to_have_text("A Identity-16")
    expect(found.locator("#ways-detail")).to_contain_text("aliased: the same bytes")
    row.click()
    found.locator("#ways h2").hover()
    expect(found.locator("#ways-detail h3")).to_have_count(0)


def test_the_keyboard_walks_nodes_and_kernels(shown: Shown) -> None:
    found = shown.page
    view = found.locator("#ways-view")
    view.focus()
    for key, active in (
        ("ArrowDown", "way-node-0"),
        ("ArrowDown", "way-node-1"),
        ("ArrowRight", "way-kernel-1"),
        ("ArrowDown", "way-kernel-2"),
        ("ArrowLeft", "way-node-4"),
        ("Home", "way-node-0"),
        ("End", "way-node-4"),
    ):
        found.keyboard.press(key)
        assert view.get_attribute("aria-activedescendant") == active
    found.keyboard.press("Enter")
    at(found, "#kernel-2")


def test_a_link_to_a_node_leads_to_its_row(shown: Shown) -> None:
    found = shown.page
    found.get_by_role("checkbox", name="fused 1").uncheck()
    found.evaluate("location.hash = 'node-1'")
    found.wait_for_function(IN_SIGHT, arg="#way-node-1")
    expect(found.locator("#ways-view")).to_be_focused()
    assert marked(found, "now") == {"node-1"}


def test_the_table_says_the_same_in_print_and_on_demand(shown: Shown) -> None:
    found = shown.page
    table = found.locator("#ways-table")
    expect(table).to_be_hidden()
    found.get_by_role("button", name="as a table").click()
    expect(table).to_be_visible()
    expect(found.locator("#ways-view")).to_be_hidden()
    row = found.locator("#node-4")
    assert row.locator("td").all_inner_texts() == [
        "4", "Gemm-13", "/fc", "K kernel", "2 gemm_2, 3 softmax_3", "no function of elements",
    ]  # fmt: skip
    found.get_by_role("button", name="as a graph").click()
    expect(table).to_be_hidden()
    expect(found.locator("#ways-view")).to_be_visible()
    expect(found.get_by_role("button", name="as a table")).to_be_visible()
    found.emulate_media(media="print")
    expect(table).to_be_visible()
    expect(found.locator("#ways-view")).to_be_hidden()


def test_search_fates_and_order_hold_in_the_table_too_but_not_in_print(shown: Shown) -> None:
    found = shown.page
    found.get_by_role("button", name="as a table").click()
    found.get_by_role("checkbox", name="kernel 3").uncheck()
    rows = found.locator("#ways-table tbody tr")
    expect(rows.locator("visible=true")).to_have_count(2)
    expect(found.locator("#node-1")).to_be_visible()
    expect(found.locator("#node-0")).to_be_hidden()
    found.evaluate("location.hash = 'node-0'")
    expect(found.locator("#node-0")).to_be_focused()
    found.locator("#ways-search").fill("nothing")
    found.emulate_media(media="print")
    for number in range(5):
        expect(found.locator(f"#node-{number}")).to_be_visible()
    shown.assert_quiet()


# Accuracy, and what is not integer.


def test_errors_have_a_tooltip_and_a_keyboard(shown: Shown) -> None:
    found = shown.page
    marks = found.locator("#accuracy-plot a")
    marks.nth(2).locator("path").hover()
    expect(found.locator("#tip")).to_have_text(
        "small: 0.001 of its scale, 9,000 ulp, by kernel 2 gemm_2: differs"
    )
    marks.nth(0).focus()
    found.keyboard.press("ArrowRight")
    expect(marks.nth(1)).to_be_focused()
    expect(found.locator("#tip")).to_contain_text(HOSTILE)
    found.keyboard.press("Enter")
    at(found, "#kernel-1")
    shown.assert_quiet()


def test_kernels_in_the_drawing_carry_their_errors(shown: Shown) -> None:
    assert texts(shown.page, ".ways-error") == ["○", "■", "✗"]


def test_errors_of_integers_and_those_without_end(browser: Browser, tmp_path: Path) -> None:
    odd = accuracy()
    odd["tensors"][1]["max_scaled_error"] = "inf"
    odd["tensors"][2] |= {"max_scaled_error": None, "max_ulp_error": None, "max_abs_error": 1200}
    path = tmp_path / "report.html"
    path.write_text(page(facts(accuracy=odd)), encoding="utf-8")
    shown = still(browser, path)
    titles = shown.page.locator(".ways-error").evaluate_all("all => all.map(one => one.title)")
    assert titles == ["exact", "not finite", "off by 1,200"]
    expect(shown.page.locator("#accuracy-plot")).to_be_visible()
    shown.assert_quiet()


def test_without_accuracy_the_page_says_how_to_get_it(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(page(facts()), encoding="utf-8")
    found = still(browser, path).page
    expect(found.locator("#accuracy")).to_contain_text("onnxc report drawn.onnx --against auto")


def test_what_is_not_integer_leads_to_kernel_and_node(browser: Browser, tmp_path: Path) -> None:
    floats = [{"kernel": 1, "nodes": [1, 2], "why": "Softmax: stated in float"}]
    quantised: dict[str, Any] = facts(not_integer=floats)
    quantised["summary"]["macs_by_arithmetic"] = {"int8": 900, "float32": 100}
    path = tmp_path / "report.html"
    path.write_text(page(quantised), encoding="utf-8")
    shown = still(browser, path)
    row = shown.page.locator("#integers tbody tr")
    expect(row).to_contain_text("Softmax: stated in float")
    row.get_by_role("link", name="1 softmax_1").click()
    at(shown.page, "#kernel-1")
    row.get_by_role("link", name="Softmax-13 /soft").click()
    assert marked(shown.page, "now") == {"node-2"}
    shown.assert_quiet()


# Every size.


@pytest.mark.parametrize("width", [390, 1280])
def test_no_text_leaves_the_page(browser: Browser, file: Path, width: int) -> None:
    found = still(browser, file, viewport={"width": width, "height": 800}).page
    assert found.evaluate("document.documentElement.scrollWidth") <= width


def test_without_script_the_drawings_are_there(browser: Browser, file: Path) -> None:
    found = still(browser, file, java_script_enabled=False).page
    for visible in ("#bar-1", "#memory-labels text", "#budget-ram", "#node-3", "#accuracy-plot"):
        expect(found.locator(visible).first).to_be_visible()
    expect(found.locator("#ways-view")).to_be_hidden()
    found.locator("#bar-1 rect").first.click()
    assert found.url.endswith("#kernel-1")


def test_of_thousands_of_nodes_only_what_is_in_sight_has_rows(
    browser: Browser, tmp_path: Path
) -> None:
    path = tmp_path / "large.html"
    path.write_text(page(sample_facts.facts(1000)), encoding="utf-8")
    shown = still(browser, path)
    found = shown.page
    assert found.locator("#memory-plot a").count() == 999
    assert found.locator(".ways-row").count() < 150
    found.evaluate("location.hash = 'node-1500'")
    found.wait_for_function(IN_SIGHT, arg="#way-node-1500")
    assert found.locator(".ways-row").count() < 150
    expect(found.locator("#ways-detail h3")).to_contain_text("Conv-11")
    shown.assert_quiet()
