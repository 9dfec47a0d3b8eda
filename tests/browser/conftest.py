"""One browser for all tests of this folder, and the built book on a port of this machine."""

from collections.abc import Iterator

import browser as browsers
import built_book
import pytest
from playwright.sync_api import Browser, sync_playwright


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A running browser without a window."""
    with sync_playwright() as playwright:
        running, _ = browsers.launch(playwright)
        yield running
        running.close()


@pytest.fixture(scope="session")
def book() -> Iterator[str]:
    """The address of the built book."""
    folder = built_book.folder()
    if not (folder / "index.html").is_file():
        pytest.fail(f"{folder} holds no built book; run `make book` first", pytrace=False)
    with built_book.served(folder) as address:
        yield address
