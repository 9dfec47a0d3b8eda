"""The size of a submission's program: the instrument, and the check that judges it."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from course_utils import grade
from course_utils.checks import ProgramSizeAtMost
from course_utils.findings import Link, Verdict
from course_utils.instruments.compiles import count_compiles
from course_utils.instruments.program_size import instructions_of
from tests.toy_lab import LAB as TOY
from tests.toy_lab import STEPS

SIGNAL = jnp.linspace(0.0, 1.0, 64)
SLOW = "time against the solution"
LINK = Link("book/chapters/02_underfused", "unrolled-loops")


def turn(signal, _=None):
    return jnp.tanh(signal) + 0.5 * jnp.roll(signal, 1), None


def unrolled(signal):
    for _ in range(STEPS):
        signal, _ = turn(signal)
    return signal


def rolled(signal):
    return jax.lax.scan(turn, signal, length=STEPS)[0]


def test_an_unrolled_loop_grows_with_its_length_and_a_scan_does_not():
    once = instructions_of(lambda signal: turn(signal)[0], SIGNAL)
    assert instructions_of(unrolled, SIGNAL) > STEPS / 2 * once
    assert instructions_of(rolled, SIGNAL) < 10 * once


def test_unroll_of_a_scan_shows():
    def by_eight(signal):
        return jax.lax.scan(turn, signal, length=STEPS, unroll=8)[0]

    assert instructions_of(by_eight, SIGNAL) > 3 * instructions_of(rolled, SIGNAL)


@pytest.mark.parametrize("jit", [jax.jit, eqx.filter_jit])
def test_a_jitted_function_is_as_large_as_the_plain_one(jit):
    assert instructions_of(jit(unrolled), SIGNAL) == instructions_of(unrolled, SIGNAL)


def test_a_python_loop_around_a_jitted_function_counts_as_unrolled():
    jitted = jax.jit(turn)

    def loop(signal):
        for _ in range(STEPS):
            signal, _ = jitted(signal)
        return signal

    assert instructions_of(loop, SIGNAL) > instructions_of(unrolled, SIGNAL) / 2


@pytest.mark.parametrize("jit", [jax.jit, eqx.filter_jit])
def test_what_was_compiled_ahead_of_time_counts_once(jit):
    compiled = jit(unrolled).lower(SIGNAL).compile()
    whole = instructions_of(unrolled, SIGNAL)
    twice = instructions_of(lambda signal: compiled(compiled(signal)), SIGNAL)
    assert whole <= twice < 1.2 * whole
    assert jnp.allclose(compiled(SIGNAL), unrolled(SIGNAL), atol=1e-5)  # and still runs


def test_a_warm_jitted_function_is_not_compiled_again():
    jitted = jax.jit(rolled)
    jitted(SIGNAL)
    with count_compiles() as compiles:
        instructions_of(jitted, SIGNAL)
    assert compiles().count == 0


def test_python_that_needs_a_value_raises():
    with pytest.raises(jax.errors.TracerBoolConversionError):
        instructions_of(lambda signal: signal if signal[0] > 0 else -signal, SIGNAL)


def test_the_check_judges_the_number_alone():
    check = ProgramSizeAtMost(100, launches=1, link=LINK)
    assert check.judge(100).verdict is Verdict.PASS
    finding = check.judge(101)
    assert finding.verdict is Verdict.FAIL
    assert (finding.measured, finding.required) == (101, 100)
    assert "101 instructions" in finding.cause
    assert "scan" in finding.hint
    assert finding.link == "book/chapters/02_underfused.html#unrolled-loops"


def with_size_check(limit):
    """Return the toy lab with a check on program size before its timed checks."""
    checks = [check for check in TOY.checks if check.name not in ("speedup", SLOW)]
    size = ProgramSizeAtMost(limit, launches=1, link=LINK)
    return dataclasses.replace(TOY, name="toy_size", checks=(*checks, size))


@jax.jit
def smooth_unrolled(scale, signals):
    for _ in range(STEPS):
        signals = jnp.tanh(signals) * scale + 0.5 * jnp.roll(signals, 1, axis=-1)
    return signals


@jax.jit
def smooth_rolled(scale, signals):
    def step(_, signals):
        return jnp.tanh(signals) * scale + 0.5 * jnp.roll(signals, 1, axis=-1)

    return jax.lax.fori_loop(0, STEPS, step, signals)


def smooth_if_any(scale, signals):
    return smooth_rolled(scale, signals) if scale > 0 else signals


def test_a_grade_fails_what_is_unrolled_and_passes_what_is_rolled():
    lab = with_size_check(120)
    assert grade(lab, smooth_rolled, seed=1).passed
    report = grade(lab, smooth_unrolled, seed=1)
    assert [f.check for f in report.findings if f.verdict is Verdict.FAIL] == ["program size"]


def test_many_launches_are_left_to_the_check_on_launches():
    finding = grade(with_size_check(120), TOY.solution["smooth"], seed=1).finding("program size")
    assert finding.verdict is Verdict.NOT_CHECKED
    assert "launches per signal" in finding.cause


def test_what_cannot_be_one_program_fails_with_the_line():
    finding = grade(with_size_check(120), smooth_if_any, seed=1).finding("program size")
    assert finding.verdict is Verdict.FAIL
    assert "could not be compiled as one program" in finding.cause
    assert "scale > 0" in " ".join((finding.cause, *finding.detail))
