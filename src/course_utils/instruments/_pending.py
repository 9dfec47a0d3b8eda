"""An array that a scripted device may still be computing: to read it is to wait for it.

What is computed from it on the device, by its methods or by JAX's functions, is another such
array. It does not know when the device is done, or what waiting does.
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

_MODULES = (jax.numpy, jax.numpy.linalg, jax.lax, jax.nn)
_BESIDE = (jax.device_put, jax.eval_shape)
NAMESPACES = tuple(module.__dict__ for module in (jax, *_MODULES))
"""The names of the modules in which `on_device` replaces functions."""


@dataclass(frozen=True)
class Work:
    """What the device still has to do.

    Attributes:
        ready: when it is done.
        wait: waits until then.
        ask: tells whether it is done.
    """

    ready: float
    wait: Callable[[], None]
    ask: Callable[[], bool]


class Pending:
    """An array with a value that the device is said to be computing."""

    def __init__(self, work: Work, value: Any) -> None:
        self._work, self._value = work, np.asarray(value)
        self.shape, self.ndim, self.size = self._value.shape, self._value.ndim, self._value.size
        self.dtype = self._value.dtype

    @property
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """What `isinstance` asks."""
        return jax.Array

    @functools.cached_property
    def _array(self) -> jax.Array:
        return jnp.asarray(self._value)

    def __getattr__(self, name: str) -> Any:
        """Return what else an array has; none of it waits."""
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self._array, name)
        return _OnDevice(found, self) if callable(found) else _later(found, self)

    def _wait(self) -> np.ndarray:
        if "_array" in self.__dict__ and self._array.is_deleted():
            raise RuntimeError(f"Array has been deleted with shape={self.dtype}{list(self.shape)}.")
        self._work.wait()
        return self._value

    def block_until_ready(self) -> "Pending":
        self._wait()
        return self

    def is_ready(self) -> bool:
        return self._work.ask()

    def copy_to_host_async(self) -> None:
        pass

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self._wait(), dtype)

    @property
    def __jax_array__(self) -> Any:
        # JAX puts a text of its own in the place of a TypeError.
        raise NotImplementedError(
            "on the scripted machine a result only stands for an array: make it one with "
            "np.asarray(result), after the clock is read, before you use it like this"
        )

    def __len__(self) -> int:
        return len(self._value)

    def __getitem__(self, index: Any) -> "Pending":
        return Pending(self._work, self._value[index])

    def __iter__(self) -> Iterator["Pending"]:
        return (Pending(self._work, each) for each in self._value)

    def item(self, *args: Any) -> Any:
        return self._wait().item(*args)

    def tolist(self) -> Any:
        return self._wait().tolist()


def _reading(name: str) -> Callable[..., Any]:
    def read(array: Any, *args: Any) -> Any:
        return getattr(array._wait(), name)(*args)

    return read


def _computing(name: str) -> Callable[..., Pending]:
    def compute(array: Any, *args: Any, **kwargs: Any) -> Pending:
        others = [each._value if type(each) is Pending else each for each in args]
        latest = _latest((array, *args))
        return Pending(latest._work, getattr(array._value, name)(*others, **kwargs))

    return compute


for _name in ("bool", "complex", "float", "format", "index", "int", "repr", "str"):
    setattr(Pending, f"__{_name}__", _reading(f"__{_name}__"))
for _name in (
    *("__abs__", "__add__", "__mul__", "__neg__", "__pow__", "__sub__", "__truediv__"),
    *("__radd__", "__rmul__", "__rsub__", "__rtruediv__", "__matmul__", "__mod__"),
    *("__eq__", "__ne__", "__gt__", "__lt__", "__ge__", "__le__", "__and__", "__or__"),
    *("__invert__", "__floordiv__"),
    *("all", "any", "astype", "copy", "flatten", "max", "mean", "min", "ravel", "reshape", "sum"),
):
    setattr(Pending, _name, _computing(_name))


class _OnDevice:
    """A function that takes pending arrays too, and is itself in every other way."""

    def __init__(self, function: Any, *owners: Pending) -> None:
        self._function, self._owners = function, owners

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        latest = _latest((self._owners, args, kwargs))
        if latest is None:
            return self._function(*args, **kwargs)
        args, kwargs = jax.tree.map(_real, (args, kwargs))
        return jax.tree.map(lambda each: _later(each, latest), self._function(*args, **kwargs))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)


def _latest(tree: Any) -> Any:
    """Return the pending array in a tree that is there last, or None."""
    pending = (each for each in jax.tree.leaves(tree) if type(each) is Pending)
    return max(pending, key=lambda each: each._work.ready, default=None)


def _real(value: Any) -> Any:
    return value._array if type(value) is Pending else value


def _later(value: Any, source: Pending) -> Any:
    is_array = isinstance(value, jax.Array) and not isinstance(value, Tracer)
    return Pending(source._work, value) if is_array else value


@functools.cache
def on_device() -> dict[Any, Any]:
    """Return, by JAX's functions on arrays, what stands in their place for pending arrays."""
    functions = (
        value
        for module in _MODULES
        for name, value in vars(module).items()
        if callable(value) and not isinstance(value, type) and not name.startswith("_")
    )
    return {each: _OnDevice(each) for each in (*functions, *_BESIDE)}
