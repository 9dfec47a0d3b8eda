"""Lists what un-jitted code dispatches: each program that JAX launches while Python runs.

The launch hook says when something is launched. For most launches it also says which function; the
rest are programs that JAX builds inside itself (under `vmap` and `grad`, or a jit's first call),
and those are caught where JAX hands them over. Touches JAX's private parts for that, in this module
only. Compiles nothing for a GPU.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from course_utils.instruments import _private
from course_utils.instruments.xray.errors import XrayError
from course_utils.instruments.xray.export import FlatFunction, is_dynamic
from course_utils.instruments.xray.sources import Source, is_library, normal_file


@dataclass(frozen=True)
class Dispatch:
    """One dispatch.

    Attributes:
        identity: equal for dispatches that run the same program on equal shapes.
        program: what is launched, as a function of its arrays.
        source: the learner's line that caused it.
    """

    identity: str
    program: FlatFunction
    source: Source | None


@dataclass(frozen=True)
class _Launch:
    """What the hook saw: a function with the types of its arguments, or a program of JAX's own."""

    function: Any
    args: Any
    kwargs: Any
    inner: dict[str, Any] | None
    source: Source | None


def record(fn: Callable[..., Any], args: Sequence[Any]) -> list[Dispatch]:
    """Run a function on the CPU, un-jitted, and list its dispatches.

    The function runs twice: JAX reports a warm call best.

    Args:
        fn: the function; a `jax.jit` or `filter_jit` directly around it is taken off.
        args: arguments. Shape structs stand for arrays of ones (numbers) or zeros (integers).

    Raises:
        XrayError: this JAX cannot be listened to, or something was launched that it does not show.
    """
    plain = unjitted(fn)
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        real_args = jax.tree.map(_real, tuple(args))
        _run(plain, real_args)
        with _listening() as launches:
            _run(plain, real_args)
    dispatches: list[Dispatch] = []
    known: dict[int, Dispatch] = {}
    kept = []  # keeps programs alive, so that their addresses stay theirs
    for launch in launches:
        name, closed, donated = _program(launch)
        kept.append(closed)
        if id(closed) not in known:
            known[id(closed)] = _dispatch(name, closed, donated)
        first = known[id(closed)]
        dispatches.append(Dispatch(first.identity, first.program, launch.source))
    return dispatches


def unjitted(fn: Any) -> Any:
    """Take off a jit that stands directly around a function."""
    is_jit = hasattr(fn, "lower") and hasattr(fn, "__wrapped__")
    return fn.__wrapped__ if is_jit else fn


def _run(fn: Callable[..., Any], args: Sequence[Any]) -> None:
    jax.block_until_ready([leaf for leaf in jax.tree.leaves(fn(*args)) if is_dynamic(leaf)])


def _real(leaf: Any) -> Any:
    """Make an array for a shape struct; leave everything else."""
    if not isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf
    if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        keys = jax.random.split(jax.random.key(0), int(np.prod(leaf.shape, dtype=int)))
        return keys.reshape(leaf.shape)
    fill = 1 if jax.numpy.issubdtype(leaf.dtype, np.inexact) else 0
    return jax.numpy.full(leaf.shape, fill, leaf.dtype)


@contextlib.contextmanager
def _listening() -> Iterator[list[_Launch]]:
    """List this thread's launches while the block runs."""
    try:
        from jax._src import pjit  # noqa: PLC0415

        primitive = getattr(pjit, "jit_p", None) or getattr(pjit, "pjit_p")  # noqa: B009
        plain_impl, plain_python = primitive.impl, pjit._pjit_call_impl_python
    except (ImportError, AttributeError) as error:
        raise _cannot_listen() from error
    launches: list[_Launch] = []
    handed_over: list[dict[str, Any]] = []

    def impl(*args: Any, **params: Any) -> Any:
        handed_over[:] = [params]
        return plain_impl(*args, **params)

    def python(*args: Any, **params: Any) -> Any:
        handed_over[:] = [params]
        return plain_python(*args, **params)

    def fast(function: Any, args: Any, kwargs: Any) -> None:
        if hasattr(function, "_fun"):
            args, kwargs = jax.tree.map(_type_only, (args, kwargs))
            launches.append(_Launch(function, args, kwargs, None, _learner_line()))
        else:
            launches.append(_Launch(function, (), {}, _taken(handed_over), _learner_line()))

    def slow(executable: Any, _args: Any) -> None:
        launches.append(_Launch(executable, (), {}, _taken(handed_over), _learner_line()))

    primitive.impl, pjit._pjit_call_impl_python = impl, python
    try:
        with _private.watch_launches(fast, slow):
            yield launches
    except LookupError as error:
        raise _cannot_listen() from error
    finally:
        primitive.impl, pjit._pjit_call_impl_python = plain_impl, plain_python


def _cannot_listen() -> XrayError:
    return XrayError(
        f"eager X-rays do not work with jax {jax.__version__}, which launches programs in a way "
        "not known here. X-ray the jitted function instead."
    )


def _taken(handed_over: list[dict[str, Any]]) -> dict[str, Any] | None:
    return handed_over.pop() if handed_over else None


def _type_only(leaf: Any) -> Any:
    """Keep an array's type and let its memory go."""
    if not isinstance(leaf, jax.Array):
        return leaf
    weak = bool(getattr(leaf, "weak_type", False))
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=weak)


def _program(launch: _Launch) -> tuple[str, ClosedJaxpr, tuple[int, ...]]:
    """Return a launch's name, its program and the numbers of its donated arguments."""
    if launch.inner is not None:
        flags = launch.inner.get("donated_invars", ())
        donated = tuple(number for number, flag in enumerate(flags) if flag)
        return str(launch.inner.get("name", "?")), launch.inner["jaxpr"], donated
    if not hasattr(launch.function, "_fun"):  # the hook shows a jitted function only
        name = getattr(launch.function, "name", "?")
        raise XrayError(
            f"the dispatch `{name}` is a program compiled ahead of time, which hides what it "
            "does. Call the function itself instead of its `.compile()` result."
        )
    traced = launch.function.trace(*launch.args, **launch.kwargs)
    infos = jax.tree.leaves(traced.args_info, is_leaf=lambda x: hasattr(x, "donated"))
    donated = tuple(number for number, info in enumerate(infos) if info.donated)
    return launch.function.__name__, traced.jaxpr, donated


def _dispatch(name: str, closed: ClosedJaxpr, donated: tuple[int, ...]) -> Dispatch:
    structs = tuple(
        jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=getattr(aval, "weak_type", False))
        for aval in closed.in_avals
    )
    flat = FlatFunction(name, jaxpr_as_fun(closed), structs, donated)
    return Dispatch(f"{name} {donated} {closed}", flat, None)


def _learner_line() -> Source | None:
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not is_library(code.co_filename):
            return Source(normal_file(code.co_filename), frame.f_lineno, code.co_qualname)
        frame = frame.f_back
    return None
