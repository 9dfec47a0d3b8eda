"""A gate tells right from wrong: checks on a learner's function that accepts or refuses candidates.

A lab makes candidates whose error is known, right ones and wrong ones; the learner's gate judges
each, and what it said is held against what is so: its confusion matrix. This knows nothing of what
a candidate computes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from course_utils.checks._common import Stage, judged
from course_utils.findings import Finding, Link, Verdict
from course_utils.guard import SubmissionError
from course_utils.instruments.parity import describe
from course_utils.quantities import plural, quantity

if TYPE_CHECKING:
    from course_utils.session import Session

_STREAM = 2**31
"""Cases come from a stream of random numbers that no pass uses."""


@dataclass(frozen=True)
class GateCase:
    """A candidate for the gate to judge.

    Attributes:
        name: what kind of candidate it is; several cases may be of one kind.
        right: whether the gate must accept it.
        error: its error on the task's own metric, measured by the lab.
        args: what the gate is called with.
        hint: what to tell who judges it wrongly.
    """

    name: str
    right: bool
    error: float
    args: tuple[Any, ...]
    hint: str


MakeCases = Callable[[Any, Any, np.random.Generator], Sequence[GateCase]]
"""`(size, setting, rng) -> cases`, new ones for each generator."""


@dataclass(frozen=True)
class GateOutcome:
    """What a gate said of one case."""

    case: GateCase
    accepted: bool


@dataclass(frozen=True)
class _Gate:
    """What both checks on a gate are made of.

    Attributes:
        entry: the entry point that is the gate. It is called with a case's arguments and returns
            one truth value: Python's, NumPy's or JAX's.
        cases: makes the candidates.
        tolerance: the error up to which a candidate is right, in `unit`.
        unit: the unit of errors.
        link: where the book explains it.
        margin: candidates count only where they are clear: right ones at least this factor within
            the tolerance, wrong ones at least this factor beyond it.
    """

    entry: str
    cases: MakeCases
    tolerance: float
    unit: str
    link: Link
    margin: float = 2.0
    stage: Stage = Stage.VALUE
    wants: ClassVar[bool]

    def run(self, session: "Session") -> Finding:
        """Let the learner's gate judge every case; both checks look at the same judgements."""
        key = ("gate", self.entry, self.cases)
        outcomes = session.once(key, lambda: self._ask(session))
        if isinstance(outcomes, SubmissionError):
            if session.once((*key, "told"), lambda: self.name) == self.name:
                raise outcomes
            return Finding(
                self.name,
                Verdict.NOT_CHECKED,
                cause=f"Not checked: your `{self.entry}` did not get through.",
            )
        return self.judge(outcomes)

    def _ask(self, session: "Session") -> tuple[GateOutcome, ...] | SubmissionError:
        rng = np.random.default_rng([session.seed, _STREAM])
        cases = self.cases(session.size, session.settings[1], rng)
        order = np.random.default_rng().permutation(len(cases))  # not the seed's to know
        gate = session.functions[self.entry]
        try:
            answers = session.run(
                lambda: [gate(*cases[number].args) for number in order], name=self.entry
            )
            return tuple(
                GateOutcome(cases[number], _truth(answer, self.entry))
                for number, answer in zip(order, answers, strict=True)
            )
        except SubmissionError as error:
            return error

    def _clear(self, case: GateCase) -> bool:
        if case.right:
            return case.error <= self.tolerance / self.margin
        return not case.error < self.tolerance * self.margin  # NaN is wrong too

    def judge(self, outcomes: Sequence[GateOutcome]) -> Finding:
        """Judge what the gate said of the right candidates, or of the wrong ones."""
        mine = [each for each in outcomes if each.case.right == self.wants]
        clear = [each for each in mine if self._clear(each.case)]
        missed = [each for each in clear if each.accepted != self.wants]
        kind, refused, seen = _WORDS[self.wants]
        finding = Finding(
            self.name,
            Verdict.PASS,
            len(missed),
            0,
            "at most",
            f"of {len(clear)} {kind} candidates {refused}",
            link=str(self.link),
        )
        if not clear:
            return judged(
                finding,
                Verdict.INCONCLUSIVE,
                f"On this device no {kind} candidate is clearly so: there is nothing to try the "
                "gate on.",
                "Grade again with another seed; if it stays, grade on another device.",
            )
        if not missed:
            return judged(finding, Verdict.PASS, f"All {len(clear)} {kind} candidates were {seen}.")
        worst: dict[str, list[GateCase]] = {}
        for each in missed:
            worst.setdefault(each.case.name, []).append(each.case)
        first = next(iter(_ordered(worst, outcomes)))
        parts = [f"{name} ({self._errors(worst[name])})" for name in _ordered(worst, outcomes)]
        cause = (
            f"Your `{self.entry}` {refused} {len(missed)} of "
            f"{plural(len(clear), f'{kind} candidate')}: {'; '.join(parts)}. "
            f"Right is what is off by {quantity(self.tolerance, self.unit)} at most."
        )
        hint = worst[first][0].hint
        if len(missed) == len(clear):
            what = "everything" if _alike(outcomes) else f"every {kind} candidate"
            hint = f"It {_DOES[self.wants]} {what}. {hint}"
        return judged(finding, Verdict.FAIL, cause, hint)

    def _errors(self, cases: Sequence[GateCase]) -> str:
        known = sorted(case.error for case in cases if _known(case))
        errors = list(dict.fromkeys(quantity(error, self.unit) for error in known))
        if not errors:
            return "with values that are not finite"
        if len(errors) > 2:
            return f"off by {errors[0]} to {errors[-1]}"
        return f"off by {' and '.join(errors)}"

    @property
    def name(self) -> str:
        """The check's name."""
        return f"{_WORDS[self.wants][0]} candidates {_WORDS[self.wants][2]}"


_WORDS = {True: ("right", "refused", "accepted"), False: ("wrong", "accepted", "refused")}
"""By what the gate should say: the candidates, the mistake about them, and what is right."""
_DOES = {True: "refuses", False: "accepts"}
"""By what the gate should say: what it does where it says the opposite."""


@dataclass(frozen=True)
class GateAccepts(_Gate):
    """The gate accepts every candidate that is right by the task's own metric."""

    wants: ClassVar[bool] = True


@dataclass(frozen=True)
class GateRejects(_Gate):
    """The gate refuses every candidate that is wrong by the task's own metric."""

    wants: ClassVar[bool] = False


def _alike(outcomes: Sequence[GateOutcome]) -> bool:
    return len({each.accepted for each in outcomes}) == 1


def _known(case: GateCase) -> bool:
    return bool(np.isfinite(case.error))


def _ordered(names: dict[str, Any], outcomes: Sequence[GateOutcome]) -> list[str]:
    """Return the names, the smallest error of their kind first: the one that is hardest to tell."""

    def smallest(name: str) -> float:
        errors = [o.case.error for o in outcomes if o.case.name == name and _known(o.case)]
        return min(errors, default=float("inf"))

    return sorted(names, key=smallest)


def _truth(answer: Any, entry: str) -> bool:
    """Return a gate's answer as a Python bool.

    Raises:
        SubmissionError: if it is not one truth value.
    """
    if isinstance(answer, bool):
        return answer
    if getattr(answer, "shape", None) == () and getattr(answer, "dtype", None) == np.bool_:
        return bool(answer)
    raise SubmissionError(
        "no bool",
        f"`{entry}` must return True or False; it returned {describe(answer)}.",
        "Return one truth value for all batches, crops and values together, e.g. "
        "`bool(jnp.max(errors) <= limit)`.",
    )
