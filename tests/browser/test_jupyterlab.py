"""A lab in a real JupyterLab: opens, runs, fails with the learner's line, passes once solved."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from notebook_form import read, tagged
from playwright.sync_api import Browser, Page, expect

# A lab's grade is a measurement of time: nothing else may run beside it.
pytestmark = [pytest.mark.browser, pytest.mark.timed]

ROOT = Path(__file__).resolve().parent.parent.parent
LAB = "eager_crops"
START_SECONDS = 60
RUN_MILLISECONDS = 180_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """JupyterLab over a copy of the course; yields its address."""
    copy = tmp_path / "course"
    for folder in ("labs", "book"):
        shutil.copytree(ROOT / folder, copy / folder)
    shutil.copy(ROOT / "_toc.yml", copy)
    # Cells out of sight are in the page too: the test waits for them all.
    _set(tmp_path / "settings/@jupyterlab/notebook-extension/tracker", windowingMode="none")
    # Nor does a question about news lie over the page.
    _set(tmp_path / "settings/@jupyterlab/apputils-extension/notification", fetchNews="false")
    environment = os.environ | {
        "COURSE_STATE": str(tmp_path / "state"),
        # Nothing of the person who runs the tests: neither settings nor open windows.
        "JUPYTER_CONFIG_DIR": str(tmp_path / "config"),
        "JUPYTER_DATA_DIR": str(tmp_path / "data"),
        "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(tmp_path / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(tmp_path / "workspaces"),
        "JUPYTER_PREFER_ENV_PATH": "1",
    }
    log = tmp_path / "server.log"
    with log.open("w") as output:
        command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"]
        command += ["--ip=127.0.0.1", "--port=0", "--IdentityProvider.token="]
        command += ["--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
        process = subprocess.Popen(command, cwd=copy, env=environment, stdout=output, stderr=output)
        try:
            yield _address(process, log)
        finally:
            process.terminate()
            process.wait(timeout=30)


def _set(name: Path, **settings: str) -> None:
    """Write a file of JupyterLab's settings."""
    file = name.with_suffix(".jupyterlab-settings")
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(settings), encoding="utf-8")


def _address(process: subprocess.Popen, log: Path) -> str:
    """Wait until the server answers, and return where."""
    ends = time.monotonic() + START_SECONDS
    while time.monotonic() < ends and process.poll() is None:
        if found := re.search(r"http://127\.0\.0\.1:\d+/", log.read_text(encoding="utf-8")):
            try:
                urllib.request.urlopen(f"{found[0]}api", timeout=5).close()
            except (urllib.error.URLError, TimeoutError):
                pass
            else:
                return found[0]
        time.sleep(0.2)
    pytest.fail(f"JupyterLab did not start:\n{log.read_text(encoding='utf-8')}", pytrace=False)


def _open(page: Page, address: str) -> None:
    """Open the notebook and wait until its first kernel has answered.

    A restart that is asked for sooner is lost, or loses what is sent to the kernel after it: the
    cells then wait for ever. The toolbar shows a kernel as idle before there is one; the status
    bar does not.
    """
    page.goto(address)
    status = page.locator("#jp-main-statusbar")
    expect(status).to_contain_text(re.compile(r"ipykernel\) \| Idle"), timeout=START_SECONDS * 1000)


def _run_all(page: Page) -> None:
    """Restart the kernel and run every cell, by the menu, until the last has run."""
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name=re.compile("Restart Kernel and Run All Cells")).click()
    page.get_by_role("button", name="Confirm Kernel Restart").click()
    prompts = page.locator(".jp-CodeCell .jp-InputArea-prompt")
    waiting = prompts.filter(has_text=re.compile(r"\[\*\]"))
    expect(waiting.first).to_be_attached(timeout=START_SECONDS * 1000)
    expect(waiting).to_have_count(0, timeout=RUN_MILLISECONDS)


def _card(page: Page) -> str:
    """The text of the grader's card."""
    card = page.locator(".course-card").last
    card.scroll_into_view_if_needed()
    expect(card).to_be_visible()
    return card.inner_text()


def test_a_learner_fails_repairs_the_function_and_passes(browser: Browser, server: str):
    solution = tagged(read(ROOT / f"labs/solutions/{LAB}.ipynb"), "student")[0].source
    starter = tagged(read(ROOT / f"labs/{LAB}.ipynb"), "student")[0].source
    page = browser.new_page(viewport={"width": 1300, "height": 1000})
    try:
        _open(page, f"{server}lab/tree/labs/{LAB}.ipynb")

        _run_all(page)
        failed = _card(page)
        assert re.search(r"\bfail\b", failed), failed
        (blamed,) = [line for line in starter.splitlines() if "= model(" in line]
        assert blamed.strip() in failed, failed

        first_line = starter.splitlines()[0]
        cell = page.locator(".jp-CodeCell").filter(has_text=first_line)
        expect(cell).to_have_count(1)
        editor = cell.locator(".cm-content")
        editor.click()
        page.keyboard.press("ControlOrMeta+a")
        page.keyboard.insert_text(solution)
        expect(editor).to_have_text(re.compile(re.escape(solution.splitlines()[-1].strip())))

        _run_all(page)
        passed = _card(page)
        assert re.search(r"\bpass\b", passed), passed
        assert not re.search(r"\bfail\b", passed), passed
    finally:
        page.context.close()
