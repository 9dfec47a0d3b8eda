"""Where has code kept a function that it took from elsewhere, and what stands there meanwhile?

`from time import perf_counter` keeps the clock in a module's names; a default argument, a closure,
an attribute of a class or of an object and an option of a `functools.partial` keep it too. All of
these are found from one function and can be given something else for a while. What hides in a list
or in another module's helpers is not found.
"""

import contextlib
import functools
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_LARGEST = 200
"""Dictionaries with more entries than this are data, not a choice between functions."""


@contextlib.contextmanager
def replaced(
    function: Any, swaps: Mapping[Any, Any], *, also: tuple[dict[str, Any], ...] = ()
) -> Iterator[None]:
    """Put other functions in the places where a function's code looks, while the block runs.

    Args:
        function: a function, a partial or a callable object.
        swaps: what is put in the place of each function.
        also: the names of further modules to look through.
    """
    search = _Search(swaps)
    with contextlib.ExitStack() as undo:
        search.modules(*also, *globals_of(function))
        search.look(function)
        for put, name, real in search.found:
            with contextlib.suppress(AttributeError, TypeError):  # what cannot be set stays
                put(name, swaps[_plain(real)])
                undo.callback(put, name, real)
        yield


def globals_of(function: Any) -> list[dict[str, Any]]:
    """Return the global names that a function, a partial or a callable object looks up."""
    found: list[dict[str, Any]] = []
    for _ in range(20):
        names = getattr(function, "__globals__", None)
        if isinstance(names, dict) and not any(names is each for each in found):
            found.append(names)
        inner = (
            getattr(function, "__wrapped__", None)
            or getattr(function, "__func__", None)
            or (function.func if isinstance(function, functools.partial) else None)
            or (None if names is not None else vars(type(function)).get("__call__"))
        )
        if inner is None:
            break
        function = inner
    return found


def _plain(value: Any) -> Any:
    return value.__func__ if isinstance(value, staticmethod) else value


Put = Callable[[Any, Any], None]


class _Search:
    """Collects the places: how to put something there, under which name, and what is there."""

    def __init__(self, swaps: Mapping[Any, Any]) -> None:
        self.found: list[tuple[Put, Any, Any]] = []
        self._namespaces: list[dict[str, Any]] = []
        self._modules: list[Any] = []
        self._wanted = {id(each) for each in swaps}
        self._seen: dict[int, Any] = {}

    def _is_wanted(self, value: Any) -> bool:
        return id(_plain(value)) in self._wanted

    def modules(self, *namespaces: dict[str, Any]) -> None:
        """Look through the names of modules, and into what is theirs."""
        self._namespaces += namespaces
        self._modules += [names.get("__name__") for names in namespaces]
        for names in namespaces:
            self.names(names)
            for value in list(names.values()):
                self.look(value)

    def names(self, names: dict[Any, Any]) -> None:
        """Look through a dictionary's values."""
        for name, value in list(names.items()):
            if self._is_wanted(value):
                self.found.append((names.__setitem__, name, value))

    def look(self, value: Any) -> None:
        """Look into a function, a class or an object of the code's own."""
        if id(value) in self._seen:
            return
        self._seen[id(value)] = value
        for inner in ("__func__", "__self__", "fget"):  # of methods and properties
            if isinstance(value, types.MethodType | staticmethod | classmethod | property):
                self.look(getattr(value, inner, None))
        if isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, functools.partial):
            self.names(value.keywords)
            for inner in (value.func, *value.args, *value.keywords.values()):
                self.look(inner)
        elif type(value) is dict:
            if len(value) <= _LARGEST and not any(value is each for each in self._namespaces):
                self.names(value)
        elif isinstance(value, type):
            if value.__module__ in self._modules:
                self._attributes(value)
        elif type(value).__module__ in self._modules:
            self.look(type(value))
            inner = getattr(value, "__dict__", None)
            if type(inner) is dict:
                self.names(inner)

    def _function(self, function: types.FunctionType) -> None:
        self.look(getattr(function, "__wrapped__", None))
        if not any(function.__globals__ is each for each in self._namespaces):
            return
        for place, value in enumerate(function.__defaults__ or ()):
            if self._is_wanted(value):
                self.found.append((functools.partial(_put_default, function), place, value))
            self.look(value)
        self.names(function.__kwdefaults__ or {})
        for cell in function.__closure__ or ():
            with contextlib.suppress(ValueError):  # nothing is in it yet
                value = cell.cell_contents
                if self._is_wanted(value):
                    self.found.append((functools.partial(setattr, cell), "cell_contents", value))
                self.look(value)

    def _attributes(self, owner: type) -> None:
        for name, value in list(vars(owner).items()):
            if self._is_wanted(value):
                self.found.append((functools.partial(setattr, owner), name, value))
            self.look(value)


def _put_default(function: types.FunctionType, place: int, value: Any) -> None:
    defaults = list(function.__defaults__ or ())
    defaults[place] = value
    function.__defaults__ = tuple(defaults)
