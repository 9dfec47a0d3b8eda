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


def table(lab: str, reports: Mapping[str, Report]) -> str:
    """Return the submissions of a lab with what the grader said of them, in Markdown.

    Args:
        lab: the lab's name.
        reports: by the submission's name.
    """
    rows = []
    for each in of(lab):
        report = reports[each.name]
        right = (report.verdict, deciding(report)) == (each.verdict, each.decided_by)
        rows.append(
            f"| {each.name} | {each.verdict} | {report.verdict} | {deciding(report) or '—'} "
            f"| {'yes' if right else 'NO'} |"
        )
    return "\n".join(
        [
            f"## {lab}",
            "",
            "| submission | should | verdict | decided by | right |",
            "| --- | --- | --- | --- | --- |",
            *rows,
            "",
        ]
    )
