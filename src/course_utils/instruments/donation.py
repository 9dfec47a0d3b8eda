"""How many bytes of their arguments did the launches of a piece of code write over?

A launch that was given a buffer to write over deletes the array that held it; JAX leaves alone what
it could not use. So the arrays deleted by a launch are what was donated to it and used, whatever
kind of jit launched it. Whether that saved anything is seen at the end: what is returned stands
where an argument stood then. It knows nothing of how much could have been donated.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from course_utils.instruments import _private
from course_utils.instruments.timing import wait


@dataclass(frozen=True, slots=True)
class Donations:
    """What the launches of one block took over from their arguments.

    Attributes:
        bytes: size of all arrays that a launch deleted because it wrote over them.
        donating: launches that wrote over at least one argument.
        launches: all launches.
    """

    bytes: int
    donating: int
    launches: int


def donations_of(
    call: Callable[[], Any], counts: Callable[[jax.Array], bool] = lambda array: True
) -> Donations:
    """Run some code and add up what its launches wrote over.

    Args:
        call: the code; its result is waited for.
        counts: whether an array that was written over counts; by default each does.

    Returns:
        Bytes and launches.

    Raises:
        LookupError: this JAX has no known place where launches can be watched.

    Example:
        >>> import jax.numpy as jnp
        >>> add = jax.jit(lambda total, x: total + x, donate_argnums=0)
        >>> total, x = jnp.zeros(1024), jnp.ones(1024)
        >>> donations_of(lambda: add(total, x)).bytes
        4096
    """
    taken: list[int] = []

    def fast(_function: Any, args: Any, kwargs: Any) -> None:
        taken.append(_deleted_bytes((args, kwargs), counts))

    def after_slow(_executable: Any, args: Any) -> None:
        taken.append(_deleted_bytes(args, counts))

    with _private.watch_launches(fast, lambda *_: None, after_slow):
        wait(call())
    return Donations(sum(taken), sum(each > 0 for each in taken), len(taken))


class HandedOn:
    """Adds up what the calls of functions return in the memory of arguments that are gone.

    An argument whose memory went to a copy of it, from which the result was then computed beside
    it, does not count: nothing was saved.

    Attributes:
        bytes: size of those returned arrays, of all calls so far.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._given: dict[int, jax.Array] = {}  # kept, so that no other array gets their `id`

    def was_given(self, array: jax.Array) -> bool:
        """Whether an array was an argument of one of the calls, not made by the function itself."""
        return id(array) in self._given

    def watching(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, each call of which is looked at."""

        def called(*args: Any) -> Any:
            given = _arrays(args)
            self._given.update((id(leaf), leaf) for leaf in given)
            places = {place: leaf for leaf in given for place in _places(leaf)}
            result = function(*args)
            self.bytes += sum(
                leaf.nbytes
                for leaf in _arrays(result)
                if any(place in places and places[place].is_deleted() for place in _places(leaf))
            )
            return result

        return called


def _arrays(tree: Any) -> list[jax.Array]:
    """Return the arrays in a tree, each once."""
    leaves = (leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array))
    return list({id(leaf): leaf for leaf in leaves}.values())


def _places(array: jax.Array) -> list[int]:
    """Return the addresses of an array's memory, one for each device; waits until it is there."""
    if array.is_deleted() or jax.numpy.issubdtype(array.dtype, jax.dtypes.extended):
        return []
    return [each.data.unsafe_buffer_pointer() for each in array.addressable_shards]


def _deleted_bytes(args: Any, counts: Callable[[jax.Array], bool]) -> int:
    """Return the size of the arrays in a launch's arguments that are gone after it."""
    return sum(leaf.nbytes for leaf in _arrays(args) if leaf.is_deleted() and counts(leaf))
