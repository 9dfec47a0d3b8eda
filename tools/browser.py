"""Finds a Chromium-family browser for the tests and the pictures, or brings one.

Looked for, in this order: the program that COURSE_BROWSER names, those on PATH, macOS's
applications, Playwright's own. Brought, where there is none: Debian's package when run as root,
Playwright's own elsewhere. A browser counts only once it has started. Run by `make browser`.
"""

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Playwright, sync_playwright
from playwright.sync_api import Error as PlaywrightError

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests" / "browser"
VARIABLE = "COURSE_BROWSER"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
APPLICATIONS = (
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
FLAGS = ("--no-sandbox", "--disable-gpu")


class NoBrowserError(Exception):
    """No browser starts on this machine; the message says what was tried and what to do."""


@dataclass(frozen=True)
class Found:
    """A browser that starts."""

    path: str
    version: str


def candidates(playwright: Playwright) -> Iterator[str]:
    """Paths of browsers that may be there, the first to try first."""
    if named := os.environ.get(VARIABLE):
        yield named
        return
    yield from filter(None, map(shutil.which, NAMES))
    yield from (*APPLICATIONS, playwright.chromium.executable_path)


def launch(playwright: Playwright) -> tuple[Browser, str]:
    """Start the first browser that starts.

    Returns:
        The running browser, without a window, and the path of its program.

    Raises:
        NoBrowserError: none starts.
    """
    tried: list[str] = []
    for path in candidates(playwright):
        if not Path(path).is_file():
            continue
        try:
            return playwright.chromium.launch(executable_path=path, args=[*FLAGS]), path
        except PlaywrightError as error:
            tried.append(f"{path}: {error.message.strip().splitlines()[0]}")
    found = "; ".join(tried) or "none was found"
    raise NoBrowserError(
        f"No browser starts ({found}). Expected Chromium or Chrome: run `make browser`, or name a "
        f"program with {VARIABLE}=/path/to/chromium."
    )


def find() -> Found:
    """Return the browser that the tests will use.

    Raises:
        NoBrowserError: none starts.
    """
    with sync_playwright() as playwright:
        browser, path = launch(playwright)
        version = browser.version
        browser.close()
    return Found(path, version)


def ways() -> list[list[str]]:
    """Commands, one after the other, that bring a browser to this machine."""
    apt = ["apt-get", "install", "--yes", "--no-install-recommends", "chromium"]
    playwright = [sys.executable, "-m", "playwright", "install"]
    # Ubuntu's package of this name only points to a snap, which does not start in containers.
    if _is_root() and shutil.which("apt-get") and _distribution() == "debian":
        return [["apt-get", "update"], apt]
    if _is_root() and sys.platform == "linux":
        return [[*playwright, "--with-deps", "chromium"]]
    return [[*playwright, "chromium"]]


def bring() -> None:
    """Run the commands of `ways`, their output shown, until one fails."""
    for command in ways():
        print(f"$ {' '.join(command)}", flush=True)
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        if subprocess.run(command, check=False, env=environment).returncode != 0:
            return


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


def _distribution() -> str:
    path = Path("/etc/os-release")
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return next((line[3:].strip('"') for line in lines if line.startswith("ID=")), "")


def not_run() -> str:
    """One line for each file of tests that needs a browser: its name and what it is about."""
    lines = []
    for path in sorted(TESTS.glob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        if "pytest.mark.browser" in source:
            summary = (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
            lines.append(f"  {path.relative_to(ROOT)}: {summary}")
    return "\n".join(lines)


def main() -> int:
    """Say which browser the tests use, after bringing one if need be; 1 where none can be had."""
    try:
        found = find()
    except NoBrowserError as first:
        print(f"{first}\nBringing one:", flush=True)
        try:
            bring()
            found = find()
        except (NoBrowserError, OSError) as error:
            print(f"{error}\nNot run without a browser:\n{not_run()}")
            return 1
    print(f"Browser: {found.path}, version {found.version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
