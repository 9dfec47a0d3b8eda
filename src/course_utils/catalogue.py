"""What can be said of each lab without loading it: title, family, minutes, difficulty, goal.

A lab module imports JAX, which takes most of a second. The facts stand in it as plain constants of
`LAB = Lab(…)`, so they are read from its source text; only where one is not a plain constant is the
module loaded. The lab module stays the one source of every fact.
"""

import ast
import importlib
import importlib.util
from dataclasses import dataclass, fields
from typing import Any

REGISTRY = "course_utils.labs"
"""Module that lists the labs, with `NAMES` and `get`."""


@dataclass(frozen=True)
class Entry:
    """A lab, as the list of labs shows it; each attribute is the lab's own of that name."""

    name: str
    title: str
    family: str
    minutes: int
    difficulty: int
    goal: str


_FACTS = tuple(each.name for each in fields(Entry))


def entries(registry: str = REGISTRY) -> tuple[Entry, ...]:
    """Return every lab, in the order of the course."""
    labs = importlib.import_module(registry)
    return tuple(_entry(registry, labs, name) for name in labs.NAMES)


def _entry(registry: str, labs: Any, name: str) -> Entry:
    facts = _constants(f"{registry}.{name}")
    if facts.keys() >= set(_FACTS):
        return Entry(**{fact: facts[fact] for fact in _FACTS})
    lab = labs.get(name)
    return Entry(**{fact: getattr(lab, fact) for fact in _FACTS})


def _constants(module: str) -> dict[str, Any]:
    """Return the constant keyword arguments of the call that makes a module's `LAB`."""
    spec = importlib.util.find_spec(module)
    source = getattr(spec and spec.loader, "get_source", lambda _: None)(module)
    for statement in ast.parse(source or "").body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="LAB")], value=ast.Call(keywords=keywords)):
                return {
                    keyword.arg: keyword.value.value
                    for keyword in keywords
                    if keyword.arg is not None and isinstance(keyword.value, ast.Constant)
                }
            case _:
                continue
    return {}
