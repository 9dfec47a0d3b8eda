"""The memory plan of a program, for every way a function may come."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from course_utils.instruments.memory import Memory, memory_of

BATCH, WIDTH, CHUNK = 256, 64, 16
FLOAT32 = 4
OUTER = BATCH * WIDTH * WIDTH * FLOAT32
"""Bytes of one float32 outer product per row of the batch."""


def score(row, weight):
    return jnp.tanh(jnp.outer(row, row) @ weight).sum()


def all_at_once(batch, weight):
    return jax.vmap(score, in_axes=(0, None))(batch, weight)


def in_chunks(batch, weight):
    return jax.lax.map(lambda row: score(row, weight), batch, batch_size=CHUNK)


def update(params, grads):
    return params - 0.1 * grads


@pytest.fixture(scope="module")
def inputs():
    return jax.ShapeDtypeStruct((BATCH, WIDTH), jnp.float32), jax.ShapeDtypeStruct(
        (WIDTH, WIDTH), jnp.float32
    )


def test_scratch_of_a_whole_batch_is_seen_and_chunks_need_less(inputs):
    whole, chunked = memory_of(all_at_once, *inputs), memory_of(in_chunks, *inputs)
    assert whole.temp_bytes >= OUTER
    # Per chunk the same values, for CHUNK rows in place of BATCH; the plan rounds up.
    assert chunked.temp_bytes < whole.temp_bytes / (BATCH / CHUNK) * 1.5


def test_arguments_and_results_are_counted_exactly(inputs):
    memory = memory_of(all_at_once, *inputs)
    assert memory.argument_bytes == (BATCH + WIDTH) * WIDTH * FLOAT32
    assert memory.output_bytes == BATCH * FLOAT32
    assert memory.aliased_bytes == 0
    assert memory.total_bytes == (memory.argument_bytes + memory.output_bytes + memory.temp_bytes)


def test_every_way_in_gives_the_same_plan(inputs):
    arrays = [jnp.zeros(each.shape, each.dtype) for each in inputs]
    jitted, filter_jitted = jax.jit(all_at_once), eqx.filter_jit(all_at_once)
    plans = {
        "plain": memory_of(all_at_once, *inputs),
        "plain, arrays": memory_of(all_at_once, *arrays),
        "plain, numpy": memory_of(all_at_once, *map(np.asarray, arrays)),
        "plain, keyword": memory_of(all_at_once, inputs[0], weight=inputs[1]),
        "jit": memory_of(jitted, *inputs),
        "jit, arrays": memory_of(jitted, *arrays),
        "jit, lowered": memory_of(jitted.lower(*inputs)),
        "filter_jit": memory_of(filter_jitted, *inputs),
        "filter_jit, arrays": memory_of(filter_jitted, *arrays),
    }
    expected = plans["plain"]
    for way, plan in plans.items():
        assert plan == expected, way


@pytest.mark.parametrize("jit", [jax.jit, eqx.filter_jit])
def test_a_compiled_program_is_taken_as_it_is(jit, inputs):
    arrays = [jnp.zeros(each.shape, each.dtype) for each in inputs]
    compiled = jit(all_at_once).lower(*arrays).compile()
    plan = getattr(compiled, "compiled", compiled).memory_analysis()
    assert memory_of(compiled).temp_bytes == plan.temp_size_in_bytes


def test_donated_bytes_are_aliased_however_they_are_donated():
    params = jnp.ones((WIDTH, WIDTH))
    struct = jax.ShapeDtypeStruct(params.shape, params.dtype)
    plans = {
        "plain": memory_of(update, params, params, donate=(0,)),
        "jit": memory_of(jax.jit(update, donate_argnums=0), params, params),
        "jit, struct": memory_of(jax.jit(update, donate_argnums=0), struct, struct),
        "filter_jit": memory_of(eqx.filter_jit(update, donate="all-except-first"), params, params),
        "filter_jit, struct": memory_of(
            eqx.filter_jit(update, donate="all-except-first"), struct, struct
        ),
    }
    assert {way: plan.aliased_bytes for way, plan in plans.items()} == dict.fromkeys(
        plans, params.nbytes
    )
    assert memory_of(update, params, params).aliased_bytes == 0
    assert not params.is_deleted()


def test_a_module_with_functions_and_statics_in_it():
    model = eqx.nn.MLP(8, 8, 16, 2, key=jax.random.key(0))
    x = jnp.ones(8)
    weights = sum(each.nbytes for each in jax.tree.leaves(eqx.filter(model, eqx.is_array)))
    structs = eqx.filter_eval_shape(lambda key: eqx.nn.MLP(8, 8, 16, 2, key=key), jax.random.key(0))
    call = eqx.filter_jit(lambda model, x: model(x))
    for plan in (
        memory_of(model, x),
        memory_of(lambda model, x: model(x), model, x),
        memory_of(call, model, x),
        memory_of(call, structs, jax.ShapeDtypeStruct((8,), jnp.float32)),
    ):
        assert plan.output_bytes == x.nbytes
        assert plan.argument_bytes == weights + x.nbytes


def test_all_that_is_alive_at_once():
    memory = Memory(
        temp_bytes=5, argument_bytes=100, output_bytes=50, aliased_bytes=40, code_bytes=7
    )
    assert memory.total_bytes == 115


def test_a_jitted_function_cannot_be_made_to_donate():
    x = jnp.ones(3)
    with pytest.raises(ValueError, match=r"`update` is jitted already, so donate=\(0,\)"):
        memory_of(jax.jit(update), x, x, donate=(0,))


def test_a_compiled_program_takes_no_arguments():
    x = jnp.ones(3)
    compiled = jax.jit(update).lower(x, x).compile()
    with pytest.raises(ValueError, match="a Compiled is lowered for its arguments already"):
        memory_of(compiled, x, x)
