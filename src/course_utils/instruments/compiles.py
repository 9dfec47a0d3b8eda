"""How often did XLA compile, and how often did JAX trace, while a block of code ran?

Uses `jax.monitoring` alone (public). Eager operations compile too, the first time they run. A hit
in the persistent compilation cache also reports a compile event, so hits are told apart. It does
not know *why* something compiled again: that is `retrace`.
"""

import contextlib
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from jax import monitoring

_COMPILE = "/jax/core/compile/backend_compile_duration"
_TRACE = "/jax/core/compile/jaxpr_trace_duration"
_CACHE_HIT = "/jax/compilation_cache/cache_hits"
_CANARY = "/course_utils/canary"


@dataclass(frozen=True)
class Compiles:
    """What was compiled and traced inside one `count_compiles` block.

    Attributes:
        names: the name of each program that XLA compiled, in order; for an eager operation, its
            name.
        traces: the name of each function that JAX traced, in order. Comparable between two runs on
            one JAX version, not between versions.
        cache_hits: how many of the programs came from the persistent compilation cache.
        seconds: time spent compiling, in seconds.
        other_threads: how many of the compiles ran in another thread than the counting one.
    """

    names: tuple[str, ...]
    traces: tuple[str, ...]
    cache_hits: int
    seconds: float
    other_threads: int

    @property
    def count(self) -> int:
        """Programs built, cache hits included (each cost a trace and a load)."""
        return len(self.names)

    @property
    def real(self) -> int:
        """Programs that XLA really compiled, which is `count` less the persistent cache's hits."""
        return len(self.names) - self.cache_hits

    def traces_of(self, name: str) -> int:
        """Return how often the function called `name` was traced."""
        return self.traces.count(name)


class CompileCounter:
    """Running count of a `count_compiles` block; call it for the result so far."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._names: list[str] = []
        self._traces: list[str] = []
        self._hits = 0
        self._seconds = 0.0
        self._others = 0

    def _duration(self, event: str, seconds: float, fun_name: str | None) -> None:
        name = plain_name(fun_name)
        if event == _TRACE:
            self._traces.append(name)
        elif event == _COMPILE:
            self._names.append(name)
            self._seconds += seconds
            self._others += threading.get_ident() != self._thread

    def _event(self, event: str) -> None:
        self._hits += event == _CACHE_HIT

    def __call__(self) -> Compiles:
        """Return what was counted so far."""
        return Compiles(
            tuple(self._names), tuple(self._traces), self._hits, self._seconds, self._others
        )


_active: list[CompileCounter] = []
_canaries = 0


def plain_name(fun_name: str | None) -> str:
    """Return the function's own name: `jit(f)` and `jit_f` are both `f`."""
    name = re.sub(r"^(jit|pmap)\((.*)\)$", r"\2", fun_name or "?")
    return re.sub(r"^jit_", "", name)


def _on_duration(event: str, duration_secs: float, **metadata: object) -> None:
    global _canaries  # noqa: PLW0603
    if event == _CANARY:
        _canaries += 1
    name = metadata.get("fun_name")
    for counter in tuple(_active):
        counter._duration(event, duration_secs, name if isinstance(name, str) else None)


def _on_event(event: str, **_metadata: object) -> None:
    for counter in tuple(_active):
        counter._event(event)


def _listen() -> None:
    """Register the listeners once, and again if somebody cleared all listeners.

    JAX offers no public way to unregister or to ask, so a canary event proves that ours is alive.
    """
    before = _canaries
    monitoring.record_event_duration_secs(_CANARY, 0.0)
    if _canaries == before:
        monitoring.register_event_duration_secs_listener(_on_duration)
        monitoring.register_event_listener(_on_event)


@contextlib.contextmanager
def count_compiles() -> Iterator[CompileCounter]:
    """Count compiles and traces, in every thread, while the block runs.

    Yields:
        A counter; call it, inside the block or after it, for a `Compiles`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> double = jax.jit(lambda x: 2 * x)
        >>> x, y = jnp.ones(3), jnp.ones(4)
        >>> with count_compiles() as compiles:
        ...     _ = double(x), double(x), double(y)
        >>> compiles().count
        2
    """
    _listen()
    counter = CompileCounter()
    _active.append(counter)
    try:
        yield counter
    finally:
        _active.remove(counter)
