"""Submissions of the lab underfused_tracks."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from course_utils import labs
from course_utils.labs.underfused_tracks import (
    choose,
    correct,
    distances,
    make_motion,
    nearest,
    predict,
)
from tests.submissions import fails, packaged, passes, too_slow

LAB = "underfused_tracks"


def advance(motion, mean, covariance, candidates, present):
    mean, covariance = predict(motion, mean, covariance)
    apart = distances(motion, mean, covariance, candidates)
    chosen, found = nearest(motion, apart, candidates, present)
    corrected = correct(motion, mean, covariance, chosen)
    return choose(found, corrected, (mean, covariance))


advance_all: Any = jax.vmap(advance, in_axes=(None, 0, 0, None, None))


def follow(motion, mean, covariance, detections, seen):
    """Return one track's positions (frames, 2)."""

    def step(track, frame):
        track = advance(motion, *track, *frame)
        return track, track[0][:2]

    return jax.lax.scan(step, (mean, covariance), (detections, seen))[1]


def scanned(motion, means, covariances, detections, seen, *, unroll=1, step_all=advance_all):
    def step(tracks, frame):
        tracks = step_all(motion, *tracks, *frame)
        return tracks, tracks[0][:, :2]

    tracks = (means, covariances)
    return jax.lax.scan(step, tracks, (detections, seen), unroll=unroll)[1]


# Right, in other idioms.


@eqx.filter_jit
def vmap_of_scan(motion, means, covariances, detections, seen):
    every_track = jax.vmap(follow, in_axes=(None, 0, 0, None, None), out_axes=1)
    return every_track(motion, means, covariances, detections, seen)


@jax.jit
def map_of_scan(motion, means, covariances, detections, seen):
    def one(track):
        mean, covariance = track
        return follow(motion, mean, covariance, detections, seen)

    return jnp.moveaxis(jax.lax.map(one, (means, covariances)), 0, 1)


@jax.jit
def fori(motion, means, covariances, detections, seen):
    def step(frame, carry):
        *tracks, positions = carry
        means, covariances = advance_all(motion, *tracks, detections[frame], seen[frame])
        return means, covariances, positions.at[frame].set(means[:, :2])

    positions = jnp.zeros((len(detections), len(means), 2))
    return jax.lax.fori_loop(0, len(detections), step, (means, covariances, positions))[2]


class Tracker(eqx.Module):
    """A tracker whose method is jitted, and unrolls a little."""

    unroll: int = eqx.field(static=True)

    @eqx.filter_jit
    def __call__(self, *args):
        return scanned(*args, unroll=self.unroll)


_compiled = {}


def ahead_of_time(*args):
    key = tuple(leaf.shape for leaf in jax.tree.leaves(args))
    if key not in _compiled:
        _compiled[key] = jax.jit(scanned).lower(*args).compile()
    return _compiled[key](*args)


# Wrong.

jit_advance = jax.jit(advance)
jit_frame = jax.jit(lambda *args: advance_all(*args))
jit_follow = jax.jit(lambda *args: follow(*args))


def one_jit_a_track_and_frame(motion, means, covariances, detections, seen):
    tracks = [(means[i], covariances[i]) for i in range(len(means))]
    positions = []
    for frame in range(len(detections)):
        candidates, present = detections[frame], seen[frame]
        tracks = [jit_advance(motion, *track, candidates, present) for track in tracks]
        positions.append(jnp.stack([mean[:2] for mean, _ in tracks]))
    return jnp.stack(positions)


def one_jit_a_frame(motion, means, covariances, detections, seen):
    positions = []
    for frame in range(len(detections)):
        means, covariances = jit_frame(motion, means, covariances, detections[frame], seen[frame])
        positions.append(means[:, :2])
    return jnp.stack(positions)


def one_jit_a_track(motion, means, covariances, detections, seen):
    positions = [
        jit_follow(motion, means[i], covariances[i], detections, seen) for i in range(len(means))
    ]
    return jnp.stack(positions, axis=1)


@jax.jit
def frames_unrolled(motion, means, covariances, detections, seen):
    positions = []
    for frame in range(len(detections)):
        means, covariances = advance_all(motion, means, covariances, detections[frame], seen[frame])
        positions.append(means[:, :2])
    return jnp.stack(positions)


def track_by_track(motion, means, covariances, candidates, present):
    """Do what `advance_all` does with a Python loop over the tracks."""
    tracks = [
        advance(motion, mean, covariance, candidates, present)
        for mean, covariance in zip(means, covariances, strict=True)
    ]
    means, covariances = zip(*tracks, strict=True)
    return jnp.stack(means), jnp.stack(covariances)


@jax.jit
def tracks_unrolled(*args):
    return scanned(*args, step_all=track_by_track)


@functools.partial(jax.jit, static_argnums=2)
def _frame_by_number(motion, tracks, frame, detections, seen):
    return advance_all(motion, *tracks, detections[frame], seen[frame])


def frame_number_static(motion, means, covariances, detections, seen):
    positions = []
    for frame in range(len(detections)):
        means, covariances = _frame_by_number(motion, (means, covariances), frame, detections, seen)
        positions.append(means[:, :2])
    return jnp.stack(positions)


def jit_in_the_call(*args):
    return jax.jit(lambda *args: scanned(*args))(*args)


@jax.jit
def _tracked(*args):
    return scanned(*args)


def asks_whether_anything_was_seen(motion, means, covariances, detections, seen):
    if not jnp.any(seen):
        return jnp.broadcast_to(means[:, :2], (len(detections), len(means), 2))
    return _tracked(motion, means, covariances, detections, seen)


@jax.jit
def absent_detections_used(motion, means, covariances, detections, seen):
    return scanned(motion, means, covariances, detections, jnp.ones_like(seen))


@jax.jit
def without_gate(motion, *args):
    return scanned(motion._replace(gate=jnp.inf), *args)


@jax.jit
def without_covariance(motion, means, covariances, detections, seen):
    """Correct the means alone: the covariances stay what they were."""

    def step_all(motion, means, covariances, candidates, present):
        return advance_all(motion, means, covariances, candidates, present)[0], covariances

    return scanned(motion, means, covariances, detections, seen, step_all=step_all)


_motion_of_the_notebook = make_motion(labs.get(LAB).sizes["cpu"].config, 0)


@jax.jit
def motion_of_the_notebook(_motion, *args):
    return scanned(_motion_of_the_notebook, *args)


@jax.jit
def one_covariance_for_all(motion, means, covariances, detections, seen):
    first = jnp.broadcast_to(covariances[0], covariances.shape)
    return scanned(motion, means, first, detections, seen)


@jax.jit
def half(*args):
    def lower(leaf):
        return leaf.astype(jnp.bfloat16) if eqx.is_inexact_array(leaf) else leaf

    return scanned(*jax.tree.map(lower, args)).astype(jnp.float32)


@jax.jit
def a_small_bias(*args):
    return scanned(*args) + 0.1


@jax.jit
def from_the_start_for_each_frame(motion, means, covariances, detections, seen):
    """Track up to each frame anew, as a program that is asked for one frame at a time does."""
    frames = len(detections)

    def position(frame):
        earlier = jnp.arange(frames)[:, None] <= frame
        return scanned(motion, means, covariances, detections, seen & earlier)[frame]

    return jax.lax.map(position, jnp.arange(frames))


SUBMISSIONS = [
    *packaged(LAB, broken_fails_by="launches"),
    passes(LAB, "vmap of scan", track=vmap_of_scan),
    passes(LAB, "lax map of scan", track=map_of_scan),
    passes(LAB, "fori loop", track=fori),
    passes(LAB, "jitted method that unrolls by two", track=Tracker(2)),
    passes(LAB, "compiled ahead of time", track=ahead_of_time),
    fails(LAB, "one jit per track and frame", "launches", track=one_jit_a_track_and_frame),
    fails(LAB, "one jit per frame", "launches", track=one_jit_a_frame),
    fails(LAB, "one jit per track", "launches", track=one_jit_a_track),
    fails(LAB, "frames unrolled", "program size", track=frames_unrolled),
    fails(LAB, "tracks unrolled", "program size", track=tracks_unrolled),
    fails(LAB, "frame number static", "recompiles on the first pass", track=frame_number_static),
    fails(LAB, "jit made in the call", "compiles on a second pass", track=jit_in_the_call),
    fails(
        LAB, "asks whether anything was seen", "host syncs", track=asks_whether_anything_was_seen
    ),
    fails(LAB, "absent detections used", "track error", track=absent_detections_used),
    fails(LAB, "without gate", "track error", track=without_gate),
    fails(LAB, "covariance not corrected", "track error", track=without_covariance),
    fails(LAB, "motion of the notebook", "track error", track=motion_of_the_notebook),
    fails(LAB, "one covariance for all", "track error", track=one_covariance_for_all),
    fails(LAB, "bfloat16", "track error", track=half),
    fails(LAB, "a small bias", "track error", track=a_small_bias),
    too_slow(
        LAB,
        "from the start for each frame",
        "time against the solution",
        track=from_the_start_for_each_frame,
    ),
]
