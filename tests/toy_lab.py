"""A lab that costs milliseconds, to try the grader itself."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

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
LINK = Link("book/chapters/01_eager", "the-fix")


def broken_smooth(scale, signals):
    """Return every signal smoothed: the same 40 steps for each, one operation at a time."""
    results = []
    for i in range(len(signals)):
        signal = signals[i]
        for _ in range(STEPS):
            signal = jnp.tanh(signal) * scale + 0.5 * jnp.roll(signal, 1)
        results.append(signal)
    return jnp.stack(results)


@jax.jit
def smooth_one(scale, signal):
    for _ in range(STEPS):
        signal = jnp.tanh(signal) * scale + 0.5 * jnp.roll(signal, 1)
    return signal


def solution_smooth(scale, signals):
    """Return every signal smoothed."""
    return jnp.stack([smooth_one(scale, signals[i]) for i in range(len(signals))])


def reference(scale, signals):
    scale, signals = np.float64(scale), np.asarray(signals, dtype=np.float64)
    for _ in range(STEPS):
        signals = np.tanh(signals) * scale + 0.5 * np.roll(signals, 1, axis=-1)
    return signals


def error(expected, got):
    return float(np.max(np.abs(np.asarray(got, dtype=np.float64) - expected)))


LAB = Lab(
    name="toy",
    title="A toy",
    family="eager",
    minutes=1,
    difficulty=1,
    goal="Try the grader.",
    item="signal",
    entries=(Entry("smooth", ("scale", "signals")),),
    broken={"smooth": broken_smooth},
    solution={"smooth": solution_smooth},
    sizes={"cpu": Size(64, items=4, timed_items=1)},
    prepare=lambda config, seed: jnp.float32(np.random.default_rng(seed).uniform(0.7, 1.0)),
    arguments=lambda size, scale, rng, items: (
        scale,
        jnp.asarray(rng.normal(size=(items, size.config)), dtype=jnp.float32),
    ),
    oracle=reference,
    checks=(
        MetricWithin("error", error, tolerance=0.001, unit="", link=LINK),
        RecompilesAtMost(1, link=LINK),
        CompilesAtMost(0, link=LINK),
        LaunchesAtMost(12, link=LINK),
        SyncsAtMost(0, link=LINK),
        SpeedupAtLeast(5, link=LINK),
        TimeWithin(5, link=LINK),
    ),
    time_limit=20.0,
)

IMPATIENT = dataclasses.replace(LAB, time_limit=2.0)
"""For what never returns."""
