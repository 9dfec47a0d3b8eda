"""Two functions, and a title that is no plain constant."""

import dataclasses

from course_utils.lab import Entry, Lab
from tests.cli_labs import double

_TITLE = "Two functions"


def _drive(functions, args):
    return functions["halve"](functions["double"](functions["double"](*args)))


_PAIR = {"double": double.solution_double, "halve": lambda x: x / 2}
LAB = Lab(
    **{
        each.name: getattr(double.LAB, each.name)
        for each in dataclasses.fields(Lab)
        if each.name not in {"name", "title", "entries", "broken", "solution", "checks", "drive"}
    },
    name="pair",
    title=_TITLE,
    entries=(Entry("double", ("x",)), Entry("halve", ("x",))),
    broken=_PAIR,
    solution=_PAIR,
    checks=double.LAB.checks[:1],
    drive=_drive,
)
