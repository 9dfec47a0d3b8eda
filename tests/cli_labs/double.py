"""One function and two checks; nothing is timed."""

import jax
import jax.numpy as jnp
import numpy as np

from course_utils.checks import LaunchesAtMost, MetricWithin
from course_utils.findings import Link
from course_utils.lab import Entry, Lab, Size

LINK = Link("book/chapters/01_eager", "the-fix")


def broken_double(x):
    """Return twice x, one addition at a time."""
    total = jnp.zeros_like(x)
    for _ in range(2):
        total = total + x
    return total


@jax.jit
def solution_double(x):
    """Return twice x."""
    return 2 * x


def error(expected, got):
    return float(np.max(np.abs(np.asarray(got, dtype=np.float64) - expected)))


LAB = Lab(
    name="double",
    title="Twice a number",
    family="eager",
    minutes=1,
    difficulty=1,
    goal="Try the command line.",
    item="call",
    entries=(Entry("double", ("x",)),),
    broken={"double": broken_double},
    solution={"double": solution_double},
    sizes={"cpu": Size(8, items=1, timed_items=1)},
    prepare=lambda config, seed: None,
    arguments=lambda size, setting, rng, items: (
        jnp.asarray(rng.normal(size=size.config), dtype=jnp.float32),
    ),
    oracle=lambda x: 2 * np.asarray(x, dtype=np.float64),
    checks=(
        MetricWithin("error", error, tolerance=0.001, unit="", link=LINK),
        LaunchesAtMost(1, link=LINK),
    ),
    time_limit=2.0,
)
