"""How much device memory does one call of a program need?

Reads the compiler's own plan: nothing is run or allocated. On a CPU the program is compiled so
that no scratch memory is hidden from the plan (`_lowering`), which may differ from the program that
runs. The compiler's plan knows one program: not what else is alive in the process.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from course_utils.instruments._lowering import compile_ahead


@dataclass(frozen=True, slots=True)
class Memory:
    """What one call of a compiled program needs, in bytes.

    Attributes:
        temp_bytes: scratch memory, freed when the call ends.
        argument_bytes: all arguments that the program reads.
        output_bytes: all results, those written over arguments included.
        aliased_bytes: results that are written over donated arguments.
        code_bytes: the program itself; 0 where the backend does not say.
    """

    temp_bytes: int
    argument_bytes: int
    output_bytes: int
    aliased_bytes: int
    code_bytes: int

    @property
    def total_bytes(self) -> int:
        """All that must be in memory at once, that is arguments, results and scratch."""
        return self.argument_bytes + self.output_bytes + self.temp_bytes - self.aliased_bytes


def memory_of(
    function: Callable[..., Any] | jax.stages.Compiled | jax.stages.Lowered,
    *args: Any,
    donate: Sequence[int] = (),
    **kwargs: Any,
) -> Memory:
    """Read the memory plan of a function for given arguments.

    Args:
        function: a plain function, a `jax.jit` or `eqx.filter_jit` function, or a lowered or
            compiled one (JAX's or Equinox's), then without arguments.
        *args: its arguments: arrays, `jax.ShapeDtypeStruct`, or trees of them such as modules.
            Anything else in them is held fixed for a plain or `filter_jit` function.
        donate: positions of the arguments to donate, for a plain function.
        **kwargs: its keyword arguments.

    Returns:
        The plan. A compiled program is read as it is; on a CPU its scratch may be partly hidden.

    Raises:
        ValueError: `donate` given for a jitted function, or arguments for a compiled one.
        LookupError: the backend gives no memory plan.

    Example:
        >>> x = jax.ShapeDtypeStruct((256, 256), "float32")
        >>> memory_of(lambda x: x + 1, x).argument_bytes
        262144
    """
    compiled = compile_ahead(function, args, kwargs, donate=donate, show_scratch=True)
    plan = compiled.memory_analysis()
    if plan is None:
        raise LookupError(
            f"the {jax.default_backend()} backend gives no memory plan for a compiled program; "
            "run on the CPU, or use the X-ray for a GPU's"
        )
    return Memory(
        temp_bytes=plan.temp_size_in_bytes,
        argument_bytes=plan.argument_size_in_bytes,
        output_bytes=plan.output_size_in_bytes,
        aliased_bytes=plan.alias_size_in_bytes,
        code_bytes=max(plan.generated_code_size_in_bytes, 0),
    )
