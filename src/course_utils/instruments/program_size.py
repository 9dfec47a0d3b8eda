"""How large is the program that a piece of code amounts to, once XLA has optimised it?

A Python loop inside a jit is copied out, turn by turn; the size shows it when neither the launches
nor the value do. The code is compiled as one program, whatever jits it contains, and what was
compiled ahead of time is added as it is. It does not know what size is too large.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from course_utils.instruments.hlo import program_of


def instructions_of(function: Callable[..., Any], *args: Any) -> int:
    """Return how many instructions the code comes to, each counted once however often it runs.

    Args:
        function: the code: a plain or a jitted function, which may call other jitted functions and
            programs that were compiled ahead of time.
        *args: its arguments, of which only shapes, types and what is no array matter.

    Raises:
        Exception: whatever the function raises when it is traced, e.g. where Python wants to know
            an array's value.
    """
    with _ahead_of_time_programs() as programs:
        whole = program_of(function, *args).instructions
    return whole + sum(program_of(each).instructions for each in programs.values())


@contextlib.contextmanager
def _ahead_of_time_programs() -> Iterator[dict[int, jax.stages.Compiled]]:
    """Let a compiled program be called while JAX traces, which it refuses; collect each once.

    Its results are zeros of the right shapes: the values do not matter to the size.
    """
    programs: dict[int, jax.stages.Compiled] = {}
    plain = jax.stages.Compiled.__call__

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((args, kwargs))):
            return plain(self, *args, **kwargs)
        programs[id(self)] = self
        return jax.tree.map(lambda each: jnp.zeros(each.shape, each.dtype), self.out_info)

    jax.stages.Compiled.__call__ = call
    try:
        yield programs
    finally:
        jax.stages.Compiled.__call__ = plain
