"""Main lab of the under-fused family: a multi-object tracker that is a loop around small jits.

Each track is a Kalman filter with constant velocity. In every frame it predicts, measures how far
each of the frame's detections is from the prediction, takes the nearest one inside its gate, and
corrects itself with it; without one it coasts. Each of these five steps is jitted, and a Python
loop over frames and tracks calls them: thousands of launches for a program that fits into one.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from course_utils.checks import (
    CompilesAtMost,
    LaunchesAtMost,
    MetricWithin,
    ProgramSizeAtMost,
    RecompilesAtMost,
    SpeedupAtLeast,
    SyncsAtMost,
    TimeWithin,
)
from course_utils.findings import Link
from course_utils.instruments.parity import float64_enabled, to_float64
from course_utils.lab import Entry, Lab, Size

Mean = Float[Array, " state"]
Covariance = Float[Array, "state state"]
Detections = Float[Array, "detections 2"]


class Motion(NamedTuple):
    """How objects move from frame to frame, and how they are seen.

    The state is position and velocity: (x, y, x per frame, y per frame), in pixels.

    Attributes:
        transition: (4, 4), the state one frame later.
        process: (4, 4), covariance of what the constant velocity leaves out.
        observe: (2, 4), the position in a state.
        noise: (2, 2), covariance of a detection.
        gate: squared Mahalanobis distance up to which a detection can be the track's.
    """

    transition: Float[Array, "state state"]
    process: Float[Array, "state state"]
    observe: Float[Array, "2 state"]
    noise: Float[Array, "2 2"]
    gate: Float[Array, ""]


class Scene(NamedTuple):
    """Sizes of a sequence: frames, tracked objects, and false detections a frame at most."""

    frames: int
    tracks: int
    clutter: int


def predict(motion: Motion, mean: Mean, covariance: Covariance) -> tuple[Mean, Covariance]:
    """Return a track one frame later."""
    transition = motion.transition
    return transition @ mean, transition @ covariance @ transition.T + motion.process


def distances(
    motion: Motion, mean: Mean, covariance: Covariance, detections: Detections
) -> Float[Array, " detections"]:
    """Return the squared Mahalanobis distance of each detection from a track."""
    apart = detections - (motion.observe @ mean)[None]
    return jnp.sum((apart @ _certainty(motion, covariance)) * apart, axis=-1)


def nearest(
    motion: Motion,
    apart: Float[Array, " detections"],
    candidates: Detections,
    present: Bool[Array, " detections"],
) -> tuple[Float[Array, "2"], Bool[Array, ""]]:
    """Return the nearest detection, and whether it is inside the gate.

    Args:
        motion: holds the gate.
        apart: the detections' squared distances.
        candidates: the detections.
        present: which of the places for detections hold one.
    """
    apart = jnp.where(present, apart, jnp.inf)
    return candidates[jnp.argmin(apart)], jnp.min(apart) < motion.gate


def correct(
    motion: Motion, mean: Mean, covariance: Covariance, detection: Float[Array, "2"]
) -> tuple[Mean, Covariance]:
    """Return a track after it has seen its detection."""
    gain = covariance @ motion.observe.T @ _certainty(motion, covariance)
    keep = jnp.eye(len(mean), dtype=mean.dtype) - gain @ motion.observe
    mean = mean + gain @ (detection - motion.observe @ mean)
    return mean, keep @ covariance @ keep.T + gain @ motion.noise @ gain.T


def choose(
    found: Bool[Array, ""], corrected: tuple[Mean, Covariance], predicted: tuple[Mean, Covariance]
) -> tuple[Mean, Covariance]:
    """Return the corrected track where a detection was found, else the predicted one."""
    return jax.tree.map(lambda new, old: jnp.where(found, new, old), corrected, predicted)


def _certainty(motion: Motion, covariance: Covariance) -> Float[Array, "2 2"]:
    """Return the inverse covariance of where a detection is expected."""
    (a, b), (c, d) = motion.observe @ covariance @ motion.observe.T + motion.noise
    return jnp.array([[d, -b], [-c, a]]) / (a * d - b * c)


# region student-broken
jit_predict = jax.jit(predict)
jit_distances = jax.jit(distances)
jit_nearest = jax.jit(nearest)
jit_correct = jax.jit(correct)
jit_choose = jax.jit(choose)


def broken_track(motion, means, covariances, detections, seen):
    """Return the tracks' positions (frames, tracks, 2), in pixels."""
    tracks = [(means[i], covariances[i]) for i in range(len(means))]
    positions = []
    for frame in range(len(detections)):
        candidates, present = detections[frame], seen[frame]
        for i in range(len(tracks)):
            mean, covariance = jit_predict(motion, *tracks[i])
            apart = jit_distances(motion, mean, covariance, candidates)
            chosen, found = jit_nearest(motion, apart, candidates, present)
            corrected = jit_correct(motion, mean, covariance, chosen)
            tracks[i] = jit_choose(found, corrected, (mean, covariance))
        positions.append(jnp.stack([mean[:2] for mean, _ in tracks]))
    return jnp.stack(positions)


# endregion


# region student-solution
def advance(motion, mean, covariance, candidates, present):
    """Return one track after one more frame."""
    mean, covariance = predict(motion, mean, covariance)
    apart = distances(motion, mean, covariance, candidates)
    chosen, found = nearest(motion, apart, candidates, present)
    corrected = correct(motion, mean, covariance, chosen)
    return choose(found, corrected, (mean, covariance))


@jax.jit
def solution_track(motion, means, covariances, detections, seen):
    """Return the tracks' positions (frames, tracks, 2), in pixels."""
    advance_all = jax.vmap(advance, in_axes=(None, 0, 0, None, None))

    def step(tracks, frame):
        means, covariances = advance_all(motion, *tracks, *frame)
        return (means, covariances), means[:, :2]

    tracks, frames = (means, covariances), (detections, seen)
    return jax.lax.scan(step, tracks, frames)[1]


# endregion


def make_motion(scene: Scene, seed: int) -> Motion:
    """Return how the scene's objects move and are seen: another noise and gate for each seed."""
    del scene
    rng = np.random.default_rng(seed)
    x, y = rng.uniform(2.5, 6.0, 2)
    process = rng.uniform(0.1, 0.4, 2), rng.uniform(0.25, 0.6, 2)
    arrays = (
        np.eye(4) + np.eye(4, k=2),
        np.diag(np.concatenate(process)),
        np.eye(2, 4),
        np.diag([x, y]),
        rng.uniform(16.0, 24.0),
    )
    return Motion(*(jnp.asarray(array, dtype=jnp.float32) for array in arrays))


def make_sequence(
    scene: Scene, motion: Motion, rng: np.random.Generator
) -> tuple[
    Motion,
    Float[Array, "tracks state"],
    Float[Array, "tracks state state"],
    Float[Array, "frames detections 2"],
    Bool[Array, "frames detections"],
]:
    """Return a random sequence: the motion, the tracks' first states, and what a detector saw.

    Objects begin apart from each other and keep their velocity but for small pushes. The detector
    misses some, sees others where nothing is, and gives them in no order. What it sees of an object
    is off by a few pixels, never so far that it is near the edge of the gate.

    Returns:
        The motion; means (tracks, 4) and covariances (tracks, 4, 4); detections (frames,
        detections, 2) in pixels; which of their places hold a detection.
    """
    frames, tracks, clutter = scene
    columns = int(np.ceil(np.sqrt(tracks)))
    cells = np.stack([np.arange(tracks) % columns, np.arange(tracks) // columns], axis=-1)
    positions = 100.0 * (cells + 0.5) + rng.uniform(-20, 20, (tracks, 2))
    velocities = rng.normal(0.0, 3.0, (tracks, 2))
    means = np.concatenate([positions, velocities], axis=-1)
    means += rng.normal(0.0, 0.7, means.shape)
    covariances = rng.uniform(0.5, 2.0, (tracks, 4, 1)) * np.diag([4.0, 4.0, 1.0, 1.0])
    deviation = np.sqrt(np.diagonal(motion.noise))
    detections = rng.uniform(0, 100.0 * columns, (frames, tracks + clutter, 2))
    seen = rng.uniform(size=detections.shape[:2]) < 0.5
    for frame in range(frames):
        velocities = velocities + rng.normal(0.0, 0.5, velocities.shape)
        positions = positions + velocities
        off = np.clip(rng.normal(0.0, 1.0, positions.shape), -2.0, 2.0) * deviation
        places = rng.permutation(tracks + clutter)[:tracks]
        detections[frame, places] = positions + off
        seen[frame, places] = rng.uniform(size=tracks) < 0.85
    first, spread, candidates = (
        jnp.asarray(array, dtype=jnp.float32) for array in (means, covariances, detections)
    )
    return motion, first, spread, candidates, jnp.asarray(seen)


def reference(*args: Array) -> np.ndarray:
    """Return the tracks' positions computed in float64."""
    with float64_enabled():
        return np.asarray(_reference(*to_float64(args)))


@jax.jit
def _reference(motion, means, covariances, detections, seen):
    def follow(mean, covariance):
        def step(track, frame):
            track = advance(motion, *track, *frame)
            return track, track[0][:2]

        return jax.lax.scan(step, (mean, covariance), (detections, seen))[1]

    return jax.vmap(follow, out_axes=1)(means, covariances)


def track_error(expected: np.ndarray, got: Array) -> float:
    """Return the largest distance between a track and where it should be, in pixels."""
    apart = np.asarray(got, dtype=np.float64) - expected
    return float(np.sqrt((apart**2).sum(-1)).max())


_CHAPTER = "book/chapters/02_underfused"

LAB = Lab(
    name="underfused_tracks",
    title="A tracker that loops over small jits",
    family="underfused",
    minutes=25,
    difficulty=2,
    goal="Turn a Python loop around small jitted functions into one program with its loops inside.",
    item="sequence",
    entries=(Entry("track", ("motion", "means", "covariances", "detections", "seen")),),
    broken={"track": broken_track},
    solution={"track": solution_track},
    sizes={
        # 2 CPU cores, jax 0.10.2: see the measurements beside each check.
        "cpu": Size(Scene(frames=20, tracks=16, clutter=4), items=1, timed_items=1),
        # Not measured on a GPU.
        "gpu": Size(Scene(frames=30, tracks=32, clutter=8), items=1, timed_items=1),
    },
    prepare=make_motion,
    arguments=lambda size, motion, rng, _: make_sequence(size.config, motion, rng),
    oracle=reference,
    checks=(
        # The solution is off by up to 1.4e-4, a bias of 0.1 by 0.14, another seed's motion by 0.19
        # and more, one covariance for all by 0.34 and more, bfloat16 by 2 and more; the tracks of
        # another sequence are 120 away at least.
        MetricWithin(
            "track error", track_error, tolerance=0.05, unit="px", link=Link(_CHAPTER, "the-fix")
        ),
        # The solution: none. A frame's number as a static argument: 19.
        RecompilesAtMost(1, link=Link(_CHAPTER, "many-small-jits")),
        CompilesAtMost(0, link=Link(_CHAPTER, "many-small-jits")),
        # The solution 1, a jit called for each track 81, for each frame 121, for each of both
        # 805, broken 2,085.
        LaunchesAtMost(
            8,
            link=Link(_CHAPTER, "a-python-loop-around-a-jit"),
            parts_link=Link(_CHAPTER, "many-small-jits"),
            hints={
                "eager": "Write what happens to one track in one frame as one function, map it "
                "over the tracks with `jax.vmap` and over the frames with `jax.lax.scan`, and put "
                "the one `jax.jit` around all of that.",
                "parts": "Each call of a jitted function is a launch, however small. Leave the "
                "helpers plain and jit only `track`, with `jax.vmap` over tracks and "
                "`jax.lax.scan` over frames in place of the Python loops.",
            },
        ),
        SyncsAtMost(0, link=Link(_CHAPTER, "the-fix")),
        # The solution 293, other loops 285 to 323, unrolled by two 545; with the tracks unrolled
        # 2,925, with the frames 4,643, with both far too many to compile.
        ProgramSizeAtMost(
            1300,
            launches=8,
            link=Link(_CHAPTER, "unrolled-loops"),
            hint="A Python loop inside `jit` is copied out, once for each turn. Use "
            "`jax.lax.scan` for the loop over frames and `jax.vmap` for the one over tracks.",
        ),
        # The time against the solution comes first: two compiled programs are disturbed alike by a
        # busy machine. `lax.map` over tracks 3 to 6, starting over for each frame 16 to 53.
        TimeWithin(11, link=Link(_CHAPTER, "choose-by-loop-shape")),
        # The solution 80 to 130, `lax.map` over tracks 28 to 40, starting over each frame 3 to 5.
        SpeedupAtLeast(10, link=Link(_CHAPTER, "the-symptom")),
    ),
)
