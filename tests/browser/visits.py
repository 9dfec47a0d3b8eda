"""A visit to one page: the page in its tab, and what the browser asked for and complained of."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import built_book
from playwright.sync_api import Browser, Page, Route

#: Already packed: a server sends these as they are.
PACKED = {".png", ".woff2", ".jpg"}


@dataclass(frozen=True)
class Visit:
    """One page in a tab of its own.

    Attributes:
        name: the page, as in the table of contents.
        page: the tab.
        complaints: errors in the console and exceptions of scripts.
        outside: addresses on other hosts that were asked for; none was answered.
        asked: addresses of the book that were asked for.
    """

    name: str
    page: Page
    book: str
    complaints: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)

    def transferred(self) -> int:
        """Bytes of all that the book's server sent, packed as servers do."""
        return sum(_packed_size(file_of(address, self.book)) for address in sorted(self.asked))


def file_of(address: str, book: str) -> Path:
    """The file that the book's server answers an address with."""
    return built_book.folder() / unquote(
        address.removeprefix(book).partition("#")[0].partition("?")[0]
    )


@cache
def _packed_size(path: Path) -> int:
    content = path.read_bytes()
    return len(content) if path.suffix in PACKED else len(gzip.compress(content, mtime=0))


@contextmanager
def visit(
    browser: Browser, book: str, name: str, *, theme: built_book.Theme = "light", width: int = 1400
) -> Iterator[Visit]:
    """Open a page with no way to any other host, and wait until it has loaded.

    Args:
        browser: where to open it.
        book: the address of the built book.
        name: the page, as in the table of contents.
        theme: what the reader chose before.
        width: of the window, in CSS pixels.
    """
    context = browser.new_context(
        viewport={"width": width, "height": 900}, reduced_motion="reduce", locale="en"
    )
    context.add_init_script(built_book.choose_theme(theme))
    found = Visit(name, context.new_page(), book)

    def answer(route: Route) -> None:
        address = route.request.url
        if address.startswith((book, "data:")):
            found.asked.add(address)
            route.continue_()
        else:
            found.outside.append(address)
            route.abort()

    context.route("**/*", answer)
    found.page.on(
        "console",
        lambda message: (
            found.complaints.append(f"{message.text} ({message.location.get('url')})")
            if message.type == "error"
            else None
        ),
    )
    found.page.on("pageerror", lambda error: found.complaints.append(str(error)))
    try:
        found.page.goto(f"{book}{name}.html", wait_until="load")
        yield found
    finally:
        context.close()
