"""Grades one file in a process of its own, and turns however that ended into an outcome.

Until the lab's functions are defined, whatever goes wrong means that the file could not be graded.
From then on a limit that the functions pass is a failure; a limit passed while the grader's own
code ran is inconclusive; and a process that ends without a valid report could not be graded.
"""

import importlib
import re
import secrets
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from course_utils.findings import Finding, Report, Verdict
from course_utils.quantities import seconds as in_words
from course_utils.runner.channel import Message
from course_utils.runner.outcome import Outcome
from course_utils.runner.source import CannotGradeError, Cell, Source, read
from course_utils.runner.supervise import (
    LAST_WORDS,
    MAX_PROCESSES,
    SO_FAR,
    START_SECONDS,
    Ended,
    Limits,
    supervise,
)

REGISTRY = "course_utils.labs"
"""Module that lists the labs, with `NAMES` and `get`."""

_CHILD = "course_utils.runner.child"
_STACK = "stack"
_RUNS = "runs"
_UNTOUCHED = "grader untouched"
"""The grader's own checks: every report has the first, and some have the second."""
_NO_REPORTS = "Take out of your code what writes reports."
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+)', re.MULTILINE)


def grade_file(
    path: Path,
    limits: Limits,
    *,
    lab: str | None = None,
    seed: int | None = None,
    hear: Callable[[Message], None] = lambda _: None,
    cancelled: threading.Event | None = None,
    registry: str = REGISTRY,
) -> Outcome:
    """Grade a notebook or a Python file.

    Args:
        path: the file.
        limits: what its process may use.
        lab: the lab to grade it as; by default the one that it names.
        seed: where the inputs come from; by default a new one.
        hear: called with each message of the process, as it comes.
        cancelled: ends the grade when set.
        registry: name of the module that lists the labs.

    Returns:
        What came of it. Nothing about the file raises.

    Raises:
        KeyboardInterrupt: when cancelled.
    """
    started = time.monotonic()
    seed = secrets.randbits(32) if seed is None else seed
    name = lab or ""
    try:
        source = read(path)
        name = _lab_name(source, lab, registry)
        job = {
            "cells": [asdict(cell) for cell in source.cells],
            "file": str(source.path),
            "folder": str(source.path.parent),
            "lab": name,
            "registry": registry,
            "script": source.script,
            "seed": seed,
        }
        try:
            ended = supervise(
                _CHILD, job, limits, stack_file=_STACK, hear=hear, cancelled=cancelled
            )
        except OSError as error:
            raise CannotGradeError(
                f"Its process could not be started: {error.strerror or error}.",
                "Free some memory or disk space, then grade again.",
            ) from None
        outcome = conclude(Asked(path, source, name, seed, limits), ended)
    except CannotGradeError as error:
        outcome = Outcome(path, name, problem=error.problem, todo=error.todo)
    return replace(outcome, seconds=time.monotonic() - started)


def _lab_name(source: Source, given: str | None, registry: str) -> str:
    labs = importlib.import_module(registry)
    name = given or source.lab
    if name in labs.NAMES:
        return str(name)
    listed = f"The labs are: {', '.join(labs.NAMES)}."
    if given is None and (source.lab is None or source.script):
        raise CannotGradeError(
            "It does not say which lab it belongs to"
            + (
                ": a Python file must be called like its lab."
                if source.script
                else ": its metadata has no `course.lab`."
            ),
            f"Name the lab: course grade {source.path.name} --lab NAME. {listed}",
        )
    try:
        labs.get(name)
    except LookupError as error:
        raise CannotGradeError(str(error).partition(" The labs are")[0], listed) from None
    raise AssertionError(f"{registry}.get found {name!r}, which is not in NAMES")


@dataclass(frozen=True)
class Asked:
    """One grade that was asked for: which file, as which lab, with which seed and limits."""

    path: Path
    source: Source
    lab: str
    seed: int
    limits: Limits


def conclude(asked: Asked, ended: Ended) -> Outcome:
    """Return what a run that is over means for the file."""
    outcome = Outcome(asked.path, asked.lab, output=ended.output)
    said = ended.last(*LAST_WORDS) or ended.last(SO_FAR)
    try:
        if said is None:
            report = _without_word(asked, ended)
        elif said["kind"] in {"report", SO_FAR}:
            report = _report(asked, ended, said)
        elif said["kind"] == "interrupted":
            report = _interrupted(asked, ended, said)
        elif said["kind"] == "problem":
            raise CannotGradeError(str(said.get("problem")), str(said.get("todo")))
        else:
            raise CannotGradeError(
                f"The grader itself failed: {said.get('error')}.",
                "If your code replaces functions of Python or JAX, take that out; otherwise report "
                "this. The whole traceback: course grade --output.",
            )
    except CannotGradeError as error:
        return replace(outcome, problem=error.problem, todo=error.todo)
    return replace(outcome, report=replace(report, subject=asked.path.name))


def _report(asked: Asked, ended: Ended, said: Message) -> Report:
    """Return the report that a process sent, if it can be the one that was asked for."""
    kinds = [each["kind"] for each in ended.messages]
    began = kinds.index("grading") if "grading" in kinds else len(kinds)
    if {"report", SO_FAR}.intersection(kinds[:began]):
        raise _not_the_graders("before the grade began")
    if max(kinds.count("grading"), kinds.count("report")) > 1:
        raise _not_the_graders("more than once")
    try:
        report = Report.from_dict(said.get("report"))
    except ValueError as error:
        raise CannotGradeError(
            f"Its process sent no valid report ({error}).",
            "If your code replaces functions of Python or JAX, take that out.",
        ) from None
    if (report.lab, report.seed) != (asked.lab, asked.seed):
        raise CannotGradeError(
            f"Its process sent the report of another grade: lab {report.lab!r}, seed "
            f"{report.seed}, instead of lab {asked.lab!r}, seed {asked.seed}.",
            _NO_REPORTS,
        )
    expected = Counter([_RUNS, *_checks(ended)])
    sent = Counter(finding.check for finding in report.findings)
    sent -= Counter([_UNTOUCHED])
    if said["kind"] == "report" and sent != expected:
        differing = sorted((sent - expected) + (expected - sent))
        raise _not_the_graders(f"with other checks than the lab has ({', '.join(differing)})")
    if said["kind"] == SO_FAR and (report.verdict is not Verdict.FAIL or sent.keys() - expected):
        raise _not_the_graders("about a function that hangs, which does not say so")
    return report


def _not_the_graders(how: str) -> CannotGradeError:
    return CannotGradeError(f"Its process sent a report {how}.", _NO_REPORTS)


def _checks(ended: Ended) -> tuple[str, ...]:
    """Return the lab's checks, as the process named them before it ran any of the file's code."""
    ready = ended.first("ready")
    return () if ready is None else tuple(map(str, ready.get("checks", ())))


def _interrupted(asked: Asked, ended: Ended, said: Message) -> Report:
    try:
        frames = [(str(file), int(line)) for file, line in said["frames"]]
    except (LookupError, TypeError, ValueError):
        frames = []
    place = _place(asked.source, reversed(frames), "")
    finding = Finding(
        _RUNS,
        Verdict.FAIL,
        cause=f"Your code raised KeyboardInterrupt while it was graded{place}.",
        hint="Take that out: nobody pressed a key.",
    )
    return _made_here(asked, finding, ended)


def _without_word(asked: Asked, ended: Ended) -> Report:
    """Return the report on a run that ended without its last word, or raise why there is none."""
    grading, cell = ended.last("grading"), ended.last("cell")
    if ended.why == "exited":
        how = _how(ended.status)
        if grading is not None:
            raise CannotGradeError(
                f"The process ended while your functions were graded: {how}.",
                f"Call your functions in {_fresh(asked.source)}: it dies there too.",
            )
        if cell is not None:
            raise CannotGradeError(
                f"The process ended while {cell.get('title')} ran: {how}.",
                f"Run that code in {_fresh(asked.source)}: it dies there too.",
            )
        raise CannotGradeError(
            f"The grader could not be started: {how}.",
            "See why with: course grade --output. Reinstalling course_utils may mend it.",
        )
    if ended.why == "start":
        raise CannotGradeError(
            f"Loading JAX and the grader took longer than {in_words(START_SECONDS)}.",
            "Try again when the machine is less busy.",
        )
    happened, hint = _limit(ended, asked.limits)
    running = str(cell.get("title")) if cell is not None else "the code"
    frames = ((match["file"], int(match["line"])) for match in _FRAME.finditer(ended.stack))
    place = _place(asked.source, frames, "" if grading is not None else running)
    if grading is not None:
        finding = _limit_finding(happened, hint, place, ended.stack)
        return _made_here(asked, finding, ended)
    running = running[0].upper() + running[1:]
    raise CannotGradeError(f"{running} {happened} and was stopped{place}.", hint)


def _fresh(source: Source) -> str:
    return "a fresh Python session" if source.script else "a fresh kernel"


def _limit(ended: Ended, limits: Limits) -> tuple[str, str]:
    """Return what happened, and what to do."""
    if ended.why == "memory":
        return (
            f"held more than {limits.memory / 1e9:.3g} GB of memory",
            "Look for arrays that grow with every step; or allow more with --memory-limit.",
        )
    if ended.why == "processes":
        return (
            f"started more than {MAX_PROCESSES} processes",
            "Remove what starts processes.",
        )
    return (
        f"was still running after {limits.seconds:.3g} s",
        "Look for a loop that never ends; or allow more time with --time-limit.",
    )


def _limit_finding(happened: str, hint: str, place: str, stack: str) -> Finding:
    theirs = bool(place) or not stack or ("guard.py" in stack and "timing.py" not in stack)
    if theirs:
        return Finding(
            _RUNS,
            Verdict.FAIL,
            cause=f"Your function {happened} and was stopped{place}.",
            hint=hint,
        )
    return Finding(
        _RUNS,
        Verdict.INCONCLUSIVE,
        cause=f"The grade {happened}, outside your function, and was stopped.",
        hint="Grade again when the machine is less busy, or raise that limit.",
    )


def _place(source: Source, frames: Iterable[tuple[str, int]], running: str) -> str:
    """Return ` in line 2 of code cell 3 (…)` for the learner's innermost line in a stack.

    Args:
        source: the learner's code.
        frames: file and line of each frame, the innermost first.
        running: title of the cell that the sentence names already; it is not named again.
    """
    cells: Mapping[str, Cell] = {cell.file: cell for cell in source.cells}
    for file, number in frames:
        cell = cells.get(file)
        if cell is not None:
            where = "" if cell.title == running else f" of {cell.title}"
            text = f" (`{cell.line(number)}`)" if cell.line(number) else ""
            return f" in line {number}{where}{text}"
    return ""


def _made_here(asked: Asked, finding: Finding, ended: Ended) -> Report:
    """Return a report with one finding of ours, and none of the lab's checks made."""
    rest = tuple(
        Finding(
            check,
            Verdict.NOT_CHECKED,
            cause="Not checked: the grade was stopped before its end.",
        )
        for check in _checks(ended)
    )
    ready = ended.first("ready") or {}
    return Report(
        asked.lab,
        (finding, *rest),
        seed=asked.seed,
        versions={str(name): str(it) for name, it in ready.get("versions", {}).items()},
        seconds=round(ended.seconds, 3),
    )


def _how(status: int) -> str:
    """Return how a process ended, in words."""
    if status >= 0:
        return f"it left with exit code {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    reason = {
        "SIGKILL": ", which the system also sends when memory runs out",
        "SIGSEGV": ": a crash in compiled code",
        "SIGABRT": ": a crash in compiled code",
    }.get(name, "")
    return f"{name} ended it{reason}"
