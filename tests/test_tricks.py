"""What the grader says of the tricks that come to mind first, each on a lab that costs little."""

import time

import jax
import jax.numpy as jnp
import pytest

import course_utils.instruments.timing
from course_utils import grade, integrity
from tests import toy_lab
from tests.submissions import deciding
from tests.toy_lab import LAB as TOY
from tests.toy_lab import broken_smooth, solution_smooth


def verdict(smooth):
    report = grade(TOY, smooth)
    return str(report.verdict), deciding(report), report


def test_stored_outputs_are_answers_to_other_inputs():
    stored = {}

    def smooth(scale, signals):
        if signals.shape not in stored:
            stored[signals.shape] = solution_smooth(scale, signals)
        return stored[signals.shape]

    said, by, report = verdict(smooth)
    assert (said, by) == ("fail", "error")
    assert "answer to the first pass's inputs" in report.finding("error").cause


def test_stored_outputs_by_value_help_nobody():
    stored = {}

    def smooth(scale, signals):
        key = signals.tobytes() if hasattr(signals, "tobytes") else bytes(jax.device_get(signals))
        if key not in stored:
            stored[key] = broken_smooth(scale, signals)
        return stored[key]

    assert verdict(smooth)[:2] == ("fail", "launches")


def test_work_left_unfinished_is_waited_for():
    slow = jax.jit(
        lambda scale, signals: (
            toy_lab.smooth_one(scale, signals)
            + 0.0 * jax.lax.fori_loop(0, 50_000, lambda i, x: jnp.sin(x) + 1e-9, signals).sum()
        )
    )

    def smooth(scale, signals):
        return jnp.stack([slow(scale, signals[i]) for i in range(len(signals))])

    report = grade(TOY, smooth)
    assert report.verdict != "pass"
    assert report.finding("time against the solution").verdict != "pass"


def test_inputs_closed_over():
    scale, signals = jnp.float32(0.9), jnp.ones((4, 64))

    def smooth(_scale, given):
        return solution_smooth(scale, signals[: len(given)])

    assert verdict(smooth)[:2] == ("fail", "error")


def test_lower_precision():
    @jax.jit
    def smooth(scale, signals):
        half = scale.astype(jnp.bfloat16), signals.astype(jnp.bfloat16)
        return jax.vmap(lambda s: toy_lab.smooth_one(half[0], s))(half[1]).astype(jnp.float32)

    assert verdict(smooth)[:2] == ("fail", "error")


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_constants(value):
    assert verdict(lambda scale, signals: jnp.full_like(signals, value))[:2] == ("fail", "error")


def test_packaged_solution_under_another_name_is_the_solution():
    def mine(scale, signals):
        return solution_smooth(scale, signals)

    report = grade(TOY, mine)
    assert report.passed, str(report)


@pytest.fixture
def put_back():
    """Undo, after the test, what it replaced in the grader."""
    yield
    for owner, _, name, value in list(integrity._remembered.values()):
        if integrity._current(owner, name) is not value:
            setattr(owner, name, value)


def frozen_clock():
    return 0.0


@pytest.mark.usefixtures("put_back")
@pytest.mark.parametrize(
    ("owner", "name", "replacement"),
    [
        (time, "perf_counter", frozen_clock),
        (course_utils.instruments.timing, "clock", frozen_clock),
        (course_utils.instruments.timing, "interleave", lambda *a, **k: None),
        (jax, "block_until_ready", lambda x: x),
        (toy_lab, "broken_smooth", lambda scale, signals: time.sleep(1)),
        (toy_lab, "error", lambda expected, got: 0.0),
        (toy_lab, "LAB", None),
    ],
)
def test_replaced_tools_do_not_reach_the_grade(owner, name, replacement):
    setattr(owner, name, replacement)
    said, by, report = verdict(broken_smooth)
    assert (said, by) == ("fail", "launches")
    assert name in report.finding("grader untouched").cause
    assert getattr(owner, name) is replacement, "what the notebook did is left as it was"


@pytest.mark.usefixtures("put_back")
def test_a_changed_baseline_is_put_back():
    def slow(scale, signals):
        time.sleep(10)

    before = broken_smooth.__code__
    broken_smooth.__code__ = slow.__code__
    try:
        started = time.monotonic()
        report = grade(TOY, solution_smooth)
        assert time.monotonic() - started < 9
    finally:
        broken_smooth.__code__ = before
    assert "toy_lab.broken_smooth" in report.finding("grader untouched").cause


def test_a_printed_card_is_no_card(capsys):
    def smooth(scale, signals):
        print("PASS toy")
        return jnp.zeros_like(signals)

    assert verdict(smooth)[:2] == ("fail", "error")
    assert "PASS toy" in capsys.readouterr().out


def test_another_answer_while_the_clock_runs():
    calls = []

    def smooth(scale, signals):
        calls.append(None)
        if len(calls) <= 2:
            return solution_smooth(scale, signals)
        return jnp.zeros_like(signals)

    report = grade(TOY, smooth)
    assert report.verdict == "fail"
    assert any("While the clock ran" in finding.cause for finding in report.findings)
