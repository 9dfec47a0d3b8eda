"""Whatever a handed-in file does: a clear line, within the limit, and no process left behind."""

import contextlib
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from course_utils.runner.grade_file import grade_file
from course_utils.runner.outcome import Exit, Outcome
from course_utils.runner.supervise import Limits
from tests.cli_labs.files import RIGHT, WRONG, notebook

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 30.0
"""Limit of a run that is meant to end by itself."""
SHORT = 2.0
"""Limit of a run that is meant to be stopped."""
SEED = 7


@dataclass(frozen=True)
class Case:
    """What a notebook does, and what must come of it.

    Attributes:
        cells: run before the student's cell.
        student: the student's cell.
        code: the exit code that must come out.
        says: parts of the line that the learner reads.
        seconds: the time limit.
        gigabytes: the memory limit.
    """

    cells: tuple[str, ...] = ()
    student: str = RIGHT
    code: Exit = Exit.PASSED
    says: tuple[str, ...] = ()
    seconds: float = SECONDS
    gigabytes: float = 8.0


def _inside(body: str) -> str:
    """Return a student's cell whose function runs `body` before it returns."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return f"def double(x):\n{lines}\n    return 2 * x"


_FILL = """\
import time
kept = [bytes([1]) * 200_000_000 for _ in range(7)]
time.sleep(600)"""
_HANG = "while True: pass"
_FAKE = (
    '{"verdict": "pass", "kind": "report", "report": {"verdict": "pass", "lab": "double"}}\n'
    "PASS double\n\nok   error: 0"
)
_DAEMON = """\
import subprocess, sys, pathlib
for environment in (None, {}):
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], env=environment,
        start_new_session=True, stdout=subprocess.DEVNULL,
    )
    with open("pids", "a") as file:
        print(child.pid, file=file)
import time
time.sleep(1)"""
_FORK = """\
import os, time
pid = os.fork()
if pid == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
os.waitpid(pid, 0)"""

_ESCAPE = """\
import os, pathlib, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        program = "import os, time; open('escaped', 'w').write(str(os.getpid())); time.sleep(600)"
        os.execve(sys.executable, [sys.executable, "-c", program], {})
    os._exit(0)
os.wait()
while not (pathlib.Path("escaped").exists() and pathlib.Path("escaped").read_text()):
    time.sleep(0.01)"""
_KILL_KEEPER = "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nwhile True: pass"
_FORGED = """\
from course_utils.findings import Finding, Report, Verdict
def forged(seed, checks):
    findings = tuple(Finding(check, Verdict.PASS) for check in ("runs", *checks))
    return Report("double", findings, seed=seed).to_dict()"""
_FIND_JOB = """\
import json, os, pathlib, sys
for argument in (*sys.argv, *sys.orig_argv):
    if pathlib.Path(argument, "job.json").is_file():
        print("the job lies there")
        job = json.load(open(pathlib.Path(argument, "job.json")))
        os._exit(0)
    for channel in pathlib.Path(argument).glob("channel-*"):
        said = [line.partition(b" ")[::2] for line in channel.read_bytes().splitlines()]
        print(len(said), "lines there")
        grading = {"count": 98, "kind": "grading"}
        report = {"count": 99, "kind": "report", "report": forged(7, ["error", "launches"])}
        with open(channel, "ab") as file:
            for message in (grading, report):
                file.write(said[-1][0] + b" " + json.dumps(message).encode() + b"\\n")
            for signature, line in said:
                file.write(signature + b" " + line + b"\\n")"""
_FIND_CHANNEL = """\
import sys
frame = sys._getframe()
while "channel" not in frame.f_locals:
    frame = frame.f_back
channel, seed = frame.f_locals["channel"], frame.f_locals["job"]["seed"]
"""


def _forger(*says: str, leaves: bool = True) -> str:
    """Return code that finds the channel above it, says things there, and ends the process."""
    ends = ("import os", "os._exit(0)") if leaves else ()
    return "\n".join([_FORGED, _FIND_CHANNEL, *says, *ends])


_SAY_ALL = 'channel.say("report", report=forged(seed, ["error", "launches"]))'
_SAY_SOME = 'channel.say("report", report=forged(seed, []))'
_SAY_OTHER = 'channel.say("report", report=forged(seed, ["error", "launches", "speed"]))'

CASES = {
    "right": Case(),
    "wrong": Case(student=WRONG, code=Exit.FAILED, says=("error",)),
    "ends the process": Case(
        ("import os\nos._exit(0)",), code=Exit.COULD_NOT, says=("code cell 2", "exit code 0")
    ),
    "kills itself": Case(
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",),
        code=Exit.COULD_NOT,
        says=("code cell 2", "SIGKILL"),
    ),
    "sys.exit": Case(
        ("import sys\nsys.exit(0)",),
        code=Exit.COULD_NOT,
        says=("Line 2 of code cell", "sys.exit"),
    ),
    "quit": Case(
        ("quit()",),
        code=Exit.COULD_NOT,
        says=("Line 1 of code cell 2 (`quit()`) ends the program",),
    ),
    "never ends": Case(
        (_HANG,),
        code=Exit.COULD_NOT,
        says=("Code cell 2", "after 2 s", "in line 1 (`while True: pass`)", "--time-limit"),
        seconds=SHORT,
    ),
    "fills memory": Case(
        (_FILL,),
        code=Exit.COULD_NOT,
        says=("Code cell 2", "more than 1 GB", "--memory-limit"),
        gigabytes=1.0,
    ),
    "forks": Case((_FORK,)),
    "forks and goes on": Case(("import os\nos.fork()",)),
    "starts many processes": Case(
        (
            "import subprocess, time\n"
            "many = [subprocess.Popen(['sleep', '600']) for _ in range(210)]\n"
            "time.sleep(60)",
        ),
        code=Exit.COULD_NOT,
        says=("Code cell 2", "more than 200 processes"),
    ),
    "leaves daemons": Case((_DAEMON,)),
    "50 MB of output": Case(("for _ in range(500):\n    print('x' * 100_000)",)),
    "prints a fake verdict": Case(
        (f"print({_FAKE!r})",), student=WRONG, code=Exit.FAILED, says=("error",)
    ),
    "writes to every descriptor": Case(
        (
            "import os\n"
            "for handle in range(1, 64):\n"
            "    try:\n"
            f"        os.write(handle, {_FAKE!r}.encode())\n"
            "    except OSError:\n"
            "        pass",
        ),
        student=WRONG,
        code=Exit.FAILED,
        says=("error",),
    ),
    "removes modules": Case(
        ("import sys\nfor name in list(sys.modules):\n    del sys.modules[name]",)
    ),
    "closes every descriptor": Case(("import os\nos.closerange(0, 4096)",)),
    "leaves the folder": Case(("import os\nos.chdir('/')",)),
    "deletes its file": Case(
        ("import pathlib\nfor each in pathlib.Path().glob('*.ipynb'):\n    each.unlink()",)
    ),
    "patches what writes": Case(
        (
            "import builtins, json, os\n"
            "json.dumps = lambda *args, **kwargs: '{}'\n"
            "json.JSONEncoder.encode = lambda *args, **kwargs: '{}'\n"
            "builtins.print = builtins.open = os.write = os.open = os.close = None",
        ),
        student=WRONG,
        code=Exit.FAILED,
        says=("error",),
    ),
    "missing import": Case(
        ("x = 1\nimport no_such_package.inner",),
        code=Exit.COULD_NOT,
        says=("Line 2 of code cell 2", "`no_such_package`", "pip install no_such_package"),
    ),
    "syntax error": Case(
        student="def double(x):\n    return 2 *",
        code=Exit.COULD_NOT,
        says=("Syntax error in line 2 of code cell 2", "`return 2 *`"),
    ),
    "raises": Case(
        ("y = 1\ny / 0",),
        code=Exit.COULD_NOT,
        says=("Line 2 of code cell 2 (`y / 0`)", "ZeroDivisionError"),
    ),
    "raises in a library": Case(
        ("jnp.ones(3) @ jnp.ones(4)",), code=Exit.COULD_NOT, says=("Line 1 of code cell 2",)
    ),
    "renames the function": Case(
        student="def twice(x):\n    return 2 * x",
        code=Exit.COULD_NOT,
        says=("`double(x)`", "Keep the names"),
    ),
    "not a function": Case(student="double = 3", code=Exit.FAILED, says=("double(x)", "int")),
    "magics": Case(
        (
            "%matplotlib inline\n!echo shell\nimport asyncio\nawait asyncio.sleep(0)",
            "%%time\ny = 1",
            "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\ndisplay(y)",
        )
    ),
    "function ends the process": Case(
        student=_inside("import os\nos._exit(0)"),
        code=Exit.COULD_NOT,
        says=("while your functions were graded", "exit code 0"),
    ),
    "function calls sys.exit": Case(
        student=_inside("import sys\nsys.exit(0)"), code=Exit.FAILED, says=("SystemExit",)
    ),
    "function never ends": Case(
        student=_inside(_HANG), code=Exit.FAILED, says=("still running after 2 s",)
    ),
    "function hangs in compiled code": Case(
        student=_inside("jax.lax.while_loop(lambda i: i >= 0, lambda i: i * 0, 0)"),
        code=Exit.FAILED,
        says=("hangs inside compiled code",),
    ),
    "function hangs where Python cannot interrupt": Case(
        student=_inside("sum(iter(int, 1))"),
        code=Exit.FAILED,
        says=("after 2 s", "line 2 of code cell 2 (`sum(iter(int, 1))`)"),
        seconds=SHORT,
    ),
    "escapes at once": Case((_ESCAPE,)),
    "ends what keeps it": Case(
        (_KILL_KEEPER,), code=Exit.COULD_NOT, says=("code cell 2", "SIGKILL")
    ),
    "writes to the channel's file": Case(
        (_FORGED, _FIND_JOB), student=WRONG, code=Exit.FAILED, says=("error",)
    ),
    "forges a report before the grade": Case(
        (_forger(_SAY_ALL),), code=Exit.COULD_NOT, says=("before the grade began",)
    ),
    "forges a report before the grade and goes on": Case(
        (_forger(_SAY_ALL, leaves=False),),
        student=WRONG,
        code=Exit.COULD_NOT,
        says=("before the grade began",),
    ),
    "forges a report without the checks": Case(
        student=_inside(_forger(_SAY_SOME)),
        code=Exit.COULD_NOT,
        says=("other checks than the lab has (error, launches)",),
    ),
    "forges a report with more checks": Case(
        student=_inside(_forger(_SAY_OTHER)),
        code=Exit.COULD_NOT,
        says=("other checks than the lab has (speed)",),
    ),
    "forges a report and goes on": Case(
        student=_inside(_forger(_SAY_ALL, leaves=False)),
        code=Exit.COULD_NOT,
        says=("sent a report more than once",),
    ),
    "says nonsense": Case(
        (_forger('channel.say(["report"])\nchannel.say("interrupted", frames=3)'),),
        code=Exit.FAILED,
        says=("KeyboardInterrupt",),
    ),
    "function raises KeyboardInterrupt": Case(
        student=_inside("raise KeyboardInterrupt"),
        code=Exit.FAILED,
        says=(
            "Your code raised KeyboardInterrupt while it was graded in line 2 of code cell 2 "
            "(`raise KeyboardInterrupt`).",
        ),
    ),
    "function returns after all": Case(
        student=_inside(
            "import signal, time\n"
            "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})\n"
            "time.sleep(5)\n"
            "signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})"
        ),
        code=Exit.FAILED,
        says=("`double` was still running after 2 s and was stopped.",),
    ),
    "function fills memory": Case(
        student=_inside(_FILL),
        code=Exit.FAILED,
        says=("more than 1 GB", "code cell 2"),
        gigabytes=1.0,
    ),
}


@dataclass(frozen=True)
class Graded:
    outcome: Outcome
    folder: Path
    seconds: float


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Graded]:
    """Every case, graded two at a time: most of them wait."""
    root = tmp_path_factory.mktemp("hostile")

    def one(item: tuple[int, tuple[str, Case]]) -> Graded:
        index, (_, case) = item
        folder = root / str(index)
        folder.mkdir()
        path = notebook(folder / "lab.ipynb", *case.cells, student=case.student)
        limits = Limits(case.seconds, int(case.gigabytes * 1e9))
        started = time.monotonic()
        outcome = grade_file(path, limits, seed=SEED, registry="tests.cli_labs")
        return Graded(outcome, folder, time.monotonic() - started)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("COURSE_TEST", str(root))
        with ThreadPoolExecutor(2) as pool:
            return dict(zip(CASES, pool.map(one, enumerate(CASES.items())), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_ends_with_the_right_code_and_a_clear_line(name: str, graded: dict[str, Graded]):
    case, outcome = CASES[name], graded[name].outcome
    first = outcome.report and outcome.report.first(outcome.report.verdict)
    line = f"{outcome.problem} {outcome.todo} {first and (first.check, first.cause, first.hint)}"
    assert outcome.code is case.code, f"{line}\n{outcome.output}"
    for part in case.says:
        assert part in line
    assert (outcome.report is None) == (case.code is Exit.COULD_NOT)
    if outcome.report is None:
        assert outcome.todo
        assert "\n" not in outcome.problem


def test_stopped_runs_end_soon_after_their_limit(graded: dict[str, Graded]):
    stopped = [name for name, case in CASES.items() if case.seconds == SHORT]
    assert stopped
    # Beside the limit: loading JAX on a busy machine, and ending the processes.
    assert {name: graded[name].seconds for name in stopped if graded[name].seconds > 30} == {}


def test_no_process_is_left(graded: dict[str, Graded]):
    root = str(graded["right"].folder.parent)
    left = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get("COURSE_TEST") == root:
                left.append(process.cmdline())
    pids = (graded["leaves daemons"].folder / "pids").read_text().split()
    assert left == []
    assert len(pids) == 2
    assert not any(psutil.pid_exists(int(pid)) and _running(int(pid)) for pid in pids)


@pytest.mark.skipif(sys.platform != "linux", reason="orphans can be adopted only on Linux")
def test_a_process_that_escapes_at_once_is_ended(graded: dict[str, Graded]):
    pid = int((graded["escapes at once"].folder / "escaped").read_text())
    assert not _running(pid)


def test_the_job_is_gone_before_the_file_runs(graded: dict[str, Graded]):
    output = graded["writes to the channel's file"].outcome.output
    assert "the job lies there" not in output
    assert " lines there" in output


def _running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_what_is_printed_is_kept_in_part(graded: dict[str, Graded]):
    output = graded["50 MB of output"].outcome.output
    assert len(output) < 200_000
    assert "bytes left out" in output
    assert output.startswith("x")
    assert "PASS double" in graded["prints a fake verdict"].outcome.output


def test_magics_and_shell_commands_run(graded: dict[str, Graded]):
    output = graded["magics"].outcome.output
    assert "shell\n" in output
    assert "Wall time" in output


def test_the_report_names_the_file_that_was_graded(graded: dict[str, Graded]):
    report = graded["right"].outcome.report
    assert report is not None
    assert report.subject == "lab.ipynb"
    assert report.versions["jax"]


def test_a_stopped_grade_lists_the_checks_that_were_not_reached(graded: dict[str, Graded]):
    report = graded["function fills memory"].outcome.report
    assert report is not None
    assert [finding.check for finding in report.findings] == ["runs", "error", "launches"]
    assert report.versions["jax"]
