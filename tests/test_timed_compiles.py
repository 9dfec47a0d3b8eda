"""What compiles while the clock runs is held against the code that compiled it, and nobody else."""

import dataclasses

import jax
import jax.numpy as jnp

from course_utils import grade
from course_utils.session import _Chosen
from tests import toy_lab


def test_a_baseline_that_compiles_while_timed_is_not_held_against_the_submission():
    calls = iter(range(1, 10_000))

    def compiles_at_every_call(scale, signals):
        jnp.zeros(next(calls))  # another shape each time
        return toy_lab.broken_smooth(scale, signals)

    lab = dataclasses.replace(toy_lab.LAB, broken={"smooth": compiles_at_every_call})
    report = grade(lab, toy_lab.solution_smooth, seed=1)
    assert report.verdict == "pass", str(report)
    assert report.finding("speedup").verdict == "pass"


def test_a_submission_that_compiles_after_a_while_is_found_out_when_timed():
    calls = []

    def compiles_later(scale, signals):
        calls.append(signals)
        turns = len(calls) // 10  # a new program after every tenth call
        late = jax.jit(lambda result: result + 0 * turns)
        return late(toy_lab.solution_smooth(scale, signals)) if turns else early(scale, signals)

    def early(scale, signals):
        return toy_lab.solution_smooth(scale, signals)

    report = grade(toy_lab.LAB, compiles_later, seed=1)
    assert report.verdict == "fail", str(report)
    first = report.first(report.verdict)
    assert first is not None
    assert "While it was timed, it compiled" in first.cause


def test_of_many_timed_results_some_from_everywhere_are_checked():
    chosen = _Chosen(40)
    for item in range(4000):
        chosen.offer(item)
    assert len(chosen.items) == len(set(chosen.items)) == 40
    assert min(chosen.items) < 2000 < max(chosen.items)
