"""The grader's verdict on every recorded submission, and the check that decides it."""

from pathlib import Path

import pytest

from course_utils import labs
from tests.submissions import Submission, deciding, of, recorded, table

pytestmark = pytest.mark.timed

ROOT = Path(__file__).parent.parent
ALL = [pytest.param(each, id=str(each)) for name in labs.NAMES for each in of(name)]


@pytest.mark.parametrize("submission", ALL)
def test_verdict_and_the_check_that_decides_it(submission: Submission):
    report = recorded(submission.lab, submission.name)
    assert (report.verdict, deciding(report)) == (submission.verdict, submission.decided_by), str(
        report
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
def test_the_book_shows_these_results(lab: str):
    page = (ROOT / "book" / "submissions.md").read_text(encoding="utf-8")
    reports = {each.name: recorded(lab, each.name) for each in of(lab)}
    assert table(lab, reports) in page, "the page is out of date: run `make matrix`"
