"""How often did the host stop and wait for the device?

JAX's transfer guard never fires on a CPU, so the array methods and NumPy functions that read a
device array are wrapped while the block runs. `eqx.filter_jit` waits at the end of each call by
itself; those waits are counted apart. It does not know how long a wait took.
"""

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator
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
    "__repr__",
    "__str__",
    "block_until_ready",
    "item",
    "tolist",
)
_NUMPY = ("array", "asanyarray", "asarray", "ascontiguousarray", "copy", "save")
_JAX = ("block_until_ready", "device_get")
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

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._syncs: list[Sync] = []
        self._equinox = 0
        self._depth = 0

    def _wrap(self, how: str, function: Callable[..., Any], *, method: bool) -> Callable[..., Any]:
        @functools.wraps(function, assigned=("__name__", "__doc__"), updated=())
        def waiting(*args: Any, **kwargs: Any) -> Any:
            if self._depth == 0 and (method or _has_concrete_array(args)):
                if sys._getframe(1).f_code.co_filename.endswith(_EQUINOX_JIT):
                    self._equinox += 1
                else:
                    self._syncs.append(Sync(how, self._owner.line(2)))
            self._depth += 1
            try:
                return function(*args, **kwargs)
            finally:
                self._depth -= 1

        return waiting

    def __call__(self) -> Syncs:
        """Return what was counted so far."""
        return Syncs(tuple(self._syncs), self._equinox)


def _has_concrete_array(args: tuple[Any, ...]) -> bool:
    return any(
        isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer)
        for leaf in jax.tree_util.tree_leaves(args[:1])
    )


def _spelling(method: str) -> str:
    """Return how a learner writes the call of a method: `float(x)`, `x.item()`."""
    plain = method.strip("_")
    return f"{plain}(x)" if method.startswith("__") else f"x.{plain}()"


@contextlib.contextmanager
def count_syncs(owner: Owner | None = None) -> Iterator[SyncCounter]:
    """Count the host's waits for device arrays while the block runs.

    Args:
        owner: tells the learner's lines from library lines.

    Yields:
        A counter; call it, inside the block or after it, for a `Syncs`.
    """
    counter = SyncCounter(owner or Owner())
    array = _private.array_class()
    with contextlib.ExitStack() as undo:
        for name in _METHODS:
            if hasattr(array, name):
                own = array.__dict__.get(name)
                wrapped = counter._wrap(_spelling(name), getattr(array, name), method=True)
                setattr(array, name, wrapped)
                undo.callback(_restore, array, name, own)
        for module, prefix, names in ((np, "np", _NUMPY), (jax, "jax", _JAX)):
            for name in names:
                function = getattr(module, name)
                setattr(module, name, counter._wrap(f"{prefix}.{name}(x)", function, method=False))
                undo.callback(setattr, module, name, function)
        yield counter


def _restore(owner: type, name: str, own: Any) -> None:
    if own is None:
        delattr(owner, name)
    else:
        setattr(owner, name, own)
