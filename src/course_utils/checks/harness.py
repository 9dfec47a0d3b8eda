"""A benchmark measures what it claims to: checks on what a harness did, one for each way to lie.

All but the last two judge a harness on a scripted machine (`instruments.harness`), where nothing
depends on how busy the real one is. They know no lab but that its first entry point is a harness
`compare(f, g, make_inputs)`.
"""

import functools
import math
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from course_utils.checks._common import CLEAR, Stage, judged
from course_utils.findings import Finding, Link, Verdict
from course_utils.guard import RAISED_HINT, SubmissionError
from course_utils.instruments.harness import Call, Observed, Trial, try_out
from course_utils.instruments.timing import time_call, wait
from course_utils.quantities import number, plural

if TYPE_CHECKING:
    from course_utils.instruments.compiles import Compiles
    from course_utils.session import Session

_OWN_JIT = (
    "`compare` put the functions into a jit of its own, and what that runs is not seen. Mend that "
    "first."
)
_NO_CLOCK = (
    "Call `time.perf_counter()` right before the timed call and right after its result is there."
)


def _on_scripts(check: Any, session: "Session", judge: Callable[[Trial], Finding]) -> Finding:
    """Judge what the learner's harness did on scripted machines, tried once in a session.

    Raises:
        SubmissionError: if it fails there, for the first check that asks; the others are not
            checked then.
    """
    entry = session.lab.entries[0].name
    outcome = session.once("trial", lambda: _try_out(session, entry))
    if isinstance(outcome, Trial):
        return judge(outcome)
    if session.once("trial told", lambda: check.name) == check.name:
        raise outcome
    return Finding(
        check.name,
        Verdict.NOT_CHECKED,
        cause=f"Not checked: your `{entry}` did not get through on the scripted machine.",
        link=str(check.link),
    )


def _try_out(session: "Session", entry: str) -> Trial | SubmissionError:
    compare = session.functions[entry]
    try:
        return session.run(lambda: try_out(compare, seed=session.seed))
    except SubmissionError as error:
        there = (
            f"Run `observe({entry}, World(f=4e-3, g=2e-3))` until it works: both are in "
            "`course_utils.instruments.harness`."
        )
        return SubmissionError(
            error.kind,
            f"{error.cause} That was on a scripted machine, where `f` and `g` only pretend to "
            "compute and the grader's clock stands in the place of Python's.",
            there if error.hint == RAISED_HINT else error.hint,
            error.detail,
        )


@dataclass(frozen=True)
class WarmedUp:
    """Each side is called once, and so compiled, before the clock is read for it."""

    link: Link
    name: str = "warm-up"
    stage: Stage = Stage.VALUE

    def run(self, session: "Session") -> Finding:
        """Try the harness on scripted machines."""
        return _on_scripts(self, session, self.judge)

    def judge(self, trial: Trial) -> Finding:
        """Judge how many first calls were timed; one that is thrown away does no harm."""
        first = [call for call, _ in trial.quiet.timed() if call.compiles]
        finding = _at_most(self, len(first), 0, "first calls timed")
        if _saw_nothing(trial.quiet):
            return _unseen(finding)
        if not first:
            return judged(finding, Verdict.PASS, "Both sides were compiled before they were timed.")
        if not trial.uses_first_calls:
            cause = "The first call of each side was timed, and its time was not used."
            return judged(finding, Verdict.PASS, cause, measured=0)
        sides = " and ".join(f"`{side}`" for side in sorted({call.side for call in first}))
        return judged(
            finding,
            Verdict.FAIL,
            f"The first call of {sides}, which traces and compiles, lay between two readings of "
            "the clock.",
            "Call each side once, wait for its result, and only then start to time it.",
        )


@dataclass(frozen=True)
class WaitedFor:
    """Each timed result is there before the clock is read again."""

    link: Link
    name: str = "results waited for"
    stage: Stage = Stage.VALUE

    def run(self, session: "Session") -> Finding:
        """Try the harness on scripted machines."""
        return _on_scripts(self, session, self.judge)

    def judge(self, trial: Trial) -> Finding:
        """Judge how many timed calls were still running when the clock was read."""
        seen = trial.counted
        early = [call for call, (_, end) in seen.timed() if not _ready(call, end)]
        finding = _at_most(self, len(early), 0, "calls timed before their result was there")
        if _saw_nothing(seen):
            return _unseen(finding)
        if seen.traced and seen.syncs:
            return judged(finding, Verdict.NOT_CHECKED, _OWN_JIT)
        if not early:
            return judged(finding, Verdict.PASS, "Every result was there when the clock was read.")
        sides = " and ".join(f"`{side}`" for side in sorted({call.side for call in early}))
        timed = len(seen.timed())
        return judged(
            finding,
            Verdict.FAIL,
            f"{len(early)} of {plural(timed, 'timed call')}, of {sides}, had not been waited for "
            "when the clock was read: what was measured is how long it takes to hand work over.",
            "Wait for each result with `jax.block_until_ready(…)` before you read the clock.",
        )


@dataclass(frozen=True)
class FreshInputs:
    """Each timed call gets inputs of its own, given as arguments and made before."""

    link: Link
    name: str = "fresh inputs"
    stage: Stage = Stage.VALUE

    def run(self, session: "Session") -> Finding:
        """Try the harness on scripted machines."""
        return _on_scripts(self, session, self.judge)

    def judge(self, trial: Trial) -> Finding:
        """Judge how many timed calls had inputs that were built in, used before, or timed too."""
        seen = trial.counted
        stale = sum(_repeats(seen, side) for side in ("f", "g"))
        late = sum(call.is_given_new for call, _ in seen.timed())
        bad = len(seen.traced) or seen.made_while_timed or late or stale
        finding = _at_most(self, bad, 0, "calls without inputs of their own")
        if any(call.traced == "closed over" for call in seen.traced):
            return judged(
                finding,
                Verdict.FAIL,
                "`compare` compiled the functions anew with the inputs inside: to XLA they are "
                "constants, and what can be computed from constants is computed while compiling.",
                "Call `f(*inputs)` and `g(*inputs)` as they are, with inputs from `make_inputs()`.",
            )
        if seen.traced:
            return judged(
                finding,
                Verdict.FAIL,
                "`compare` put the functions into a jit of its own, so they were called with "
                "tracers and compiled anew.",
                "Both are jitted already: call `f(*inputs)` and `g(*inputs)` as they are.",
            )
        if _saw_nothing(seen):
            return _unseen(finding)
        if seen.made_while_timed or late:
            return judged(
                finding,
                Verdict.FAIL,
                _timed_too(seen, late),
                "Call `make_inputs()` before the first of the two readings, and between them only "
                "`f(*inputs)`, with what it returned.",
            )
        if stale:
            return judged(
                finding,
                Verdict.FAIL,
                f"{stale} of {plural(len(seen.timed()), 'timed call')} got inputs that the same "
                "side had been timed on before: whoever remembers an answer looks fast.",
                "Call `make_inputs()` anew for every timed call; both sides may share its inputs.",
            )
        return judged(finding, Verdict.PASS, "Every timed call had inputs of its own.")


def _timed_too(seen: Observed, late: int) -> str:
    """Say what was made between two readings: inputs, or arrays that `late` calls were given."""
    if seen.made_while_timed:
        made = plural(seen.made_while_timed, "time")
        return (
            f"Inputs were made {made} between two readings of the clock: making them was timed too."
        )
    return (
        f"{late} of {plural(len(seen.timed()), 'timed call')} got arrays that were made between "
        "the two readings of the clock, by a copy or a slice perhaps: that was timed too."
    )


@dataclass(frozen=True)
class LikeWithLike:
    """Both sides get what `make_inputs` made: the same dtypes, on the same device."""

    link: Link
    name: str = "like with like"
    stage: Stage = Stage.VALUE

    def run(self, session: "Session") -> Finding:
        """Try the harness on scripted machines."""
        return _on_scripts(self, session, self.judge)

    def judge(self, trial: Trial) -> Finding:
        """Judge how many calls got something else than was made for them."""
        seen = trial.counted
        made = seen.makes[0][1] if seen.makes else None
        calls = [call for call in seen.calls if call.traced != "wrapped"]
        other = [call for call in calls if call.kind != made]
        finding = _at_most(self, len(other), 0, "calls with other arguments than were made")
        if not seen.calls:
            why = "Not checked: neither function was called."
            return judged(finding, Verdict.NOT_CHECKED, why)
        if not calls:
            return judged(finding, Verdict.NOT_CHECKED, _OWN_JIT)
        if not other:
            return judged(finding, Verdict.PASS, f"Both sides got {made}.")
        got = {call.side: str(call.kind) for call in other}
        listed = " and ".join(f"`{side}` got {kind}" for side, kind in sorted(got.items()))
        return judged(
            finding,
            Verdict.FAIL,
            f"`make_inputs` made {made or 'nothing, as it was not called'}; {listed}. What is "
            "compared then is also dtypes, or copies between host and device.",
            "Pass what `make_inputs()` returns to both sides, unconverted.",
        )


@dataclass(frozen=True)
class SamplesAtLeast:
    """Each side is timed several times."""

    limit: int
    link: Link
    name: str = "repeats"
    stage: Stage = Stage.VALUE

    def run(self, session: "Session") -> Finding:
        """Try the harness on scripted machines."""
        return _on_scripts(self, session, self.judge)

    def judge(self, trial: Trial) -> Finding:
        """Judge in how many timed intervals the less timed side was called."""
        seen = trial.counted
        fewest = min(("f", "g"), key=seen.samples)
        samples = seen.samples(fewest)
        finding = Finding(
            self.name,
            Verdict.PASS,
            samples,
            self.limit,
            "at least",
            "times of each side",
            link=str(self.link),
        )
        if samples >= self.limit:
            return judged(finding, Verdict.PASS, f"Each side was timed {number(samples)} times.")
        if not seen.readings:
            return judged(
                finding,
                Verdict.FAIL,
                "`compare` never read `time.perf_counter()`: the grader's clock stands there.",
                _NO_CLOCK,
            )
        if _saw_nothing(trial.quiet) and seen.readings >= len(seen.calls):
            return judged(
                finding,
                Verdict.FAIL,
                f"`compare` read the clock {plural(seen.readings, 'time')}, but which readings "
                "time which calls could not be seen: the answer does not move with them.",
                "Read the clock before and after each call and subtract the two readings, "
                "`end - start`.",
            )
        return judged(
            finding,
            Verdict.FAIL,
            f"`{fewest}` was timed {plural(samples, 'time')}. A total of several calls is one "
            "time, whatever it is divided by.",
            "Read the clock before and after each call, and keep every time in a list.",
        )


@dataclass(frozen=True)
class SteadyUnderNoise:
    """The answer hardly moves when a tenth of the times are disturbed.

    Attributes:
        factor: how many times larger or smaller it may become.
        link: where the book explains it.
    """

    factor: float
    link: Link
    name: str = "noise"
    stage: Stage = Stage.VALUE

    def run(self, session: "Session") -> Finding:
        """Try the harness on scripted machines."""
        return _on_scripts(self, session, self.judge)

    def judge(self, trial: Trial) -> Finding:
        """Judge the answer that moved farthest from the undisturbed one."""
        calm = trial.quiet.answer
        moved = max(trial.late, key=lambda each: _apart(each.answer, calm), default=trial.quiet)
        off = _apart(moved.answer, calm)
        finding = _at_most(self, off, self.factor, "times larger or smaller")
        if not trial.quiet.readings:
            return _unseen(finding)
        if off <= self.factor:
            return judged(
                finding,
                Verdict.PASS,
                "Up to a tenth of each side's times, or one of them, were five seconds too long "
                "and hardly mattered.",
            )
        return judged(
            finding,
            Verdict.FAIL,
            "When other programs kept the process waiting for five seconds at a time, during at "
            "most a tenth of each side's times or one of them, the answer went from "
            f"{number(calm)} to {number(moved.answer)}.",
            "Noise only adds. Take the minimum of each side's times, or their median; a mean keeps "
            "every disturbance.",
        )


@dataclass(frozen=True)
class RightAnswer:
    """On a scripted machine that nothing disturbs, the answer is right.

    Attributes:
        factor: how many times larger or smaller than the truth it may be.
        link: where the book explains it.
    """

    factor: float
    link: Link
    name: str = "scripted answers"
    stage: Stage = Stage.VALUE

    def run(self, session: "Session") -> Finding:
        """Try the harness on scripted machines."""
        return _on_scripts(self, session, self.judge)

    def judge(self, trial: Trial) -> Finding:
        """Judge two answers, one where `g` is faster and one where `f` is."""
        worst = max((trial.quiet, trial.other), key=lambda each: _apart(each.answer, each.truth))
        off = _apart(worst.answer, worst.truth)
        finding = _at_most(self, off, self.factor, "times larger or smaller than the truth")
        cause = (
            f"On the scripted machine `g` is {number(worst.truth)} times as fast as `f`; `compare` "
            f"said {number(worst.answer)}."
        )
        if off <= self.factor:
            return judged(finding, Verdict.PASS, cause)
        if worst.is_of_processor:
            return judged(
                finding,
                Verdict.FAIL,
                f"{cause} The clock was one of the processor's time, which stands still while the "
                "host waits for the device.",
                "Read `time.perf_counter()`.",
            )
        turned = _apart(1 / worst.answer, worst.truth) if worst.answer else math.inf
        return judged(
            finding,
            Verdict.FAIL,
            cause,
            "Return the time of `f` over the time of `g`, not the other way round."
            if turned <= self.factor
            else "Mend what failed above; if nothing did, look for what else is inside the timed "
            "part, and return the time of `f` over that of `g`.",
        )


@dataclass(frozen=True)
class Pair:
    """Two real functions to be compared.

    Attributes:
        title: what they are, in a few words.
        f: a jitted function.
        g: another, or the same.
        make_inputs: returns the arguments of one call, new at each.
        is_turned: whether `f` is the second of the two that the title names.
        is_ranked: whether only which one is faster is asked, however small the ratio is here.
    """

    title: str
    f: Callable[..., Any]
    g: Callable[..., Any]
    make_inputs: Callable[[], tuple[Any, ...]]
    is_turned: bool = False
    is_ranked: bool = False

    def straight(self, ratio: float) -> float:
        """Return a ratio of `f` to `g` as one of the first that the title names to the second."""
        if not self.is_turned:
            return ratio
        return 1 / ratio if ratio else math.inf

    @property
    def names(self) -> tuple[str, ...]:
        """The names that the two have where compiles are counted."""
        return tuple(dict.fromkeys(str(each.__name__) for each in (self.f, self.g)))


@dataclass(frozen=True)
class CompiledOnce:
    """Each of the real functions is compiled once by the first comparison, and never again."""

    link: Link
    name: str = "compiles of each side"
    stage: Stage = Stage.COUNTS

    def run(self, session: "Session") -> Finding:
        """Take the compiles of both passes; each has functions of its own."""
        passes = (session.first, session.again)
        return self.judge([(each.args[0], each.compiles) for each in passes])

    def judge(self, passes: "Sequence[tuple[Sequence[Pair], Compiles]]") -> Finding:
        """Judge how often the functions of each pass were compiled.

        Args:
            passes: for each, its pairs and what compiled.
        """
        counts = [
            (name, compiles.names.count(name))
            for pairs, compiles in passes
            for pair in pairs
            for name in pair.names
        ]
        most, least = (pick(counts, key=lambda each: each[1]) for pick in (max, min))
        finding = _at_most(self, most[1], 1, "compiles of a function")
        if most[1] > 1:
            return judged(
                finding,
                Verdict.FAIL,
                f"A function was compiled {plural(most[1], 'time')} by one comparison (`{most[0]}` "
                "and perhaps others): it was called with arguments of more than one kind.",
                "Call it with what `make_inputs()` returns, and nothing else.",
            )
        if least[1] < 1:
            return judged(
                finding,
                Verdict.FAIL,
                f"`{least[0]}` was never compiled itself: it was not called, or another jit of "
                "yours was compiled in its place.",
                "Both functions are jitted already: call them as they are.",
                measured=least[1],
            )
        return judged(finding, Verdict.PASS, "Each function was compiled once.")


@dataclass(frozen=True)
class PairsToldRight:
    """Real functions are compared rightly.

    Where the grader's own measurement finds less than ten times, the answer must be near it; from
    there on only which one is faster is asked. A machine so busy that the medians and the minima of
    the grader's own calls disagree fails nobody by as much.

    Attributes:
        factor: how many times larger or smaller than the grader's own measurement.
        link: where the book explains it.
    """

    factor: float
    link: Link
    name: str = "real functions"
    stage: Stage = Stage.TIME

    def run(self, session: "Session") -> Finding:
        """Measure the second pass's pairs, and take the answers of both passes."""
        answers: dict[str, tuple[float, ...]] = {}
        for done in (session.first, session.again):
            for pair, answer in zip(done.args[0], done.result, strict=True):
                said = pair.straight(float(answer))
                answers[pair.title] = (*answers.get(pair.title, ()), said)
        measured, noise, ranked = {}, 1.0, set()
        for pair in session.again.args[0]:
            f, g = _call_times(pair)
            own = min(f) / min(g)
            measured[pair.title] = pair.straight(own)
            if pair.is_ranked:
                ranked.add(pair.title)
            elif _is_small(own):
                noise = max(noise, _apart(statistics.median(f) / statistics.median(g), own))
        return self.judge(answers, measured, noise=noise, ranked=ranked)

    def judge(
        self,
        answers: Mapping[str, Sequence[float]],
        measured: Mapping[str, float],
        *,
        noise: float = 1.0,
        ranked: Collection[str] = (),
    ) -> Finding:
        """Judge the answers on each pair.

        Args:
            answers: by the pair's title, the harness's answers; the best of them counts where the
                ratio is asked for, and the worst where the ranking is.
            measured: by the pair's title, how many times faster the second is.
            noise: how many times apart two good statistics of the same calls lie just now.
            ranked: titles of pairs of which only the direction is asked, however small the ratio.
        """
        is_ranked = {title: title in ranked or not _is_small(measured[title]) for title in measured}
        margins = {
            title: self._margin(answers[title], own, is_ranked=is_ranked[title])
            for title, own in measured.items()
        }
        title = min(margins, key=lambda each: margins[each])
        right = sum(margin >= 1 for margin in margins.values())
        finding = Finding(
            self.name,
            Verdict.PASS,
            right,
            len(margins),
            "at least",
            "pairs told right",
            link=str(self.link),
        )
        own = measured[title]
        asked = ", of which only the direction is asked" if is_ranked[title] else ""
        said = " and ".join(number(each) for each in answers[title])
        cause = (
            f"{title[0].upper()}{title[1:]}: the second is {number(own)} times as fast as the "
            f"first{asked}; `compare` said {said} in two tries."
        )
        if margins[title] < CLEAR and margins[title] * noise > 1 / CLEAR:
            return judged(
                finding,
                Verdict.INCONCLUSIVE,
                cause + " That is too near the limit to decide on this machine now.",
                "Close other programs and grade again.",
            )
        if margins[title] >= 1:
            return judged(finding, Verdict.PASS, "Every pair was told right.")
        return judged(
            finding,
            Verdict.FAIL,
            cause,
            "Mend what failed above; if nothing did, compare your answer for this kind of pair "
            "with `course_utils.checks.harness.measure`.",
        )

    def _margin(self, answers: Sequence[float], own: float, *, is_ranked: bool) -> float:
        """Return how far beyond what is asked the answers lie; below 1 they are wrong."""
        if is_ranked:
            right = all((answer > 1) == (own > 1) for answer in answers)
            return math.inf if right else 0.0
        return self.factor / min(_apart(answer, own) for answer in answers)


_SMALL = 10.0


def _is_small(ratio: float) -> bool:
    return 1 / _SMALL < ratio < _SMALL


_CALLS = 15


def measure(pair: Pair) -> float:
    """Return how many times faster `g` is than `f`: the least of several alternating calls each."""
    f, g = _call_times(pair)
    return min(f) / min(g)


def _call_times(pair: Pair) -> tuple[list[float], list[float]]:
    """Return the seconds of alternating calls of `f` and of `g`, both warm."""
    wait((pair.f(*pair.make_inputs()), pair.g(*pair.make_inputs())))
    f, g = [], []
    for _ in range(_CALLS):
        inputs = wait(pair.make_inputs())
        f.append(time_call(functools.partial(pair.f, *inputs)))
        g.append(time_call(functools.partial(pair.g, *inputs)))
    return f, g


def _at_most(check: Any, measured: float, limit: float, unit: str) -> Finding:
    return Finding(check.name, Verdict.PASS, measured, limit, "at most", unit, link=str(check.link))


def _saw_nothing(seen: Observed) -> bool:
    return not seen.timed()


def _unseen(finding: Finding) -> Finding:
    return judged(
        finding,
        Verdict.NOT_CHECKED,
        "Not checked: no call was seen to be timed by `time.perf_counter()`.",
    )


def _ready(call: Call, end: int) -> bool:
    """Whether a call's result had been waited for when the reading `end` was taken."""
    return call.ready_at is not None and call.ready_at <= end


def _repeats(seen: Observed, side: str) -> int:
    """Return how many timed calls of a side had values that it had been timed on before."""
    values = [call.values for call, _ in seen.timed(side)]
    return len(values) - len(set(values))


def _apart(one: float, other: float) -> float:
    """Return how many times larger or smaller one positive number is than another."""
    if not (one > 0 and other > 0 and math.isfinite(one) and math.isfinite(other)):
        return math.inf
    return max(one / other, other / one)
