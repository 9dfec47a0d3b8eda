"""How many programs did a piece of code launch, of what kind, from which line?

A launch (dispatch) hands one compiled program to the device: one per eager operation, one per call
of a jitted function. Counts come from JAX's post-call hook (`_private`), which agrees with the
profiler, or from the profiler where the hook is missing; then kinds and lines are unknown. Count
warm calls: the first call of anything takes other paths.
"""

import collections
import contextlib
import enum
import glob
import gzip
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax

from course_utils.instruments import _private
from course_utils.instruments._frames import Line, Owner
from course_utils.instruments.compiles import plain_name

_DISPATCH = os.path.join(_private.JAX_FOLDER, "_src", "dispatch.py")
_STAGES = os.path.join(_private.JAX_FOLDER, "_src", "stages.py")


class Kind(enum.StrEnum):
    """What a launched program is."""

    EAGER = "eager operation"
    """One primitive or one `jnp` function, run outside any jit."""
    JIT = "jitted function"
    """A function that somebody jitted."""
    TRANSFORMED = "transformed operation"
    """One function that a transformation such as `vmap` or `grad` runs eagerly, outside any jit."""
    COMPILED = "compiled program"
    """A program compiled ahead of time, by `jit(f).lower(…).compile()`."""
    SLOW = "call through Python"
    """A first call, or a call of a jitted function with host callbacks."""

    @property
    def eager(self) -> bool:
        """Whether this is work that runs outside any jit."""
        return self in (Kind.EAGER, Kind.TRANSFORMED)


@dataclass(frozen=True)
class Launch:
    """One launch: its kind, the program's name and the learner's line that caused it."""

    kind: Kind
    name: str
    line: Line | None


@dataclass(frozen=True)
class Launches:
    """What was launched inside one `count_launches` block.

    Attributes:
        launches: every launch in order; empty when only the profiler's count is known.
        count: number of launches.
        source: `"hook"` or `"profiler"`.
    """

    launches: tuple[Launch, ...]
    count: int
    source: str = "hook"

    def of(self, kind: Kind) -> int:
        """Return the number of launches of one kind."""
        return sum(launch.kind is kind for launch in self.launches)

    @property
    def eager(self) -> int:
        """Number of launches of work outside any jit."""
        return sum(launch.kind.eager for launch in self.launches)

    def by_line(self, keep: Callable[[Launch], bool] = lambda _: True) -> list[tuple[Line, int]]:
        """Return the learner's lines with their launches, most launches first."""
        lines = collections.Counter(
            each.line for each in self.launches if each.line is not None and keep(each)
        )
        return lines.most_common()

    def by_name(self, keep: Callable[[Launch], bool] = lambda _: True) -> list[tuple[str, int]]:
        """Return the launched programs' names with their launches, most launches first."""
        return collections.Counter(each.name for each in self.launches if keep(each)).most_common()


class LaunchCounter:
    """Running count of a `count_launches` block; call it for the result so far."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._launches: list[Launch] = []

    def _fast(self, function: Any, _args: Any, _kwargs: Any) -> None:
        name = getattr(function, "__name__", None) or "?"
        self._launches.append(Launch(_kind(function), name, self._owner.line(3)))

    def _slow(self, executable: Any, _args: Any) -> None:
        name = plain_name(str(getattr(executable, "name", "?")))
        # An eager operation takes this path too, the first time and, on older JAX, at times later.
        kind = Kind.EAGER if _called_from(_DISPATCH, depth=3, frames=20) else Kind.SLOW
        self._launches.append(Launch(kind, name, self._owner.line(3)))

    def __call__(self) -> Launches:
        """Return what was counted so far."""
        return Launches(tuple(self._launches), len(self._launches))


def _kind(function: Any) -> Kind:
    """Tell an eager operation from a function that somebody jitted."""
    wrapped = getattr(function, "_fun", None)
    if wrapped is None:
        return Kind.COMPILED if _called_from(_STAGES, depth=4) else Kind.TRANSFORMED
    if getattr(wrapped, "_apply_primitive", False):
        return Kind.EAGER
    code = getattr(getattr(wrapped, "func", wrapped), "__code__", None)
    if code is None:
        code = getattr(getattr(wrapped, "__wrapped__", None), "__code__", None)
    if code is not None and code.co_filename.startswith(_private.JAX_FOLDER + os.sep):
        return Kind.EAGER
    return Kind.JIT


def _called_from(file: str, *, depth: int, frames: int = 3) -> bool:
    """Whether one of the next few frames up, from `depth` on, runs code of that file."""
    frame = sys._getframe(depth)
    for _ in range(frames):
        if frame.f_code.co_filename == file:
            return True
        if frame.f_back is None:
            return False
        frame = frame.f_back
    return False


@contextlib.contextmanager
def count_launches(owner: Owner | None = None) -> Iterator[LaunchCounter]:
    """Count this thread's launches while the block runs.

    Args:
        owner: tells the learner's lines from library lines; by default any line outside installed
            packages is the learner's.

    Yields:
        A counter; call it, inside the block or after it, for a `Launches`.

    Raises:
        LookupError: if this JAX has no launch hook; `profile_launches` counts without it.
    """
    counter = LaunchCounter(owner or Owner())
    with _private.watch_launches(counter._fast, counter._slow):
        yield counter


def profile_launches(call: Callable[[], Any]) -> Launches:
    """Count the launches of one call with the profiler: public, slower, and without kinds or lines.

    Args:
        call: runs the code to count; its result is waited for.
    """
    options: dict[str, Any] = {}
    if hasattr(jax.profiler, "ProfileOptions"):
        # The default tracer records every Python call and takes seconds on eager code.
        profile_options = jax.profiler.ProfileOptions()
        profile_options.python_tracer_level = 0
        options["profiler_options"] = profile_options
    with tempfile.TemporaryDirectory() as folder:
        jax.profiler.start_trace(folder, **options)
        try:
            jax.block_until_ready(call())
        finally:
            jax.profiler.stop_trace()
        (trace,) = glob.glob(os.path.join(folder, "**", "*.trace.json.gz"), recursive=True)
        with gzip.open(trace) as file:
            events = json.load(file)["traceEvents"]
    names = collections.Counter(event["name"] for event in events if event.get("ph") == "X")
    executes = [count for name, count in names.items() if "::ExecuteHelper" in name]
    executes = executes or [c for name, c in names.items() if name.endswith("xecutable::Execute")]
    return Launches((), max(executes, default=0), "profiler")


def launches_of(call: Callable[[], Any], *, owner: Owner | None = None) -> Launches:
    """Count the launches of one call with the best means at hand.

    Args:
        call: runs the code to count, already warm.
        owner: as for `count_launches`.
    """
    if not _private.can_watch_launches():
        return profile_launches(call)
    with count_launches(owner) as launches:
        call()
    return launches()
