"""The one place that touches private parts, JAX's and CPython's, to count launches and host syncs.

It knows where JAX keeps its post-call hook and its array class on every supported version, and
where CPython keeps a class's buffer interface, and whether that was found here. It knows nothing of
what is counted or why.
"""

import contextlib
import ctypes
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from typing import Any

import jax

JAX_FOLDER = os.path.dirname(jax.__file__)

Launch = Callable[[Any, Any, Any], None]
"""Called with the launched function object and the positional and keyword arguments it got."""


Hook = Callable[[Any, Any, Any, Any], None]


def _hook_slot() -> tuple[Callable[[], Any], Callable[[Any], Any]] | None:
    """Return (get, set) for this thread's post-call hook, or None where JAX has none.

    The C++ call path runs the hook after each launch that it served from its cache.
    """
    try:
        from jax._src import api  # noqa: PLC0415

        state = getattr(api, "_post_hook_state", None)
        if state is not None:
            get = getattr(state, "get_local", None) or (lambda: None)
            return get, state.set_local
        from jax._src.lib import jax_jit  # noqa: PLC0415

        local = jax_jit.thread_local_state()
        local.post_hook  # noqa: B018  (probes that the attribute is there)
    except (ImportError, AttributeError):
        return None
    return (lambda: local.post_hook), (lambda hook: setattr(local, "post_hook", hook))


def _global_hook_slot() -> tuple[Callable[[], Any], Callable[[Any], Any]] | None:
    """Return (get, set) for the hook of threads that have none of their own, or None."""
    try:
        from jax._src import api  # noqa: PLC0415

        state = getattr(api, "_post_hook_state", None)
        if state is not None:
            return state.get_global, state.set_global
        from jax._src.lib import jax_jit  # noqa: PLC0415

        shared = jax_jit.global_state()
        shared.post_hook  # noqa: B018  (probes that the attribute is there)
    except (ImportError, AttributeError):
        return None
    return (lambda: shared.post_hook), (lambda hook: setattr(shared, "post_hook", hook))


@contextlib.contextmanager
def _hook_kept(hook: Hook, put: Callable[[Any], Any]) -> Iterator[None]:
    """Keep `hook` in place while JAX sets its own, or none.

    JAX takes its NaN check in and out of the same slot, also by itself under `jax.checkpoint`.
    Its function for that reaches the slot through a name in its module, so that name leads here.
    """
    from jax._src import api  # noqa: PLC0415

    def put_both(other: Hook | None) -> None:
        def both(*call: Any) -> None:
            hook(*call)
            if other is not None:
                other(*call)

        put(both)

    class Slot:
        """Where JAX believes that it sets this thread's hook."""

        def __init__(self, real: Any) -> None:
            object.__setattr__(self, "_real", real)

        def __getattr__(self, name: str) -> Any:
            return getattr(object.__getattribute__(self, "_real"), name)

        def __setattr__(self, name: str, value: Any) -> None:
            if name == "post_hook":
                put_both(value)
            else:
                setattr(object.__getattribute__(self, "_real"), name, value)

        def set_local(self, value: Hook | None) -> None:
            put_both(value)

        def thread_local_state(self) -> Any:
            return Slot(object.__getattribute__(self, "_real").thread_local_state())

    name = "_post_hook_state" if hasattr(api, "_post_hook_state") else "jax_jit"
    real = getattr(api, name)
    setattr(api, name, Slot(real))
    try:
        yield
    finally:
        setattr(api, name, real)


def _slow_path_class() -> type | None:
    """Return the class whose call launches a program from Python, or None."""
    try:
        from jax._src.interpreters import pxla  # noqa: PLC0415

        return pxla.ExecuteReplicated
    except (ImportError, AttributeError):
        return None


def array_class() -> type:
    """Return the concrete class of JAX arrays, whose methods wait for the device."""
    try:
        from jax._src.array import ArrayImpl  # noqa: PLC0415
    except ImportError:
        return type(jax.numpy.zeros(()))  # starts the device
    return ArrayImpl


@contextlib.contextmanager
def reads_through_methods(owner: type) -> Iterator[None]:
    """Make NumPy read arrays of a class by their `__array__` method while the block runs.

    On a CPU NumPy takes an array's memory through the buffer interface, of which Python code sees
    nothing. Without that interface it asks the method. Where the interface is not found, nothing
    changes. A plain `memoryview(x)` is refused inside the block.
    """
    slot = _buffer_slot(owner)
    if slot is None:
        yield
        return
    before = slot.value
    slot.value = None
    try:
        yield
    finally:
        slot.value = before


_BASIC_SIZE, _AS_BUFFER = 32, 160
"""Bytes from the start of a class to its `tp_basicsize` and `tp_as_buffer` in 64-bit CPython (see
`PyTypeObject` in its documentation)."""


def _buffer_slot(owner: type) -> ctypes.c_void_p | None:
    """Return where CPython keeps a class's function that gives its memory, or None if unknown."""
    known = (
        sys.implementation.name == "cpython"
        and ctypes.sizeof(ctypes.c_void_p) == 8
        and not sysconfig.get_config_var("Py_GIL_DISABLED")
    )
    start = id(owner)
    if not known or _word(start + _BASIC_SIZE) != owner.__basicsize__:
        return None
    functions = _word(start + _AS_BUFFER)
    # A class that is not built into the interpreter holds these functions in itself.
    if not start < functions < start + sys.getsizeof(owner):
        return None
    return ctypes.c_void_p.from_address(functions)


def _word(address: int) -> int:
    return ctypes.c_ssize_t.from_address(address).value


@contextlib.contextmanager
def watch_launches(
    on_fast: Launch,
    on_slow: Callable[[Any, Any], None],
    after_slow: Callable[[Any, Any], None] = lambda executable, args: None,
) -> Iterator[None]:
    """Call back for each program launched, by this thread and by others where JAX allows it.

    Args:
        on_fast: called after a launch by the C++ path, with `(function, args, kwargs)`.
        on_slow: called before a launch by the Python path, with `(executable, args)`: the second
            and later calls of a function with host callbacks, an ahead-of-time compiled program,
            the first call of any function.
        after_slow: called after such a launch, with the same.

    Raises:
        LookupError: if this JAX has no such hook (see `can_watch_launches`).
    """
    slot, slow = _hook_slot(), _slow_path_class()
    if slot is None or slow is None:
        raise LookupError(f"jax {jax.__version__} has no launch hook in a known place")
    get, put = slot
    plain_call = slow.__call__

    def call(self: Any, *args: Any) -> Any:
        on_slow(self, args)
        results = plain_call(self, *args)
        after_slow(self, args)
        return results

    def hook(fun: Any, args: Any, kwargs: Any, _out: Any) -> None:
        on_fast(fun, args, kwargs)

    before = get()
    slow.__call__ = call  # type: ignore[method-assign]
    everywhere = _global_hook_slot()
    before_everywhere = everywhere[0]() if everywhere else None
    put(hook)
    if everywhere:
        everywhere[1](hook)
    try:
        with _hook_kept(hook, put):
            yield
    finally:
        put(before)
        if everywhere:
            everywhere[1](before_everywhere)
        slow.__call__ = plain_call  # type: ignore[method-assign]


def _probe() -> bool:
    """Launch a known program twice and see whether the hook reports exactly one launch each."""
    seen: list[str] = []
    double = jax.jit(lambda x: x * 2)
    x = jax.numpy.zeros(())
    double(x)
    try:
        with watch_launches(lambda *_: seen.append("fast"), lambda *_: seen.append("slow")):
            double(x)
            double(x)
    except LookupError:
        return False
    return seen == ["fast", "fast"]


_can_watch: bool | None = None


def can_watch_launches() -> bool:
    """Whether the launch hook was found and reports a known program rightly (probed once)."""
    global _can_watch  # noqa: PLW0603
    if _can_watch is None:
        _can_watch = _probe()
    return _can_watch
