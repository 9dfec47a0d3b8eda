"""Checks on a gate: what it said of candidates, held against what they are."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from course_utils import grade
from course_utils.checks import GateAccepts, GateCase, GateOutcome, GateRejects
from course_utils.findings import Link
from course_utils.lab import Entry
from tests import toy_lab

LINK = Link("book/chapters/01_eager", "the-fix")
ERRORS = {"exact": 0.0, "near": 0.4, "far": 2.5, "NaN": float("nan")}


def cases(_size, _setting, _rng):
    return [
        GateCase(name, error <= 1, error, (error,), f"think of {name}")
        for name, error in ERRORS.items()
    ]


ACCEPTS, REJECTS = (
    check("accept", cases, 1.0, "px", link=LINK) for check in (GateAccepts, GateRejects)
)
RIGHT, WRONG = "right candidates accepted", "wrong candidates refused"


def outcomes(accepts):
    return [GateOutcome(case, accepts(case.error)) for case in cases(None, None, None)]


def test_a_gate_on_the_metric_passes_both():
    said = outcomes(lambda error: error <= 1)
    for check in (ACCEPTS, REJECTS):
        finding = check.judge(said)
        assert (finding.verdict, finding.measured) == ("pass", 0)


def test_right_ones_that_were_refused_are_named_with_their_error():
    finding = ACCEPTS.judge(outcomes(lambda error: error == 0))
    assert (finding.verdict, finding.measured) == ("fail", 1)
    assert "near (off by 0.4 px)" in finding.cause
    assert "exact" not in finding.cause
    assert finding.hint == "think of near"


def test_wrong_ones_that_were_accepted_are_named_the_hardest_first():
    finding = REJECTS.judge(outcomes(lambda error: True))
    assert (finding.verdict, finding.measured) == ("fail", 2)
    assert "far (off by 2.5 px); NaN (with values that are not finite)" in finding.cause
    assert finding.hint == "It accepts everything. think of far"


def test_a_gate_that_says_the_same_of_all_is_told_so_first():
    assert ACCEPTS.judge(outcomes(lambda error: False)).hint == (
        "It refuses everything. think of exact"
    )
    said = outcomes(lambda error: not error <= 1)
    assert REJECTS.judge(said).hint == "It accepts every wrong candidate. think of far"
    assert ACCEPTS.judge(said).hint == "It refuses every right candidate. think of exact"
    assert REJECTS.judge(outcomes(lambda error: error <= 3)).hint == "think of far"


def test_many_errors_of_a_kind_are_told_as_a_range():
    said = [GateOutcome(GateCase("far", False, error, (), ""), True) for error in (10.0, 9.0, 3.0)]
    assert "far (off by 3 px to 10 px)" in REJECTS.judge(said).cause
    assert "far (off by 9 px and 10 px)" in REJECTS.judge(said[:2]).cause


def test_what_is_near_the_tolerance_does_not_count():
    said = [
        GateOutcome(GateCase(name, right, error, (), ""), not right)
        for name, right, error in (("doubtful", True, 0.9), ("doubtful too", False, 1.5))
    ]
    for check in (ACCEPTS, REJECTS):
        assert check.judge(said).verdict == "inconclusive"
        assert dataclasses.replace(check, margin=1.0).judge(said).verdict == "fail"


def with_gate():
    smooth, accept = toy_lab.LAB.entries[0], Entry("accept", ("error",))
    right = {"accept": lambda error: error <= 1}
    return dataclasses.replace(
        toy_lab.LAB,
        entries=(smooth, accept),
        broken={**toy_lab.LAB.broken, **right},
        solution={**toy_lab.LAB.solution, **right},
        checks=(ACCEPTS, REJECTS),
    )


def verdicts(accept):
    report = grade(with_gate(), toy_lab.solution_smooth, accept, progress=lambda _: None)
    return report.finding(RIGHT), report.finding(WRONG)


@pytest.mark.parametrize(
    "truth",
    [bool, np.bool_, jnp.asarray, lambda value: np.asarray(value)],
)
def test_any_single_truth_value_will_do(truth):
    right, wrong = verdicts(lambda error: truth(error <= 1))
    assert (right.verdict, wrong.verdict) == ("pass", "pass")


@pytest.mark.parametrize(
    ("answer", "shown"),
    [(None, "None"), (1.0, "a Python float"), (1, "a Python int"), ("yes", "a Python str"),
     (np.array([True]), "bool[1]"), (jnp.float32(1), "float32[]")],
)  # fmt: skip
def test_anything_else_is_an_error_that_says_what_came(answer, shown):
    right, wrong = verdicts(lambda error: answer)
    assert right.verdict == "fail"
    assert "`accept` must return True or False" in right.cause
    assert shown in right.cause
    assert wrong.verdict == "not checked", "the same is not said twice"


def test_a_gate_that_raises_is_named():
    def accept(error):
        raise ValueError("no such thing")

    right, wrong = verdicts(accept)
    assert right.verdict == "fail"
    assert "`accept` raised ValueError: no such thing" in right.cause
    assert wrong.verdict == "not checked"


def test_answers_in_a_fixed_order_are_no_gate():
    """Candidates come in an order that the seed does not tell."""
    seen = set()
    for _ in range(6):
        order = []
        grade(
            with_gate(),
            toy_lab.solution_smooth,
            lambda error, order=order: order.append(str(error)) or True,
            seed=1,
            progress=lambda _: None,
        )
        seen.add(tuple(order))
    assert len(seen) > 1
