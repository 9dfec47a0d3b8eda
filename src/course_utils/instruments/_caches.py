"""Forgets what the learner's own jitted functions have compiled, so that a first pass is cold.

Without it a grade would depend on what the notebook ran before. Eager operations and library
functions keep their programs: compiling those again would cost seconds and say nothing.
"""

import gc

import equinox as eqx
import jax

from course_utils.instruments._frames import Owner, code_of

_JIT = type(jax.jit(lambda: None))
_FILTER_JIT = type(eqx.filter_jit(lambda: None))


def forget_compiled(owner: Owner) -> int:
    """Clear the caches of every living jitted function whose code is the learner's.

    Args:
        owner: tells the learner's code from others.

    Returns:
        How many functions were cleared.
    """
    cleared = 0
    for each in gc.get_objects():
        kind = type(each)
        if kind is not _JIT and kind is not _FILTER_JIT:
            continue
        code = code_of(each)
        if code is None or not owner.owns_code(code):
            continue
        jitted = getattr(each, "_cached", each)  # filter_jit keeps a jax.jit function
        if hasattr(jitted, "clear_cache"):
            jitted.clear_cache()
            cleared += 1
    return cleared
