"""The launch counter agrees with the profiler, and says what was launched from where."""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from course_utils.instruments import _private, launches
from course_utils.instruments._frames import Owner
from course_utils.instruments.launches import Kind, count_launches, launches_of, profile_launches

X = jnp.linspace(-1, 1, 8)
BATCH = jnp.ones((4, 8))
MLP = eqx.nn.MLP(8, 8, 16, 2, key=jax.random.key(0))


def user(x):
    return jnp.sin(x) * 2 + 1


jitted = jax.jit(user)
filter_jitted = eqx.filter_jit(lambda model, x: model(x))
compiled = jax.jit(user).lower(X).compile()


@jax.jit
def with_callback(x):
    jax.debug.callback(lambda _: None, x)
    return x + 1


def loss(model, x):
    return jnp.sum(model(x) ** 2)


CALLS = {
    "jit": (lambda: jitted(X), 1, Kind.JIT),
    "filter_jit": (lambda: filter_jitted(MLP, X), 1, Kind.JIT),
    "loop of 10": (lambda: [jitted(X) for _ in range(10)], 10, Kind.JIT),
    "ahead of time": (lambda: compiled(X), 1, Kind.COMPILED),
    "with a callback": (lambda: with_callback(X), 1, Kind.SLOW),
    "eager": (lambda: user(X), 3, Kind.EAGER),
    "eager module": (lambda: MLP(X), None, None),
    "eager vmap": (lambda: jax.vmap(MLP)(BATCH), None, Kind.TRANSFORMED),
    "eager grad": (lambda: eqx.filter_grad(loss)(MLP, X), None, None),
    "eager grad of a checkpoint": (
        lambda: jax.grad(jax.checkpoint(lambda x: jnp.sin(jitted(x)).sum()))(X),
        None,
        None,
    ),
    "softmax": (lambda: jax.nn.softmax(X), None, Kind.EAGER),
    "update": (lambda: X.at[1].set(0.0), None, Kind.EAGER),
    "index": (lambda: X[2], None, Kind.EAGER),
}
EAGER = {
    "eager",
    "eager grad of a checkpoint",
    "eager module",
    "eager vmap",
    "eager grad",
    "softmax",
    "update",
    "index",
}


@pytest.mark.parametrize("name", CALLS)
def test_hook_and_profiler_agree(name):
    call, exact, kind = CALLS[name]
    for _ in range(3):
        jax.block_until_ready(call())
    counted = launches_of(call)
    assert counted.source == "hook"
    assert counted.count == profile_launches(call).count
    assert exact is None or counted.count == exact
    assert kind is None or counted.of(kind) == counted.count
    assert counted.count > 0
    assert counted.eager == (counted.count if name in EAGER else 0)


def test_the_learners_line_is_named():
    def predict(xs):
        total = 0.0
        for x in xs:
            total = total + jitted(x)  # this one
        return total

    rows = [X, X, X]
    predict(rows)
    with count_launches(Owner([predict])) as counter:
        predict(rows)
    (line, count), *rest = counter().by_line()
    assert line.text == "total = total + jitted(x)  # this one"
    assert (count, rest) == (6, [])


def test_the_hook_is_gone_after_the_block():
    with count_launches() as counter:
        pass
    jitted(X)
    assert counter().count == 0


def test_blocks_nest():
    jitted(X)
    with count_launches() as outer:
        jitted(X)
        with count_launches() as inner:
            jitted(X)
    assert inner().count == 1
    assert outer().count >= 1, "an inner block takes over while it runs"


def test_without_the_hook_the_profiler_counts(monkeypatch):
    monkeypatch.setattr(_private, "can_watch_launches", lambda: False)
    jitted(X)
    counted = launches.launches_of(lambda: [jitted(X), jitted(X)])
    assert (counted.count, counted.source, counted.launches) == (2, "profiler", ())


def test_a_jax_without_the_hook_says_so(monkeypatch):
    monkeypatch.setattr(_private, "_hook_slot", lambda: None)
    with pytest.raises(LookupError, match="no launch hook"), count_launches():
        pass
