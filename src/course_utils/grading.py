"""Runs a lab's checks on a submission and makes the report."""

import contextlib
import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax

from course_utils import guard, integrity, jax_settings, labs, state
from course_utils.checks import Stage
from course_utils.findings import Comparison, Finding, Report, Verdict
from course_utils.instruments.timing import clock
from course_utils.lab import Check, Functions, Lab
from course_utils.quantities import plural
from course_utils.session import Session

_PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy", "jax-jit-course")

Progress = Callable[[str], None]


def grade(
    lab: str | Lab,
    /,
    *functions: Any,
    seed: int | None = None,
    progress: Progress | None = None,
    **named: Any,
) -> Report:
    """Grade a submission.

    Args:
        lab: the lab's name, or a lab that is not in the list.
        *functions: the learner's functions, in the order that the lab declares them; or pass them
            by name: `grade("parity_gate", predict=…, accept=…)`.
        seed: makes the same inputs again as an earlier report with that seed; by default new ones.
        progress: called with a line of text as each finding is known. By default the lines go to
            the notebook's output or to the terminal while the grade runs.
        **named: the learner's functions by name.

    Returns:
        The report. It shows itself as a card in a notebook and as text in a terminal.

    Raises:
        LookupError: there is no such lab; the message lists those there are.
        ValueError: `seed` is no whole number from 0 on.
        TypeError: an entry point is missing, or one is given that the lab does not ask for.
    """
    if seed is not None and (not isinstance(seed, int) or seed < 0):
        raise ValueError(
            f"seed: expected a whole number from 0 on, as a report shows; got {seed!r}"
        )
    unusual = jax_settings.unusual()
    with integrity.restored() as replaced, jax_settings.known():
        spec = lab if isinstance(lab, Lab) else labs.get(lab)
        submission = _entries(spec, functions, named)
        seed = int.from_bytes(os.urandom(4), "big") if seed is None else seed
        with _progress(progress) as tell:
            report = _grade(spec, submission, seed, tell, (*replaced, *unusual), stuck=_show_stuck)
    if not isinstance(lab, Lab):
        state.record(report)
    return report


def grade_lab(
    lab: Lab,
    functions: Functions,
    *,
    seed: int,
    progress: Progress,
    stuck: Callable[[Report], None],
) -> Report:
    """Grade functions against a lab, for a program that shows and keeps reports by itself.

    Args:
        lab: the lab itself.
        functions: the submission, by entry point; one for each that the lab declares.
        seed: where all fresh inputs come from.
        progress: called with a line of text as each finding is known.
        stuck: called from another thread, with the report so far, when the submission hangs where
            Python cannot interrupt it. The grade goes on hanging.

    Returns:
        The report.
    """
    unusual = jax_settings.unusual()
    with integrity.restored() as replaced, jax_settings.known():
        return _grade(lab, functions, seed, progress, (*replaced, *unusual), stuck=stuck)


def _entries(lab: Lab, functions: tuple[Any, ...], named: dict[str, Any]) -> Functions:
    """Return the submission by entry point."""
    names = [entry.name for entry in lab.entries]
    wanted = f"grade({lab.name!r}, {', '.join(f'{name}={name}' for name in names)})"
    if len(functions) > len(names):
        raise TypeError(
            f"the lab {lab.name!r} asks for {len(names)} function(s), got {len(functions)}; "
            f"call it as {wanted}"
        )
    given = dict(zip(names, functions, strict=False))
    twice = sorted(given.keys() & named.keys())
    unknown = sorted(named.keys() - set(names))
    missing = [name for name in names if name not in given and name not in named]
    for problem, which in (("twice", twice), ("unknown", unknown), ("missing", missing)):
        if which:
            raise TypeError(
                f"the lab {lab.name!r} asks for {', '.join(names)}; "
                f"{problem}: {', '.join(which)}. Call it as {wanted}"
            )
    return {**given, **named}


def _grade(
    lab: Lab,
    functions: Functions,
    seed: int,
    tell: Progress,
    replaced: tuple[str, ...],
    *,
    stuck: Callable[[Report], None],
) -> Report:
    started = clock()
    findings: list[Finding] = []

    def add(finding: Finding) -> None:
        findings.append(finding)
        tell(f"{lab.name}: {finding.check}: {finding.verdict}")

    def report(extra: tuple[Finding, ...] = (), comparisons: tuple[Comparison, ...] = ()) -> Report:
        return Report(
            lab.name,
            (*findings, *extra),
            comparisons,
            seed,
            versions(),
            device(),
            round(clock() - started, 3),
        )

    tell(f"{lab.name}: seed {seed}, {device()}")
    if replaced:
        add(_put_back(replaced))
    checks = sorted(lab.checks, key=lambda check: check.stage)
    problems = [entry.problem(functions[entry.name]) for entry in lab.entries]
    problem = next(filter(None, problems), None)
    if problem is not None:
        called = all(callable(functions[entry.name]) for entry in lab.entries)
        hint = (
            "Give it exactly these parameters, in this order, as in the starter."
            if called
            else "Pass the function itself, as the starter defines it."
        )
        add(Finding("runs", Verdict.FAIL, cause=problem, hint=hint))
        return report(
            tuple(_skipped(check, "your function could not be called") for check in checks)
        )

    session = Session(lab, functions, seed, stuck=lambda: stuck(report((_stuck(lab),))))
    try:
        session.passes  # noqa: B018
    except guard.SubmissionError as error:
        add(_failure("runs", error))
        return report(
            tuple(_skipped(check, "your function did not get through") for check in checks)
        )
    add(Finding("runs", Verdict.PASS, cause="Ran twice and returned the right kind of result."))

    failed: Stage | None = None
    for check in checks:
        if Stage(check.stage).is_costly and failed is not None:
            add(_skipped(check, "an earlier check failed: fix that first"))
            continue
        try:
            add(check.run(session))
        except guard.SubmissionError as error:
            add(_failure(check.name, error))
        if findings[-1].verdict is Verdict.FAIL:
            failed = Stage(check.stage)
    return report(comparisons=_comparisons(session, timed=failed is None))


def _failure(check: str, error: guard.SubmissionError) -> Finding:
    return Finding(check, Verdict.FAIL, cause=error.cause, hint=error.hint, detail=error.detail)


def _skipped(check: Check, why: str) -> Finding:
    return Finding(check.name, Verdict.NOT_CHECKED, cause=f"Not checked: {why}.")


def _put_back(replaced: tuple[str, ...]) -> Finding:
    shown = ", ".join(f"`{name}`" for name in replaced[:5])
    more = f" and {len(replaced) - 5} more" if len(replaced) > 5 else ""
    return Finding(
        "grader untouched",
        Verdict.PASS,
        cause=f"Changed in this process before the grade: {shown}{more}. The grade used the "
        "originals and JAX's usual settings; what you changed is back in place now.",
    )


def _stuck(lab: Lab) -> Finding:
    return Finding(
        "runs",
        Verdict.FAIL,
        cause="Your function hangs inside compiled code, where it cannot be interrupted, or it "
        f"catches the interruption; it ran longer than {lab.time_limit:.0f} s.",
        hint="Look for a `while_loop` whose condition never becomes false.",
    )


def _comparisons(session: Session, *, timed: bool) -> tuple[Comparison, ...]:
    """Return what the card's figure shows: launches, and times where they were measured."""
    shown: list[Comparison] = []
    if session.lab.shows_launches:
        baselines = session.baselines
        launches = {
            "broken": baselines["broken"],
            "yours": session.again.launches.count / session.items,
            "solution": baselines["solution"],
        }
        shown.append(Comparison(f"launches per {session.lab.item}", "", launches))
    if timed and "timing" in vars(session):
        times = {arm: session.timing.best(arm) for arm in ("broken", "yours", "solution")}
        items = plural(session.size.timed_items, session.lab.item)
        shown.append(Comparison(f"time of a call of {items}", "s", times))
    return tuple(shown)


def versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def device() -> str:
    """Return the kind and name of the device that JAX computes on."""
    first = jax.devices()[0]
    return (
        first.platform
        if first.device_kind == first.platform
        else (f"{first.platform} ({first.device_kind})")
    )


def _show_stuck(report: Report) -> None:
    """Show the report of a grade that hangs now, from whatever thread, and how to get out."""
    *before, last = report.findings
    last = replace(last, cause=f"Restart the kernel (menu Kernel, Restart). {last.cause}")
    report = replace(report, findings=(*before, last))
    if guard.is_interactive():
        from IPython.display import display  # noqa: PLC0415

        display(report)
    else:
        print(report, file=sys.stderr, flush=True)


@contextlib.contextmanager
def _progress(given: Progress | None) -> Any:
    """Yield where progress lines go: what was given, the notebook, the terminal, or nowhere."""
    if given is not None:
        yield given
    elif guard.is_interactive():
        from IPython.display import DisplayHandle  # noqa: PLC0415

        handle = DisplayHandle()
        handle.display({"text/plain": "grading …"}, raw=True)
        yield lambda line: handle.update({"text/plain": line}, raw=True)
        handle.update({"text/plain": ""}, raw=True)
    elif sys.stderr.isatty():
        yield lambda line: print(line, file=sys.stderr, flush=True)
    else:
        yield lambda line: None


integrity.remember_everything()  # now that all of the grader is loaded
