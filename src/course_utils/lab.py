"""What a lab is: everything that is particular to one lab, as data and plain functions.

It knows neither how a submission is run nor how a report is shown. The list of labs is in
`course_utils.labs`.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from course_utils import integrity
from course_utils.findings import Finding

Functions = Mapping[str, Callable[..., Any]]
"""A submission: the functions that a lab asks for, by entry point."""


@dataclass(frozen=True)
class Entry:
    """A function that the learner writes.

    Attributes:
        name: its name in the notebook and in `grade(…, name=function)`.
        parameters: the names of its parameters, which are passed by position.
    """

    name: str
    parameters: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.parameters)})"

    def problem(self, function: object) -> str | None:
        """Return in one sentence why `function` cannot be this entry point, or None."""
        if not callable(function):
            return (
                f"`{self.name}` must be a function {self}; "
                f"what came is a {type(function).__name__}."
            )
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):  # some callables written in C have none
            return None
        try:
            signature.bind(*self.parameters)
        except TypeError:
            return f"`{self.name}` must take {self}; yours takes {self.name}{signature}."
        return None


@dataclass(frozen=True)
class Size:
    """How large a lab is on one kind of device.

    Attributes:
        config: whatever the lab's own functions need to know, e.g. a model's sizes.
        items: items (crops, frames, steps) of one pass, on which things are counted.
        timed_items: items of one timed call: few, since the broken code is slow.
    """

    config: Any
    items: int
    timed_items: int


class Check(Protocol):
    """A requirement on what was measured; see `course_utils.checks`."""

    @property
    def name(self) -> str:
        """The check's name, unique in its lab."""
        ...

    @property
    def stage(self) -> int:
        """When it is looked at: in order of trust."""
        ...

    def run(self, session: Any, /) -> Finding:
        """Measure through the session, and judge."""
        ...


@dataclass(frozen=True)
class Lab:
    """One lab.

    Attributes:
        name: its identifier: module, notebook and `grade` all use it.
        title: what it is called on the page.
        family: the failure family that it teaches.
        minutes: how long a learner takes.
        difficulty: 1 (one change) to 3.
        goal: what one learns, in one sentence.
        item: what a pass consists of, in the singular: `"crop"`.
        entries: what the learner writes.
        broken: the code as shipped.
        solution: the reference fix.
        sizes: by device kind; must have `"cpu"`, which is used for kinds that are not listed.
        prepare: `(config, seed) -> setting`, made once per grade: models, fixed data.
        arguments: `(size, setting, rng, items) -> args` of one call, new values each time.
        oracle: `(*args) -> result` in high precision; what metrics compare with.
        checks: what is required, in any order; they run in order of trust.
        time_limit: seconds that one pass of the submission may take.
        drive: `(functions, args) -> result`: runs one pass on the arguments; by default one call
            of the first entry point. What it launches itself counts as the submission's, so it
            should launch nothing: hand it batches in a list, not an array to cut up.
        argument_names: the names of a pass's arguments, for messages; by default the first entry
            point's parameters.
        full_size: the arguments of one call as shapes alone, at the size that people run; an X-ray
            reads the memory that a card would need for it.
        consumes: whether a submission may donate its arguments, as a training step does. Then
            everybody gets copies of their own.
        may_be_non_finite: whether results with NaN in them are let through to the checks, for a lab
            that counts them. Elsewhere such a result ends the grade.
        shows_launches: whether launches per item say something about this lab; then a card shows
            them for broken, submission and solution.
    """

    name: str
    title: str
    family: str
    minutes: int
    difficulty: int
    goal: str
    item: str
    entries: tuple[Entry, ...]
    broken: Functions
    solution: Functions
    sizes: Mapping[str, Size]
    prepare: Callable[[Any, int], Any]
    arguments: Callable[[Size, Any, np.random.Generator, int], tuple[Any, ...]]
    oracle: Callable[..., Any]
    checks: tuple[Check, ...]
    time_limit: float = 60.0
    drive: Callable[[Functions, tuple[Any, ...]], Any] | None = None
    argument_names: tuple[str, ...] = ()
    full_size: Callable[[], tuple[Any, ...]] | None = None
    consumes: bool = False
    may_be_non_finite: bool = False
    shows_launches: bool = True

    def __post_init__(self) -> None:
        """Keep what the grade relies on out of a notebook's reach."""
        for name in ("broken", "solution", "sizes"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        integrity.remember_lab(self, next(iter(self.broken.values())))

    def call(self, functions: Functions, args: tuple[Any, ...]) -> Any:
        """Run one pass of a submission on `args`."""
        if self.drive is not None:
            return self.drive(functions, args)
        return functions[self.entries[0].name](*args)
