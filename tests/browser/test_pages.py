"""Every page: loads from the book alone, fits a phone and paper, reads by eye, ear and keyboard."""

from collections.abc import Iterator

import built_book
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser
from visits import Visit, file_of, visit

MEGABYTE = 1_000_000
PHONE = 360
PAPER = 700  # A4 between usual margins, in CSS pixels

#: The checks of axe-core that are about a reader's needs, and not only good habits.
RULES = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}
COLOURS = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}

# A page has thousands of coloured words in its code; words of one class have one colour, so the
# first of each is enough, and the rest become plain text.
THIN_OUT = """() => {
  const seen = new Set();
  for (const word of [...document.querySelectorAll(".highlight pre span, dt.sig span")]) {
    const kind = word.closest("dt, [class*=highlight-]")?.className + " " + word.className;
    if (seen.has(kind)) word.replaceWith(...word.childNodes);
    seen.add(kind);
  }
}"""

# What sticks out of the window, or out of a box that hides it; what scrolls inside a box is fine.
STICKS_OUT = """() => {
  const found = [];
  const edge = document.documentElement.clientWidth + 1;
  for (const element of document.querySelectorAll("article *")) {
    const box = element.getBoundingClientRect();
    if (box.width < 2 || box.height < 2 || box.right <= edge) continue;
    let around = element.parentElement, scrolls = false;
    while (around && !scrolls) {
      scrolls = ["auto", "scroll"].includes(getComputedStyle(around).overflowX)
        && around.getBoundingClientRect().right <= edge;
      around = around.parentElement;
    }
    if (!scrolls && getComputedStyle(element).visibility !== "hidden")
      found.push(`${element.tagName} ${element.className} ends at ${Math.round(box.right)}`);
  }
  return found.slice(0, 5);
}"""

# On paper nothing scrolls: what is wider than its box is lost.
CUT_OFF = """() => {
  const found = [];
  for (const element of document.querySelectorAll("article, article *")) {
    const style = getComputedStyle(element);
    if (style.display === "none" || style.display === "inline" || !element.clientWidth) continue;
    if (element.closest(".visually-hidden, mjx-assistive-mml")) continue;
    if (style.overflowX !== "visible" && element.scrollWidth > element.clientWidth + 1)
      found.push(`${element.tagName} ${element.className}: ${element.scrollWidth} px of content `
        + `in ${element.clientWidth}: ${element.textContent.trim().slice(0, 60)}`);
  }
  return found.slice(0, 5);
}"""


def _pages() -> list:
    return [
        pytest.param(page, marks=pytest.mark.xdist_group(page), id=page)
        for page in built_book.pages()
    ]


pytestmark = [
    pytest.mark.browser,
    pytest.mark.parametrize("opened", _pages(), indirect=True, scope="module"),
]


@pytest.fixture(scope="module")
def opened(request: pytest.FixtureRequest, browser: Browser, book: str) -> Iterator[Visit]:
    """A page in a wide window, visited once for all tests that only look at it."""
    with visit(browser, book, request.param) as found:
        yield found


def test_loads_without_a_complaint(opened: Visit):
    assert opened.complaints == []


def test_asks_no_other_host(opened: Visit):
    assert opened.outside == []
    assert opened.page.locator("article h1").first.is_visible()


def test_is_small_enough_to_send(opened: Visit):
    assert opened.transferred() < 1.5 * MEGABYTE


def test_every_picture_says_what_it_shows(opened: Visit):
    pictures = opened.page.locator("main img").all()
    alts = [(picture.get_attribute("alt") or "").strip() for picture in pictures]
    wrong = [
        picture.get_attribute("src")
        for picture, alt in zip(pictures, alts, strict=True)
        if len(alt.split()) < 3
    ]
    assert wrong == []
    assert len(set(alts)) == len(alts)


def test_every_block_of_code_can_be_copied(opened: Visit):
    blocks = opened.page.locator("main div.highlight:has(> pre)")
    without = blocks.filter(has_not=opened.page.locator("button.copybtn"))
    assert without.count() == 0, without.first.inner_text()


def test_leads_on_and_back(opened: Visit):
    pages = built_book.pages()
    place = pages.index(opened.name)
    expected = {"a.left-prev": place > 0, "a.right-next": place < len(pages) - 1}
    for selector, there in expected.items():
        links = opened.page.locator(selector)
        assert links.count() == int(there), selector
        if there:
            neighbour = pages[place + (1 if "next" in selector else -1)]
            address = links.evaluate("link => link.href")
            assert address.partition("#")[0] == f"{opened.book}{neighbour}.html"


def test_can_be_downloaded_as_it_is_written(opened: Visit):
    links = opened.page.locator("a.btn-download-source-button").all()
    suffix = ".ipynb" if built_book.runnable(opened.name) else ".md"
    addresses = [link.evaluate("link => link.href") for link in links]
    assert addresses == [f"{opened.book}_sources/{opened.name}{suffix}"]
    source = built_book.ROOT / f"{opened.name}{suffix}"
    assert file_of(addresses[0], opened.book).read_bytes() == source.read_bytes()


@pytest.mark.parametrize("theme", built_book.THEMES)
def test_nobody_is_shut_out(opened: Visit, theme: built_book.Theme):
    page = opened.page
    page.evaluate(f"() => {{{built_book.choose_theme(theme)}}}")
    page.evaluate(
        "theme => Object.assign(document.documentElement.dataset, {theme, mode: theme})", theme
    )
    page.evaluate(THIN_OUT)
    # Without preload: axe would fetch style sheets anew, some from addresses that do not exist.
    # The dark theme differs in its colours alone, and the menus are the same on every page.
    rules = RULES if theme == "light" else COLOURS
    inside = "body" if theme == "light" or opened.name == built_book.pages()[0] else "article"
    options = {"resultTypes": ["violations"], "preload": False, "runOnly": rules}
    found = Axe().run(page, inside, options).response["violations"]
    grave = [
        f"{each['id']} ({each['impact']}): {node['html'][:200]} {node['failureSummary']}"
        for each in found
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]
    assert grave == []


def test_fits_a_phone(opened: Visit):
    opened.page.set_viewport_size({"width": PHONE, "height": 780})
    scrolled = "() => document.documentElement.scrollWidth"
    assert opened.page.evaluate(scrolled) <= PHONE
    assert opened.page.evaluate(STICKS_OUT) == []


def test_fits_paper(opened: Visit):
    opened.page.set_viewport_size({"width": PAPER, "height": 1000})
    opened.page.emulate_media(media="print")
    assert opened.page.evaluate("() => document.documentElement.scrollWidth") <= PAPER
    assert opened.page.evaluate(STICKS_OUT) == []
    assert opened.page.evaluate(CUT_OFF) == []
    assert opened.page.locator("main h1:visible").count() > 0
    opened.page.emulate_media(media="screen")
