"""Grades every recorded submission and writes the table, or repeats a lab's timed ones under load.

Without a lab: each submission of each lab once, one after the other; writes book/submissions.md.
With --only: that lab's alone; the other labs' tables stay as they are.
With a lab: the broken starter, the solution and the nearest miss by time, many times with busy
processes beside them; prints what the grader said, how far each measured value spreads, and exits 1
if the grader was ever wrong, or undecided too often.
"""

import argparse
import collections
import contextlib
import multiprocessing
import re
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from course_utils import Report, grade, labs  # noqa: E402
from course_utils.quantities import quantity  # noqa: E402
from tests.submissions import Submission, deciding, of, recorded, table  # noqa: E402

PAGE = ROOT / "book" / "submissions.md"
MAY_BE_UNDECIDED = 0.05

INTRO = """\
# What the grader says of known submissions

Every lab has submissions whose verdict is known: right ones in other idioms, and wrong ones that
look right. Each states the check that must decide it; it counts as right only if that check did.
This page is made by `make matrix`; the test suite grades them all again and compares.
"""


def _spin(_: int) -> None:
    parent = multiprocessing.parent_process()
    while parent is not None and parent.is_alive():  # nobody is left behind when it is killed
        for _ in range(1_000_000):
            pass


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep that many processes busy while the block runs."""
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_spin, args=(i,), daemon=True) for i in range(processes)]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.kill()
            worker.join()


def write_table(only: str | None = None) -> int:
    """Grade everything, or one lab, once and write the page; return how many verdicts are wrong."""
    parts, wrong, stored = [INTRO], 0, _stored_tables()
    for lab in labs.NAMES:
        if only not in (None, lab):
            parts += [stored[lab]] if lab in stored else []
            continue
        reports = {}
        for each in of(lab):
            started = time.perf_counter()
            reports[each.name] = report = recorded(lab, each.name)
            wrong += not _is_right(each, report)
            print(
                f"{lab}: {each.name}: {report.verdict} ({deciding(report) or 'all pass'}), "
                f"{time.perf_counter() - started:.1f} s",
                flush=True,
            )
        parts.append(table(lab, reports))
    PAGE.write_text("\n".join(parts), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}; {wrong} wrong")
    return wrong


def _stored_tables() -> dict[str, str]:
    """Return the page's tables as they are, by lab."""
    sections = re.split(r"^(?=## )", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {each.split("\n", 1)[0].removeprefix("## "): each.rstrip() + "\n" for each in sections}


def _is_right(submission: Submission, report: Report) -> bool:
    return (report.verdict, deciding(report)) == (submission.verdict, submission.decided_by)


def repeat(lab: str, times: int, processes: int) -> int:
    """Grade a lab's starter, solution and timed misses under load; return 1 if the grader erred."""
    ends = [each for each in of(lab) if each.name in ("the starter", "the solution")]
    misses = [each for each in of(lab) if each.timed_miss]
    if not misses:
        print(f"{lab} has no submission that only time decides; repeating the two ends alone")
    failed = 0
    with busy(processes):
        for each in (*ends, *misses):
            reports = [grade(lab, seed=seed, **each.functions) for seed in range(times)]
            verdicts = collections.Counter(str(report.verdict) for report in reports)
            wrong = sum(n for verdict, n in verdicts.items() if verdict not in _allowed(each))
            undecided = verdicts["inconclusive"] / times
            failed |= wrong > 0 or undecided >= MAY_BE_UNDECIDED
            print(
                f"{lab}: {each.name}: {dict(verdicts)} of {times} with {processes} busy processes; "
                f"median {statistics.median(r.seconds for r in reports):.1f} s a grade",
                flush=True,
            )
            _print_spread(reports)
    return int(failed)


def _allowed(submission: Submission) -> tuple[str, str]:
    return submission.verdict, "inconclusive"


def _print_spread(reports: list[Report]) -> None:
    for finding in reports[0].findings:
        values = [
            value
            for report in reports
            for each in report.findings
            if each.check == finding.check and (value := each.measured) is not None
        ]
        if values:
            low, high = (quantity(value, finding.unit) for value in (min(values), max(values)))
            measured = low if low == high else f"{low} to {high}"
            limit = "" if finding.required is None else quantity(finding.required, finding.unit)
            print(f"    {finding.check}: {measured} ({finding.relation} {limit})")


def main() -> int:
    parser = argparse.ArgumentParser(description="Grade the recorded submissions.")
    parser.add_argument("--lab", choices=labs.NAMES, help="repeat this lab's timed submissions")
    parser.add_argument("--times", type=int, default=20, help="repetitions (default 20)")
    parser.add_argument("--busy", type=int, default=4, help="busy processes beside (default 4)")
    parser.add_argument("--only", choices=labs.NAMES, help="write this lab's table alone")
    options = parser.parse_args()
    if options.lab is None:
        return int(write_table(options.only) > 0)
    return repeat(options.lab, options.times, options.busy)


if __name__ == "__main__":
    sys.exit(main())
