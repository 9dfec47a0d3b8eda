"""Submissions with known verdicts: for each lab, right ones in other idioms and wrong ones.

A module here is named after its lab and lists its submissions. Each states its verdict and, unless
it passes, the check that must decide it.
"""

import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from course_utils import Report, grade, labs
from course_utils.checks import Stage

SEED = 20
"""Inputs of the recorded grades. Any seed must do; one makes a failure repeatable."""


@dataclass(frozen=True)
class Submission:
    """One submission of one lab.

    Attributes:
        lab: the lab's name.
        name: what it is, in a few words.
        functions: by entry point.
        verdict: what the grader must say.
        decided_by: the first check that does not pass; None when all pass.
        timed_miss: whether this is the lab's nearest miss by time: right in every count, and too
            slow by a factor of two or a little more.
    """

    lab: str
    name: str
    functions: dict[str, Callable[..., Any]]
    verdict: str
    decided_by: str | None = None
    timed_miss: bool = False

    def __str__(self) -> str:
        return f"{self.lab}-{self.name.replace(' ', '-')}"

    @property
    def is_timed(self) -> bool:
        """Whether its grade gets as far as the clock: what fails before is not timed."""
        stages = {check.name: check.stage for check in labs.get(self.lab).checks}
        return self.verdict == "pass" or stages.get(self.decided_by or "") == Stage.TIME


def passes(lab: str, name: str, **functions: Callable[..., Any]) -> Submission:
    return Submission(lab, name, functions, "pass")


def fails(lab: str, name: str, by: str, **functions: Callable[..., Any]) -> Submission:
    return Submission(lab, name, functions, "fail", by)


def too_slow(lab: str, name: str, by: str, **functions: Callable[..., Any]) -> Submission:
    """Return the lab's nearest miss by time."""
    return Submission(lab, name, functions, "fail", by, timed_miss=True)


def packaged(lab: str, *, broken_fails_by: str) -> list[Submission]:
    """Return the lab's own starter and solution as submissions."""
    spec = labs.get(lab)
    return [
        fails(lab, "the starter", broken_fails_by, **spec.broken),
        passes(lab, "the solution", **spec.solution),
    ]


def of(lab: str) -> list[Submission]:
    """Return every submission of a lab."""
    return importlib.import_module(f"tests.submissions.{lab}").SUBMISSIONS


@functools.cache
def recorded(lab: str, name: str) -> Report:
    """Return the report on a submission, graded once in this process."""
    (submission,) = (each for each in of(lab) if each.name == name)
    return grade(lab, seed=SEED, **submission.functions)


def deciding(report: Report) -> str | None:
    """Return the check that decided a report: the first with its verdict, or None if it passed."""
    first = None if report.passed else report.first(report.verdict)
    return first.check if first else None


def row(submission: Submission, report: Report) -> str:
    """Return what the grader said of a submission, as a row of its lab's table in Markdown."""
    right = (report.verdict, deciding(report)) == (submission.verdict, submission.decided_by)
    return (
        f"| {submission.name} | {submission.verdict} | {report.verdict} "
        f"| {deciding(report) or '—'} | {'yes' if right else 'NO'} |"
    )


def table(lab: str, reports: Mapping[str, Report]) -> str:
    """Return the submissions of a lab with what the grader said of them, in Markdown.

    Args:
        lab: the lab's name.
        reports: by the submission's name.
    """
    return "\n".join(
        [
            f"## {lab}",
            "",
            "| submission | should | verdict | decided by | right |",
            "| --- | --- | --- | --- | --- |",
            *(row(each, reports[each.name]) for each in of(lab)),
            "",
        ]
    )
