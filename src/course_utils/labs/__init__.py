"""The list of labs: one module each, loaded when it is asked for."""

import difflib
import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from course_utils.lab import Lab

NAMES = (
    "eager_crops",
    "eager_training",
    "underfused_tracks",
    "underfused_rollout",
    "boundary_pipeline",
    "boundary_views",
    "partitioning_tracker",
    "partitioning_second_step",
    "parity_gate",
    "parity_nan",
    "measurement_benchmark",
    "measurement_budget",
)
"""Every lab, in the order of the course."""


def get(name: str) -> "Lab":
    """Return a lab by its name.

    Raises:
        LookupError: there is no such lab; the message names the nearest and lists all.
    """
    if name not in NAMES:
        near = difflib.get_close_matches(str(name), NAMES, 1)
        guess = f"; did you mean {near[0]!r}?" if near else "."
        raise LookupError(f"no lab called {name!r}{guess} The labs are: {', '.join(NAMES)}")
    return importlib.import_module(f"course_utils.labs.{name}").LAB
