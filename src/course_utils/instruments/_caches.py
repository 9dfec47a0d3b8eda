"""Finds the jitted functions that are alive, and forgets what the learner's own have compiled.

So that a first pass is cold: without it a grade would depend on what the notebook ran before. Eager
operations and library functions keep their programs: compiling those again would cost seconds and
say nothing.
"""

import gc
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax

from course_utils.instruments._frames import Owner, code_of

_JIT = type(jax.jit(lambda: None))
_FILTER_JIT = type(eqx.filter_jit(lambda: None))


def living_jits() -> Iterator[Any]:
    """Return every function that `jax.jit` or `eqx.filter_jit` made and that is still alive."""
    for each in gc.get_objects():
        if type(each) in (_JIT, _FILTER_JIT):
            yield each


def forget_compiled(owner: Owner) -> int:
    """Clear the caches of every living jitted function whose code is the learner's.

    Args:
        owner: tells the learner's code from others.

    Returns:
        How many functions were cleared.
    """
    cleared = 0
    for each in living_jits():
        code = code_of(each)
        if code is None or not owner.owns_code(code):
            continue
        jitted = getattr(each, "_cached", each)  # filter_jit keeps a jax.jit function
        if hasattr(jitted, "clear_cache"):
            jitted.clear_cache()
            cleared += 1
    return cleared
