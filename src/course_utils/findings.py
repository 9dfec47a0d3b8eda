"""What a grade says: verdicts, findings and reports, as plain data that outlives the process.

It knows nothing of JAX, labs or how a finding was measured, and nothing of how it is shown.
"""

import enum
import json
import math
import numbers
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, TypeVar

_T = TypeVar("_T")

SCHEMA = 1
"""Version of the JSON form. It rises when a field changes its meaning or goes away."""


class Verdict(enum.StrEnum):
    """What a check, or a whole grade, came to."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    """Too noisy, or out of time; the finding says so and what to do."""
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
        """Return the report as plain dicts, lists, strings and numbers, ready for JSON.

        JSON has no number for what is infinite or not a number: those are the strings `"Infinity"`,
        `"-Infinity"` and `"NaN"`.
        """
        plain = {each.name: _plain(getattr(self, each.name)) for each in fields(self)}
        return {"schema": SCHEMA, "verdict": str(self.verdict), **plain}

    def to_json(self) -> str:
        """Return the report as JSON: the same keys in the same order, one report per document."""
        return to_json(self.to_dict())

    @classmethod
    def from_dict(cls, plain: object) -> "Report":
        """Return the report that `to_dict` made.

        Raises:
            ValueError: if this is not such a report, with what is wrong with it.
        """
        if not isinstance(plain, dict) or plain.get("schema") != SCHEMA:
            got = plain.get("schema") if isinstance(plain, dict) else type(plain).__name__
            raise ValueError(f"not a report of schema {SCHEMA}: got {got!r}")
        try:
            report = _report(plain)
        except KeyError as error:
            raise ValueError(f"not a report: it lacks {error}") from None
        except ValueError as error:
            raise ValueError(f"not a report: {error}") from None
        if report.verdict != plain.get("verdict"):
            raise ValueError(
                f"not a report: its verdict {plain.get('verdict')!r} is not what its findings "
                f"come to ({str(report.verdict)!r})"
            )
        return report

    @classmethod
    def from_json(cls, text: str) -> "Report":
        """Return the report that `to_json` wrote.

        Raises:
            ValueError: if the text is not such a report, with what is wrong with it.
        """
        try:
            plain = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"not a report: not JSON ({error})") from None
        return cls.from_dict(plain)

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


def to_json(plain: object) -> str:
    """Return plain data as JSON that can always be written as UTF-8.

    Raises:
        ValueError: if a number in it is infinite or not a number.
    """
    text = json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False)
    # Half of a surrogate pair cannot be written as UTF-8; its escape is the same in JSON.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _plain(value: Any) -> Any:
    """Return the value with nothing in it but what JSON has."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool):  # NumPy's numbers too
        return int(value) if isinstance(value, numbers.Integral) else _plain_float(float(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    return str(value) if isinstance(value, str) else value


def _plain_float(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _report(plain: Mapping[str, Any]) -> Report:
    return Report(
        lab=_text(plain, "lab"),
        findings=tuple(map(_finding, _list(plain, "findings"))),
        comparisons=tuple(map(_comparison, _list(plain, "comparisons"))),
        seed=_of(int, plain["seed"], "seed"),
        versions={
            name: _of(str, version, "versions")
            for name, version in _of(dict, plain["versions"], "versions").items()
        },
        device=_text(plain, "device"),
        seconds=_number(plain["seconds"], "seconds"),
        subject=_text(plain, "subject"),
    )


def _finding(plain: object) -> Finding:
    plain = _of(dict, plain, "findings")
    texts = {
        name: _text(plain, name) for name in ("check", "relation", "unit", "cause", "hint", "link")
    }
    measured, required = (
        None if plain[name] is None else _number(plain[name], name)
        for name in ("measured", "required")
    )
    spread = None
    if plain["spread"] is not None:
        ends = [_number(each, "spread") for each in _list(plain, "spread")]
        if len(ends) != 2:
            raise ValueError(f"'spread' must be two numbers, got {len(ends)}")
        spread = (ends[0], ends[1])
    return Finding(
        verdict=Verdict(_text(plain, "verdict")),
        measured=measured,
        required=required,
        spread=spread,
        detail=tuple(_of(str, each, "detail") for each in _list(plain, "detail")),
        **texts,
    )


def _comparison(plain: object) -> Comparison:
    plain = _of(dict, plain, "comparisons")
    values = _of(dict, plain["values"], "values")
    return Comparison(
        _text(plain, "quantity"),
        _text(plain, "unit"),
        {name: _number(each, "values") for name, each in values.items()},
    )


def _of(kind: type[_T], value: object, name: str) -> _T:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{name!r} must hold a {kind.__name__}, got a {type(value).__name__}")
    return value


def _text(plain: Mapping[str, Any], name: str) -> str:
    return _of(str, plain[name], name)


def _list(plain: Mapping[str, Any], name: str) -> list[Any]:
    return _of(list, plain[name], name)


def _number(value: object, name: str) -> float:
    if isinstance(value, str) and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name!r} must hold a number, got a {type(value).__name__}")
    if isinstance(value, int) and abs(value) > 2**1000:
        raise ValueError(f"{name!r} holds a number that is too large")
    return value
