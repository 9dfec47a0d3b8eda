"""A report as a card for notebooks: one self-contained piece of HTML, no script, no outside file.

Colours come from the page around it (`currentColor`), so that the card reads well on light and dark
pages; every verdict is also a word, so that it reads without colour. Everything that came from
outside is escaped.
"""

from html import escape

from course_utils.findings import Comparison, Finding, Report, Verdict
from course_utils.quantities import quantity
from course_utils.report.links import address
from course_utils.report.scale import bars
from course_utils.report.text import footer, headline, requirement, split

_TONES = {
    Verdict.PASS: "#1a8754",
    Verdict.FAIL: "#d2401f",
    Verdict.INCONCLUSIVE: "#a76b00",
    Verdict.NOT_CHECKED: "#6b6b6b",
}
_BAR_TONES = {"broken": "#d2401f", "yours": "#3277b8", "solution": "#1a8754"}
_RULE = "border-top:1px solid rgba(128,128,128,.35)"


def card(report: Report) -> str:
    """Return the report as HTML."""
    tone = _TONES[report.verdict]
    shown, skipped = split(report)
    urgent = [each for each in shown if each.verdict is not Verdict.PASS]
    body = "".join(map(_finding, urgent))
    body += "".join(_skipped(cause, checks) for cause, checks in skipped.items())
    body += "".join(_finding(each) for each in shown if each.verdict is Verdict.PASS)
    figures = "".join(map(_comparison, report.comparisons))
    return (
        f'<div class="course-card" role="group" aria-label="Verdict: {report.verdict}" '
        f'style="border:1px solid rgba(128,128,128,.5);border-left:.4em solid {tone};'
        "border-radius:.3em;padding:.6em .9em;max-width:56em;font-family:system-ui,sans-serif;"
        'font-size:.95em;line-height:1.45;color:inherit;background:transparent">'
        f'<div style="font-weight:600;font-size:1.05em">{_code(headline(report))}</div>'
        f"{figures}{body}"
        f'<div style="{_RULE};margin-top:.6em;padding-top:.4em;font-size:.8em;opacity:.8">'
        f"{escape(footer(report))}</div></div>"
    )


def _badge(verdict: Verdict) -> str:
    return (
        '<span style="display:inline-block;min-width:5.6em;padding:0 .5em;border-radius:.25em;'
        f"background:{_TONES[verdict]};color:#fff;font-size:.8em;font-weight:600;text-align:center"
        f'">{escape(str(verdict))}</span>'
    )


def _skipped(cause: str, checks: list[str]) -> str:
    return (
        f'<div style="{_RULE};margin-top:.5em;padding-top:.4em">{_badge(Verdict.NOT_CHECKED)} '
        f"<b>{escape(', '.join(checks))}</b>. {_code(cause)}</div>"
    )


def _finding(finding: Finding) -> str:
    measured = requirement(finding)
    badge = _badge(finding.verdict)
    quiet = finding.verdict is Verdict.PASS and measured
    space = "margin-top:.25em" if quiet else f"{_RULE};margin-top:.5em;padding-top:.4em"
    parts = [f'<div style="{space}">{badge} <b>{escape(finding.check)}</b> {escape(measured)}']
    indent = "margin:.15em 0 0 .2em;overflow-wrap:anywhere"
    if finding.cause and not quiet:
        parts.append(f'<div style="{indent}">{_code(finding.cause)}</div>')
    if finding.detail:
        lines = escape("\n".join(finding.detail))
        parts.append(
            '<pre style="margin:.3em 0 0 .2em;padding:.3em .5em;white-space:pre-wrap;color:inherit;'
            f'background:rgba(128,128,128,.12);font-size:.85em">{lines}</pre>'
        )
    if finding.hint:
        parts.append(f'<div style="{indent}"><b>What to do:</b> {_code(finding.hint)}</div>')
    if finding.link and finding.verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE):
        parts.append(
            f'<div style="{indent}">Read: <a href="{escape(address(finding.link), quote=True)}" '
            f'style="color:inherit;text-decoration:underline">{escape(finding.link)}</a></div>'
        )
    return "".join(parts) + "</div>"


def _comparison(comparison: Comparison) -> str:
    rows = "".join(
        '<div style="display:flex;align-items:center;gap:.5em">'
        f'<span style="flex:0 0 5em;text-align:right">{escape(name)}</span>'
        '<span style="flex:1 1 auto;min-width:0">'
        f'<span style="display:block;height:.8em;border-radius:.15em;width:{100 * share:.1f}%;'
        f'min-width:2px;background:{_BAR_TONES.get(name, "#6b6b6b")}"></span></span>'
        f'<span style="flex:0 0 5.5em">{escape(quantity(value, comparison.unit))}</span></div>'
        for name, value, share in bars(comparison)
    )
    label = ", ".join(
        f"{name} {quantity(value, comparison.unit)}" for name, value in comparison.values.items()
    )
    return (
        f'<div role="img" aria-label="{escape(comparison.quantity)}: {escape(label)}" '
        'style="margin:.5em 0 .2em">'
        f'<div style="font-size:.85em;opacity:.85">{escape(comparison.quantity)} '
        f"(logarithmic scale)</div>{rows}</div>"
    )


def _code(text: str) -> str:
    """Escape a sentence and show what stands in backquotes as code."""
    parts = escape(text).split("`")
    if len(parts) % 2 == 0:  # an unpaired backquote: leave them all alone
        return escape(text)
    return "".join(
        f'<code style="color:inherit;background:rgba(128,128,128,.15);padding:0 .2em">{part}</code>'
        if odd % 2
        else part
        for odd, part in enumerate(parts)
    )
