"""Submissions of the lab boundary_views."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from tests.submissions import fails, packaged, passes, too_slow

LAB = "boundary_views"


def sums_of(model, views):
    """Return what a chunk of views adds to the weighted sum, and to the weights."""
    features, trust = jax.vmap(model)(views)
    return jnp.sum(trust * features, axis=0), jnp.sum(trust, axis=0)


def nothing(model):
    return jnp.zeros((model.cells, model.width)), jnp.zeros((model.cells, 1))


def chunked(views, size):
    return views.reshape(-1, size, *views.shape[1:])


def add(left, right):
    return jax.tree.map(jnp.add, left, right)


def by_chunks(model, views, size):
    totals, weights = jax.lax.map(lambda chunk: sums_of(model, chunk), chunked(views, size))
    return model.heights(jnp.sum(totals, axis=0) / jnp.sum(weights, axis=0))


def by_slices(model, views, size):
    def step(i, sums):
        chunk = jax.lax.dynamic_slice_in_dim(views, size * i, size)
        return add(sums, sums_of(model, chunk))

    total, weight = jax.lax.fori_loop(0, len(views) // size, step, nothing(model))
    return model.heights(total / weight)


# Right, in other idioms.


def fused_heights(model, views):
    return by_chunks(model, views, 8)


@eqx.filter_jit
def fori_loop_over_slices(model, views):
    return by_slices(model, views, 4)


@eqx.filter_jit
def last_chunk_smaller(model, views):
    def step(sums, chunk):
        return add(sums, sums_of(model, chunk)), None

    whole = len(views) // 6 * 6
    sums, _ = jax.lax.scan(step, nothing(model), chunked(views[:whole], 6))
    total, weight = add(sums, sums_of(model, views[whole:]))
    return model.heights(total / weight)


@eqx.filter_jit
def one_view_at_a_time(model, views):
    def step(sums, view):
        return add(sums, sums_of(model, view[None])), None

    (total, weight), _ = jax.lax.scan(step, nothing(model), views)
    return model.heights(total / weight)


@eqx.filter_jit
def _add_chunk(model, sums, chunk):
    return add(sums, sums_of(model, chunk))


@eqx.filter_jit
def _heights(model, sums):
    return model.heights(sums[0] / sums[1])


def loop_over_jitted_chunks(model, views):
    sums = nothing(model)
    for start in range(0, len(views), 8):
        sums = _add_chunk(model, sums, views[start : start + 8])
    return _heights(model, sums)


def jitted_on_arrays(model, views):
    arrays, rest = eqx.partition(model, eqx.is_array)
    leaves, tree = jax.tree.flatten(rest)
    if tree not in _on_arrays:
        _on_arrays[tree] = jax.jit(
            lambda arrays, views: fused_heights(
                eqx.combine(arrays, jax.tree.unflatten(tree, leaves)), views
            )
        )
    return _on_arrays[tree](arrays, views)


_on_arrays: dict[Any, Any] = {}


# Wrong.


@eqx.filter_jit
def reduced_outside(model, views):
    features, trust = jax.lax.map(model, views, batch_size=8)
    return model.heights(jnp.sum(trust * features, axis=0) / jnp.sum(trust, axis=0))


@eqx.filter_jit
def too_large_a_chunk(model, views):
    quarters = chunked(views, len(views) // 4)
    totals, weights = jax.lax.map(lambda chunk: sums_of(model, chunk), quarters)
    return model.heights(jnp.sum(totals, axis=0) / jnp.sum(weights, axis=0))


@eqx.filter_jit
def rematerialised(model, views):
    features, trust = jax.vmap(eqx.filter_checkpoint(model))(views)
    return model.heights(jnp.sum(trust * features, axis=0) / jnp.sum(trust, axis=0))


_chunk_features = eqx.filter_jit(lambda model, chunk: jax.vmap(model)(chunk))


@eqx.filter_jit
def _fused_heights(model, features, trust):
    features, trust = jnp.concatenate(features), jnp.concatenate(trust)
    return model.heights(jnp.sum(trust * features, axis=0) / jnp.sum(trust, axis=0))


def chunks_kept_in_a_list(model, views):
    parts = [_chunk_features(model, views[i : i + 8]) for i in range(0, len(views), 8)]
    features, trust = zip(*parts, strict=True)
    return _fused_heights(model, features, trust)


def eager_vmap(model, views):
    total, weight = sums_of(model, views)
    return model.heights(total / weight)


def one_launch_a_view(model, views):
    sums = nothing(model)
    for i in range(len(views)):
        sums = _add_chunk(model, sums, views[i : i + 1])
    return _heights(model, sums)


@eqx.filter_jit
def _add_numbered_chunk(model, sums, views, start):
    return add(sums, sums_of(model, views[start : start + 64]))


def number_of_the_chunk(model, views):
    sums = nothing(model)
    for start in range(0, len(views), 64):
        sums = _add_numbered_chunk(model, sums, views, start)
    return _heights(model, sums)


@eqx.filter_jit
def mean_of_chunk_means(model, views):
    def mean(chunk):
        total, weight = sums_of(model, chunk)
        return total / weight

    return model.heights(jnp.mean(jax.lax.map(mean, chunked(views, 8)), axis=0))


@eqx.filter_jit
def rest_dropped(model, views):
    return by_slices(model, views, 16)


@eqx.filter_jit
def whole_chunks_only(model, views):
    return by_chunks(model, views, 16)


@eqx.filter_jit
def sum_in_bfloat16(model, views):
    def step(sums, chunk):
        more = jax.tree.map(lambda each: each.astype(jnp.bfloat16), sums_of(model, chunk))
        return add(sums, more), None

    start = jax.tree.map(lambda each: each.astype(jnp.bfloat16), nothing(model))
    (total, weight), _ = jax.lax.scan(step, start, chunked(views, 8))
    return model.heights(total.astype(jnp.float32) / weight.astype(jnp.float32))


@eqx.filter_jit
def again_for_each_row_of_cells(model, views):
    """Run all views for each row of cells, and keep that row alone."""
    side = math.isqrt(model.cells)

    def rows_of(first, sums):
        return jax.tree.map(lambda each: jax.lax.dynamic_slice_in_dim(each, first, side), sums)

    def row(first):
        def step(sums, chunk):
            return add(sums, rows_of(first, sums_of(model, chunk))), None

        start = rows_of(first, nothing(model))
        (total, weight), _ = jax.lax.scan(step, start, chunked(views, 8))
        return total / weight

    fused = jax.lax.map(row, jnp.arange(0, model.cells, side))
    return model.heights(fused.reshape(model.cells, -1))


FEWER = "height error with fewer views"

SUBMISSIONS = [
    *packaged(LAB, broken_fails_by="temporary memory"),
    passes(LAB, "fori loop over slices", survey=fori_loop_over_slices),
    passes(LAB, "last chunk smaller", survey=last_chunk_smaller),
    passes(LAB, "scan over single views", survey=one_view_at_a_time),
    passes(LAB, "loop over jitted chunks", survey=loop_over_jitted_chunks),
    passes(LAB, "chunks mapped in a partitioned jit", survey=jitted_on_arrays),
    fails(LAB, "reduced outside the chunk", "temporary memory", survey=reduced_outside),
    fails(LAB, "chunks of a quarter", "temporary memory", survey=too_large_a_chunk),
    fails(LAB, "rematerialised", "temporary memory", survey=rematerialised),
    fails(LAB, "chunks kept in a list", "temporary memory", survey=chunks_kept_in_a_list),
    fails(LAB, "vmap without jit", "temporary memory", survey=eager_vmap),
    fails(LAB, "one launch a view", "launches", survey=one_launch_a_view),
    fails(LAB, "number of the chunk", "recompiles on the first pass", survey=number_of_the_chunk),
    fails(LAB, "mean of the chunks' means", "height error", survey=mean_of_chunk_means),
    fails(LAB, "the rest dropped", FEWER, survey=rest_dropped),
    fails(LAB, "whole chunks of sixteen only", FEWER, survey=whole_chunks_only),
    fails(LAB, "sum in bfloat16", "height error", survey=sum_in_bfloat16),
    too_slow(
        LAB,
        "again for each row of cells",
        "time against the solution",
        survey=again_for_each_row_of_cells,
    ),
]
