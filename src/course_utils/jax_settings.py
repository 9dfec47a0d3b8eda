"""Grades under known settings of JAX, whatever the notebook has set.

A notebook may have `jit` disabled, NaN checks on or transfers forbidden: each changes what is
counted, or raises inside the grader. The settings hold for the grading thread while a grade runs
and are the notebook's again afterwards.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import jax

_KNOWN = {
    "disable_jit": False,
    "no_tracing": False,
    "check_tracer_leaks": False,
    "debug_nans": False,
    "debug_infs": False,
    "debug_key_reuse": False,
    "enable_x64": False,
    "transfer_guard": "allow",
    "default_matmul_precision": None,
    "numpy_rank_promotion": "allow",
    "numpy_dtype_promotion": "standard",
    "log_compiles": False,
    "explain_cache_misses": False,
}
"""By setting, as `jax.config` spells it without `jax_`: the value that grades run under."""


def unusual() -> tuple[str, ...]:
    """Return the settings that are not as in a grade, e.g. `jax_disable_jit = True`."""
    found = []
    for name, value in _KNOWN.items():
        current = getattr(jax.config, f"jax_{name}", value)
        if current != value and not (value == "allow" and current is None):
            found.append(f"jax_{name} = {current}")
    return tuple(found)


@contextlib.contextmanager
def known() -> Iterator[None]:
    """Run a block under the settings of a grade, in this thread."""
    with contextlib.ExitStack() as stack:
        for name, value in _KNOWN.items():
            setting: Any = getattr(jax, name, None)
            if setting is not None:
                stack.enter_context(setting(value))
        yield
