"""Measures what the course costs its users: imports, grades, the book's build.

Every figure is of a fresh process. Run it on a quiet machine; it decides nothing.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_IMPORT = """
import time
start = time.perf_counter()
import jax, equinox
between = time.perf_counter()
import course_utils
from course_utils import grade
print(between - start, time.perf_counter() - between)
"""

_GRADE = """
import time
start = time.perf_counter()
from course_utils import grade, labs
lab = labs.get({lab!r})
lines = []
report = grade({lab!r}, progress=lambda line: lines.append(time.perf_counter() - start),
               **lab.{which})
print(lines[1], time.perf_counter() - start, report.seconds, report.verdict)
"""


def _run(code: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return done.stdout.split()


def imports(times: int = 5) -> None:
    """Print what importing the grader adds to importing JAX and Equinox."""
    runs = [tuple(map(float, _run(_IMPORT))) for _ in range(times)]
    base, added = min(run[0] for run in runs), min(run[1] for run in runs)
    print(f"import jax, equinox: {base:.2f} s; the grader on top: {added:.2f} s (best of {times})")


def grades(names: list[str]) -> None:
    """Print what one cold grade of each lab costs."""
    print(f"{'lab':<24} {'submission':<10} {'first':>7} {'all':>7} {'grade':>7}  verdict")
    for name in names:
        for which in ("broken", "solution"):
            first, whole, grade, verdict = _run(_GRADE.format(lab=name, which=which))
            print(
                f"{name:<24} {which:<10} {float(first):6.1f}s {float(whole):6.1f}s "
                f"{float(grade):6.1f}s  {verdict}"
            )


def book() -> None:
    """Print what building the book from stored outputs costs."""
    start = time.perf_counter()
    subprocess.run(["make", "book"], cwd=ROOT, check=True, capture_output=True)
    print(f"make book with an existing .venv: {time.perf_counter() - start:.1f} s")


def main() -> None:
    """Measure everything, or the labs that were named."""
    from course_utils import labs  # noqa: PLC0415

    parser = argparse.ArgumentParser(description="Measure what the course costs its users.")
    parser.add_argument("labs", nargs="*", choices=[*labs.NAMES, []], help="labs to grade")
    options = parser.parse_args()
    imports()
    grades(options.labs or list(labs.NAMES))
    if not options.labs:
        book()


if __name__ == "__main__":
    main()
