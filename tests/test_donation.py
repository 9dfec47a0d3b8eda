"""What launches write over is counted in bytes, whatever launches them, and judged."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from course_utils.checks import DonatedBytesAtLeast, MetricWithin, RecompilesAtMost, SavedWithin
from course_utils.findings import Link
from course_utils.guard import SubmissionError, run
from course_utils.instruments._frames import Owner
from course_utils.instruments.donation import Donations, HandedOn, donations_of
from course_utils.instruments.retrace import Change, Recompile

LINK = Link("book/chapters/01_eager", "the-fix")
SIZE = 256


def add(total, x):
    return total + x


@functools.partial(eqx.filter_jit, donate="all-except-first")
def filter_add(x, totals):
    return jax.tree.map(lambda leaf: leaf + x, totals)


def chained(function, steps=3):
    """Return a call that hands each result on to the next."""

    def call():
        total, x = jnp.zeros(SIZE), jnp.float32(1)
        for _ in range(steps):
            total = function(total, x)
        return total

    return call


donating = jax.jit(add, donate_argnums=0)
by_name = jax.jit(add, donate_argnames="total")
ahead = jax.jit(add, donate_argnums=0).lower(jnp.zeros(SIZE), jnp.float32(1)).compile()
reduced = jax.jit(lambda total, x: jnp.sum(total) + x, donate_argnums=0)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (chained(donating), 3 * 4 * SIZE),
        (chained(by_name), 3 * 4 * SIZE),
        (chained(ahead), 3 * 4 * SIZE),
        (chained(lambda total, x: filter_add(x, [total])[0]), 3 * 4 * SIZE),
        (chained(jax.jit(add)), 0),
        (chained(add), 0),
    ],
    ids=["jit", "by name", "ahead of time", "filter_jit", "not donated", "not jitted"],
)
@pytest.mark.parametrize("warm", [False, True])
def test_what_was_written_over_is_counted(call, expected, warm):
    if warm:
        call()
    assert donations_of(call).bytes == expected


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
def test_what_could_not_be_used_is_not_counted():
    total, x = jnp.zeros(SIZE), jnp.float32(1)
    assert donations_of(lambda: reduced(total, x)).bytes == 0


def test_an_array_that_is_given_away_later_counts_once():
    def call():
        total, x = jnp.zeros(SIZE), jnp.float32(1)
        return jnp.sum(total), donating(total, x)

    call()
    found = donations_of(call)
    assert (found.bytes, found.donating) == (4 * SIZE, 1)


class TestDonatedBytes:
    check = DonatedBytesAtLeast(lambda config: config, "the state", link=LINK)

    def test_enough(self):
        assert self.check.judge(Donations(6000, 6, 6), 1000, 6, "frame").verdict == "pass"

    def test_none(self):
        finding = self.check.judge(Donations(0, 0, 6), 1000, 6, "frame")
        assert (finding.verdict, finding.measured) == ("fail", 0)
        assert "None of 6 launches" in finding.cause
        assert "the state" in finding.cause
        assert "donate_argnums" in finding.hint

    def test_too_little(self):
        finding = self.check.judge(Donations(5999, 6, 12), 1000, 6, "frame")
        assert finding.verdict == "fail"
        assert "6 of 12 launches" in finding.cause


def test_saved_arrays_that_are_gone_are_counted_and_their_values_not_looked_at():
    check = SavedWithin(
        "saved model", lambda e, g: 0.0, tolerance=1, unit="mm", link=LINK, lost=int, saved="model"
    )
    assert isinstance(check, MetricWithin)
    assert check.judge_lost(0) is None
    finding = check.judge_lost(6)
    assert finding is not None
    assert (finding.verdict, finding.measured) == ("fail", None)
    assert "6 arrays of the model" in finding.cause
    assert "jnp.copy" in finding.hint


def test_each_reason_for_a_recompile_is_told_once_with_its_hint():
    weak = Change("run.lowest", "weak type", "weak float32", "strong float32")
    other = Change("optimizer", "function identity", "`f`", "a new object of the same code")
    recompiles = [
        Recompile("step", n, 0, (change,)) for n, change in enumerate([weak, other, weak])
    ]
    finding = RecompilesAtMost(0, LINK).judge(recompiles, 2, "rate")
    assert finding.cause.count("weak float32") == 1
    assert "`optimizer`" in finding.cause
    assert "explicit dtype" in finding.hint
    assert "by identity" in finding.hint


@pytest.mark.parametrize(
    "use",
    [
        lambda x: (donating(x, jnp.float32(1)), donating(x, jnp.float32(1))),
        lambda x: (donating(x, jnp.float32(1)), x + 1),
        lambda x: jax.jit(lambda a, b: (a + 1, b + 1), donate_argnums=(0, 1))(x, x),
    ],
    ids=["given twice in a row", "used after", "given twice at once"],
)
def test_the_errors_of_donation_are_explained(use):
    with pytest.raises(SubmissionError) as caught:
        run(lambda: use(jnp.zeros(SIZE)), names=["f"], owner=Owner(), seconds=60)
    assert "donation" in caught.value.hint


def test_the_line_that_asked_for_the_grade_is_not_taken_for_the_learners():
    owner = Owner()
    assert owner.line() is not None
    seen = []
    callback = functools.partial(_line_of, owner, seen)  # no frame of this file's between
    run(callback, names=["f"], owner=owner, seconds=60)
    assert "owner.line" in str(seen[0])


def _line_of(owner, seen):
    seen.append(owner.line())


copying = jax.jit(lambda total: total + 0, donate_argnums=0)
undonated = jax.jit(add)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (donating, 3 * 4 * SIZE),
        (by_name, 3 * 4 * SIZE),
        (ahead, 3 * 4 * SIZE),
        (lambda total, x: filter_add(x, [total])[0], 3 * 4 * SIZE),
        (undonated, 0),
        (lambda total, x: total, 0),
        (lambda total, x: undonated(copying(total), x), 0),
    ],
    ids=["jit", "by name", "ahead of time", "filter_jit", "not donated", "as it was", "to a copy"],
)
def test_only_what_is_returned_in_the_memory_of_an_argument_is_handed_on(function, expected):
    for _ in range(2):  # cold and warm
        handed_on = HandedOn()
        chained(handed_on.watching(function))()
        assert handed_on.bytes == expected


def test_only_what_the_caller_names_counts():
    given, x = jnp.zeros(SIZE), jnp.float32(1)
    own = jnp.zeros(2 * SIZE)
    found = donations_of(
        lambda: (donating(own, x), donating(given, x)), lambda array: array is given
    )
    assert (found.bytes, found.donating) == (4 * SIZE, 1)
