"""Compiles a function for arguments without running it, whatever kind of function it is.

Knows plain functions, `jax.jit`, `eqx.filter_jit`, what was lowered or compiled before, and
arguments that are arrays, `jax.ShapeDtypeStruct` or trees of them with other things in. It does
not know what anybody reads in the result. Every call compiles at most one program, which counts as
a compile for whoever is counting.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np

_FILTER_JIT: type = type(eqx.filter_jit(lambda: None))
# From jaxlib 0.10 the CPU compiler hands some loops to a library whose scratch memory the memory
# analysis does not see. Empty means: fuse nothing for it.
_VISIBLE_SCRATCH: dict[str, str | bool] = {"xla_cpu_experimental_ynn_fusion_type": ""}


def compile_ahead(
    function: Any,
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    *,
    donate: Sequence[int] = (),
    show_scratch: bool = False,
) -> jax.stages.Compiled:
    """Compile a function for its arguments, on the default device.

    Args:
        function: a function, a `jax.jit` or `eqx.filter_jit` function, or what `lower` or
            `lower(...).compile()` returned.
        args: its positional arguments, arrays or `jax.ShapeDtypeStruct`; nothing is computed with
            them. None for something lowered or compiled.
        kwargs: its keyword arguments.
        donate: positions of the arguments whose memory may be written over, for a plain function.
        show_scratch: on a CPU, compile so that the memory analysis sees all scratch memory. The
            program may then fuse less than the one that runs.

    Returns:
        The compiled program; one that was compiled before as it is.

    Raises:
        ValueError: `donate` given for a function that is jitted already, or arguments for
            something lowered already.
    """
    kwargs = kwargs or {}
    program = getattr(function, "compiled", function)  # Equinox wraps JAX's
    if isinstance(program, jax.stages.Compiled):
        _refuse_arguments(function, args, kwargs, donate)
        return program
    program = getattr(function, "lowered", function)
    if isinstance(program, jax.stages.Lowered):
        _refuse_arguments(function, args, kwargs, donate)
    else:
        program = _lower(function, args, kwargs, donate)
    if show_scratch and jax.default_backend() == "cpu":
        try:
            return program.compile(compiler_options=_VISIBLE_SCRATCH)
        except jax.errors.JaxRuntimeError as error:
            if "No such compile option" not in str(error):  # older ones hide nothing
                raise
    return program.compile()


def _lower(
    function: Any, args: Sequence[Any], kwargs: dict[str, Any], donate: Sequence[int]
) -> jax.stages.Lowered:
    is_jitted = hasattr(function, "lower")
    if is_jitted and donate:
        raise ValueError(
            f"`{_name(function)}` is jitted already, so donate={tuple(donate)} cannot be added: "
            "expected a plain function. Donate where it is jitted, or pass the function inside."
        )
    if isinstance(function, _FILTER_JIT):
        first = (0,) if function.donate_first else ()
        rest = range(1, len(args)) if function.donate_rest else ()
        return _lower_arrays(
            function.__wrapped__, args, kwargs, (*first, *rest), donate_rest=function.donate_rest
        )
    if is_jitted:
        return function.lower(*args, **kwargs)
    return _lower_arrays(function, args, kwargs, donate)


def _lower_arrays(
    function: Any,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    donate: Sequence[int],
    *,
    donate_rest: bool = False,
) -> jax.stages.Lowered:
    """Jit a function over the arrays in it and in its arguments, with everything else held fixed.

    `filter_jit` does the same, but takes a shape struct for a static value and adds a result of its
    own, which waits for the device; here it is left out.
    """
    whole = (function, kwargs, dict(enumerate(args)))
    arrays, fixed = eqx.partition(whole, _is_array)
    donated, kept = eqx.partition(
        arrays, (donate_rest, donate_rest, {index: index in donate for index in range(len(args))})
    )

    def over_arrays(donated: Any, kept: Any) -> Any:
        inner, keywords, positional = eqx.combine(donated, kept, fixed)
        return eqx.filter(inner(*positional.values(), **keywords), eqx.is_array)

    over_arrays.__name__ = over_arrays.__qualname__ = _name(function)
    return jax.jit(over_arrays, donate_argnums=0).lower(donated, kept)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct)


def _refuse_arguments(
    function: Any, args: Sequence[Any], kwargs: dict[str, Any], donate: Sequence[int]
) -> None:
    if args or kwargs or donate:
        raise ValueError(
            f"a {type(function).__name__} is lowered for its arguments already: expected it alone, "
            f"got {len(args) + len(kwargs)} arguments and donate={tuple(donate)}. Leave them out, "
            "or pass the function itself."
        )


def _name(function: Any) -> str:
    name = getattr(function, "__name__", None)
    return name if isinstance(name, str) else type(function).__name__
