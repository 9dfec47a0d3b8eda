"""Each check judges a made-up measurement: no JAX program runs here."""

import pytest

from course_utils.checks import (
    CompilesAtMost,
    Errors,
    LaunchesAtMost,
    MetricAtCounts,
    MetricWithin,
    RecompilesAtMost,
    SpeedupAtLeast,
    SyncsAtMost,
    TimeWithin,
)
from course_utils.findings import Link
from course_utils.guard import SubmissionError
from course_utils.instruments._frames import Line
from course_utils.instruments.compiles import Compiles
from course_utils.instruments.launches import Kind, Launch, Launches
from course_utils.instruments.retrace import Change, Recompile
from course_utils.instruments.syncs import Sync, Syncs
from course_utils.instruments.timing import Timing

LINK = Link("book/chapters/01_eager", "the-fix")
LINE = Line("cell", 7, "out = model(crop)")


def launches(eager=0, jit=0):
    made = [Launch(Kind.EAGER, "add", LINE)] * eager + [Launch(Kind.JIT, "block", LINE)] * jit
    return Launches(tuple(made), len(made))


def timing(*, broken, yours, solution):
    arms = {"broken": broken, "yours": yours, "solution": solution}
    rounds = {name: ((seconds, 2 * seconds),) * 2 for name, seconds in arms.items()}
    return Timing(rounds, dict.fromkeys(arms, 1), 0.1)


class TestMetric:
    check = MetricWithin("error", lambda e, g: 0.0, tolerance=0.1, unit="px", link=LINK)

    def judge(self, submission, *, solution=0.0, stale=50.0, setting=50.0, trivial=50.0):
        return self.check.judge(Errors(submission, solution, stale, setting, trivial), "crop")

    def test_within(self):
        assert self.judge(0.1).verdict == "pass"

    def test_beyond(self):
        finding = self.judge(0.11)
        assert finding.verdict == "fail"
        assert (finding.measured, finding.required, finding.unit) == (0.11, 0.1, "px")

    def test_near_misses_and_other_answers_get_other_hints(self):
        assert "lower precision" in self.judge(0.2).hint
        assert "another answer" in self.judge(30.0).hint

    def test_the_place_of_the_largest_error_is_named(self):
        finding = self.check.judge(Errors(0.2, 0.0, 50.0, 50.0, 50.0), "crop", "landmark 7")
        assert "The largest is landmark 7." in finding.cause

    def test_a_stale_answer_is_named(self):
        assert "first pass's inputs" in self.judge(40.0, stale=0.01).cause

    def test_a_kept_model_is_named(self):
        finding = self.judge(40.0, setting=0.01)
        assert "kept from then" in finding.cause
        assert "closes over" in finding.hint

    def test_a_device_with_less_precision_allows_a_multiple_of_the_solutions_error(self):
        assert self.judge(0.3, solution=0.1).verdict == "pass"
        assert self.judge(0.5, solution=0.1).verdict == "fail"

    def test_nothing_is_said_when_wrong_answers_would_be_within_reach(self):
        assert self.judge(0.0, trivial=1.9).verdict == "inconclusive"
        assert self.judge(0.5, trivial=1.9).verdict == "inconclusive"
        assert self.judge(0.0, trivial=2.1).verdict == "pass"


class TestMetricAtCounts:
    check = MetricAtCounts(
        "error with fewer views",
        lambda e, g: 0.0,
        tolerance=0.1,
        unit="px",
        counts=(24, 8),
        counted="views",
        resized=lambda config, count: count,
        advice="Mind the rest.",
        link=LINK,
    )

    def test_within(self):
        assert self.check.judge({24: (0.1, 0.0), 8: (0.05, 0.0)}).verdict == "pass"

    def test_the_worst_count_is_named(self):
        finding = self.check.judge({24: (0.2, 0.0), 8: (0.05, 0.0)})
        assert (finding.verdict, finding.measured) == ("fail", 0.2)
        assert finding.cause.startswith("With 24 views")

    def test_a_device_with_less_precision_allows_a_multiple_of_the_solutions_error(self):
        assert self.check.judge({24: (0.3, 0.1)}).verdict == "pass"
        assert self.check.judge({24: (0.5, 0.1)}).verdict == "fail"

    def test_a_count_that_raises_is_named(self):
        error = SubmissionError("raised", "`survey` raised TypeError.", "")
        finding = self.check.judge_failure(8, error)
        assert finding.verdict == "fail"
        assert finding.cause == "With 8 views: `survey` raised TypeError."


class TestCompiles:
    change = Change("rate", "static value", "0.1", "0.2")
    recompile = Recompile("step", 3, 1, (change,), LINE)

    def test_nothing_compiled(self):
        finding = CompilesAtMost(0, LINK).judge(Compiles((), (), 0, 0.0, 0), (), 4, "crop")
        assert (finding.verdict, finding.measured) == ("pass", 0)

    def test_the_argument_is_named(self):
        compiles = Compiles(("step", "step", "add"), (), 0, 0.5, 0)
        finding = CompilesAtMost(0, LINK).judge(compiles, [self.recompile], 4, "crop")
        assert finding.verdict == "fail"
        for words in ("3 programs", "`step` 2 times", "`rate`", "0.1", "0.2", str(LINE), "500 ms"):
            assert words in finding.cause
        assert "jnp.asarray" in finding.hint

    def test_without_an_explanation_the_names_are_given(self):
        compiles = Compiles(("step",), (), 0, 0.5, 0)
        finding = CompilesAtMost(0, LINK).judge(compiles, (), 4, "crop")
        assert "`step` once" in finding.cause
        assert finding.hint

    def test_recompiles_on_the_first_pass(self):
        check = RecompilesAtMost(1, LINK)
        assert check.judge([self.recompile], 4, "crop").verdict == "pass"
        finding = check.judge([self.recompile] * 3, 4, "crop")
        assert (finding.verdict, finding.measured) == ("fail", 3)
        assert "4 crops of one shape" in finding.cause


class TestLaunches:
    check = LaunchesAtMost(10, LINK, parts_link=Link("book/chapters/01_eager", "the-whole"))

    def test_few(self):
        assert self.check.judge(launches(eager=40), 4, "crop").verdict == "pass"

    def test_eager_operations_and_their_line_are_named(self):
        finding = self.check.judge(launches(eager=80), 4, "crop")
        assert (finding.verdict, finding.measured) == ("fail", 20)
        assert "outside any jit" in finding.cause
        assert str(LINE) in finding.cause
        assert finding.link == str(LINK)

    def test_jitted_parts_get_another_hint_and_link(self):
        eager = self.check.judge(launches(eager=80), 4, "crop")
        parts = self.check.judge(launches(eager=40, jit=48), 4, "crop")
        assert "`block` 12 times" in parts.cause
        assert parts.hint != eager.hint
        assert parts.link.endswith("#the-whole")

    def test_a_lab_may_say_it_in_its_own_words(self):
        check = LaunchesAtMost(1, LINK, hints={"eager": "mine", "parts": "yours"})
        assert check.judge(launches(eager=80), 4, "crop").hint == "mine"
        assert check.judge(launches(jit=80), 4, "crop").hint == "yours"

    def test_a_count_without_kinds_is_judged_too(self):
        finding = self.check.judge(Launches((), 80, "profiler"), 4, "crop")
        assert (finding.verdict, finding.measured) == ("fail", 20)
        assert finding.hint


def test_a_wait_is_named_with_its_line():
    check = SyncsAtMost(0, LINK)
    assert check.judge(Syncs((), 4), 4, "crop").verdict == "pass"
    finding = check.judge(Syncs((Sync("float(x)", LINE),), 0), 4, "crop")
    assert finding.verdict == "fail"
    assert "`float(x)`" in finding.cause
    assert str(LINE) in finding.cause


class TestTime:
    @pytest.mark.parametrize(
        ("yours", "verdict"),
        [(0.01, "pass"), (0.079, "pass"), (0.09, "inconclusive"), (0.12, "inconclusive"),
         (0.13, "fail"), (1.0, "fail")],
    )  # fmt: skip
    def test_speedup(self, yours, verdict):
        check = SpeedupAtLeast(10, LINK)
        measured = timing(broken=1.0, yours=yours, solution=0.01)
        assert check.judge(measured).verdict == verdict
        assert check.clear(measured) == (verdict != "inconclusive")

    def test_speedup_is_not_checked_where_the_solution_has_no_margin(self):
        check = SpeedupAtLeast(10, LINK)
        measured = timing(broken=1.0, yours=1.0, solution=0.06)
        finding = check.judge(measured)
        assert finding.verdict == "not checked"
        assert "the counts above decide" in finding.cause

    @pytest.mark.parametrize(
        ("yours", "verdict"),
        [(0.001, "pass"), (0.023, "pass"), (0.026, "inconclusive"), (0.035, "inconclusive"),
         (0.039, "fail")],
    )  # fmt: skip
    def test_time_against_the_solution(self, yours, verdict):
        check = TimeWithin(3, LINK)
        measured = timing(broken=1.0, yours=yours, solution=0.01)
        assert check.judge(measured).verdict == verdict
        assert check.clear(measured) == (verdict != "inconclusive")

    def test_the_spread_of_the_rounds_is_told(self):
        rounds = {"broken": ((8.0,), (6.0,)), "yours": ((1.0,), (1.0,)), "solution": ((1.0,),) * 2}
        finding = SpeedupAtLeast(2, LINK).judge(Timing(rounds, {}, 0.1))
        assert finding.spread == (6.0, 8.0)
        assert finding.measured == 6.0
