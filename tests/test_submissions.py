"""The grader's verdict on every recorded submission, and the check that decides it.

What fails before the clock starts is graded on two workers, each lab's on one; what is timed is
graded alone.
"""

import re
from pathlib import Path

import pytest

from course_utils import labs
from tests.submissions import Submission, deciding, of, recorded, row

PAGE = (Path(__file__).parent.parent / "book" / "submissions.md").read_text(encoding="utf-8")
ALL = [
    pytest.param(
        each,
        id=str(each),
        marks=pytest.mark.timed if each.is_timed else pytest.mark.xdist_group(each.lab),
    )
    for name in labs.NAMES
    for each in of(name)
]


@pytest.mark.parametrize("submission", ALL)
def test_verdict_and_the_check_that_decides_it(submission: Submission):
    report = recorded(submission.lab, submission.name)
    assert (report.verdict, deciding(report)) == (submission.verdict, submission.decided_by), str(
        report
    )
    assert row(submission, report) in _section(submission.lab), (
        "the page is out of date: run `make matrix`"
    )


@pytest.mark.parametrize("lab", labs.NAMES)
def test_each_lab_has_enough_right_and_wrong_submissions(lab: str):
    submissions = of(lab)
    right = [each for each in submissions if each.verdict == "pass"]
    wrong = [each for each in submissions if each.verdict == "fail"]
    assert len(right) >= 4, "the solution and three other idioms"
    assert len(wrong) >= 5, "the starter and four mistakes of this lab"
    assert len({each.name for each in submissions}) == len(submissions)


@pytest.mark.parametrize("lab", labs.NAMES)
def test_the_book_lists_these_submissions_and_no_others(lab: str):
    shown = re.findall(r"^\| (.+?) \| (?:pass|fail) \|", _section(lab), flags=re.MULTILINE)
    assert shown == [each.name for each in of(lab)], "the page is out of date: run `make matrix`"


def _section(lab: str) -> str:
    """Return the book's table of a lab's submissions."""
    (found,) = re.findall(rf"^## {lab}\n(.*?)(?=^## |\Z)", PAGE, flags=re.DOTALL | re.MULTILINE)
    return found
