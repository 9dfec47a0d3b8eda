"""Turns a Python function and its arguments into a program that another process can compile.

Arrays, shape structs and the arrays inside Equinox modules become the program's arguments; all
else stands still, as under `filter_jit`. Nothing is computed and nothing is compiled here.
"""

import contextlib
import hashlib
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import export

from course_utils.instruments._private_calls import static_arguments
from course_utils.instruments.xray.errors import XrayError, XrayUnavailable
from course_utils.instruments.xray.sources import canonical_text

_NUMBERS = (bool, int, float, complex)
_fresh = itertools.count()
# JAX keeps traces of nested functions with the source lines of their first caller. A context that
# is part of its cache key makes it trace anew, so that lines are those of this program.
_trace_key = jax.make_user_context(None) if hasattr(jax, "make_user_context") else None


@dataclass(frozen=True)
class Program:
    """A program ready to be compiled elsewhere.

    Attributes:
        name: the function's name.
        serialized: what `jax.export` wrote.
        donated: numbers of the flat arguments whose memory may be taken over.
        fingerprint: the same for the same program in any process, line numbers included.
    """

    name: str
    serialized: bytes
    donated: tuple[int, ...]
    fingerprint: str


@dataclass(frozen=True)
class FlatFunction:
    """A function of arrays only.

    Attributes:
        name: name of the function it stands for.
        call: takes the dynamic leaves in order and returns the results' arrays as a list.
        structs: shape and dtype of each.
        donated: their numbers that are donated.
    """

    name: str
    call: Any
    structs: tuple[jax.ShapeDtypeStruct, ...]
    donated: tuple[int, ...]


def is_dynamic(leaf: Any) -> bool:
    """Whether a leaf of the arguments becomes an argument of the program."""
    return isinstance(leaf, jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct)


def flatten(fn: Any, args: Sequence[Any], donate: Iterable[int] = ()) -> FlatFunction:
    """Express a call as a function of its arrays alone.

    Args:
        fn: plain, `jax.jit` or `filter_jit` function, or a callable Equinox module.
        args: its positional arguments.
        donate: positions in `args` whose arrays are donated, beside what `fn` donates by itself.

    Raises:
        TypeError: `fn` is not callable.
        ValueError: a position in `donate` is not that of an argument.
    """
    if not callable(fn):
        raise TypeError(
            f"xray: the first argument is a {type(fn).__name__}; expected a function. Pass the "
            "function itself and its arguments after it, not the result of a call."
        )
    positions = set(donate)
    wrong = sorted(position for position in positions if position not in range(len(args)))
    if wrong:
        raise ValueError(
            f"xray: `donate` names argument {wrong[0]}; expected positions from 0 to "
            f"{len(args) - 1}. Count the arguments after the function."
        )
    leaves, tree = jax.tree.flatten((fn, tuple(args)))
    owners = [-1] * len(jax.tree.leaves(fn))
    for position, arg in enumerate(args):
        owners += [position] * len(jax.tree.leaves(arg))
    jit = _Jit.of(fn)
    dynamic = [
        index
        for index, leaf in enumerate(leaves)
        if is_dynamic(leaf) or (jit.traces(owners[index]) and isinstance(leaf, _NUMBERS))
    ]
    own = _donated_by_jit(fn, args, len(dynamic)) or [
        getattr(fn, "donate_first" if owners[index] == 0 else "donate_rest", False)
        for index in dynamic  # attributes of an `eqx.filter_jit` function
    ]
    donated = tuple(
        number for number, index in enumerate(dynamic) if own[number] or owners[index] in positions
    )

    def call(*arrays: Any) -> list[Any]:
        full = list(leaves)
        for index, array in zip(dynamic, arrays, strict=True):
            full[index] = array
        inner, inner_args = jax.tree.unflatten(tree, full)
        results = jax.tree.leaves(inner(*inner_args))
        return [each for each in results if isinstance(each, jax.Array | np.ndarray | np.generic)]

    structs = tuple(_struct(leaves[index]) for index in dynamic)
    return FlatFunction(name_of(fn), call, structs, donated)


def name_of(fn: Any) -> str:
    """Return a function's name for people."""
    for each in (fn, getattr(fn, "func", None), getattr(fn, "__wrapped__", None)):
        name = getattr(each, "__name__", None)
        if isinstance(name, str):
            return name
    return type(fn).__name__


def _struct(leaf: Any) -> jax.ShapeDtypeStruct:
    if isinstance(leaf, _NUMBERS):
        leaf = jax.eval_shape(lambda: jax.numpy.asarray(leaf))
    weak = bool(getattr(leaf, "weak_type", False))
    return jax.ShapeDtypeStruct(
        np.shape(leaf),
        jax.dtypes.canonicalize_dtype(leaf.dtype)
        if isinstance(leaf, np.ndarray | np.generic)
        else leaf.dtype,
        weak_type=weak,
    )


@dataclass(frozen=True)
class _Jit:
    """How a function that may be a `jax.jit` one treats Python numbers."""

    is_jit: bool
    static: frozenset[int]

    @classmethod
    def of(cls, fn: Any) -> "_Jit":
        if not _is_jit(fn):
            return cls(False, frozenset())
        return cls(True, frozenset(static_arguments(fn)[0]))

    def traces(self, position: int) -> bool:
        """Whether a number in the argument at this position becomes an argument of the program."""
        return self.is_jit and position >= 0 and position not in self.static


def _is_jit(fn: Any) -> bool:
    return all(hasattr(fn, name) for name in ("trace", "lower", "clear_cache"))


def _donated_by_jit(fn: Any, args: Sequence[Any], count: int) -> list[bool]:
    """Return which leaves a `jax.jit` function donates, in order; empty for other functions."""
    if not _is_jit(fn):
        return []
    infos = jax.tree.leaves(fn.trace(*args).args_info, is_leaf=lambda x: hasattr(x, "donated"))
    return [bool(info.donated) for info in infos] if len(infos) == count else []


_CALLBACK_WORDS = ("host_callbacks", "different from the lowering platform")
_TARGET = re.compile(r'custom_call @([\w$.]+)|call_target_name = "([^"]+)"')


def _export(flat: FlatFunction) -> export.Exported:
    """Export for CUDA, with leave for each custom call: both sides are the same JAX version."""
    allowed: set[str] = set()
    jitted = jax.jit(flat.call)
    while True:
        checks = [export.DisabledSafetyCheck.custom_call(name) for name in sorted(allowed)]
        try:
            return export.export(jitted, platforms=["cuda"], disabled_checks=checks)(*flat.structs)
        except ValueError as error:
            if "compatibility guarantees" not in str(error):
                raise
            found = {first or second for first, second in _TARGET.findall(str(error))}
            if found <= allowed:
                raise
            allowed |= found


def export_program(flat: FlatFunction, *, locations: bool = True) -> Program:
    """Export a function for CUDA.

    Args:
        flat: the function.
        locations: whether the fingerprint covers source lines.

    Raises:
        XrayError: the function calls back to Python, or cannot be exported for another reason.
        Exception: whatever the function itself raises while it is traced.
    """
    fresh = contextlib.nullcontext() if _trace_key is None else _trace_key(next(_fresh))
    try:
        with fresh:
            exported = _export(flat)
    except (NotImplementedError, ValueError) as error:
        if not any(words in str(error) for words in _CALLBACK_WORDS):
            raise  # the function's own mistake, said in JAX's words
        raise XrayError(
            f"{flat.name} calls back to Python while it runs (`jax.debug.print`, `pure_callback` "
            "and the like), and such a program cannot leave this process. Take the callback out "
            "and X-ray again."
        ) from error
    try:
        serialized = bytes(exported.serialize())
    except ImportError as error:
        raise XrayUnavailable(
            "X-rays need the package flatbuffers, which is missing here: run "
            "`pip install flatbuffers`."
        ) from error
    except (NotImplementedError, ValueError) as error:
        raise XrayError(f"{flat.name} cannot be exported: {error}") from error
    text = canonical_text(exported.mlir_module(), locations=locations)
    shapes = [f"{struct.dtype}{struct.shape}" for struct in flat.structs]
    digest = hashlib.sha256("\n".join((text, *shapes, str(flat.donated))).encode()).hexdigest()
    return Program(flat.name, serialized, flat.donated, digest)
