"""Un-jitted code is X-rayed dispatch by dispatch: the same launches that JAX counts."""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from course_utils.instruments.launches import launches_of
from course_utils.instruments.xray import xray, xray_eager
from course_utils.instruments.xray.programs import chain, struct

pytest_plugins = ["xray_fixtures"]
pytestmark = [pytest.mark.xray, pytest.mark.usefixtures("compiler")]

MODEL = eqx.nn.Linear(8, 8, key=jax.random.key(1))


def loss(model, x):
    return jax.vmap(model)(x).sum()


def inner_jit(x):
    return jax.jit(lambda y: jnp.sin(y) + 1)(x) * 2


CASES = {
    "chain": (chain, (jnp.ones((4, 8)),)),
    "softmax": (jax.nn.softmax, (jnp.ones((4, 8)),)),
    "random": (lambda key: jax.random.normal(key, (4,)), (jax.random.key(0),)),
    "indexing": (lambda x: x[0] + x.at[1].set(2.0)[1], (jnp.ones((4, 8)),)),
    "creation": (lambda: jnp.zeros(3) + jnp.arange(3), ()),
    "scan": (
        lambda x: jax.lax.scan(lambda c, _: (jnp.sin(c), c), x, None, length=5),
        (jnp.ones(8),),
    ),
    "a jit inside": (inner_jit, (jnp.ones(8),)),
    "vmap": (loss, (MODEL, jnp.ones((4, 8)))),
    "gradient of a checkpoint": (
        eqx.filter_grad(lambda model, x: jax.checkpoint(loss)(model, x)),
        (MODEL, jnp.ones((4, 8))),
    ),
    "gradient": (eqx.filter_grad(loss), (MODEL, jnp.ones((4, 8)))),
}


@pytest.mark.parametrize("name", CASES)
def test_dispatches_are_the_launches_that_jax_counts(name):
    fn, args = CASES[name]
    jax.block_until_ready(jax.tree.leaves(eqx.filter(fn(*args), eqx.is_array)))
    found = xray_eager(fn, *args)
    assert found.dispatches == launches_of(lambda: fn(*args)).count
    assert {kernel.dispatch for kernel in found.program} <= set(range(found.dispatches))


def test_each_eager_operation_is_a_kernel_and_the_jit_makes_one_of_them():
    eager, jitted = xray_eager(chain, struct(64, 64)), xray(chain, struct(64, 64))
    assert (eager.dispatches, eager.kernels) == (12, 12)
    assert (jitted.dispatches, jitted.kernels) == (1, 1)
    assert [kernel.ops[-1] for kernel in eager.program[:3]] == ["sin", "mul", "add"]
    scalar_bytes = 4
    assert eager.needed_bytes == 2 * 64 * 64 * 4 + scalar_bytes  # the largest of the dispatches


def test_a_jit_around_the_function_is_taken_off():
    for fn in (jax.jit(chain), eqx.filter_jit(chain)):
        assert xray_eager(fn, struct(64, 64)).dispatches == 12


def test_every_kernel_points_at_the_line_that_dispatched_it():
    def lines(x):
        y = jnp.sin(x)
        return y + 1

    found = xray_eager(lines, struct(8))
    first = lines.__code__.co_firstlineno
    places = [kernel.source.line - first for kernel in found.program if kernel.source]
    assert places == [1, 2]


def test_equal_dispatches_are_compiled_once_and_come_from_the_cache_next_time():
    def repeated(x):
        for _ in range(20):
            x = jnp.cos(x)
        return x

    assert not xray_eager(repeated, struct(7, 3)).from_cache
    again = xray_eager(repeated, struct(7, 3))
    assert again.from_cache
    assert again.kernels == 20


def test_a_dispatch_that_the_card_refuses_is_named():
    def product(x):
        return jnp.sin(jax.lax.dot(x, x, precision=jax.lax.DotAlgorithmPreset.BF16_BF16_F32))

    found = xray_eager(product, struct(64, 64), gpu="t4")
    assert found.refused is not None
    assert "dispatch" in found.refused
    assert xray_eager(product, struct(64, 64), gpu="a100").kernels >= 2
