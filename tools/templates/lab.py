"""Lab of the FAMILY family: WHAT IS WRONG WITH THE CODE, IN ONE LINE.

It works as it stands, so that every step of adding a lab can be tried at once. Replace what is in
capitals, then the code, then each threshold by one that was measured.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from course_utils.checks import (
    CompilesAtMost,
    LaunchesAtMost,
    MetricWithin,
    RecompilesAtMost,
    SpeedupAtLeast,
    SyncsAtMost,
    TimeWithin,
)
from course_utils.findings import Link
from course_utils.lab import Entry, Lab, Size

STEPS = 40


# region student-broken
def broken_smooth(signals):
    """Return every signal (n, samples) after 40 steps of smoothing."""
    results = []
    for i in range(len(signals)):
        signal = signals[i]
        for _ in range(40):
            signal = jnp.tanh(signal) + 0.4 * jnp.roll(signal, 1)
        results.append(signal)
    return jnp.stack(results)


# endregion


# region student-solution
@jax.jit
def smooth_one(signal):
    """Run all 40 steps as one compiled program."""
    for _ in range(40):
        signal = jnp.tanh(signal) + 0.4 * jnp.roll(signal, 1)
    return signal


def solution_smooth(signals):
    """Return every signal (n, samples) after 40 steps of smoothing."""
    return jnp.stack([smooth_one(signals[i]) for i in range(len(signals))])


# endregion


def make_signals(samples: int, rng: np.random.Generator, count: int) -> Float[Array, "count n"]:
    """Return random signals of that many samples."""
    return jnp.asarray(rng.normal(size=(count, samples)), dtype=jnp.float32)


def reference(signals: Array) -> np.ndarray:
    """Return every signal smoothed, computed in float64."""
    wide = np.asarray(signals, dtype=np.float64)
    for _ in range(STEPS):
        wide = np.tanh(wide) + 0.4 * np.roll(wide, 1, axis=-1)
    return wide


def signal_error(expected, got) -> float:
    """Return the largest difference of a sample."""
    return float(np.abs(np.asarray(got, dtype=np.float64) - expected).max())


_FIX = Link("book/chapters/01_eager", "the-fix")

LAB = Lab(
    name="my_lab",
    title="TITLE",
    family="eager",
    minutes=15,
    difficulty=1,
    goal="WHAT ONE LEARNS, IN ONE SENTENCE.",
    item="signal",
    entries=(Entry("smooth", ("signals",)),),
    broken={"smooth": broken_smooth},
    solution={"smooth": solution_smooth},
    sizes={"cpu": Size(64, items=4, timed_items=1)},
    prepare=lambda samples, seed: None,
    arguments=lambda size, setting, rng, count: (make_signals(size.config, rng, count),),
    oracle=reference,
    checks=(
        # BESIDE EACH THRESHOLD: WHAT THE SOLUTION, THE BROKEN CODE AND THE NEAREST WRONG ONE REACH.
        MetricWithin("signal error", signal_error, tolerance=0.001, unit="", link=_FIX),
        RecompilesAtMost(1, link=_FIX),
        CompilesAtMost(0, link=_FIX),
        LaunchesAtMost(12, link=_FIX),
        SyncsAtMost(0, link=_FIX),
        TimeWithin(5, link=_FIX),
        SpeedupAtLeast(5, link=_FIX),
    ),
)
