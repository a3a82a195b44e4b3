"""A headless Chromium that shows a page from disk, and writes down whatever goes wrong in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Dialog, Page, Route, sync_playwright

PROGRAMS: Final = ("chromium-headless-shell", "chromium")
"""Debian's; those that playwright itself would bring are not asked for."""
ARGUMENTS: Final = ("--no-sandbox", "--disable-gpu", "--hide-scrollbars")
"""Root, as in containers, has no sandbox."""


IN_SIGHT: Final = """
(row) => {
  const box = document.querySelector(row)?.getBoundingClientRect();
  return box && 0 <= box.top && box.bottom <= innerHeight;
}
"""
"""Of a row that drawing makes anew, which an observer of one element would lose."""


def program() -> str:
    """The path of a Chromium. Without one the test is skipped, but under CI it fails."""
    for name in PROGRAMS:
        if path := shutil.which(name):
            return path
    reason = f"none of {', '.join(PROGRAMS)} is installed (.ci/run lists the packages)"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = program()
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield launched
        launched.close()


@dataclass
class Shown:
    """A page in the browser.

    messages  what the console says, and errors of scripts
    requests  addresses that the page asks for, itself aside; none of them is answered
    dialogs   what alert() and its like would have shown
    """

    page: Page
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    def assert_quiet(self) -> None:
        """Nothing was said, asked for or run that should not have been."""
        assert (self.messages, self.requests, self.dialogs) == ([], [], [])


def show(browser: Browser, file: Path, **options: Any) -> Shown:
    """Opens a file in a new context; options as of Browser.new_context."""
    context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | options))
    shown = Shown(context.new_page())
    address = file.as_uri()

    def answer(route: Route) -> None:
        if route.request.url.partition("#")[0] == address:
            route.continue_()
        else:
            shown.requests.append(route.request.url)
            route.abort()

    def dismiss(dialog: Dialog) -> None:
        shown.dialogs.append(dialog.message)
        dialog.dismiss()

    context.route("**/*", answer)
    page = shown.page
    page.set_default_timeout(10_000)
    page.on("console", lambda message: shown.messages.append(message.text))
    page.on("pageerror", lambda error: shown.messages.append(str(error)))
    page.on("dialog", dismiss)
    page.goto(address)
    return shown
