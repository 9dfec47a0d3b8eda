"""What all checks share: their stages, when a ratio is clear, and how a finding gets its words."""

import enum
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from course_utils.findings import Finding, Verdict
from course_utils.quantities import number

if TYPE_CHECKING:
    from course_utils.instruments.timing import Timing

CLEAR = 1.25
"""A ratio is clear when it lies this factor beyond its threshold; between, more rounds are run."""


@runtime_checkable
class TimedCheck(Protocol):
    """A check on timings, which says when it has seen enough.

    Attributes:
        whole: whether it looks at whole passes, or at calls of few items.
    """

    whole: ClassVar[bool]

    def clear(self, timing: "Timing") -> bool:
        """Whether the rounds so far decide it."""
        ...


class Stage(enum.IntEnum):
    """When a check is looked at: the more trustworthy the evidence, the earlier."""

    VALUE = 1
    COUNTS = 2
    BYTES = 3
    XRAY = 4
    TIME = 5

    @property
    def is_costly(self) -> bool:
        """Whether it takes long, so that it waits until everything before it is right."""
        return self >= Stage.XRAY


def is_clear(margin: float) -> bool:
    return margin >= CLEAR or margin <= 1 / CLEAR


def judged(
    finding: Finding, verdict: Verdict, cause: str, hint: str = "", *, measured: float | None = None
) -> Finding:
    """Return the finding with its outcome, what is so, what to do, and what was measured."""
    if measured is not None:
        finding = replace(finding, measured=measured)
    return replace(finding, verdict=verdict, cause=cause, hint=hint)


def counted(pairs: list[tuple[str, float]], shown: int = 3) -> str:
    """Return `` `a` 12 times, `b` once ``: the most frequent names with their counts."""
    parts = [f"`{name}` {'once' if n == 1 else f'{number(n)} times'}" for name, n in pairs[:shown]]
    rest = len(pairs) - shown
    return ", ".join(parts) + (f" and {rest} more" if rest > 0 else "")
