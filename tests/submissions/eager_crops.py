"""Submissions of the lab eager_crops."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from tests.submissions import fails, packaged, passes, too_slow

LAB = "eager_crops"


def stack(results):
    points, visibilities = zip(*results, strict=True)
    return jnp.stack(points), jnp.stack(visibilities)


def per_crop(forward):
    """Return a `predict` that calls `forward(model, crop, mask)` for one crop at a time."""

    def predict(model, crops, masks):
        return stack([forward(model, crops[i], masks[i]) for i in range(len(crops))])

    return predict


# Right, in other idioms.


@eqx.filter_jit
def batched(model, crops, masks):
    return jax.vmap(model)(crops, masks)


@eqx.filter_jit
def mapped(model, crops, masks):
    return jax.lax.map(lambda pair: model(*pair), (crops, masks))


def partitioned(model, crops, masks):
    arrays, rest = eqx.partition(model, eqx.is_array)
    leaves, tree = jax.tree.flatten(rest)
    hashable = _Static(tuple(leaves), tree)
    return stack([_partitioned(arrays, hashable, crops[i], masks[i]) for i in range(len(crops))])


class _Static:
    """The part of a model that is no array, hashable so that `jax.jit` can hold it static."""

    def __init__(self, leaves, tree):
        self.leaves, self.tree = leaves, tree

    def __hash__(self):
        return hash((self.leaves, self.tree))

    def __eq__(self, other):
        return (self.leaves, self.tree) == (other.leaves, other.tree)


@functools.partial(jax.jit, static_argnums=1)
def _partitioned(arrays, static, crop, mask):
    rest = jax.tree.unflatten(static.tree, static.leaves)
    return eqx.combine(arrays, rest)(crop, mask)


class Predictor(eqx.Module):
    """A predictor whose method is jitted."""

    @eqx.filter_jit
    def __call__(self, model, crop, mask):
        return model(crop, mask)


_compiled = {}


def ahead_of_time(model, crops, masks):
    key = crops.shape[1:]
    if key not in _compiled:
        jitted: Any = eqx.filter_jit(lambda model, crop, mask: model(crop, mask))
        _compiled[key] = jitted.lower(model, crops[0], masks[0]).compile()
    return per_crop(_compiled[key])(model, crops, masks)


# Wrong.


@eqx.filter_jit
def block_forward(block, tokens, shown):
    return block(tokens, shown)


class _JittedBlock(eqx.Module):
    block: eqx.Module

    def __call__(self, tokens, shown):
        return block_forward(self.block, tokens, shown)


def only_the_blocks(model, crops, masks):
    inner = eqx.tree_at(lambda m: m.blocks, model, [_JittedBlock(b) for b in model.blocks])
    return per_crop(lambda m, crop, mask: inner(crop, mask))(model, crops, masks)


@eqx.filter_jit
def _indexed(model, crop, mask, index):
    return model(crop, mask)


def index_as_argument(model, crops, masks):
    return stack([_indexed(model, crops[i], masks[i], i) for i in range(len(crops))])


def jit_in_the_call(model, crops, masks):
    forward = eqx.filter_jit(lambda model, crop, mask: model(crop, mask))
    return per_crop(forward)(model, crops, masks)


def eager_vmap(model, crops, masks):
    return jax.vmap(model)(crops, masks)


def in_precision(dtype):
    """Return a `predict` that computes in another precision."""

    def lower(leaf):
        return leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf

    @eqx.filter_jit
    def predict(model, crops, masks):
        points, visibilities = jax.vmap(jax.tree.map(lower, model))(lower(crops), masks)
        return points.astype(jnp.float32), visibilities.astype(jnp.float32)

    return predict


_kept = []


def model_kept_from_the_first_call(model, crops, masks):
    if not _kept:
        _kept.append(jax.jit(lambda crops, masks: jax.vmap(model)(crops, masks)))
    return _kept[0](crops, masks)


@eqx.filter_jit
def biased(model, crops, masks):
    points, visibilities = jax.vmap(model)(crops, masks)
    return points + 0.2, visibilities


@eqx.filter_jit
def without_mask(model, crops, masks):
    return jax.vmap(model)(crops, jnp.ones_like(masks))


@eqx.filter_jit
def first_crop_for_all(model, crops, masks):
    point, visibility = model(crops[0], masks[0])
    count = len(crops)
    return jnp.stack([point] * count), jnp.stack([visibility] * count)


@eqx.filter_jit
def sixteen_times(model, crops, masks):
    """Return the right answer after computing it sixteen times over."""

    def once_more(_, results):
        nudge = 0.0 * (results[0].sum() + results[1].sum())
        return jax.vmap(model)(crops + nudge, masks)

    return jax.lax.fori_loop(0, 15, once_more, jax.vmap(model)(crops, masks))


@eqx.filter_jit
def needless_crops(model, crops, masks):
    """Return the right answer beside that of 39 other crops for each, which nobody needs."""

    def beside_others(crop, mask):
        others = crop * (1 + 0.01 * jnp.arange(40.0)[:, None, None, None])
        points, visibility = jax.vmap(model, in_axes=(0, None))(others, mask)
        return points[0] + 0.0 * points.sum(), visibility[0]

    return jax.vmap(beside_others)(crops, masks)


def waits_for_each(model, crops, masks):
    parts = []
    for i in range(len(crops)):
        point, visibility = batched(model, crops[i : i + 1], masks[i : i + 1])
        if bool(visibility.sum() < 0):
            continue
        parts.append((point, visibility))
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)


SUBMISSIONS = [
    *packaged(LAB, broken_fails_by="launches"),
    passes(LAB, "vmap in one jit", predict=batched),
    passes(LAB, "lax map in one jit", predict=mapped),
    passes(LAB, "jax jit on a partitioned model", predict=partitioned),
    passes(LAB, "jitted method of a module", predict=per_crop(Predictor())),
    passes(LAB, "compiled ahead of time", predict=ahead_of_time),
    fails(LAB, "only the blocks jitted", "launches", predict=only_the_blocks),
    fails(LAB, "vmap without jit", "launches", predict=eager_vmap),
    fails(LAB, "index as an argument", "recompiles on the first pass", predict=index_as_argument),
    fails(LAB, "jit made in the call", "compiles on a second pass", predict=jit_in_the_call),
    fails(LAB, "bfloat16", "landmark error", predict=in_precision(jnp.bfloat16)),
    fails(LAB, "float16", "landmark error", predict=in_precision(jnp.float16)),
    fails(LAB, "model kept by the jit", "landmark error", predict=model_kept_from_the_first_call),
    fails(LAB, "a small bias", "landmark error", predict=biased),
    fails(LAB, "the mask is ignored", "landmark error", predict=without_mask),
    fails(LAB, "first crop for all", "landmark error", predict=first_crop_for_all),
    fails(LAB, "the work done sixteen times", "kernels on a T4", predict=sixteen_times),
    too_slow(LAB, "forty crops for one", "time against the solution", predict=needless_crops),
    fails(LAB, "waits for each crop", "host syncs", predict=waits_for_each),
]
