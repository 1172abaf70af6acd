"""A browser for the tests of the viewer: Debian's chromium, driven by playwright."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hloom.tools.cli import main

MILLISECONDS = 600_000
"""After which a page counts as one that does not become as a test awaits it."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="the viewer is tested with playwright")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("the viewer is tested with Debian's chromium: apt-get install chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox"], timeout=MILLISECONDS
        )
        yield browser
        browser.close()


class Viewed:
    """A page in the browser, and the errors that it raised.

    Attributes:
        page: playwright's page.
        errors: messages of uncaught errors.
        requests: the addresses that it asked for.
    """

    def __init__(self, page: Any) -> None:
        self.page = page
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    def open(self, path: Path, state: str = "") -> None:
        """Load a page and wait until it is drawn."""
        self.page.goto(f"file://{path}{state}")
        self.page.wait_for_selector("html[data-ready=true]")

    def texts(self, selector: str) -> list[str]:
        """Return the texts of the elements that a selector finds."""
        return self.page.locator(selector).all_text_contents()

    def press(self, *keys: str) -> None:
        """Press keys one after the other."""
        for key in keys:
            self.page.keyboard.press(key)


@pytest.fixture
def viewed(browser: Any) -> Iterator[Viewed]:
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.set_default_timeout(MILLISECONDS)
    found = Viewed(page)
    yield found
    page.close()
    assert found.errors == []
    assert [url for url in found.requests if not url.startswith(("file://", "data:"))] == []


@pytest.fixture
def view(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes the page of programs: HLO texts or files."""

    def write(*programs: str | Path, options: tuple[str, ...] = ()) -> Path:
        files: list[str] = []
        for number, program in enumerate(programs):
            path = program if isinstance(program, Path) else tmp_path / f"program_{number}.hlo"
            if isinstance(program, str):
                path.write_text(program)
            files.append(str(path))
        page = tmp_path / "page.html"
        arguments = ["view", *files, "-o", str(page), *options]
        result = CliRunner().invoke(main, arguments, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return page

    return write
