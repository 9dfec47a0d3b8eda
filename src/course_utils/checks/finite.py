"""Every value is a number: the check that counts what is NaN or infinite."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from course_utils.checks._common import Stage, judged
from course_utils.findings import Finding, Link, Verdict

if TYPE_CHECKING:
    from course_utils.session import Session


@dataclass(frozen=True)
class NonFinite:
    """What is not finite in the results of some passes.

    Attributes:
        count: values that are NaN or infinite.
        values: values in all.
        first: where the first one is: the pass and the value's flat index, counted over the leaves.
    """

    count: int
    values: int
    first: tuple[int, int] | None


def count_non_finite(results: Sequence[Any]) -> NonFinite:
    """Count what is NaN or infinite in the floating-point leaves of some results."""
    masks = [
        np.concatenate(
            [
                ~np.isfinite(np.asarray(leaf, dtype=np.float64)).reshape(-1)
                for leaf in jax.tree.leaves(result)
            ]
        )
        for result in results
    ]
    first = next(((i, int(mask.argmax())) for i, mask in enumerate(masks) if mask.any()), None)
    return NonFinite(sum(int(m.sum()) for m in masks), sum(m.size for m in masks), first)


@dataclass(frozen=True)
class NonFiniteAtMost:
    """So many values of the results may be NaN or infinite: an exact count on fresh inputs.

    The lab must let such results through (`Lab.may_be_non_finite`). Where the broken code gives
    none either, the count proves nothing on this device; the finding says so and does not count.

    Attributes:
        limit: how many.
        what: what is counted, in the plural: `"losses"`.
        part: picks it out of a pass's result.
        link: where the book explains it.
        hint: what to do.
        where: `(args, index) -> words` on where a value stands, for the first that is not finite.
        absent: why the broken code may give finite values on this device.
    """

    limit: int
    what: str
    part: Callable[[Any], Any]
    link: Link
    hint: str
    where: Callable[[tuple[Any, ...], int], str] | None = None
    absent: str = ""
    stage: Stage = Stage.VALUE

    @property
    def name(self) -> str:
        """The check's name."""
        return f"non-finite {self.what}"

    def run(self, session: "Session") -> Finding:
        """Count over both passes, in the submission's results and in the broken code's."""
        passes = session.passes
        mine = count_non_finite([self.part(each.result) for each in passes])
        broken = count_non_finite([self.part(each) for each in session.broken_results])
        place = ""
        if mine.first is not None and self.where is not None:
            number, index = mine.first
            place = self.where(passes[number].args, index)
        return self.judge(mine, broken, place)

    def judge(self, mine: NonFinite, broken: NonFinite, place: str = "") -> Finding:
        """Judge the count.

        Args:
            mine: what is not finite in the submission's results.
            broken: the same for the broken code, on the same inputs.
            place: where the first such value of the submission stands.
        """
        finding = Finding(
            self.name,
            Verdict.PASS,
            mine.count,
            self.limit,
            "at most",
            f"of {mine.values} {self.what}",
            link=str(self.link),
        )
        if mine.count > self.limit:
            first = f" The first is {place}." if place else ""
            return judged(
                finding,
                Verdict.FAIL,
                f"{mine.count:,} of {mine.values:,} {self.what} are NaN or infinite (the "
                f"starter's: {broken.count:,}).{first}",
                self.hint,
            )
        if broken.count <= self.limit:
            return judged(
                finding,
                Verdict.NOT_CHECKED,
                f"Yours are all finite, and so are the starter's on this device. {self.absent} "
                "Whether the values are right is checked all the same.".replace("  ", " "),
            )
        return judged(
            finding,
            Verdict.PASS,
            f"None is NaN or infinite; {broken.count:,} of the starter's are.",
        )
