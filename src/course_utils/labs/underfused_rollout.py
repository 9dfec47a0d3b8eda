"""Second lab of the under-fused family: a simulation unrolled by Python, compiled at every call.

A planner tries commands on a model of a drone before the drone gets them. The simulation is one
launch, so launches do not show what is wrong with it: a Python loop inside the jit copies the step
out for each command, the jitted function is made anew in each call, and every number of commands is
another shape. Each call therefore compiles, and a long plan compiles for a long time.
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from course_utils.checks import (
    CompilesAtMost,
    LaunchesAtMost,
    MetricWithin,
    ProgramSizeAtMost,
    RecompilesAtMost,
    SyncsAtMost,
)
from course_utils.findings import Link
from course_utils.instruments.parity import float64_enabled, to_float64
from course_utils.lab import Entry, Functions, Lab, Size
from course_utils.labs._weights import draw_weights

BUCKET = 20
"""Plans of 13 to 20 commands belong together: all can be padded to this many."""

SHORTEST = 13
"""Fewest commands of a plan in this bucket."""

DT = 0.1
"""Seconds from one command to the next."""


class Drone(eqx.Module):
    """A drone in the wind, whose gusts a small layer has learned."""

    wind: eqx.nn.Linear

    def __init__(self, *, key: PRNGKeyArray):
        self.wind = eqx.nn.Linear(6, 3, key=key)

    def __call__(self, state: Float[Array, "6"], command: Float[Array, "3"]) -> Float[Array, "6"]:
        """Return how fast the state changes, per second.

        Args:
            state: position in metres, then velocity in metres per second.
            command: acceleration asked of the rotors, in metres per second squared.
        """
        velocity = state[3:]
        gust = 2.0 * jnp.tanh(self.wind(state))
        return jnp.concatenate([velocity, command + gust - 0.2 * velocity])


# region student-broken
def broken_rollout(drone, state, commands):
    """Return the state (6,) after all commands (n, 3): position, velocity."""

    @eqx.filter_jit
    def run(drone, state, commands):
        for i in range(len(commands)):
            middle = state + DT / 2 * drone(state, commands[i])
            state = state + DT * drone(middle, commands[i])
        return state

    return run(drone, state, commands)


# endregion


# region student-solution
def step(drone, state, command):
    """Return the state one command later."""
    middle = state + DT / 2 * drone(state, command)
    return state + DT * drone(middle, command)


@eqx.filter_jit
def run(drone, state, commands, given):
    """Return the state after those commands that were given."""

    def turn(state, each):
        command, is_given = each
        return jnp.where(is_given, step(drone, state, command), state), None

    state, _ = jax.lax.scan(turn, state, (commands, given), unroll=2)
    return state


def solution_rollout(drone, state, commands):
    """Return the state (6,) after all commands (n, 3): position, velocity."""
    padding = BUCKET - len(commands)
    padded = np.pad(commands, ((0, padding), (0, 0)))
    given = np.arange(BUCKET) < len(commands)
    return run(drone, state, padded, given)


# endregion


def make_drone(seed: int) -> Drone:
    """Return a drone in a wind with random weights."""
    return draw_weights(Drone, rng=np.random.default_rng(seed))


@dataclass(frozen=True, eq=False)
class Plan:
    """What the planner hands over: commands on the host, as many as the plan has.

    The last one asks nothing of the rotors; the drone flies on while it lasts.

    Attributes:
        commands: accelerations in metres per second squared, (n, 3).
    """

    commands: np.ndarray


States = tuple[Float[Array, "6"], ...]


def make_plans(rng: np.random.Generator, count: int) -> tuple[States, tuple[Plan, ...]]:
    """Return random starts and plans, each plan with another number of commands of the bucket.

    Two or more plans hold one that fills the bucket and one of the shortest.
    """
    between = rng.permutation(np.arange(SHORTEST + 1, BUCKET))
    ends = rng.permutation([BUCKET, SHORTEST])
    lengths = rng.permutation(np.concatenate([ends, between])[:count])
    states, plans = [], []
    for length in lengths:
        start = np.concatenate([rng.normal(0.0, 5.0, 3), rng.normal(0.0, 3.0, 3)])
        states.append(jnp.asarray(start, dtype=jnp.float32))
        commands = rng.normal(0.0, 3.0, (length, 3))
        commands[-1] = 0.0
        plans.append(Plan(commands.astype(np.float32)))
    return tuple(states), tuple(plans)


def roll_all_out(
    functions: Functions, args: tuple[Drone, States, tuple[Plan, ...]]
) -> tuple[Array, ...]:
    """Run one pass: one call for each plan."""
    drone, states, plans = args
    return tuple(
        functions["rollout"](drone, state, plan.commands)
        for state, plan in zip(states, plans, strict=True)
    )


def reference(drone: Drone, states: States, plans: tuple[Plan, ...]) -> tuple[np.ndarray, ...]:
    """Return where each plan leads, computed in float64."""
    with float64_enabled():
        wide, results = to_float64(drone), []
        for start, plan in zip(states, plans, strict=True):
            state = np.asarray(start, dtype=np.float64)
            for command in plan.commands.astype(np.float64):
                middle = state + DT / 2 * np.asarray(_change(wide, state, command))
                state = state + DT * np.asarray(_change(wide, middle, command))
            results.append(state)
        return tuple(results)


_change: Any = eqx.filter_jit(Drone.__call__)


def position_error(expected, got) -> float:
    """Return the largest distance between where a drone ends and where it should, in metres."""
    return max(float(np.linalg.norm(each[:3])) for each in _apart(expected, got))


def velocity_error(expected, got) -> float:
    """Return the largest error of a final velocity, in metres per second."""
    return max(float(np.linalg.norm(each[3:])) for each in _apart(expected, got))


def _apart(expected, got):
    pairs = zip(expected, got, strict=True)
    return [np.asarray(mine, dtype=np.float64) - right for right, mine in pairs]


_CHAPTER = "book/chapters/02_underfused"

LAB = Lab(
    name="underfused_rollout",
    title="A simulation that compiles at every call",
    family="under-fused",
    minutes=25,
    difficulty=2,
    goal="Roll a Python loop up into a scan, and compile it once for all lengths of a bucket.",
    item="plan",
    entries=(Entry("rollout", ("drone", "state", "commands")),),
    broken={"rollout": broken_rollout},
    solution={"rollout": solution_rollout},
    # Two CPU cores, jax 0.10.2: the measurements stand beside each check. A GPU gets the same size,
    # which was not measured on one: what is counted does not depend on it.
    sizes={"cpu": Size(None, items=2, timed_items=1)},
    prepare=lambda config, seed: make_drone(seed),
    arguments=lambda size, drone, rng, count: (drone, *make_plans(rng, count)),
    oracle=reference,
    # Each check: first what right submissions reach, then broken or the nearest wrong one. There is
    # no check on time: once compiled, an unrolled simulation is as fast as a rolled one. What it
    # costs is the compiling, whose seconds the findings on compiles report.
    checks=(
        # Up to 4e-6 m; 0.005 to 0.03 m in bfloat16, 0.15 m and more by Euler's rule, 0.2 m where a
        # command of zeros is taken for padding, 0.6 m without the mask.
        MetricWithin(
            "position error",
            position_error,
            tolerance=0.001,
            unit="m",
            link=Link(_CHAPTER, "the-fix"),
        ),
        # Up to 1.4e-6 m/s; 0.004 to 0.026 m/s in bfloat16, 0.04 to 0.25 by Euler's rule.
        MetricWithin(
            "velocity error",
            velocity_error,
            tolerance=0.001,
            unit="m/s",
            link=Link(_CHAPTER, "the-fix"),
        ),
        # 0; 1, for the second plan, whether not padded, made in the call or static; broken 1.
        RecompilesAtMost(
            0, link=Link("book/chapters/03_boundary", "ragged-inputs"), alike="of one bucket"
        ),
        # 0; 2 for the same mistakes.
        CompilesAtMost(0, link=Link(_CHAPTER, "the-fix"), alike="of the same bucket"),
        # 1, compiled ahead of time 3; 16.5 for a jitted step in a Python loop.
        LaunchesAtMost(
            8,
            link=Link(_CHAPTER, "a-python-loop-around-a-jit"),
            hints={
                "parts": "The step is compiled and launched for each command: move the loop into "
                "the jit, with `jax.lax.scan`.",
            },
        ),
        # 112 to 356, and 656 where four steps are unrolled; 1,880 for a plan of 20 unrolled.
        ProgramSizeAtMost(
            820,
            launches=8,
            link=Link(_CHAPTER, "unrolled-loops"),
            hint="Python's loop copies the step out for each command: use `jax.lax.scan` over the "
            "commands, and unroll a few steps at most.",
        ),
        SyncsAtMost(0, link=Link(_CHAPTER, "the-fix")),
    ),
    drive=roll_all_out,
    argument_names=("drone", "states", "plans"),
)
