"""Requirements on what the instruments measured: each check is data plus a judgement.

`run` fetches a measurement from the grading session and hands it to a pure `judge`, which can be
tried without running anything. A check knows what to say about a result; it knows no lab.
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from course_utils.findings import Finding, Link, Verdict
from course_utils.instruments.launches import Launches
from course_utils.quantities import number, plural, quantity

if TYPE_CHECKING:
    from course_utils.instruments.compiles import Compiles
    from course_utils.instruments.retrace import Recompile
    from course_utils.instruments.syncs import Syncs
    from course_utils.instruments.timing import Timing
    from course_utils.session import Session

CLEAR = 1.25
"""A ratio is clear when it lies this factor beyond its threshold; between, more rounds are run."""

SPREAD_FACTOR = 20
"""Answers to other inputs, zeros and ones must be this many tolerances away from the right one."""


@runtime_checkable
class TimedCheck(Protocol):
    """A check on timings, which says when it has seen enough."""

    def clear(self, timing: "Timing") -> bool:
        """Whether the rounds so far decide it."""
        ...


class Stage(enum.IntEnum):
    """When a check is looked at: the more trustworthy the evidence, the earlier."""

    VALUE = 1
    COUNTS = 2
    BYTES = 3
    TIME = 4


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
    """

    name: str
    metric: Callable[[Any, Any], float]
    tolerance: float
    unit: str
    link: Link
    solution_factor: float = 4.0
    stage: Stage = Stage.VALUE

    def run(self, session: "Session") -> Finding:
        """Take the worst error over both passes."""
        return self.judge(session.errors(self.metric), session.lab.item)

    def allowed(self, errors: "Errors") -> float:
        """Return the tolerance that holds on this device, in `unit`."""
        return max(self.tolerance, self.solution_factor * errors.solution)

    def judge(self, errors: "Errors", item: str) -> Finding:
        """Judge the worst error against the tolerance that holds on this device."""
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
            return _with(
                finding,
                Verdict.INCONCLUSIVE,
                f"On this device the solution itself is off by "
                f"{quantity(errors.solution, self.unit)}, too much to tell right from wrong.",
                "Grade again with another seed; if it stays, grade on another device.",
            )
        if errors.submission <= allowed:
            return _with(
                finding,
                Verdict.PASS,
                f"Largest {self.name} over fresh inputs: {quantity(errors.submission, self.unit)}.",
            )
        cause = (
            f"Largest {self.name} over fresh inputs is {quantity(errors.submission, self.unit)}; "
            f"the solution's is {quantity(errors.solution, self.unit)}."
        )
        if errors.stale <= allowed:
            return _with(
                finding,
                Verdict.FAIL,
                cause + " The second pass got the answer to the first pass's inputs.",
                f"Compute every {item} from the arguments of the call: nothing may be remembered "
                "from an earlier call or taken from outside the function.",
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
        return _with(finding, Verdict.FAIL, cause, hint)


@dataclass(frozen=True)
class Errors:
    """Errors of one metric over the passes of a session.

    Attributes:
        submission: the submission's worst.
        solution: the solution's worst.
        stale: how far the second pass's result is from the right answer to the first pass.
        trivial: the smallest error that zeros, ones or another input's answer would have.
    """

    submission: float
    solution: float
    stale: float
    trivial: float


@dataclass(frozen=True)
class RecompilesAtMost:
    """On the first pass each jitted function compiles once, not once per item.

    Attributes:
        limit: how many compiles of a function that has compiled already are allowed.
        link: where the book explains it.
    """

    limit: int
    link: Link
    name: str = "recompiles on the first pass"
    stage: Stage = Stage.COUNTS

    def run(self, session: "Session") -> Finding:
        """Take what the learner's own functions compiled again within the first pass."""
        return self.judge(session.recompiles[0], session.items, session.lab.item)

    def judge(self, recompiles: Sequence["Recompile"], items: int, item: str) -> Finding:
        """Judge how often functions compiled again for items of one shape."""
        finding = Finding(
            self.name,
            Verdict.PASS,
            len(recompiles),
            self.limit,
            "at most",
            "recompiles",
            link=str(self.link),
        )
        if len(recompiles) <= self.limit:
            return finding
        return _with(
            finding,
            Verdict.FAIL,
            f"{plural(items, item)} of one shape made functions of yours compile again "
            f"{plural(len(recompiles), 'time')}. {_why(recompiles)}",
            _retrace_hint(recompiles),
        )


@dataclass(frozen=True)
class CompilesAtMost:
    """Nothing compiles again: a pass over new values of the same shapes compiles at most so often.

    Attributes:
        limit: programs that the second pass may compile.
        link: where the book explains it.
    """

    limit: int
    link: Link
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
        return _with(
            finding,
            Verdict.FAIL,
            f"{plural(items, item)} of shapes already seen compiled "
            f"{plural(compiles.count, 'program')} again ({_counted(_tally(compiles.names))}), in "
            f"{quantity(compiles.seconds, 's')}. {_why(recompiles)}".rstrip(),
            _retrace_hint(recompiles),
        )


def _why(recompiles: Sequence["Recompile"]) -> str:
    """Say why the first of several recompiles happened, and where."""
    if not recompiles:
        return ""
    first = recompiles[0]
    where = f" (called at {first.line})" if first.line is not None else ""
    return f"{first.sentence()[0].upper()}{first.sentence()[1:]}{where}."


_RETRACE_HINTS = {
    "shape": "Give it one shape: pad to a few fixed sizes and mask what is padding.",
    "dtype": "Give it one dtype: convert where the value is made.",
    "weak type": "Make the value with an explicit dtype, e.g. `jnp.zeros(())` or "
    "`jnp.asarray(0.0, jnp.float32)`, so that it is as strong as what comes out of the step.",
    "static value": "A Python value is part of what is compiled: pass it as an array, "
    "`jnp.asarray(value)`.",
    "function identity": "The cache knows functions by identity: make the jitted function, and "
    "every lambda or partial that goes into it, once, outside the call.",
    "tree structure": "Pass the same structure each time: the same container types, keys and "
    "static fields.",
    "placement": "Put all arguments on the device the same way, once, with `jax.device_put`.",
    "call spelling": "Call it the same way each time: by position or by name, defaults passed or "
    "not.",
}


def _retrace_hint(recompiles: Sequence["Recompile"]) -> str:
    kinds = [change.kind for each in recompiles for change in each.changes]
    if kinds:
        return _RETRACE_HINTS[kinds[0]]
    return (
        "Something besides the arrays' values differs between calls: a function made anew inside "
        "the call, a Python number as an argument, or a model rebuilt each time."
    )


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
            return _with(finding, Verdict.PASS, f"{number(each)} launches per {item} when warm.")
        if not launches.launches:
            return _with(
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
            names = _counted([(name, count / items) for name, count in jitted])
            causes.append(
                f"compiled functions were called {number(compiled / items)} times per "
                f"{item} ({names})"
            )
        cause = "; ".join(causes)
        usual = _PARTS_HINT if parts else _EAGER_HINT
        hint = self.hints.get("parts" if parts else "eager", usual)
        if parts and self.parts_link is not None:
            finding = replace(finding, link=str(self.parts_link))
        return _with(finding, Verdict.FAIL, f"{cause[0].upper()}{cause[1:]}.", hint)


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
    """

    limit: int
    link: Link
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
            return _with(
                finding, Verdict.PASS, f"{plural(syncs.count, 'wait')} in {plural(items, item)}."
            )
        sync = syncs.syncs[0]
        where = f", first at {sync.line}" if sync.line else ""
        return _with(
            finding,
            Verdict.FAIL,
            f"The host waited for the device {plural(syncs.count, 'time')} in "
            f"{plural(items, item)}: `{sync.how}`{where}.",
            "Keep values on the device until all the work is handed over; convert once, after.",
        )


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
            return _with(
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
        return possible < 2 / CLEAR or _is_clear(timing.ratio("broken", "yours") / self.factor)


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

    def run(self, session: "Session") -> Finding:
        """Time broken, submission and solution together."""
        return self.judge(session.timing)

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
            "times the solution's time",
            link=str(self.link),
            spread=(min(rounds), max(rounds)),
        )
        return _judge_ratio(
            finding,
            self.factor / ratio,
            f"A call takes you {quantity(timing.best('yours'), 's')} and the solution "
            f"{quantity(timing.best('solution'), 's')}.",
            "Something is computed that is not needed, or computed again at each call.",
        )

    def clear(self, timing: "Timing") -> bool:
        """Whether the rounds so far decide it."""
        return _is_clear(self.factor / timing.ratio("yours", "solution"))


def _is_clear(margin: float) -> bool:
    return margin >= CLEAR or margin <= 1 / CLEAR


def _judge_ratio(finding: Finding, margin: float, cause: str, hint: str) -> Finding:
    """Judge how far a ratio lies beyond its threshold; near it, and noisy, nothing is decided."""
    if _is_clear(margin):
        passed = margin >= 1
        return _with(
            finding, Verdict.PASS if passed else Verdict.FAIL, cause, "" if passed else hint
        )
    return _with(
        finding,
        Verdict.INCONCLUSIVE,
        cause + " That is too near the limit to decide on this machine now.",
        "Close other programs and grade again.",
    )


def _with(finding: Finding, verdict: Verdict, cause: str, hint: str = "") -> Finding:
    """Return the finding with its outcome, what is so and what to do."""
    return replace(finding, verdict=verdict, cause=cause, hint=hint)


def _tally(names: tuple[str, ...]) -> list[tuple[str, float]]:
    return sorted(((name, names.count(name)) for name in set(names)), key=lambda pair: -pair[1])


def _counted(pairs: list[tuple[str, float]], shown: int = 3) -> str:
    """Return `` `a` 12 times, `b` once ``: the most frequent names with their counts."""
    parts = [f"`{name}` {'once' if n == 1 else f'{number(n)} times'}" for name, n in pairs[:shown]]
    rest = len(pairs) - shown
    return ", ".join(parts) + (f" and {rest} more" if rest > 0 else "")


def _lines(launches: Launches, keep: Callable[..., bool], items: int, item: str) -> str:
    lines = launches.by_line(keep)
    if not lines:
        return ""
    line, count = lines[0]
    return f", {number(count / items)} of them from {line}"
