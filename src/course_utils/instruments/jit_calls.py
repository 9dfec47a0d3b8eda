"""Which jitted functions inside somebody else's code compiled, and why again?

A grader calls the learner's outer function; what compiles again may be a jit inside it. This
instrument records the calls that miss a cache, at any depth, and explains them with `retrace`.
Where the running JAX has no known place to watch (`_private_calls`), only the names of what
compiled are known.
"""

import contextlib
import dataclasses
import types
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from course_utils.instruments import _private_calls
from course_utils.instruments._caches import living_jits
from course_utils.instruments._frames import Line, Owner
from course_utils.instruments._signatures import (
    CallSignature,
    call_signature,
    function_name,
    innermost,
)
from course_utils.instruments.compiles import CompileCounter, count_compiles
from course_utils.instruments.retrace import Recompile, explain_recompiles

_made_inside: weakref.WeakValueDictionary[int, Callable[..., Any]] = weakref.WeakValueDictionary()
"""Functions that a block saw and that were made inside one: so they stay if a cache keeps them."""


@dataclass(frozen=True, slots=True)
class JitCall:
    """A call of a jitted function that JAX's cache did not serve.

    Attributes:
        name: the function's name.
        origin: what it counts as. A function that was jitted before the block is itself, also where
            another was made by the same code; those made inside it count as one if their code is.
        signature: what its cache key is made of.
        line: the learner's line that called it, where known.
        compiled: whether XLA compiled it then.
        is_library: whether its code is JAX's or Equinox's own, as with an eager operation.
    """

    name: str
    origin: Hashable
    signature: CallSignature
    line: Line | None
    compiled: bool
    is_library: bool


@dataclass(frozen=True, slots=True)
class JitCalls:
    """What missed the cache inside one `record_jit_calls` block.

    Attributes:
        calls: every call that missed, in order; empty when they cannot be watched.
        compiled_names: names of everything that XLA compiled, in order.
        can_explain: whether this JAX lets calls be watched; without it only names are known.
    """

    calls: tuple[JitCall, ...]
    compiled_names: tuple[str, ...]
    can_explain: bool

    def recompiles(self, *, library: bool = False) -> tuple[Recompile, ...]:
        """Explain each compile of a function that had compiled before.

        Args:
            library: whether functions of JAX and Equinox themselves (eager operations) count.

        Returns:
            In the order of the compiles; `call` and `nearest` number the recorded calls. Without
            `can_explain`, one entry for each name compiled more than once, without changes.
        """
        if not self.can_explain:
            return _by_name_only(self.compiled_names)
        groups: dict[tuple[str, Hashable], list[int]] = {}
        for number, call in enumerate(self.calls):
            if call.compiled and (library or not call.is_library):
                groups.setdefault((call.signature.rules, call.origin), []).append(number)
        found = []
        for numbers in groups.values():
            signatures = [self.calls[number].signature for number in numbers]
            for each in explain_recompiles(signatures, range(len(numbers))):
                call = self.calls[numbers[each.call]]
                nearest = None if each.nearest is None else numbers[each.nearest]
                found.append(
                    Recompile(call.name, numbers[each.call], nearest, each.changes, call.line)
                )
        return tuple(sorted(found, key=lambda each: each.call))


def _by_name_only(names: Sequence[str]) -> tuple[Recompile, ...]:
    return tuple(
        Recompile(name, number, None, ())
        for number, name in enumerate(names)
        if name in names[:number]
    )


class JitCallRecorder:
    """Running record of a `record_jit_calls` block; call it for the result so far."""

    def __init__(self, owner: Owner, compiles: CompileCounter, *, can_explain: bool) -> None:
        self._owner = owner
        self._compiles = compiles
        self._can_explain = can_explain
        self._misses: list[tuple[int, JitCall]] = []
        wrapped = (getattr(each, "__wrapped__", None) for each in living_jits())
        self._before = {id(each): each for each in wrapped if each is not None}  # kept: `id`s hold

    def _miss(self, miss: _private_calls.Miss) -> None:
        inner = miss.function
        written = innermost(inner)
        code = getattr(written, "__code__", None)
        name = function_name(written)
        file = code.co_filename if isinstance(code, types.CodeType) else ""
        signature = call_signature(
            miss.args,
            miss.kwargs,
            function=inner,
            rules=miss.rules,
            static_argnums=miss.static_argnums,
            static_argnames=miss.static_argnames,
        )
        is_library = _private_calls.is_library(file)
        made_before = id(inner) in self._before and _made_inside.get(id(inner)) is not inner
        if not made_before:
            with contextlib.suppress(TypeError):  # some callables cannot be watched
                _made_inside[id(inner)] = inner
        call = JitCall(
            name=name,
            origin=id(inner) if made_before and not is_library else (file, name, code),
            signature=signature,
            line=self._owner.line(2),
            compiled=False,
            is_library=is_library,
        )
        self._misses.append((self._compiles().count, call))

    def __call__(self) -> JitCalls:
        """Return what was recorded so far."""
        names = self._compiles().names
        calls: list[JitCall] = []
        for number, (start, call) in enumerate(self._misses):
            later = (begin for begin, each in self._misses[number + 1 :] if each.name == call.name)
            compiled = call.name in names[start : next(later, len(names))]
            calls.append(dataclasses.replace(call, compiled=compiled))
        return JitCalls(tuple(calls), names, self._can_explain)


@contextlib.contextmanager
def record_jit_calls(owner: Owner | None = None) -> Iterator[JitCallRecorder]:
    """Record the calls of jitted functions that miss JAX's cache while the block runs.

    Sees `jax.jit` and `eqx.filter_jit` functions at any depth of the code that runs, in every
    thread, but not those traced as part of another. Start it before the function's first call:
    what compiled earlier is not known.

    Args:
        owner: tells the learner's lines from library lines; by default any line outside installed
            packages is the learner's.

    Yields:
        A recorder; call it, inside the block or after it, for a `JitCalls`.
    """
    can_explain = _private_calls.can_watch_misses()
    with count_compiles() as compiles:
        recorder = JitCallRecorder(owner or Owner(), compiles, can_explain=can_explain)
        if not can_explain:
            yield recorder
            return
        with _private_calls.watch_misses(recorder._miss):
            yield recorder
