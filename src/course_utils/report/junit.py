"""Reports as JUnit XML, which CI systems and course platforms read.

One test suite per file, one test case per finding. A fail is a failure, an inconclusive finding or
a file that could not be graded is an error, and what was not checked is skipped.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from course_utils.findings import Finding, Report, Verdict
from course_utils.report.text import requirement

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, not even escaped."""


@dataclass(frozen=True)
class Suite:
    """One graded file.

    Attributes:
        name: the file.
        report: its report; None when it could not be graded.
        problem: then, why, and what to do.
        seconds: how long grading it took, in seconds.
    """

    name: str
    report: Report | None
    problem: str = ""
    seconds: float = 0.0


def junit(suites: Iterable[Suite]) -> str:
    """Return one JUnit document about several files. It is valid XML whatever the texts hold."""
    root = ET.Element("testsuites", name="course grade")
    for suite in suites:
        root.append(_suite(suite))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(suite: Suite) -> ET.Element:
    report = suite.report
    element = ET.Element("testsuite", name=_clean(suite.name), time=f"{suite.seconds:.3f}")
    if report is None:
        case = ET.SubElement(element, "testcase", name="can be graded", classname="course")
        _add(case, "error", "could not be graded", suite.problem, "")
    else:
        properties = ET.SubElement(element, "properties")
        facts = {"lab": report.lab, "seed": str(report.seed), "device": report.device}
        for name, value in {**facts, **report.versions}.items():
            ET.SubElement(properties, "property", name=_clean(name), value=_clean(value))
        for finding in report.findings:
            element.append(_case(report.lab, finding))
    cases = element.findall("testcase")
    element.set("tests", str(len(cases)))
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        element.set(attribute, str(sum(case.find(tag) is not None for case in cases)))
    return element


_TAGS = {
    Verdict.FAIL: "failure",
    Verdict.INCONCLUSIVE: "error",
    Verdict.NOT_CHECKED: "skipped",
}


def _case(lab: str, finding: Finding) -> ET.Element:
    case = ET.Element("testcase", name=_clean(finding.check), classname=_clean(lab))
    measured = requirement(finding)
    if finding.verdict is Verdict.PASS:
        ET.SubElement(case, "system-out").text = _clean(measured or finding.cause)
        return case
    text = "\n".join(
        each
        for each in (
            measured,
            finding.cause,
            *finding.detail,
            f"What to do: {finding.hint}" if finding.hint else "",
            f"See {finding.link}" if finding.link else "",
        )
        if each
    )
    _add(case, _TAGS[finding.verdict], str(finding.verdict), finding.cause or measured, text)
    return case


def _add(case: ET.Element, tag: str, kind: str, message: str, text: str) -> None:
    element = ET.SubElement(case, tag, message=_clean(message))
    if tag != "skipped":
        element.set("type", kind)
    element.text = _clean(text) or None


def _clean(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
