"""Which stages of a pipeline are replaced, whether they do their own work, and what that wins."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from course_utils.checks import (
    PipelineLaunchesAtMost,
    PipelineTimeWithin,
    StagesChangedAtMost,
    StagesKeepTheirResult,
    StagesWorthIt,
)
from course_utils.checks.stages import edited, launches_by_stage, run_stages, shares_of
from course_utils.findings import Finding, Link, Verdict
from course_utils.grading import grade_lab
from course_utils.instruments.timing import Timing
from course_utils.labs import measurement_budget
from course_utils.session import Session
from tests.submissions import measurement_budget as submitted

LINK = Link("book/chapters/06_measurement", "what-is-worth-fixing")
LAB = measurement_budget.LAB


def double(x):
    return 2 * x


def shift(x):
    return x + 1


STAGES = {"double": double, "shift": shift}


class TestEdited:
    def test_what_is_only_repeated_is_left_out(self):
        assert edited(STAGES, lambda: {"double": double, "shift": abs}) == {"shift": abs}

    def test_order_is_the_pipelines(self):
        changed = edited(STAGES, lambda: {"shift": abs, "double": abs})
        assert list(changed) == ["double", "shift"]

    def test_no_dict(self):
        with pytest.raises(TypeError, match="dict of functions"):
            edited(STAGES, lambda: [double])

    def test_no_such_stage(self):
        with pytest.raises(ValueError, match=r"'dubble'.*double, shift"):
            edited(STAGES, lambda: {"dubble": double})

    def test_no_function(self):
        with pytest.raises(TypeError, match="must be a function"):
            edited(STAGES, lambda: {"double": 3})


def test_stages_run_one_after_the_other():
    assert run_stages(STAGES, 3) == 7


def test_shares_add_up_to_one():
    shares = shares_of(STAGES, jnp.ones(3))
    assert sum(shares.values()) == pytest.approx(1)
    assert list(shares) == list(STAGES)


class TestChanged:
    check = StagesChangedAtMost(STAGES, 1, LINK)

    def test_none_is_too_few(self):
        assert self.check.judge(()).verdict == "fail"

    def test_within(self):
        assert self.check.judge(("double",)).verdict == "pass"

    def test_beyond(self):
        finding = self.check.judge(("double", "shift"))
        assert (finding.verdict, finding.measured) == ("fail", 2)
        assert "`double`, `shift`" in finding.cause

    def test_what_is_timed_is_what_was_counted(self):
        answers = iter([{}, dict(STAGES, double=shift)])
        session = Session(LAB, {"edits": lambda: next(answers)}, seed=0)
        check = StagesChangedAtMost(measurement_budget.STAGES, 2, LINK)
        assert check.run(session).verdict == "fail"
        assert session.functions["edits"]() == {}


class TestResults:
    check = StagesKeepTheirResult(STAGES, 0.01, LINK)

    def test_within_and_beyond(self):
        assert self.check.judge({"double": 0.01}).verdict == "pass"
        finding = self.check.judge({"double": 0.0, "shift": 0.02})
        assert (finding.verdict, finding.measured) == ("fail", 0.02)
        assert "`shift`" in finding.cause

    def test_what_is_not_a_number_is_beyond(self):
        assert self.check.judge({"double": float("nan")}).verdict == "fail"

    def test_another_structure_is_put_in_words(self):
        assert "got a list" in self.check.judge({"double": "got a list"}).cause


class TestWorth:
    check = StagesWorthIt(STAGES, 0.1, LINK)

    def test_the_smallest_share_decides_and_is_shown(self):
        finding = self.check.judge(("double", "shift"), {"double": 0.98, "shift": 0.02})
        assert (finding.verdict, finding.measured) == ("fail", 2)
        assert "`shift` takes 2% of a pass" in finding.cause
        assert "1.02 times" in finding.cause

    def test_large_shares(self):
        assert self.check.judge(("double",), {"double": 0.98, "shift": 0.02}).verdict == "pass"


class TestLaunches:
    check = PipelineLaunchesAtMost(10, link=LINK, stages=STAGES, edits=1)
    failed = Finding("launches", Verdict.FAIL, hint="Do it at once.")

    def hint(self, *changed, double=1):
        return self.check.named(self.failed, {"double": double, "shift": 14}, changed).hint

    def test_each_stage_is_counted_warm(self):
        stages = {"double": double, "fourfold": lambda x: double(double(x))}
        launches_by_stage(stages, jnp.ones(3))
        assert launches_by_stage(stages, jnp.ones(3)) == {"double": 1, "fourfold": 2}

    def test_the_stage_is_named_and_what_is_left(self):
        expected = "`shift` makes 14 of 15 launches, and you may replace 1 more stage."
        assert self.hint() == f"{expected} Do it at once."

    def test_a_replaced_stage_is_called_so(self):
        assert "`shift`, as you replaced it, makes 14 of 15 launches." in self.hint("shift")

    def test_no_edit_is_left(self):
        assert "no edit is left for it" in self.hint("double")


class TestTime:
    check = PipelineTimeWithin(4, LINK, stages=STAGES)

    def judge(self, yours):
        times = {"yours": yours, "solution": 1e-3}
        timing = Timing({n: ((t,),) for n, t in times.items()}, dict.fromkeys(times, 1), 0.1)
        return self.check.judge(timing)

    def test_near_the_solution(self):
        assert self.judge(1.5e-3).verdict == "pass"

    def test_far_from_it_names_what_is_left(self):
        finding = self.judge(12e-3)
        assert finding.verdict == "fail"
        assert "`shift` takes 90%" in self.check.named(finding, {"double": 0.1, "shift": 0.9}).hint


class TestLab:
    def test_the_shipped_pipeline_is_what_the_reference_computes(self):
        rng = np.random.default_rng(3)
        (frames,) = LAB.arguments(LAB.sizes["cpu"], None, rng, 2)
        expected = LAB.oracle(frames)
        shipped = tuple(run_stages(measurement_budget.STAGES, frame) for frame in frames)
        assert measurement_budget.pointing_error(expected, shipped) < 0.01
        assert measurement_budget.scatter_error(expected, shipped) < 0.01

    def test_the_stages_cannot_be_swapped(self):
        with pytest.raises(TypeError):
            measurement_budget.STAGES["match"] = double  # type: ignore[index]

    @pytest.mark.timed
    def test_stages_that_differ_between_calls_are_timed_as_they_were_counted(self):
        asked = []
        repeated = {
            "destripe": submitted.destripe_sixteen_times,
            "clip_rows": submitted.clip_sixteen_times,
        }

        def edits():
            """Replace the slow stages well only when the grader times."""
            asked.append(1)
            return LAB.solution["edits"]() if len(asked) > 3 else repeated

        report = grade_lab(
            LAB, {"edits": edits}, seed=1, progress=lambda _: None, stuck=lambda _: None
        )
        assert report.finding("time against the solution").verdict == "fail"
        assert len(asked) == 3

    def test_a_stage_that_does_two_stages_work_is_not_itself(self):
        functions = submitted.returning(destripe=submitted.destripe_and_clip)
        session = Session(LAB, {"edits": functions}, seed=0)
        check = StagesKeepTheirResult(measurement_budget.STAGES, 1e-4, LINK)
        finding = check.run(session)
        assert finding.verdict == "fail"
        assert "`destripe`" in finding.cause

    def test_a_stage_whose_work_another_has_done_is_not_itself(self):
        functions = submitted.returning(
            destripe=submitted.destripe_for_both, clip_rows=submitted.clip_rows_done_before
        )
        session = Session(LAB, {"edits": functions}, seed=0)
        session.passes  # noqa: B018  (the global holds what the passes left)
        finding = StagesKeepTheirResult(measurement_budget.STAGES, 1e-4, LINK).run(session)
        assert finding.verdict == "fail"
        assert "`clip_rows`" in finding.cause

    def test_a_share_is_told_of_what_looks_heavy(self):
        shares = shares_of(
            measurement_budget.STAGES,
            LAB.arguments(LAB.sizes["cpu"], None, np.random.default_rng(0), 1)[0][0],
        )
        assert shares["destripe"] + shares["clip_rows"] > 0.8
        assert shares["match"] < 0.1
        assert jax.tree.all(jax.tree.map(lambda share: share > 0, shares))
