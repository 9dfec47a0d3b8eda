"""Submissions of the lab boundary_pipeline."""

import functools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from course_utils.labs.boundary_pipeline import (
    broken_expose,
    cut_out,
    decode,
    normalise,
    solution_crop_to_frame,
    solution_expose,
)
from tests.submissions import fails, packaged, passes, too_slow

LAB = "boundary_pipeline"


def heat_of(model, crop):
    """Return the heat maps of a crop, averaged with its mirror image's."""
    return (model(crop) + model(crop[:, :, ::-1])[:, :, ::-1]) / 2


def pure_locate(
    model,
    frame,
    box,
    *,
    matrix_of=solution_crop_to_frame,
    cut_out=cut_out,
    expose=solution_expose,
    heat_of=heat_of,
    decode=decode,
):
    """Locate keypoints, with any of the steps replaced."""
    matrix = matrix_of(box)
    crop = normalise(expose(cut_out(frame, matrix, model.size)))
    return decode(heat_of(model, crop), matrix)


def in_one_jit(**steps):
    """Return a `locate` that is one jit around the pipeline with some steps replaced."""

    @eqx.filter_jit
    def locate(model, frame, box):
        return pure_locate(model, frame, box, **steps)

    return locate


# Right, in other idioms.


def expose_with_cond(crop):
    grey = crop.mean(axis=0)
    low, high = jnp.percentile(grey, jnp.array([2, 98]))
    bright = jnp.clip((crop - low) / (high - low), 0, 1)
    return jax.lax.cond(grey.mean() < 0.3, jnp.sqrt, lambda same: same, bright)


def expose_by_sorting(crop):
    grey = crop.mean(axis=0)
    ordered = jnp.sort(grey.reshape(-1))
    place = jnp.array([0.02, 0.98]) * (ordered.size - 1)
    below = jnp.floor(place).astype(int)
    low, high = ordered[below] + (place - below) * (ordered[below + 1] - ordered[below])
    bright = jnp.clip((crop - low) / (high - low), 0, 1)
    return bright ** jnp.where(grey.mean() < 0.3, 0.5, 1.0)


def heat_by_vmap(model, crop):
    heat, mirrored = jax.vmap(model)(jnp.stack([crop, crop[:, :, ::-1]]))
    return (heat + mirrored[:, :, ::-1]) / 2


@functools.cache
def _on_arrays(static, tree):
    rest = jax.tree.unflatten(tree, static)
    return jax.jit(lambda arrays, frame, box: pure_locate(eqx.combine(arrays, rest), frame, box))


def partitioned(model, frame, box):
    arrays, rest = eqx.partition(model, eqx.is_array)
    leaves, tree = jax.tree.flatten(rest)
    return _on_arrays(tuple(leaves), tree)(arrays, frame, box)


@eqx.filter_jit
def _before(frame, box, size):
    matrix = solution_crop_to_frame(box)
    return normalise(solution_expose(cut_out(frame, matrix, size))), matrix


_network = eqx.filter_jit(heat_of)
_after = eqx.filter_jit(decode)


def three_jits(model, frame, box):
    crop, matrix = _before(frame, box, model.size)
    return _after(_network(model, crop), matrix)


class Camera(eqx.Module):
    """A detector whose jitted method takes the frame as the camera gives it."""

    @eqx.filter_jit
    def __call__(self, model, frame, box):
        return pure_locate(model, frame, box, heat_of=heat_by_vmap)


_compiled = {}


def ahead_of_time(model, frame, box):
    if frame.shape not in _compiled:
        jitted: Any = in_one_jit()
        _compiled[frame.shape] = jitted.lower(model, frame, box).compile()
    return _compiled[frame.shape](model, frame, box)


# Wrong.


def only_before_jitted(model, frame, box):
    crop, matrix = _before(frame, box, model.size)
    return decode(_network(model, crop), matrix)


def only_after_jitted(model, frame, box):
    matrix = solution_crop_to_frame(box)
    crop = normalise(solution_expose(cut_out(frame, matrix, model.size)))
    return _after(_network(model, crop), matrix)


_cut_out = jax.jit(cut_out, static_argnums=2)
_matrix_of = jax.jit(solution_crop_to_frame)
_lifted = jax.jit(lambda crop: normalise(jnp.sqrt(crop)))
_normalise = jax.jit(normalise)


@jax.jit
def _stretched(crop):
    grey = crop.mean(axis=0)
    low, high = jnp.percentile(grey, jnp.array([2, 98]))
    return jnp.clip((crop - low) / (high - low), 0, 1), grey.mean() < 0.3


def condition_on_the_host(model, frame, box):
    matrix = _matrix_of(box)
    crop, dark = _stretched(_cut_out(frame, matrix, model.size))
    crop = _lifted(crop) if dark else _normalise(crop)
    return _after(_network(model, crop), matrix)


def condition_by_numpy(model, frame, box):
    matrix = _matrix_of(box)
    crop, dark = _stretched(_cut_out(frame, matrix, model.size))
    crop = _lifted(crop) if np.bool_(dark) else _normalise(crop)
    return _after(_network(model, crop), matrix)


@eqx.filter_jit
def _with_numbers(model, frame, numbers):
    x, y, side, angle = numbers
    cos, sin = side * math.cos(angle), side * math.sin(angle)
    matrix = jnp.array([[cos, -sin, x], [sin, cos, y]])
    return pure_locate(model, frame, None, matrix_of=lambda _: matrix)


def box_as_numbers(model, frame, box):
    return _with_numbers(model, frame, box.tolist())


def jit_in_the_call(model, frame, box):
    return in_one_jit()(model, frame, box)


def numpy_called_back(crop):
    """Keep the NumPy step as it is, called from inside the compiled program."""
    return jax.pure_callback(
        lambda each: np.asarray(broken_expose(each)),
        jax.ShapeDtypeStruct(crop.shape, "float32"),
        crop,
    )


def expose_without_night(crop):
    low, high = jnp.percentile(crop.mean(axis=0), jnp.array([2, 98]))
    return jnp.clip((crop - low) / (high - low), 0, 1)


def expose_by_extremes(crop):
    grey = crop.mean(axis=0)
    low, high = grey.min(), grey.max()
    bright = jnp.clip((crop - low) / (high - low), 0, 1)
    return jnp.where(grey.mean() < 0.3, jnp.sqrt(bright), bright)


def expose_where(is_dark):
    """Return an `expose` with another test for what is to be lifted."""

    def expose(crop):
        bright = expose_without_night(crop)
        return jnp.where(is_dark(crop), jnp.sqrt(bright), bright)

    return expose


@eqx.filter_jit
def dark_by_the_frame(model, frame, box):
    is_dark = frame.mean() < 0.3 * 255
    return pure_locate(model, frame, box, expose=expose_where(lambda _: is_dark))


dark_by_channel = in_one_jit(
    expose=expose_where(lambda crop: crop.mean(axis=(1, 2), keepdims=True) < 0.3)
)
dark_by_the_median = in_one_jit(expose=expose_where(lambda crop: jnp.median(crop) < 0.3))
dark_below_another_mean = in_one_jit(expose=expose_where(lambda crop: crop.mean() < 0.45))


def heat_without_mirror(model, crop):
    return model(crop)


def heat_in_bfloat16(model, crop):
    def lower(leaf):
        return leaf.astype(jnp.bfloat16) if eqx.is_inexact_array(leaf) else leaf

    return heat_of(jax.tree.map(lower, model), lower(crop)).astype(jnp.float32)


def decode_at_cell_corners(heat, matrix):
    half = 0.5 / heat.shape[1]
    points, sure = decode(heat, matrix)
    return points - (matrix[:, :2] @ jnp.array([[half], [half]])).T, sure


@eqx.filter_jit
def eight_crops_one_kept(model, frame, box):
    """Look at eight crops of slightly different sizes, and return what the first one gives."""
    boxes = box[None, :] * jnp.ones((8, 4)).at[:, 2].add(0.02 * jnp.arange(8))
    points, sure = jax.lax.map(lambda each: pure_locate(model, frame, each), boxes)
    return points[0], sure[0]


SUBMISSIONS = [
    *packaged(LAB, broken_fails_by="launches"),
    passes(LAB, "cond for the night", locate=in_one_jit(expose=expose_with_cond)),
    passes(LAB, "percentiles by sorting", locate=in_one_jit(expose=expose_by_sorting)),
    passes(LAB, "jax jit on a partitioned model", locate=partitioned),
    passes(LAB, "three jits in a row", locate=three_jits),
    passes(LAB, "jitted method of a module", locate=Camera()),
    passes(LAB, "compiled ahead of time", locate=ahead_of_time),
    fails(LAB, "only what comes before jitted", "launches", locate=only_before_jitted),
    fails(LAB, "only what comes after jitted", "launches", locate=only_after_jitted),
    fails(LAB, "condition on the host", "host syncs", locate=condition_on_the_host),
    fails(LAB, "condition by NumPy", "host syncs", locate=condition_by_numpy),
    fails(LAB, "box as numbers", "recompiles on the first pass", locate=box_as_numbers),
    fails(LAB, "jit made in the call", "recompiles on the first pass", locate=jit_in_the_call),
    fails(LAB, "NumPy called back", "host syncs", locate=in_one_jit(expose=numpy_called_back)),
    fails(LAB, "no night", "keypoint error", locate=in_one_jit(expose=expose_without_night)),
    fails(LAB, "dark by the frame", "keypoint error", locate=dark_by_the_frame),
    fails(LAB, "dark by channel", "keypoint error", locate=dark_by_channel),
    fails(LAB, "dark by the median", "keypoint error", locate=dark_by_the_median),
    fails(LAB, "dark below another mean", "keypoint error", locate=dark_below_another_mean),
    fails(LAB, "extremes", "keypoint error", locate=in_one_jit(expose=expose_by_extremes)),
    fails(LAB, "no mirror", "keypoint error", locate=in_one_jit(heat_of=heat_without_mirror)),
    fails(LAB, "bfloat16", "keypoint error", locate=in_one_jit(heat_of=heat_in_bfloat16)),
    fails(LAB, "cell corners", "keypoint error", locate=in_one_jit(decode=decode_at_cell_corners)),
    too_slow(
        LAB,
        "eight crops and one kept",
        "time against the solution",
        locate=eight_crops_one_kept,
    ),
]
