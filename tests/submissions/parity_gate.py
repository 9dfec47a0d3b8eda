"""Submissions of the lab parity_gate."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from course_utils.labs.parity_gate import (
    TOLERANCE,
    broken_accept,
    broken_predict,
    solution_accept,
    solution_predict,
)
from tests.submissions import Submission, fails, packaged, passes, too_slow

LAB = "parity_gate"
ACCEPTS, REFUSES = "right candidates accepted", "wrong candidates refused"


def distances(reference, candidate, crops):
    """Return how far apart each landmark of each crop is, in pixels: (n, landmarks)."""
    return jnp.linalg.norm(candidate(crops) - reference(crops), axis=-1)


# Right, in other idioms.


def by_allclose(reference, candidate, inputs):
    return all(
        np.allclose(candidate(crops), reference(crops), rtol=0, atol=TOLERANCE) for crops in inputs
    )


@jax.jit
def _worst(mine, right):
    return jnp.sqrt(((mine - right) ** 2).sum(-1)).max()


def in_one_jit(reference, candidate, inputs):
    errors = [_worst(candidate(crops), reference(crops)) for crops in inputs]
    return (jnp.stack(errors) <= TOLERANCE).all()


def in_numpy(reference, candidate, inputs):
    right = np.concatenate([np.asarray(reference(crops)) for crops in inputs])
    mine = np.concatenate([np.asarray(candidate(crops)) for crops in inputs])
    if mine.shape != right.shape or not np.isfinite(mine).all():
        return False
    return bool(np.linalg.norm(mine - right, axis=-1).max() <= TOLERANCE)


def crop_by_crop(reference, candidate, inputs):
    for crops in inputs:
        for mine, right in zip(candidate(crops), reference(crops), strict=True):
            if not jnp.hypot(*(mine - right).T).max() <= TOLERANCE:
                return False
    return True


_one = eqx.filter_jit(lambda model, crop: model(crop))


def predict_crop_by_crop(model, crops):
    return jnp.stack([_one(model, crop) for crop in crops])


@eqx.filter_jit
def predict_in_chunks(model, crops):
    return jax.lax.map(model, crops, batch_size=2)


# Wrong gates.


def accepts_everything(reference, candidate, inputs):
    return True


def guessed_tolerance(reference, candidate, inputs):
    return all(bool(distances(reference, candidate, crops).max() <= 1e-3) for crops in inputs)


def relative_tolerance(reference, candidate, inputs):
    """Add a share of the value to the half pixel."""
    return all(
        np.allclose(candidate(crops), reference(crops), rtol=0.05, atol=TOLERANCE)
        for crops in inputs
    )


def limit_three_times_too_wide(reference, candidate, inputs):
    return all(
        bool(distances(reference, candidate, crops).max() <= 3 * TOLERANCE) for crops in inputs
    )


def rms_over_a_crop(reference, candidate, inputs):
    def rms(crops):
        return jnp.sqrt((distances(reference, candidate, crops) ** 2).mean(axis=1))

    return all(bool((rms(crops) <= TOLERANCE).all()) for crops in inputs)


def pixels_squared(reference, candidate, inputs):
    """Leave the root out, so that half a pixel is held against pixels squared."""

    def squared(crops):
        return ((candidate(crops) - reference(crops)) ** 2).sum(axis=-1)

    return all(bool(squared(crops).max() <= TOLERANCE) for crops in inputs)


def rms_of_x_and_y(reference, candidate, inputs):
    def rms(crops):
        return jnp.sqrt(((candidate(crops) - reference(crops)) ** 2).mean(axis=-1))

    return all(bool(rms(crops).max() <= TOLERANCE) for crops in inputs)


def percentile(reference, candidate, inputs):
    return all(
        bool(jnp.percentile(distances(reference, candidate, crops), 99) <= TOLERANCE)
        for crops in inputs
    )


def keeps_the_reference():
    """Return a gate that computes the reference's landmarks once, at its first call."""
    kept = {}

    def accept(reference, candidate, inputs):
        for number, crops in enumerate(inputs):
            right = kept.setdefault(number, reference(crops))
            if not jnp.linalg.norm(candidate(crops) - right, axis=-1).max() <= TOLERANCE:
                return False
        return True

    return accept


def keeps_the_reference_by_crops():
    """Return a gate that computes the reference's landmarks once for each batch that it sees."""
    kept = {}

    def accept(reference, candidate, inputs):
        for crops in inputs:
            key = np.asarray(crops).tobytes()
            right = kept.setdefault(key, reference(crops))
            if not jnp.linalg.norm(candidate(crops) - right, axis=-1).max() <= TOLERANCE:
                return False
        return True

    return accept


def warmed_up_first(reference, candidate, inputs):
    """Call both once before each comparison, as a benchmark does."""
    for crops in inputs:
        jax.block_until_ready((reference(crops), candidate(crops)))
        if not distances(reference, candidate, crops).max() <= TOLERANCE:
            return False
    return True


def first_landmark_skipped(reference, candidate, inputs):
    return all(
        bool(distances(reference, candidate, crops)[:, 1:].max() <= TOLERANCE) for crops in inputs
    )


def x_alone(reference, candidate, inputs):
    return all(
        bool(jnp.abs(candidate(crops) - reference(crops))[..., 0].max() <= TOLERANCE)
        for crops in inputs
    )


def refuses_what_is_beyond(reference, candidate, inputs):
    """Refuse where the error is larger, which it is not where it is NaN."""
    return not any(
        bool((distances(reference, candidate, crops) > TOLERANCE).any()) for crops in inputs
    )


def first_batch_only(reference, candidate, inputs):
    return bool(distances(reference, candidate, inputs[0]).max() <= TOLERANCE)


def all_in_one_call(reference, candidate, inputs):
    """Make one batch of all, so that what is kept from call to call is not seen."""
    return bool(distances(reference, candidate, jnp.concatenate(inputs)).max() <= TOLERANCE)


def without_the_mean_step(reference, candidate, inputs):
    """Take the common step off, as after an alignment."""

    def errors(crops):
        step = candidate(crops) - reference(crops)
        return jnp.linalg.norm(step - step.mean(axis=(0, 1)), axis=-1)

    return all(bool(errors(crops).max() <= TOLERANCE) for crops in inputs)


def traces_the_candidates(reference, candidate, inputs):
    apart = jax.jit(lambda crops: distances(reference, candidate, crops).max())
    return all(bool(apart(crops) <= TOLERANCE) for crops in inputs)


# Wrong paths.


def jit_in_the_call(model, crops):
    return eqx.filter_jit(lambda model, crops: jax.vmap(model)(crops))(model, crops)


def batched_without_jit(model, crops):
    return jax.vmap(model)(crops)


@eqx.filter_jit
def swapped(model, crops):
    """Give two landmarks each other's place."""
    return jax.vmap(model)(crops)[:, jnp.array([1, 0, *range(2, model.config.landmarks)])]


@eqx.filter_jit
def fourteen_times(model, crops):
    """Compute every crop fourteen times, a little changed, and keep the first."""
    many = crops[None] * (1 + 0.01 * jnp.arange(14.0)[:, None, None, None, None])
    return jax.lax.map(jax.vmap(model), many)[0]


def gate_passes(name, accept) -> Submission:
    return passes(LAB, name, predict=solution_predict, accept=accept)


def gate_fails(name, by, accept) -> Submission:
    return fails(LAB, name, by, predict=solution_predict, accept=accept)


SUBMISSIONS = [
    *packaged(LAB, broken_fails_by=ACCEPTS),
    gate_passes("allclose with pixels", by_allclose),
    gate_passes("distances in one jit", in_one_jit),
    gate_passes("NumPy", in_numpy),
    passes(LAB, "gate and path crop by crop", predict=predict_crop_by_crop, accept=crop_by_crop),
    passes(LAB, "path in chunks", predict=predict_in_chunks, accept=solution_accept),
    gate_fails("only the path", ACCEPTS, broken_accept),
    fails(LAB, "only the gate", "launches", predict=broken_predict, accept=solution_accept),
    gate_fails("accepts everything", REFUSES, accepts_everything),
    gate_fails("guessed tolerance", ACCEPTS, guessed_tolerance),
    gate_fails("relative tolerance", REFUSES, relative_tolerance),
    gate_fails("limit three times too wide", REFUSES, limit_three_times_too_wide),
    gate_fails("RMS over a crop", REFUSES, rms_over_a_crop),
    gate_fails("pixels squared", REFUSES, pixels_squared),
    gate_fails("RMS of x and y", REFUSES, rms_of_x_and_y),
    gate_fails("99th percentile of a batch", REFUSES, percentile),
    gate_fails("reference kept from the first call", ACCEPTS, keeps_the_reference()),
    gate_fails("reference kept for each batch", ACCEPTS, keeps_the_reference_by_crops()),
    gate_fails("warmed up first", REFUSES, warmed_up_first),
    gate_fails("first landmark skipped", REFUSES, first_landmark_skipped),
    gate_fails("x alone", REFUSES, x_alone),
    gate_fails("refuses what is beyond", REFUSES, refuses_what_is_beyond),
    gate_fails("first batch only", REFUSES, first_batch_only),
    gate_fails("all in one call", REFUSES, all_in_one_call),
    gate_fails("without the mean step", REFUSES, without_the_mean_step),
    gate_fails("candidates in a jit", ACCEPTS, traces_the_candidates),
    fails(
        LAB, "batched without jit", "launches", predict=batched_without_jit, accept=solution_accept
    ),
    fails(
        LAB,
        "jit made in the call",
        "compiles on a second pass",
        predict=jit_in_the_call,
        accept=solution_accept,
    ),
    fails(
        LAB, "swapped landmarks taken", "landmark error", predict=swapped, accept=solution_accept
    ),
    too_slow(
        LAB,
        "fourteen times and one kept",
        "time against the solution",
        predict=fourteen_times,
        accept=solution_accept,
    ),
]
