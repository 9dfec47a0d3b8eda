"""Keeps what a notebook does to the grader's tools out of the grade.

`remember` notes functions, classes and constants before any learner code ran. `restored` puts back,
while a grade runs, whatever was replaced since, and says what that was; afterwards everything is as
the notebook left it. This guards against accidents and casual tricks. It is no sandbox: code that
means harm can undo anything in its own process.
"""

import builtins
import contextlib
import sys
import time
import types
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import equinox as eqx
import jax
import jax.monitoring
import numpy as np

from course_utils.instruments import _private

_PACKAGE = __name__.rpartition(".")[0]
_MISSING = object()
_FUNCTION_PARTS = ("__code__", "__defaults__", "__kwdefaults__")

_OUTSIDE: tuple[tuple[Any, str, tuple[str, ...]], ...] = (
    (
        builtins,
        "builtins",
        ("abs", "all", "any", "float", "isinstance", "issubclass", "len", "max", "min", "sum"),
    ),
    (time, "time", ("monotonic", "perf_counter", "time")),
    (np, "numpy", ("abs", "array", "asarray", "array_equal", "isinf", "isnan", "max", "sqrt")),
    (np.random, "numpy.random", ("default_rng",)),
    (jax.monitoring, "jax.monitoring", ("record_event_duration_secs",)),
    (
        _private.array_class(),
        "jax.Array",
        ("__array__", "__bool__", "__float__", "__int__", "block_until_ready", "item", "tolist"),
    ),
)
"""What the grader uses of other packages: owner, its name for people, and the attributes."""

_WHOLE = (jax, jax.numpy, jax.nn, jax.lax, jax.random, jax.tree, eqx)
"""Modules whose every public function is noted: the labs' models are written with them."""

_remembered: dict[tuple[int, str], tuple[Any, str, str, Any]] = {}
"""By owner and attribute: the owner, its name for people, the attribute, and its first value."""


def remember(module: types.ModuleType) -> None:
    """Note a module's functions, classes and constants as they are now.

    Call it at the end of a module's import, before anybody can have changed it. What is noted
    already stays as first noted.
    """
    for name, value in list(vars(module).items()):
        if name.startswith("__") or isinstance(value, types.ModuleType):
            continue
        if _changes_by_itself(name, value):
            continue
        _note(module, module.__name__, name, value)
        if getattr(value, "__module__", None) == module.__name__:
            _note_inside(f"{module.__name__}.{name}", value)


def remember_lab(lab: Any, function: Any) -> None:
    """Note a lab and the module that it is made in, at the end of that module.

    Args:
        lab: the lab, which its module calls `LAB`.
        function: a function of that module.
    """
    module = sys.modules[function.__module__]
    remember(module)
    _note(module, module.__name__, "LAB", lab)
    for part, title in ((lab, "the lab"), *((check, check.name) for check in lab.checks)):
        for each in fields(part):
            _note(part, f"{module.__name__}: {title}", each.name, getattr(part, each.name))


def _changes_by_itself(name: str, value: Any) -> bool:
    """Whether a module's own code assigns this name while it runs: counters, caches, probes."""
    return (name.startswith("_") and not callable(value)) or isinstance(value, dict | list | set)


def _note(owner: Any, title: str, name: str, value: Any) -> None:
    _remembered.setdefault((id(owner), name), (owner, title, name, value))


def _note_inside(title: str, value: Any) -> None:
    """Note a function's code, or a class's methods and their code."""
    if isinstance(value, types.FunctionType):
        for part in _FUNCTION_PARTS:
            _note(value, title, part, getattr(value, part))
    elif isinstance(value, type):
        for name, member in list(vars(value).items()):
            if isinstance(member, types.FunctionType):
                _note(value, title, name, member)
                _note_inside(f"{title}.{name}", member)


def remember_everything() -> None:
    """Note what the grader uses of other packages, and every module of this one loaded so far."""
    for owner, title, names in _OUTSIDE:
        for name in names:
            _note(owner, title, name, getattr(owner, name))
    for module in _WHOLE:
        for name, value in list(vars(module).items()):
            if callable(value) and not name.startswith("_"):
                _note(module, module.__name__, name, value)
    for name, layer in list(vars(eqx.nn).items()):
        if isinstance(layer, type) and "__call__" in vars(layer):
            _note(layer, f"equinox.nn.{name}", "__call__", vars(layer)["__call__"])
    for name, module in list(sys.modules.items()):
        if module is not None and (name == _PACKAGE or name.startswith(_PACKAGE + ".")):
            remember(module)


def changed() -> tuple[str, ...]:
    """Return what was replaced since it was noted, e.g. `time.perf_counter`."""
    found = []
    for owner, title, name, value in list(_remembered.values()):
        if _current(owner, name) is not value:
            found.append(title if name in _FUNCTION_PARTS else f"{title}.{name}")
    return tuple(dict.fromkeys(found))


def _current(owner: Any, name: str) -> Any:
    """Return the attribute as it is stored, not as a class binds it."""
    if isinstance(owner, type):
        return vars(owner).get(name, getattr(owner, name, _MISSING))
    return getattr(owner, name, _MISSING)


def _put(owner: Any, name: str, value: Any) -> None:
    if value is _MISSING:
        delattr(owner, name)
    elif is_dataclass(owner) and not isinstance(owner, type):
        object.__setattr__(owner, name, value)  # labs and checks are frozen
    else:
        setattr(owner, name, value)


def put_back() -> tuple[str, ...]:
    """Put everything back as it was first noted; return what had been replaced."""
    names = changed()
    if names:
        for owner, _, name, value in list(_remembered.values()):
            if _current(owner, name) is not value:
                _put(owner, name, value)
    return names


@contextlib.contextmanager
def restored() -> Iterator[tuple[str, ...]]:
    """Run a block with everything noted as it was first; put the notebook's changes back after.

    Yields:
        What had been replaced.
    """
    mine = [
        (owner, name, current)
        for owner, _, name, value in list(_remembered.values())
        if (current := _current(owner, name)) is not value
    ]
    names = put_back()
    try:
        yield names
    finally:
        for owner, name, current in reversed(mine):
            _put(owner, name, current)
