"""Lab of the boundary family: a jit too deep, around the network alone.

A keypoint detector as cameras use it: cut the subject out of the frame, stretch its exposure,
normalise, look at it and at its mirror image, find keypoints by soft-argmax and bring them back
into the frame. Only the network is compiled; what stands around it runs operation by operation,
goes through NumPy once and through a Python `if` on a computed value.
"""

import math
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, UInt8

from course_utils.checks import (
    CompilesAtMost,
    LaunchesAtMost,
    MetricWithin,
    RecompilesAtMost,
    SpeedupAtLeast,
    SyncsAtMost,
    TimeWithin,
)
from course_utils.findings import Link
from course_utils.instruments.parity import float64_enabled, to_float64
from course_utils.lab import Entry, Functions, Lab, Size
from course_utils.labs._weights import draw_weights


@dataclass(frozen=True)
class DetectorConfig:
    """Sizes of a detector: pixels of frame and crop, pixels per cell, channels, counts."""

    frame: int
    crop: int
    cell: int
    width: int
    depth: int
    keypoints: int


class Detector(eqx.Module):
    """A small convolutional network that draws one heat map for each keypoint."""

    embed: eqx.nn.Conv2d
    blocks: list[eqx.nn.Conv2d]
    heat: eqx.nn.Conv2d
    size: int = eqx.field(static=True)
    """Side of the crop that it looks at, in pixels."""

    def __init__(self, config: DetectorConfig, *, key: PRNGKeyArray):
        embed, heat, *blocks = jax.random.split(key, 2 + config.depth)
        width, cell = config.width, config.cell
        self.embed = eqx.nn.Conv2d(3, width, cell, stride=cell, key=embed)
        self.blocks = [eqx.nn.Conv2d(width, width, 3, padding=1, key=block) for block in blocks]
        self.heat = eqx.nn.Conv2d(width, config.keypoints, 1, key=heat)
        self.size = config.crop

    def __call__(self, crop: Float[Array, "3 size size"]) -> Float[Array, "keypoints rows columns"]:
        """Return a heat map for each keypoint; a cell covers several pixels of the crop."""
        features = self.embed(crop)
        for block in self.blocks:
            features = features + jax.nn.gelu(block(features))
        return 6.0 * self.heat(features)


def centres(count):
    """Return the centres of `count` cells along a crop that goes from -0.5 to 0.5."""
    return (jnp.arange(count) + 0.5) / count - 0.5


def cut_out(frame, matrix, size):
    """Return the crop (3, size, size) of a frame, with values from 0 to 1.

    Args:
        frame: an image (rows, columns, 3) with values from 0 to 255.
        matrix: brings crop coordinates, from -0.5 to 0.5, into the frame: (2, 3).
        size: side of the crop, in pixels.
    """
    columns, rows = jnp.meshgrid(centres(size), centres(size))
    points = jnp.stack([columns, rows, jnp.ones_like(rows)])
    x, y = jnp.tensordot(matrix, points, axes=1) - 0.5
    left, top = jnp.floor(x), jnp.floor(y)
    crop = jnp.zeros((size, size, 3))
    for dx in (0, 1):
        for dy in (0, 1):
            weight = (1 - jnp.abs(x - left - dx)) * (1 - jnp.abs(y - top - dy))
            column = jnp.clip(left + dx, 0, frame.shape[1] - 1).astype(int)
            row = jnp.clip(top + dy, 0, frame.shape[0] - 1).astype(int)
            crop = crop + weight[:, :, None] * frame[row, column]
    return jnp.moveaxis(crop / 255, -1, 0)


def normalise(crop):
    """Return the crop with the mean and deviation that the network was trained on."""
    mean = jnp.array([0.485, 0.456, 0.406])[:, None, None]
    deviation = jnp.array([0.229, 0.224, 0.225])[:, None, None]
    return (crop - mean) / deviation


def decode(heat, matrix):
    """Return keypoints (keypoints, 2) in frame pixels, and how sure they are (keypoints,).

    Args:
        heat: one heat map for each keypoint: (keypoints, rows, columns).
        matrix: brings crop coordinates into the frame: (2, 3).
    """
    weights = jax.nn.softmax(heat.reshape(len(heat), -1), axis=1).reshape(heat.shape)
    x = jnp.einsum("krc,c->k", weights, centres(heat.shape[2]))
    y = jnp.einsum("krc,r->k", weights, centres(heat.shape[1]))
    points = jnp.stack([x, y, jnp.ones_like(x)])
    return (matrix @ points).T, weights.max(axis=(1, 2))


# region student-broken
@eqx.filter_jit
def backbone(model, crop):
    """Return one heat map for each keypoint: (keypoints, rows, columns)."""
    return model(crop)


def broken_crop_to_frame(box):
    """Return the matrix (2, 3) from crop coordinates to frame pixels."""
    x, y, side, angle = box.tolist()
    cos, sin = side * math.cos(angle), side * math.sin(angle)
    return jnp.array([[cos, -sin, x], [sin, cos, y]])


def broken_expose(crop):
    """Return the crop with its tones stretched, and lifted if it is dark."""
    grey = np.asarray(crop.mean(axis=0))
    low, high = np.percentile(grey, [2, 98])
    bright = jnp.clip((crop - low) / (high - low), 0, 1)
    if float(crop.mean()) < 0.3:
        bright = jnp.sqrt(bright)
    return bright


def broken_locate(model, frame, box):
    """Return keypoints (keypoints, 2) in pixels, and how sure they are."""
    matrix = broken_crop_to_frame(box)
    crop = normalise(broken_expose(cut_out(frame, matrix, model.size)))
    heat = backbone(model, crop)
    mirrored = backbone(model, crop[:, :, ::-1])[:, :, ::-1]
    return decode((heat + mirrored) / 2, matrix)


# endregion


# region student-solution
def solution_crop_to_frame(box):
    """Return the matrix (2, 3) from crop coordinates to frame pixels."""
    x, y, side, angle = box
    cos, sin = side * jnp.cos(angle), side * jnp.sin(angle)
    return jnp.array([[cos, -sin, x], [sin, cos, y]])


def solution_expose(crop):
    """Return the crop with its tones stretched, and lifted if it is dark."""
    grey = crop.mean(axis=0)
    low, high = jnp.percentile(grey, jnp.array([2, 98]))
    bright = jnp.clip((crop - low) / (high - low), 0, 1)
    return jnp.where(crop.mean() < 0.3, jnp.sqrt(bright), bright)


@eqx.filter_jit
def solution_locate(model, frame, box):
    """Return keypoints (keypoints, 2) in pixels, and how sure they are."""
    matrix = solution_crop_to_frame(box)
    crop = normalise(solution_expose(cut_out(frame, matrix, model.size)))
    heat = model(crop)
    mirrored = model(crop[:, :, ::-1])[:, :, ::-1]
    return decode((heat + mirrored) / 2, matrix)


# endregion


def make_detector(config: DetectorConfig, seed: int) -> Detector:
    """Return a detector with random weights."""
    return draw_weights(Detector, config, rng=np.random.default_rng(seed))


Frames = tuple[UInt8[Array, "size size 3"], ...]
Boxes = tuple[Float[Array, "4"], ...]


def make_frames(
    config: DetectorConfig, rng: np.random.Generator, count: int
) -> tuple[Frames, Boxes]:
    """Return random camera frames and a box in each.

    A frame is a few soft blobs in coloured light, with sensor noise and, in one pixel of a hundred,
    a dead or a hot sensor, so that the darkest and the brightest value say little about the
    exposure. Every other box is in the shade while the rest of the frame is bright. In the others a
    lamp lights a spot of the box, and what is around it is dark. A box is centre and side in
    pixels and an angle in radians: (x, y, side, angle).
    """
    frames, boxes = [], []
    dark = rng.integers(2)
    colour = rng.permutation([1.7, 0.7, 0.6])
    for number in range(count):
        middle = config.frame * rng.uniform(0.35, 0.65, 2)
        box = np.array([*middle, config.frame * rng.uniform(0.4, 0.7), rng.uniform(-0.6, 0.6)])
        scene = _scene(config, rng)
        shaded = bool((number + dark) % 2)
        frame = _lit(config, rng, scene, colour, box, shaded=shaded)
        frames.append(jnp.asarray(np.round(255 * frame).astype(np.uint8)))
        boxes.append(jnp.asarray(box, dtype=jnp.float32))
    return tuple(frames), tuple(boxes)


def _scene(config: DetectorConfig, rng: np.random.Generator) -> np.ndarray:
    """Return how much of the light each pixel sends back, for each colour: (rows, columns, 3)."""
    rows, columns = np.mgrid[0 : config.frame, 0 : config.frame] / config.frame
    centres_of_blobs = rng.uniform(0.0, 1.0, (2, 12, 1, 1))
    widths = rng.uniform(0.03, 0.15, (12, 1, 1))
    colours = rng.uniform(-0.5, 0.5, (12, 3))
    squared = (rows - centres_of_blobs[0]) ** 2 + (columns - centres_of_blobs[1]) ** 2
    blobs = np.exp(-squared / (2 * widths**2))
    return 0.6 + np.einsum("bc,byx->yxc", colours, blobs)


def _lit(
    config: DetectorConfig,
    rng: np.random.Generator,
    scene: np.ndarray,
    colour: np.ndarray,
    box: np.ndarray,
    *,
    shaded: bool,
) -> np.ndarray:
    """Return the scene as the camera sees it, with values from 0 to 1.

    The crop's mean is near 0.25 in the shade and near 0.35 else, on either side of the 0.3 below
    which a crop is dark. The frame's mean is on the other side, and so is that of some colour in
    the crop. Under the lamp most pixels of the crop are below 0.3.
    """
    x, y, side, angle = box
    turn = np.exp(1j * angle)
    rows, columns = np.mgrid[0 : config.frame, 0 : config.frame] + 0.5
    across = (columns - x + 1j * (rows - y)) / (side * turn)
    inside = np.maximum(np.abs(across.real), np.abs(across.imag)) < 0.6
    lamp = 0.3 * np.exp(1j * rng.uniform(0, 2 * np.pi))
    lamp_light = 5.0 * np.exp(-(np.abs(across - lamp) ** 2) / (2 * 0.15**2))
    light = 1.0 if shaded else 1.0 + lamp_light[..., None]
    reflected = scene * light * colour
    noise = rng.normal(0.0, 0.01, scene.shape)
    flaws = rng.random(inside.shape)

    def seen(gain: float) -> np.ndarray:
        around = scene if shaded else 0.05 * scene
        frame = np.where(inside[..., None], gain * reflected, around) + noise
        frame[flaws < 0.005] = 0.0
        frame[flaws > 0.995] = 1.0
        return np.clip(frame, 0, 1)

    places = (np.arange(config.crop) + 0.5) / config.crop - 0.5
    points = (x + 1j * y) + side * turn * (places + 1j * places[:, None])
    column, row = (
        np.clip(np.floor(each), 0, config.frame - 1).astype(int)
        for each in (points.real, points.imag)
    )
    wanted = rng.uniform(0.23, 0.26) if shaded else rng.uniform(0.34, 0.37)
    gain = 0.5
    for _ in range(6):
        gain *= wanted / seen(gain)[row, column].mean()
    return seen(gain)


def locate_all(
    functions: Functions, args: tuple[Detector, Frames, Boxes]
) -> tuple[tuple[Array, Array], ...]:
    """Run one pass: one call for each frame, as frames come from a camera."""
    model, frames, boxes = args
    return tuple(
        functions["locate"](model, frame, box) for frame, box in zip(frames, boxes, strict=True)
    )


def reference(model: Detector, frames: Frames, boxes: Boxes) -> tuple[tuple[np.ndarray, ...], ...]:
    """Return what the pipeline gives in float64, its glue computed by NumPy."""
    with float64_enabled():
        wide = to_float64(model)
        return tuple(
            _reference(wide, np.asarray(frame), np.asarray(box, dtype=np.float64))
            for frame, box in zip(frames, boxes, strict=True)
        )


def _reference(model: Detector, frame: np.ndarray, box: np.ndarray) -> tuple[np.ndarray, ...]:
    x, y, side, angle = box
    turned = side * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    matrix = np.column_stack([turned, [x, y]])
    crop = np.asarray(_cut_out(jnp.asarray(frame), jnp.asarray(matrix), model.size))
    low, high = np.percentile(crop.mean(axis=0), [2, 98])
    bright = np.clip((crop - low) / (high - low), 0, 1)
    shown = np.sqrt(bright) if crop.mean() < 0.3 else bright
    heat = np.asarray(_heat(model, normalise(jnp.asarray(shown))))
    weights = np.exp(heat - heat.max(axis=(1, 2), keepdims=True))
    weights /= weights.sum(axis=(1, 2), keepdims=True)
    cells = (np.arange(heat.shape[1]) + 0.5) / heat.shape[1] - 0.5
    points = np.stack([weights.sum(axis=1) @ cells, weights.sum(axis=2) @ cells])
    return (turned @ points).T + np.array([x, y]), weights.max(axis=(1, 2))


_cut_out = jax.jit(cut_out, static_argnums=2)


@eqx.filter_jit
def _heat(model: Detector, crop: Array) -> Array:
    return (model(crop) + model(crop[:, :, ::-1])[:, :, ::-1]) / 2


def point_error(expected, got) -> float:
    """Return the largest distance between a keypoint and where it should be, in frame pixels."""
    apart = [
        np.asarray(mine[0], dtype=np.float64) - right[0] for right, mine in _pairs(expected, got)
    ]
    return float(max(np.sqrt((each**2).sum(-1)).max() for each in apart))


def confidence_error(expected, got) -> float:
    """Return the largest difference in confidence, a probability."""
    apart = [
        np.asarray(mine[1], dtype=np.float64) - right[1] for right, mine in _pairs(expected, got)
    ]
    return float(max(np.abs(each).max() for each in apart))


def _pairs(expected, got):
    return zip(expected, got, strict=True)


_CHAPTER = "book/chapters/03_boundary"

LAB = Lab(
    name="boundary_pipeline",
    title="A pipeline that compiles only its network",
    family="boundary",
    minutes=25,
    difficulty=2,
    goal="Draw the jit boundary around the largest pure block, control flow included.",
    item="frame",
    entries=(Entry("locate", ("model", "frame", "box")),),
    broken={"locate": broken_locate},
    solution={"locate": solution_locate},
    sizes={
        # Two CPU cores, jax 0.10.2: the measurements stand beside each check.
        "cpu": Size(DetectorConfig(64, 32, 4, 16, 2, 8), items=3, timed_items=1),
        # Not measured: no GPU was at hand.
        "gpu": Size(DetectorConfig(512, 256, 8, 64, 4, 17), items=3, timed_items=1),
    },
    prepare=make_detector,
    arguments=lambda size, model, rng, count: (model, *make_frames(size.config, rng, count)),
    oracle=reference,
    # Each check: first what right submissions reach, then broken or the nearest wrong one.
    checks=(
        # Up to 2.2e-4 px; 0.05 px and more in bfloat16, 0.5 px and more for other mistakes, the
        # wrong test for a dark crop among them.
        MetricWithin(
            "keypoint error", point_error, tolerance=0.02, unit="px", link=Link(_CHAPTER, "the-fix")
        ),
        # Up to 1.3e-5; 0.003 and more in bfloat16.
        MetricWithin(
            "confidence error",
            confidence_error,
            tolerance=0.0005,
            unit="",
            link=Link(_CHAPTER, "the-fix"),
        ),
        # 0; 2, one for each frame after the first, with the box as Python numbers.
        RecompilesAtMost(0, link=Link(_CHAPTER, "the-fix")),
        # 0; 3 with a jit made in the call.
        CompilesAtMost(0, link=Link(_CHAPTER, "the-fix")),
        # 1, three jits in a row 3; 25 with only the steps before the network jitted, broken 184.
        LaunchesAtMost(
            8,
            link=Link(_CHAPTER, "too-deep"),
            parts_link=Link(_CHAPTER, "too-deep"),
            hints={
                "eager": "Only the network is compiled; what stands around it is not. Jit "
                "`locate` itself, after replacing what asks for values on the host.",
                "parts": "Some steps are compiled, and what stands between them is not. Jit "
                "`locate` itself, not its parts.",
            },
        ),
        # 0; 3, one for each frame, with the condition alone on the host; broken 6.
        SyncsAtMost(
            0,
            link=Link(_CHAPTER, "control-flow"),
            hint="`tolist()`, `np.percentile` and a Python `if` want values on the host: use the "
            "array itself, `jnp.percentile`, and `jnp.where` or `jax.lax.cond`.",
        ),
        # The time against the solution comes first: two compiled programs are disturbed alike by a
        # busy machine. 0.8 to 1.5 times; 9 times when eight crops are computed and one is kept.
        TimeWithin(4, link=Link(_CHAPTER, "the-fix")),
        # 17 to 28 times, three jits 13; 2 times for the eight crops.
        SpeedupAtLeast(6, link=Link(_CHAPTER, "the-fix")),
    ),
    drive=locate_all,
    argument_names=("model", "frames", "boxes"),
)
