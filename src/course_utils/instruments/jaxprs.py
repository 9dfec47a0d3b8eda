"""What does a function look like to JAX before XLA: how many equations, and how large a value?

Traces the function, compiles and runs nothing. The largest intermediate value does not depend on
the backend or its version, so it stands beside `memory` as a second opinion; but XLA may fuse the
value away, and counts of equations are neither launches nor kernels. Of a loop, the body counts
once.
"""

import collections
import linecache
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import equinox as eqx

from course_utils.instruments._frames import Line
from course_utils.instruments._private_calls import is_library


@dataclass(frozen=True, slots=True)
class Intermediate:
    """A value that is computed on the way and is not a result.

    Attributes:
        bytes: its size.
        shape: its shape.
        dtype: its dtype.
        primitive: the operation that makes it.
        line: the innermost line outside JAX and Equinox that asked for it, where known.
    """

    bytes: int
    shape: tuple[int, ...]
    dtype: str
    primitive: str
    line: Line | None


@dataclass(frozen=True)
class Jaxpr:
    """Facts of a traced function, everything nested in it included.

    Attributes:
        equations: number of equations at all levels: inside jits, loops, branches and custom
            derivatives; an equation that only calls another jaxpr counts too.
        top_equations: number of equations at the outermost level.
        primitives: how often each primitive appears, most frequent first.
        largest: the largest intermediate value; None when there is none.
        constant_bytes: arrays that the function closes over, which become part of the program.
    """

    equations: int
    top_equations: int
    primitives: Mapping[str, int]
    largest: Intermediate | None
    constant_bytes: int


def jaxpr_of(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Jaxpr:
    """Trace a function and sum up its jaxpr.

    Args:
        function: a function, jitted or not.
        *args: its arguments: arrays, `jax.ShapeDtypeStruct`, or trees of them such as modules;
            anything else in them is held fixed.
        **kwargs: its keyword arguments.

    Returns:
        The facts.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> x = jax.ShapeDtypeStruct((8,), "float32")
        >>> jaxpr_of(lambda x: jnp.sum(x[:, None] * x[None, :]), x).largest.shape
        (8, 8)
    """
    traced, _, _ = eqx.filter_make_jaxpr(function)(*args, **kwargs)
    top = _plain(traced)
    primitives: collections.Counter[str] = collections.Counter()
    largest: Intermediate | None = None
    for equation, results in _equations(top, frozenset(map(id, top.outvars))):
        primitives[equation.primitive.name] += 1
        for variable in equation.outvars:
            size = 0 if id(variable) in results else _bytes(variable)
            # Of equals, the innermost: it says the operation rather than the call around it.
            if size and (largest is None or size > largest.bytes):
                largest = Intermediate(
                    bytes=size,
                    shape=tuple(variable.aval.shape),
                    dtype=str(variable.aval.dtype),
                    primitive=equation.primitive.name,
                    line=_line(equation),
                )
    constants = (_array_bytes(each) for each in getattr(traced, "consts", ()))
    return Jaxpr(
        equations=primitives.total(),
        top_equations=len(top.eqns),
        primitives=MappingProxyType(dict(primitives.most_common())),
        largest=largest,
        constant_bytes=sum(constants),
    )


def _plain(jaxpr: Any) -> Any:
    """The jaxpr inside a closed one."""
    return getattr(jaxpr, "jaxpr", jaxpr)


def _equations(jaxpr: Any, results: frozenset[int]) -> Iterator[tuple[Any, frozenset[int]]]:
    """Go through all equations, the inner ones of an equation before itself.

    Args:
        jaxpr: a jaxpr.
        results: ids of its variables that are results of the whole function.

    Yields:
        Each equation, and the ids of variables that are results where it stands.
    """
    for equation in jaxpr.eqns:
        inner = [_plain(each) for each in _inner_jaxprs(equation.params.values())]
        for each in inner:
            yield from _equations(each, _inner_results(equation, each, results, len(inner)))
        yield equation, results


def _inner_results(
    equation: Any, inner: Any, results: frozenset[int], inner_count: int
) -> frozenset[int]:
    """A call hands its jaxpr's results on as they are; a loop does not."""
    is_call = inner_count == 1 and len(inner.outvars) == len(equation.outvars)
    if not is_call or equation.primitive.name in ("scan", "while"):
        return frozenset()
    return frozenset(
        id(mine)
        for mine, outer in zip(inner.outvars, equation.outvars, strict=True)
        if id(outer) in results
    )


def _inner_jaxprs(values: Any) -> Iterator[Any]:
    for value in values:
        if hasattr(value, "eqns"):
            yield value
        elif isinstance(value, tuple | list):
            yield from _inner_jaxprs(value)
        elif isinstance(value, dict):
            yield from _inner_jaxprs(value.values())


def _bytes(variable: Any) -> int:
    return _array_bytes(getattr(variable, "aval", None))


def _array_bytes(array: Any) -> int:
    """Bytes of anything with a shape and a dtype; 0 for tokens and the like."""
    dtype = getattr(array, "dtype", None)
    shape = getattr(array, "shape", None)
    if dtype is None or shape is None or not all(isinstance(dim, int) for dim in shape):
        return 0
    size = dtype.itemsize
    for dim in shape:
        size *= dim
    return size


def _line(equation: Any) -> Line | None:
    """The innermost line outside JAX and Equinox, from the traceback that JAX keeps."""
    traceback = getattr(equation.source_info, "traceback", None)
    for frame in getattr(traceback, "frames", ()):
        if not is_library(frame.file_name):
            text = linecache.getline(frame.file_name, frame.line_num).strip()
            return Line(frame.file_name, frame.line_num, text)
    return None
