"""The page of drawn_facts in headless Chromium, and what its tests ask of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from onnxc.report.html import page
from tests.report.browser import Shown, browser, show
from tests.report.drawn_facts import accuracy, facts

__all__ = ["browser"]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("drawings") / "report.html"
    path.write_text(page(facts(accuracy=accuracy())), encoding="utf-8")
    return path


@pytest.fixture
def shown(browser: Browser, file: Path) -> Shown:
    return still(browser, file)


def texts(found: Page, selector: str) -> list[str]:
    return found.locator(selector).all_inner_texts()


def at(found: Page, place: str) -> None:
    """The address ends in that place, sooner or later."""
    expect(found).to_have_url(re.compile(f"{place}$"))


def settled(found: Page, selector: str) -> Locator:
    """What is to be hovered, when what lies above it has been laid out."""
    place = found.locator(selector)
    place.scroll_into_view_if_needed()
    found.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")
    return place


def still(browser: Browser, file: Path, **options: Any) -> Shown:
    """Without smooth scrolling: what the pointer is put on stays where it is."""
    return show(browser, file, reduced_motion="reduce", **options)
