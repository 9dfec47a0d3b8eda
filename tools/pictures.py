"""Photographs every page of the built book at three widths in both themes, for people to look at.

Needs the built book and a browser. Writes to `_build/pictures`, which nothing reads. Run by
`make pictures`.
"""

import argparse
import sys
from collections.abc import Sequence

import browser as browsers
import built_book
from playwright.sync_api import sync_playwright

PICTURES = built_book.ROOT / "_build" / "pictures"
WIDTHS = (360, 820, 1400)


def main(arguments: Sequence[str] | None = None) -> int:
    """Photograph the named pages, or all of them."""
    pages = built_book.pages()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="*", metavar="page", help=f"such as {pages[0]}")
    chosen = parser.parse_args(arguments).pages
    if unknown := sorted(set(chosen) - set(pages)):
        parser.error(f"no page {', '.join(unknown)}; the pages are {', '.join(pages)}")
    PICTURES.mkdir(parents=True, exist_ok=True)
    with built_book.served(built_book.folder()) as book, sync_playwright() as playwright:
        try:
            browser, _ = browsers.launch(playwright)
        except browsers.NoBrowserError as error:
            print(error)
            return 1
        for theme in built_book.THEMES:
            for width in WIDTHS:
                context = browser.new_context(
                    viewport={"width": width, "height": 900}, reduced_motion="reduce"
                )
                context.add_init_script(built_book.choose_theme(theme))
                tab = context.new_page()
                for page in chosen or pages:
                    tab.goto(f"{book}{page}.html", wait_until="load")
                    name = f"{page.replace('/', '-')}-{width}-{theme}.png"
                    tab.screenshot(path=PICTURES / name, full_page=True)
                context.close()
        browser.close()
    print(f"The pictures are in {PICTURES}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
