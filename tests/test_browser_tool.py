"""`make browser` finds a browser, brings one, or says what is not tested without."""

import subprocess
import sys
from collections.abc import Callable

import browser
import pytest

FOUND = browser.Found("/usr/bin/chromium", "150.0")


def _finds(*results: browser.Found | None) -> Callable[[], browser.Found]:
    left = list(results)

    def find() -> browser.Found:
        if (found := left.pop(0)) is None:
            raise browser.NoBrowserError("No browser starts (none was found).")
        return found

    return find


def test_the_browser_that_is_there_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(browser, "find", _finds(FOUND))
    monkeypatch.setattr(browser, "bring", lambda: pytest.fail("brought one without need"))
    assert browser.main() == 0
    assert capsys.readouterr().out == "Browser: /usr/bin/chromium, version 150.0\n"


def test_where_there_is_none_one_is_brought(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(browser, "find", _finds(None, FOUND))
    monkeypatch.setattr(browser, "bring", lambda: print("bringing"))
    assert browser.main() == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "bringing",
        "Browser: /usr/bin/chromium, version 150.0",
    ]


def test_where_none_can_be_had_the_tests_not_run_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(browser, "find", _finds(None, None))
    monkeypatch.setattr(browser, "bring", lambda: None)
    assert browser.main() == 1
    said = capsys.readouterr().out
    for path in browser.TESTS.glob("test_*.py"):
        marks = "pytest.mark.browser" in path.read_text(encoding="utf-8")
        assert (f"tests/browser/{path.name}: " in said) == marks, path.name


@pytest.mark.parametrize(
    ("root", "distribution", "platform", "last"),
    [
        (True, "debian", "linux", ["apt-get", "chromium"]),
        (True, "ubuntu", "linux", ["playwright", "--with-deps"]),
        (False, "debian", "linux", ["playwright", "chromium"]),
        (False, "", "darwin", ["playwright", "chromium"]),
    ],
)
def test_each_machine_gets_its_own(
    monkeypatch: pytest.MonkeyPatch, root: bool, distribution: str, platform: str, last: list[str]
):
    monkeypatch.setattr(browser, "_is_root", lambda: root)
    monkeypatch.setattr(browser, "_distribution", lambda: distribution)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(browser.shutil, "which", lambda name: f"/usr/bin/{name}")
    command = browser.ways()[-1]
    assert set(last) <= set(command)
    assert ("apt-get" in command) == ("apt-get" in last)


def test_the_rest_is_not_tried_after_a_command_that_fails(monkeypatch: pytest.MonkeyPatch):
    ran: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess:
        ran.append(command)
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(browser, "ways", lambda: [["one"], ["two"]])
    monkeypatch.setattr(browser.subprocess, "run", run)
    browser.bring()
    assert ran == [["one"]]
