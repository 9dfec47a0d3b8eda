"""Lab of the parity family: a slow path that is kept because a test asks for equal bits.

A landmark model is compiled already, but the compiled one is not used: the gate that guards the
exchange compares bit for bit and refuses it. The learner writes a gate on what the landmarks are
used for, in pixels, and takes the compiled path. The gate is tried on candidates made anew at each
grade: right ones that round differently or are off by less than the task notices, and wrong ones
of which each hides from some gate. Where something is off and in which direction is dealt out, not
drawn freely, so that a gate with a hole meets in each grade a candidate that fits through it.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray

from course_utils.checks import (
    CompilesAtMost,
    GateAccepts,
    GateCase,
    GateRejects,
    LaunchesAtMost,
    MetricWithin,
    RecompilesAtMost,
    SpeedupAtLeast,
    SyncsAtMost,
    TimeWithin,
)
from course_utils.findings import Link
from course_utils.instruments.parity import describe, float64_enabled, to_float64
from course_utils.lab import Entry, Lab, Size
from course_utils.labs._weights import draw_weights

TOLERANCE = 0.5
"""How far a landmark may be off, in pixels, before what is built on it suffers."""
MARGIN = 1.25
"""Right candidates are within the tolerance by this factor at least, wrong ones beyond it."""


@dataclass(frozen=True)
class PoseConfig:
    """Sizes of a landmark model: pixels of crop and patch, channels, and counts."""

    image: int
    patch: int
    width: int
    depth: int
    landmarks: int

    @property
    def tokens(self) -> int:
        """Patches of a crop."""
        return (self.image // self.patch) ** 2


class MixerBlock(eqx.Module):
    """One block: an MLP across the patches, then one across the channels."""

    norm_tokens: eqx.nn.LayerNorm
    mix_tokens: eqx.nn.MLP
    norm_channels: eqx.nn.LayerNorm
    mix_channels: eqx.nn.MLP

    def __init__(self, config: PoseConfig, *, key: PRNGKeyArray):
        tokens, channels = jax.random.split(key)
        width, count = config.width, config.tokens
        self.norm_tokens = eqx.nn.LayerNorm(width)
        self.mix_tokens = eqx.nn.MLP(count, count, 2 * width, 1, jax.nn.gelu, key=tokens)
        self.norm_channels = eqx.nn.LayerNorm(width)
        self.mix_channels = eqx.nn.MLP(width, width, 2 * width, 1, jax.nn.gelu, key=channels)

    def __call__(self, patches: Float[Array, "tokens width"]) -> Float[Array, "tokens width"]:
        """Return the patches after the block."""
        normed = jax.vmap(self.norm_tokens)(patches)
        patches = patches + jax.vmap(self.mix_tokens, in_axes=1, out_axes=1)(normed)
        normed = jax.vmap(self.norm_channels)(patches)
        return patches + jax.vmap(self.mix_channels)(normed)


class PoseModel(eqx.Module):
    """An MLP mixer that finds landmarks in one crop."""

    embed: eqx.nn.Conv2d
    blocks: list[MixerBlock]
    heat: eqx.nn.Linear
    config: PoseConfig = eqx.field(static=True)

    def __init__(self, config: PoseConfig, *, key: PRNGKeyArray):
        embed, heat, *blocks = jax.random.split(key, 2 + config.depth)
        self.embed = eqx.nn.Conv2d(3, config.width, config.patch, stride=config.patch, key=embed)
        self.blocks = [MixerBlock(config, key=block) for block in blocks]
        self.heat = eqx.nn.Linear(config.width, config.landmarks, key=heat)
        self.config = config

    def __call__(self, crop: Float[Array, "3 size size"]) -> Float[Array, "landmarks 2"]:
        """Return the landmarks of one crop, in pixels from its upper left corner."""
        patches = self.embed(crop.astype(self.embed.weight.dtype))
        patches = patches.reshape(self.config.width, -1).T
        for block in self.blocks:
            patches = block(patches)
        heat = jax.vmap(self.heat)(patches)
        return self.place(heat.astype(jnp.promote_types(heat.dtype, jnp.float32)))

    def place(self, heat: Float[Array, "tokens landmarks"]) -> Float[Array, "landmarks 2"]:
        """Return where the heat of each landmark has its centre, in pixels."""
        weights = jax.nn.softmax(HEAT * heat, axis=0)
        side = self.config.image // self.config.patch
        centres = (jnp.arange(side, dtype=heat.dtype) + 0.5) * self.config.patch
        rows, columns = jnp.meshgrid(centres, centres, indexing="ij")
        return weights.T @ jnp.stack([columns.reshape(-1), rows.reshape(-1)], axis=-1)


HEAT = 2.5
"""How peaked a landmark's heat is."""


# region student-broken
def broken_predict(model, crops):
    """Return the landmarks (n, landmarks, 2) of crops (n, 3, size, size), in pixels."""
    return jnp.stack([model(crop) for crop in crops])


@eqx.filter_jit
def compiled_predict(model, crops):
    """Return the landmarks of each crop. Fast, but `accept` refuses it."""
    return jax.vmap(model)(crops)


def broken_accept(reference, candidate, inputs):
    """Return whether `candidate` may stand in for `reference`.

    Args:
        reference: the function in use: crops (n, 3, size, size) to landmarks (n, landmarks, 2).
        candidate: a function of the same kind.
        inputs: batches of crops to try both on.
    """
    return all(bool(jnp.array_equal(reference(crops), candidate(crops))) for crops in inputs)


# endregion


# region student-solution
@eqx.filter_jit
def solution_predict(model, crops):
    """Return the landmarks (n, landmarks, 2) of crops (n, 3, size, size), in pixels."""
    return jax.vmap(model)(crops)


LIMIT = 0.5  # pixels: what the landmarks are used for bears that much, in any crop


def solution_accept(reference, candidate, inputs):
    """Return whether `candidate` may stand in for `reference`.

    Args:
        reference: the function in use: crops (n, 3, size, size) to landmarks (n, landmarks, 2).
        candidate: a function of the same kind.
        inputs: batches of crops to try both on.
    """
    for crops in inputs:
        apart = jnp.linalg.norm(candidate(crops) - reference(crops), axis=-1)
        # «At most the limit» is false for NaN, so NaN is refused; «more than the limit» is too.
        if not bool(jnp.max(apart) <= LIMIT):
            return False
    return True


# endregion


def make_model(config: PoseConfig, seed: int) -> PoseModel:
    """Return a landmark model with random weights."""
    return draw_weights(PoseModel, config, rng=np.random.default_rng(seed))


def make_crops(
    config: PoseConfig, rng: np.random.Generator, count: int
) -> Float[Array, "count 3 size size"]:
    """Return random crops: a few soft coloured blobs with sensor noise."""
    size = config.image
    rows, columns = np.mgrid[0:size, 0:size] / size
    centres = rng.uniform(0.1, 0.9, (count, 5, 2, 1, 1))
    widths = rng.uniform(0.05, 0.3, (count, 5, 1, 1))
    colours = rng.normal(0.0, 1.5, (count, 5, 3, 1, 1))
    squared = (rows - centres[:, :, 0]) ** 2 + (columns - centres[:, :, 1]) ** 2
    blobs = np.exp(-squared / (2 * widths**2))
    crops = (colours * blobs[:, :, None]).sum(axis=1)
    crops += rng.normal(0.0, 0.1, crops.shape)
    return jnp.asarray(crops, dtype=jnp.float32)


def reference(model: PoseModel, crops: Array) -> np.ndarray:
    """Return the landmarks of each crop computed in float64."""
    with float64_enabled():
        return np.asarray(_mapped(*to_float64((model, crops))))


@eqx.filter_jit
def _mapped(model, crops):
    return jax.vmap(model)(crops)


@eqx.filter_jit
def _one(model, crop):
    return model(crop)


@eqx.filter_jit
def _by_twos(model, crops):
    return jax.lax.map(model, crops, batch_size=2)


def _reordered(model: PoseModel, rng: np.random.Generator) -> PoseModel:
    """Return the same model with the hidden units of its MLPs in another order."""
    blocks = [
        eqx.tree_at(
            lambda each: (each.mix_tokens, each.mix_channels),
            block,
            (_shuffled(block.mix_tokens, rng), _shuffled(block.mix_channels, rng)),
        )
        for block in model.blocks
    ]
    return eqx.tree_at(lambda each: each.blocks, model, blocks)


def _shuffled(mlp: eqx.nn.MLP, rng: np.random.Generator) -> eqx.nn.MLP:
    first, second = mlp.layers
    order = rng.permutation(first.weight.shape[0])
    return eqx.tree_at(
        lambda each: (each.layers[0].weight, each.layers[0].bias, each.layers[1].weight),
        mlp,
        tuple(
            jnp.asarray(part)
            for part in (
                np.asarray(first.weight)[order],
                np.asarray(first.bias)[order],
                np.asarray(second.weight)[:, order],
            )
        ),
    )


def _in_bfloat16(model: PoseModel) -> PoseModel:
    def lower(leaf):
        return leaf.astype(jnp.bfloat16) if eqx.is_inexact_array(leaf) else leaf

    return jax.tree.map(lower, model)


class _Way:
    """A way to compute landmarks, which computes each crop of the test only once.

    Crops are known by their values, however they are cut into batches.
    """

    def __init__(self, compute: Callable[[Array], Array], inputs: Sequence[Array]):
        self._compute, self._inputs = compute, inputs
        self._known: dict[bytes, tuple[np.ndarray, int]] = {}

    def __call__(self, crops: Array) -> tuple[np.ndarray, list[int]]:
        """Return the landmarks (n, landmarks, 2), and each crop's number in the test, or -1."""
        if not self._known:
            for batch in self._inputs:
                for crop, points in zip(
                    _keys(batch), np.asarray(self._compute(batch)), strict=True
                ):
                    self._known[crop] = points, len(self._known)
        keys = _keys(crops)
        if not all(key in self._known for key in keys):
            return np.asarray(self._compute(crops)), [-1] * len(keys)
        points, numbers = zip(*(self._known[key] for key in keys), strict=True)
        return np.stack(points), list(numbers)


def _keys(crops: Array) -> list[bytes]:
    return [crop.tobytes() for crop in np.asarray(crops)]


def _right_ways(
    model: PoseModel, rng: np.random.Generator, inputs: Sequence[Array]
) -> dict[str, _Way]:
    """Return ways to compute the landmarks that differ by rounding, by what they are called."""
    shuffled, lowered = _reordered(model, rng), _in_bfloat16(model)
    computes: dict[str, Callable[[Array], Array]] = {
        "the reference itself": lambda crops: broken_predict(model, crops),
        "fused in one jit": lambda crops: _mapped(model, crops),
        "crop by crop": lambda crops: jnp.stack([_one(model, crop) for crop in crops]),
        "two crops at a time": lambda crops: _by_twos(model, crops),
        "sums in another order": lambda crops: _mapped(shuffled, crops),
        "network in bfloat16": lambda crops: _mapped(lowered, crops),
        "rounded to 1/16 px": lambda crops: jnp.round(16 * _mapped(model, crops)) / 16,
    }
    return {name: _Way(compute, inputs) for name, compute in computes.items()}


Change = Callable[[np.ndarray, list[int]], np.ndarray]
"""Changes the landmarks (n, landmarks, 2) of one call, given the numbers of its crops, or -1."""
Spoil = Callable[[np.ndarray, np.random.Generator], Change]
"""Draws a change, given the right landmarks of all crops (crops, landmarks, 2)."""
Direction = Callable[[np.ndarray], np.ndarray]
"""Unit vectors (..., 2) for points (..., 2)."""


def _along(x: float, y: float) -> Direction:
    unit = np.array([x, y]) / np.hypot(x, y)
    return lambda points: np.broadcast_to(unit, points.shape)


def _across(points):
    """At a right angle to the line from the origin: the distance from there stays as it is."""
    return np.stack([-points[..., 1], points[..., 0]], axis=-1) / np.linalg.norm(
        points, axis=-1, keepdims=True
    )


STRAIGHT, SLANTED = (_along(1, 0), _along(0, 1)), (_along(1, 1), _along(1, -1))


@dataclass(frozen=True)
class _Step:
    """A step of the points in a direction or against it.

    Attributes:
        shortest: the shortest step that is drawn, in pixels.
        longest: the longest.
        direction: where it points.
        crop: the number of the only crop that is changed; all are if there is none.
        landmark: the only one of that crop that is; all are if there is none.
    """

    shortest: float
    longest: float
    direction: Direction
    crop: int | None = None
    landmark: int | None = None

    def __call__(self, _right: np.ndarray, rng: np.random.Generator) -> Change:
        length = rng.choice([-1, 1]) * rng.uniform(self.shortest, self.longest)

        def move(points):
            return points + length * self.direction(points)

        if self.crop is None:
            return lambda points, _numbers: move(points)
        places = slice(None) if self.landmark is None else self.landmark
        return _at_one_place(self.crop, places, move)


def _at_one_place(crop, places, change):
    """Change one crop, at the given landmarks."""

    def spoil(points, numbers):
        points = points.copy()
        for item, number in enumerate(numbers):
            if number == crop:
                points[item, places] = change(points[item, places])
        return points

    return spoil


def _nan(crop: int) -> Spoil:
    def spoil(right, rng):
        return _at_one_place(crop, int(rng.integers(right.shape[1])), lambda p: p * np.nan)

    return spoil


def _scaled(shortest: float, longest: float) -> Spoil:
    def spoil(_right, rng):
        factor = 1 + rng.choice([-1, 1]) * rng.uniform(shortest, longest)
        return lambda points, _numbers: points * factor

    return spoil


def _swapped(right, rng):
    count = right.shape[1]
    apart = np.linalg.norm(right[:, :, None] - right[:, None], axis=-1).max(axis=0)
    pairs = [(i, j) for i in range(count) for j in range(i) if apart[i, j] > 5 * TOLERANCE]
    order = np.arange(count)
    i, j = pairs[rng.integers(len(pairs))]
    order[[i, j]] = j, i
    return lambda points, _numbers: points[:, order]


def _stale(*, first: bool) -> Spoil:
    """Answer with what was right at the first call, or at the call before."""

    def spoil(_right, _rng):
        kept: list[np.ndarray] = []

        def change(points, _numbers):
            if not kept or kept[0].shape != points.shape:
                kept[:] = [points]
                return points
            answer = kept[0]
            if not first:
                kept[0] = points
            return answer

        return change

    return spoil


_EVERY = (
    "Try both on every batch, one call after the other, and let each answer decide: one that is "
    "not looked at, of a call to warm up, may hide it."
)
_LARGEST = (
    "Take the largest distance over landmarks, crops and batches: a mean or a share hides one that "
    "is wrong."
)
WRONG = {
    "NaN in one landmark": (
        "Every comparison with NaN is false. Accept where `error <= limit` is true; do not refuse "
        "where `error > limit` is. `nanmax` drops a NaN, and so do Python's `max` and `min`, "
        "depending on the order."
    ),
    "answers of an earlier call": _EVERY,
    "one landmark off": _LARGEST,
    "one crop of a batch off": _LARGEST,
    "two landmarks swapped": (
        "Compare landmark by landmark: nothing that is sorted, averaged or matched first."
    ),
    "all off by the same step": (
        "Hold the distance, of x and y together, against what the task bears. Compare positions as "
        "they are, not what is left once their mean is taken off."
    ),
    "all scaled by a few percent": (
        "A tolerance relative to the values grows with them: hold a distance in pixels against a "
        "limit in pixels."
    ),
}
"""By what they are called: what to tell who accepts a candidate with that mistake."""
_WITHIN = (
    f"Each of these is within {TOLERANCE} px, which the task calls right. Compare distances in "
    "pixels with that, not bits and not a guessed small number, and ask the reference anew in each "
    "call."
)
"""What to tell who refuses a right candidate, whatever makes it differ."""
COARSE = ("network in bfloat16", "rounded to 1/16 px")
"""Right ways that differ by more than the rounding of float32."""
TWICE = ("the reference itself", "sums in another order")
"""Right ways that a gate is tried on twice."""
BATCHES, CROPS = 4, 4
"""Batches that a gate gets, and crops in each."""


def make_cases(size: Size, model: PoseModel, rng: np.random.Generator) -> tuple[GateCase, ...]:
    """Return candidates that a gate must judge: right ones and wrong ones, made anew.

    A wrong one is a right one, drawn at random, with a mistake on top: what its results look like
    otherwise, to the bit, says nothing. All are functions that look the same from outside. Distance
    decides what is right; steps are such that x and y, each held against the tolerance, agree.

    Half of the cases are about another model, on batches of which half are the same: what was
    right in one case says nothing about the next.
    """
    batches = [make_crops(size.config, rng, CROPS) for _ in range(BATCHES + BATCHES // 2)]
    other = make_model(size.config, int(rng.integers(2**31)))
    pair = (
        _make_test(model, rng, tuple(batches[:BATCHES])),
        _make_test(other, rng, tuple(batches[-BATCHES:])),
    )
    ways, tests = list(pair[0].ways), itertools.cycle(_dealt(rng, pair))
    fine = [name for name in ways if name not in COARSE]
    cases = []
    # Sorted, so that what is tried twice is tried once in each test.
    for name in sorted((*ways, *TWICE)):
        cases.append(next(tests).case(name, name, _as_it_is, right=True, hint=_WITHIN))
    for direction in (*STRAIGHT, *SLANTED, _across):
        # A little short of what the margin allows, so that the way's own rounding has room.
        step = _Step(0.76 * TOLERANCE, 0.79 * TOLERANCE, direction)
        way = fine[rng.integers(len(fine))]
        cases.append(next(tests).case("off by a small step", way, step, right=True, hint=_WITHIN))
    for name, spoil in _mistakes(rng, size.config.landmarks):
        # On a coarse way the length of a short step would not be known any more.
        names = fine if isinstance(spoil, _Step) else ways
        way = names[rng.integers(len(names))]
        cases.append(next(tests).case(name, way, spoil, right=False, hint=WRONG[name]))
    return tuple(cases)


def _mistakes(rng: np.random.Generator, landmarks: int) -> list[tuple[str, Spoil]]:
    """Return two mistakes of each kind.

    Those in one crop are dealt out over the batches and over the places in a batch, those in one
    landmark go to the first and the last: none is safe to leave out. Steps are dealt out over the
    directions: neither x nor y is, nor their sum, nor the distance from the corner.

    Steps along x or y alone are short: half of a pixel squared, a mean over x and y, or a high
    percentile of a batch would bear them. The others have to be longer for both x and y to show.
    """
    batches = itertools.cycle(rng.permutation(BATCHES).tolist())

    def crop(place: int) -> int:
        return next(batches) * CROPS + place

    straight, slanted = _dealt(rng, STRAIGHT), _dealt(rng, SLANTED)
    mistakes: list[tuple[str, Spoil]] = []
    short, middle, long = (
        (least * TOLERANCE, most * TOLERANCE)
        for least, most in ((1.28, 1.38), (1.6, 1.8), (2.2, 2.6))
    )
    for lengths, direction in ((short, straight[0]), (middle, slanted[0])):
        mistakes.append(("all off by the same step", _Step(*lengths, direction)))
    landmark, place = _dealt(rng, (0, landmarks - 1)), _dealt(rng, range(1, CROPS - 1))
    for number, (lengths, direction) in enumerate(((short, straight[1]), (long, _across))):
        step = _Step(*lengths, direction, crop(place[number]), landmark[number])
        mistakes.append(("one landmark off", step))
    place = _dealt(rng, (0, CROPS - 1))
    for number, direction in enumerate((slanted[1], _dealt(rng, (*STRAIGHT, *SLANTED))[0])):
        step = _Step(*long, direction, crop(place[number]))
        mistakes.append(("one crop of a batch off", step))
    for first in (True, False):
        mistakes.append(("NaN in one landmark", _nan(crop(int(rng.integers(CROPS))))))
        mistakes.append(("answers of an earlier call", _stale(first=first)))
        mistakes.append(("two landmarks swapped", _swapped))
    for few in (_scaled(0.017, 0.019), _scaled(0.03, 0.05)):
        mistakes.append(("all scaled by a few percent", few))
    return mistakes


def _dealt(rng: np.random.Generator, items: Sequence[Any]) -> list[Any]:
    return [items[number] for number in rng.permutation(len(items))]


def _as_it_is(_right, _rng):
    return lambda points, _numbers: points


@dataclass(frozen=True)
class _Test:
    """What the cases about one model share.

    Attributes:
        inputs: the batches.
        exact: the right landmarks of all crops, (crops, landmarks, 2).
        ways: right ways to compute them, by what they are called.
        rng: where mistakes are drawn from.
    """

    inputs: tuple[Array, ...]
    exact: np.ndarray
    ways: dict[str, _Way]
    rng: np.random.Generator

    def case(self, name: str, way: str, spoil: Spoil, *, right: bool, hint: str) -> GateCase:
        """Return a case; its candidate's error is that of another one, drawn alike."""
        seed = self.rng.integers(2**32)

        def candidate() -> Callable[[Array], Array]:
            return _function(self.ways[way], spoil(self.exact, np.random.default_rng(seed)))

        shown = candidate()
        results = np.concatenate([np.asarray(shown(crops)) for crops in self.inputs])
        error = landmark_error(self.exact, results)
        trusted = self.ways["the reference itself"]
        same = _function(trusted, _as_it_is(self.exact, self.rng))
        return GateCase(name, right, error, (same, candidate(), self.inputs), hint)


def _make_test(model: PoseModel, rng: np.random.Generator, inputs: tuple[Array, ...]) -> _Test:
    exact = np.concatenate([reference(model, crops) for crops in inputs])
    return _Test(inputs, exact, _right_ways(model, rng, inputs), rng)


def _function(way: _Way, change: Change) -> Callable[[Array], Array]:
    """Return a function of crops that looks the same from outside whatever it computes."""

    def predict(crops: Array) -> Array:
        traced = isinstance(crops, Tracer)
        if traced or np.ndim(crops) != 4:
            raise TypeError(
                "candidates are called on whole batches of arrays, outside any jit: expected crops "
                f"(n, 3, size, size), got {'a tracer' if traced else describe(crops)}. Call both "
                "first, without jit, vmap, grad or eval_shape around the call; what compares their "
                "results may be compiled."
            )
        return jnp.asarray(change(*way(crops)), dtype=jnp.float32)

    return predict


def landmark_error(expected, got) -> float:
    """Return the largest distance between a landmark and where it should be, in pixels."""
    return float(np.linalg.norm(np.asarray(got, dtype=np.float64) - expected, axis=-1).max())


_CHAPTER = "book/chapters/05_parity"
_FIX = Link(_CHAPTER, "the-fix")
_COMPILED = Link("book/chapters/01_eager", "the-fix")

LAB = Lab(
    name="parity_gate",
    title="A gate that refuses what is right",
    family="parity",
    minutes=30,
    difficulty=2,
    goal="Let the task's own error decide whether a faster path is right, and take the path.",
    item="crop",
    entries=(
        Entry("predict", ("model", "crops")),
        Entry("accept", ("reference", "candidate", "inputs")),
    ),
    broken={"predict": broken_predict, "accept": broken_accept},
    solution={"predict": solution_predict, "accept": solution_accept},
    sizes={
        # Two CPU cores, jax 0.10.2: the measurements stand beside each check.
        "cpu": Size(PoseConfig(64, 8, 32, 3, 12), items=4, timed_items=1),
        # Not measured: no GPU was at hand.
        "gpu": Size(PoseConfig(64, 8, 256, 8, 12), items=4, timed_items=1),
    },
    prepare=make_model,
    arguments=lambda size, model, rng, count: (model, make_crops(size.config, rng, count)),
    oracle=reference,
    # Each check: first what right submissions reach, then broken or the nearest wrong one.
    checks=(
        # 2e-5 px in float32; 11 px with two landmarks swapped.
        MetricWithin("landmark error", landmark_error, tolerance=TOLERANCE, unit="px", link=_FIX),
        # 0 of 14 refused; 7 with a guessed tolerance of 0.001 px or a reference that is kept,
        # broken 12.
        GateAccepts(
            "accept",
            make_cases,
            TOLERANCE,
            "px",
            link=Link(_CHAPTER, "how-far-apart"),
            margin=MARGIN,
        ),
        # 0 of 14 accepted; 1 with a percentile or both warmed up first, 1 or 2 with a landmark or a
        # coordinate left out, 2 where NaN slips through, with pixels squared or with an RMS, 7 with
        # three times the limit.
        GateRejects(
            "accept",
            make_cases,
            TOLERANCE,
            "px",
            link=Link(_CHAPTER, "a-gate-that-can-fail"),
            margin=MARGIN,
        ),
        RecompilesAtMost(0, link=_FIX),
        # 0; 1 with a jit made in the call.
        CompilesAtMost(0, link=_FIX),
        # Up to 1.5; batched without jit 43, broken 172.
        LaunchesAtMost(8, link=_COMPILED),
        SyncsAtMost(0, link=_FIX),
        # 0.8 to 2.6 times, the most with busy processes beside; 9.7 to 15 on a quiet machine when
        # fourteen are computed and one is kept.
        TimeWithin(6, link=_FIX),
        # 65 to 120 times, on a busy machine.
        SpeedupAtLeast(8, link=_FIX),
    ),
)
