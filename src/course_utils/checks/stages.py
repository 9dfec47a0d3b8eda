"""A pipeline is mended where it matters: checks on which of its stages a submission replaces.

A submission's first entry point is `edits()`, which returns the replaced stages by name. A stage
takes the outputs of the stage before it, as a tuple. They know no lab.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from course_utils.checks._common import Stage, judged
from course_utils.checks.launches import LaunchesAtMost
from course_utils.checks.time import TimeWithin
from course_utils.findings import Finding, Link, Verdict
from course_utils.instruments.launches import launches_of
from course_utils.instruments.parity import structure_difference
from course_utils.instruments.timing import time_call, wait
from course_utils.quantities import number, plural, quantity

if TYPE_CHECKING:
    from course_utils.session import Session

Stages = Mapping[str, Callable[..., Any]]
"""The stages of a pipeline by name, in their order."""


def run_stages(stages: Stages, value: Any) -> Any:
    """Run the stages one after the other; each gets what the one before returned."""
    for stage in stages.values():
        value = stage(value)
    return value


def edited(stages: Stages, edits: Callable[[], Any]) -> dict[str, Callable[..., Any]]:
    """Return the stages that `edits()` replaces, by name, those that it only repeats left out.

    Raises:
        TypeError: it returns no dict of functions.
        ValueError: it names a stage that there is not.
    """
    given = edits()
    if not isinstance(given, Mapping):
        raise TypeError(
            "edits() must return a dict of functions by the name of their stage; "
            f"what came is a {type(given).__name__}"
        )
    for name, function in given.items():
        if name not in stages:
            raise ValueError(
                f"edits() names a stage {name!r} that there is not; they are: {', '.join(stages)}"
            )
        if not callable(function):
            raise TypeError(
                f"edits()[{name!r}] must be a function of what the stage gets; "
                f"what came is a {type(function).__name__}"
            )
    return {
        name: given[name] for name in stages if name in given and given[name] is not stages[name]
    }


def seconds_of(stages: Stages, value: Any, *, times: int = 5) -> dict[str, float]:
    """Return how many seconds each stage takes, warm and waited for: the least of several passes.

    Args:
        stages: the stages.
        value: what the first one gets.
        times: passes that are timed, after one that warms up.
    """
    wait(run_stages(stages, value))
    best = dict.fromkeys(stages, float("inf"))
    for _ in range(times):
        each = value
        for name, stage in stages.items():
            kept: list[Any] = []
            seconds = time_call(lambda stage=stage, each=each, kept=kept: _keep(stage(each), kept))
            best[name], each = min(best[name], seconds), kept[0]
    return best


def _keep(result: Any, kept: list[Any]) -> Any:
    kept.append(result)
    return result


def shares_of(stages: Stages, value: Any) -> dict[str, float]:
    """Return each stage's share of a pass, from 0 to 1."""
    seconds = seconds_of(stages, value)
    total = sum(seconds.values())
    return {name: each / total for name, each in seconds.items()}


def launches_by_stage(stages: Stages, value: Any) -> dict[str, int]:
    """Return how many programs each stage launches in a warm pass.

    Args:
        stages: the stages.
        value: what the first one gets.
    """
    steps = _steps(stages, value)
    return {
        name: launches_of(lambda stage=stage, given=steps[name][0]: stage(given)).count
        for name, stage in stages.items()
    }


def edits_of(session: "Session", stages: Stages) -> dict[str, Callable[..., Any]]:
    """Return the stages that the learner replaces; asked for once in a session.

    From then on the session uses that answer, so that what is timed is what was counted.
    """
    name = session.lab.entries[0].name

    def ask() -> dict[str, Callable[..., Any]]:
        edits = session.functions[name]
        found: list[dict[str, Callable[..., Any]]] = []
        session.run(lambda: found.append(edited(stages, edits)))
        session.functions = {**session.functions, name: lambda: dict(found[0])}
        return dict(found[0])

    return session.once(edits_of, ask)


@dataclass(frozen=True)
class StagesChangedAtMost:
    """Only so many stages are replaced.

    Attributes:
        stages: the pipeline as shipped.
        limit: how many may be replaced.
        link: where the book explains it.
    """

    stages: Stages
    limit: int
    link: Link
    name: str = "stages changed"
    stage: Stage = Stage.COUNTS

    def run(self, session: "Session") -> Finding:
        """Ask the submission which stages it replaces."""
        return self.judge(tuple(edits_of(session, self.stages)))

    def judge(self, changed: tuple[str, ...]) -> Finding:
        """Judge the names of the replaced stages."""
        finding = Finding(
            self.name,
            Verdict.PASS,
            len(changed),
            self.limit,
            "at most",
            f"of {len(self.stages)} stages",
            link=str(self.link),
        )
        listed = ", ".join(f"`{name}`" for name in changed)
        if not changed:
            return judged(
                finding,
                Verdict.FAIL,
                "`edits()` replaces no stage.",
                "Measure where the time of a pass goes, and return a dict that has the slowest "
                "stages mended, by name.",
            )
        if len(changed) <= self.limit:
            return judged(finding, Verdict.PASS, f"Replaced: {listed}.")
        return judged(
            finding,
            Verdict.FAIL,
            f"`edits()` replaces {plural(len(changed), 'stage')}: {listed}. There is room for "
            f"{number(self.limit)}.",
            "Measure what share of a pass each of them has, and keep the largest.",
        )


@dataclass(frozen=True)
class StagesKeepTheirResult:
    """Each replaced stage returns what the shipped one does for the same input, all by itself.

    Attributes:
        stages: the pipeline as shipped.
        tolerance: how far a value may be off, as a part of the largest of its array.
        link: where the book explains it.
    """

    stages: Stages
    tolerance: float
    link: Link
    name: str = "results of the changed stages"
    stage: Stage = Stage.VALUE

    def run(self, session: "Session") -> Finding:
        """Give shipped and replaced stages the same inputs, from two passes of the shipped ones.

        The replaced stages are called from the last to the first, and on the two passes in turn, so
        that none finds work that another has done for it.
        """
        edits = edits_of(session, self.stages)
        passes = [_steps(self.stages, session.fresh(1)[0][0]) for _ in range(2)]
        errors: dict[str, float | str] = {}
        for name in reversed(edits):
            errors[name] = _worst(
                [self._error(session, edits[name], *steps[name]) for steps in passes]
            )
        return self.judge({name: errors[name] for name in edits})

    @staticmethod
    def _error(
        session: "Session", function: Callable[..., Any], given: Any, expected: Any
    ) -> float | str:
        """Return the error of a replaced stage, or in words what differs in structure."""
        got = session.run(lambda: function(given))
        difference = session.run(lambda: structure_difference(expected, got))
        return difference.sentence() if difference else _error(expected, got)

    def judge(self, errors: Mapping[str, float | str]) -> Finding:
        """Judge the errors of the replaced stages.

        Args:
            errors: by name, the largest error as a part of the largest value, or in words what
                differs in structure.
        """
        numbers = [each for each in errors.values() if not isinstance(each, str)]
        finding = Finding(
            self.name,
            Verdict.PASS,
            max(numbers, default=0.0),
            self.tolerance,
            "at most",
            "of the largest value",
            link=str(self.link),
        )
        for name, error in errors.items():
            if isinstance(error, str):
                return judged(
                    finding,
                    Verdict.FAIL,
                    f"Stage `{name}` returned another kind of result than the shipped one: {error}",
                    "A stage must return what the next one expects: the same structure, shapes and "
                    "dtypes, as JAX arrays.",
                )
            if not error <= self.tolerance:
                return judged(
                    finding,
                    Verdict.FAIL,
                    f"Stage `{name}` is off by {quantity(error, '')} of the largest value that the "
                    "shipped one returns for the same input.",
                    "Each stage must do its own work, no more and no less: compare it with the "
                    "shipped one on one input.",
                    measured=error,
                )
        return judged(finding, Verdict.PASS, "The same as the shipped ones'.")


def _steps(stages: Stages, value: Any) -> dict[str, tuple[Any, Any]]:
    """Return what each stage of a pass gets and what it returns, by name."""
    steps: dict[str, tuple[Any, Any]] = {}
    for name, stage in stages.items():
        given, value = value, wait(stage(value))
        steps[name] = given, value
    return steps


def _worst(errors: list[float | str]) -> float | str:
    """Return the first error that is in words, else the largest; what is no number is larger."""
    numbers = [each for each in errors if not isinstance(each, str)]
    words = [each for each in errors if isinstance(each, str)]
    return words[0] if words else float(np.max(numbers))


def _error(expected: Any, got: Any) -> float:
    pairs = zip(jax.tree.leaves(expected), jax.tree.leaves(got), strict=True)
    return max(_relative(np.asarray(one, float), np.asarray(two, float)) for one, two in pairs)


def _relative(expected: np.ndarray, got: np.ndarray) -> float:
    return float(np.abs(got - expected).max() / max(np.abs(expected).max(), 1e-30))


@dataclass(frozen=True)
class StagesWorthIt:
    """Each replaced stage had a share of the time that is worth an edit.

    Attributes:
        stages: the pipeline as shipped.
        share: the least share of a pass, from 0 to 1, that is worth it.
        link: where the book explains it.
    """

    stages: Stages
    share: float
    link: Link
    name: str = "smallest share of a changed stage"
    stage: Stage = Stage.TIME

    def run(self, session: "Session") -> Finding:
        """Time each stage of the shipped pipeline."""
        edits = edits_of(session, self.stages)
        return self.judge(tuple(edits), shares_of(self.stages, session.fresh(1)[0][0]))

    def judge(self, changed: tuple[str, ...], shares: Mapping[str, float]) -> Finding:
        """Judge the smallest share among the replaced stages.

        Args:
            changed: their names.
            shares: by name, the share of a pass of every stage.
        """
        least = min(changed, key=lambda name: shares[name])
        finding = Finding(
            self.name,
            Verdict.PASS,
            100 * shares[least],
            100 * self.share,
            "at least",
            "% of a pass",
            link=str(self.link),
        )
        if shares[least] >= self.share:
            listed = " and ".join(f"`{name}` {_percent(shares[name])}" for name in changed)
            return judged(
                finding,
                Verdict.PASS,
                f"Of a pass as shipped they took: {listed}. The smallest is `{least}`'s.",
            )
        limit = 1 / (1 - shares[least])
        return judged(
            finding,
            Verdict.FAIL,
            f"`{least}` takes {_percent(shares[least])} of a pass: were it free, the whole would "
            f"be {limit:.3g} times as fast.",
            "Spend the edit on a stage with a large share, however heavy this one looks: time each "
            "stage on its own, warm, its result waited for.",
        )


@dataclass(frozen=True)
class PipelineLaunchesAtMost(LaunchesAtMost):
    """The pipeline reaches the device in few programs.

    Attributes:
        stages: the pipeline as shipped.
        edits: how many stages may be replaced.
    """

    stages: Stages = field(kw_only=True)
    edits: int = field(kw_only=True)

    def run(self, session: "Session") -> Finding:
        """Take the launches of the second, warm pass; where it fails, of each stage as well."""
        finding = super().run(session)
        if finding.verdict is not Verdict.FAIL:
            return finding
        edits = edits_of(session, self.stages)
        counts: dict[str, int] = {}
        value = session.fresh(1)[0][0]
        session.run(lambda: counts.update(launches_by_stage({**self.stages, **edits}, value)))
        return self.named(finding, counts, tuple(edits))

    def named(
        self, finding: Finding, counts: Mapping[str, int], changed: tuple[str, ...]
    ) -> Finding:
        """Return a finding whose hint names the stage that most of the launches come from.

        Args:
            finding: the failure.
            counts: by name, the launches of each stage of a pass of the submission.
            changed: the names of the replaced stages.
        """
        name = max(counts, key=lambda each: counts[each])
        made = f"makes {number(counts[name])} of {plural(sum(counts.values()), 'launch')}"
        left = self.edits - len(changed)
        if name in changed:
            told = f"`{name}`, as you replaced it, {made}."
        elif left > 0:
            told = f"`{name}` {made}, and you may replace {plural(left, 'more stage')}."
        else:
            told = f"`{name}` {made}, and no edit is left for it: spend one of yours on it instead."
        return replace(finding, hint=f"{told} {finding.hint}")


@dataclass(frozen=True)
class PipelineTimeWithin(TimeWithin):
    """The whole pipeline takes at most so many times the solution's time.

    Attributes:
        stages: the pipeline as shipped.
    """

    stages: Stages = field(kw_only=True)

    def run(self, session: "Session") -> Finding:
        """Time submission and solution together; where it fails, each stage as well."""
        edits = edits_of(session, self.stages)
        finding = super().run(session)
        if finding.verdict is not Verdict.FAIL:
            return finding
        shares: list[dict[str, float]] = []
        value = session.fresh(1)[0][0]
        session.run(lambda: shares.append(shares_of({**self.stages, **edits}, value)))
        return self.named(finding, shares[0])

    @staticmethod
    def named(finding: Finding, shares: Mapping[str, float]) -> Finding:
        """Return a finding whose hint names the stage that takes most of what is left.

        Args:
            finding: the failure.
            shares: by name, the share of each stage of a pass of the submission.
        """
        name = max(shares, key=lambda each: shares[each])
        return replace(
            finding,
            hint=f"`{name}` takes {_percent(shares[name])} of what a pass takes now: look there.",
        )


def _percent(share: float) -> str:
    return f"{100 * share:.2g}%"
