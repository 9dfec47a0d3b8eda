"""A report survives JSON and JUnit whatever its texts and numbers hold."""

import json
import math
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from course_utils.findings import Comparison, Finding, Report, Verdict
from course_utils.report.junit import Suite, junit

TEXT = st.text(max_size=20) | st.sampled_from(["\ud800", "\x1b[2J", "]]>", "&<>\"'", "\0", "\r\n"])
NUMBERS = st.floats() | st.integers(-(2**60), 2**60)
FINDINGS = st.builds(
    Finding,
    check=TEXT,
    verdict=st.sampled_from(Verdict),
    measured=st.none() | NUMBERS,
    required=st.none() | NUMBERS,
    relation=st.sampled_from(["at most", "at least"]),
    unit=TEXT,
    cause=TEXT,
    hint=TEXT,
    link=TEXT,
    spread=st.none() | st.tuples(NUMBERS, NUMBERS),
    detail=st.lists(TEXT, max_size=3).map(tuple),
)
COMPARISONS = st.builds(Comparison, TEXT, TEXT, st.dictionaries(TEXT, NUMBERS, max_size=3))
REPORTS = st.builds(
    Report,
    lab=TEXT,
    findings=st.lists(FINDINGS, max_size=3).map(tuple),
    comparisons=st.lists(COMPARISONS, max_size=2).map(tuple),
    seed=st.integers(0, 2**64),
    versions=st.dictionaries(TEXT, TEXT, max_size=3),
    device=TEXT,
    seconds=st.floats(0, 1e9),
    subject=TEXT,
)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)
ONE = Report("lab", (Finding("runs", Verdict.PASS, 1, 2, spread=(1, 2)),), versions={"jax": "1"})


def _has_nan(report: Report) -> bool:
    numbers: list[Any] = [value for each in report.comparisons for value in each.values.values()]
    for finding in report.findings:
        numbers += [finding.measured, finding.required, *(finding.spread or ())]
    return any(isinstance(value, float) and math.isnan(value) for value in numbers)


@given(REPORTS)
def test_round_trip(report: Report):
    text = report.to_json()
    text.encode("utf-8")
    again = Report.from_json(text)
    assert again.to_json() == text
    if not _has_nan(report):  # what is not a number does not equal itself
        assert again == report


@given(REPORTS)
def test_json_is_strict(report: Report):
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    json.loads(report.to_json(), parse_constant=refuse)


def test_what_is_no_number_comes_back():
    findings = tuple(
        Finding(str(value), Verdict.FAIL, value) for value in (math.nan, math.inf, -math.inf)
    )
    again = Report.from_json(Report("lab", findings).to_json()).findings
    assert [str(each.measured) for each in again] == ["nan", "inf", "-inf"]


def test_numpy_numbers_are_numbers():
    finding = Finding("error", Verdict.PASS, np.float32(0.5), np.int64(2))  # pyright: ignore[reportArgumentType]
    again = Report.from_json(Report("lab", (finding,)).to_json()).findings[0]
    assert (again.measured, again.required) == (0.5, 2)


def test_the_order_of_a_comparison_is_kept():
    values = {"broken": 3.0, "yours": 2.0, "solution": 1.0}
    report = Report("lab", ONE.findings, (Comparison("launches", "", values),))
    assert list(Report.from_json(report.to_json()).comparisons[0].values) == list(values)


@given(JSON)
def test_any_other_json_is_refused(plain: Any):
    with pytest.raises(ValueError, match="not a report"):
        Report.from_json(json.dumps(plain))


@given(st.text())
@example("[" * 100_000)
@example("1" * 5000)
def test_any_other_text_is_refused(text: str):
    with pytest.raises(ValueError, match="not a report"):
        Report.from_json(text)


@given(st.sampled_from(sorted(ONE.to_dict())), JSON)
def test_a_report_with_one_field_changed_is_read_or_refused(name: str, value: Any):
    plain = ONE.to_dict() | {name: value}
    _read_or_refused(plain)


@given(st.sampled_from(sorted(ONE.to_dict()["findings"][0])), JSON)
def test_a_finding_with_one_field_changed_is_read_or_refused(name: str, value: Any):
    plain = ONE.to_dict()
    plain["findings"][0][name] = value
    _read_or_refused(plain)


def _read_or_refused(plain: dict[str, Any]) -> None:
    try:
        report = Report.from_dict(plain)
    except ValueError as error:
        refusal = str(error)
    else:
        assert Report.from_json(report.to_json()).to_dict() == report.to_dict()
        assert str(report)
        assert report._repr_html_()
        return
    assert refusal.startswith("not a report")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 99}, "schema 1: got 99"),
        ({"verdict": "fail"}, "not what its findings come to"),
        ({"seed": "7"}, "'seed' must hold a int"),
        ({"seconds": True}, "'seconds' must hold a number"),
        ({"findings": {}}, "'findings' must hold a list"),
    ],
)
def test_a_refusal_says_what_is_wrong(change: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        Report.from_dict(ONE.to_dict() | change)
    lacking = ONE.to_dict()
    del lacking["device"]
    with pytest.raises(ValueError, match="lacks 'device'"):
        Report.from_dict(lacking)


@given(st.lists(st.tuples(TEXT, REPORTS | st.none(), TEXT), max_size=3))
def test_junit_is_xml_whatever_the_texts_hold(files: list[tuple[str, Report | None, str]]):
    root = ET.fromstring(
        junit(Suite(name, report, problem) for name, report, problem in files).encode("utf-8")
    )
    suites = root.findall("testsuite")
    assert len(suites) == len(files)
    for suite, (_, report, _) in zip(suites, files, strict=True):
        cases = suite.findall("testcase")
        assert len(cases) == (1 if report is None else len(report.findings))


def test_junit_counts_each_verdict_once():
    findings = tuple(Finding(str(verdict), verdict, cause="Because.") for verdict in Verdict)
    suite = ET.fromstring(junit([Suite("a.ipynb", Report("lab", findings), seconds=2)]))[0]
    counts = {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "4", "failures": "1", "errors": "1", "skipped": "1"}
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert failure.get("message") == "Because."


def test_junit_of_a_file_that_could_not_be_graded():
    suite = ET.fromstring(junit([Suite("a.ipynb", None, "It is empty. Save it again.")]))[0]
    error = suite.find("testcase/error")
    assert error is not None
    assert error.get("message") == "It is empty. Save it again."
    assert suite.get("errors") == "1"
