"""Second lab of the measurement family: eight stages, and room for two edits.

A star camera tells where a satellite points. Its pipeline runs stage by stage; two stages take
nearly all of the time, and neither is the one that looks expensive. The learner profiles, names the
two and mends them; whoever goes by the look of the code spends an edit on a hundredth of the time.
"""

from dataclasses import dataclass
from types import MappingProxyType

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt16

from course_utils.checks import (
    CompilesAtMost,
    MetricWithin,
    RecompilesAtMost,
    SpeedupAtLeast,
    Stage,
)
from course_utils.checks.stages import (
    PipelineLaunchesAtMost,
    PipelineTimeWithin,
    Stages,
    StagesChangedAtMost,
    StagesKeepTheirResult,
    StagesWorthIt,
    edited,
    run_stages,
)
from course_utils.findings import Link
from course_utils.lab import Entry, Functions, Lab, Size

CELLS = 4
"""The frame is looked at in this many cells by as many; one star is looked for in each."""

_drawn = np.random.default_rng(6)
FEATURES = jnp.asarray(_drawn.normal(0.0, 2.0, (6, 256)), dtype=jnp.float32)
"""What the matcher looks for in a star's place and brightness: 256 features."""
CATALOGUE = jnp.asarray(_drawn.normal(0.0, 0.1, (256, 512)), dtype=jnp.float32)
"""The features of 512 known stars."""
SKY = jnp.asarray(_drawn.normal(0.0, 3600.0, (512, 2)), dtype=jnp.float32)
"""Where the known stars are, in arc seconds."""


@jax.jit
def calibrate(frame):
    """Return the frame's brightness from 0 to 1: (rows, columns)."""
    return frame.astype(jnp.float32) / 4095.0


def destripe(image):
    """Return the image without the offset of each of its rows: every row's median is zero."""
    rows = []
    for number in range(len(image)):
        row = image[number]
        ordered = jnp.sort(row)
        middle = len(row) // 2
        median = (ordered[middle - 1] + ordered[middle]) / 2
        rows.append(row - median)
    return jnp.stack(rows)


def clip_rows(image):
    """Return the image with each row held within three deviations below and nine above zero."""
    rows = []
    for number in range(len(image)):
        row = image[number]
        deviation = jnp.sqrt(jnp.mean(row**2))
        rows.append(jnp.clip(row, -3 * deviation, 9 * deviation))
    return jnp.stack(rows)


@jax.jit
def smooth(image):
    """Return the image blurred by a small bell, five pixels wide."""
    bell = jnp.array([1.0, 4.0, 6.0, 4.0, 1.0]) / 16
    for axis in (0, 1):
        shifted = [jnp.roll(image, step, axis) for step in (-2, -1, 0, 1, 2)]
        image = jnp.tensordot(bell, jnp.stack(shifted), axes=1)
    return image


@jax.jit
def cut(image):
    """Return the image in its cells: (cells, cells, rows, columns)."""
    rows, columns = image.shape[0] // CELLS, image.shape[1] // CELLS
    return image.reshape(CELLS, rows, CELLS, columns).swapaxes(1, 2)


@jax.jit
def centre(cells):
    """Return x, y and brightness of the star of each cell: (cells * cells, 3), from 0 to 1."""
    rows, columns = cells.shape[2:]
    weights = jax.nn.softmax(20 * cells.reshape(CELLS * CELLS, -1), axis=1)
    weights = weights.reshape(-1, rows, columns)
    x = jnp.einsum("nrc,c->n", weights, jnp.arange(columns) / columns)
    y = jnp.einsum("nrc,r->n", weights, jnp.arange(rows) / rows)
    flux = jnp.einsum("nrc,nrc->n", weights, cells.reshape(-1, rows, columns))
    return jnp.stack([x, y, flux], axis=1)


def match(stars):
    """Return where each star is on the sky, in arc seconds, by comparing it with 512 known ones."""
    waves = jnp.concatenate([jnp.sin(6 * stars), jnp.cos(6 * stars)], axis=1)
    features = jnp.tanh(waves @ FEATURES)
    similarity = jax.nn.softmax(features @ CATALOGUE, axis=1)
    return similarity @ SKY


@jax.jit
def point(places):
    """Return where the camera points, in arc seconds, and how far the stars scatter: (3,)."""
    middle = places.mean(axis=0, keepdims=True)
    scatter = jnp.sqrt(((places - middle) ** 2).sum(axis=1).mean())
    return jnp.concatenate([middle[0], scatter[None]])


STAGES: Stages = MappingProxyType(
    {
        "calibrate": calibrate,
        "destripe": destripe,
        "clip_rows": clip_rows,
        "smooth": smooth,
        "cut": cut,
        "centre": centre,
        "match": match,
        "point": point,
    }
)
"""The pipeline as shipped: each stage takes what the one before it returned."""


# region student-broken
@jax.jit
def broken_match(stars):
    """Return where each star is on the sky, in arc seconds, by comparing it with 512 known ones."""
    waves = jnp.concatenate([jnp.sin(6 * stars), jnp.cos(6 * stars)], axis=1)
    features = jnp.tanh(waves @ FEATURES)
    similarity = jax.nn.softmax(features @ CATALOGUE, axis=1)
    return similarity @ SKY


def broken_edits():
    """Return the mended stages by name, two at most."""
    return {"match": broken_match}


# endregion


# region student-solution
@jax.jit
def solution_destripe(image):
    """Return the image without the offset of each of its rows: every row's median is zero."""
    return image - jnp.median(image, axis=1, keepdims=True)


@jax.jit
def solution_clip_rows(image):
    """Return the image with each row held within three deviations below and nine above zero."""
    deviation = jnp.sqrt(jnp.mean(image**2, axis=1, keepdims=True))
    return jnp.clip(image, -3 * deviation, 9 * deviation)


def solution_edits():
    """Return the mended stages by name, two at most."""
    return {"destripe": solution_destripe, "clip_rows": solution_clip_rows}


# endregion


@dataclass(frozen=True)
class CameraConfig:
    """Side of a frame in pixels."""

    side: int


Frames = tuple[UInt16[Array, "side side"], ...]


def make_frames(config: CameraConfig, rng: np.random.Generator, count: int) -> Frames:
    """Return random frames: a star in each cell, an offset in each row, noise and cosmic rays."""
    side, cell = config.side, config.side // CELLS
    rows, columns = np.mgrid[0:side, 0:side]
    corners = cell * np.asarray(np.mgrid[0:CELLS, 0:CELLS]).reshape(2, -1, 1, 1)
    frames = []
    for _ in range(count):
        y, x = corners + rng.uniform(0.2, 0.8, corners.shape) * cell
        squared = (rows - y) ** 2 + (columns - x) ** 2
        stars = rng.uniform(0.2, 0.6, y.shape) * np.exp(-squared / (2 * 1.5**2))
        offsets = rng.uniform(0.0, 0.1, (side, 1))
        image = stars.sum(axis=0) + offsets + rng.normal(0.0, 0.01, (side, side))
        image[rng.random((side, side)) < 0.002] = 1.0
        frames.append(jnp.asarray(np.clip(4095 * image, 0, 4095).astype(np.uint16)))
    return tuple(frames)


def point_all(functions: Functions, args: tuple[Frames]) -> tuple[Float[Array, "3"], ...]:
    """Run one pass: one run of the pipeline for each frame."""
    (frames,) = args
    stages = {**STAGES, **edited(STAGES, functions["edits"])}
    return tuple(run_stages(stages, frame) for frame in frames)


def reference(frames: Frames) -> tuple[np.ndarray, ...]:
    """Return what the pipeline gives in float64, computed by NumPy."""
    return tuple(_reference(np.asarray(frame, dtype=np.float64)) for frame in frames)


def _reference(frame: np.ndarray) -> np.ndarray:
    image = frame / 4095.0
    image = image - np.median(image, axis=1, keepdims=True)
    deviation = np.sqrt(np.mean(image**2, axis=1, keepdims=True))
    image = np.clip(image, -3 * deviation, 9 * deviation)
    for axis in (0, 1):
        bell = zip((1, 4, 6, 4, 1), (-2, -1, 0, 1, 2), strict=True)
        image = np.sum([w / 16 * np.roll(image, step, axis) for w, step in bell], axis=0)
    cell = len(image) // CELLS
    cells = image.reshape(CELLS, cell, CELLS, cell).swapaxes(1, 2).reshape(-1, cell, cell)
    weights = np.exp(20 * (cells - cells.max(axis=(1, 2), keepdims=True)))
    weights /= weights.sum(axis=(1, 2), keepdims=True)
    steps = np.arange(cell) / cell
    stars = np.stack(
        [weights.sum(axis=1) @ steps, weights.sum(axis=2) @ steps, (weights * cells).sum((1, 2))],
        axis=1,
    )
    waves = np.concatenate([np.sin(6 * stars), np.cos(6 * stars)], axis=1)
    features, catalogue, sky = (np.asarray(x, np.float64) for x in (FEATURES, CATALOGUE, SKY))
    logits = np.tanh(waves @ features) @ catalogue
    similarity = np.exp(logits - logits.max(axis=1, keepdims=True))
    places = similarity / similarity.sum(axis=1, keepdims=True) @ sky
    middle = places.mean(axis=0)
    scatter = np.sqrt(((places - middle) ** 2).sum(axis=1).mean())
    return np.array([*middle, scatter])


def pointing_error(expected, got) -> float:
    """Return the largest distance between where the camera points and where it should, in ″."""
    return max(float(np.hypot(*each[:2])) for each in _apart(expected, got))


def scatter_error(expected, got) -> float:
    """Return the largest error of the stars' scatter, in arc seconds."""
    return max(abs(float(each[2])) for each in _apart(expected, got))


def _apart(expected, got):
    pairs = zip(expected, got, strict=True)
    return [np.asarray(mine, dtype=np.float64) - right for right, mine in pairs]


_CHAPTER = "book/chapters/06_measurement"
_EDITS = 2
_ROW_LOOP = "Let the stage do the whole image at once."

LAB = Lab(
    name="measurement_budget",
    title="Eight stages and room for two edits",
    family="measurement",
    minutes=25,
    difficulty=1,
    goal="Find what is worth mending by measuring, and mend that alone.",
    item="frame",
    entries=(Entry("edits", ()),),
    broken={"edits": broken_edits},
    solution={"edits": solution_edits},
    # Two CPU cores, jax 0.10.2: the measurements stand beside each check. A GPU gets the same size,
    # which was not measured on one: there the row loops cost their launches all the same.
    sizes={"cpu": Size(CameraConfig(96), items=2, timed_items=1)},
    prepare=lambda config, seed: None,
    arguments=lambda size, setting, rng, count: (make_frames(size.config, rng, count),),
    oracle=reference,
    # Each check: first what right submissions reach, then broken or the nearest wrong one.
    checks=(
        # Up to 2e-4 arc seconds; 0.3 in bfloat16, 70 with means for medians.
        MetricWithin(
            "pointing error",
            pointing_error,
            tolerance=0.02,
            unit="″",
            link=Link(_CHAPTER, "the-fix"),
        ),
        # Up to 2e-4 arc seconds; 0.4 in bfloat16, 34 with means.
        MetricWithin(
            "scatter error",
            scatter_error,
            tolerance=0.02,
            unit="″",
            link=Link(_CHAPTER, "the-fix"),
        ),
        # Up to 5e-7; 0.002 in bfloat16, 0.08 with the work of the next stage in it.
        StagesKeepTheirResult(STAGES, tolerance=3e-5, link=Link(_CHAPTER, "the-fix")),
        # 2; 3 with one more.
        StagesChangedAtMost(STAGES, _EDITS, link=Link(_CHAPTER, "what-is-worth-fixing")),
        RecompilesAtMost(0, link=Link(_CHAPTER, "the-fix")),
        # 0; 2 with jits made in `edits`.
        CompilesAtMost(0, link=Link(_CHAPTER, "the-fix")),
        # 36% at least; broken's edit 1 to 3%.
        StagesWorthIt(STAGES, 0.1, link=Link(_CHAPTER, "what-is-worth-fixing")),
        # 21 to 27, the most with whole images outside a jit; 118 with one loop over rows left. It
        # comes after the shares: first what an edit is spent on, then how well.
        PipelineLaunchesAtMost(
            40,
            link=Link(_CHAPTER, "what-is-worth-fixing"),
            stages=STAGES,
            edits=_EDITS,
            hints={"eager": _ROW_LOOP, "parts": _ROW_LOOP},
            stage=Stage.TIME,
        ),
        # Right ways up to 1.6 times; 9 with the work done sixteen times over. Where the machine is
        # busy, two mended pipelines are disturbed alike; so this comes before the speedup.
        PipelineTimeWithin(4, Link(_CHAPTER, "what-is-worth-fixing"), stages=STAGES),
        # 20 to 34 times; 2.3 times with the slowest stage alone.
        SpeedupAtLeast(7, link=Link(_CHAPTER, "what-is-worth-fixing")),
    ),
    drive=point_all,
    argument_names=("frames",),
)
