"""Nothing compiles again: checks on compiles, with the reason for each recompile."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from course_utils.checks._common import Stage, counted, judged
from course_utils.findings import Finding, Link, Verdict
from course_utils.quantities import plural, quantity

if TYPE_CHECKING:
    from course_utils.instruments.compiles import Compiles
    from course_utils.instruments.retrace import Recompile
    from course_utils.session import Session


@dataclass(frozen=True)
class RecompilesAtMost:
    """On the first pass each jitted function compiles once, not once per item.

    Attributes:
        limit: how many compiles of a function that has compiled already are allowed.
        link: where the book explains it.
        alike: in what the items of a pass are alike.
    """

    limit: int
    link: Link
    alike: str = "of one shape"
    name: str = "recompiles on the first pass"
    stage: Stage = Stage.COUNTS

    def run(self, session: "Session") -> Finding:
        """Take what the learner's own functions compiled again within the first pass."""
        return self.judge(
            session.recompiles[0],
            session.items,
            session.lab.item,
            compiles=session.first.compiles,
        )

    def judge(
        self,
        recompiles: Sequence["Recompile"],
        items: int,
        item: str,
        *,
        compiles: "Compiles | None" = None,
    ) -> Finding:
        """Judge how often functions compiled again for items that are alike.

        Args:
            recompiles: those compiles.
            items: items of the pass.
            item: what one is called.
            compiles: all compiles of the pass, to report how long they took.
        """
        finding = Finding(
            self.name,
            Verdict.PASS,
            len(recompiles),
            self.limit,
            "at most",
            "recompiles",
            link=str(self.link),
        )
        spent = (
            f"The first pass compiled {plural(compiles.count, 'program')} in "
            f"{quantity(compiles.seconds, 's')}."
            if compiles is not None and compiles.count
            else ""
        )
        if len(recompiles) <= self.limit:
            return judged(finding, Verdict.PASS, spent)
        return judged(
            finding,
            Verdict.FAIL,
            f"{plural(items, item)} {self.alike} made functions of yours compile again "
            f"{plural(len(recompiles), 'time')}. {spent} {_why(recompiles)}".replace("  ", " "),
            _retrace_hint(recompiles),
        )


@dataclass(frozen=True)
class CompilesAtMost:
    """Nothing compiles again: a pass over new values of the same shapes compiles at most so often.

    Attributes:
        limit: programs that the second pass may compile.
        link: where the book explains it.
        alike: in what the items of a second pass are like those of the first.
    """

    limit: int
    link: Link
    alike: str = "of shapes already seen"
    name: str = "compiles on a second pass"
    stage: Stage = Stage.COUNTS

    def run(self, session: "Session") -> Finding:
        """Take the compiles of the second pass."""
        return self.judge(
            session.again.compiles, session.recompiles[1], session.items, session.lab.item
        )

    def judge(
        self, compiles: "Compiles", recompiles: Sequence["Recompile"], items: int, item: str
    ) -> Finding:
        """Judge the number of programs compiled for values of shapes already seen."""
        finding = Finding(
            self.name,
            Verdict.PASS,
            compiles.count,
            self.limit,
            "at most",
            "compiles",
            link=str(self.link),
        )
        if compiles.count <= self.limit:
            return finding
        return judged(
            finding,
            Verdict.FAIL,
            f"{plural(items, item)} {self.alike} compiled "
            f"{plural(compiles.count, 'program')} again ({counted(_tally(compiles.names))}), in "
            f"{quantity(compiles.seconds, 's')}. {_why(recompiles)}".rstrip(),
            _retrace_hint(recompiles),
        )


def _why(recompiles: Sequence["Recompile"], shown: int = 3) -> str:
    """Say why recompiles happened, and where, each reason once."""
    told: list[Recompile] = []
    seen: set[tuple[str, str, str]] = set()
    for each in recompiles:
        reasons = {(each.name, change.path, change.kind) for change in each.changes}
        if not told or reasons - seen:
            told.append(each)
            seen |= reasons
    return " ".join(map(_told, told[:shown]))


def _told(recompile: "Recompile") -> str:
    where = f" (called at {recompile.line})" if recompile.line is not None else ""
    sentence = recompile.sentence()
    return f"{sentence[0].upper()}{sentence[1:]}{where}."


_RETRACE_HINTS = {
    "shape": "Give it one shape: pad to a few fixed sizes and mask what is padding.",
    "dtype": "Give it one dtype: convert where the value is made.",
    "weak type": "Make the value with an explicit dtype, e.g. `jnp.zeros(())` or "
    "`jnp.asarray(0.0, jnp.float32)`, so that it is as strong as what comes out of the step.",
    "static value": "A Python value is part of what is compiled: pass it as an array, "
    "`np.float32(value)` or `np.asarray(value)`; `jnp.asarray(value)` is a launch of its own.",
    "function identity": "The cache knows functions by identity: make the jitted function, and "
    "every lambda or partial that goes into it, once, outside the call.",
    "tree structure": "Pass the same structure each time: the same container types, keys and "
    "static fields.",
    "placement": "Put all arguments on the device the same way, once, with `jax.device_put`.",
    "call spelling": "Call it the same way each time: by position or by name, defaults passed or "
    "not.",
}


def _retrace_hint(recompiles: Sequence["Recompile"], shown: int = 3) -> str:
    kinds = dict.fromkeys(change.kind for each in recompiles for change in each.changes)
    if kinds:
        return " ".join(_RETRACE_HINTS[kind] for kind in list(kinds)[:shown])
    return (
        "Something besides the arrays' values differs between calls: a function made anew inside "
        "the call, a Python number as an argument, or a model rebuilt each time."
    )


def _tally(names: tuple[str, ...]) -> list[tuple[str, float]]:
    return sorted(((name, names.count(name)) for name in set(names)), key=lambda pair: -pair[1])
