"""Submissions of the lab eager_training."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from course_utils.labs.eager_training import mean_squared_error, optimizer
from tests.submissions import fails, packaged, passes, too_slow

LAB = "eager_training"


def arrays_of(tree):
    return eqx.filter(tree, eqx.is_array)


def step(model, opt_state, batch, *, loss=mean_squared_error, optimizer=optimizer):
    """One whole step, jitted by nobody."""
    value, grads = eqx.filter_value_and_grad(loss)(model, batch)
    updates, opt_state = optimizer.update(grads, opt_state, arrays_of(model))
    return eqx.apply_updates(model, updates), opt_state, value


jit_step: Any = eqx.filter_jit(step)


# Right, in other idioms.


class _Static:
    """What of a model is no array, compared by what it holds."""

    def __init__(self, tree):
        self.leaves, self.tree = jax.tree.flatten(tree)

    def __hash__(self):
        return hash((tuple(self.leaves), self.tree))

    def __eq__(self, other):
        return (self.leaves, self.tree) == (other.leaves, other.tree)

    def get(self):
        return jax.tree.unflatten(self.tree, self.leaves)


@functools.partial(jax.jit, static_argnums=0)
def _partitioned(static, arrays, opt_state, batch):
    model = eqx.combine(arrays, static.get())
    model, opt_state, loss = step(model, opt_state, batch)
    return arrays_of(model), opt_state, loss


def partitioned(model, opt_state, batch):
    arrays, rest = eqx.partition(model, eqx.is_array)
    arrays, opt_state, loss = _partitioned(_Static(rest), arrays, opt_state, batch)
    return eqx.combine(arrays, rest), opt_state, loss


@eqx.filter_jit(donate="all-except-first")
def _donating(batch, model, opt_state):
    return step(model, opt_state, batch)


def donating(model, opt_state, batch):
    return _donating(batch, model, opt_state)


class Trainer(eqx.Module):
    """Holds the optimizer; its method is jitted."""

    optimizer: optax.GradientTransformationExtraArgs = eqx.field(static=True)

    @eqx.filter_jit
    def __call__(self, model, opt_state, batch):
        return step(model, opt_state, batch, optimizer=self.optimizer)


_compiled = {}


def ahead_of_time(model, opt_state, batch):
    key = batch[0].shape
    if key not in _compiled:
        _compiled[key] = jit_step.lower(model, opt_state, batch).compile()
    return _compiled[key](model, opt_state, batch)


jit_grad = eqx.filter_jit(eqx.filter_value_and_grad(mean_squared_error))
jit_update = eqx.filter_jit(optimizer.update)
jit_apply = eqx.filter_jit(eqx.apply_updates)


def three_jits(model, opt_state, batch):
    loss, grads = jit_grad(model, batch)
    updates, opt_state = jit_update(grads, opt_state, arrays_of(model))
    return jit_apply(model, updates), opt_state, loss


# Wrong.


def only_the_gradient(model, opt_state, batch):
    loss, grads = jit_grad(model, batch)
    updates, opt_state = optimizer.update(grads, opt_state, arrays_of(model))
    return eqx.apply_updates(model, updates), opt_state, loss


def gradient_and_optimizer(model, opt_state, batch):
    loss, grads = jit_grad(model, batch)
    updates, opt_state = jit_update(grads, opt_state, arrays_of(model))
    return eqx.apply_updates(model, updates), opt_state, loss


@eqx.filter_jit
def _numbered(model, opt_state, batch, number):
    return step(model, opt_state, batch)


class Numbered:
    """Passes the place in a round of three steps as a Python number."""

    def __init__(self):
        self.steps = 0

    def __call__(self, model, opt_state, batch):
        self.steps += 1
        return _numbered(model, opt_state, batch, self.steps % 3)


@eqx.filter_jit
def _verbose(model, opt_state, batch, verbose):
    return step(model, opt_state, batch)


class QuietLater:
    """Changes a Python flag after the first twenty steps."""

    def __init__(self):
        self.steps = 0

    def __call__(self, model, opt_state, batch):
        self.steps += 1
        return _verbose(model, opt_state, batch, self.steps <= 20)


def stops_on_nan(model, opt_state, batch):
    model, opt_state, loss = jit_step(model, opt_state, batch)
    if jnp.isnan(loss):
        raise FloatingPointError("the loss is not a number")
    return model, opt_state, loss


def stops_when_it_diverges(model, opt_state, batch):
    model, opt_state, loss = jit_step(model, opt_state, batch)
    if not np.float32(loss) < 1e6:
        raise FloatingPointError("diverged")
    return model, opt_state, loss


def _half_loss(model, batch):
    def lower(leaf):
        return leaf.astype(jnp.bfloat16) if eqx.is_inexact_array(leaf) else leaf

    model, (joints, depths) = jax.tree.map(lower, (model, batch))
    return mean_squared_error(model, (joints, depths)).astype(jnp.float32)


@eqx.filter_jit
def half(model, opt_state, batch):
    return step(model, opt_state, batch, loss=_half_loss)


without_decay = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(learning_rate=3e-3))


@eqx.filter_jit
def decay_dropped(model, opt_state, batch):
    clip_state, (adam_state, nothing, rate_state) = opt_state
    bare: Any = clip_state, (adam_state, rate_state)
    model, bare, loss = step(model, bare, batch, optimizer=without_decay)
    return model, (bare[0], (bare[1][0], nothing, bare[1][1])), loss


without_clip = optax.adamw(learning_rate=3e-3, weight_decay=1e-2)


@eqx.filter_jit
def clip_dropped(model, opt_state, batch):
    clip_state, state = opt_state
    model, state, loss = step(model, state, batch, optimizer=without_clip)
    return model, (clip_state, state), loss


@eqx.filter_jit
def state_not_returned(model, opt_state, batch):
    model, _, loss = step(model, opt_state, batch)
    return model, opt_state, loss


@eqx.filter_jit
def never_updated(model, opt_state, batch):
    _, opt_state, loss = step(model, opt_state, batch)
    return model, opt_state, loss


@eqx.filter_jit
def update_every_other_step(model, opt_state, batch):
    new, opt_state, loss = step(model, opt_state, batch)
    state: Any = opt_state
    skip = state[1][0].count % 2 == 0
    model = jax.tree.map(lambda a, b: jnp.where(skip, a, b), model, new)
    return model, opt_state, loss


@eqx.filter_jit
def constant_loss(model, opt_state, batch):
    model, opt_state, _ = step(model, opt_state, batch)
    return model, opt_state, jnp.float32(1.0)


class HiddenCopy:
    """Trains a copy that it keeps, reports its loss, and hands the model back untrained."""

    def __init__(self):
        self.given = self.copy = None

    def __call__(self, model, opt_state, batch):
        if model is not self.given:
            self.given = self.copy = model
        self.copy, opt_state, loss = jit_step(self.copy, opt_state, batch)
        return model, opt_state, loss


@eqx.filter_jit
def batch_not_cut(model, opt_state, batch):
    """Accumulate the gradient over small batches, each of which is the whole one, reordered."""

    def add(total, shift):
        part = jax.tree.map(lambda leaf: jnp.roll(leaf, shift, axis=0), batch)
        loss_and_grads = eqx.filter_value_and_grad(mean_squared_error)(model, part)
        return jax.tree.map(jnp.add, total, loss_and_grads), None

    parts = len(batch[0])
    zeros = jax.tree.map(jnp.zeros_like, (jnp.float32(0.0), arrays_of(model)))
    total, _ = jax.lax.scan(add, zeros, jnp.arange(parts))
    loss, grads = jax.tree.map(lambda leaf: leaf / parts, total)
    updates, opt_state = optimizer.update(grads, opt_state, arrays_of(model))
    return eqx.apply_updates(model, updates), opt_state, loss


SUBMISSIONS = [
    *packaged(LAB, broken_fails_by="launches"),
    passes(LAB, "jax jit on a partitioned model", train_step=partitioned),
    passes(LAB, "donates model and state", train_step=donating),
    passes(LAB, "jitted method of a trainer", train_step=Trainer(optimizer)),
    passes(LAB, "compiled ahead of time", train_step=ahead_of_time),
    passes(LAB, "three jits", train_step=three_jits),
    fails(LAB, "only the gradient jitted", "launches", train_step=only_the_gradient),
    fails(LAB, "update of the weights eager", "launches", train_step=gradient_and_optimizer),
    fails(LAB, "a number as an argument", "recompiles on the first pass", train_step=Numbered()),
    fails(LAB, "a flag that changes", "compiles on a second pass", train_step=QuietLater()),
    fails(LAB, "stops on NaN", "host syncs", train_step=stops_on_nan),
    fails(LAB, "stops when it diverges", "host syncs", train_step=stops_when_it_diverges),
    fails(LAB, "bfloat16", "loss error", train_step=half),
    fails(LAB, "clip dropped", "loss error", train_step=clip_dropped),
    fails(LAB, "weight decay dropped", "held-out depth error", train_step=decay_dropped),
    fails(LAB, "state not returned", "loss error", train_step=state_not_returned),
    fails(LAB, "never updated", "loss error", train_step=never_updated),
    fails(LAB, "update every other step", "loss error", train_step=update_every_other_step),
    fails(LAB, "constant loss", "loss error", train_step=constant_loss),
    fails(LAB, "hidden copy trained", "held-out depth error", train_step=HiddenCopy()),
    too_slow(
        LAB, "batch not cut for accumulation", "time against the solution", train_step=batch_not_cut
    ),
]
