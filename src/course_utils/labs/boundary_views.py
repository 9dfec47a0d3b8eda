"""Lab of the boundary family: a jit too wide, with every camera view alive at once.

A rig of cameras looks at one patch of ground. A small vision transformer turns each view into
features of the ground's cells with how much to trust them; their weighted mean over the views gives
the height of each cell. `vmap` over all views is one launch and fast, and keeps the features of
every view, at every stage of the network, in memory together.
"""

from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from course_utils.checks import (
    CompilesAtMost,
    FitsOn,
    LaunchesAtMost,
    MetricAtCounts,
    MetricWithin,
    RecompilesAtMost,
    SyncsAtMost,
    TempBytesAtMost,
    TimeWithin,
)
from course_utils.findings import Link
from course_utils.instruments.parity import float64_enabled, to_float64
from course_utils.lab import Entry, Lab, Size
from course_utils.labs._weights import draw_weights


@dataclass(frozen=True)
class RigConfig:
    """Number of views, and the encoder's sizes: pixels, patches, channels, blocks and heads."""

    views: int
    image: int
    patch: int
    width: int
    depth: int
    heads: int

    @property
    def cells(self) -> int:
        """Cells of the ground: one for each patch of a view."""
        return (self.image // self.patch) ** 2


class Block(eqx.Module):
    """One transformer block: attention among the cells, then an MLP on each."""

    norm_attention: eqx.nn.LayerNorm
    attention: eqx.nn.MultiheadAttention
    norm_mlp: eqx.nn.LayerNorm
    widen: eqx.nn.Linear
    narrow: eqx.nn.Linear

    def __init__(self, config: RigConfig, *, key: PRNGKeyArray):
        attention, widen, narrow = jax.random.split(key, 3)
        width = config.width
        self.norm_attention = eqx.nn.LayerNorm(width)
        self.attention = eqx.nn.MultiheadAttention(config.heads, width, key=attention)
        self.norm_mlp = eqx.nn.LayerNorm(width)
        self.widen = eqx.nn.Linear(width, 4 * width, key=widen)
        self.narrow = eqx.nn.Linear(4 * width, width, key=narrow)

    def __call__(self, cells: Float[Array, "cells width"]) -> Float[Array, "cells width"]:
        """Return the cells' features after the block."""
        normed = jax.vmap(self.norm_attention)(cells)
        cells = cells + self.attention(normed, normed, normed)
        hidden = jax.nn.gelu(jax.vmap(self.widen)(jax.vmap(self.norm_mlp)(cells)))
        return cells + jax.vmap(self.narrow)(hidden)


class Encoder(eqx.Module):
    """A vision transformer that sees the ground's cells in one view."""

    embed: eqx.nn.Conv2d
    blocks: list[Block]
    trust: eqx.nn.Linear
    height: eqx.nn.Linear
    cells: int = eqx.field(static=True)
    width: int = eqx.field(static=True)

    def __init__(self, config: RigConfig, *, key: PRNGKeyArray):
        embed, trust, height, *blocks = jax.random.split(key, 3 + config.depth)
        width, patch = config.width, config.patch
        self.embed = eqx.nn.Conv2d(3, width, patch, stride=patch, key=embed)
        self.blocks = [Block(config, key=block) for block in blocks]
        self.trust = eqx.nn.Linear(width, 1, key=trust)
        self.height = eqx.nn.Linear(width, 1, key=height)
        self.cells, self.width = config.cells, width

    def __call__(
        self, view: Float[Array, "3 size size"]
    ) -> tuple[Float[Array, "cells width"], Float[Array, "cells 1"]]:
        """Return the features of each cell, and how much this view is to be trusted on it."""
        features = self.embed(view).reshape(self.width, -1).T
        for block in self.blocks:
            features = block(features)
        return features, jax.nn.sigmoid(4.0 * jax.vmap(self.trust)(features))

    def heights(self, fused: Float[Array, "cells width"]) -> Float[Array, " cells"]:
        """Return the height of each cell in centimetres, from features fused over the views."""
        return 50.0 * jax.vmap(self.height)(fused).reshape(-1)


# region student-broken
@eqx.filter_jit
def broken_survey(model, views):
    """Return each cell's height (cells,) in cm, from views (n, 3, h, w)."""
    features, trust = jax.vmap(model)(views)
    fused = jnp.sum(trust * features, axis=0) / jnp.sum(trust, axis=0)
    return model.heights(fused)


# endregion


# region student-solution
CHUNK = 8


@eqx.filter_jit
def solution_survey(model, views):
    """Return each cell's height (cells,) in cm, from views (n, 3, h, w)."""

    def add_chunk(sums, chunk):
        total, weight = sums
        features, trust = jax.vmap(model)(chunk)
        total = total + jnp.sum(trust * features, axis=0)
        return (total, weight + jnp.sum(trust, axis=0)), None

    chunks = views.reshape(-1, CHUNK, *views.shape[1:])
    no_total = jnp.zeros((model.cells, model.width))
    no_weight = jnp.zeros((model.cells, 1))
    sums, _ = jax.lax.scan(add_chunk, (no_total, no_weight), chunks)
    total, weight = sums
    return model.heights(total / weight)


# endregion


def make_encoder(config: RigConfig, seed: int) -> Encoder:
    """Return an encoder with random weights."""
    return draw_weights(Encoder, config, rng=np.random.default_rng(seed))


def make_views(config: RigConfig, rng: np.random.Generator) -> Float[Array, "views 3 size size"]:
    """Return views of one piece of ground, each with its own light, shadows and sensor noise.

    What all views share differs from one piece of ground to the next, or their mean would not.
    """
    size, count = config.image, config.views
    rows, columns = np.mgrid[0:size, 0:size] / size

    def blobs(*, number: int, strength: float) -> np.ndarray:
        shape = (number, 6, 1, 1)
        squared = (rows - rng.uniform(0, 1, shape)) ** 2 + (columns - rng.uniform(0, 1, shape)) ** 2
        spots = np.exp(-squared / (2 * rng.uniform(0.05, 0.3, shape) ** 2))
        colours = rng.normal(0.0, strength, (number, 6, 3))
        return np.einsum("nbc,nbyx->ncyx", colours, spots)

    views = blobs(number=1, strength=1.5) + blobs(number=count, strength=0.5)
    views = views * rng.uniform(0.5, 1.5, (count, 1, 1, 1)) + rng.normal(0.0, 0.1, views.shape)
    return jnp.asarray(views, dtype=jnp.float32)


def reference(model: Encoder, views: Array) -> np.ndarray:
    """Return the height of each cell computed in float64."""
    with float64_enabled():
        features, trust = _reference(*to_float64((model, views)))
        fused = (np.asarray(trust) * np.asarray(features)).sum(0) / np.asarray(trust).sum(0)
        return np.asarray(_heights(to_float64(model), jnp.asarray(fused)))


@eqx.filter_jit
def _reference(model: Encoder, views: Array) -> tuple[Array, Array]:
    return jax.lax.map(model, views, batch_size=16)


_heights = eqx.filter_jit(Encoder.heights)


def height_error(expected, got) -> float:
    """Return the largest error of a cell's height, in centimetres."""
    return float(np.abs(np.asarray(got, dtype=np.float64) - expected).max())


FULL_SIZE = RigConfig(views=256, image=518, patch=14, width=768, depth=12, heads=12)
"""A ViT-B on views of 518 pixels, as people run it; only its shapes are used here."""


def full_size() -> tuple[Encoder, jax.ShapeDtypeStruct]:
    """Return the shapes of one call at full size."""
    model = eqx.filter_eval_shape(Encoder, FULL_SIZE, key=jax.random.key(0))
    views = jax.ShapeDtypeStruct(
        (FULL_SIZE.views, 3, FULL_SIZE.image, FULL_SIZE.image), jnp.float32
    )
    return model, views


_CHAPTER = "book/chapters/03_boundary"

LAB = Lab(
    name="boundary_views",
    title="Two hundred views at once",
    family="boundary",
    minutes=25,
    difficulty=2,
    goal="Trade a little time for most of the memory: chunk, and reduce inside the chunk.",
    item="call",
    entries=(Entry("survey", ("model", "views")),),
    broken={"survey": broken_survey},
    solution={"survey": solution_survey},
    # Two CPU cores, jax 0.10.2: the measurements stand beside each check. A GPU gets the same size,
    # which was not measured on one: bytes need no large model, and the full size is X-rayed.
    sizes={"cpu": Size(RigConfig(256, 16, 2, 64, 1, 4), items=1, timed_items=1)},
    prepare=make_encoder,
    arguments=lambda size, model, rng, calls: (model, make_views(size.config, rng)),
    oracle=reference,
    # Each check: first what right submissions reach, then broken or the nearest wrong one. There is
    # no check on a speedup over broken: broken is not slow, it needs too much memory.
    checks=(
        # Up to 4e-5 cm; 0.15 cm for the mean of the chunks' means, 0.46 for sums in bfloat16.
        MetricWithin(
            "height error", height_error, tolerance=0.02, unit="cm", link=Link(_CHAPTER, "the-fix")
        ),
        # Up to 2e-5 cm; with 24 views 1.4 cm and more where what no chunk of 16 holds is dropped.
        MetricAtCounts(
            "height error with fewer views",
            height_error,
            tolerance=0.02,
            unit="cm",
            counts=(24, 8),
            counted="views",
            resized=lambda config, count: replace(config, views=count),
            advice="The number of views is a multiple of 8 and may be any: a chunk of 8, 4, 2 or 1 "
            "divides it; with another chunk, take the rest by itself.",
            link=Link(_CHAPTER, "the-fix"),
        ),
        # 0, or 1 where the last chunk is smaller; 3 with the chunk's place as a Python number.
        RecompilesAtMost(1, link=Link(_CHAPTER, "too-wide")),
        # 0 for all but a jit made in the call.
        CompilesAtMost(0, link=Link(_CHAPTER, "too-wide")),
        # 1, and 69 for a Python loop over jitted chunks of eight; 517 for one over single views.
        LaunchesAtMost(
            200,
            link=Link(_CHAPTER, "too-deep"),
            hints={
                "parts": "A launch for each view is too fine a cut: loop over chunks of several "
                "views, best inside the jit with `jax.lax.scan`.",
            },
        ),
        SyncsAtMost(0, link=Link(_CHAPTER, "too-wide")),
        # 0.2 to 1.7 MiB, the solution 1.1; 8.1 reduced outside the chunk, 9.1 in chunks of 64,
        # broken 36. Not in proportion to the chunk: chunks of one need 0.2 here, of sixteen 2.3.
        TempBytesAtMost(
            3 << 20,
            link=Link(_CHAPTER, "too-wide"),
            hint="Take some eight views at a time with `jax.lax.scan`, and add what a chunk gives "
            "to two running sums; keep no view's features.",
        ),
        # 1.3 to 3.0 GiB of 14.8; broken 46.
        FitsOn(link=Link(_CHAPTER, "too-wide")),
        # 0.9 to 1.3 times; 8 times when all views run again for each row of cells. Broken itself
        # takes 1.0 to 1.6 times as long as the solution.
        TimeWithin(4, link=Link(_CHAPTER, "too-wide")),
    ),
    full_size=full_size,
)
