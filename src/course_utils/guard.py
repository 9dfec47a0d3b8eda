"""Runs the learner's code so that whatever it does ends in a sentence, never in a broken grade.

It catches what the code raises and cuts the traceback to the learner's own lines, interrupts it
after a time limit where Python can be interrupted, and tells whether it changed its inputs. It does
not know what the code is for.
"""

import contextlib
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import jax
import numpy as np

from course_utils.instruments._frames import Owner
from course_utils.instruments.timing import clock, wait


class SubmissionError(Exception):
    """The learner's code could not be run to its end.

    Attributes:
        kind: `"raised"`, `"time limit"` or `"input changed"`.
        cause: what happened, in one sentence.
        hint: what to do, in one sentence.
        detail: the traceback, cut to the learner's own lines.
    """

    def __init__(self, kind: str, cause: str, hint: str, detail: tuple[str, ...] = ()) -> None:
        super().__init__(cause)
        self.kind, self.cause, self.hint, self.detail = kind, cause, hint, detail


class _TimeIsUp(BaseException):
    """Raised inside the learner's code; not an `Exception`, so that a broad except lets it by."""


@contextlib.contextmanager
def time_limit(seconds: float, *, stuck: Callable[[], None] | None = None) -> Iterator[None]:
    """Interrupt the block after `seconds`.

    Python interrupts Python code on the main thread. Code that is compiled cannot be interrupted;
    then `stuck` is called, from another thread, a little after the limit. Off the main thread, or
    without `signal.setitimer` (Windows), nothing is interrupted and only `stuck` is called.

    Args:
        seconds: the limit.
        stuck: tells the user that the code hangs where it cannot be interrupted.

    Raises:
        _TimeIsUp: in the block, when the limit is over.
    """
    watchdog = threading.Timer(seconds + 2.0, stuck or (lambda: None))
    watchdog.daemon = True
    watchdog.start()
    can_interrupt = (
        hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    )
    if not can_interrupt:
        try:
            yield
        finally:
            watchdog.cancel()
        return

    def ring(_signal: int, _frame: Any) -> None:
        raise _TimeIsUp

    before = signal.signal(signal.SIGALRM, ring)
    # Rings again every second: code that catches everything must not go on for ever.
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    started = clock()
    try:
        yield
        if clock() - started > seconds:
            raise _TimeIsUp
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        watchdog.cancel()


def own_lines(error: BaseException, owner: Owner) -> tuple[str, ...]:
    """Return the traceback cut to the learner's lines, then the error itself."""
    lines = []
    for frame, number in traceback.walk_tb(error.__traceback__):
        if owner.owns(frame):
            line = owner.line_of(frame, number)
            lines.append(f"in {frame.f_code.co_name}, {line}")
    lines.append(_one_line(error))
    return tuple(lines)


def _one_line(error: BaseException) -> str:
    try:
        text = str(error).strip().split("\n", 1)[0]
    except Exception:  # an error of the learner's whose own text raises
        text = "its message could not be made"
    text = text if len(text) <= 300 else text[:299] + "…"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def run(
    call: Callable[[], Any],
    *,
    names: Sequence[str],
    owner: Owner,
    seconds: float,
    stuck: Callable[[], None] | None = None,
) -> Any:
    """Run the learner's code and wait for its result.

    Args:
        call: calls the learner's function.
        names: the entry points that it may call. Messages name the one that the learner's code was
            in, by the name it was written with; else the first.
        owner: tells the learner's lines from others.
        seconds: time limit for the call and for its result to be there.
        stuck: called when the time is over and the code cannot be interrupted.

    Returns:
        The result, waited for.

    Raises:
        SubmissionError: whatever the code did instead of returning.
        KeyboardInterrupt: when the user interrupted the grade.
    """
    try:
        with time_limit(seconds, stuck=stuck):
            return wait(call())
    except _TimeIsUp as error:
        raise SubmissionError(
            "time limit",
            f"`{_entered(error, owner, names)}` was still running after {seconds:.0f} s and was "
            "stopped.",
            "Try it on one item by hand first; a loop that never ends, or code that compiles at "
            "every step, does this.",
            own_lines(error, owner)[:-1][-3:],
        ) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too must not end the notebook
        lines = own_lines(error, owner)
        where = f" at {lines[-2].split(', ', 1)[1]}" if len(lines) > 1 else ""
        raise SubmissionError(
            "raised",
            f"`{_entered(error, owner, names)}` raised {_one_line(error).rstrip('.')}{where}.",
            _hint_about(error),
            lines,
        ) from None


def _entered(error: BaseException, owner: Owner, names: Sequence[str]) -> str:
    """Return which of the learner's entry points an error came out of."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__) if owner.owns(frame))
    return next((f.f_code.co_name for f in frames if f.f_code.co_name in names), names[0])


RAISED_HINT = "Run your function on its own until it works, then grade again."
_TRACED_HINT = (
    "Inside `jit` an array has no value that Python could look at. Plain `jax.jit` also traces a "
    "model's flags and functions: use `eqx.filter_jit`. A Python `if` on an array becomes "
    "`jnp.where` or `jax.lax.cond`."
)
_DONATED_HINT = (
    "A call that is given an array to write over (donation) deletes it, under every name that it "
    "has: donate only what the call replaces, keep the rest out of it, and copy what must live."
)


def _hint_about(error: BaseException) -> str:
    """Return what to do about an error that the learner's code raised."""
    if _is_of_tracing(error):
        return _TRACED_HINT
    return _DONATED_HINT if _is_of_donation(error) else RAISED_HINT


def _is_of_donation(error: BaseException) -> bool:
    """Whether an array was used after its memory was given away, or given away twice."""
    text = str(error) if isinstance(error, RuntimeError | ValueError) else ""
    return "has been deleted" in text or "donate the same buffer twice" in text


def _is_of_tracing(error: BaseException) -> bool:
    """Whether JAX complains of what it met while tracing."""
    names = ("Tracer", "Concretization", "NonConcrete", "UnexpectedTracer")
    return type(error).__name__.startswith(names) or "not a valid JAX type" in _one_line(error)


@dataclass(frozen=True)
class Snapshot:
    """What a call's inputs looked like before the call."""

    tree: Any
    leaves: tuple[tuple[Any, Any], ...]
    """Each with its path, and after each opaque dataclass what it holds."""
    copies: tuple[Any, ...]


def snapshot(args: tuple[Any, ...]) -> Snapshot:
    """Remember the inputs of a call."""
    leaves = tuple(_leaves(args))
    copies = [np.copy(leaf) if isinstance(leaf, np.ndarray) else leaf for _, leaf in leaves]
    return Snapshot(jax.tree_util.tree_structure(args), leaves, tuple(copies))


def _leaves(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the leaves with their paths, also of dataclasses that are leaves themselves to JAX."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(value)[0]:
        where = (*at, *path)
        yield where, leaf
        if is_dataclass(leaf) and not isinstance(leaf, type):
            for each in fields(leaf):
                inside = getattr(leaf, each.name, None)
                yield from _leaves(inside, (*where, jax.tree_util.GetAttrKey(each.name)))


def check_inputs(before: Snapshot, args: tuple[Any, ...], names: tuple[str, ...]) -> None:
    """Raise if the call changed the inputs that it was given.

    Args:
        before: the snapshot made before the call.
        args: the same argument objects after the call.
        names: the arguments' names.

    Raises:
        SubmissionError: naming the changed argument.
    """
    now = tuple(_leaves(args))
    changed = None
    same_paths = [path for path, _ in now] == [path for path, _ in before.leaves]
    if jax.tree_util.tree_structure(args) != before.tree or not same_paths:
        changed = ("the arguments", "got another structure")
    else:
        for (path, leaf), (_, old), copy in zip(now, before.leaves, before.copies, strict=True):
            place = names[path[0].idx] + jax.tree_util.keystr(path[1:])
            if isinstance(leaf, jax.Array) and leaf.is_deleted():
                changed = (f"`{place}`", "was deleted: its buffer was donated")
            elif leaf is not old:
                changed = (f"`{place}`", "was replaced")
            elif isinstance(leaf, np.ndarray) and not np.array_equal(leaf, copy, equal_nan=True):
                changed = (f"`{place}`", "was written to")
            if changed:
                break
    if changed:
        raise SubmissionError(
            "input changed",
            f"Your function changed its inputs: {changed[0]} {changed[1]}.",
            "Return new values and leave the arguments as they were: the caller still needs them.",
        )


def is_interactive() -> bool:
    """Whether this runs in a notebook or an IPython shell."""
    return "IPython" in sys.modules and sys.modules["IPython"].get_ipython() is not None
