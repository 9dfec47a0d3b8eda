"""Submissions of the lab measurement_budget."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from course_utils.labs.measurement_budget import (
    STAGES,
    broken_match,
    solution_clip_rows,
    solution_destripe,
)
from tests.submissions import fails, packaged, passes, too_slow

LAB = "measurement_budget"


def returning(**stages):
    """Return an `edits` that replaces these stages."""
    return lambda: stages


# Right, in other idioms.


@jax.jit
@jax.vmap
def destripe_by_vmap(row):
    return row - jnp.median(row)


@jax.jit
@jax.vmap
def clip_by_vmap(row):
    deviation = jnp.sqrt(jnp.mean(row**2))
    return jnp.clip(row, -3 * deviation, 9 * deviation)


@eqx.filter_jit
def destripe_by_sorting(image):
    ordered = jnp.sort(image, axis=1)
    middle = image.shape[1] // 2
    return image - (ordered[:, middle - 1 : middle + 1]).mean(axis=1)[:, None]


@eqx.filter_jit
def clip_by_bounds(image):
    deviation = jnp.linalg.norm(image, axis=1, keepdims=True) / image.shape[1] ** 0.5
    return jnp.maximum(jnp.minimum(image, 9 * deviation), -3 * deviation)


def destripe_eagerly(image):
    return image - jnp.median(image, axis=1, keepdims=True)


def clip_eagerly(image):
    deviation = jnp.sqrt(jnp.mean(image**2, axis=1, keepdims=True))
    return jnp.clip(image, -3 * deviation, 9 * deviation)


def every_stage_named():
    return {**STAGES, "destripe": destripe_by_vmap, "clip_rows": clip_by_vmap}


# Wrong.


def jits_made_in_edits():
    return {
        "destripe": jax.jit(lambda image: destripe_eagerly(image)),
        "clip_rows": jax.jit(lambda image: clip_eagerly(image)),
    }


@jax.jit
def means_for_medians(image):
    return image - image.mean(axis=1, keepdims=True)


@jax.jit
def destripe_and_clip(image):
    return solution_clip_rows(solution_destripe(image))


@jax.jit
def _both(image):
    image = solution_destripe(image)
    return image, solution_clip_rows(image)


_handed_over = {}


def destripe_for_both(image):
    image, _handed_over["clipped"] = _both(image)
    return image


def clip_rows_done_before(image):
    """Return what the stage before it has computed as well; the image is not looked at."""
    return _handed_over["clipped"]


@jax.jit
def whole_pipeline(image):
    for name in list(STAGES)[1:]:
        image = {"destripe": solution_destripe, "clip_rows": solution_clip_rows}.get(
            name, STAGES[name]
        )(image)
    return image


def in_half_precision(stage):
    return jax.jit(lambda image: stage(image.astype(jnp.bfloat16)).astype(jnp.float32))


@jax.jit
def median_of_a_row(row):
    return row - jnp.median(row)


def one_launch_a_row(image):
    return jnp.stack([median_of_a_row(row) for row in image])


def sixteen_times(stage):
    """Return the stage, doing its work on the image rolled by 0 to 15 rows; the first is kept."""

    @jax.jit
    def repeated(image):
        return jax.lax.map(lambda by: stage(jnp.roll(image, by, 0)), jnp.arange(16))[0]

    return repeated


destripe_sixteen_times = sixteen_times(solution_destripe)
clip_sixteen_times = sixteen_times(solution_clip_rows)


@functools.cache
def _first_answer():
    return {}


def remembers(image):
    answers = _first_answer()
    return answers.setdefault("image", solution_destripe(image))


def through_numpy(image):
    values = np.asarray(image)
    return values - np.median(values, axis=1, keepdims=True)


SUBMISSIONS = [
    *packaged(LAB, broken_fails_by="smallest share of a changed stage"),
    passes(LAB, "vmap", edits=returning(destripe=destripe_by_vmap, clip_rows=clip_by_vmap)),
    passes(
        LAB,
        "sorting and bounds",
        edits=returning(destripe=destripe_by_sorting, clip_rows=clip_by_bounds),
    ),
    passes(
        LAB,
        "whole images without a jit",
        edits=returning(destripe=destripe_eagerly, clip_rows=clip_eagerly),
    ),
    passes(LAB, "every stage named", edits=every_stage_named),
    fails(LAB, "nothing", "stages changed", edits=dict),
    fails(
        LAB,
        "three stages",
        "stages changed",
        edits=returning(
            destripe=solution_destripe, clip_rows=solution_clip_rows, match=broken_match
        ),
    ),
    fails(
        LAB,
        "the slowest and the one that looks heavy",
        "smallest share of a changed stage",
        edits=returning(destripe=solution_destripe, match=broken_match),
    ),
    fails(LAB, "jits made in edits", "compiles on a second pass", edits=jits_made_in_edits),
    fails(
        LAB,
        "two stages in one",
        "results of the changed stages",
        edits=returning(destripe=destripe_and_clip, clip_rows=lambda image: image),
    ),
    fails(
        LAB,
        "two stages in one, handed over in a global",
        "results of the changed stages",
        edits=returning(destripe=destripe_for_both, clip_rows=clip_rows_done_before),
    ),
    fails(LAB, "the pipeline in one stage", "runs", edits=returning(destripe=whole_pipeline)),
    fails(
        LAB,
        "means for medians",
        "pointing error",
        edits=returning(destripe=means_for_medians, clip_rows=solution_clip_rows),
    ),
    fails(
        LAB,
        "bfloat16",
        "pointing error",
        edits=returning(
            destripe=in_half_precision(solution_destripe), clip_rows=solution_clip_rows
        ),
    ),
    fails(
        LAB,
        "remembers the first frame",
        "pointing error",
        edits=returning(destripe=remembers, clip_rows=solution_clip_rows),
    ),
    fails(
        LAB,
        "NumPy array returned",
        "results of the changed stages",
        edits=returning(destripe=through_numpy, clip_rows=solution_clip_rows),
    ),
    fails(LAB, "no such stage", "runs", edits=returning(striping=solution_destripe)),
    fails(LAB, "the slowest alone", "launches", edits=returning(destripe=solution_destripe)),
    fails(
        LAB,
        "one row loop left",
        "launches",
        edits=returning(destripe=one_launch_a_row, clip_rows=solution_clip_rows),
    ),
    too_slow(
        LAB,
        "sixteen times the work and one kept",
        "time against the solution",
        edits=returning(destripe=destripe_sixteen_times, clip_rows=clip_sixteen_times),
    ),
]
