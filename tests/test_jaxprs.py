"""Equations and the largest intermediate value, at every level of nesting."""

import inspect
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from course_utils.instruments.jaxprs import jaxpr_of

N = 32
VECTOR = jax.ShapeDtypeStruct((N,), jnp.float32)
MATRIX_BYTES = N * N * 4


def pairs(x):
    return jnp.sum(x[:, None] * x[None, :])  # the whole matrix


NESTED: dict[str, Any] = {
    "plain": pairs,
    "jit": jax.jit(pairs),
    "jit in jit": jax.jit(lambda x: jax.jit(pairs)(x) + 1),
    "filter_jit": eqx.filter_jit(pairs),
    "checkpoint": jax.checkpoint(pairs),
    "scan": lambda x: jax.lax.scan(lambda carry, _: (carry + pairs(x), None), 0.0, None, length=3),
    "while": lambda x: jax.lax.while_loop(lambda c: c < 3, lambda c: c + pairs(x), 0.0),
    "cond": lambda x: jax.lax.cond(x[0] > 0, pairs, lambda x: x[0], x),
    "map": lambda x: jax.lax.map(lambda _: pairs(x), jnp.arange(3)),
    "custom_jvp": jax.custom_jvp(pairs),
    "custom_vjp": jax.custom_vjp(pairs),
}
NESTED["custom_jvp"].defjvp(lambda primals, tangents: (pairs(*primals), jnp.zeros(())))
NESTED["custom_vjp"].defvjp(lambda x: (pairs(x), x), lambda x, g: (g * x,))


@pytest.mark.parametrize("way", NESTED)
def test_the_largest_value_is_found_wherever_it_is(way):
    largest = jaxpr_of(NESTED[way], VECTOR).largest
    assert largest is not None
    assert (largest.bytes, largest.shape, largest.dtype) == (MATRIX_BYTES, (N, N), "float32")


def test_it_names_the_operation_and_the_line():
    largest = jaxpr_of(jax.jit(pairs), VECTOR).largest
    assert largest is not None
    assert largest.line is not None
    assert largest.primitive in ("mul", "broadcast_in_dim")
    assert largest.line.number == inspect.getsourcelines(pairs)[1] + 1
    assert largest.line.text.endswith("# the whole matrix")


@pytest.mark.parametrize("jit", [lambda f: f, jax.jit, eqx.filter_jit])
def test_a_result_is_not_an_intermediate(jit):
    def outer(x):  # the largest value is the result
        return (x + 1)[:, None] * jnp.arange(2.0)[None, :]

    largest = jaxpr_of(jit(outer), VECTOR).largest
    assert largest is not None
    assert largest.bytes < N * 2 * 4


def test_chunks_make_a_smaller_largest_value():
    batch = jax.ShapeDtypeStruct((64, N), jnp.float32)
    whole = jaxpr_of(jax.vmap(pairs), batch).largest
    chunked = jaxpr_of(lambda b: jax.lax.map(pairs, b, batch_size=8), batch).largest
    assert whole is not None
    assert chunked is not None
    assert whole.bytes == 64 * MATRIX_BYTES
    assert chunked.bytes == 8 * MATRIX_BYTES


def test_equations_of_an_unrolled_loop_grow_with_its_length():
    def unrolled(x, steps):
        for _ in range(steps):
            x = jnp.sin(x)
        return x

    def rolled(x, steps):
        return jax.lax.fori_loop(0, steps, lambda _, x: jnp.sin(x), x)

    assert jaxpr_of(unrolled, VECTOR, 10).primitives == {"sin": 10}
    assert jaxpr_of(unrolled, VECTOR, 20).equations == 20
    counts = {jaxpr_of(rolled, VECTOR, steps).equations for steps in (10, 20)}
    assert len(counts) == 1
    assert jaxpr_of(rolled, VECTOR, 10).primitives["sin"] == 1


def test_equations_inside_a_jit_count_at_all_levels():
    facts = jaxpr_of(jax.jit(lambda x: jnp.sin(x) * 2), VECTOR)
    assert facts.top_equations == 1
    assert facts.equations == 3
    assert facts.primitives["sin"] == facts.primitives["mul"] == 1


def test_closed_over_arrays_are_counted():
    table = jnp.arange(1000.0)
    assert jaxpr_of(lambda x: x + table[:N], VECTOR).constant_bytes == table.nbytes
    assert jaxpr_of(lambda x, t: x + t[:N], VECTOR, table).constant_bytes == 0


def test_a_module_and_other_things_may_be_arguments():
    model = eqx.nn.MLP(N, 8, 16, 1, key=jax.random.key(0))
    facts = jaxpr_of(lambda model, x, scale: model(x) * scale, model, VECTOR, 2.0)
    assert facts.primitives["dot_general"] == 2


def test_nothing_on_the_way_is_none():
    assert jaxpr_of(lambda x: x, VECTOR).largest is None
    assert jaxpr_of(lambda x: x, VECTOR).equations == 0


def test_keys_and_effects_are_taken_in_stride():
    def noisy(key, x):
        jax.debug.callback(lambda _: None, x)
        return jax.random.normal(key, (N,)) + x

    assert jaxpr_of(noisy, jax.random.key(0), VECTOR).equations > 2
