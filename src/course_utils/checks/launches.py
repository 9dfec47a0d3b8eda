"""The device gets its work in few programs and without waiting: checks on launches and syncs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from course_utils.checks._common import Stage, counted, judged
from course_utils.findings import Finding, Link, Verdict
from course_utils.instruments.launches import Launches
from course_utils.quantities import number, plural

if TYPE_CHECKING:
    from course_utils.instruments.syncs import Syncs
    from course_utils.session import Session


@dataclass(frozen=True)
class LaunchesAtMost:
    """The work reaches the device in few programs.

    Attributes:
        limit: launches per item of a warm pass.
        link: where the book explains it.
        hints: by what is wrong (`"eager"`: nothing is compiled; `"parts"`: only parts are), a hint
            to use instead of the usual one.
        parts_link: where the book explains why compiling parts is not enough.
    """

    limit: float
    link: Link
    parts_link: Link | None = None
    hints: Mapping[str, str] = field(default_factory=dict)
    name: str = "launches"
    stage: Stage = Stage.COUNTS

    def run(self, session: "Session") -> Finding:
        """Take the launches of the second, warm pass."""
        return self.judge(session.again.launches, session.items, session.lab.item)

    def judge(self, launches: Launches, items: int, item: str) -> Finding:
        """Judge launches per item, and name the line and kind that most of them come from."""
        each = launches.count / items
        finding = Finding(
            self.name,
            Verdict.PASS,
            each,
            self.limit,
            "at most",
            f"launches per {item}",
            link=str(self.link),
        )
        if each <= self.limit:
            return judged(finding, Verdict.PASS, f"{number(each)} launches per {item} when warm.")
        if not launches.launches:
            return judged(
                finding,
                Verdict.FAIL,
                f"{number(each)} programs were launched per {item}, counted by the profiler.",
                self.hints.get("eager", _EAGER_HINT),
            )
        compiled = launches.count - launches.eager
        parts = compiled / items > _FEW
        causes = []
        if launches.eager:
            line = _lines(launches, lambda launch: launch.kind.eager, items, item)
            causes.append(
                f"{number(launches.eager / items)} of {number(each)} launches per {item} were "
                f"single operations run outside any jit{line}"
            )
        if parts:
            jitted = launches.by_name(lambda launch: not launch.kind.eager)
            names = counted([(name, count / items) for name, count in jitted])
            causes.append(
                f"compiled functions were called {number(compiled / items)} times per "
                f"{item} ({names})"
            )
        cause = "; ".join(causes)
        usual = _PARTS_HINT if parts else _EAGER_HINT
        hint = self.hints.get("parts" if parts else "eager", usual)
        if parts and self.parts_link is not None:
            finding = replace(finding, link=str(self.parts_link))
        return judged(finding, Verdict.FAIL, f"{cause[0].upper()}{cause[1:]}.", hint)


_FEW = 2
"""Calls of compiled functions per item up to which the work is not called cut in parts."""

_EAGER_HINT = (
    "Put that whole computation into one function under `eqx.filter_jit` and call it there."
)
_PARTS_HINT = (
    "Only parts are compiled; each is dispatched on its own and what stands between them runs "
    "operation by operation. Jit the one function that calls them all, not its parts."
)


@dataclass(frozen=True)
class SyncsAtMost:
    """The host does not stop to wait for the device in the middle of the work.

    Attributes:
        limit: waits per pass. The wait that `eqx.filter_jit` makes by itself is not counted.
        link: where the book explains it.
        hint: what to do.
    """

    limit: int
    link: Link
    hint: str = "Keep values on the device until all the work is handed over; convert once, after."
    name: str = "host syncs"
    stage: Stage = Stage.COUNTS

    def run(self, session: "Session") -> Finding:
        """Take the waits of the second pass."""
        return self.judge(session.again.syncs, session.items, session.lab.item)

    def judge(self, syncs: "Syncs", items: int, item: str) -> Finding:
        """Judge the number of waits, and name the first one's spelling and line."""
        finding = Finding(
            self.name,
            Verdict.PASS,
            syncs.count,
            self.limit,
            "at most",
            f"waits in {plural(items, item)}",
            link=str(self.link),
        )
        if syncs.count <= self.limit:
            return judged(
                finding, Verdict.PASS, f"{plural(syncs.count, 'wait')} in {plural(items, item)}."
            )
        sync = syncs.syncs[0]
        where = f", first at {sync.line}" if sync.line else ""
        return judged(
            finding,
            Verdict.FAIL,
            f"The host waited for the device {plural(syncs.count, 'time')} in "
            f"{plural(items, item)}: `{sync.how}`{where}.",
            self.hint,
        )


def _lines(launches: Launches, keep: Callable[..., bool], items: int, item: str) -> str:
    lines = launches.by_line(keep)
    if not lines:
        return ""
    line, count = lines[0]
    return f", {number(count / items)} of them from {line}"
