"""Lab of the measurement family: a benchmark harness that lies in six ways.

It compares two jitted functions and says how many times faster the second is. It compiles while the
clock runs, reads the clock before the results are there, builds the inputs into what it compiles,
gives the two sides different things, takes one time of each, and averages. What is learned is not a
speed, so no check asks for one: the harness is watched on a scripted machine, where nothing depends
on the weather, and its answers on real functions are compared with the grader's.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from course_utils.checks.harness import (
    CompiledOnce,
    FreshInputs,
    LikeWithLike,
    Pair,
    PairsToldRight,
    RightAnswer,
    SamplesAtLeast,
    SteadyUnderNoise,
    WaitedFor,
    WarmedUp,
    measure,
)
from course_utils.findings import Link
from course_utils.instruments.harness import as_number
from course_utils.lab import Entry, Functions, Lab, Size


# region student-broken
def broken_seconds_per_call(function, inputs):
    """Return how many seconds a call of `function` on `inputs` takes."""
    timed = jax.jit(lambda: function(*inputs))
    start = time.perf_counter()
    for _ in range(3):
        timed()
    return (time.perf_counter() - start) / 3


def broken_compare(f, g, make_inputs):
    """Return how many times faster `g` is than `f`."""
    inputs = make_inputs()
    slow = broken_seconds_per_call(f, inputs)
    fast = broken_seconds_per_call(g, [np.asarray(each) for each in inputs])
    return slow / fast


# endregion


# region student-solution
def solution_seconds(function, inputs):
    """Return how many seconds one call of `function` on `inputs` takes, its result included."""
    start = time.perf_counter()
    jax.block_until_ready(function(*inputs))
    return time.perf_counter() - start


def solution_compare(f, g, make_inputs):
    """Return how many times faster `g` is than `f`."""
    for function in (f, g):
        jax.block_until_ready(function(*make_inputs()))
    slow, fast = [], []
    for _ in range(20):
        inputs = make_inputs()
        slow.append(solution_seconds(f, inputs))
        fast.append(solution_seconds(g, inputs))
    return min(slow) / min(fast)


# endregion


@dataclass(frozen=True)
class PairConfig:
    """Sizes of the real functions: rows of the matrices, steps of the long chain, of the loop."""

    matrix: int
    chain: int
    grid: int
    loop: int


def make_pairs(config: PairConfig, rng: np.random.Generator) -> tuple[Pair, ...]:
    """Return pairs of real functions, never compiled before, whose ratios are far apart.

    Their order, and which of two comes first, is drawn too.
    """

    def inputs(*shape: int) -> Callable[[], tuple[jax.Array]]:
        base = rng.normal(size=shape) / config.matrix**0.5

        def make() -> tuple[jax.Array]:
            return (jnp.asarray(rng.uniform(0.5, 1.0) * base, dtype=jnp.float32),)

        return make

    def products(count: int) -> Callable[[jax.Array], jax.Array]:
        def multiply(x):
            product = x
            for _ in range(count):
                product = jnp.tanh(product @ x)
            return product

        return multiply

    def long_to_compile(x):
        """Many small steps, each another program to write, on one row."""
        row = x[0]
        for step in range(1, config.chain):
            row = jnp.sin(row) + jnp.roll(row, step)
        return row

    def long_to_run(x):
        """A few large products: little to write, much to compute."""
        square = x @ x.T
        return jax.lax.fori_loop(0, 30, lambda _, product: jnp.tanh(product @ square), square)

    def all_constant(x):
        """What XLA computes while compiling, when it is given the values."""
        return jnp.exp(jnp.sin(jnp.tanh(x))).sum(axis=0)

    def never_constant(x):
        """A loop: XLA does not run it while compiling."""
        return jax.lax.fori_loop(0, config.loop, lambda _, row: 0.5 * jnp.cos(row) + x[0], x[0])

    square = inputs(config.matrix, config.matrix)
    twin = products(4)
    drawn = [
        ("a function against itself", twin, twin, square),
        ("ten products against two", products(10), products(2), square),
        (
            "long to compile against long to run",
            long_to_compile,
            long_to_run,
            inputs(config.matrix, 64),
        ),
        (
            "what folds away against what does not",
            all_constant,
            never_constant,
            inputs(config.grid, config.grid),
        ),
    ]
    pairs = []
    for place, number in enumerate(rng.permutation(len(drawn))):
        title, first, second, make = drawn[number]
        is_turned = bool(rng.integers(2))
        f, g = (second, first) if is_turned else (first, second)
        jitted = _jitted(f"f_{place}", f)
        other = jitted if f is g else _jitted(f"g_{place}", g)
        # 12 to 14 times on jax 0.10, 4 to 6 on 0.12, where it varies: only the ranking is asked.
        is_ranked = first is all_constant
        pairs.append(Pair(title, jitted, other, make, is_turned, is_ranked))
    return tuple(pairs)


def _jitted(name: str, function: Any) -> Any:
    function.__name__ = function.__qualname__ = name
    return jax.jit(function)


def compare_all(functions: Functions, args: tuple[tuple[Pair, ...]]) -> tuple[jax.Array, ...]:
    """Run one pass: one comparison for each pair."""
    (pairs,) = args
    answers = [as_number(functions["compare"](pair.f, pair.g, pair.make_inputs)) for pair in pairs]
    return tuple(jnp.asarray(np.float32(answer)) for answer in answers)


_CHAPTER = "book/chapters/06_measurement"

LAB = Lab(
    name="measurement_benchmark",
    title="A benchmark with six lies",
    family="measurement",
    minutes=30,
    difficulty=2,
    goal="Time a jitted function so that the number can be believed.",
    item="pair",
    entries=(Entry("compare", ("f", "g", "make_inputs")),),
    broken={"compare": broken_compare},
    solution={"compare": solution_compare},
    # Two CPU cores, jax 0.10.2: the measurements stand beside each check. A GPU gets the same size,
    # which was not measured on one: there the scripted checks decide all the same.
    sizes={"cpu": Size(PairConfig(160, 8, 1000, 40), items=4, timed_items=4)},
    prepare=lambda config, seed: None,
    arguments=lambda size, setting, rng, count: (make_pairs(size.config, rng),),
    oracle=lambda pairs: tuple(map(measure, pairs)),
    # Each check: first what right submissions reach, then the nearest wrong one, which is broken
    # with all lies mended but this. The scripted machine's counts are exact. There is no check on
    # a speedup, since a harness has none, nor on the time of a comparison: it is the learner's to
    # choose, and the time limit ends what is out of all proportion.
    checks=(
        # 0; 2, one for each side.
        WarmedUp(link=Link(_CHAPTER, "warm-up")),
        # 0; all 40.
        WaitedFor(link=Link(_CHAPTER, "dispatch-is-asynchronous")),
        # 0; 38 with one input for all, 2 with the inputs built in.
        FreshInputs(link=Link(_CHAPTER, "inputs-that-fold-away")),
        # 0; 21 with NumPy arrays for one side.
        LikeWithLike(link=Link(_CHAPTER, "like-with-like")),
        # 20, and 10 for a careful median; 1 for a total of any number of calls.
        SamplesAtLeast(5, link=Link(_CHAPTER, "noise")),
        # 1.0 to 1.01 for a minimum, up to 1.03 for a median; 40 and more for a mean. A geometric
        # mean of 40 ratios 2.3 to 2.5, and of 19, of which one is hit, 1.56 to 1.63.
        SteadyUnderNoise(1.5, link=Link(_CHAPTER, "noise")),
        # 1.01 to 1.04; 9 and more for the ratio turned round, 2 with inputs made while timed.
        RightAnswer(1.2, link=Link(_CHAPTER, "the-fix")),
        # 1; 0 for a jit around it, 2 for two kinds of arguments.
        CompiledOnce(link=Link(_CHAPTER, "inputs-that-fold-away")),
        # The ratio is at most 1.3 times off on a busy machine; 4 and more without a wait.
        PairsToldRight(2, link=Link(_CHAPTER, "the-fix")),
    ),
    drive=compare_all,
    argument_names=("pairs",),
    shows_launches=False,
)
