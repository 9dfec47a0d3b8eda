"""Readings of a scripted clock, which know when one is subtracted from another.

They are numbers that remember, through negation, sums and differences, which readings are in them
and with which sign. Two of opposite signs are noted as a difference, and the number forgets them.
It knows nothing of what is timed.
"""

from collections.abc import Callable
from typing import Any

Note = Callable[[int, int], None]
"""Called with the places of two readings in the order of reading, the earlier one first."""


class Noted:
    """A number with readings of the clock in it."""

    _note: Note
    _signs: dict[int, int]

    def __neg__(self) -> Any:
        return self._with(-_plain(self), {index: -sign for index, sign in self._signs.items()})

    def __pos__(self) -> Any:
        return self

    def __add__(self, other: Any) -> Any:
        return self._joined(_plain(self) + _plain(other), self, other)

    def __radd__(self, other: Any) -> Any:
        return self._joined(_plain(other) + _plain(self), other, self)

    def __sub__(self, other: Any) -> Any:
        return self._joined(_plain(self) - _plain(other), self, other, sign=-1)

    def __rsub__(self, other: Any) -> Any:
        return self._joined(_plain(other) - _plain(self), other, self, sign=-1)

    def _joined(self, value: Any, one: Any, other: Any, sign: int = 1) -> Any:
        """Return a sum that has the readings of both, less those that make a difference."""
        signs = dict(_signs(one))
        for index, own in _signs(other).items():
            opposite = next((each for each in reversed(signs) if signs[each] == -sign * own), None)
            if opposite is None:
                signs[index] = sign * own
                continue
            del signs[opposite]
            self._note(min(index, opposite), max(index, opposite))
        return self._with(value, signs)

    def _with(self, value: Any, signs: dict[int, int]) -> Any:
        kind = {float: Reading, int: WholeReading}.get(type(value)) if signs else None
        return value if kind is None else _made(kind(value), self._note, signs)


class Reading(Noted, float):
    """In seconds."""


class WholeReading(Noted, int):
    """In whole nanoseconds."""


def reading(value: float, index: int, note: Note) -> Any:
    """Return a reading of the clock, in the type of its value.

    Args:
        value: what the clock shows, seconds as a float or whole nanoseconds as an int.
        index: how many readings came before it.
        note: called with each difference between readings.
    """
    made = Reading(value) if isinstance(value, float) else WholeReading(value)
    return _made(made, note, {index: 1})


def _made(number: Any, note: Note, signs: dict[int, int]) -> Any:
    number._note, number._signs = note, signs
    return number


def _signs(value: Any) -> dict[int, int]:
    return value._signs if isinstance(value, Noted) else {}


def _plain(value: Any) -> Any:
    if not isinstance(value, Noted):
        return value
    return float(value) if isinstance(value, float) else int(value)  # pyright: ignore
