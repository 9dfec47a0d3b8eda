"""A report as plain text of at most 100 columns."""

import re
import textwrap

from course_utils.findings import Comparison, Finding, Report, Verdict
from course_utils.quantities import quantity
from course_utils.report.links import address
from course_utils.report.scale import bars

WIDTH = 100
_MARKS = {
    Verdict.PASS: "ok  ",
    Verdict.FAIL: "FAIL",
    Verdict.INCONCLUSIVE: "?   ",
    Verdict.NOT_CHECKED: "-   ",
}
_BAR = 40
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
"""What could move the cursor or colour the terminal; a card has none of its own."""


def headline(report: Report) -> str:
    """Return the one line that says it: the verdict and, unless it passed, the first reason."""
    verdict = str(report.verdict).upper()
    first = report.first(report.verdict) if not report.passed else None
    reason = f": {first.cause}" if first is not None else _gain(report) if report.passed else ""
    return f"{verdict} {report.lab}{reason}"


def _gain(report: Report) -> str:
    """Return what a passing submission has won over the broken code, as the figure shows it."""
    parts = [
        f"{each.quantity}: {quantity(each.values['yours'], each.unit)} instead of "
        f"{quantity(each.values['broken'], each.unit)}"
        for each in report.comparisons
        if {"yours", "broken"} <= each.values.keys()
    ]
    return f": {'; '.join(parts)}." if parts else ""


def split(report: Report) -> tuple[list[Finding], dict[str, list[str]]]:
    """Return the findings to show one by one, and the names of those not checked, by reason.

    One failure often leaves several checks undone for the same reason, which is said once.
    """
    shown, skipped = [], {}
    for finding in report.findings:
        if finding.verdict is Verdict.NOT_CHECKED and finding.measured is None:
            skipped.setdefault(finding.cause, []).append(finding.check)
        else:
            shown.append(finding)
    return shown, skipped


def requirement(finding: Finding) -> str:
    """Return what was measured against what is required, e.g. `687 (at most 10) launches`."""
    if finding.measured is None or finding.required is None:
        return ""
    spread = ""
    if finding.spread is not None and finding.spread[0] != finding.spread[1]:
        low, high = (quantity(each, "") for each in finding.spread)
        spread = f", rounds {low} to {high}"
    measured = quantity(finding.measured, finding.unit)
    required = quantity(finding.required, finding.unit if finding.unit in _SCALED else "")
    return f"{measured} ({finding.relation} {required}{spread})"


_SCALED = {"s", "bytes"}
"""Units whose scale is chosen for each number, so that both numbers need their own."""


def card(report: Report) -> str:
    """Return the whole report as text."""
    lines = [*_wrap(headline(report), "", "     "), ""]
    shown, skipped = split(report)
    for finding in shown:
        lines += _finding(finding)
    for cause, checks in skipped.items():
        lines += _wrap(f"{', '.join(checks)}. {cause}", _MARKS[Verdict.NOT_CHECKED] + " ", "     ")
    for comparison in report.comparisons:
        lines += ["", *_comparison(comparison)]
    lines += ["", *_wrap(footer(report), "", "")]
    return "\n".join(_CONTROL.sub("�", line).rstrip() for line in lines)


def footer(report: Report) -> str:
    """Return where and how the report was made, and how to make it again."""
    parts = (
        report.subject,
        f"seed {report.seed}",
        report.device,
        ", ".join(f"{name} {version}" for name, version in report.versions.items()),
        f"graded in {quantity(report.seconds, 's')}" if report.seconds else "",
    )
    return "; ".join(part for part in parts if part)


def _finding(finding: Finding) -> list[str]:
    measured = requirement(finding)
    title = finding.check + (f": {measured}" if measured else "")
    lines = _wrap(title, f"{_MARKS[finding.verdict]} ", "     ")
    if finding.verdict is Verdict.PASS and measured:
        return lines
    lines += _wrap(finding.cause, "       ", "       ") if finding.cause else []
    lines += [f"         {each}"[:WIDTH] for each in finding.detail]
    lines += _wrap(f"→ {finding.hint}", "       ", "         ") if finding.hint else []
    if finding.link and finding.verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE):
        lines += [f"         see {address(finding.link)}"]
    return lines


def _comparison(comparison: Comparison) -> list[str]:
    lines = [f"{comparison.quantity} (logarithmic scale)"]
    names = max(map(len, comparison.values))
    for name, value, share in bars(comparison):
        bar = "█" * max(1, round(share * _BAR))
        lines.append(f"  {name:<{names}}  {bar} {quantity(value, comparison.unit)}")
    return lines


def _wrap(text: str, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
    )
