"""What a grade says: verdicts, findings and reports, as plain data that outlives the process.

It knows nothing of JAX, labs or how a finding was measured, and nothing of how it is shown.
"""

import enum
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

SCHEMA = 1
"""Version of the JSON form. It rises when a field changes its meaning or goes away."""


class Verdict(enum.StrEnum):
    """What a check, or a whole grade, came to."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    """Too noisy, or out of time: says so and what to do."""
    NOT_CHECKED = "not checked"
    """Could not be looked at, with the reason; never counted."""


@dataclass(frozen=True)
class Link:
    """A heading in the book.

    Attributes:
        page: path of the page from the project's root, without its ending.
        anchor: the heading's anchor on that page; empty for the page itself.
    """

    page: str
    anchor: str = ""

    def __str__(self) -> str:
        return f"{self.page}.html" + (f"#{self.anchor}" if self.anchor else "")


@dataclass(frozen=True)
class Finding:
    """One check's outcome, with its evidence.

    Attributes:
        check: the check's name, unique in a report.
        verdict: what it came to.
        measured: the measured number, in `unit`; None when there is none.
        required: the number it is held against, in `unit`; None when there is none.
        relation: how `measured` must stand to `required`: `"at most"` or `"at least"`.
        unit: the unit of both, for people to read.
        cause: one sentence: what is so.
        hint: one sentence: what to do. Empty when there is nothing to do.
        link: the place in the book, as `page.html#anchor`.
        spread: lowest and highest of the repeated measurements; None for exact counts.
        detail: lines that back the cause up, such as a traceback cut to the learner's lines.
    """

    check: str
    verdict: Verdict
    measured: float | None = None
    required: float | None = None
    relation: str = "at most"
    unit: str = ""
    cause: str = ""
    hint: str = ""
    link: str = ""
    spread: tuple[float, float] | None = None
    detail: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """One quantity on one scale: the broken code's, the learner's and the solution's.

    Attributes:
        quantity: what is compared, e.g. `"launches per crop"`.
        unit: the unit, for people to read; may be empty.
        values: by name, in the order to show them.
    """

    quantity: str
    unit: str
    values: Mapping[str, float]


@dataclass(frozen=True)
class Report:
    """The outcome of one grade.

    Attributes:
        lab: the lab's name.
        findings: what each check came to, in order of trust.
        comparisons: what the card's figure shows.
        seed: the seed that the inputs came from; the same seed makes the same inputs again.
        versions: versions of Python and the packages that matter, by name.
        device: the device's kind and name.
        seconds: how long the grade took, in seconds.
        subject: what was graded, e.g. a file's name.
    """

    lab: str
    findings: tuple[Finding, ...]
    comparisons: tuple[Comparison, ...] = ()
    seed: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)
    device: str = ""
    seconds: float = 0.0
    subject: str = ""

    @property
    def verdict(self) -> Verdict:
        """Fail if any finding fails; else inconclusive if any is; else pass."""
        return overall(finding.verdict for finding in self.findings)

    @property
    def passed(self) -> bool:
        """Whether the verdict is pass."""
        return self.verdict is Verdict.PASS

    def finding(self, check: str) -> Finding:
        """Return the finding of the check called `check`.

        Raises:
            KeyError: if the report has no such check; the message lists those it has.
        """
        for finding in self.findings:
            if finding.check == check:
                return finding
        raise KeyError(
            f"no check called {check!r} in this report; it has "
            + ", ".join(repr(finding.check) for finding in self.findings)
        )

    def first(self, verdict: Verdict) -> Finding | None:
        """Return the first finding of that verdict, which is the one to look at, or None."""
        return next((each for each in self.findings if each.verdict is verdict), None)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain dicts, lists, strings and numbers."""
        plain = asdict(self)
        plain["findings"] = [
            {key: _plain(value) for key, value in each.items()} for each in plain["findings"]
        ]
        return {"schema": SCHEMA, "verdict": str(self.verdict), **plain}

    def to_json(self) -> str:
        """Return the report as JSON: stable keys, sorted, one report per document."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "Report":
        """Return the report that `to_json` wrote.

        Raises:
            ValueError: if the text is not such a report, with what is wrong with it.
        """
        try:
            plain = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"not a report: not JSON ({error})") from None
        if not isinstance(plain, dict) or plain.get("schema") != SCHEMA:
            got = plain.get("schema") if isinstance(plain, dict) else type(plain).__name__
            raise ValueError(f"not a report of schema {SCHEMA}: got {got!r}")
        try:
            report = cls(
                **{
                    name: plain[name]
                    for name in ("lab", "seed", "versions", "device", "seconds", "subject")
                },
                findings=tuple(_finding(each) for each in plain["findings"]),
                comparisons=tuple(Comparison(**each) for each in plain["comparisons"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a report: {type(error).__name__}: {error}") from None
        if report.verdict != plain.get("verdict"):
            raise ValueError(
                f"not a report: its verdict {plain.get('verdict')!r} is not what its findings "
                f"come to ({str(report.verdict)!r})"
            )
        return report

    def _repr_html_(self) -> str:
        from course_utils.report.html import card  # noqa: PLC0415

        return card(self)

    def __str__(self) -> str:
        from course_utils.report.text import card  # noqa: PLC0415

        return card(self)

    def __repr__(self) -> str:
        return str(self)


def overall(verdicts: Iterable[Verdict]) -> Verdict:
    """Return what several findings come to together."""
    seen = set(verdicts)
    for verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE):
        if verdict in seen:
            return verdict
    return Verdict.PASS if Verdict.PASS in seen else Verdict.INCONCLUSIVE


def _plain(value: Any) -> Any:
    if isinstance(value, Verdict):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def _finding(plain: Mapping[str, Any]) -> Finding:
    fields = dict(plain)
    fields["verdict"] = Verdict(fields["verdict"])
    fields["spread"] = None if fields["spread"] is None else tuple(fields["spread"])
    fields["detail"] = tuple(fields["detail"])
    return Finding(**fields)
