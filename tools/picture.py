"""Makes the README's picture of a verdict: a real card, photographed by a headless browser.

Needs a Chromium-family browser. Run it after the card or the lab changed.
"""

import sys
from pathlib import Path

import browser as browsers
from playwright.sync_api import ViewportSize, sync_playwright

from course_utils import grade, labs

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "book" / "images" / "verdict.png"
WIDTH = 852


def main() -> int:
    """Grade the first lab's starter and photograph the card."""
    name = labs.NAMES[0]
    report = grade(name, seed=1, **labs.get(name).broken)
    page = (
        '<!doctype html><meta charset="utf-8"><body style="margin:16px;background:#fff;'
        f'color:#1b1b1b">{report._repr_html_()}</body>'
    )
    PICTURE.parent.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        try:
            browser, _ = browsers.launch(playwright)
        except browsers.NoBrowserError as error:
            print(error)
            return 1
        window = ViewportSize(width=WIDTH, height=100)
        tab = browser.new_page(viewport=window, device_scale_factor=1.5)
        tab.set_content(page)
        tab.screenshot(path=PICTURE, full_page=True)
        browser.close()
    print(f"wrote {PICTURE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
