"""The one place that touches private parts of JAX and Equinox to see calls that miss a cache.

It knows where `jax.jit` goes on when its C++ cache has no entry, where `eqx.filter_jit` passes
through, and whether both were found here. It knows nothing of what is recorded or why.
"""

import contextlib
import functools
import inspect
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax

_LIBRARY_FOLDERS = tuple(os.path.dirname(module.__file__ or "") + os.sep for module in (jax, eqx))
_EQUINOX_JIT = inspect.getsourcefile(type(eqx.filter_jit(lambda: None))) or ""


@dataclass(frozen=True, slots=True)
class Miss:
    """A call that a cache did not serve, before it is traced.

    Attributes:
        function: the function that was jitted.
        rules: whether `jax.jit` or `eqx.filter_jit` jitted it.
        args: positional arguments as the caller gave them.
        kwargs: keyword arguments as the caller gave them.
        static_argnums: positions of static arguments, for `jax.jit`.
        static_argnames: names of static arguments, for `jax.jit`.
    """

    function: Callable[..., Any]
    rules: Literal["jit", "filter_jit"]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    static_argnums: tuple[int, ...]
    static_argnames: tuple[str, ...]


def is_library(file: str) -> bool:
    """Whether a source file is JAX's or Equinox's own."""
    return file.startswith(_LIBRARY_FOLDERS)


def static_arguments(jitted: Callable[..., Any]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return `(static_argnums, static_argnames)` of a `jax.jit` function; empty where unknown."""
    info = getattr(jitted, "_jit_info", None)
    return (
        tuple(getattr(info, "static_argnums", ())),
        tuple(getattr(info, "static_argnames", ())),
    )


def _is_top_level() -> bool:
    """Whether no trace is running: a jitted function called inside another compiles nothing."""
    from jax._src import core  # noqa: PLC0415

    if hasattr(core, "trace_state_clean"):
        return core.trace_state_clean()
    return core.trace_ctx.is_top_level()


@contextlib.contextmanager
def _watch_all(on_miss: Callable[[Miss], None]) -> Iterator[None]:
    """Call back for each miss, traced or not."""
    from equinox import _jit as equinox_jit  # noqa: PLC0415
    from jax._src import pjit  # noqa: PLC0415

    running = threading.local()
    plain_infer, plain_call = pjit._infer_params, equinox_jit._call

    @functools.wraps(plain_infer)
    def infer(fun: Any, info: Any, args: Any, kwargs: Any) -> Any:
        code = getattr(fun, "__code__", None)
        stack = getattr(running, "stack", [])
        if code is not None and code.co_filename == _EQUINOX_JIT and stack:
            wrapper, outer_args, outer_kwargs = stack[-1]
            on_miss(Miss(wrapper.__wrapped__, "filter_jit", outer_args, outer_kwargs, (), ()))
        else:
            on_miss(Miss(fun, "jit", args, kwargs, info.static_argnums, info.static_argnames))
        return plain_infer(fun, info, args, kwargs)

    @functools.wraps(plain_call)
    def call(wrapper: Any, is_lower: bool, args: Any, kwargs: Any) -> Any:
        __tracebackhide__ = True
        stack = running.__dict__.setdefault("stack", [])
        stack.append((wrapper, args, kwargs))
        try:
            return plain_call(wrapper, is_lower, args, kwargs)
        finally:
            stack.pop()

    pjit._infer_params, equinox_jit._call = infer, call
    try:
        yield
    finally:
        pjit._infer_params, equinox_jit._call = plain_infer, plain_call


@contextlib.contextmanager
def watch_misses(on_miss: Callable[[Miss], None]) -> Iterator[None]:
    """Call back before each call of a jitted function that misses its cache is traced.

    Covers `jax.jit` and `eqx.filter_jit`, in every thread, called or lowered by hand. Leaves out
    jitted functions that are traced as part of another.

    Args:
        on_miss: called with the miss. Must not call jitted functions.

    Raises:
        LookupError: this JAX or Equinox has no such place (see `can_watch_misses`).
    """
    if not can_watch_misses():
        raise LookupError(
            f"jax {jax.__version__} with equinox {eqx.__version__} does not pass cache misses "
            "through a known place; count compiles by name instead"
        )

    def at_top(miss: Miss) -> None:
        if _is_top_level():
            on_miss(miss)

    with _watch_all(at_top):
        yield


@functools.cache
def can_watch_misses() -> bool:
    """Whether misses of both kinds of jit are seen here; probed once, without compiling."""
    seen: list[tuple[str, str]] = []

    def probe_jit(x: jax.Array) -> jax.Array:
        return x

    def probe_filter_jit(x: jax.Array) -> jax.Array:
        return x

    scalar = jax.ShapeDtypeStruct((), "float32")
    jitted, filter_jitted = jax.jit(probe_jit), eqx.filter_jit(probe_filter_jit)
    try:
        is_top = _is_top_level()
        with _watch_all(lambda miss: seen.append((miss.function.__name__, miss.rules))):
            jax.eval_shape(lambda x: filter_jitted(jitted(x)), scalar)
    except (ImportError, AttributeError, TypeError):
        return False
    return isinstance(is_top, bool) and [each for each in seen if each[0].startswith("probe")] == [
        ("probe_jit", "jit"),
        ("probe_filter_jit", "filter_jit"),
    ]
