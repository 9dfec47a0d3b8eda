"""`course grade`: exit codes, what it prints, and what it writes."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree as ET

import psutil
import pytest

from course_utils import state
from course_utils.cli import main, printable
from course_utils.findings import Finding, Report, Verdict
from course_utils.report.text import WIDTH
from course_utils.runner.grade_file import Asked, conclude
from course_utils.runner.outcome import Exit, Outcome, worst
from course_utils.runner.source import read
from course_utils.runner.supervise import Ended, Limits, Why
from tests.cli_labs.files import IMPORTS, RIGHT, WRONG, notebook

ROOT = Path(__file__).resolve().parent.parent
LABS = "tests.cli_labs"
PROGRAM = (
    "import sys; from course_utils.cli import main; "
    f"sys.exit(main(sys.argv[1:], registry={LABS!r}))"
)


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv(state.VARIABLE, str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def _course(*arguments: object) -> int:
    return main([str(each) for each in arguments], registry=LABS)


def test_one_right_notebook(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = notebook(tmp_path / "renamed.ipynb", "print('secret')")
    assert _course("grade", path, "--seed", "7", "--json", "out.json", "--junit", "out.xml") == 0
    printed = capsys.readouterr().out
    assert f"{path}, graded as lab double:\nPASS double: " in printed
    assert "seed 7" in printed
    assert "secret" not in printed
    (result,) = json.loads(Path("out.json").read_text())["results"]
    assert result["verdict"] == "pass"
    assert result["exit"] == 0
    assert Report.from_dict(result["report"]).seed == 7
    suite = ET.parse("out.xml").getroot()[0]
    assert suite.get("name") == str(path)
    assert suite.get("failures") == "0"
    kept = state.last("double")
    assert kept is not None
    assert (kept.verdict, kept.subject) == (Verdict.PASS, "renamed.ipynb")


def test_output_is_shown_on_demand(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = notebook(tmp_path / "lab.ipynb", r"print('shown \x1b[2J')", student=WRONG)
    assert _course("grade", path, "--output") == Exit.FAILED
    printed = capsys.readouterr().out
    assert "shown \\x1b[2J\n" in printed
    assert "\x1b" not in printed


def test_several_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = tmp_path / "handed in"
    (folder / ".ipynb_checkpoints").mkdir(parents=True)
    notebook(folder / "anna.ipynb")
    notebook(folder / "bob.ipynb", student="@jax.jit\ndef double(x):\n    return x")
    (folder / "cleo.ipynb").write_text("{")
    notebook(folder / ".ipynb_checkpoints" / "anna.ipynb")
    (folder / "helpers.py").write_text("raise RuntimeError")
    script = tmp_path / "double.py"
    script.write_text(
        f"{IMPORTS}\n{RIGHT}\nif __name__ == '__main__':\n    raise RuntimeError('ran as main')\n"
    )
    code = _course("grade", folder, script, "--json", "out.json", "--junit", "out.xml")
    assert code == Exit.COULD_NOT
    shown = capsys.readouterr()
    assert "left out, since not called like a lab: helpers.py" in shown.err
    printed = shown.out.splitlines()
    verdicts = ["pass", "fail", "could not be graded", "pass"]
    assert [line[:20].strip() for line in printed[1:-1]] == verdicts
    assert "cut off" in printed[3]
    assert printed[-1].startswith("4 files: 1 could not be graded, 1 fail, 2 pass, in ")
    assert all(len(line) <= WIDTH for line in printed)
    results = json.loads(Path("out.json").read_text())["results"]
    assert [each["exit"] for each in results] == [0, 1, 3, 0]
    assert results[2]["report"] is None
    assert "cut off" in results[2]["problem"]
    suites = ET.parse("out.xml").getroot()
    assert [suite.get("errors") for suite in suites] == ["0", "0", "1", "0"]


def test_python_files_of_a_folder_are_graded_when_their_lab_is_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = tmp_path / "handed in"
    folder.mkdir()
    for name in ("double.py", "anna.py"):
        (folder / name).write_text(f"{IMPORTS}\n{RIGHT}\n")
    assert _course("grade", folder) == Exit.PASSED
    assert "left out, since not called like a lab: anna.py" in capsys.readouterr().err
    assert _course("grade", folder, "--lab", "double") == Exit.PASSED
    shown = capsys.readouterr()
    assert "left out" not in shown.err
    assert "2 files: 2 pass" in shown.out


def test_a_folder_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert _course("grade", tmp_path / "nowhere") == Exit.COULD_NOT
    assert "no such file or folder" in capsys.readouterr().out


def test_results_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "lab.ipynb"
    path.write_text("{")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert _course("grade", path, "--json", "out.json") == Exit.WRONG_USAGE
    printed = capsys.readouterr()
    assert "cut off" in printed.out
    assert "course grade: cannot write the results: No space left on device" in printed.err


def test_jobs_keep_the_order_of_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    paths = [tmp_path / f"{name}.ipynb" for name in "abc"]
    for path in paths:
        path.write_text("{")
    assert _course("grade", *paths, "--jobs", "2", "--json", "out.json") == Exit.COULD_NOT
    results = json.loads(Path("out.json").read_text())["results"]
    assert [each["file"] for each in results] == [str(path) for path in paths]
    assert len(capsys.readouterr().out.splitlines()) == 5


def test_a_lab_with_two_functions(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = notebook(tmp_path / "lab.ipynb", lab="pair")
    assert _course("grade", path) == Exit.COULD_NOT
    assert "does not define `halve(x)`" in capsys.readouterr().out
    student = f"{RIGHT}\ndef halve(x):\n    return x / 2"
    assert _course("grade", notebook(path, lab="pair", student=student)) == Exit.PASSED


def test_the_lab_can_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = notebook(tmp_path / "lab.ipynb", lab=None)
    assert _course("grade", path) == Exit.COULD_NOT
    printed = capsys.readouterr().out
    assert "its metadata has no `course.lab`" in printed
    assert "course grade lab.ipynb --lab NAME. The labs are: double, pair." in printed
    assert _course("grade", path, "--lab", "double") == Exit.PASSED
    path = notebook(tmp_path / "lab.ipynb", lab="doubel")
    assert _course("grade", path) == Exit.COULD_NOT
    assert "no lab called 'doubel'" in capsys.readouterr().out


def test_a_script_of_unknown_lab(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "mine.py"
    path.write_text(f"{IMPORTS}\n{RIGHT}\n")
    assert _course("grade", path) == Exit.COULD_NOT
    assert "a Python file must be called like its lab" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["grade"], "required: FILE"),
        (["grade", "a.ipynb", "--seed", "x"], "expected a whole number from 0, got 'x'"),
        (["grade", "a.ipynb", "--seed", "-1"], "expected a whole number from 0, got '-1'"),
        (["grade", "a.ipynb", "--jobs", "0"], "expected a whole number from 1, got '0'"),
        (["grade", "a.ipynb", "--time-limit", "nan"], "expected a number above 0, got 'nan'"),
        (["grade", "a.ipynb", "--memory-limit", "0"], "expected a number above 0, got '0'"),
        (["grade", "a.ipynb", "--json", "no/such/folder/x"], "no such folder"),
        (["grade", "a.ipynb", "--junit", "."], "not a file that can be replaced"),
        (["grade", "a.ipynb", "--colour"], "unrecognized arguments: --colour"),
        (["mark"], "invalid choice: 'mark'"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as error:
        _course(*arguments)
    assert error.value.code == Exit.WRONG_USAGE
    assert message in capsys.readouterr().err


def test_no_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]):
    assert _course() == Exit.WRONG_USAGE
    assert "grade notebooks or Python files" in capsys.readouterr().out


def _outcome(verdict: Verdict | None) -> Outcome:
    report = None if verdict is None else Report("double", (Finding("runs", verdict),))
    return Outcome(Path("a.ipynb"), "double", report)


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ([Verdict.PASS], 0),
        ([Verdict.FAIL], 1),
        ([None], 3),
        ([Verdict.INCONCLUSIVE], 4),
        ([Verdict.PASS, Verdict.INCONCLUSIVE], 4),
        ([Verdict.INCONCLUSIVE, Verdict.FAIL, Verdict.PASS], 1),
        ([Verdict.INCONCLUSIVE, Verdict.FAIL, None, Verdict.PASS], 3),
        ([], 3),
    ],
)
def test_the_worst_code_counts(verdicts: list[Verdict | None], code: int):
    assert worst(map(_outcome, verdicts)) == code


def test_text_cannot_steer_the_terminal():
    assert printable("a\x1b[31mb\rc\x07\nd\te\ud800é→") == "a\\x1b[31mb\\rc\\x07\nd\te\\ud800é→"


# What a run that is over means


GRADING = (
    {"kind": "ready", "checks": ["error"]},
    {"kind": "cell", "title": "code cell 2"},
    {"kind": "grading"},
)


def _concluded(
    tmp_path: Path, why: Why, *messages: Mapping[str, object], status: int = -9, stack: str = ""
) -> Outcome:
    path = notebook(tmp_path / "lab.ipynb")
    asked = Asked(path, read(path), "double", 7, Limits(5, 10**9))
    return conclude(asked, Ended(why, messages, status, stack, "", 5.0))


def _frames(*files: str) -> str:
    return "Thread 0x1 (most recent call first):\n" + "".join(
        f'  File "{file}", line 3 in f\n' for file in files
    )


def test_a_limit_passed_in_the_graders_own_code_is_inconclusive(tmp_path: Path):
    stack = _frames("/x/session.py", "/x/grading.py")
    outcome = _concluded(tmp_path, "seconds", *GRADING, stack=stack)
    assert outcome.code is Exit.INCONCLUSIVE
    assert outcome.report is not None
    assert outcome.report.findings[0].cause == (
        "The grade was still running after 5 s, outside your function, and was stopped."
    )


def test_waiting_for_the_functions_result_is_the_functions_time(tmp_path: Path):
    waiting = _frames("/x/jax/api.py", "/x/guard.py", "/x/session.py")
    assert _concluded(tmp_path, "seconds", *GRADING, stack=waiting).code is Exit.FAILED
    timing = _frames("/x/jax/api.py", "/x/timing.py", "/x/guard.py")
    assert _concluded(tmp_path, "seconds", *GRADING, stack=timing).code is Exit.INCONCLUSIVE


def test_a_learners_line_is_named(tmp_path: Path):
    stack = _frames("/x/jax/api.py", "<code cell 2>", "/x/guard.py")
    report = _concluded(tmp_path, "seconds", *GRADING, stack=stack).report
    assert report is not None
    assert report.findings[0].cause == (
        "Your function was still running after 5 s and was stopped in line 3 of code cell 2 "
        "(`return 2 * x`)."
    )


@pytest.mark.parametrize(
    ("report", "problem"),
    [
        ({}, "no valid report"),
        (None, "no valid report"),
        (Report("pair", (Finding("runs", Verdict.PASS),), seed=7).to_dict(), "another grade"),
        (Report("double", (Finding("runs", Verdict.PASS),), seed=8).to_dict(), "another grade"),
    ],
)
def test_a_report_that_was_not_asked_for_does_not_count(
    tmp_path: Path, report: object, problem: str
):
    outcome = _concluded(tmp_path, "said", *GRADING, {"kind": "report", "report": report})
    assert outcome.code is Exit.COULD_NOT
    assert problem in outcome.problem


def _sent(kind: str, **findings: Verdict) -> Mapping[str, object]:
    made = tuple(Finding(name.replace("_", " "), verdict) for name, verdict in findings.items())
    return {"kind": kind, "report": Report("double", made, seed=7).to_dict()}


PASS = Verdict.PASS
GOOD = _sent("report", runs=PASS, error=PASS)
HANGS = _sent("stuck", runs=Verdict.FAIL)


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        ((GOOD,), Exit.PASSED),
        (
            (
                _sent(
                    "report", grader_untouched=Verdict.PASS, runs=Verdict.PASS, error=Verdict.PASS
                ),
            ),
            0,
        ),
        ((HANGS,), Exit.FAILED),
        ((HANGS, GOOD), Exit.PASSED),
        ((GOOD, HANGS), Exit.PASSED),
        ((GOOD, GOOD), Exit.COULD_NOT),
        ((_sent("report", runs=Verdict.PASS),), Exit.COULD_NOT),
        ((_sent("report", runs=Verdict.PASS, error=Verdict.PASS, x=Verdict.PASS),), Exit.COULD_NOT),
        ((_sent("stuck", runs=Verdict.PASS, error=Verdict.PASS),), Exit.COULD_NOT),
        ((_sent("stuck", runs=Verdict.FAIL, x=Verdict.PASS),), Exit.COULD_NOT),
        (({"kind": "ready", "checks": []}, _sent("report", runs=Verdict.PASS)), Exit.COULD_NOT),
    ],
)
def test_a_report_counts_only_with_the_checks_of_the_lab(
    tmp_path: Path, messages: tuple[Mapping[str, object], ...], code: int
):
    assert _concluded(tmp_path, "said", *GRADING, *messages).code == code


def test_a_report_before_the_grade_does_not_count(tmp_path: Path):
    *before, grading = GRADING
    for messages in ((*before, GOOD), (*before, GOOD, grading), (*before, HANGS, grading, GOOD)):
        outcome = _concluded(tmp_path, "said", *messages)
        assert "before the grade began" in outcome.problem


def test_a_verdict_that_its_findings_do_not_come_to_does_not_count(tmp_path: Path):
    bad = _sent("report", runs=Verdict.PASS, error=Verdict.FAIL)
    assert _concluded(tmp_path, "said", *GRADING, bad).code is Exit.FAILED
    report = bad["report"]
    assert isinstance(report, dict)
    report["verdict"] = "pass"
    assert _concluded(tmp_path, "said", *GRADING, bad).code is Exit.COULD_NOT


def test_a_script_knows_its_file(tmp_path: Path):
    path = tmp_path / "double.py"
    path.write_text(
        f"import sys\nassert __file__ == {str(path)!r}\nassert sys.argv == [__file__]\n"
        f"{IMPORTS}\n{RIGHT}\n"
    )
    assert _course("grade", path) == Exit.PASSED


@pytest.mark.parametrize(
    "text",
    ["1 / 0", "import os\nos._exit(0)", "x = 1", "def double(x):\n    import os\n    os._exit(0)"],
)
def test_hints_for_a_script_speak_of_no_kernel(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "double.py"
    path.write_text(text)
    assert _course("grade", path) == Exit.COULD_NOT
    printed = capsys.readouterr().out
    assert "→" in printed
    assert not any(word in printed for word in ("kernel", "cell", "notebook"))


@pytest.mark.parametrize(
    ("why", "messages", "problem"),
    [
        ("start", (), "Loading JAX and the grader took longer than"),
        ("exited", (), "The grader could not be started: SIGKILL ended it"),
        ("said", ({"kind": "crashed", "error": "TypeError: x"},), "grader itself failed: TypeErr"),
    ],
)
def test_a_grader_that_does_not_work(
    tmp_path: Path, why: Why, messages: tuple[Mapping[str, object], ...], problem: str
):
    outcome = _concluded(tmp_path, why, *messages)
    assert outcome.code is Exit.COULD_NOT
    assert problem in outcome.problem
    assert outcome.todo


# A command line that is ended from outside


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """A command line that has graded one file and is stuck in the next; and its child's id."""
    done = notebook(tmp_path / "done.ipynb", student=WRONG)
    stuck = notebook(
        tmp_path / "stuck.ipynb",
        "import os, pathlib, time\n"
        "pathlib.Path('pid').write_text(str(os.getpid()))\n"
        "time.sleep(600)",
    )
    # A shell that starts the tests in the background has them ignore the interrupt.
    program = f"import signal; signal.signal(2, signal.default_int_handler); {PROGRAM}"
    command = [sys.executable, "-c", program, "grade", done, stuck, "--json", "out.json"]
    (tmp_path / "scratch").mkdir()
    with subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"TMPDIR": str(tmp_path / "scratch")},
    ) as process:
        try:
            pid = int(_awaited(tmp_path / "pid"))
            yield process, pid
        finally:
            process.kill()


def _awaited(path: Path) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(FileNotFoundError):
            if text := path.read_text():
                return text
        time.sleep(0.05)
    raise AssertionError(f"{path.name} was not written within 60 s")


def _within_20_s(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.05)
    return False


def _empty(folder: Path) -> bool:
    return _within_20_s(lambda: not list(folder.iterdir()))


def _gone(pid: int) -> bool:
    def ended() -> bool:
        try:
            return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    return _within_20_s(ended)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_an_ended_run_loses_nothing_finished_and_leaves_no_process(
    running: tuple["subprocess.Popen[bytes]", int], number: signal.Signals, tmp_path: Path
):
    process, child = running
    os.kill(process.pid, number)
    code = process.wait(20)
    assert code == (-signal.SIGKILL if number is signal.SIGKILL else 130)
    assert _gone(child)
    assert _empty(tmp_path / "scratch")
    (result,) = json.loads(Path("out.json").read_text())["results"]
    assert result["exit"] == Exit.FAILED
