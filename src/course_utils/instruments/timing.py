"""Which of several functions is faster, and by how much, on a machine that may be busy?

Warm, synchronised and interleaved: every round calls all arms in turn, in alternating order, on the
same fresh inputs, and the ratio of two arms is the ratio of their pooled minima. Of the statistics
tried under load (see the book's measurement chapter), that one never decided wrongly, provided that
each arm was left alone once: ten samples of three milliseconds all fall into the neighbour's turn.
So a round in which the samples of an arm scatter goes on for seconds. This module knows nothing of
thresholds: the caller's `settled` says when to stop.

The clock and the wait are taken when this module is imported, so that a notebook that replaces
`time.perf_counter` or `jax.block_until_ready` later does not change what is measured.
"""

import contextlib
import gc
import itertools
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import SystemRandom
from time import perf_counter as clock
from typing import Any

from jax import block_until_ready as wait

_SAMPLE_SECONDS = 1e-3
"""A sample repeats its call until it lasts about this long, so that the clock's grain is small."""
_CALIBRATION_CALLS = 9
_STEADY = 1.25
"""An arm is steady while its median sample is at most so many times its fastest."""
_UNSTEADY_SECONDS = 1.0
"""While an arm is not steady a round lasts at least so long, dozens of a scheduler's turns, ..."""
_UNSTEADY_TIMES = 4
"""... and has so many times its pairs, ..."""
_MOST_UNSTEADY_SECONDS = 3.0
"""... unless that would last longer than this."""
_MAX_INNER = 64
choose = SystemRandom().randrange
"""Draws a place below its argument that nobody can foretell."""


@dataclass(frozen=True)
class Timing:
    """Seconds per call of each arm, measured together.

    Attributes:
        rounds: for each arm, its rounds, each a tuple of samples in seconds per call.
        inner: for each arm, how many calls one sample averages over.
        seconds: how long measuring took, in seconds.
    """

    rounds: Mapping[str, tuple[tuple[float, ...], ...]]
    inner: Mapping[str, int]
    seconds: float

    def best(self, arm: str) -> float:
        """Return the arm's fastest sample, in seconds per call."""
        return min(min(samples) for samples in self.rounds[arm])

    def ratio(self, slow: str, fast: str) -> float:
        """Return how many times faster `fast` is than `slow`: pooled min over pooled min."""
        return self.best(slow) / self.best(fast)

    def round_ratios(self, slow: str, fast: str) -> tuple[float, ...]:
        """Return the same ratio for each round alone: how sure the pooled one is."""
        return tuple(
            min(a) / min(b) for a, b in zip(self.rounds[slow], self.rounds[fast], strict=True)
        )

    def median(self, arm: str) -> float:
        """Return the arm's median sample, in seconds per call."""
        return statistics.median(s for samples in self.rounds[arm] for s in samples)


def time_call(call: Callable[[], Any]) -> float:
    """Return the seconds of one call, its result waited for."""
    start = clock()
    wait(call())
    return clock() - start


def interleave(
    arms: Mapping[str, Callable[..., Any]],
    fresh: Callable[[], tuple[Any, ...]],
    *,
    settled: Callable[[Timing], bool] = lambda _: False,
    pairs: int = 10,
    max_rounds: int = 4,
    budget: float = 10.0,
    keep: Callable[[str, tuple[Any, ...], Any], None] | None = None,
    own: Callable[[tuple[Any, ...]], tuple[Any, ...]] = lambda args: args,
) -> Timing:
    """Time several functions against each other.

    Args:
        arms: the functions by name. Each is called as `arm(*fresh())`, warm.
        fresh: makes the arguments of one call: new values, same shapes. Runs outside the timed
            region; what it returns is waited for.
        settled: looks at the timing after each round and says whether the answer is clear.
        pairs: samples of each arm in a round; more while they scatter, for up to three seconds.
        max_rounds: rounds at most.
        budget: seconds after which no further round starts.
        keep: called outside the timed region with the arm's name, the arguments and the result of
            one call of each sample, chosen at random, so that timed results can be checked too.
        own: makes the arguments that an arm is called with from those that `fresh` made: a copy
            where arms may donate them.

    Returns:
        The samples of every finished round (at least one).
    """
    began = clock()
    inner = {name: _calibrate(arm, lambda: own(fresh())) for name, arm in arms.items()}
    rounds: dict[str, list[tuple[float, ...]]] = {name: [] for name in arms}
    names = list(arms)
    timing = Timing({}, inner, 0.0)
    with _gc_paused():
        for _ in range(max_rounds):
            samples: dict[str, list[float]] = {name: [] for name in names}
            round_began = clock()
            for pair in itertools.count():
                if pair >= pairs and _has_enough(samples, pair / pairs, clock() - round_began):
                    break
                calls = [_ready(fresh()) for _ in range(max(inner.values()))]
                for name in names if pair % 2 == 0 else reversed(names):
                    mine = [_ready(own(args)) for args in calls[: inner[name]]]
                    kept = choose(len(mine))
                    seconds, result = _sample(arms[name], mine, kept)
                    samples[name].append(seconds)
                    if keep is not None:
                        keep(name, calls[kept], result)
            for name in names:
                rounds[name].append(tuple(samples[name]))
            frozen = {name: tuple(each) for name, each in rounds.items()}
            timing = Timing(frozen, inner, clock() - began)
            if settled(timing) or timing.seconds > budget:
                break
    return timing


def _has_enough(samples: Mapping[str, list[float]], times: float, seconds: float) -> bool:
    """Whether a round may end that has so many times its pairs and has lasted so long."""
    is_long = seconds > _UNSTEADY_SECONDS and times >= _UNSTEADY_TIMES
    return (
        is_long
        or seconds > _MOST_UNSTEADY_SECONDS
        or all(statistics.median(each) <= _STEADY * min(each) for each in samples.values())
    )


def _sample(arm: Callable[..., Any], calls: list[tuple[Any, ...]], kept: int) -> tuple[float, Any]:
    """Return seconds per call over `calls`, each result waited for, and one call's result."""
    results = [None] * len(calls)
    start = clock()
    for number, args in enumerate(calls):
        results[number] = wait(arm(*args))
    return (clock() - start) / len(calls), results[kept]


def _calibrate(arm: Callable[..., Any], fresh: Callable[[], tuple[Any, ...]]) -> int:
    """Return how many calls make a sample of about a millisecond."""
    fastest = float("inf")
    for _ in range(_CALIBRATION_CALLS):
        args = _ready(fresh())
        fastest = min(fastest, time_call(lambda args=args: arm(*args)))
        if fastest > _SAMPLE_SECONDS:
            return 1
    return max(1, min(_MAX_INNER, round(_SAMPLE_SECONDS / max(fastest, 1e-7))))


def _ready(args: tuple[Any, ...]) -> tuple[Any, ...]:
    wait(args)
    return args


@contextlib.contextmanager
def _gc_paused() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
