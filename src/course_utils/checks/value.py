"""The result is right: checks on the task's own metric."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from course_utils.checks._common import Stage, judged
from course_utils.findings import Finding, Link, Verdict
from course_utils.guard import SubmissionError
from course_utils.quantities import plural, quantity

if TYPE_CHECKING:
    from course_utils.session import Session

SPREAD_FACTOR = 20
"""Answers to other inputs, zeros and ones must be this many tolerances away from the right one."""


@dataclass(frozen=True)
class MetricWithin:
    """The result is right: the task's own error stays within a tolerance on fresh inputs.

    Attributes:
        name: the error's name, which is the check's.
        metric: `(expected, got) -> error`, in `unit`.
        tolerance: largest error allowed, in `unit`.
        unit: the error's unit.
        link: where the book explains it.
        solution_factor: where the solution's own error on this device is larger than usual (a GPU
            that multiplies in TF32), this many times that error is allowed instead.
        advice: what to do about a wrong result in this lab, where the usual words do not fit.
        where: `(args, expected, got) -> words` on where in a pass the largest error stands.
    """

    name: str
    metric: Callable[[Any, Any], float]
    tolerance: float
    unit: str
    link: Link
    solution_factor: float = 4.0
    advice: str = ""
    where: Callable[[tuple[Any, ...], Any, Any], str] | None = None
    stage: Stage = Stage.VALUE

    def run(self, session: "Session") -> Finding:
        """Take the worst error over both passes."""
        errors = session.errors(self.metric)
        place = ""
        if self.where is not None and errors.submission > self.allowed(errors):
            args, expected, got = session.worst(self.metric)
            place = self.where(args, expected, got)
        return self.judge(errors, session.lab.item, place)

    def allowed(self, errors: "Errors") -> float:
        """Return the tolerance that holds on this device, in `unit`."""
        return _allowed(self, errors.solution)

    def judge(self, errors: "Errors", item: str, place: str = "") -> Finding:
        """Judge the worst error against the tolerance that holds on this device.

        Args:
            errors: the errors of the submission, and what they are held against.
            item: what one call computes, for people.
            place: where the worst error stands.
        """
        allowed = self.allowed(errors)
        finding = Finding(
            self.name,
            Verdict.PASS,
            errors.submission,
            allowed,
            "at most",
            self.unit,
            link=str(self.link),
        )
        if errors.trivial < SPREAD_FACTOR * allowed:
            return judged(
                finding,
                Verdict.INCONCLUSIVE,
                f"On this device the solution itself is off by "
                f"{quantity(errors.solution, self.unit)}, too much to tell right from wrong.",
                "Grade again with another seed; if it stays, grade on another device.",
            )
        if errors.submission <= allowed:
            return judged(
                finding,
                Verdict.PASS,
                f"Largest {self.name} over fresh inputs: {quantity(errors.submission, self.unit)}.",
            )
        cause = (
            f"Largest {self.name} over fresh inputs is {quantity(errors.submission, self.unit)}; "
            f"the solution's is {quantity(errors.solution, self.unit)}."
        )
        if place:
            cause += f" The largest is {place}."
        if errors.stale <= allowed:
            return judged(
                finding,
                Verdict.FAIL,
                cause + " The second pass got the answer to the first pass's inputs.",
                f"Compute every {item} from the arguments of the call: nothing may be remembered "
                "from an earlier call or taken from outside the function.",
            )
        if errors.stale_setting <= allowed:
            return judged(
                finding,
                Verdict.FAIL,
                cause + " The second pass used what the first pass was given besides its inputs: "
                "the model, say, was kept from then.",
                "A jitted function keeps what it closes over, as it was when it was traced: pass "
                "the model as an argument at every call.",
            )
        if errors.submission <= SPREAD_FACTOR * allowed:
            hint = (
                "This is near but not right: look for lower precision (bfloat16, float16), a "
                "dropped term or a changed constant, and compare with the starter on one input."
            )
        else:
            hint = (
                "This is another answer, not rounding: compare with the starter on one input, "
                "argument by argument (is every argument used?)."
            )
        return judged(finding, Verdict.FAIL, cause, self.advice or hint)


def _allowed(check: "MetricWithin | MetricAtCounts", solution: float) -> float:
    """Return the error that a check allows where the solution's own is so large."""
    return max(check.tolerance, check.solution_factor * solution)


@dataclass(frozen=True)
class MetricAtCounts:
    """The result is right for other counts of what one call gets: views, say.

    Only the value is looked at; compiling anew for another shape is fine.

    Attributes:
        name: the check's name.
        metric: `(expected, got) -> error`, in `unit`.
        tolerance: largest error allowed, in `unit`.
        unit: the error's unit.
        counts: the counts to try.
        counted: what is counted, in the plural: "views".
        resized: `(config, count) -> config` of a lab's size, with that count.
        advice: what to do where a count goes wrong.
        link: where the book explains it.
        solution_factor: as for `MetricWithin`.
    """

    name: str
    metric: Callable[[Any, Any], float]
    tolerance: float
    unit: str
    counts: tuple[int, ...]
    counted: str
    resized: Callable[[Any, int], Any]
    advice: str
    link: Link
    solution_factor: float = 4.0
    stage: Stage = Stage.VALUE

    def run(self, session: "Session") -> Finding:
        """Call the submission once with each count, until one goes wrong."""
        errors: dict[int, tuple[float, float]] = {}
        finding = Finding(self.name, Verdict.PASS)
        for count in self.counts:
            size = replace(session.size, config=self.resized(session.size.config, count))
            try:
                errors[count] = session.errors_at(size, self.metric)
            except SubmissionError as error:
                return self.judge_failure(count, error)
            finding = self.judge(errors)
            if finding.verdict is Verdict.FAIL:
                break
        return finding

    def judge(self, errors: Mapping[int, tuple[float, float]]) -> Finding:
        """Judge the errors by count: the submission's and the solution's, in `unit`."""
        allowed = {count: _allowed(self, solution) for count, (_, solution) in errors.items()}
        worst = max(errors, key=lambda count: errors[count][0] / allowed[count])
        error, solution = errors[worst]
        finding = Finding(
            self.name,
            Verdict.PASS,
            error,
            allowed[worst],
            "at most",
            self.unit,
            link=str(self.link),
        )
        if error <= allowed[worst]:
            tried = " and ".join(str(count) for count in errors)
            return judged(
                finding,
                Verdict.PASS,
                f"Largest error with {tried} {self.counted}: {quantity(error, self.unit)}.",
            )
        return judged(
            finding,
            Verdict.FAIL,
            f"With {worst} {self.counted} the result is off by {quantity(error, self.unit)}; "
            f"the solution's by {quantity(solution, self.unit)}.",
            self.advice,
        )

    def judge_failure(self, count: int, error: SubmissionError) -> Finding:
        """Return the failure of a submission that did not get through with this count."""
        return Finding(
            self.name,
            Verdict.FAIL,
            required=self.tolerance,
            unit=self.unit,
            cause=f"With {count} {self.counted}: {error.cause}",
            hint=self.advice,
            link=str(self.link),
            detail=error.detail,
        )


@dataclass(frozen=True)
class SavedWithin(MetricWithin):
    """What was saved on the way can still be read at the end of a pass, and is right.

    Attributes:
        lost: result → how many of the saved arrays were deleted. A lab's `drive` finds that out at
            the end of the pass, and puts zeros where nothing can be read any more.
        saved: what was saved, for people: "saved model".
        hint: what to do about arrays that were deleted.
    """

    lost: Callable[[Any], int] = field(kw_only=True)
    saved: str = field(kw_only=True)
    hint: str = (
        "What a later call is given to write over is gone afterwards, also where it has a second "
        "name. Save a copy, `jax.tree.map(jnp.copy, tree)`."
    )

    def run(self, session: "Session") -> Finding:
        """See whether the saved arrays are there; only then take the worst error."""
        lost = max(self.lost(session.first.result), self.lost(session.again.result))
        return self.judge_lost(lost) or super().run(session)

    def judge_lost(self, lost: int) -> Finding | None:
        """Return the failure that `lost` deleted arrays are, or None if there are none."""
        if not lost:
            return None
        return judged(
            Finding(
                self.name,
                Verdict.FAIL,
                required=self.tolerance,
                relation="at most",
                unit=self.unit,
                link=str(self.link),
            ),
            Verdict.FAIL,
            f"At the end of a pass {plural(lost, 'array')} of the {self.saved} could not be read: "
            "a later call had donated the memory.",
            self.hint,
        )


@dataclass(frozen=True)
class Errors:
    """Errors of one metric over the passes of a session.

    Attributes:
        submission: the submission's worst.
        solution: the solution's worst.
        stale: how far the second pass's result is from the right answer to the first pass.
        stale_setting: how far the second pass's result is from the right answer that the first
            pass's setting (its model) would give to the second pass's inputs.
        trivial: the smallest error that zeros, ones or another input's answer would have.
    """

    submission: float
    solution: float
    stale: float
    stale_setting: float
    trivial: float
