"""A submission that compiles again is told which argument changed, how, and what kind it is."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from course_utils import grade
from tests.submissions import deciding
from tests.toy_lab import LAB as TOY
from tests.toy_lab import solution_smooth


def counted(change):
    """Return a `smooth` that calls `change(number of the call, result)` and drops what it gives."""
    calls = []

    def smooth(scale, signals):
        calls.append(None)
        result = solution_smooth(scale, signals)
        change(len(calls), result)
        return result

    return smooth


def shape():
    step = jax.jit(lambda state: state.sum())
    return lambda call, result: step(jnp.zeros(10 * call))


def dtype():
    step = jax.jit(lambda state: state.sum())
    dtypes = [jnp.float32, jnp.bfloat16, jnp.int32]
    return lambda call, result: step(jnp.zeros(3, dtypes[call % 3]))


def weak_type():
    step = jax.jit(lambda state: state + 1)
    return lambda call, result: step(jnp.asarray(0.0) if call % 2 else jnp.zeros(()))


def static_value():
    step = eqx.filter_jit(lambda state, rate: state * rate)
    return lambda call, result: step(result, call / 10)


def function_identity():
    return lambda call, result: jax.jit(lambda state: state * 2)(result)


def tree_structure():
    step = jax.jit(lambda state: jax.tree.leaves(state)[0] * 3)
    return lambda call, result: step([result] if call % 2 else (result,))


def placement():
    step = jax.jit(lambda state: state * 4)
    device = jax.devices()[0]
    return lambda call, result: step(
        jax.device_put(jnp.zeros(5), device) if call % 2 else jnp.zeros(5)
    )


def call_spelling():
    step = jax.jit(lambda state, gain: state * gain)
    one = jnp.float32(1)
    return lambda call, result: step(result, one) if call % 2 else step(result, gain=one)


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (shape, "shape", ("`state`", "[10]", "[20]")),
        (dtype, "dtype", ("`state`", "bfloat16", "int32")),
        (weak_type, "weak type", ("`state`", "weak", "strong")),
        (static_value, "static value", ("`rate`", "0.1", "0.2")),
        (function_identity, "function object", ("new object of the same code",)),
        (tree_structure, "tree structure", ("`state`", "list", "tuple")),
        (placement, "placement", ("`state`", "committed")),
        (call_spelling, "passed another way", ("`gain`",)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_recompile_is_explained(make, kind, words):
    report = grade(TOY, counted(make()))
    finding = report.finding("compiles on a second pass")
    assert (report.verdict, deciding(report)) == ("fail", "compiles on a second pass")
    for word in (kind, *words):
        assert word in finding.cause, finding.cause
    assert "called at line" in finding.cause
    assert finding.hint


def test_operations_outside_a_jit_are_no_recompiles_of_functions():
    def change(call, result):
        for length in range(4):
            jnp.negative(np.ones(10 * call + length, np.float32))

    report = grade(TOY, counted(change))
    assert report.finding("recompiles on the first pass").verdict == "pass"
    finding = report.finding("compiles on a second pass")
    assert (finding.verdict, "changed its shape" in finding.cause) == ("fail", True)


def over_signals(function):
    return jax.jit(lambda signals: jax.vmap(function)(signals))


halved, doubled = over_signals(lambda signal: signal / 2), over_signals(lambda signal: signal * 2)
less, more = jax.jit(lambda signals: signals - 1), jax.jit(lambda signals: signals + 1)


def test_functions_made_once_by_one_line_are_no_recompile():
    def smooth(scale, signals):
        return more(less(doubled(halved(solution_smooth(scale, signals)))))

    report = grade(TOY, smooth)
    assert report.finding("recompiles on the first pass").verdict == "pass"
    assert report.finding("compiles on a second pass").verdict == "pass"


def test_hints_differ_by_kind():
    hints = {
        grade(TOY, counted(make())).finding("compiles on a second pass").hint
        for make in (shape, weak_type, static_value, function_identity, placement)
    }
    assert len(hints) == 5
