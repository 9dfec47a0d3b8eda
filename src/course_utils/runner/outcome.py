"""What came of a file that was to be graded, and its exit code."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_utils.findings import Report, Verdict

COULD_NOT = "could not be graded"


class Exit(enum.IntEnum):
    """Exit codes of the command line."""

    PASSED = 0
    FAILED = 1
    WRONG_USAGE = 2
    COULD_NOT = 3
    INCONCLUSIVE = 4


_BY_VERDICT = {Verdict.PASS: Exit.PASSED, Verdict.FAIL: Exit.FAILED}
_WORST_FIRST = (Exit.COULD_NOT, Exit.FAILED, Exit.INCONCLUSIVE, Exit.PASSED)


@dataclass(frozen=True)
class Outcome:
    """One file's outcome.

    Attributes:
        file: the file, as it was given.
        lab: the lab it was graded as; empty when that is not known.
        report: the report; None when the file could not be graded.
        problem: why it could not be graded, in one sentence.
        todo: what to do then, in one sentence.
        output: beginning and end of what its code printed.
        seconds: how long it all took, in seconds.
    """

    file: Path
    lab: str
    report: Report | None = None
    problem: str = ""
    todo: str = ""
    output: str = ""
    seconds: float = 0.0

    @property
    def code(self) -> Exit:
        """The exit code for this file alone."""
        if self.report is None:
            return Exit.COULD_NOT
        return _BY_VERDICT.get(self.report.verdict, Exit.INCONCLUSIVE)

    @property
    def verdict(self) -> str:
        """The verdict, or that there is none."""
        return COULD_NOT if self.report is None else str(self.report.verdict)

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome, without what was printed, as plain data for JSON."""
        return {
            "file": str(self.file),
            "lab": self.lab,
            "verdict": self.verdict,
            "exit": int(self.code),
            "problem": self.problem,
            "todo": self.todo,
            "seconds": round(self.seconds, 3),
            "report": None if self.report is None else self.report.to_dict(),
        }


def worst(outcomes: Iterable[Outcome]) -> Exit:
    """Return the exit code for several files; nothing graded counts as «could not be graded»."""
    codes = {each.code for each in outcomes}
    return next((code for code in _WORST_FIRST if code in codes), Exit.COULD_NOT)
