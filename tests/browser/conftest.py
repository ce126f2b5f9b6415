"""A real Chromium, and pages that may load nothing from elsewhere and say nothing to the console.

Skipped where there is no Chromium or no playwright. ``KOPT_BROWSER`` names another program;
``KOPT_SCREENSHOTS`` a folder that screenshots are written to, for the documents.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

HERE = Path(__file__).parent
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
MOST_BYTES = 300_000
"""Of a screenshot in the documents."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything below this folder needs a browser."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("browser")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium without a window."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = os.environ.get("KOPT_BROWSER") or next(filter(None, map(shutil.which, PROGRAMS)), None)
    if found is None:
        pytest.skip("no Chromium here")
    with api.sync_playwright() as playwright:
        # Root may not use the browser's own sandbox; these pages are ours.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        opened = playwright.chromium.launch(executable_path=found, args=arguments)
        yield opened
        opened.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens pages; afterwards none of them has complained or asked anybody else."""
    contexts: list[Any] = []
    complaints: list[str] = []
    strangers: list[str] = []

    def open_(url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console",
            lambda message: (
                complaints.append(message.text) if message.type in ("error", "warning") else None
            ),
        )
        home = urlsplit(url)

        def look(request: Any) -> None:
            asked = urlsplit(request.url)
            if asked.scheme != "data" and (asked.scheme, asked.netloc) != home[:2]:
                strangers.append(request.url)

        page.on("request", look)
        page.goto(url)
        page.complaints = complaints
        return page

    yield open_
    for context in contexts:
        context.close()
    assert complaints == []
    assert strangers == []


@pytest.fixture
def screenshot() -> Callable[..., None]:
    """Keeps a picture of a page where somebody asked for it."""
    folder = os.environ.get("KOPT_SCREENSHOTS")

    def take(page: Any, name: str, *, whole: bool = False) -> None:
        if folder is None:
            return
        path = Path(folder) / f"{name}.png"
        page.screenshot(path=path, full_page=whole)
        assert path.stat().st_size < MOST_BYTES, f"{path} is too large for the documents"

    return take
