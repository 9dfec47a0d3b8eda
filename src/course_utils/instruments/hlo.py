"""What program did XLA make of a function: its kernels, its size, its loops?

Reads the text of the compiled program (`_hlo_text`) for the device at hand. Counts of fusions and
kernels on a CPU say nothing about a GPU: for those, use the X-ray. What does carry over: the size
of the program (a Python loop unrolled inside a jit), loops and how often they run, and which custom
calls it contains.
"""

import collections
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import jax

from course_utils.instruments._hlo_text import Module, SourceLine, parse
from course_utils.instruments._lowering import compile_ahead

BOOKKEEPING = frozenset(
    (
        "parameter",
        "constant",
        "tuple",
        "get-tuple-element",
        "bitcast",
        "after-all",
        "add-dependency",
        "opt-barrier",
        "partition-id",
        "replica-id",
        "while",
        "conditional",
        "call",
        "async-start",
        "async-update",
        "async-done",
        "copy-done",
    )
)
"""Instructions that move no data themselves, such as names, views and control flow."""


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop of the compiled program.

    Attributes:
        name: its instruction's name.
        trip_count: how often its body runs each time it is entered; None when XLA does not know.
        kernels: kernels of its body and condition, each counted once, inner loops left out.
        depth: number of loops around it.
        source: the Python line it came from, where the program says.
    """

    name: str
    trip_count: int | None
    kernels: int
    depth: int
    source: SourceLine | None


@dataclass(frozen=True)
class Program:
    """Facts of a compiled program.

    Attributes:
        name: its name, for example `jit_train_step`.
        kernels: instructions that do work, outside fusions, each counted once: of a loop the body
            once, of a conditional every branch.
        runs: how many of them one call runs, with loops multiplied out and every branch counted;
            None when a loop's trip count is not known.
        ops: the kernels by opcode, most frequent first.
        custom_calls: targets of custom calls by name, most frequent first.
        loops: its loops, outer before inner.
        instructions: instructions in all computations, inside fusions too: the program's size.
        lines: lines of its text.
        module: the whole program, parsed.
    """

    name: str
    kernels: int
    runs: int | None
    ops: Mapping[str, int]
    custom_calls: Mapping[str, int]
    loops: tuple[Loop, ...]
    instructions: int
    lines: int
    module: Module = field(repr=False)


def program_of(
    function: Callable[..., Any] | jax.stages.Compiled | jax.stages.Lowered,
    *args: Any,
    **kwargs: Any,
) -> Program:
    """Compile a function for given arguments and read the program.

    Args:
        function: a plain function, a `jax.jit` or `eqx.filter_jit` function, or a lowered or
            compiled one (JAX's or Equinox's), then without arguments.
        *args: its arguments: arrays, `jax.ShapeDtypeStruct`, or trees of them such as modules.
        **kwargs: its keyword arguments.

    Returns:
        The facts of the program for the default device. What `filter_jit` adds to it, one number
        to wait for, is left out.

    Raises:
        ValueError: arguments given for a compiled function.

    Example:
        >>> x = jax.ShapeDtypeStruct((256,), "float32")
        >>> program_of(lambda x: jax.numpy.sin(x) * 2 + 1, x).kernels
        1
    """
    text = compile_ahead(function, args, kwargs).as_text()
    if text is None:
        raise LookupError(f"the {jax.default_backend()} backend does not print its programs")
    return read_program(text)


def read_program(text: str) -> Program:
    """Read the facts out of a compiled program's text.

    Args:
        text: what `compiled.as_text()` returned.

    Raises:
        HloSyntaxError: the text is not a compiled program.
    """
    module = parse(text)
    ops: collections.Counter[str] = collections.Counter()
    custom_calls: collections.Counter[str] = collections.Counter()
    bodies: collections.Counter[str] = collections.Counter()
    loops = []
    runs: int | None = 0
    for step in module.steps():
        instruction = step.instruction
        if instruction.opcode == "while":
            loops.append((instruction, len(step.loops)))
        if instruction.opcode in BOOKKEEPING:
            continue
        ops[instruction.opcode] += 1
        if instruction.custom_call_target:
            custom_calls[instruction.custom_call_target] += 1
        if step.loops:
            bodies[step.loops[-1]] += 1
        runs = None if runs is None or step.times is None else runs + step.times
    return Program(
        name=module.name,
        kernels=ops.total(),
        runs=runs,
        ops=MappingProxyType(dict(ops.most_common())),
        custom_calls=MappingProxyType(dict(custom_calls.most_common())),
        loops=tuple(
            Loop(each.name, each.trip_count, bodies[each.name], depth, each.source)
            for each, depth in loops
        ),
        instructions=module.instruction_count,
        lines=module.lines,
        module=module,
    )
