"""Runs what `make test` and CI run: a list of stages, in order, until one fails.

Knows the commands and how long each took. Knows nothing of what they check. Needs only the
standard library and an environment made by `tools/venv.sh`.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NO_TESTS_COLLECTED = 5  # pytest's exit code
NOT_RUN = 77  # as automake's tests say it: this machine lacks what the stage needs
CELL_TIMEOUT_SECONDS = 300
#: What an exit code is called; every other one is a failure.
RESULTS = {0: "passed", NOT_RUN: "NOT RUN, in part or whole: see above"}


@dataclass(frozen=True)
class Stage:
    """One named step of the run; `run` returns an exit code."""

    name: str
    title: str
    run: Callable[[], int]


@dataclass(frozen=True)
class Outcome:
    """What one stage came to."""

    name: str
    seconds: float
    code: int


def _call(*command: str | Path) -> int:
    """Run a command in the repository root with its output shown."""
    sys.stdout.flush()
    env = (
        os.environ
        | _SCRATCH
        | {
            # Without this pyright asks the network whether a newer version exists.
            "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1",
            # A kernel registered for the user must not stand in for the one of this environment.
            "JUPYTER_PREFER_ENV_PATH": "1",
        }
    )
    return subprocess.run(
        [str(part) for part in command], cwd=ROOT, env=env, check=False
    ).returncode


_scratch_folder = tempfile.TemporaryDirectory(prefix="course-")
_SCRATCH = {
    # Verdicts of tests are not the author's own, and X-rays start from an empty cache.
    "COURSE_STATE": str(Path(_scratch_folder.name, "state")),
    "COURSE_XRAY_CACHE": str(Path(_scratch_folder.name, "xray")),
}


def _python(*arguments: str | Path) -> int:
    return _call(sys.executable, *arguments)


def lint() -> int:
    """Lint and format of the package, the tests, the tools and the notebooks."""
    return _python("-m", "ruff", "check", ".") or _python("-m", "ruff", "format", "--check", ".")


def types() -> int:
    """Static types."""
    return _python("-m", "pyright")


def xray() -> int:
    """The X-ray's toolchain is there: installed if it is missing and this machine can have it."""
    from course_utils.instruments.xray import toolchain  # noqa: PLC0415  (loads JAX)

    if reason := toolchain.not_possible():
        print(f"{reason} The tests that need it say so and are left out.")
        return 0
    return _python("-m", "course_utils.cli", "xray", "--install")


def tests() -> int:
    """Every test that measures no wall-clock time, on two workers."""
    marks = "not timed and not colab and not book and not browser"
    return _python("-m", "pytest", "-m", marks, "-n", "2", "--dist", "loadgroup")


def timed() -> int:
    """The tests that measure wall-clock time, alone and one after the other."""
    code = _python("-m", "pytest", "-m", "timed and not browser", "-n", "0")
    if code == NO_TESTS_COLLECTED:
        print("No test carries the mark 'timed': nothing was timed in this stage.")
        return 0
    return code


def _nbval(flag: str, *folders: str) -> int:
    notebooks = [path for folder in folders for path in sorted((ROOT / folder).glob("*.ipynb"))]
    if not notebooks:
        print(f"No notebook in {' or '.join(folders)}: this stage would prove nothing.")
        return 1
    return _python(
        *("-m", "pytest", flag, "--nbval-current-env"),
        *("--nbval-cell-timeout", str(CELL_TIMEOUT_SECONDS)),
        *("--nbval-sanitize-with", "tools/nbval_sanitize.cfg"),
        # nbval's own use of the kernel client warns; what a cell warns is in its outputs.
        *("-o", "filterwarnings=default"),
        *("-n", "2", "--dist", "loadfile"),
        *(path.relative_to(ROOT) for path in notebooks),
    )


def chapters() -> int:
    """Chapters run again: their outputs equal the stored ones."""
    return _nbval("--nbval", "book/chapters")


def labs() -> int:
    """Labs and solutions run again: no cell raises, no assert fails."""
    return _nbval("--nbval-lax", "labs", "labs/solutions")


def book() -> int:
    """The HTML book, from nothing, with every warning an error."""
    shutil.rmtree(ROOT / "_build", ignore_errors=True)
    program = Path(sys.executable).with_name("jupyter-book")
    return _call(sys.executable, program, "build", ".", "-q", "-W", "-n", "--keep-going")


def browser() -> int:
    """The links of the built book; then, where a browser can be had, its pages and JupyterLab."""
    pytest = ("-m", "pytest", "tests/browser")
    if code := _python(*pytest, "-m", "book", "-n", "0"):
        return code
    if _python("tools/browser.py") != 0:
        return NOT_RUN
    quick = (*pytest, "-m", "browser and not timed", "-n", "2", "--dist", "loadgroup")
    return _python(*quick) or _python(*pytest, "-m", "browser and timed", "-n", "0")


def colab() -> int:
    """The set-up cell and a lab, in an environment like Colab's."""
    if _python("tools/colab.py") != 0:
        return NOT_RUN
    return _python("-m", "pytest", "-m", "colab", "-n", "0", "tests/test_colab.py")


STAGES = (
    Stage("lint", "lint and format", lint),
    Stage("types", "static types", types),
    Stage("xray", "the X-ray's toolchain", xray),
    Stage("tests", "tests", tests),
    Stage("timed", "timed tests, serial", timed),
    Stage("chapters", "chapters against their stored outputs", chapters),
    Stage("labs", "labs and solutions run top to bottom", labs),
    Stage("colab", "a published lab on a machine like Colab", colab),
    Stage("book", "the book builds without a warning", book),
    Stage("browser", "the book and JupyterLab in a browser", browser),
)


def run(stages: Sequence[Stage]) -> list[Outcome]:
    """Run stages in order and stop after the first that fails; one that cannot run does not fail.

    Args:
        stages: what to run.

    Returns:
        One outcome for each stage that was started.
    """
    outcomes: list[Outcome] = []
    for stage in stages:
        print(f"\n=== {stage.name}: {stage.title} ===", flush=True)
        start = time.monotonic()
        code = stage.run()
        outcomes.append(Outcome(stage.name, time.monotonic() - start, code))
        word = RESULTS.get(code, f"FAILED (exit code {code})")
        print(f"=== {stage.name} {word} in {outcomes[-1].seconds:.1f} s ===", flush=True)
        if code not in RESULTS:
            break
    return outcomes


def table(stages: Sequence[Stage], outcomes: Sequence[Outcome]) -> str:
    """One line for each stage: its result and seconds, or that it was not reached."""
    done = {outcome.name: outcome for outcome in outcomes}
    lines = ["", f"{'stage':<10} {'seconds':>8}  result"]
    for stage in stages:
        outcome = done.get(stage.name)
        if outcome is None:
            lines.append(f"{stage.name:<10} {'':>8}  not run")
        else:
            result = RESULTS.get(outcome.code, "FAILED")
            lines.append(f"{stage.name:<10} {outcome.seconds:>8.1f}  {result}")
    lines.append(f"{'total':<10} {sum(outcome.seconds for outcome in outcomes):>8.1f}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the named stages, or all of them."""
    names = [stage.name for stage in STAGES]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stages", nargs="*", metavar="stage", help=f"of: {', '.join(names)}")
    chosen = parser.parse_args(arguments).stages
    unknown = sorted(set(chosen) - set(names))
    if unknown:
        parser.error(f"unknown stage {', '.join(unknown)}; the stages are {', '.join(names)}")
    stages = [stage for stage in STAGES if not chosen or stage.name in chosen]
    outcomes = run(stages)
    print(table(stages, outcomes), flush=True)
    return next((1 for outcome in outcomes if outcome.code not in RESULTS), 0)


if __name__ == "__main__":
    sys.exit(main())
