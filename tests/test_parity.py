"""Structures are compared in the learner's words, and values without trusting one dtype."""

import jax
import jax.numpy as jnp
import pytest

from course_utils.instruments.parity import (
    float64_enabled,
    largest_difference,
    relative_difference,
    structure_difference,
    to_float64,
)

GOOD = {"points": jnp.zeros((4, 2)), "scores": (jnp.zeros(4), jnp.zeros(4, jnp.int32))}


def changed(path, value):
    tree = {"points": GOOD["points"], "scores": list(GOOD["scores"])}
    if path == "points":
        tree["points"] = value
    else:
        tree["scores"][path] = value
    return {**tree, "scores": tuple(tree["scores"])}


@pytest.mark.parametrize(
    ("got", "kind", "path"),
    [
        (changed("points", jnp.zeros((4, 3))), "shape", "result['points']"),
        (changed(0, jnp.zeros(4, jnp.bfloat16)), "dtype", "result['scores'][0]"),
        (changed(1, jnp.zeros(4)), "dtype", "result['scores'][1]"),
        (changed(0, 0.0), "type", "result['scores'][0]"),
        (changed(0, None), "type", "result['scores'][0]"),
        (changed("points", jnp.full((4, 2), jnp.nan)), "not finite", "result['points']"),
        ({**GOOD, "scores": list(GOOD["scores"])}, "tree", "result['scores']"),
        ({"points": GOOD["points"]}, "tree", "result"),
        (GOOD["points"], "tree", "result"),
        (None, "tree", "result"),
    ],
)
def test_the_first_difference_is_named(got, kind, path):
    difference = structure_difference(GOOD, got)
    assert difference is not None
    assert (difference.kind, difference.path) == (kind, path)
    assert path in difference.sentence()


def test_equal_structures_have_no_difference():
    other = jax.tree.map(lambda leaf: leaf + 1, GOOD)
    assert structure_difference(GOOD, other) is None


def test_differences_are_taken_in_float64():
    assert largest_difference(jnp.zeros(3), jnp.asarray([0.0, -2.0, 1.0])) == 2.0
    assert largest_difference({}, {}) == 0.0
    assert relative_difference(jnp.asarray([0.0, 4.0]), jnp.asarray([1.0, 4.0])) == 0.25
    assert relative_difference(jnp.zeros(2), jnp.ones(2)) == float("inf")


def test_float64_is_on_inside_the_block_only():
    x, indices = jnp.ones(3), jnp.arange(3)
    with float64_enabled():
        wide = to_float64({"x": x, "n": 3, "indices": indices})
        assert wide["x"].dtype == "float64"
        assert wide["indices"].dtype == "int32"
        assert wide["n"] == 3
    assert jnp.ones(3).dtype == "float32"
