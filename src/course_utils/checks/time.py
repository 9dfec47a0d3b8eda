"""It is fast: checks on times measured together, as ratios."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from course_utils.checks._common import CLEAR, Stage, is_clear, judged
from course_utils.findings import Finding, Link, Verdict
from course_utils.quantities import number, quantity

if TYPE_CHECKING:
    from course_utils.instruments.timing import Timing
    from course_utils.session import Session


@dataclass(frozen=True)
class SpeedupAtLeast:
    """The submission is at least so many times faster than the broken code.

    Attributes:
        factor: how many times. At most half of what the solution reaches; where the solution does
            not reach twice the factor in this run, the check is not made and the counts decide.
        link: where the book explains it.
    """

    factor: float
    link: Link
    name: str = "speedup"
    stage: Stage = Stage.TIME
    whole: ClassVar[bool] = False

    def run(self, session: "Session") -> Finding:
        """Time broken, submission and solution together."""
        return self.judge(session.timing)

    def judge(self, timing: "Timing") -> Finding:
        """Judge the pooled ratio of broken to submission."""
        reached = timing.ratio("broken", "yours")
        possible = timing.ratio("broken", "solution")
        rounds = timing.round_ratios("broken", "yours")
        finding = Finding(
            self.name,
            Verdict.PASS,
            reached,
            self.factor,
            "at least",
            "times faster than broken",
            link=str(self.link),
            spread=(min(rounds), max(rounds)),
        )
        if possible < 2 * self.factor:
            return judged(
                finding,
                Verdict.NOT_CHECKED,
                f"On this device the solution itself is only {number(possible)} times faster than "
                "the broken code, too little to tell by time; the counts above decide.",
            )
        return _judge_ratio(
            finding,
            reached / self.factor,
            f"Your code is {number(reached)} times faster than the broken code; the solution is "
            f"{number(possible)} times faster.",
            "The counts above are right, so what is left runs on the device: look for work that "
            "the solution does not do.",
        )

    def clear(self, timing: "Timing") -> bool:
        """Whether the rounds so far decide it."""
        possible = timing.ratio("broken", "solution") / self.factor
        return possible < 2 / CLEAR or is_clear(timing.ratio("broken", "yours") / self.factor)


@dataclass(frozen=True)
class TimeWithin:
    """The submission takes at most so many times the solution's time.

    Attributes:
        factor: how many times; wide enough for another correct way of writing it.
        link: where the book explains it.
    """

    factor: float
    link: Link
    name: str = "time against the solution"
    stage: Stage = Stage.TIME
    whole: ClassVar[bool] = True

    def run(self, session: "Session") -> Finding:
        """Time submission and solution together, on whole passes."""
        return self.judge(session.whole_timing)

    def judge(self, timing: "Timing") -> Finding:
        """Judge the pooled ratio of submission to solution."""
        ratio = timing.ratio("yours", "solution")
        rounds = timing.round_ratios("yours", "solution")
        finding = Finding(
            self.name,
            Verdict.PASS,
            ratio,
            self.factor,
            "at most",
            "times the solution's time for a pass",
            link=str(self.link),
            spread=(min(rounds), max(rounds)),
        )
        return _judge_ratio(
            finding,
            self.factor / ratio,
            f"A pass takes you {quantity(timing.best('yours'), 's')} and the solution "
            f"{quantity(timing.best('solution'), 's')}.",
            "Something is computed that is not needed, or computed again at each call.",
        )

    def clear(self, timing: "Timing") -> bool:
        """Whether the rounds so far decide it."""
        return is_clear(self.factor / timing.ratio("yours", "solution"))


def _judge_ratio(finding: Finding, margin: float, cause: str, hint: str) -> Finding:
    """Judge how far a ratio lies beyond its threshold; near it, and noisy, nothing is decided."""
    if is_clear(margin):
        passed = margin >= 1
        return judged(
            finding, Verdict.PASS if passed else Verdict.FAIL, cause, "" if passed else hint
        )
    return judged(
        finding,
        Verdict.INCONCLUSIVE,
        cause + " That is too near the limit to decide on this machine now.",
        "Close other programs and grade again.",
    )
