"""Lab of the parity family: a loss that is finite as it is tried, and NaN once it is compiled.

A drone finds out where it is from laser ranges to reflectors on the ground. Some reflectors lie
straight below it. There the compiled program, which rounds a product once less than the eager one,
takes the root of a number just below zero; and the gradient of a length that is zero is NaN even
where a `where` picks another value.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from course_utils.checks import (
    CompilesAtMost,
    LaunchesAtMost,
    MetricWithin,
    NonFiniteAtMost,
    ProgramSizeAtMost,
    RecompilesAtMost,
    SyncsAtMost,
    TimeWithin,
)
from course_utils.findings import Link
from course_utils.lab import Entry, Functions, Lab, Size


# region student-broken
def broken_ground(slants, heights):
    """Return how far away along the ground each reflector is by its laser range: (n,)."""
    return jnp.sqrt(slants * slants - heights * heights)


def broken_map_distance(position, reflectors):
    """Return how far away each reflector is by the map: (n,)."""
    squared = ((reflectors - position) ** 2).sum(axis=-1)
    return jnp.where(squared > 0, jnp.sqrt(squared), 0.0)


@jax.jit
def broken_fit(position, heights, reflectors, slants):
    """Return the loss of each reflector (n,), and the gradients of their mean.

    The gradients are those with respect to the position (2,) and to the heights (n,).
    """

    def mean_loss(position, heights):
        distances = broken_map_distance(position, reflectors)
        losses = (broken_ground(slants, heights) - distances) ** 2
        return losses.mean(), losses

    gradients, losses = jax.grad(mean_loss, argnums=(0, 1), has_aux=True)(position, heights)
    return losses, gradients


# endregion


# region student-solution
def solution_root(squared):
    """Return the square root, with a gradient of zero where it is zero."""
    positive = squared > 0
    # Both branches of a `where` are differentiated: the root must not even see the zero.
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, squared, 1.0)), 0.0)


def solution_ground(slants, heights):
    """Return how far away along the ground each reflector is by its laser range: (n,)."""
    # A difference of squares is a product: exactly zero for equal factors, whatever is fused, and
    # precise where they are nearly equal.
    return solution_root((slants - heights) * (slants + heights))


def solution_map_distance(position, reflectors):
    """Return how far away each reflector is by the map: (n,)."""
    return solution_root(((reflectors - position) ** 2).sum(axis=-1))


@jax.jit
def solution_fit(position, heights, reflectors, slants):
    """Return the loss of each reflector (n,), and the gradients of their mean.

    The gradients are those with respect to the position (2,) and to the heights (n,).
    """

    def mean_loss(position, heights):
        distances = solution_map_distance(position, reflectors)
        losses = (solution_ground(slants, heights) - distances) ** 2
        return losses.mean(), losses

    gradients, losses = jax.grad(mean_loss, argnums=(0, 1), has_aux=True)(position, heights)
    return losses, gradients


# endregion


Scan = tuple[
    Float[Array, "2"],
    Float[Array, " reflectors"],
    Float[Array, "reflectors 2"],
    Float[Array, " reflectors"],
]
"""One scan: the drone's position, its height above each reflector, where these are, and ranges."""


def make_scans(reflectors: int, rng: np.random.Generator, count: int) -> tuple[Scan, ...]:
    """Return random scans, in units of 10 m.

    Of a scan's reflectors a third are exactly as far away as the drone is high above them; another
    third are so but for the last bits, as nearly right measurements are; none is less far away.
    One in six is on the map exactly where the drone is, one in twelve but 1e-5 to 1e-3 away from
    it. The rest are somewhere else.
    """
    return tuple(_make_scan(reflectors, rng) for _ in range(count))


def _make_scan(reflectors: int, rng: np.random.Generator) -> Scan:
    order = rng.permutation(reflectors)
    third = reflectors // 3
    heights = rng.uniform(1.0, 4.0, reflectors).astype(np.float32)
    slants = (heights * rng.uniform(1.02, 1.5, reflectors)).astype(np.float32)
    equal, near = order[:third], order[third : 2 * third]
    slants[equal] = heights[equal]
    slants[near] = heights[near]
    for _ in range(6):
        further = near[rng.random(third) < 0.5]
        slants[further] = np.nextafter(slants[further], np.float32(np.inf))
    position = rng.uniform(-2.0, 2.0, 2).astype(np.float32)
    places = (position + rng.normal(0.0, 1.0, (reflectors, 2))).astype(np.float32)
    order, sixth, twelfth = rng.permutation(reflectors), reflectors // 6, reflectors // 12
    places[order[:sixth]] = position
    angles = rng.uniform(0.0, 2 * np.pi, twelfth)
    steps = 10 ** rng.uniform(-5.0, -3.0, twelfth) * np.stack([np.cos(angles), np.sin(angles)])
    places[order[sixth : sixth + twelfth]] = position + steps.T
    position, heights, places, slants = map(jnp.asarray, (position, heights, places, slants))
    return position, heights, places, slants


Fit = tuple[Array, tuple[Array, Array]]
"""Losses (n,), and the gradients of their mean by position (2,) and by heights (n,)."""


def fit_all(functions: Functions, args: tuple[tuple[Scan, ...]]) -> tuple[Fit, ...]:
    """Run one pass: one call for each scan, as they come in."""
    return tuple(functions["fit"](*scan) for scan in args[0])


def reference(scans: tuple[Scan, ...]) -> tuple:
    """Return what each scan gives in float64; a root that is zero has a gradient of zero."""
    return tuple(
        _reference(*(np.asarray(part, dtype=np.float64) for part in scan)) for scan in scans
    )


def _reference(position, heights, reflectors, slants):
    ground_distance = np.sqrt((slants - heights) * (slants + heights))
    offsets = position - reflectors
    distances = np.linalg.norm(offsets, axis=-1)
    apart = ground_distance - distances
    steps = 2 * apart / len(slants)
    by_height = np.divide(
        -heights, ground_distance, out=np.zeros_like(heights), where=ground_distance > 0
    )
    by_position = np.divide(
        -offsets, distances[:, None], out=np.zeros_like(offsets), where=distances[:, None] > 0
    )
    return apart**2, ((steps[:, None] * by_position).sum(axis=0), steps * by_height)


def loss_error(expected, got) -> float:
    """Return the largest error of a loss among the finite ones, in square units."""
    return max(
        float(_apart(right[0], mine[0], scale=1.0).max())
        for right, mine in zip(expected, got, strict=True)
    )


def gradient_error(expected, got) -> float:
    """Return the largest error of a gradient among the finite ones, relative to its size.

    Gradients by height grow without bound near equal pairs, so each is held against its own size,
    and against the usual size of its kind where it is smaller.
    """
    return float(_gradient_errors(expected, got).max())


def _gradient_errors(expected, got) -> np.ndarray:
    return np.concatenate(
        [
            _apart(right, mine, scale=np.abs(right) + np.median(np.abs(right)))
            for (_, rights), (_, mines) in zip(expected, got, strict=True)
            for right, mine in zip(rights, mines, strict=True)
        ]
    )


def _apart(expected: np.ndarray, got: Array, *, scale) -> np.ndarray:
    apart = np.abs(np.asarray(got, dtype=np.float64) - expected) / scale
    return np.where(np.isfinite(apart), apart, 0.0)


def losses_of(result: tuple[Fit, ...]) -> tuple[Array, ...]:
    """Return the losses of a pass."""
    return tuple(losses for losses, _ in result)


def gradients_of(result: tuple[Fit, ...]) -> tuple[tuple[Array, Array], ...]:
    """Return the gradients of a pass."""
    return tuple(gradients for _, gradients in result)


def place_of_loss(args: tuple[tuple[Scan, ...]], index: int) -> str:
    """Say which reflector a loss belongs to, with what was measured there."""
    scan, number = divmod(index, len(args[0][0][1]))
    return _reflector(args[0][scan], number)


def place_of_gradient(args: tuple[tuple[Scan, ...]], index: int) -> str:
    """Say which gradient this is, and which reflector it belongs to."""
    scan, number = divmod(index, 2 + len(args[0][0][1]))
    if number < 2:
        position, _, reflectors, _ = args[0][scan]
        there = int((np.asarray(reflectors) == np.asarray(position)).all(axis=-1).argmax())
        return (
            f"that by the position, coordinate {number}, which sums over all reflectors (number "
            f"{there} is on the map exactly where the drone is)"
        )
    return f"that by the height above {_reflector(args[0][scan], number - 2)}"


def place_of_gradient_error(args: tuple[tuple[Scan, ...]], expected, got) -> str:
    """Say which gradient is off by most."""
    return place_of_gradient(args, int(_gradient_errors(expected, got).argmax()))


def _reflector(scan: Scan, number: int) -> str:
    _, heights, _, slants = scan
    return f"reflector {number}: slant {slants[number]:.9g}, height {heights[number]:.9g}"


_CHAPTER = "book/chapters/05_parity"
_COMPILED = Link("book/chapters/01_eager", "the-fix")

LAB = Lab(
    name="parity_nan",
    title="A loss that only jit makes NaN",
    family="parity",
    minutes=25,
    difficulty=3,
    goal="Find out why a compiled loss is NaN, and rewrite it so that nothing can make it so.",
    item="scan",
    entries=(Entry("fit", ("position", "heights", "reflectors", "slants")),),
    broken={"fit": broken_fit},
    solution={"fit": solution_fit},
    # Two CPU cores, jax 0.10.2: the measurements stand beside each check. A GPU gets the same size,
    # which was not measured on one.
    sizes={"cpu": Size(600, items=3, timed_items=1)},
    prepare=lambda config, seed: None,
    arguments=lambda size, setting, rng, count: (make_scans(size.config, rng, count),),
    oracle=reference,
    # Each check: first what right submissions reach, then broken or the nearest wrong one. There is
    # no speedup to ask for: the starter is compiled already, and as fast as the solution.
    checks=(
        # 0; broken about 600 of 3,600, where the device fuses.
        NonFiniteAtMost(
            0,
            "losses",
            losses_of,
            link=Link(_CHAPTER, "a-nan-made-by-the-compiler"),
            hint="Write the difference of squares so that it cannot fall below zero however it is "
            "rounded: as a product.",
            where=place_of_loss,
            absent="This device rounds both squares, so they cancel exactly; one that fuses a "
            "multiplication with a subtraction makes NaN of the same code.",
        ),
        # 0; 12 with the map's root left alone, 1,220 with one `where`.
        NonFiniteAtMost(
            0,
            "gradients",
            gradients_of,
            link=Link(_CHAPTER, "a-nan-made-by-the-compiler"),
            hint="The slope of a square root is infinite at zero, and `where` multiplies it by "
            "zero where it is dropped. Put a `where` inside the root too: it must not see zero.",
            where=place_of_gradient,
        ),
        # 5e-6; 8e-5 with 1e-10 added under the map's root, 6e-4 with a difference that is clipped.
        MetricWithin(
            "loss error",
            loss_error,
            tolerance=3e-5,
            unit="",
            link=Link(_CHAPTER, "the-fix"),
            advice="Of two squares that are nearly equal little but rounding is left once they are "
            "subtracted. Clipping or lifting the difference hides the NaN and keeps that error: "
            "write it as a product, which is precise. A distance by the map that is short is not "
            "zero either.",
        ),
        # 2e-6; 9e-4 with 1e-12 added under the map's root, 0.6 where NaN is replaced.
        MetricWithin(
            "gradient error",
            gradient_error,
            tolerance=3e-4,
            unit="times its size",
            link=Link(_CHAPTER, "the-fix"),
            advice="Where a root is zero its gradient must be zero, and there alone; everywhere "
            "else it is what the formula says, however large. Neither clip it nor replace it "
            "afterwards, since the position's gradient is a sum over all reflectors.",
            where=place_of_gradient_error,
        ),
        # 0; 2 with a jit made in the call.
        RecompilesAtMost(0, link=Link(_CHAPTER, "the-fix")),
        CompilesAtMost(0, link=Link(_CHAPTER, "the-fix")),
        # 1; 44 without jit.
        LaunchesAtMost(4, link=_COMPILED),
        SyncsAtMost(0, link=Link(_CHAPTER, "the-fix")),
        # 150 to 1,170: ahead of time, and with `hypot`. NumPy has no program.
        ProgramSizeAtMost(4000, launches=4, link=_COMPILED),
        # 0.9 to 1.2 times.
        TimeWithin(8, link=Link(_CHAPTER, "the-fix")),
    ),
    drive=fit_all,
    argument_names=("scans",),
    may_be_non_finite=True,
    shows_launches=False,
)
