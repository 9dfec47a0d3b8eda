"""One grade in progress: runs the submission and the baselines, and remembers what was measured.

Checks ask a session for measurements; each is made once, when it is first asked for. The session
knows how to run a lab's functions; it does not know what is required of them.
"""

import functools
import os
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import numpy as np

from course_utils import guard, integrity
from course_utils.checks import CLEAR, Errors, MetricWithin, TimedCheck
from course_utils.instruments._caches import forget_compiled
from course_utils.instruments._frames import Owner
from course_utils.instruments._private import can_watch_launches
from course_utils.instruments.compiles import Compiles, count_compiles
from course_utils.instruments.donation import Donations, HandedOn, donations_of
from course_utils.instruments.jit_calls import record_jit_calls
from course_utils.instruments.launches import Launches, count_launches, launches_of
from course_utils.instruments.parity import StructureDifference, structure_difference
from course_utils.instruments.retrace import Recompile
from course_utils.instruments.syncs import Syncs, count_syncs
from course_utils.instruments.timing import Timing, choose, interleave, wait
from course_utils.lab import Functions, Lab, Size

if TYPE_CHECKING:
    from course_utils.instruments.jaxprs import Intermediate
    from course_utils.instruments.peak import Peak
    from course_utils.instruments.xray import Xray

_TIMING_SECONDS = 8.0
"""No further timing round starts after this."""
_XRAY_SECONDS = 400.0
"""Longer than the X-ray's own limit, which says more."""
_TIMED_RESULTS = 40
"""At most so many results of timed calls are checked."""


_baselines: dict[tuple[int, Size], dict[str, float]] = {}


@dataclass(frozen=True)
class Pass:
    """One call of the submission on fresh inputs, and what was counted meanwhile."""

    args: tuple[Any, ...]
    result: Any
    compiles: Compiles
    launches: Launches
    syncs: Syncs


class Session:
    """A submission being graded.

    Args:
        lab: the lab.
        functions: the submission, by entry point.
        seed: where all fresh inputs come from.
        stuck: tells the user that the submission hangs where it cannot be interrupted.
    """

    def __init__(
        self, lab: Lab, functions: Functions, seed: int, stuck: Callable[[], None] | None = None
    ) -> None:
        self.lab = lab
        self.functions = functions
        self.seed = seed
        self.owner = Owner(functions.values())
        self._stuck = stuck
        self._streams = 0
        self._xrays: dict[tuple[str, str], Xray] = {}
        self._once: dict[Hashable, Any] = {}
        self.recompiles: tuple[tuple[Recompile, ...], tuple[Recompile, ...]] = ((), ())
        """What the learner's functions compiled more than once, on the first and second pass.

        Where nothing of theirs compiled on the second, eager operations that did stand for them.
        """

    @functools.cached_property
    def size(self) -> Size:
        """The lab's size on this kind of device."""
        return self.lab.sizes.get(jax.default_backend(), self.lab.sizes["cpu"])

    @property
    def items(self) -> int:
        """Items of one pass."""
        return self.size.items

    @functools.cached_property
    def settings(self) -> tuple[Any, Any]:
        """What is made beforehand: models, fixed data. One for the first pass, one for the rest.

        The second differs from the first in its values alone, so that a submission that keeps the
        first model for good is found out.
        """
        config = self.size.config
        return self.lab.prepare(config, self.seed), self.lab.prepare(config, self.seed + 1)

    def fresh(self, items: int) -> tuple[Any, ...]:
        """Return the arguments of one call after the first pass, with values not seen before."""
        self._streams += 1
        return self._arguments(self.settings[1], self._streams, items)

    def _arguments(
        self, setting: Any, stream: int, items: int, size: Size | None = None
    ) -> tuple[Any, ...]:
        rng = np.random.default_rng([self.seed, stream])
        return wait(self.lab.arguments(size or self.size, setting, rng, items))

    def _own(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return arguments that the callee may donate, where the lab allows it."""
        if not self.lab.consumes:
            return args
        copied = jax.tree.map(lambda leaf: leaf.copy() if eqx.is_array(leaf) else leaf, args)
        return wait(copied)

    @property
    def _argument_names(self) -> tuple[str, ...]:
        return self.lab.argument_names or self.lab.entries[0].parameters

    def run(self, call: Callable[[], Any], seconds: float | None = None, *, name: str = "") -> Any:
        """Run the learner's code under guard; see `guard.run`.

        Args:
            call: calls the learner's code.
            seconds: its time limit; by default the lab's.
            name: the entry point that it calls; by default any of the lab's.

        Raises:
            guard.SubmissionError: whatever the code did instead of returning, or that it changed
                the grader's tools meanwhile.
        """
        process = os.getpid()
        try:
            return guard.run(
                call,
                names=[name] if name else [entry.name for entry in self.lab.entries],
                owner=self.owner,
                seconds=seconds or self.lab.time_limit,
                stuck=self._stuck,
            )
        finally:
            if os.getpid() != process:  # a copy that the code forked must not grade on
                os._exit(1)
            self._refuse_changes()

    def _refuse_changes(self) -> None:
        changed = integrity.put_back()
        if changed:
            shown = ", ".join(f"`{name}`" for name in changed[:5])
            raise guard.SubmissionError(
                "changed the grader",
                f"While it ran, your function replaced what the grader works with: {shown}.",
                "Leave JAX, NumPy and the course's own code as they are inside your function.",
            )

    @functools.cached_property
    def passes(self) -> tuple[Pass, Pass]:
        """A cold pass and a warm one, on new values of the same shapes; structures are right.

        Raises:
            guard.SubmissionError: if the submission does not return a result of that structure.
        """
        forget_compiled(self.owner)
        with record_jit_calls(self.owner) as calls:
            first = self._pass(0)
            seen = len(calls().calls)
            again = self._pass(1)
        recompiles = calls().recompiles()
        later = tuple(each for each in recompiles if each.call >= seen)
        if again.compiles.count and not later:
            explained = calls().recompiles(library=True)
            later = tuple(each for each in explained if each.call >= seen)
        self.recompiles = tuple(each for each in recompiles if each.call < seen), later
        self._check_structure(first.args, first.result)
        self._check_structure(again.args, again.result)
        return first, again

    def _check_structure(self, args: tuple[Any, ...], result: Any) -> None:
        expected = self._shape_of_result(args)
        finite = not self.lab.may_be_non_finite
        difference = self.run(lambda: structure_difference(expected, result, finite=finite))
        if difference is not None:
            raise guard.SubmissionError(
                "wrong structure",
                f"`{self.lab.entries[0].name}` returned the wrong kind of result: "
                + difference.sentence().removeprefix("result: "),
                _how_to_return(difference),
            )

    def _shape_of_result(self, args: tuple[Any, ...]) -> Any:
        """Return shapes and dtypes of the right result, without compiling where possible."""
        if self.lab.drive is not None:
            return self.solve(args)
        return eqx.filter_eval_shape(lambda *args: self.lab.call(self.lab.solution, args), *args)

    @property
    def first(self) -> Pass:
        """The first, cold pass."""
        return self.passes[0]

    @property
    def again(self) -> Pass:
        """The second, warm pass."""
        return self.passes[1]

    def _pass(self, number: int) -> Pass:
        self._streams = number + 1
        args = self._arguments(self.settings[number], self._streams, self.items)
        own = self._own(args)
        counted: list[tuple[Compiles, Launches, Syncs]] = []

        def call() -> Any:
            with (
                count_compiles() as compiles,
                count_syncs(self.owner, ready=jax.tree.leaves(own)) as syncs,
                count_launches(self.owner) as launches,
            ):
                result = self.lab.call(self.functions, own)
            counted.append((compiles(), launches(), syncs()))
            return result  # waited for outside the counted part: that wait is not the learner's

        result = self._run_on(own, call)
        return Pass(args, result, *counted[-1])

    def _run_on(self, own: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        """Run a call of the submission, which leaves its inputs alone unless the lab consumes them.

        Raises:
            guard.SubmissionError: if it fails, or changes them.
        """
        before = guard.snapshot(own)
        result = self.run(call)
        if not self.lab.consumes:
            guard.check_inputs(before, own, self._argument_names)
        return result

    def solve(self, args: tuple[Any, ...]) -> Any:
        """Return the solution's result."""
        return wait(self.lab.call(self.lab.solution, self._own(args)))

    def once(self, key: Hashable, measure: Callable[[], Any]) -> Any:
        """Return what `measure` returned when it was first asked for under this key."""
        if key not in self._once:
            self._once[key] = measure()
        return self._once[key]

    @functools.cached_property
    def broken_results(self) -> tuple[Any, Any]:
        """What the broken code returns for the inputs of both passes."""
        return tuple(
            wait(self.lab.call(self.lab.broken, self._own(each.args))) for each in self.passes
        )

    @functools.cached_property
    def _expected(self) -> tuple[Any, Any]:
        return self.lab.oracle(*self.first.args), self.lab.oracle(*self.again.args)

    @functools.cached_property
    def _expected_of_first_setting(self) -> Any:
        """The right answer to the second pass's inputs, had the first pass's setting stayed."""
        return self.lab.oracle(*self._arguments(self.settings[0], 2, self.items))

    @functools.cached_property
    def _solved(self) -> tuple[Any, Any]:
        return self.solve(self.first.args), self.solve(self.again.args)

    def errors(self, metric: Callable[[Any, Any], float]) -> Errors:
        """Return one metric's errors over both passes."""
        first, again = self._expected
        alike = [jax.tree.map(lambda leaf, v=v: np.full_like(leaf, v), again) for v in (0.0, 1.0)]
        return Errors(
            submission=max(
                metric(e, p.result) for e, p in zip(self._expected, self.passes, strict=True)
            ),
            solution=max(metric(e, s) for e, s in zip(self._expected, self._solved, strict=True)),
            stale=metric(first, self.again.result),
            stale_setting=metric(self._expected_of_first_setting, self.again.result),
            trivial=min(metric(again, each) for each in (first, *alike)),
        )

    def errors_at(self, size: Size, metric: Callable[[Any, Any], float]) -> tuple[float, float]:
        """Return one metric's errors on inputs of another size: the submission's, the solution's.

        Nothing is counted or timed.

        Args:
            size: how large the inputs are; the setting stays that of the second pass.
            metric: `(expected, got) -> error`.

        Raises:
            guard.SubmissionError: if the submission fails at this size, changes its inputs, or
                returns another structure.
        """
        self._streams += 1
        args = self._arguments(self.settings[1], self._streams, size.items, size)
        own = self._own(args)
        result = self._run_on(own, lambda: self.lab.call(self.functions, own))
        self._check_structure(args, result)
        expected = self.lab.oracle(*args)
        return metric(expected, result), metric(expected, self.solve(args))

    def worst(self, metric: Callable[[Any, Any], float]) -> tuple[tuple[Any, ...], Any, Any]:
        """Return the pass where a metric's error is largest: arguments, right result, result."""
        triples = [(p.args, e, p.result) for e, p in zip(self._expected, self.passes, strict=True)]
        return max(triples, key=lambda each: metric(*each[1:]))

    @property
    def baselines(self) -> dict[str, float]:
        """Launches per item of the broken code and of the solution, by name.

        Counts do not depend on the inputs, so they are taken once in a process.
        """
        key = (id(self.lab), self.size)
        if key not in _baselines:
            _baselines[key] = {
                "broken": self._warm_launches(self.lab.broken, self.items),
                "solution": self._warm_launches(self.lab.solution, self.items),
            }
        return _baselines[key]

    def _warm_launches(self, functions: Functions, items: int) -> float:
        wait(self.lab.call(functions, self._own(self.fresh(items))))
        args = self._own(self.fresh(items))
        return launches_of(lambda: wait(self.lab.call(functions, args))).count / items

    @functools.cached_property
    def donations(self) -> Donations:
        """What the launches of a warm pass wrote over of what the submission was given.

        Arrays that it made itself do not count: giving those away saves nothing. Nor do those whose
        memory does not hold anything that is returned: what replaces them stands beside them.

        Raises:
            LookupError: where launches cannot be watched.
            guard.SubmissionError: if the submission fails when it is run for it.
        """
        args = self._own(self.fresh(self.items))
        watched: list[Donations | LookupError] = []
        handed_on = HandedOn()
        functions = {name: handed_on.watching(each) for name, each in self.functions.items()}

        def measure() -> None:
            try:
                watched.append(
                    donations_of(lambda: self.lab.call(functions, args), handed_on.was_given)
                )
            except LookupError as error:
                if can_watch_launches():  # raised by the submission
                    raise
                watched.append(error)

        self.run(measure)
        if isinstance(watched[0], LookupError):
            raise watched[0]
        found = watched[0]
        return replace(found, bytes=min(found.bytes, handed_on.bytes))

    @functools.cached_property
    def peak(self) -> "Peak":
        """The launch of a warm pass at which most memory is held.

        Raises:
            xray.XrayError: where the programs of a pass cannot be seen.
            guard.SubmissionError: if the submission fails when it is run for it.
        """
        from course_utils.instruments.peak import peak_of  # noqa: PLC0415  (only where it is used)

        args = self.fresh(self.items)
        return self._past_guard(lambda: peak_of(self._pass_on, *args))

    @functools.cached_property
    def largest_value(self) -> "Intermediate | None":
        """The largest value that a pass computes on the way; None where it cannot be traced."""
        from course_utils.instruments.jaxprs import jaxpr_of  # noqa: PLC0415

        args = self.fresh(self.items)
        try:
            return self.run(lambda: jaxpr_of(self._pass_on, *args)).largest
        except guard.SubmissionError:
            return None

    def _pass_on(self, *args: Any) -> Any:
        return self.lab.call(self.functions, args)

    def _past_guard(self, measure: Callable[[], Any], seconds: float | None = None) -> Any:
        """Run the learner's code under guard, but let an `XrayError` through as it is."""
        from course_utils.instruments.xray import XrayError  # noqa: PLC0415  (where it is used)

        def measured() -> Any:
            try:
                return measure()
            except XrayError as error:
                return error

        found = self.run(measured, seconds)
        if isinstance(found, XrayError):
            raise found
        return found

    def xray_dispatches(self, gpu: str) -> "Xray":
        """Return what a card would launch for one timed call, dispatch by dispatch.

        Raises:
            xray.XrayError: where no X-ray can be made.
            guard.SubmissionError: if the submission fails when it is run for it.
        """
        from course_utils.instruments import xray  # noqa: PLC0415  (only where it is used)

        if ("dispatches", gpu) not in self._xrays:
            args = self._own(self.fresh(self.size.timed_items))
            self._xrays["dispatches", gpu] = self._past_guard(
                lambda: xray.xray_eager(self._pass_on, *args, gpu=gpu), _XRAY_SECONDS
            )
        return self._xrays["dispatches", gpu]

    def xray_whole(self, gpu: str) -> "Xray":
        """Return the submission compiled for a card as one program, at the lab's full size.

        Only shapes are used: nothing of that size is allocated here.

        Raises:
            xray.XrayError: where no X-ray can be made.
            guard.SubmissionError: if the submission fails when it is traced for it.
        """
        from course_utils.instruments import xray  # noqa: PLC0415  (only where it is used)

        if ("whole", gpu) not in self._xrays:
            if self.lab.full_size is None:
                raise xray.XrayError(f"the lab {self.lab.name!r} states no full size to X-ray")
            shapes = self.lab.full_size()
            self._xrays["whole", gpu] = self._past_guard(
                lambda: xray.xray(self._pass_on, *shapes, gpu=gpu), _XRAY_SECONDS
            )
        return self._xrays["whole", gpu]

    @functools.cached_property
    def timing(self) -> Timing:
        """Broken, submission and solution, timed together on few items: the broken code is slow.

        Raises:
            guard.SubmissionError: if the submission fails while it is timed, compiles again,
                changes its inputs, or returns other results than when it is checked.
        """
        arms = {"broken": self.lab.broken, "yours": self.functions, "solution": self.lab.solution}
        return self._time(arms, self.size.timed_items, whole=False)

    @functools.cached_property
    def whole_timing(self) -> Timing:
        """Submission and solution, timed together on whole passes.

        Raises:
            guard.SubmissionError: as for `timing`.
        """
        arms = {"yours": self.functions, "solution": self.lab.solution}
        return self._time(arms, self.items, whole=True)

    def _time(self, arms: dict[str, Functions], items: int, *, whole: bool) -> Timing:
        timed = {
            name: lambda *args, functions=functions: self.lab.call(functions, args)
            for name, functions in arms.items()
        }
        checks = [
            check
            for check in self.lab.checks
            if isinstance(check, TimedCheck) and check.whole == whole
        ]
        kept = _Chosen(_TIMED_RESULTS)
        compiled: list[str] = []
        watched = self.fresh(items)
        before = guard.snapshot(watched)

        def measure() -> Timing:
            for arm in timed.values():
                for args in (watched, self.fresh(items)):
                    wait(arm(*self._own(args)))
            start = 0  # programs compiled before the sample: only what an arm compiles is its own

            def own(args: tuple[Any, ...]) -> tuple[Any, ...]:
                nonlocal start
                mine = self._own(args)
                start = compiles().count
                return mine

            def keep(name: str, args: tuple[Any, ...], result: Any) -> None:
                if name == "yours":
                    kept.offer((args, result))
                    compiled.extend(compiles().names[start:])

            with count_compiles() as compiles:
                return interleave(
                    timed,
                    lambda: self.fresh(items),
                    settled=lambda timing: all(check.clear(timing) for check in checks),
                    budget=_TIMING_SECONDS,
                    keep=keep,
                    own=own,
                )

        timing = self.run(measure, seconds=self.lab.time_limit + 3 * _TIMING_SECONDS)
        if not self.lab.consumes:
            guard.check_inputs(before, watched, self._argument_names)
        if compiled:
            names = ", ".join(f"`{name}`" for name in dict.fromkeys(compiled))
            raise guard.SubmissionError(
                "compiled while timed",
                f"While it was timed, it compiled {len(compiled)} programs again: {names}.",
                "Something besides the arrays' values still differs between calls.",
            )
        self._check_timed_results(kept.items)
        return timing

    def _check_timed_results(self, kept: Sequence[tuple[tuple[Any, ...], Any]]) -> None:
        metrics = [check for check in self.lab.checks if isinstance(check, MetricWithin)]
        for args, result in kept:
            expected = self.solve(args)
            difference = structure_difference(expected, result)
            plain = jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float64), expected)
            wrong = difference is not None or any(
                check.metric(plain, result) > CLEAR * check.allowed(self.errors(check.metric))
                for check in metrics
            )
            if wrong:
                raise guard.SubmissionError(
                    "wrong while timed",
                    "While the clock ran, your function returned another result than when it was "
                    "checked.",
                    "Compute every call from its own arguments.",
                )


class _Chosen:
    """So many of the items offered, each of them as likely as any other (Vitter's algorithm R).

    A long round makes hundreds of results: all of them would fill the memory.
    """

    def __init__(self, most: int) -> None:
        self.items: list[Any] = []
        self._most = most
        self._offered = 0

    def offer(self, item: Any) -> None:
        self._offered += 1
        if len(self.items) < self._most:
            self.items.append(item)
        elif (place := choose(self._offered)) < self._most:
            self.items[place] = item


def _how_to_return(difference: StructureDifference) -> str:
    """Return what to do about a result that is not of the right kind."""
    if difference.got == "None":
        return "Nothing was returned there: is a `return` missing?"
    if "NumPy array" in difference.got:
        return "Return JAX arrays: wrap it in `jnp.asarray(…)`."
    if difference.got.startswith("list of") and "[" in difference.expected:
        return "Return one array: stack the items with `jnp.stack(…)`."
    return "Return what the starter returns: the same structure, shapes and dtypes, as JAX arrays."
