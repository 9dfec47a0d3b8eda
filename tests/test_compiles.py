"""The compile counter sees every compile, tells cache hits apart, and stays alive."""

import threading

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from course_utils.instruments.compiles import count_compiles


def test_cold_call_compiles_once_and_warm_calls_never():
    @jax.jit
    def triple(x):
        return x * 3

    x, y = jnp.ones(3), jnp.arange(3.0)
    with count_compiles() as cold:
        triple(x)
    with count_compiles() as warm:
        triple(x)
        triple(y)
    assert cold().names == ("triple",)
    assert cold().traces_of("triple") == 1
    assert cold().seconds > 0
    assert (warm().count, warm().traces) == (0, ())


def test_each_fresh_function_and_each_python_number_compiles():
    x = jnp.ones(3)
    scale = eqx.filter_jit(lambda x, by: x * by)
    with count_compiles() as fresh:
        for _ in range(5):
            jax.jit(lambda x: x * 3 - 1)(x)
    with count_compiles() as numbers:
        for i in range(5):
            scale(x, float(i))
    assert fresh().count == numbers().count == 5


def test_eager_operations_compile_on_their_first_use_only():
    x = jnp.ones((7, 11, 13))
    with count_compiles() as first:
        jnp.flip(x, axis=1)
    with count_compiles() as again:
        jnp.flip(x, axis=1)
    assert first().count >= 1
    assert again().count == 0


def test_survives_somebody_clearing_all_listeners():
    with count_compiles():
        pass
    jax.monitoring.clear_event_listeners()
    with count_compiles() as compiles:
        jax.jit(lambda x: x * 5 - 1)(jnp.ones(3))
    assert compiles().count == 1


def test_compiles_in_other_threads_are_seen_and_marked():
    x = jnp.ones(3)
    with count_compiles() as compiles:
        thread = threading.Thread(target=lambda: jax.jit(lambda x: x * 6 - 1)(x))
        thread.start()
        thread.join()
    assert (compiles().count, compiles().other_threads) == (1, 1)


def test_counters_nest_and_end():
    x = jnp.ones(3)
    with count_compiles() as outer:
        with count_compiles() as inner:
            jax.jit(lambda x: x * 7)(x)
        jax.jit(lambda x: x * 8)(x)
    jax.jit(lambda x: x * 9)(x)
    assert (inner().count, outer().count) == (1, 2)


@pytest.fixture
def persistent_cache(tmp_path):
    from jax.experimental.compilation_cache import compilation_cache

    settings = {
        "jax_compilation_cache_dir": str(tmp_path),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.mark.usefixtures("persistent_cache")
def test_a_hit_in_the_persistent_cache_is_no_real_compile():
    def chain(x):
        return jnp.tanh(x) @ jnp.cos(x)

    x = jnp.ones(3)
    with count_compiles() as cold:
        jax.jit(chain)(x)
    jax.clear_caches()
    with count_compiles() as loaded:
        jax.jit(chain)(x)
    assert (cold().count, cold().real) == (1, 1)
    assert (loaded().count, loaded().cache_hits, loaded().real) == (1, 1, 0)
