"""Second lab of the partitioning family: a training loop that compiles twice, then once per rate.

A small network learns where an object will be next from where it was; a trainer tries several
learning rates, keeps an average of the weights, and saves that average when the loss is the lowest
so far. Its step is one jitted function that donates what it replaces. It compiles a second time at
the second step, again for every learning rate, and the saved average is gone when it is wanted.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from course_utils.checks import (
    CompilesAtMost,
    DonatedBytesAtLeast,
    LaunchesAtMost,
    MetricWithin,
    RecompilesAtMost,
    SavedWithin,
    TimeWithin,
)
from course_utils.findings import Link
from course_utils.instruments.parity import float64_enabled, to_float64
from course_utils.lab import Entry, Functions, Lab, Size
from course_utils.labs._weights import draw_weights

PAST = 8
"""Positions that a forecast is made from."""
DECAY = 0.8
"""Share of the average of the weights that a step leaves as it was."""

Paths = Float[Array, "batch past 2"]
Points = Float[Array, "batch 2"]
Batch = tuple[Paths, Points]


class TrainingConfig(NamedTuple):
    """Width of the network, paths in a batch, and steps at one learning rate."""

    width: int
    batch: int
    steps: int


class Forecaster(eqx.Module):
    """Three linear layers from an object's path to where it will be next."""

    first: eqx.nn.Linear
    second: eqx.nn.Linear
    last: eqx.nn.Linear

    def __init__(self, config: TrainingConfig, *, key: PRNGKeyArray):
        first, second, last = jax.random.split(key, 3)
        self.first = eqx.nn.Linear(2 * PAST, config.width, key=first)
        self.second = eqx.nn.Linear(config.width, config.width, key=second)
        self.last = eqx.nn.Linear(config.width, 2, key=last)

    def __call__(self, path: Float[Array, "past 2"]) -> Float[Array, "2"]:
        """Return the next position, in metres, as the path is."""
        hidden = jax.nn.relu(self.first(path.reshape(-1)))
        return path[-1] + self.last(jax.nn.relu(self.second(hidden)))


def squared_error(model: Forecaster, batch: Batch) -> Float[Array, ""]:
    """Return the mean squared error of a batch's forecasts, in square metres."""
    paths, points = batch
    return jnp.mean((jax.vmap(model)(paths) - points) ** 2)


# region student-broken
class Run(NamedTuple):
    """What a step replaces: weights, their average, the optimizer with its state, lowest loss."""

    model: Any
    average: Any
    optimizer: optax.GradientTransformation
    opt_state: Any
    lowest: Array


def copy_of(tree):
    """Return a tree with arrays of its own."""
    return jax.tree.map(jnp.copy, tree)


def broken_start(model, rate, before):
    """Return a new run. `before` is the sweep's previous run, or None."""
    optimizer = optax.adam(rate)
    opt_state = optimizer.init(eqx.filter(model, eqx.is_array))
    lowest = jnp.asarray(jnp.inf) if before is None else before.lowest
    return Run(copy_of(model), copy_of(model), optimizer, opt_state, lowest)


@eqx.filter_jit(donate="all-except-first")
def broken_step(batch, run):
    """Return the run one step later, the loss before it, and whether that is the lowest so far."""
    loss, grads = eqx.filter_value_and_grad(squared_error)(run.model, batch)
    updates, opt_state = run.optimizer.update(grads, run.opt_state)
    model = eqx.apply_updates(run.model, updates)
    average = jax.tree.map(lambda old, new: DECAY * old + (1 - DECAY) * new, run.average, model)
    lowest = jnp.minimum(run.lowest, loss)
    return Run(model, average, run.optimizer, opt_state, lowest), loss, loss < run.lowest


def broken_save(run):
    """Return the averaged weights, to be used after the sweep."""
    return run.average


# endregion


# region student-solution
class Training(NamedTuple):
    """What a step replaces: weights, their average, the optimizer's state, lowest loss."""

    model: Any
    average: Any
    opt_state: Any
    lowest: Array


optimizer = optax.inject_hyperparams(optax.adam)(learning_rate=0.0)


def copy_of_tree(tree):
    """Return a tree with arrays of its own."""
    return jax.tree.map(jnp.copy, tree)


def solution_start(model, rate, before):
    """Return a new run. `before` is the sweep's previous run, or None."""
    opt_state: Any = optimizer.init(eqx.filter(model, eqx.is_array))
    opt_state.hyperparams["learning_rate"] = jnp.asarray(rate, jnp.float32)
    lowest = jnp.asarray(jnp.inf, jnp.float32) if before is None else before.lowest
    return Training(copy_of_tree(model), copy_of_tree(model), opt_state, lowest)


@eqx.filter_jit(donate="all-except-first")
def solution_step(batch, run):
    """Return the run one step later, the loss before it, and whether that is the lowest so far."""
    loss, grads = eqx.filter_value_and_grad(squared_error)(run.model, batch)
    updates, opt_state = optimizer.update(grads, run.opt_state)
    model = eqx.apply_updates(run.model, updates)
    average = jax.tree.map(lambda old, new: DECAY * old + (1 - DECAY) * new, run.average, model)
    lowest = jnp.minimum(run.lowest, loss)
    return Training(model, average, opt_state, lowest), loss, loss < run.lowest


def solution_save(run):
    """Return the averaged weights, to be used after the sweep."""
    return copy_of_tree(run.average)


# endregion


class Swept(NamedTuple):
    """What a sweep over learning rates leaves behind.

    Attributes:
        losses: the loss before each step, of each rate after the other.
        saved: the averaged weights that were saved last.
        lost: how many of their arrays could not be read any more; zeros stand for them.
        held_out: paths that no step has seen, as they were given.
    """

    losses: tuple[Float[Array, ""], ...]
    saved: Forecaster
    lost: Array
    held_out: Paths


def make_model(config: TrainingConfig, seed: int) -> Forecaster:
    """Return a network with random weights."""
    return draw_weights(Forecaster, config, rng=np.random.default_rng(seed))


def make_paths(rng: np.random.Generator, count: int) -> Batch:
    """Return objects' paths, ending near the origin, and where they go next, both in metres.

    An object turns at a steady rate and slows down; positions are seen with some noise.
    """
    heading, turn = rng.uniform(-np.pi, np.pi, count), rng.uniform(-0.5, 0.5, count)
    speed, slowing = rng.uniform(0.5, 2.0, count), rng.uniform(0.8, 1.0, count)
    times = np.arange(PAST + 1)
    angles = heading[:, None] + turn[:, None] * times
    steps = speed[:, None] * slowing[:, None] ** times
    moves = steps[..., None] * np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    path = np.cumsum(moves, axis=1)
    path = path - path[:, PAST - 1 : PAST] + rng.normal(0.0, 0.02, path.shape)
    return (
        jnp.asarray(path[:, :PAST], dtype=jnp.float32),
        jnp.asarray(path[:, PAST], dtype=jnp.float32),
    )


def make_sweep(
    config: TrainingConfig, model: Forecaster, rng: np.random.Generator, count: int
) -> tuple[Forecaster, tuple[float, ...], tuple[Batch, ...], Paths]:
    """Return a model, learning rates, one batch for each step, and held-out paths."""
    rates = tuple(round(float(each), 4) for each in rng.uniform(0.004, 0.01, count))
    batches = tuple(make_paths(rng, config.batch) for _ in range(config.steps))
    return model, rates, batches, make_paths(rng, config.batch)[0]


def sweep(functions: Functions, args: tuple[Any, ...]) -> Swept:
    """Train once for each learning rate, and look at every second step whether to save."""
    model, rates, batches, held_out = args
    run, saved, losses = None, model, []
    for rate in rates:
        run = functions["start"](model, rate, run)
        for number, batch in enumerate(batches, start=1):
            run, loss, is_lowest = functions["step"](batch, run)
            losses.append(loss)
            if number % 2 == 0 and bool(is_lowest):
                saved = functions["save"](run)
    readable, lost = _readable(saved)
    return Swept(tuple(losses), readable, lost, held_out)


def _readable(tree: Any) -> tuple[Any, Array]:
    """Return the tree with zeros where an array is deleted, and how many those are.

    What was saved as NumPy arrays, as for a file, comes back as JAX arrays.
    """
    lost = [leaf for leaf in jax.tree.leaves(tree) if _is_deleted(leaf)]

    def read(leaf: Any) -> Any:
        if _is_deleted(leaf):
            return jnp.asarray(np.zeros(leaf.shape, leaf.dtype))
        return jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf

    return jax.tree.map(read, tree), jnp.asarray(np.int32(len(lost)))


def _is_deleted(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and leaf.is_deleted()


class _Exact(NamedTuple):
    """A run in the reference."""

    model: Any
    average: Any
    moments: Any
    rate: Array
    lowest: Array


_moments = optax.scale_by_adam()


def _exact_start(model: Any, rate: float, before: _Exact | None) -> _Exact:
    lowest = jnp.asarray(jnp.inf, jnp.float64) if before is None else before.lowest
    return _Exact(model, model, _moments.init(model), jnp.asarray(rate, jnp.float64), lowest)


@jax.jit
def _exact_step(batch: Batch, run: _Exact) -> tuple[_Exact, Array, Array]:
    loss, grads = jax.value_and_grad(squared_error)(run.model, batch)
    updates, moments = _moments.update(grads, run.moments)
    model = jax.tree.map(lambda old, change: old - run.rate * change, run.model, updates)
    average = jax.tree.map(lambda a, b: DECAY * a + (1 - DECAY) * b, run.average, model)
    new = _Exact(model, average, moments, run.rate, jnp.minimum(run.lowest, loss))
    return new, loss, loss < run.lowest


def reference(*args: Any) -> Swept:
    """Return the sweep computed in float64, with nothing donated."""
    exact = {"start": _exact_start, "step": _exact_step, "save": lambda run: run.average}
    with float64_enabled():
        return jax.tree.map(np.asarray, sweep(exact, to_float64(args)))


def loss_error(expected: Swept, got: Swept) -> float:
    """Return the largest difference between the losses of one step, in square metres."""
    apart = np.asarray(got.losses, dtype=np.float64) - np.asarray(expected.losses)
    return float(np.abs(apart).max())


def forecast_error(expected: Swept, got: Swept) -> float:
    """Return how far the saved models' forecasts of held-out paths are apart, in millimetres."""
    with float64_enabled():
        held_out = to_float64(expected.held_out)
        points = [_forecasts(to_float64(each.saved), held_out) for each in (expected, got)]
        return 1000 * float(np.abs(np.subtract(*map(np.asarray, points))).max())


@jax.jit
def _forecasts(model: Forecaster, paths: Paths) -> Points:
    return jax.vmap(model)(paths)


def weight_bytes(config: TrainingConfig) -> int:
    """Return the size of the network's weights in bytes."""
    width = config.width
    return 4 * ((2 * PAST + 1) * width + (width + 1) * width + 2 * (width + 1))


_CHAPTER = "book/chapters/04_partitioning"
_CPU = TrainingConfig(width=64, batch=64, steps=5)

LAB = Lab(
    name="partitioning_second_step",
    title="A training loop that compiles twice, then once per rate",
    family="partitioning",
    minutes=30,
    difficulty=3,
    goal="Keep a training loop at one compile, and donate without losing what must live.",
    item="learning rate",
    entries=(
        Entry("start", ("model", "rate", "before")),
        Entry("step", ("batch", "run")),
        Entry("save", ("run",)),
    ),
    broken={"start": broken_start, "step": broken_step, "save": broken_save},
    solution={"start": solution_start, "step": solution_step, "save": solution_save},
    sizes={
        # Two CPU cores, jax 0.10.2: the measurements stand beside each check.
        "cpu": Size(_CPU, items=2, timed_items=1),
        # Not measured: no GPU was at hand.
        "gpu": Size(TrainingConfig(width=512, batch=512, steps=5), items=2, timed_items=1),
    },
    prepare=make_model,
    arguments=lambda size, model, rng, count: make_sweep(size.config, model, rng, count),
    argument_names=("model", "rates", "batches", "held_out"),
    drive=sweep,
    consumes=True,
    shows_launches=False,
    oracle=reference,
    # No check on the speedup: what the broken code loses is compiles. They are counted exactly; to
    # time them, every grade would compile the step two dozen times.
    checks=(
        MetricWithin(
            "loss error", loss_error, tolerance=0.001, unit="m²", link=Link(_CHAPTER, "the-fix")
        ),
        # Right ways are off by up to 0.0094; 0.18 at least saved in float16.
        SavedWithin(
            "saved model",
            forecast_error,
            tolerance=0.05,
            unit="mm",
            link=Link(_CHAPTER, "the-alias-trap"),
            lost=lambda swept: int(swept.lost),
            saved="saved model",
            hint="`save` returned the run's own arrays, and the next step wrote over them: it was "
            "given them to do so. Save a copy: `copy_of(run.average)`.",
        ),
        RecompilesAtMost(
            0, link=Link(_CHAPTER, "every-way-to-retrace"), alike="with batches of one shape"
        ),
        CompilesAtMost(
            0, link=Link(_CHAPTER, "every-way-to-retrace"), alike="with batches of shapes seen"
        ),
        LaunchesAtMost(200, link=Link(_CHAPTER, "the-fix")),
        # In each step four times the weights: they, their average, the optimizer's two moments.
        # Without weights and average two times; the average alone once.
        DonatedBytesAtLeast(
            lambda config: 3 * weight_bytes(config) // 2 * config.steps,
            "the run",
            link=Link(_CHAPTER, "donate-what-you-replace"),
        ),
        # 1 to 3.3 times, the most with many other processes; 26 for a loss computed 500 times over.
        TimeWithin(8, link=Link(_CHAPTER, "the-fix")),
    ),
)
