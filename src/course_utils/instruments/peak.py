"""How much memory does a piece of code hold at its peak, whatever it launches?

`memory` reads the plan of one program. Code that launches several (a Python loop over chunks, code
outside any jit) also holds arrays between them. So the code runs once with its launches listed: at
each, what is alive beside what was alive before, plus the scratch memory of the program that is
launched. Plans are the compiler's and counts of bytes are exact; what the allocator
rounds up is not seen.
"""

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from course_utils.instruments import _private
from course_utils.instruments.memory import Memory, memory_of
from course_utils.instruments.timing import wait
from course_utils.instruments.xray.eager import Dispatch, record


@dataclass(frozen=True)
class Peak:
    """The launch at which most memory is held, beyond what was there before.

    Attributes:
        program: name of the program that is launched.
        launch: its number among the launches, from 1.
        launches: how many launches there are.
        held_bytes: arrays that the code has made and still holds, the launch's results included.
        temp_bytes: scratch memory of the program.
    """

    program: str
    launch: int
    launches: int
    held_bytes: int
    temp_bytes: int

    @property
    def bytes(self) -> int:
        """Both together."""
        return self.held_bytes + self.temp_bytes


def peak_of(function: Callable[..., Any], *args: Any) -> Peak:
    """Run a function and find the launch at which it holds most memory.

    Args:
        function: the function, jitted inside or not at all; called several times.
        *args: its arguments, which are not counted.

    Returns:
        The peak. Where nothing is launched, all is 0.

    Raises:
        XrayError: this JAX cannot be listened to, or a program was compiled ahead of time, which
            hides its plan.

    Example:
        >>> import jax.numpy as jnp
        >>> peak_of(lambda x: jnp.sin(x) + 1, jnp.ones(1024)).bytes
        8192
    """

    def as_it_is(
        *inner: Any,
    ) -> Any:  # `record` takes off a jit that stands around what it is given
        return function(*inner)

    dispatches = record(as_it_is, args)
    held = _held(lambda: function(*args))
    if len(held) != len(dispatches):
        raise RuntimeError(
            f"peak_of: `function` launched {len(dispatches)} programs on one call and {len(held)} "
            "on the next; expected the same each time. Make it depend on its arguments alone."
        )
    plans: dict[str, Memory] = {}
    peak = Peak("", 0, len(held), 0, 0)
    for number, (dispatch, seen) in enumerate(zip(dispatches, held, strict=True), start=1):
        if dispatch.identity not in plans:
            plans[dispatch.identity] = _plan(dispatch)
        plan = plans[dispatch.identity]
        results = 0 if seen.with_results else plan.output_bytes - plan.aliased_bytes
        now = Peak(dispatch.program.name, number, len(held), seen.bytes + results, plan.temp_bytes)
        peak = max(peak, now, key=lambda each: each.bytes)
    return peak


@dataclass(frozen=True)
class _Seen:
    """Bytes alive at a launch, and whether its results are among them."""

    bytes: int
    with_results: bool


def _plan(dispatch: Dispatch) -> Memory:
    program = dispatch.program
    return memory_of(jax.jit(program.call, donate_argnums=program.donated), *program.structs)


def _held(call: Callable[[], Any]) -> list[_Seen]:
    """Return, for each launch of a call, what the call holds."""
    seen: list[_Seen] = []
    wait(call())  # a warm call is seen after its launches, a cold one before them
    gc.collect()
    start = _alive()
    with _private.watch_launches(
        lambda *_: seen.append(_Seen(max(0, _alive() - start), with_results=True)),
        lambda *_: seen.append(_Seen(max(0, _alive() - start), with_results=False)),
    ):
        wait(call())
    return seen


def _alive() -> int:
    return sum(array.nbytes for array in jax.live_arrays() if not array.is_deleted())
