"""Not too much is alive at once, and what is replaced gives its memory back: checks on memory."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from course_utils.checks._common import Stage, judged
from course_utils.findings import Finding, Link, Verdict
from course_utils.quantities import data, number, plural

if TYPE_CHECKING:
    from course_utils.instruments._frames import Line
    from course_utils.instruments.donation import Donations
    from course_utils.instruments.jaxprs import Intermediate
    from course_utils.instruments.peak import Peak
    from course_utils.session import Session


@dataclass(frozen=True)
class TempBytesAtMost:
    """A pass holds at most so much memory beyond its arguments, at any of its launches.

    Attributes:
        limit: bytes for one pass at the lab's size.
        link: where the book explains it.
        hint: what to do.
    """

    limit: int
    link: Link
    hint: str = "Keep less alive at once: work in chunks, and reduce inside the chunk."
    name: str = "temporary memory"
    stage: Stage = Stage.BYTES

    def run(self, session: "Session") -> Finding:
        """Plan every program that a pass launches, and look at what is alive between them."""
        from course_utils.instruments.xray import XrayError  # noqa: PLC0415  (where it is used)

        try:
            return self.judge(session.peak, session.largest_value, session.items, session.lab.item)
        except XrayError as error:
            return Finding(
                self.name,
                Verdict.INCONCLUSIVE,
                None,
                self.limit,
                "at most",
                "bytes",
                f"The memory of your function could not be planned: {error}",
                "Grade the jitted function itself, where its programs can be seen.",
                str(self.link),
            )

    def judge(self, peak: "Peak", largest: "Intermediate | None", items: int, item: str) -> Finding:
        """Judge the peak of one pass.

        Args:
            peak: the launch at which most is held.
            largest: the largest value on the way, where it is known.
            items: items of the pass.
            item: what one is called.
        """
        finding = Finding(
            self.name,
            Verdict.PASS,
            float(peak.bytes),
            float(self.limit),
            "at most",
            "bytes",
            link=str(self.link),
        )
        each = (
            f", {data(peak.bytes / items)} for each of {plural(items, item)}" if items > 1 else ""
        )
        if peak.bytes <= self.limit:
            return judged(finding, Verdict.PASS, f"At most {data(peak.bytes)} at once{each}.")
        where = (
            f"scratch memory of the program `{peak.program}`"
            if peak.temp_bytes >= peak.held_bytes
            else f"arrays that you hold when `{peak.program}` is launched, "
            f"launch {peak.launch} of {peak.launches}"
        )
        cause = f"At its peak a pass holds {data(peak.bytes)}{each}, mostly {where}."
        if largest is not None:
            shape = f"{largest.dtype}[{', '.join(map(str, largest.shape))}]"
            line = f" at {largest.line}" if largest.line is not None else ""
            cause += (
                f" The largest value on the way is {shape}, made by `{largest.primitive}`{line}."
            )
        return judged(finding, Verdict.FAIL, cause, self.hint)


@dataclass(frozen=True)
class DonatedBytesAtLeast:
    """The launches of a pass write over so many bytes of what they were given, for each item.

    Counted are arrays that a launch took over, with whatever kind of `jit`; what was offered and
    could not be used does not count.

    Attributes:
        limit: the size's config → bytes for each item.
        state: what should be donated, as the learner knows it: "the state", "the run".
        link: where the book explains it.
        hint: what to do.
    """

    limit: Callable[[Any], int]
    state: str
    link: Link
    hint: str = (
        "Donate what the call replaces: `jax.jit(..., donate_argnums=...)`, or "
        '`eqx.filter_jit(donate="all-except-first")` with all that must live in the first argument.'
    )
    name: str = "donated bytes"
    stage: Stage = Stage.BYTES

    def run(self, session: "Session") -> Finding:
        """Run a warm pass and look at which arguments are gone after each launch."""
        limit = self.limit(session.size.config)
        try:
            return self.judge(session.donations, limit, session.items, session.lab.item)
        except LookupError as error:
            return Finding(
                self.name,
                Verdict.NOT_CHECKED,
                None,
                limit,
                "at least",
                "bytes",
                f"Not checked: donation cannot be watched here ({error}).",
            )

    def judge(self, donations: "Donations", limit: int, items: int, item: str) -> Finding:
        """Judge the bytes donated for each item.

        Args:
            donations: what the launches of a pass wrote over.
            limit: bytes for each item at this size.
            items: items of the pass.
            item: what one is called.
        """
        each = donations.bytes / items
        finding = Finding(
            self.name,
            Verdict.PASS,
            each,
            float(limit),
            "at least",
            "bytes",
            link=str(self.link),
        )
        if each >= limit:
            return judged(
                finding, Verdict.PASS, f"Each {item} writes over {data(each)} of what it replaces."
            )
        launches = plural(donations.launches, "launch")
        wrote = (
            f"{number(donations.donating)} of {launches} wrote over an argument, {data(each)} for "
            f"each {item}"
            if donations.bytes
            else f"None of {launches} wrote over an argument"
        )
        return judged(
            finding,
            Verdict.FAIL,
            f"{wrote}: old and new of {self.state} are both in memory while it is replaced.",
            self.hint,
        )


def _place(line: "Line") -> str:
    """Return a line with its file's name; a notebook cell has no file and goes without."""
    return f"{os.path.basename(line.file)}, {line}" if os.path.isfile(line.file) else str(line)
