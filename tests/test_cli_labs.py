"""`course labs`: every lab with its facts and last verdict, without loading JAX."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from course_utils import catalogue, labs, state
from course_utils.cli import main
from course_utils.findings import Finding, Report, Verdict

ROOT = Path(__file__).resolve().parent.parent
LABS = "tests.cli_labs"
PASSED = Report("double", (Finding("runs", Verdict.PASS),), device="cpu")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "state"
    monkeypatch.setenv(state.VARIABLE, str(folder))
    return folder


def _rows(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    return {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}


def test_facts_are_the_labs_own():
    entries = catalogue.entries()
    assert tuple(entry.name for entry in entries) == labs.NAMES
    for entry in entries:
        lab = labs.get(entry.name)
        assert dataclasses.asdict(entry) == {
            each.name: getattr(lab, each.name) for each in dataclasses.fields(entry)
        }


def test_a_fact_that_is_no_plain_constant_is_asked_of_the_lab():
    entries = {entry.name: entry for entry in catalogue.entries(LABS)}
    assert entries["pair"].title == "Two functions"
    assert entries["double"].minutes == 1


def test_the_list_loads_no_jax():
    program = (
        "import sys; from course_utils.cli import main; code = main(['labs']); "
        "print(sorted({'jax', 'equinox', 'numpy', 'psutil'} & set(sys.modules))); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ
    )
    lines = done.stdout.splitlines()
    assert lines[-1] == "[]"
    assert [line.split()[0] for line in lines[1:-1]] == list(labs.NAMES)


def test_last_verdicts_are_listed_and_forgotten(capsys: pytest.CaptureFixture[str]):
    assert main(["labs"], registry=LABS) == 0
    rows = _rows(capsys)
    assert list(rows) == ["lab", "double", "pair"]
    assert "pass" not in rows["double"]
    state.record(PASSED)
    state.record(dataclasses.replace(PASSED, lab="pair", findings=(Finding("x", Verdict.FAIL),)))
    main(["labs"], registry=LABS)
    rows = _rows(capsys)
    assert "  pass, 2" in rows["double"]
    assert "  fail, 2" in rows["pair"]
    assert main(["labs", "--reset", "double"], registry=LABS) == 0
    assert "Forgot the last verdict of double." in capsys.readouterr().out
    assert state.last("double") is None
    assert state.last("pair") is not None
    assert main(["labs", "--reset"], registry=LABS) == 0
    assert "Forgot the last verdict of pair." in capsys.readouterr().out
    assert main(["labs", "--reset"], registry=LABS) == 0
    assert "None was kept." in capsys.readouterr().out


def test_reset_of_an_unknown_lab_is_wrong_usage(capsys: pytest.CaptureFixture[str]):
    assert main(["labs", "--reset", "tripel"], registry=LABS) == 2
    assert "no lab called 'tripel'. The labs are: double, pair" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "{", "[]", '{"verdict": "great"}', "[" * 100_000, "\0"])
def test_a_damaged_state_file_counts_as_no_verdict(text: str, folder: Path):
    folder.mkdir()
    (folder / "double.json").write_text(text)
    assert state.last("double") is None
    state.record(PASSED)
    last = state.last("double")
    assert last is not None
    assert last.verdict is Verdict.PASS
    assert last.device == "cpu"


def test_recording_never_raises(folder: Path, monkeypatch: pytest.MonkeyPatch):
    folder.write_text("a file where the folder should be")
    state.record(PASSED)
    state.record(dataclasses.replace(PASSED, lab="../outside"))
    assert not (folder.parent / "outside.json").exists()
    monkeypatch.setattr(json, "dumps", None)
    state.record(PASSED)


def test_a_failed_write_leaves_the_old_verdict(folder: Path, monkeypatch: pytest.MonkeyPatch):
    state.record(PASSED)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    state.record(dataclasses.replace(PASSED, findings=(Finding("x", Verdict.FAIL),)))
    last = state.last("double")
    assert last is not None
    assert last.verdict is Verdict.PASS
    assert [path.name for path in folder.iterdir()] == ["double.json"]
