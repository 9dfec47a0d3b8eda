"""What the grader says of the tricks that come to mind first, each on a lab that costs little."""

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import course_utils.instruments.timing
from course_utils import Finding, Verdict, grade, integrity
from course_utils.checks import LaunchesAtMost
from tests import toy_lab
from tests.submissions import deciding
from tests.toy_lab import LAB as TOY
from tests.toy_lab import broken_smooth, solution_smooth


def verdict(smooth, lab=TOY):
    report = grade(lab, smooth)
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


@pytest.mark.timed
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


def test_a_jit_that_keeps_the_first_scale_is_named():
    kept = []

    def smooth(scale, signals):
        if not kept:
            kept.append(jax.jit(jax.vmap(lambda signal: toy_lab.smooth_one(scale, signal))))
        return kept[0](signals)

    said, by, report = verdict(smooth)
    assert (said, by) == ("fail", "error")
    assert "closes over" in report.finding("error").hint


def test_work_in_another_thread_is_counted():
    pool = ThreadPoolExecutor(1)

    def smooth(scale, signals):
        return pool.submit(broken_smooth, scale, signals).result()

    with pool:
        assert verdict(smooth)[:2] == ("fail", "launches")


def test_numpy_that_reads_a_device_array_is_a_wait():
    def smooth(scale, signals):
        results = solution_smooth(scale, signals)
        if not np.isfinite(np.add(results, 0)).all():
            raise ValueError
        return results

    said, by, report = verdict(smooth)
    assert (said, by) == ("fail", "host syncs")
    assert "np.add" in report.finding("host syncs").cause


def test_reading_the_inputs_is_no_wait():
    def smooth(scale, signals):
        rows = [jnp.asarray(row) for row in np.asarray(signals)]
        return jnp.stack([toy_lab.smooth_one(scale, row) for row in rows])

    assert grade(TOY, smooth).finding("host syncs").verdict == "pass"


def test_a_class_that_claims_to_be_an_array_is_none():
    class Lazy:
        def __init__(self, compute):
            self.compute, self.shape, self.dtype = compute, (4, 64), jnp.dtype("float32")

        def __array__(self, dtype=None, copy=None):
            return np.asarray(self.compute())

    claim = property(lambda _: type(jnp.zeros(())))
    liar = type("Liar", (Lazy,), {"__class__": claim})

    def smooth(scale, signals):
        return liar(lambda: broken_smooth(scale, signals))

    assert verdict(smooth)[:2] == ("fail", "runs")


def replace_method(owner, name, value):
    setattr(owner, name, value)


def test_replacing_a_check_during_the_call_is_refused():
    judge = LaunchesAtMost.judge

    def smooth(scale, signals):
        replace_method(LaunchesAtMost, "judge", lambda *_: Finding("launches", Verdict.PASS))
        return broken_smooth(scale, signals)

    said, by, report = verdict(smooth)
    assert (said, by) == ("fail", "runs")
    assert "LaunchesAtMost.judge" in report.finding("runs").cause
    assert LaunchesAtMost.judge is judge


def test_an_emptied_lab_is_put_back():
    checks = TOY.checks
    object.__setattr__(TOY, "checks", ())
    try:
        report = grade(TOY, broken_smooth)
    finally:
        object.__setattr__(TOY, "checks", checks)
    assert report.verdict == "fail"
    assert "checks" in report.finding("grader untouched").cause


def test_a_slow_pass_is_seen_though_single_items_are_fast():
    def smooth(scale, signals):
        if len(signals) > 1:
            time.sleep(0.1)
        return solution_smooth(scale, signals)

    report = grade(TOY, smooth)
    assert report.verdict == "fail"
    assert report.finding("time against the solution").verdict == "fail"


def test_catching_the_interruption_does_not_help():
    def smooth(scale, signals):
        with contextlib.suppress(BaseException):
            time.sleep(5)
        return solution_smooth(scale, signals)

    said, by, report = verdict(smooth, toy_lab.IMPATIENT)
    assert (said, by) == ("fail", "runs")
    assert "still running after 2 s" in report.finding("runs").cause


TIMED = ("speedup", "time against the solution")


@pytest.mark.parametrize(
    ("setting", "value", "usual"),
    [
        ("jax_disable_jit", True, False),
        ("jax_check_tracer_leaks", True, False),
        ("jax_transfer_guard", "disallow", "allow"),
        ("jax_debug_nans", True, False),
    ],
)
def test_settings_of_the_notebook_do_not_reach_the_grade(setting, value, usual):
    jax.config.update(setting, value)
    try:
        report = grade(TOY, solution_smooth)
        assert getattr(jax.config, setting) == value
    finally:
        jax.config.update(setting, usual)
    counts = [each for each in report.findings if each.check not in TIMED]
    assert {each.verdict for each in counts} == {"pass"}, str(report)
    assert setting in report.finding("grader untouched").cause


@pytest.mark.parametrize("seed", [-1, 1.5, "x"])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(ValueError, match="whole number"):
        grade(TOY, solution_smooth, seed=seed)
