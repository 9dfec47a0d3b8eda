"""Makes the README's picture of a verdict: a real card, photographed by a headless browser.

Needs a Chromium-family browser. Run it after the card or the lab changed.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from course_utils import grade, labs

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "book" / "images" / "verdict.png"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def main() -> int:
    """Grade the first lab's starter and photograph the card."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print(f"No browser: install one of {', '.join(BROWSERS)}.")
        return 1
    name = labs.NAMES[0]
    report = grade(name, seed=1, **labs.get(name).broken)
    page = (
        '<!doctype html><meta charset="utf-8"><body style="margin:16px;background:#fff;'
        f'color:#1b1b1b;width:820px">{report._repr_html_()}</body>'
    )
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "card.html")
        source.write_text(page, encoding="utf-8")
        PICTURE.parent.mkdir(exist_ok=True)
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        flags += [f"--user-data-dir={folder}", "--force-device-scale-factor=1.5"]
        command = [browser, *flags, "--window-size=852,616", f"--screenshot={PICTURE}"]
        subprocess.run([*command, source.as_uri()], check=True, capture_output=True)
    print(f"wrote {PICTURE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
