"""What a reader does: searches, unfolds answers, turns the light off, goes by keyboard."""

import built_book
import pytest
from playwright.sync_api import Browser, expect
from visits import visit

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("reading")]

CHAPTER = "book/chapters/01_eager"
SYMPTOMS = ("every step is slow", "GPU idle", "recompiles every step", "OOM with vmap")


@pytest.mark.parametrize("words", SYMPTOMS)
def test_search_leads_from_a_symptom_to_the_triage_page(browser: Browser, book: str, words: str):
    with visit(browser, book, built_book.pages()[0]) as found:
        found.page.keyboard.press("Control+k")
        field = found.page.locator("input[type=search]:focus")
        field.fill(words)
        field.press("Enter")
        results = found.page.locator("#search-results ul.search li a")
        expect(results.first).to_be_visible()
        expect(found.page.locator("#search-results")).to_contain_text("finished")
        pages = [
            address.partition("?")[0].partition("#")[0]
            for address in results.evaluate_all("links => links.map(link => link.href)")
        ]
        assert f"{book}book/triage.html" in pages[:3]
        assert found.complaints == []


def test_a_folded_answer_opens_on_a_click(browser: Browser, book: str):
    with visit(browser, book, CHAPTER) as found:
        answers = found.page.locator("main details:not([class])")
        assert answers.count() > 0
        answer = answers.first
        inside = answer.locator("> :not(summary)").first
        expect(inside).not_to_be_visible()
        answer.locator("summary").click()
        expect(inside).to_be_visible()
        answer.locator("summary").click()
        expect(inside).not_to_be_visible()


def test_folded_code_opens_on_a_click(browser: Browser, book: str):
    with visit(browser, book, CHAPTER) as found:
        folded = found.page.locator("main .tag_hide-input details").first
        code = folded.locator("pre").first
        expect(code).not_to_be_visible()
        folded.locator("summary").click()
        expect(code).to_be_visible()


def test_the_theme_changes_and_stays_on_the_next_page(browser: Browser, book: str):
    with visit(browser, book, built_book.pages()[0]) as found:
        page = found.page
        ground = "() => getComputedStyle(document.body).backgroundColor"
        light = page.evaluate(ground)
        switch = page.locator("button.theme-switch-button:visible").first
        seen = []
        for _ in range(3):
            switch.click()
            seen.append(page.locator("html").get_attribute("data-mode"))
        assert sorted(filter(None, seen)) == ["auto", "dark", "light"]
        while page.locator("html").get_attribute("data-mode") != "dark":
            switch.click()
        assert page.locator("html").get_attribute("data-theme") == "dark"
        assert page.evaluate(ground) != light


@pytest.mark.parametrize("theme", built_book.THEMES)
def test_a_theme_once_chosen_is_there_from_the_start(
    browser: Browser, book: str, theme: built_book.Theme
):
    with visit(browser, book, CHAPTER, theme=theme) as found:
        assert found.page.locator("html").get_attribute("data-theme") == theme


def test_copied_code_is_the_code_that_is_shown(browser: Browser, book: str):
    with visit(browser, book, CHAPTER) as found:
        found.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        block = found.page.locator("main div.cell_input:visible div.highlight").first
        block.hover()
        block.locator("button.copybtn").click()
        copied = found.page.evaluate("() => navigator.clipboard.readText()")
        assert copied.strip() == block.locator("pre").inner_text().strip()


def test_the_first_tab_leads_past_the_menus(browser: Browser, book: str):
    with visit(browser, book, CHAPTER) as found:
        page = found.page
        page.keyboard.press("Tab")
        assert page.evaluate("() => document.activeElement.textContent.trim()") == (
            "Skip to main content"
        )
        expect(page.locator(":focus")).to_be_in_viewport()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        assert page.evaluate(
            "() => document.querySelector('#main-content').contains(document.activeElement)"
        )


def test_the_keyboard_reaches_the_text_through_the_menus_and_is_seen(browser: Browser, book: str):
    """Every stop on the way shows where it is, and none holds the reader."""
    with visit(browser, book, CHAPTER) as found:
        page = found.page
        stops: list[str] = []
        look = """() => {
          const here = document.activeElement, box = here.getBoundingClientRect();
          const style = getComputedStyle(here);
          return {
            name: here.tagName + " " + here.className + " " + here.textContent.trim().slice(0, 40),
            inside: !!here.closest("article"),
            seen: box.width > 0 && box.height > 0 && style.visibility !== "hidden",
          };
        }"""
        for _ in range(120):
            page.keyboard.press("Tab")
            stop = page.evaluate(look)
            assert stop["seen"], stop["name"]
            stops.append(stop["name"])
            if stop["inside"]:
                break
        else:
            pytest.fail(f"120 presses of Tab do not reach the text: {stops[-5:]}")
