"""The count of values that are NaN or infinite."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from course_utils import grade
from course_utils.checks import NonFinite, NonFiniteAtMost, count_non_finite
from course_utils.findings import Link, Verdict
from tests import toy_lab

LINK = Link("book/chapters/01_eager", "the-fix")
CHECK = NonFiniteAtMost(
    0,
    "losses",
    lambda result: result,
    link=LINK,
    hint="mend it",
    absent="This device rounds twice.",
)
NONE = NonFinite(0, 100, None)


def test_every_leaf_of_every_result_is_counted():
    bad = jnp.array([1.0, jnp.nan, -jnp.inf, 2.0])
    found = count_non_finite([(jnp.ones(3), jnp.ones(2)), (jnp.ones(3), bad)])
    assert found == NonFinite(2, 12, (1, 4))
    assert count_non_finite([jnp.ones(3), np.arange(2)]) == NonFinite(0, 5, None)
    assert count_non_finite([jnp.array([jnp.nan], jnp.bfloat16)]).count == 1


def test_the_count_is_exact_and_the_first_place_named():
    finding = CHECK.judge(NonFinite(7, 100, (0, 3)), NonFinite(12, 100, (0, 1)), "pair 3")
    assert (finding.verdict, finding.measured, finding.required) == ("fail", 7, 0)
    assert "7 of 100 losses" in finding.cause
    assert "(the starter's: 12)" in finding.cause
    assert "The first is pair 3." in finding.cause
    assert finding.hint == "mend it"


def test_none_passes_where_the_starter_has_some():
    assert CHECK.judge(NONE, NonFinite(12, 100, (0, 1))).verdict == "pass"


def test_where_the_starter_has_none_nothing_is_proved_and_the_finding_says_so():
    finding = CHECK.judge(NONE, NONE)
    assert finding.verdict == "not checked"
    assert "so are the starter's on this device. This device rounds twice." in finding.cause
    assert CHECK.judge(NonFinite(1, 100, (0, 0)), NONE).verdict == "fail"


def test_only_a_lab_that_counts_them_lets_them_through():
    lab = dataclasses.replace(toy_lab.LAB, checks=(CHECK,))
    spoilt = jax.jit(lambda scale, signals: jnp.sqrt(signals - signals - 1))
    through = dataclasses.replace(lab, may_be_non_finite=True)
    stopped = grade(lab, spoilt).first(Verdict.FAIL)
    assert stopped is not None
    assert stopped.check == "runs"
    finding = grade(through, spoilt).finding("non-finite losses")
    assert (finding.verdict, finding.measured) == ("fail", 2 * 4 * 64)
