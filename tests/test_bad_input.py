"""Whatever a submission does instead of its work ends in a card that says so."""

import contextlib
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from course_utils import grade, guard
from course_utils.instruments._frames import Owner
from tests.toy_lab import IMPATIENT, solution_smooth
from tests.toy_lab import LAB as TOY


def failing(smooth, check="runs", lab=TOY):
    report = grade(lab, smooth)
    finding = report.finding(check)
    assert report.verdict == "fail"
    assert finding.verdict == "fail"
    assert finding.hint
    return finding


def good():
    """Grade the solution: whatever came before, the grader still works."""
    assert grade(TOY, solution_smooth).finding("runs").verdict == "pass"


@pytest.mark.parametrize("thing", [None, 3, "smooth", jnp.zeros(3)])
def test_not_callable(thing):
    assert type(thing).__name__ in failing(thing).cause
    assert "smooth(scale, signals)" in failing(thing).cause


def test_wrong_signature_shows_both():
    cause = failing(lambda signals: signals).cause
    assert "smooth(scale, signals)" in cause
    assert "smooth(signals)" in cause


def test_exception_is_cut_to_the_learners_lines():
    def smooth(scale, signals):
        return helper(signals)

    def helper(signals):
        return signals.reshape(7)

    finding = failing(smooth)
    assert "TypeError" in finding.cause
    assert "signals.reshape(7)" in finding.cause
    assert len(finding.detail) == 3, finding.detail
    assert "in smooth" in finding.detail[0]
    assert "in helper" in finding.detail[1]
    assert not any("site-packages" in line or "guard" in line for line in finding.detail)


@pytest.mark.parametrize("error", [SystemExit(0), GeneratorExit(), MemoryError("no room")])
def test_whatever_is_raised_is_caught(error):
    def smooth(scale, signals):
        raise error

    assert type(error).__name__ in failing(smooth).cause
    good()


def test_an_interrupt_by_the_user_is_not_a_verdict():
    def smooth(scale, signals):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        grade(TOY, smooth)
    good()


@pytest.mark.parametrize(
    ("change", "words", "advice"),
    [
        (lambda y: y[:, :-1], ("float32[4, 64]", "float32[4, 63]"), "same structure"),
        (lambda y: y.astype(jnp.bfloat16), ("float32[4, 64]", "bfloat16[4, 64]"), "dtypes"),
        (lambda y: (y, y), ("float32[4, 64]", "tuple of 2"), "same structure"),
        (lambda y: [y], ("float32[4, 64]", "list of 1"), "jnp.stack"),
        (lambda y: None, ("float32[4, 64]", "None"), "`return` missing"),
        (np.asarray, ("float32[4, 64]", "a NumPy array float32[4, 64]"), "jnp.asarray"),
        (lambda y: y.at[1, 2].set(jnp.nan), ("1 NaN of 256 values",), "same structure"),
        (lambda y: y.at[0, 0].set(jnp.inf), ("1 infinite of 256 values",), "same structure"),
    ],
    ids=["shape", "dtype", "tuple", "list", "none", "numpy", "nan", "inf"],
)
def test_wrong_result_is_named(change, words, advice):
    finding = failing(lambda scale, signals: change(solution_smooth(scale, signals)))
    for word in words:
        assert word in finding.cause
    assert advice in finding.hint


def test_a_lazy_array_like_is_not_an_array():
    class Later:
        shape, dtype = (4, 64), jnp.dtype("float32")

        def __init__(self, compute):
            self.compute = compute

        def __array__(self, dtype=None, copy=None):
            return np.asarray(self.compute())

    def smooth(scale, signals):
        return Later(lambda: solution_smooth(scale, signals))

    assert "Later" in failing(smooth).cause


def test_donating_an_input_is_named():
    eat = jax.jit(lambda scale, signals: jnp.tanh(signals) * scale, donate_argnums=1)

    finding = failing(eat)
    assert "`signals` was deleted" in finding.cause


def test_time_limit_interrupts_python_and_catches_all():
    def smooth(scale, signals):
        while True:
            with contextlib.suppress(Exception):
                time.sleep(0.01)

    started = time.monotonic()
    finding = failing(smooth, lab=IMPATIENT)
    assert "still running after 2 s" in finding.cause
    assert time.monotonic() - started < 20
    good()


def test_recursion_without_end():
    def smooth(scale, signals):
        return smooth(scale, signals)

    assert "RecursionError" in failing(smooth).cause
    good()


def test_third_call_only():
    calls = []

    def smooth(scale, signals):
        calls.append(None)
        if len(calls) == 3:
            raise ValueError("third time")
        return solution_smooth(scale, signals)

    report = grade(TOY, smooth)
    assert report.verdict == "fail"
    assert any("third time" in finding.cause for finding in report.findings)


def test_an_error_whose_message_raises():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError

    def smooth(scale, signals):
        raise Mute

    assert "Mute" in failing(smooth).cause


def test_a_leaked_tracer_is_called_so():
    leaked = []

    def smooth(scale, signals):
        jax.jit(lambda y: leaked.append(y))(signals)
        return leaked[-1]

    assert "tracer" in failing(smooth).cause


def test_unknown_lab_names_the_nearest():
    with pytest.raises(LookupError, match="did you mean 'eager_crops'"):
        grade("eager_crop", print)


def test_missing_and_unknown_entry_points():
    with pytest.raises(TypeError, match=r"missing: smooth. Call it as grade\(.*, smooth=smooth\)"):
        grade(TOY)
    with pytest.raises(TypeError, match="unknown: predict"):
        grade(TOY, predict=print)
    with pytest.raises(TypeError, match="twice: smooth"):
        grade(TOY, print, smooth=print)
    with pytest.raises(TypeError, match="got 2"):
        grade(TOY, print, print)


def test_grading_off_the_main_thread_works():
    import threading

    reports = []
    thread = threading.Thread(target=lambda: reports.append(grade(TOY, solution_smooth)))
    thread.start()
    thread.join()
    assert reports[0].finding("runs").verdict == "pass"


def test_nothing_is_printed_when_nobody_watches(capsys):
    grade(TOY, lambda signals: signals)
    assert capsys.readouterr() == ("", "")


HANG = """
import jax
from course_utils import grade, guard
from course_utils.instruments._frames import Owner
from tests.toy_lab import LAB

forever = jax.jit(lambda x: jax.lax.while_loop(lambda v: v.sum() < 1e30, lambda v: v * 0, x))
grade(LAB, lambda scale, signals: forever(signals))
"""


def test_a_hang_in_compiled_code_says_to_restart(tmp_path):
    """Nothing in the process can stop it; the card must be there all the same."""
    root = Path(__file__).parent.parent
    said = tmp_path / "stderr"
    with said.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", HANG], cwd=root, stderr=file, stdout=subprocess.DEVNULL
        )
        try:
            deadline = time.monotonic() + 90
            while "Restart the kernel" not in said.read_text() and time.monotonic() < deadline:
                assert process.poll() is None, said.read_text()
                time.sleep(0.2)
        finally:
            process.kill()
            process.wait()
    first = said.read_text().splitlines()[0]
    assert first.startswith("FAIL toy: Restart the kernel")


def test_an_error_of_tracing_points_at_filter_jit():
    @jax.jit
    def smooth(scale, signals):
        return signals if scale > 0 else -signals

    assert "filter_jit" in failing(smooth).hint


def test_an_error_names_the_entry_point_that_it_came_out_of():
    def start(signals):
        return signals

    def step(signals):
        return signals.reshape(7)

    functions = (start, step)
    elsewhere = jnp.zeros(3)
    for call, named in (
        (lambda: step(elsewhere), "step"),
        (lambda: elsewhere.reshape(7), "start"),  # the first, when it cannot be told
    ):
        with pytest.raises(guard.SubmissionError) as caught:
            guard.run(call, names=["start", "step"], owner=Owner(functions), seconds=10)
        assert caught.value.cause.startswith(f"`{named}` raised TypeError")
