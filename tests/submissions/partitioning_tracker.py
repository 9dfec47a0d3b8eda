"""Submissions of the lab partitioning_tracker."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from course_utils.labs.partitioning_tracker import (
    Settings,
    State,
    Tracker,
    follow,
)
from tests.submissions import fails, packaged, passes, too_slow

LAB = "partitioning_tracker"


def soften(features):
    return jnp.tanh(features / 2)


def threshold_of(number):
    return 0.75 / (1 + number / 16)


def step(network, state, frame, number, exposure, *, threshold=None):
    """One step, jitted by nobody."""
    threshold = threshold_of(number) if threshold is None else threshold
    return follow(state, soften(network(frame / (255 * exposure))), number, threshold)


def as_arrays(number, exposure):
    return np.int32(number), np.float32(exposure)


@eqx.filter_jit(donate="all-except-first")
def _donating(given, state):
    network, frame, number, exposure, *threshold = given
    return step(network, state, frame, number, exposure, threshold=(*threshold, None)[0])


# Right, in other idioms.

_plain_jit: Any = jax.jit(step, donate_argnames="state")


def plain_jit(network, state, frame, number, exposure):
    """`jax.jit` traces Python numbers; the network holds arrays alone."""
    return _plain_jit(network, state, frame, number, exposure, threshold=threshold_of(number))


def numbers_as_jax_arrays(network, state, frame, number, exposure):
    numbers = (jnp.asarray(each) for each in (number, exposure, threshold_of(number)))
    return _donating((network, frame, *numbers), state)


class Camera(eqx.Module):
    """Holds the exposure as an array; its jitted method takes over the state."""

    exposure: jax.Array
    full: int = eqx.field(static=True)

    @eqx.filter_jit(donate="all-except-first")
    def follow(self, state, given):
        network, frame, number = given
        light = frame / (self.full * self.exposure)
        return follow(state, soften(network(light)), number, threshold_of(number))


def module_with_an_array(network, state, frame, number, exposure):
    # What is donated with the state is a copy: the network must live.
    given = jax.tree.map(jnp.copy, network), frame.copy(), jnp.asarray(number)
    return Camera(jnp.float32(exposure), 255).follow(state, given)


class AheadOfTime:
    """Compiles at the first frame, by hand."""

    def __init__(self):
        self.compiled = None

    def __call__(self, network, state, frame, number, exposure):
        numbers = as_arrays(number, exposure)
        if self.compiled is None:
            self.compiled = _plain_jit.lower(network, state, frame, *numbers).compile()
        return self.compiled(network, state, frame, *numbers)


# Wrong.


@eqx.filter_jit
def _tracker_step(tracker, state, frame, number, threshold):
    light = frame / (tracker.settings.full * tracker.settings.exposure)
    return follow(state, tracker.soften(tracker.network(light)), number, threshold)


def settings_kept_static(network, state, frame, number, exposure):
    tracker = Tracker(network, Settings(255, exposure), soften)
    threshold = np.float32(threshold_of(number))
    return _tracker_step(tracker, state, frame, np.int32(number), threshold)


def lambda_kept(network, state, frame, number, exposure):
    exposed: Any = Settings(255, 1.0)
    tracker = Tracker(network, exposed, lambda features: jnp.tanh(features / 2))
    number, exposure = as_arrays(number, exposure)
    return _tracker_step(
        tracker, state, frame / exposure, number, threshold_of(jnp.float32(number))
    )


_by_number: Any = jax.jit(step, static_argnames="number", donate_argnames="state")


def number_static(network, state, frame, number, exposure):
    return _by_number(network, state, frame, number=number, exposure=exposure)


class CacheByNumber:
    """Makes a jit for each number, and remembers it."""

    def __init__(self):
        self.cache = {}

    def __call__(self, network, state, frame, number, exposure):
        if number not in self.cache:
            numbered = functools.partial(step, number=number)
            self.cache[number] = jax.jit(numbered, donate_argnames="state")
        return self.cache[number](network, state, frame, exposure=exposure)


def not_donated(network, state, frame, number, exposure):
    return _undonated(network, state, frame, *as_arrays(number, exposure))


_undonated: Any = jax.jit(step)


_give_to_a_copy = jax.jit(
    lambda state: jax.tree.map(lambda leaf: leaf + 0, state), donate_argnums=0
)


def donated_to_a_copy(network, state, frame, number, exposure):
    """Gives the state away, and computes the new one beside a copy of it."""
    return _undonated(network, _give_to_a_copy(state), frame, *as_arrays(number, exposure))


@functools.partial(jax.jit, donate_argnums=1)
def _small_parts(background: Any, small: Any, given: Any):
    network, *rest = given
    return step(network, State(**small, background=background), *rest)


def background_not_donated(network, state, frame, number, exposure):
    small = state._asdict()
    background = small.pop("background")
    given = network, frame, *as_arrays(number, exposure)
    return _small_parts(background, small, given)


def network_donated(network, state, frame, number, exposure):
    """Gives the network away as well, with something of its size to write over it."""
    return _with_network(network, state, frame, *as_arrays(number, exposure))[0]


@eqx.filter_jit(donate="all")
def _with_network(network, state, frame, number, exposure):
    result = step(network, state, frame, number, exposure)
    return result, jax.tree.map(lambda leaf: leaf * 0.5, network)


def without_jit(network, state, frame, number, exposure):
    return step(network, state, frame, *as_arrays(number, exposure))


def jitted_parts_only(network, state, frame, number, exposure):
    features = soften(_network(network, frame, np.float32(exposure)))
    return follow(state, features, number, threshold_of(number))


_network = jax.jit(lambda network, frame, exposure: network(frame / (255 * exposure)))


class FirstThreshold:
    """Compiles once, with the first frame's threshold in it."""

    def __init__(self):
        self.threshold = None

    def __call__(self, network, state, frame, number, exposure):
        if self.threshold is None:
            self.threshold = np.float32(threshold_of(number))
        given = network, frame, *as_arrays(number, exposure), self.threshold
        return _donating(given, state)


_thresholds = jnp.asarray([threshold_of(number) for number in range(24)], jnp.float32)


def _from_table(network, state, frame, number, exposure):
    return step(network, state, frame, number, exposure, threshold=_thresholds[number])


_by_table: Any = jax.jit(_from_table, donate_argnames="state")


def threshold_from_a_table(network, state, frame, number, exposure):
    """Has the first 24 frames' thresholds; an index beyond the table gives the last, silently."""
    return _by_table(network, state, frame, *as_arrays(number, exposure))


def number_in_eight_bits(network, state, frame, number, exposure):
    numbers = np.uint8(number), np.float32(exposure), np.float32(threshold_of(number))
    return _donating((network, frame, *numbers), state)


def exposure_ignored(network, state, frame, number, exposure):
    return _donating((network, frame, *as_arrays(number, 1.0)), state)


class NetworkKept:
    """Closes over the first network it sees."""

    def __init__(self):
        self.jitted = None

    def __call__(self, network, state, frame, number, exposure):
        if self.jitted is None:
            self.jitted = jax.jit(functools.partial(step, network), donate_argnums=0)
        return self.jitted(state, frame, *as_arrays(number, exposure))


@functools.partial(jax.jit, donate_argnames="state")
def _background_kept(network, state, frame, number, exposure):
    new, *rest = step(network, state, frame, number, exposure)
    return new._replace(background=state.background), *rest


def background_not_renewed(network, state, frame, number, exposure):
    return _background_kept(network, state, frame, *as_arrays(number, exposure))


@functools.partial(jax.jit, donate_argnames="state")
def _never_sure(network, state, frame, number, exposure):
    new, position, certainty = step(network, state, frame, number, exposure)
    return new, position, jnp.zeros_like(certainty)


def certainty_left_out(network, state, frame, number, exposure):
    return _never_sure(network, state, frame, *as_arrays(number, exposure))


def _half_step(network, state, frame, number, exposure):
    def half(leaf):
        return leaf.astype(jnp.bfloat16)

    features = jax.tree.map(half, network)(half(frame / (255 * exposure)))
    return follow(state, soften(features.astype(jnp.float32)), number, threshold_of(number))


_half: Any = jax.jit(_half_step, donate_argnames="state")


def network_in_bfloat16(network, state, frame, number, exposure):
    return _half(network, state, frame, *as_arrays(number, exposure))


@functools.partial(jax.jit, donate_argnames="state")
def _all_exposures(network, state, frame, number, exposure):
    tried = exposure + 0.01 * jnp.arange(16)
    lights = frame[None] / (255 * tried[:, None, None, None])
    features = jax.lax.map(lambda light: soften(network(light)), lights)
    return follow(state, features[0], number, threshold_of(number))


def sixteen_exposures_one_kept(network, state, frame, number, exposure):
    return _all_exposures(network, state, frame, *as_arrays(number, exposure))


SUBMISSIONS = [
    *packaged(LAB, broken_fails_by="recompiles on the first pass"),
    passes(LAB, "plain jit", track=plain_jit),
    passes(LAB, "numbers as JAX arrays", track=numbers_as_jax_arrays),
    passes(LAB, "module with an array", track=module_with_an_array),
    passes(LAB, "compiled ahead of time", track=AheadOfTime()),
    fails(LAB, "settings kept static", "recompiles on the first pass", track=settings_kept_static),
    fails(LAB, "lambda kept", "recompiles on the first pass", track=lambda_kept),
    fails(LAB, "number static", "recompiles on the first pass", track=number_static),
    fails(LAB, "a jit for each number", "recompiles on the first pass", track=CacheByNumber()),
    fails(LAB, "not donated", "donated bytes", track=not_donated),
    fails(LAB, "donated to a copy", "donated bytes", track=donated_to_a_copy),
    fails(LAB, "background not donated", "donated bytes", track=background_not_donated),
    fails(LAB, "network donated", "runs", track=network_donated),
    fails(LAB, "without jit", "launches", track=without_jit),
    fails(LAB, "jitted network alone", "launches", track=jitted_parts_only),
    fails(LAB, "first threshold kept", "position error", track=FirstThreshold()),
    fails(LAB, "thresholds of 24 frames in a table", "state error", track=threshold_from_a_table),
    fails(LAB, "number in eight bits", "runs", track=number_in_eight_bits),
    fails(LAB, "exposure ignored", "position error", track=exposure_ignored),
    fails(LAB, "network kept", "position error", track=NetworkKept()),
    fails(LAB, "background not renewed", "position error", track=background_not_renewed),
    fails(LAB, "certainty left out", "certainty error", track=certainty_left_out),
    fails(LAB, "bfloat16", "position error", track=network_in_bfloat16),
    too_slow(
        LAB,
        "sixteen exposures and one kept",
        "time against the solution",
        track=sixteen_exposures_one_kept,
    ),
]
