"""What a GPU would run: checks on an X-ray of the submission, on any machine.

Where no X-ray can be made, the finding is «not checked» and says why; no lab relies on these checks
to catch its own mistake. The counts hold for the described card as JAX compiles for it without
autotuning; they are not times.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from course_utils.checks._common import Stage, judged
from course_utils.findings import Finding, Link, Verdict
from course_utils.quantities import data, number

if TYPE_CHECKING:
    from course_utils.instruments.xray import Xray
    from course_utils.session import Session

CARDS = {"t4": "T4", "l4": "L4", "a100": "A100", "h100": "H100"}
"""The cards as people write them."""


@dataclass(frozen=True)
class KernelsAtMost:
    """An item costs a card at most so many kernels, all of the submission's dispatches together.

    Attributes:
        limit: kernels per item.
        link: where the book explains it.
        gpu: the card.
    """

    limit: float
    link: Link
    gpu: str = "t4"
    stage: Stage = Stage.XRAY

    @property
    def name(self) -> str:
        """The check's name."""
        return f"kernels on a {CARDS[self.gpu]}"

    def run(self, session: "Session") -> Finding:
        """X-ray the submission dispatch by dispatch, on the items that are timed."""
        return _xrayed(
            self.name,
            lambda: self.judge(
                session.xray_dispatches(self.gpu), session.size.timed_items, session.lab.item
            ),
        )

    def judge(self, xray: "Xray", items: int, item: str) -> Finding:
        """Judge the kernels that the card would launch for each item."""
        finding = Finding(
            self.name,
            Verdict.PASS,
            None,
            self.limit,
            "at most",
            f"kernels per {item}",
            link=str(self.link),
        )
        if xray.refused:
            return _refused(finding, xray)
        each = xray.kernels / items
        finding = judged(finding, Verdict.PASS, "", measured=each)
        if each <= self.limit:
            return finding
        return judged(
            finding,
            Verdict.FAIL,
            f"A {CARDS[self.gpu]} would launch {number(each)} kernels per {item}, in "
            f"{number(xray.dispatches / items)} dispatches.",
            "Give the compiler more at once, so that it can fuse: jit the whole computation.",
        )


@dataclass(frozen=True)
class FitsOn:
    """One whole call fits the card's memory.

    Attributes:
        link: where the book explains it.
        gpu: the card.
        programs: launches of a pass up to which it counts as one program. A pass of more is not
            X-rayed: as one program it would need other memory than it does.
    """

    link: Link
    gpu: str = "t4"
    programs: int = 4
    stage: Stage = Stage.XRAY

    @property
    def name(self) -> str:
        """The check's name."""
        return f"fits a {CARDS[self.gpu]}"

    def run(self, session: "Session") -> Finding:
        """X-ray the submission as one program, at the lab's full size."""
        launches = session.again.launches.count
        if launches > self.programs:
            return Finding(
                self.name,
                Verdict.NOT_CHECKED,
                cause=f"Not checked: {number(launches)} launches are no one program to X-ray.",
            )
        return _xrayed(self.name, lambda: self.judge(session.xray_whole(self.gpu)))

    def judge(self, xray: "Xray") -> Finding:
        """Judge the memory that one call needs against what the card has."""
        room = float(xray.memory_bytes or 0)
        finding = Finding(
            self.name, Verdict.PASS, None, room, "at most", "bytes", link=str(self.link)
        )
        if xray.refused:
            return _refused(finding, xray)
        finding = judged(finding, Verdict.PASS, "", measured=float(xray.needed_bytes))
        if xray.fits:
            return finding
        return judged(
            finding,
            Verdict.FAIL,
            f"At full size one call needs {data(xray.needed_bytes)}, {data(xray.temp_bytes)} of it "
            f"scratch memory; a {CARDS[self.gpu]} has {data(room)}.",
            "Work through the batch in chunks, and keep only what the result needs of each.",
        )


@dataclass(frozen=True)
class CardTempBytesAtMost:
    """One whole call needs at most so much scratch memory on a card.

    Attributes:
        limit: bytes.
        link: where the book explains it.
        gpu: the card.
    """

    limit: int
    link: Link
    gpu: str = "t4"
    stage: Stage = Stage.XRAY

    @property
    def name(self) -> str:
        """The check's name."""
        return f"scratch memory on a {CARDS[self.gpu]}"

    def run(self, session: "Session") -> Finding:
        """X-ray the submission as one program, at the lab's full size."""
        return _xrayed(self.name, lambda: self.judge(session.xray_whole(self.gpu)))

    def judge(self, xray: "Xray") -> Finding:
        """Judge the scratch memory of one call."""
        finding = Finding(
            self.name, Verdict.PASS, None, self.limit, "at most", "bytes", link=str(self.link)
        )
        if xray.refused:
            return _refused(finding, xray)
        finding = judged(finding, Verdict.PASS, "", measured=float(xray.temp_bytes))
        if xray.temp_bytes <= self.limit:
            return finding
        return judged(
            finding,
            Verdict.FAIL,
            f"At full size one call needs {data(xray.temp_bytes)} of scratch memory on a "
            f"{CARDS[self.gpu]}.",
            "Keep less alive at once: work in chunks, and reduce inside the chunk.",
        )


@dataclass(frozen=True)
class CardDonatedBytesAtLeast:
    """On a card, results are written over at least so much donated memory.

    Attributes:
        minimum: bytes.
        link: where the book explains it.
        gpu: the card.
    """

    minimum: int
    link: Link
    gpu: str = "t4"
    stage: Stage = Stage.XRAY

    @property
    def name(self) -> str:
        """The check's name."""
        return f"donated on a {CARDS[self.gpu]}"

    def run(self, session: "Session") -> Finding:
        """X-ray the submission as one program, at the lab's full size."""
        return _xrayed(self.name, lambda: self.judge(session.xray_whole(self.gpu)))

    def judge(self, xray: "Xray") -> Finding:
        """Judge the bytes of results that take over an argument's memory."""
        finding = Finding(
            self.name, Verdict.PASS, None, self.minimum, "at least", "bytes", link=str(self.link)
        )
        if xray.refused:
            return _refused(finding, xray)
        finding = judged(finding, Verdict.PASS, "", measured=float(xray.donated_bytes))
        if xray.donated_bytes >= self.minimum:
            return finding
        return judged(
            finding,
            Verdict.FAIL,
            f"Only {data(xray.donated_bytes)} of the results are written over donated arguments.",
            "Donate the state that the call replaces, with equal shapes and dtypes in and out.",
        )


@dataclass(frozen=True)
class RunsOn:
    """The card can run it: its compiler refuses nothing in the submission.

    Attributes:
        link: where the book explains it.
        gpu: the card.
    """

    link: Link
    gpu: str = "t4"
    stage: Stage = Stage.XRAY

    @property
    def name(self) -> str:
        """The check's name."""
        return f"runs on a {CARDS[self.gpu]}"

    def run(self, session: "Session") -> Finding:
        """X-ray the submission dispatch by dispatch, on the items that are timed."""
        return _xrayed(self.name, lambda: self.judge(session.xray_dispatches(self.gpu)))

    def judge(self, xray: "Xray") -> Finding:
        """Judge whether the card's compiler took everything."""
        finding = Finding(self.name, Verdict.PASS, link=str(self.link))
        if xray.refused:
            return _refused(finding, xray)
        return judged(finding, Verdict.PASS, f"A {CARDS[self.gpu]} can run all of it.")


def _refused(finding: Finding, xray: "Xray") -> Finding:
    return judged(
        finding,
        Verdict.FAIL,
        f"A {CARDS[xray.gpu]} cannot run it: {xray.refused}.",
        "Use an operation or a dtype that the card has.",
    )


def _xrayed(name: str, judge: Callable[[], Finding]) -> Finding:
    """Return the judgement, or «not checked» with the reason where no X-ray can be made."""
    from course_utils.instruments.xray import XrayError  # noqa: PLC0415  (only where it is used)

    try:
        return judge()
    except XrayError as error:
        return Finding(name, Verdict.NOT_CHECKED, cause=f"Not checked: {error}")
