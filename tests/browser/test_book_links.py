"""Links and anchors of the built book lead somewhere. Needs no browser, only the built book."""

import json
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import built_book
import pytest

pytestmark = pytest.mark.book


@dataclass
class Names(HTMLParser):
    """What a page of HTML refers to, and what in it can be referred to."""

    references: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors.update(filter(None, (given.get("id"), given.get("name"))))
        self.references += filter(None, (given.get("href"), given.get("src")))


@cache
def names(path: Path) -> Names:
    parser = Names()
    parser.feed(path.read_text(encoding="utf-8"))
    return parser


def lost(page: Path, reference: str) -> bool:
    """Whether a reference on a page leads to no file or no anchor of the book."""
    parts = urlsplit(reference)
    if parts.scheme or parts.netloc:
        return False
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if not target.is_file():
        return True
    if not parts.fragment or target.suffix != ".html":
        return False
    return unquote(parts.fragment) not in names(target).anchors


@pytest.fixture(scope="module", autouse=True)
def folder() -> Path:
    built = built_book.folder()
    if not (built / "index.html").is_file():
        pytest.fail(f"{built} holds no built book; run `make book` first", pytrace=False)
    return built


@pytest.mark.parametrize("page", built_book.pages())
def test_every_reference_within_the_book_leads_somewhere(folder: Path, page: str):
    path = folder / f"{page}.html"
    assert [each for each in names(path).references if lost(path, each)] == []


def test_a_lost_reference_is_seen(folder: Path):
    page = folder / f"{built_book.pages()[0]}.html"
    assert lost(page, "nowhere.html")
    assert lost(page, "#no-such-heading")
    assert lost(page, f"../{built_book.pages()[1]}.html#no-such-heading")
    assert not lost(page, f"../{built_book.pages()[1]}.html")
    assert not lost(page, "https://example.org/anything")


def test_no_page_of_the_book_is_out_of_the_search(folder: Path):
    text = (folder / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    assert sorted(index["docnames"]) == sorted(built_book.pages())
