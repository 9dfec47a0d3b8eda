"""How often did the host stop and wait for the device?

JAX's transfer guard never fires on a CPU, so the methods by which a device array is read are
wrapped while the block runs, and NumPy is made to use them. NumPy's best-known functions are
wrapped too, so that a wait is called by the name that stands in the code. `eqx.filter_jit` waits at
the end of each call by itself; those waits are counted apart. It does not know how long a wait
took.
"""

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from course_utils.instruments import _private
from course_utils.instruments._frames import Line, Owner

_METHODS = (
    "__array__",
    "__bool__",
    "__complex__",
    "__dlpack__",
    "__float__",
    "__format__",
    "__index__",
    "__int__",
    "__reduce__",
    "__repr__",
    "__str__",
    "block_until_ready",
    "item",
    "tobytes",
    "tolist",
)
_NUMPY = (
    *("array", "asanyarray", "asarray", "ascontiguousarray", "asfortranarray", "copy", "save"),
    *("allclose", "array_equal", "average", "bincount", "block", "column_stack", "concatenate"),
    *("count_nonzero", "diff", "dot", "dstack", "einsum", "histogram", "hstack", "inner", "interp"),
    *("isclose", "median", "nanmax", "nanmean", "nanmin", "nansum", "nditer", "outer", "pad"),
    *("percentile", "quantile", "sort", "stack", "tensordot", "unique", "vdot", "vstack", "where"),
    *(name for name, value in vars(np).items() if isinstance(value, np.ufunc)),
)
"""NumPy's functions that read the array themselves and are called by name in a message. Those that
call the array's own method (`np.sum`, `np.argmax`, …) stay on the device; others are counted as
a read by NumPy."""
_READERS = {"__array__": "NumPy", "__reduce__": "pickle.dumps(x)"}
"""Methods that nobody calls by name, and what reads the array through them."""
_JAX = ("block_until_ready", "device_get", "effects_barrier")
_LIBRARIES = (_private.JAX_FOLDER + os.sep, os.path.dirname(np.__file__) + os.sep)
_EQUINOX_JIT = os.path.join("equinox", "_jit.py")


@dataclass(frozen=True)
class Sync:
    """One wait: how it was asked for (`float()`, `np.asarray`, …) and the learner's line."""

    how: str
    line: Line | None


@dataclass(frozen=True)
class Syncs:
    """The host's waits inside one `count_syncs` block.

    Attributes:
        syncs: each wait that the code asked for, in order.
        filter_jit_blocks: the waits that `eqx.filter_jit` makes by itself, left out of `syncs`.
    """

    syncs: tuple[Sync, ...]
    filter_jit_blocks: int

    @property
    def count(self) -> int:
        """Number of waits that the code asked for."""
        return len(self.syncs)


class SyncCounter:
    """Running count of a `count_syncs` block; call it for the result so far."""

    def __init__(self, owner: Owner, ready: Iterable[Any]) -> None:
        self._owner = owner
        self._ready = {id(each): each for each in ready}
        self._syncs: list[Sync] = []
        self._equinox = 0
        self._depth = 0

    def _wrap(self, how: str, function: Callable[..., Any], *, method: bool) -> Callable[..., Any]:
        @functools.wraps(function, assigned=("__name__", "__doc__"), updated=())
        def waiting(*args: Any, **kwargs: Any) -> Any:
            if self._depth == 0 and self._waits(args):
                caller = sys._getframe(1).f_code.co_filename
                if caller.endswith(_EQUINOX_JIT):
                    self._equinox += 1
                elif method or not caller.startswith(_LIBRARIES):
                    self._syncs.append(Sync(how, self._owner.line(2)))
            self._depth += 1
            try:
                return function(*args, **kwargs)
            finally:
                self._depth -= 1

        return waiting

    def _waits(self, args: tuple[Any, ...]) -> bool:
        """Whether a call reads an array that the device may still be computing."""
        return not args or any(
            isinstance(leaf, jax.Array)
            and not isinstance(leaf, Tracer)
            and id(leaf) not in self._ready
            for leaf in jax.tree.leaves(args)
        )

    def __call__(self) -> Syncs:
        """Return what was counted so far."""
        return Syncs(tuple(self._syncs), self._equinox)


def _spelling(method: str) -> str:
    """Return how a learner writes the call of a method: `float(x)`, `x.item()`."""
    if method in _READERS:
        return _READERS[method]
    plain = method.strip("_")
    return f"{plain}(x)" if method.startswith("__") else f"x.{plain}()"


@contextlib.contextmanager
def count_syncs(owner: Owner | None = None, *, ready: Iterable[Any] = ()) -> Iterator[SyncCounter]:
    """Count the host's waits for device arrays while the block runs.

    Args:
        owner: tells the learner's lines from library lines.
        ready: arrays that are known to be there; reading them waits for nothing.

    Yields:
        A counter; call it, inside the block or after it, for a `Syncs`.
    """
    counter = SyncCounter(owner or Owner(), ready)
    array = _private.array_class()
    with contextlib.ExitStack() as undo:
        undo.enter_context(_private.reads_through_methods(array))
        for name in _METHODS:
            if hasattr(array, name):
                own = array.__dict__.get(name)
                wrapped = counter._wrap(_spelling(name), getattr(array, name), method=True)
                setattr(array, name, wrapped)
                undo.callback(_restore, array, name, own)
        for module, prefix, names in ((np, "np", _NUMPY), (jax, "jax", _JAX)):
            for name in names:
                function = getattr(module, name)
                spelled = f"{prefix}.{name}(x)"
                if isinstance(function, np.ufunc | type):
                    setattr(module, name, _Wrapped(counter, spelled, function))
                else:
                    setattr(module, name, counter._wrap(spelled, function, method=False))
                undo.callback(setattr, module, name, function)
        yield counter


class _Wrapped:
    """A ufunc or class that is counted when called, and is itself in every other way."""

    def __init__(self, counter: SyncCounter, how: str, function: Any) -> None:
        self._function = function
        self._call = counter._wrap(how, function, method=False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)


def _restore(owner: type, name: str, own: Any) -> None:
    if own is None:
        delattr(owner, name)
    else:
        setattr(owner, name, own)
