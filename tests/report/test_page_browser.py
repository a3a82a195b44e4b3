"""The page of a report in headless Chromium, opened from disk."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from onnxc.report.html import page
from tests.report.browser import Shown, browser, show
from tests.report.sample_facts import HOSTILE, facts

__all__ = ["browser"]

MOST_BYTES: Final = 5_000_000
"""Of the page of a model of 2,000 nodes."""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of six kernels with hostile names, one of them no integer."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page(facts(names=HOSTILE, quantized=True)), encoding="utf-8")
    return path


@pytest.fixture
def shown(browser: Browser, file: Path) -> Shown:
    return show(browser, file)


def numbers(shown: Page) -> list[str]:
    """Of the kernels in the order of the table, those that are visible."""
    groups = shown.locator("#kernels-table > tbody:not([hidden])")
    ids = groups.evaluate_all("all => all.map(one => one.id)")
    return [str(one).removeprefix("kernel-") for one in ids]


def test_opens_in_silence_and_names_run_nothing(shown: Shown) -> None:
    """Every link, button and box of the page is used once; nothing is asked for or said."""
    found = shown.page
    for button in found.locator("button:visible").all():
        button.click()
    found.mouse.wheel(0, 100_000)
    for name in ("<", "alert", "Conv"):
        found.get_by_role("combobox").fill(name)
        found.keyboard.press("ArrowDown")
        found.keyboard.press("Enter")
    for link in found.locator("main a:visible").all()[:15]:
        link.hover()
        link.focus()
        found.keyboard.press("Enter")
    shown.assert_quiet()
    assert found.title().startswith("<img src=x onerror=alert(1)>.onnx")


def test_a_column_sorts_by_its_button(shown: Shown) -> None:
    found = shown.page
    head = found.get_by_role("columnheader", name="Time")
    button = head.get_by_role("button")
    assert numbers(found) == ["0", "1", "2", "3", "4", "5"]
    assert head.get_attribute("aria-sort") == "none"
    button.click()
    assert numbers(found) == ["1", "5", "4", "3", "2", "0"]
    assert head.get_attribute("aria-sort") == "descending"
    button.press("Enter")
    assert numbers(found) == ["0", "2", "3", "4", "5", "1"]
    assert head.get_attribute("aria-sort") == "ascending"
    found.get_by_role("columnheader", name="Kind").get_by_role("button").click()
    assert numbers(found) == ["3", "5", "1", "0", "2", "4"]
    assert head.get_attribute("aria-sort") == "none"
    shown.assert_quiet()


def test_the_filter_shows_rows_that_hold_all_words(shown: Shown) -> None:
    found = shown.page
    box = found.locator('input[data-filter="kernels-table"]')
    box.fill("depthwise INT8")
    assert numbers(found) == ["0", "2", "4"]
    expect(found.locator(".filter output").first).to_have_text("3 of 6")
    box.press("Escape")
    assert len(numbers(found)) == 6
    assert box.input_value() == ""


def test_a_row_opens_to_its_c_nodes_and_tensors(shown: Shown) -> None:
    found = shown.page
    button = found.get_by_role("button", name="Details of kernel 1")
    button.focus()
    found.keyboard.press("Enter")
    assert button.get_attribute("aria-expanded") == "true"
    detail = found.locator("#kernel-1 .detail")
    expect(detail.locator("pre")).to_contain_text("static void conv_relu_1(")
    hrefs = detail.locator("a").evaluate_all("all => all.map(one => one.getAttribute('href'))")
    assert {"#node-2", "#node-3", "#tensor-2", "#tensor-3", "#function-1"} <= set(hrefs)
    found.get_by_role("columnheader", name="No.").get_by_role("button").click()
    assert numbers(found) == ["0", "1", "2", "3", "4", "5"]
    button.focus()
    found.keyboard.press("Escape")
    expect(detail).to_have_count(0)
    expect(button).to_be_focused()
    shown.assert_quiet()


def test_links_lead_to_marked_places_and_back(shown: Shown) -> None:
    """From a kernel to its C, which opens, to a node, to a kernel that the filter hides."""
    found = shown.page
    found.locator("#kernel-2 th a").first.click()
    expect(found.locator("#function-2")).to_have_attribute("open", "")
    expect(found.locator("#function-2 pre")).to_be_in_viewport()
    found.locator("#function-2 .uses a").nth(1).click()
    assert found.evaluate("document.querySelector(':target').id") == "node-4"
    found.locator('input[data-filter="kernels-table"]').fill("nothing like that")
    assert numbers(found) == []
    found.evaluate("location.hash = 'kernel-3'")
    expect(found.locator("#kernel-3")).to_be_in_viewport()
    expect(found.locator("#kernel-3")).to_be_focused()
    found.go_back()
    assert found.evaluate("document.querySelector(':target').id") == "node-4"
    shown.assert_quiet()


def test_the_search_finds_by_keyboard_alone(shown: Shown) -> None:
    found = shown.page
    box = found.get_by_role("combobox")
    found.keyboard.press("/")
    expect(box).to_be_focused()
    found.keyboard.type("conv-11 autofocus")
    options = found.get_by_role("option")
    expect(options).to_have_count(1)
    expect(options).to_contain_text("node, starts kernel 2 conv_relu_2")
    assert box.get_attribute("aria-expanded") == "true"
    found.keyboard.press("Escape")
    expect(options).to_have_count(0)
    found.keyboard.press("Control+A")
    found.keyboard.type("conv_relu_")
    expect(options).to_have_count(6)
    found.keyboard.press("ArrowDown")
    found.keyboard.press("ArrowDown")
    found.keyboard.press("ArrowUp")
    active = box.get_attribute("aria-activedescendant")
    assert active == options.nth(1).get_attribute("id")
    found.keyboard.press("Enter")
    expect(found.locator("#kernel-1")).to_be_focused()
    shown.assert_quiet()


def test_the_search_says_where_a_node_went(shown: Shown) -> None:
    found = shown.page
    box = found.get_by_role("combobox")
    for asked, answer in {
        "value3": "node, fused into kernel 1 conv_relu_1",
        "shape-21": "node, computed at compile time",
        "reshape-21": "node, needs no code",
        "no such thing": "nothing of that name",
    }.items():
        box.fill(asked)
        expect(found.get_by_role("option").first).to_contain_text(answer)


def test_the_skip_link_is_first_and_leads_to_the_content(shown: Shown) -> None:
    found = shown.page
    found.keyboard.press("Tab")
    skip = found.get_by_role("link", name="Skip to the report")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    found.keyboard.press("Enter")
    expect(found.locator("main")).to_be_focused()


def test_focus_is_seen(shown: Shown) -> None:
    found = shown.page
    found.get_by_role("columnheader", name="Time").get_by_role("button").focus()
    found.keyboard.press("Shift+Tab")
    styles = found.evaluate(
        "(({outlineStyle, outlineWidth}) => [outlineStyle, outlineWidth])"
        "(getComputedStyle(document.activeElement))"
    )
    assert styles == ["solid", "2px"]


def background(shown: Page) -> str:
    return str(shown.evaluate("getComputedStyle(document.body).backgroundColor"))


def test_light_dark_and_print(shown: Shown) -> None:
    """Printed is the light scheme, without what is of no use on paper, and all of long tables."""
    found = shown.page
    assert background(found) == "rgb(250, 250, 248)"
    found.emulate_media(color_scheme="dark")
    assert background(found) == "rgb(20, 23, 27)"
    found.emulate_media(color_scheme="dark", media="print")
    assert background(found) == "rgb(250, 250, 248)"
    for gone in ("nav", ".filter", ".skip"):
        expect(found.locator(gone).first).to_be_hidden()
    boxes = found.locator(".scroll").evaluate_all(
        "all => all.map(one => getComputedStyle(one).overflowY + getComputedStyle(one).maxHeight)"
    )
    assert set(boxes) == {"visiblenone"}
    shown.assert_quiet()


def test_without_script_everything_is_there(browser: Browser, file: Path) -> None:
    """But not the controls, which could do nothing."""
    shown = show(browser, file, java_script_enabled=False)
    found = shown.page
    for visible in ("#glance", "#kernel-5", "#tensor-3", "#node-4", "#memory svg", "footer"):
        expect(found.locator(visible).first).to_be_visible()
    expect(found.get_by_role("button")).to_have_count(0)
    expect(found.get_by_role("searchbox")).to_have_count(0)
    found.locator("#function-2 summary").click()
    expect(found.locator("#function-2 pre")).to_be_visible()
    shown.assert_quiet()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_use_it(browser: Browser, file: Path, scheme: str) -> None:
    """What axe-core can tell: contrast, names of controls, roles, headings, the keyboard."""
    found = show(browser, file, color_scheme=scheme).page
    found.get_by_role("button", name="Details of kernel 1").click()
    found.locator("#function-2 summary").click()
    violations = Axe().run(found).response["violations"]
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in violations] == []


@pytest.mark.parametrize("width", [400, 1280])
def test_only_boxes_scroll_sideways(browser: Browser, file: Path, width: int) -> None:
    found = show(browser, file, viewport={"width": width, "height": 800}).page
    assert found.evaluate("document.documentElement.scrollWidth") <= width


def test_two_thousand_nodes(browser: Browser, tmp_path: Path) -> None:
    """The page stays small, and sorts, filters and finds."""
    path = tmp_path / "large.html"
    text = page(facts(1000))
    assert len(text.encode()) < MOST_BYTES
    path.write_text(text, encoding="utf-8")
    shown = show(browser, path)
    found = shown.page
    found.get_by_role("columnheader", name="Time").get_by_role("button").click()
    assert numbers(found)[0] == "1"
    found.locator('input[data-filter="kernels-table"]').fill("conv_relu_99")
    assert len(numbers(found)) == 11
    found.get_by_role("combobox").fill("conv_relu_77")
    found.keyboard.press("Enter")
    expect(found.locator("#kernel-77")).to_be_in_viewport()
    shown.assert_quiet()
