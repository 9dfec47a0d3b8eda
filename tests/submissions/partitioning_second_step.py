"""Submissions of the lab partitioning_second_step."""

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from course_utils.labs.partitioning_second_step import (
    DECAY,
    broken_save,
    broken_start,
    broken_step,
    solution_save,
    solution_start,
    solution_step,
    squared_error,
)
from tests.submissions import fails, packaged, passes, too_slow

LAB = "partitioning_second_step"

SOLUTION = {"start": solution_start, "step": solution_step, "save": solution_save}


def copy_of(tree):
    return jax.tree.map(jnp.copy, tree)


class Run(NamedTuple):
    """A run that holds arrays alone."""

    model: Any
    average: Any
    state: Any
    rate: Any
    lowest: Any


adam = optax.scale_by_adam()


def start(model, rate, before):
    """Start a run whose rate is an array of its own."""
    lowest = jnp.float32(jnp.inf) if before is None else before.lowest
    return Run(copy_of(model), copy_of(model), adam.init(model), jnp.float32(rate), lowest)


def step(batch, run, *, loss_of=squared_error, decay=DECAY):
    """One step, jitted by nobody."""
    loss, grads = jax.value_and_grad(loss_of)(run.model, batch)
    updates, state = adam.update(grads, run.state)
    model = jax.tree.map(lambda old, change: old - run.rate * change, run.model, updates)
    average = jax.tree.map(lambda a, b: decay * a + (1 - decay) * b, run.average, model)
    lowest = jnp.minimum(run.lowest, loss)
    return Run(model, average, state, run.rate, lowest), loss, loss < run.lowest


def save(run):
    return copy_of(run.average)


plain_step: Any = jax.jit(step, donate_argnums=1)

# Right, in other idioms.


def save_on_the_host(run):
    """Save as NumPy arrays, as one would into a file."""
    return jax.device_get(run.average)


@functools.partial(jax.jit, donate_argnums=1)
def _optimizer_alone(kept, state):
    """Donate the optimizer's state; the weights stay."""
    batch, run = kept
    new, *rest = step(batch, run._replace(state=state))
    return new, *rest


def optimizer_alone(batch, run):
    return _optimizer_alone((batch, run._replace(state=None)), run.state)


def save_without_copy(run):
    return run.average


@jax.jit
def _jitted_start(model, rate, lowest):
    return Run(model, model, adam.init(model), rate, lowest)


def start_in_a_jit(model, rate, before):
    """A jit's results are arrays of their own, unless they are its arguments: those are copied."""
    lowest = np.float32(np.inf) if before is None else before.lowest
    return _jitted_start(copy_of(model), np.float32(rate), lowest)._replace(average=copy_of(model))


class AheadOfTime:
    """Compiles the step by hand, once."""

    def __init__(self):
        self.compiled = None

    def __call__(self, batch, run):
        if self.compiled is None:
            self.compiled = plain_step.lower(batch, run).compile()
        return self.compiled(batch, run)


# Wrong.


def start_with_weak_lowest(model, rate, before):
    run = solution_start(model, rate, before)
    return run._replace(lowest=jnp.asarray(jnp.inf)) if before is None else run


def start_anew(model, rate, before):
    """Begin the lowest loss anew at every rate, so that a later and worse run is saved."""
    return start(model, rate, None)


def start_with_a_python_rate(model, rate, before):
    run = start(model, rate, before)
    return run._replace(rate=rate)


python_rate: Any = eqx.filter_jit(step, donate="all-except-first")


def not_donated(batch, run):
    return _undonated(batch, run)


_undonated: Any = eqx.filter_jit(step)


@functools.partial(jax.jit, donate_argnums=1)
def _average_alone(kept, average):
    batch, run = kept
    return step(batch, run._replace(average=average))


def average_alone(batch, run):
    return _average_alone((batch, run._replace(average=None)), run.average)


def start_without_copies(model, rate, before):
    return start(model, rate, before)._replace(model=model, average=model)


def start_with_the_model_itself(model, rate, before):
    return start(model, rate, before)._replace(model=model)


def save_the_weights(run):
    return copy_of(run.model)


def save_in_half_precision(run):
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float16).astype(jnp.float32), run.average)


class FirstRate:
    """Keeps the optimizer that it made for the first rate."""

    def __init__(self):
        self.rate = None

    def __call__(self, model, rate, before):
        self.rate = self.rate or rate
        return start(model, self.rate, before)


def start_with_twice_the_rate(model, rate, before):
    return start(model, 2 * rate, before)


def _bfloat16_loss(model, batch):
    model, batch = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), (model, batch))
    return squared_error(model, batch).astype(jnp.float32)


half: Any = jax.jit(functools.partial(step, loss_of=_bfloat16_loss), donate_argnums=1)
slower_average: Any = jax.jit(functools.partial(step, decay=0.9), donate_argnums=1)


def _repeated_loss(model, batch):
    """The loss of the batch, and of 499 others after it, of which none is kept."""
    rolled = jnp.arange(500)

    def one(shift):
        return squared_error(model, jax.tree.map(lambda leaf: jnp.roll(leaf, shift, 0), batch))

    return jax.lax.map(one, rolled)[0]


repeated: Any = jax.jit(functools.partial(step, loss_of=_repeated_loss), donate_argnums=1)


SUBMISSIONS = [
    *packaged(LAB, broken_fails_by="saved model"),
    passes(LAB, "rate as an array of the run", start=start, step=plain_step, save=save),
    passes(LAB, "saved on the host", **{**SOLUTION, "save": save_on_the_host}),
    passes(
        LAB,
        "optimizer's state alone donated",
        start=start,
        step=optimizer_alone,
        save=save_without_copy,
    ),
    passes(
        LAB,
        "start in a jit, step compiled ahead of time",
        start=start_in_a_jit,
        step=AheadOfTime(),
        save=save,
    ),
    fails(
        LAB,
        "copy alone mended",
        "recompiles on the first pass",
        start=broken_start,
        step=broken_step,
        save=save,
    ),
    fails(
        LAB,
        "lowest loss still weak",
        "recompiles on the first pass",
        **{**SOLUTION, "start": start_with_weak_lowest},
    ),
    fails(
        LAB,
        "lowest loss forgotten",
        "saved model",
        start=start_anew,
        step=plain_step,
        save=save,
    ),
    fails(
        LAB,
        "rate as a Python number",
        "recompiles on the first pass",
        start=start_with_a_python_rate,
        step=python_rate,
        save=save,
    ),
    fails(LAB, "nothing copied when saved", "saved model", **{**SOLUTION, "save": broken_save}),
    fails(LAB, "not donated", "donated bytes", start=start, step=not_donated, save=save),
    fails(
        LAB, "average alone donated", "donated bytes", start=start, step=average_alone, save=save
    ),
    fails(LAB, "same array twice", "runs", start=start_without_copies, step=plain_step, save=save),
    fails(
        LAB,
        "model not copied",
        "runs",
        start=start_with_the_model_itself,
        step=plain_step,
        save=save,
    ),
    fails(LAB, "without jit", "launches", start=start, step=step, save=save),
    fails(
        LAB,
        "weights saved, not their average",
        "saved model",
        start=start,
        step=plain_step,
        save=save_the_weights,
    ),
    fails(
        LAB,
        "saved in float16",
        "saved model",
        start=start,
        step=plain_step,
        save=save_in_half_precision,
    ),
    fails(LAB, "slower average", "saved model", start=start, step=slower_average, save=save),
    fails(LAB, "first rate kept", "loss error", start=FirstRate(), step=plain_step, save=save),
    fails(
        LAB,
        "twice the rate",
        "loss error",
        start=start_with_twice_the_rate,
        step=plain_step,
        save=save,
    ),
    fails(LAB, "bfloat16", "loss error", start=start, step=half, save=save),
    too_slow(
        LAB,
        "500 batches and one kept",
        "time against the solution",
        start=start,
        step=repeated,
        save=save,
    ),
]
