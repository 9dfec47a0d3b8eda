"""Submissions of the lab my_lab."""

import functools

import jax
import jax.numpy as jnp

from tests.submissions import fails, packaged, passes

LAB = "my_lab"


def step(signal):
    return jnp.tanh(signal) + 0.4 * jnp.roll(signal, 1)


def smoothed(signal, steps=40):
    return jax.lax.fori_loop(0, steps, lambda _, each: step(each), signal)


# Right, in other idioms.


@jax.jit
def batched(signals):
    return jax.vmap(smoothed)(signals)


@jax.jit
def mapped(signals):
    return jax.lax.map(smoothed, signals)


@jax.jit
def scanned(signals):
    def every(signal, _):
        return step(signal), None

    return jax.vmap(lambda signal: jax.lax.scan(every, signal, length=40)[0])(signals)


# Wrong.


def eager_vmap(signals):
    def one(signal):
        for _ in range(40):
            signal = step(signal)
        return signal

    return jax.vmap(one)(signals)


jit_step = jax.jit(step)


def only_the_step(signals):
    results = []
    for i in range(len(signals)):
        signal = signals[i]
        for _ in range(40):
            signal = jit_step(signal)
        results.append(signal)
    return jnp.stack(results)


def jit_in_the_call(signals):
    return jax.jit(jax.vmap(smoothed))(signals)


@functools.partial(jax.jit, static_argnums=1)
def _indexed(signals, index):
    return smoothed(signals[index])


def index_held_static(signals):
    return jnp.stack([_indexed(signals, i) for i in range(len(signals))])


@jax.jit
def one_step_short(signals):
    return jax.vmap(functools.partial(smoothed, steps=39))(signals)


@jax.jit
def first_for_all(signals):
    return jnp.stack([smoothed(signals[0])] * len(signals))


SUBMISSIONS = [
    *packaged(LAB, broken_fails_by="launches"),
    passes(LAB, "vmap in one jit", smooth=batched),
    passes(LAB, "lax map in one jit", smooth=mapped),
    passes(LAB, "a scan over the steps", smooth=scanned),
    fails(LAB, "vmap without jit", "launches", smooth=eager_vmap),
    fails(LAB, "only the step jitted", "launches", smooth=only_the_step),
    fails(LAB, "jit made in the call", "compiles on a second pass", smooth=jit_in_the_call),
    fails(LAB, "index held static", "recompiles on the first pass", smooth=index_held_static),
    fails(LAB, "one step short", "signal error", smooth=one_step_short),
    fails(LAB, "first signal for all", "signal error", smooth=first_for_all),
]
