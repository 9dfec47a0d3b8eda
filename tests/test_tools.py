"""The authors' other tools: the stages of `make test`, the pins, the guard of timed tests."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pin
import pytest
import stages

ROOT = Path(__file__).resolve().parent.parent


def test_the_first_stage_that_fails_ends_the_run(capsys: pytest.CaptureFixture[str]):
    ran: list[str] = []

    def stage(name: str, code: int) -> stages.Stage:
        return stages.Stage(name, f"title of {name}", lambda: (ran.append(name), code)[1])

    chosen = [stage("one", 0), stage("two", 3), stage("three", 0)]
    outcomes = stages.run(chosen)
    assert ran == ["one", "two"]
    assert [outcome.code for outcome in outcomes] == [0, 3]
    said = capsys.readouterr().out
    assert "=== two: title of two ===" in said
    assert "two FAILED (exit code 3)" in said
    rows = [line.split() for line in stages.table(chosen, outcomes).splitlines()]
    assert rows[2][0::2] == ["one", "passed"]
    assert rows[3][0::2] == ["two", "FAILED"]
    assert rows[4] == ["three", "not", "run"]


def test_a_stage_that_cannot_run_here_is_named_and_does_not_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    chosen = tuple(
        stages.Stage(name, name, lambda code=code: code)
        for name, code in (("one", stages.NOT_RUN), ("two", 0))
    )
    monkeypatch.setattr(stages, "STAGES", chosen)
    assert stages.main([]) == 0
    one, two = capsys.readouterr().out.splitlines()[-3:-1]
    assert "NOT RUN" in one
    assert "passed" in two


@pytest.mark.parametrize(
    ("codes", "expected", "ran"),
    [
        ({"book": 1}, 1, ["book"]),
        ({"tools/browser.py": 1}, stages.NOT_RUN, ["book", "tools/browser.py"]),
        ({"browser and not timed": 1}, 1, ["book", "tools/browser.py", "browser and not timed"]),
        ({}, 0, ["book", "tools/browser.py", "browser and not timed", "browser and timed"]),
    ],
)
def test_links_are_tested_without_a_browser_and_pages_with_one(
    monkeypatch: pytest.MonkeyPatch, codes: dict[str, int], expected: int, ran: list[str]
):
    called: list[str] = []

    def python(*arguments: str) -> int:
        call = list(arguments)
        called.append(call[call.index("-m", 1) + 1] if len(call) > 1 else call[0])
        return codes.get(called[-1], 0)

    monkeypatch.setattr(stages, "_python", python)
    assert stages.browser() == expected
    assert called == ran


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (1, 1), (5, 0)])
def test_no_timed_test_is_said_and_a_failing_one_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int, expected: int
):
    monkeypatch.setattr(stages, "_call", lambda *command: code)
    assert stages.timed() == expected
    assert ("nothing was timed" in capsys.readouterr().out) == (code == 5)


def test_a_stage_over_no_notebooks_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stages, "ROOT", tmp_path)
    assert stages.chapters() == 1
    assert stages.labs() == 1


def test_an_unknown_stage_is_refused(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        stages.main(["nope"])
    assert "unknown stage nope; the stages are lint, types" in capsys.readouterr().err


def test_pins_get_a_marker_only_where_pythons_differ():
    lines = pin.merge(
        {
            "3.11": {"both": "1.0", "old": "2.0", "moved": "1.0"},
            "3.12": {"both": "1.0", "moved": "1.0"},
            "3.13": {"both": "1.0", "moved": "2.0"},
        }
    )
    assert lines == [
        "both==1.0",
        'moved==1.0; python_version == "3.11" or python_version == "3.12"',
        'moved==2.0; python_version == "3.13"',
        'old==2.0; python_version == "3.11"',
    ]


def test_the_project_itself_is_not_pinned():
    report = {
        "install": [
            {"download_info": {"dir_info": {}}, "metadata": {"name": "own", "version": "1"}},
            {"download_info": {}, "metadata": {"name": "An_Other.one", "version": "2"}},
        ]
    }
    assert pin.pins_from_report(report) == {"an-other-one": "2"}


def test_constraints_hold_pins_alone_and_cover_every_requirement():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    marker = r'(; python_version == "3\.1[123]"( or python_version == "3\.1[123]")*)?'
    for line in lines:
        assert re.fullmatch(rf"[a-z0-9-]+==[0-9a-z.]+{marker}", line), line
    pinned = {line.split("==")[0] for line in lines}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    for requirement in project["dependencies"] + extras["book"] + extras["dev"]:
        name = re.match(r"[A-Za-z0-9._-]+", requirement)
        assert name is not None
        assert pin.canonical(name[0]) in pinned, requirement


def test_a_timed_test_beside_others_fails(tmp_path: Path):
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = timed\n", encoding="utf-8")
    (tmp_path / "test_one.py").write_text(
        "import pytest\n\n@pytest.mark.timed\ndef test_one():\n    pass\n", encoding="utf-8"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    alone = subprocess.run([*command, "-n", "0"], capture_output=True, text=True, check=False)
    beside = subprocess.run([*command, "-n", "1"], capture_output=True, text=True, check=False)
    assert alone.returncode == 0, alone.stdout
    assert beside.returncode == 1
    assert "run the timed tests alone" in beside.stdout
