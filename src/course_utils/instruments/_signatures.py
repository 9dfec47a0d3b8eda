"""What one call of a jitted function is cached under, copied so that it keeps no array alive.

A cache key of JAX (or of Equinox's `filter_jit`) is made of shapes, dtypes, weak types, placement,
static values, function identities, tree structure, and how the arguments were spelled. This module
takes them from a call and can tell two of them apart one by one; `retrace` compares whole calls.
Nothing that is not in the call is known here: not `jax.config`, not the mesh in force.
"""

import contextlib
import dataclasses
import enum
import functools
import inspect
import itertools
import os
import re
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer

from course_utils.instruments import _private_calls

Rules = Literal["jit", "filter_jit"]
"""Whose cache key: `jax.jit` traces Python numbers and keys on how arguments are spelled;
`eqx.filter_jit` holds everything that is not an array static and sorts the spelling out."""

_TEXT_LIMIT = 60
_ATOMS = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    range,
    type(...),
    type,
    enum.Enum,
    np.dtype,
)


@dataclass(frozen=True, slots=True)
class ArrayType:
    """What the cache key takes of an array.

    Attributes:
        shape: its shape.
        dtype: its dtype, as JAX holds it (float64 is float32 unless x64 is enabled).
        weak_type: whether it takes the other operand's dtype.
        placement: `uncommitted`, or the devices and layout it is committed to.
    """

    shape: tuple[int, ...]
    dtype: str
    weak_type: bool
    placement: str

    def __str__(self) -> str:
        dims = ",".join(str(dim) for dim in self.shape)
        return f"{_short_dtype(self.dtype)}[{dims}]"


@dataclass(frozen=True, slots=True)
class FunctionIdentity:
    """Which function object, without keeping it alive.

    Attributes:
        name: its name.
        where: the line and file it is defined on; empty inside JAX or Equinox and where Python
            does not know.
        parts: numbers that no two live or dead objects share; a bound method has two (its object
            and its function), because Python makes a new method object at each access.
    """

    name: str
    where: str
    parts: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class StaticValue:
    """A value that is compared with `==` when the cache is searched.

    Attributes:
        type: its type.
        text: its repr, shortened, without memory addresses.
        atom: the value itself where it is a plain number, string or the like.
        items: its elements where it is a tuple, list or dictionary.
        steps: how each element is reached, for example `[0]` or `['rate']`.
        reference: a weak reference where it is any other object.
        number: a number that no other object shares; None where Python cannot watch the object.
        hash: its hash, or None where it has none.
    """

    type: type
    text: str
    atom: Any = None
    items: "tuple[FunctionIdentity | StaticValue, ...] | None" = None
    steps: tuple[str, ...] = ()
    reference: Callable[[], Any] | None = None
    number: int | None = None
    hash: int | None = None

    def same(self, other: "StaticValue", *, strict: bool) -> bool:
        """Whether a cache would take the two for one.

        Args:
            other: the value of the other call.
            strict: whether `1`, `1.0` and `True` are told apart, as `jax.jit` does.
        """
        if self.items is not None and other.items is not None:
            return (
                self.type is other.type
                and self.steps == other.steps
                and all(
                    same_static(mine, theirs, strict=strict)
                    for mine, theirs in zip(self.items, other.items, strict=True)
                )
            )
        if issubclass(self.type, _ATOMS) and issubclass(other.type, _ATOMS):
            is_type_same = self.type is other.type or not strict
            return is_type_same and (self.atom is other.atom or bool(self.atom == other.atom))
        return self.type is other.type and self._same_object(other)

    def _same_object(self, other: "StaticValue") -> bool:
        """Compare two objects of one type, which may be gone by now."""
        numbers = (self.number, other.number)
        if None not in numbers and (self.type.__eq__ is object.__eq__ or numbers[0] == numbers[1]):
            return numbers[0] == numbers[1]
        mine = self.reference() if self.reference else None
        theirs = other.reference() if other.reference else None
        if mine is not None and theirs is not None:
            with contextlib.suppress(Exception):  # a learner's own `__eq__` may raise
                return bool(mine == theirs)
        if self.hash is not None or other.hash is not None:
            return self.hash == other.hash
        return self.text == other.text


@dataclass(frozen=True, slots=True)
class Node:
    """A container of the tree: its type and the keys of its children."""

    type: type
    keys: tuple[str, ...]

    def __str__(self) -> str:
        name = self.type.__name__
        if self.type is type(None):
            return "None"
        if issubclass(self.type, dict):
            return f"a {name} with keys {{{', '.join(key[1:-1] for key in self.keys)}}}"
        if issubclass(self.type, tuple | list):
            return f"a {name} of {len(self.keys)}"
        return f"a {name}"


@dataclass(frozen=True, slots=True)
class Omitted:
    """An argument that was left to its default."""

    default: str

    def __str__(self) -> str:
        return f"left to its default {self.default}"


def same_static(
    old: FunctionIdentity | StaticValue, new: FunctionIdentity | StaticValue, *, strict: bool
) -> bool:
    """Whether a cache would take two static things for one (see `StaticValue.same`)."""
    match old, new:
        case (FunctionIdentity(), FunctionIdentity()):
            return old.parts == new.parts
        case (StaticValue(), StaticValue()):
            return old.same(new, strict=strict)
        case _:
            return False


Leaf = ArrayType | FunctionIdentity | StaticValue
Entry = Leaf | Node | Omitted


@dataclass(frozen=True, slots=True)
class CallSignature:
    """What one call's cache key is made of.

    Attributes:
        name: the called function's name; empty where it is not known.
        rules: whose cache key.
        function: which function object; None where it is not known or is a tree of its own.
        spelling: how each argument was passed, by name.
        entries: every container and leaf, by path, parents first.
        structure: hash of the whole tree structure, or None where it has none.
    """

    name: str
    rules: Rules
    function: FunctionIdentity | None
    spelling: Mapping[str, str]
    entries: Mapping[str, Entry]
    structure: int | None


def call_signature(
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    function: Callable[..., Any] | None = None,
    rules: Rules | None = None,
    static_argnums: Sequence[int] = (),
    static_argnames: Sequence[str] = (),
) -> CallSignature:
    """Copy what the cache key of a call is made of.

    Args:
        args: the positional arguments: arrays of JAX or NumPy, `jax.ShapeDtypeStruct`, Python
            values, trees of them.
        kwargs: the keyword arguments.
        function: the called function, jitted or not. Gives the arguments their names, and the
            rules and static arguments when it is jitted.
        rules: `"jit"` or `"filter_jit"`; by default what `function` is, else `"filter_jit"`.
        static_argnums: as given to `jax.jit`; by default those of `function`.
        static_argnames: as given to `jax.jit`; by default those of `function`.

    Returns:
        The signature. It keeps neither arrays nor functions alive.
    """
    kwargs = dict(kwargs or {})
    inner = function
    if isinstance(function, _JIT_WRAPPER):
        rules, inner = rules or "filter_jit", getattr(function, "__wrapped__", function)
    elif function is not None and isinstance(function, _JIT_FUNCTION):
        rules, inner = rules or "jit", getattr(function, "__wrapped__", function)
        if not static_argnums and not static_argnames:
            static_argnums, static_argnames = _private_calls.static_arguments(function)
    rules = rules or "filter_jit"
    passed = _bind(inner, args, kwargs, rules)

    writer = _Writer(rules)
    identity = None
    if inner is not None:
        if rules == "filter_jit" and not _is_plain_leaf(inner):
            writer.add("self", inner)  # a module that is called, or a method of one
        else:
            identity = _identity(inner, is_key=rules == "jit")
    spelling: dict[str, str] = {}
    static_positions = {n if n >= 0 else len(args) + n for n in static_argnums}
    for name, argument in passed.items():
        if isinstance(argument, Omitted):
            spelling[name] = "left to its default"
            writer.entries[name] = argument
            continue
        spelling[name] = f"passed by {argument.how}"
        if name in static_argnames or argument.position in static_positions:
            writer.entries[name] = _static(argument.value)
        else:
            writer.add(name, argument.value)
    return CallSignature(
        name=function_name(inner) if inner is not None else "",
        rules=rules,
        function=identity,
        spelling=spelling,
        entries=writer.entries,
        structure=writer.structure,
    )


_JIT_FUNCTION: type = type(jax.jit(lambda: None))
_JIT_WRAPPER: type = type(eqx.filter_jit(lambda: None))


@dataclass(frozen=True, slots=True)
class _Argument:
    value: Any
    how: str
    position: int | None


def _bind(
    function: Callable[..., Any] | None,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    rules: Rules,
) -> dict[str, "_Argument | Omitted"]:
    """Give each argument the name it has in the function's signature."""
    parameters: list[inspect.Parameter] = []
    if function is not None:
        with contextlib.suppress(TypeError, ValueError):
            parameters = list(inspect.signature(function).parameters.values())
    by_position = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "args")
    passed: dict[str, _Argument | Omitted] = {}
    for position, value in enumerate(args):
        if position < len(by_position):
            name = by_position[position].name
        else:
            name = f"{rest}[{position - len(by_position)}]"
        passed[name] = _Argument(value, "position", position)
    sorts_spelling = rules == "filter_jit"
    for name, value in sorted(kwargs.items()):
        how = "position" if sorts_spelling and name in {p.name for p in by_position} else "keyword"
        passed[name] = _Argument(value, how, None)
    for parameter in parameters:
        if parameter.name not in passed and parameter.default is not parameter.empty:
            passed[parameter.name] = Omitted(_text(parameter.default))
    return passed


class _Writer:
    """Walks a tree level by level and writes down its containers and leaves by path."""

    def __init__(self, rules: Rules) -> None:
        self._rules: Rules = rules
        self.entries: dict[str, Entry] = {}
        self._structures: list[int | None] = []

    @property
    def structure(self) -> int | None:
        """Hash of all tree structures written down, where each has one."""
        return None if None in self._structures else hash(tuple(self._structures))

    def add(self, path: str, value: Any) -> None:
        """Write down the tree at a path."""
        try:
            self._structures.append(hash(jax.tree_util.tree_structure(value)))
        except TypeError:  # an array or a list in a static field
            self._structures.append(None)
        self._walk(path, value)

    def _walk(self, path: str, value: Any) -> None:
        if isinstance(value, _JIT_WRAPPER):
            value = getattr(value, "__wrapped__", value)
        children, one_level = jax.tree_util.tree_flatten_with_path(
            value, is_leaf=lambda each: each is not value
        )
        data = one_level.node_data()
        if data is None:
            self.entries[path] = self._leaf(value)
            return
        steps = tuple("".join(_step(key) for key in keys) for keys, _ in children)
        self.entries[path] = Node(type(value), steps)
        for step, (_, child) in zip(steps, children, strict=True):
            self._walk(path + step, child)
        for step, static in _static_data(value, steps, data[1]):
            self.entries[path + step] = _static(static)

    def _leaf(self, value: Any) -> Leaf:
        array = _array_type(value, traces_numbers=self._rules == "jit")
        return array if array is not None else _static(value)


def _static_data(value: Any, steps: Sequence[str], data: Any) -> Iterator[tuple[str, Any]]:
    """What a container keeps in the tree structure, by field where it has fields."""
    kind = type(value)
    if value is None or kind in (list, tuple, dict) or hasattr(value, "_fields"):
        return
    if isinstance(value, dict):  # ordered, default and the like: the keys are in the node
        return
    if dataclasses.is_dataclass(value):
        for each in dataclasses.fields(value):
            if f".{each.name}" not in steps and hasattr(value, each.name):
                yield f".{each.name}", getattr(value, each.name)
    elif isinstance(value, functools.partial):
        yield ".func", value.func
    elif data is not None:
        yield ".<static data>", data


def _step(key: Any) -> str:
    """One step of a path, as the learner would write it."""
    match key:
        case jax.tree_util.GetAttrKey(name=name):
            return f".{name}"
        case jax.tree_util.DictKey(key=inner):
            return f"[{inner!r}]"
        case jax.tree_util.SequenceKey(idx=index) | jax.tree_util.FlattenedIndexKey(key=index):
            return f"[{index}]"
        case _:
            return str(key)


def _array_type(value: Any, *, traces_numbers: bool) -> ArrayType | None:
    if isinstance(value, jax.Array):
        aval = jax.typeof(value)
        return ArrayType(
            tuple(value.shape), str(value.dtype), bool(aval.weak_type), _placement(value)
        )
    if isinstance(value, jax.ShapeDtypeStruct):
        placed = "uncommitted" if value.sharding is None else f"committed to {value.sharding}"
        return ArrayType(tuple(value.shape), str(value.dtype), bool(value.weak_type), placed)
    if isinstance(value, np.ndarray | np.generic):
        dtype = jax.dtypes.canonicalize_dtype(value.dtype)
        return ArrayType(np.shape(value), str(dtype), False, "uncommitted")
    if traces_numbers and isinstance(value, bool | int | float | complex):
        widest = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}
        dtype = jax.dtypes.canonicalize_dtype(widest[_number_type(value)])
        return ArrayType((), str(dtype), not isinstance(value, bool), "uncommitted")
    return None


def _number_type(value: bool | float | complex) -> type:
    return next(each for each in (bool, int, float, complex) if isinstance(value, each))


def _placement(array: jax.Array) -> str:
    """Where an array is bound to; an uncommitted one goes wherever the others are."""
    if isinstance(array, Tracer) or not array.committed:
        return "uncommitted"
    sharding = array.sharding
    if len(sharding.device_set) == 1:
        (device,) = sharding.device_set
        memory = sharding.memory_kind
        default = device.default_memory().kind
        where = f"{device.platform}:{device.id}"
        return f"committed to {where}" + (f" ({memory})" if memory not in (None, default) else "")
    return f"committed to {sharding}"


def _short_dtype(dtype: str) -> str:
    return re.sub(
        r"^(bfloat|float|uint|int|complex)(?=\d)",
        lambda found: {"bfloat": "bf", "float": "f", "uint": "u", "int": "i", "complex": "c"}[
            found.group()
        ],
        dtype,
    )


_numbers = itertools.count()
_numbered: dict[int, tuple[Callable[[], Any], int]] = {}


def _number(value: Any) -> int | None:
    """A number for this object that no other gets, even at the same address later on."""
    try:
        reference = weakref.ref(value, functools.partial(_forget, id(value)))
    except TypeError:
        return None
    known = _numbered.get(id(value))
    if known is not None and known[0]() is value:
        return known[1]
    number = next(_numbers)
    _numbered[id(value)] = (reference, number)
    return number


def _forget(key: int, reference: Any) -> None:
    known = _numbered.get(key)
    if known is not None and known[0] is reference:
        del _numbered[key]


def _is_plain_leaf(value: Any) -> bool:
    return jax.tree_util.all_leaves([value])


def _static(value: Any) -> FunctionIdentity | StaticValue:
    if isinstance(value, jax.Array | np.ndarray):
        array = _array_type(value, traces_numbers=False)
        return StaticValue(type(value), f"an array {array}", number=_number(value))
    if _is_function(value):
        return _identity(value)
    if isinstance(value, _ATOMS):
        return StaticValue(type(value), _text(value), atom=value)
    if isinstance(value, tuple | list | dict):
        pairs = list(value.items() if isinstance(value, dict) else enumerate(value))
        return StaticValue(
            type(value),
            _text(value),
            items=tuple(_static(each) for _, each in pairs),
            steps=tuple(f"[{_text(key)}]" for key, _ in pairs),
        )
    try:
        reference, digest = weakref.ref(value), None
    except TypeError:
        reference, digest = None, None
    with contextlib.suppress(TypeError):
        digest = hash(value)
    return StaticValue(
        type(value), _text(value), reference=reference, number=_number(value), hash=digest
    )


def _is_function(value: Any) -> bool:
    return not isinstance(value, type) and (
        isinstance(
            value,
            types.FunctionType
            | types.BuiltinFunctionType
            | types.MethodType
            | functools.partial
            | _JIT_FUNCTION,
        )
        or (callable(value) and hasattr(value, "__wrapped__") and not isinstance(value, eqx.Module))
    )


def _identity(function: Any, *, is_key: bool = False) -> FunctionIdentity:
    """Which function object this is.

    Args:
        function: the function.
        is_key: whether `jax.jit` was given it: then a bound method is told apart by the method
            object, new at each access; otherwise by its object and its function.
    """
    if isinstance(function, types.MethodType) and not is_key:
        owners = [function.__self__, function.__func__]
    else:
        owners = [function]
    numbers = tuple(-id(each) if (n := _number(each)) is None else n for each in owners)
    return FunctionIdentity(function_name(function), _where(function), numbers)


def innermost(function: Any) -> Any:
    """The function somebody wrote, under partials, wrappers and transformations."""
    for _ in range(20):
        inner = (
            getattr(function, "__wrapped__", None)
            or (function.func if isinstance(function, functools.partial) else None)
            or (function.__func__ if isinstance(function, types.MethodType) else None)
        )
        if inner is None:
            break
        function = inner
    return function


def function_name(function: Any) -> str:
    if isinstance(function, functools.partial):
        return f"partial({function_name(function.func)})"
    name = getattr(function, "__name__", None)
    return name if isinstance(name, str) else type(function).__name__


def _where(function: Any) -> str:
    code = getattr(innermost(function), "__code__", None)
    if not isinstance(code, types.CodeType) or _private_calls.is_library(code.co_filename):
        return ""  # a line inside JAX tells a learner nothing
    line = f"line {code.co_firstlineno}"
    if not os.path.isfile(code.co_filename):  # a notebook's cell, whose made-up name says nothing
        return line
    return f"{line} of {os.path.basename(code.co_filename)}"


def _text(value: Any) -> str:
    if isinstance(value, type):
        return value.__qualname__
    try:
        text = repr(value)
    except Exception:  # a learner's own `__repr__` may raise
        text = f"a {type(value).__name__}"
    text = re.sub(r" at 0x[0-9a-f]+", "", text)
    return text if len(text) <= _TEXT_LIMIT else text[: _TEXT_LIMIT - 1] + "…"
