"""Not too much is alive at once: the check on memory, on the machine at hand."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from course_utils.checks._common import Stage, judged
from course_utils.findings import Finding, Link, Verdict
from course_utils.quantities import data, plural

if TYPE_CHECKING:
    from course_utils.instruments._frames import Line
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


def _place(line: "Line") -> str:
    """Return a line with its file's name; a notebook cell has no file and goes without."""
    return f"{os.path.basename(line.file)}, {line}" if os.path.isfile(line.file) else str(line)
