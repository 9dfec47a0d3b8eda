"""Submissions of the lab parity_nan."""

import jax
import jax.numpy as jnp
import numpy as np

from course_utils.instruments.parity import float64_enabled
from course_utils.labs.parity_nan import (
    broken_ground,
    broken_map_distance,
    solution_fit,
    solution_ground,
    solution_map_distance,
    solution_root,
)
from tests.submissions import fails, packaged, passes, too_slow

LAB = "parity_nan"


def eager_fit(
    position, heights, reflectors, slants, *, ground=solution_ground, by_map=solution_map_distance
):
    """Fit, with either of the two distances computed in another way."""

    def mean_loss(position, heights):
        losses = (ground(slants, heights) - by_map(position, reflectors)) ** 2
        return losses.mean(), losses

    gradients, losses = jax.grad(mean_loss, argnums=(0, 1), has_aux=True)(position, heights)
    return losses, gradients


def fit(**distances):
    """Return a `fit` that is one jit around the fit with some distances replaced."""
    return jax.jit(lambda *scan: eager_fit(*scan, **distances))


# Right, in other idioms.


def product_of_roots(slants, heights):
    apart = slants > heights
    rest = jnp.where(apart, slants - heights, 1.0)
    return jnp.where(apart, jnp.sqrt(rest) * jnp.sqrt(slants + heights), 0.0)


@jax.custom_jvp
def careful_root(squared):
    return jnp.sqrt(squared)


@careful_root.defjvp
def _(primals, tangents):
    root = jnp.sqrt(primals[0])
    slope = jnp.where(root > 0, 0.5 / jnp.where(root > 0, root, 1.0), 0.0)
    return root, slope * tangents[0]


def ground_by_own_rule(slants, heights):
    return careful_root((slants - heights) * (slants + heights))


def map_by_own_rule(position, reflectors):
    return careful_root(((reflectors - position) ** 2).sum(axis=-1))


def ground_in_small_parts(slants, heights):
    """Use that (h + d)^2 - h^2 = d (2 h + d)."""
    more = slants - heights
    return solution_root(more * (2 * heights + more))


@jax.jit
def written_out(position, heights, reflectors, slants):
    """Write the derivatives out by hand."""
    ground, offsets = solution_ground(slants, heights), position - reflectors
    distances = solution_map_distance(position, reflectors)
    steps = 2 * (ground - distances) / len(slants)
    by_height = jnp.where(ground > 0, -heights / jnp.where(ground > 0, ground, 1.0), 0.0)
    away = distances > 0
    by_place = jnp.where(away[:, None], -offsets / jnp.where(away, distances, 1.0)[:, None], 0.0)
    gradient = jnp.einsum("n,nd->d", steps, by_place)
    return (ground - distances) ** 2, (gradient, steps * by_height)


@jax.jit
def one_reflector_at_a_time(position, heights, reflectors, slants):
    def loss(position, height, reflector, slant):
        apart = solution_ground(slant, height) - solution_root(((reflector - position) ** 2).sum())
        return apart**2

    each = jax.vmap(jax.value_and_grad(loss, argnums=(0, 1)), in_axes=(None, 0, 0, 0))
    losses, (by_position, by_height) = each(position, heights, reflectors, slants)
    return losses, (by_position.mean(axis=0), by_height / len(slants))


def ground_of_what_is_not_equal(slants, heights):
    """Ask the ranges themselves, none of which is below the height."""
    equal = slants == heights
    product = (slants - heights) * (slants + heights)
    return jnp.where(equal, 0.0, jnp.sqrt(jnp.where(equal, 1.0, product)))


@jax.jit
def in_float64(*scan):
    with float64_enabled():

        def ground(slants, heights):
            wide, high = slants.astype(jnp.float64), heights.astype(jnp.float64)
            return solution_root(wide * wide - high * high).astype(jnp.float32)

        return eager_fit(*scan, ground=ground)


# Wrong.


def ground_clipped(slants, heights):
    return jnp.sqrt(jnp.maximum(slants * slants - heights * heights, 0.0))


def ground_clipped_with_a_careful_root(slants, heights):
    return solution_root(jnp.maximum(slants * slants - heights * heights, 0.0))


def ground_lifted(slants, heights):
    return jnp.sqrt(jnp.maximum(slants * slants - heights * heights, 0.0) + 1e-6)


def map_lifted(position, reflectors):
    return jnp.sqrt(((reflectors - position) ** 2).sum(axis=-1) + 1e-12)


def map_zero_within(shortest):
    """Return a distance by the map that is zero below a threshold."""

    def by_map(position, reflectors):
        squared = ((reflectors - position) ** 2).sum(axis=-1)
        return solution_root(jnp.where(squared > shortest**2, squared, 0.0))

    return by_map


def map_with_half_a_slope(position, reflectors):
    """What `jnp.hypot` did before JAX 0.12, which has NaN there: at zero its slopes are a half."""
    east, north = (reflectors - position).T
    same = (east == 0) & (north == 0)
    apart = jnp.hypot(jnp.where(same, 1, east), jnp.where(same, 1, north))
    return jnp.where(same, 0.5 * (east + north), apart)


def in_numpy(*scan):
    """Compute everything on the host, with the derivatives written out."""
    position, heights, reflectors, slants = (np.asarray(part, np.float64) for part in scan)
    ground, offsets = np.sqrt((slants - heights) * (slants + heights)), position - reflectors
    distances = np.linalg.norm(offsets, axis=-1)
    steps = 2 * (ground - distances) / len(slants)
    by_height = np.where(ground > 0, -heights / np.where(ground > 0, ground, 1), 0)
    away = distances > 0
    by_place = np.where(away[:, None], -offsets / np.where(away, distances, 1)[:, None], 0)
    results = (ground - distances) ** 2, (steps @ by_place, steps * by_height)
    return jax.tree.map(lambda each: jnp.asarray(each, jnp.float32), results)


def ground_of_the_absolute_value(slants, heights):
    return solution_root(jnp.abs(slants * slants - heights * heights))


def ground_kept_from_fusing(slants, heights):
    squares = jax.lax.optimization_barrier((slants * slants, heights * heights))
    return solution_root(squares[0] - squares[1])


def ground_as_a_product(slants, heights):
    return jnp.sqrt((slants - heights) * (slants + heights))


def ground_with_one_where(slants, heights):
    squared = (slants - heights) * (slants + heights)
    return jnp.where(squared > 0, jnp.sqrt(squared), 0.0)


@jax.jit
def replaced_afterwards(*scan):
    losses, gradients = eager_fit(*scan, ground=broken_ground, by_map=broken_map_distance)
    return jax.tree.map(lambda each: jnp.nan_to_num(each, posinf=0, neginf=0), (losses, gradients))


@jax.jit
def gradients_replaced_afterwards(*scan):
    losses, gradients = eager_fit(*scan, ground=ground_as_a_product, by_map=broken_map_distance)
    return losses, jax.tree.map(lambda g: jnp.where(jnp.isfinite(g), g, 0.0), gradients)


def ground_without_slope(slants, heights):
    return jax.lax.stop_gradient(solution_ground(slants, heights))


def jit_in_the_call(*scan):
    return fit()(*scan)


def looked_at_before_it_goes_on(*scan):
    losses, gradients = solution_fit(*scan)
    if jnp.isnan(losses).any():
        raise FloatingPointError("a loss is NaN")
    return losses, gradients


@jax.jit
def many_scans_one_kept(position, heights, reflectors, slants):
    """Fit from many positions, and return what the first one gives."""
    places = position + 0.1 * jnp.arange(384.0)[:, None] * jnp.ones(2)
    results = jax.lax.map(lambda place: eager_fit(place, heights, reflectors, slants), places)
    return jax.tree.map(lambda each: each[0], results)


def _fuses() -> bool:
    """Whether this device rounds a product and a difference together, so that losses are NaN."""
    equal = jnp.linspace(1.0, 4.0, 300)
    return bool(jnp.isnan(jax.jit(broken_ground)(equal, equal)).any())


DECIDES = "non-finite losses" if _fuses() else "non-finite gradients"
SUBMISSIONS = [
    *packaged(LAB, broken_fails_by=DECIDES),
    passes(LAB, "product of two roots", fit=fit(ground=product_of_roots)),
    passes(
        LAB,
        "root with a rule of its own",
        fit=fit(ground=ground_by_own_rule, by_map=map_by_own_rule),
    ),
    passes(LAB, "difference first", fit=fit(ground=ground_in_small_parts)),
    passes(LAB, "derivatives written out", fit=written_out),
    passes(LAB, "one reflector at a time under vmap", fit=one_reflector_at_a_time),
    passes(LAB, "zero where both are equal", fit=fit(ground=ground_of_what_is_not_equal)),
    passes(LAB, "squares in float64", fit=in_float64),
    fails(LAB, "only the map mended", DECIDES, fit=fit(ground=broken_ground)),
    fails(LAB, "clipped at zero", "non-finite gradients", fit=fit(ground=ground_clipped)),
    fails(
        LAB,
        "clipped at zero with a careful root",
        "loss error",
        fit=fit(ground=ground_clipped_with_a_careful_root),
    ),
    fails(
        LAB,
        "lifted above zero",
        "loss error",
        fit=fit(ground=ground_lifted, by_map=map_lifted),
    ),
    fails(LAB, "map lifted a little", "gradient error", fit=fit(by_map=map_lifted)),
    fails(LAB, "a centimetre is zero", "loss error", fit=fit(by_map=map_zero_within(1e-3))),
    fails(LAB, "half a slope at zero", "gradient error", fit=fit(by_map=map_with_half_a_slope)),
    fails(LAB, "absolute value", "loss error", fit=fit(ground=ground_of_the_absolute_value)),
    fails(LAB, "kept from fusing", "loss error", fit=fit(ground=ground_kept_from_fusing)),
    fails(LAB, "product alone", "non-finite gradients", fit=fit(ground=ground_as_a_product)),
    fails(LAB, "one where", "non-finite gradients", fit=fit(ground=ground_with_one_where)),
    fails(
        LAB, "only the ground mended", "non-finite gradients", fit=fit(by_map=broken_map_distance)
    ),
    fails(LAB, "all replaced afterwards", "loss error", fit=replaced_afterwards),
    fails(
        LAB, "gradients replaced afterwards", "gradient error", fit=gradients_replaced_afterwards
    ),
    fails(LAB, "gradient stopped", "gradient error", fit=fit(ground=ground_without_slope)),
    fails(LAB, "jit taken off", "launches", fit=eager_fit),
    fails(LAB, "NumPy", "program size", fit=in_numpy),
    fails(LAB, "jit made in the call", "recompiles on the first pass", fit=jit_in_the_call),
    fails(LAB, "looked at before it goes on", "host syncs", fit=looked_at_before_it_goes_on),
    too_slow(
        LAB, "many positions and one kept", "time against the solution", fit=many_scans_one_kept
    ),
]
