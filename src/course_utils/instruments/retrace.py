"""Why did a jitted function compile again: what differs between two of its calls?

`call_signature` copies what a call is cached under; `explain` names every difference between two of
them by the path that the learner would write; `explain_recompiles` does it for a stream of calls.
JAX's own explanation (`jax_explain_cache_misses`) is silent on placement and differs between
versions. Which call compiled is not known here: that is `compiles`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from course_utils.instruments._frames import Line
from course_utils.instruments._signatures import (
    ArrayType,
    CallSignature,
    Entry,
    FunctionIdentity,
    Node,
    Omitted,
    Rules,
    StaticValue,
    call_signature,
)

__all__ = [
    "CallSignature",
    "Change",
    "Kind",
    "Recompile",
    "Rules",
    "call_signature",
    "explain",
    "explain_recompiles",
]

Kind = Literal[
    "shape",
    "dtype",
    "weak type",
    "static value",
    "function identity",
    "tree structure",
    "placement",
    "call spelling",
]

_PHRASES: dict[Kind, str] = {
    "shape": "changed its shape",
    "dtype": "changed its dtype",
    "weak type": "changed its weak type",
    "static value": "is a static value",
    "function identity": "is another function object",
    "tree structure": "changed its tree structure",
    "placement": "changed its placement",
    "call spelling": "is passed another way",
}


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between two calls.

    Attributes:
        path: where, as the learner would write it, for example `state[2]['rate']`; for a function
            that is itself another object, its name.
        kind: what kind of difference.
        before: how it was in the earlier call.
        after: how it is in the later call.
    """

    path: str
    kind: Kind
    before: str
    after: str

    def sentence(self) -> str:
        """Say it in one plain sentence, without a full stop."""
        what = "" if self.kind == "function identity" else "argument "
        return (
            f"{what}`{self.path}` {_PHRASES[self.kind]}: "
            f"it was {self.before} and is now {self.after}"
        )


@dataclass(frozen=True, slots=True)
class Recompile:
    """One compile of a function that had compiled before.

    Attributes:
        name: the function's name.
        call: number of the call that compiled, from 0.
        nearest: number of the earlier call that differs least from it; None when no earlier call
            is known.
        changes: what changed since the nearest call; empty when nothing in the call did.
        line: the learner's line that made the call, where known.
    """

    name: str
    call: int
    nearest: int | None
    changes: tuple[Change, ...]
    line: Line | None = None

    def sentence(self) -> str:
        """Say why in one plain sentence, without a full stop."""
        if self.changes:
            why = "; ".join(change.sentence() for change in self.changes)
        elif self.nearest is None:
            why = "no earlier call of it was seen"
        else:
            why = (
                "nothing in the call changed; the cache was cleared, a setting of JAX changed, or "
                "it was lowered and compiled by hand again"
            )
        return f"`{self.name}` compiled again: {why}"


def explain(before: CallSignature, after: CallSignature) -> tuple[Change, ...]:
    """Name every difference between two calls that makes their cache keys differ.

    Args:
        before: the earlier call.
        after: the later call.

    Returns:
        The changes in the order of the arguments; empty when a cache would take the two calls for
        one (other values of the same array types, NumPy in place of JAX arrays).
    """
    changes: list[Change] = []
    strict = after.rules == "jit"
    if before.function and after.function and before.function.parts != after.function.parts:
        changes.append(_function_change(after.name or "function", before.function, after.function))
    gone: list[str] = []  # paths whose inside is not worth comparing any more
    for path in dict.fromkeys((*before.entries, *after.entries)):
        if any(path.startswith((f"{each}.", f"{each}[")) for each in gone):
            continue
        old, new = before.entries.get(path), after.entries.get(path)
        found = _compare(path, old, new, strict=strict)
        if isinstance(old, Node | Omitted) or isinstance(new, Node | Omitted) or None in (old, new):
            gone += [path] if found else []
        changes += found
        if not found and before.spelling.get(path) != after.spelling.get(path):
            old_way, new_way = before.spelling.get(path), after.spelling.get(path)
            if old_way and new_way:
                changes.append(Change(path, "call spelling", old_way, new_way))
    hashes = (before.structure, after.structure)
    if not changes and None not in hashes and hashes[0] != hashes[1]:
        where = next(iter(after.spelling), after.name)
        changes.append(
            Change(where, "tree structure", "a tree with other static data", "another tree")
        )
    return tuple(changes)


def _compare(path: str, old: Entry | None, new: Entry | None, *, strict: bool) -> list[Change]:
    changes: list[Change] = []
    match old, new:
        case (Omitted(), Omitted()):
            pass
        case (Omitted(), _) if new is not None:
            changes = [Change(path, "call spelling", str(old), "passed")]
        case (_, Omitted()) if old is not None:
            changes = [Change(path, "call spelling", "passed", str(new))]
        case (Node(), Node()):
            if (old.type, old.keys) != (new.type, new.keys):
                changes = [Change(path, "tree structure", str(old), str(new))]
        case (ArrayType(), ArrayType()):
            changes = _array_changes(path, old, new)
        case (FunctionIdentity(), FunctionIdentity()):
            if old.parts != new.parts:
                changes = [_function_change(path, old, new)]
        case (StaticValue(), StaticValue()):
            changes = _static_changes(path, old, new, strict=strict)
        case _:
            is_tree = any(isinstance(each, Node | None) for each in (old, new))
            kind: Kind = "tree structure" if is_tree else "static value"
            changes = [Change(path, kind, _describe(old), _describe(new))]
    return changes


def _static_changes(path: str, old: StaticValue, new: StaticValue, *, strict: bool) -> list[Change]:
    if old.same(new, strict=strict):
        return []
    if old.type is not new.type or not old.items or not new.items or old.steps != new.steps:
        return [Change(path, "static value", *_told_apart(old, new))]
    changes: list[Change] = []
    for step, mine, theirs in zip(old.steps, old.items, new.items, strict=True):
        changes += _compare(path + step, mine, theirs, strict=strict)
    return changes


def _array_changes(path: str, old: ArrayType, new: ArrayType) -> list[Change]:
    changes = []
    if old.shape != new.shape:
        changes.append(Change(path, "shape", str(old), str(new)))
    if old.dtype != new.dtype:
        changes.append(Change(path, "dtype", old.dtype, new.dtype))
    if old.weak_type != new.weak_type:
        strengths = {True: "weak", False: "strong"}
        changes.append(
            Change(
                path,
                "weak type",
                f"{strengths[old.weak_type]} {old.dtype}",
                f"{strengths[new.weak_type]} {new.dtype}",
            )
        )
    if old.placement != new.placement:
        changes.append(Change(path, "placement", old.placement, new.placement))
    return changes


def _function_change(path: str, old: FunctionIdentity, new: FunctionIdentity) -> Change:
    def told(each: FunctionIdentity) -> str:
        return f"`{each.name}`" + (f" ({each.where})" if each.where else "")

    if path.rpartition(".")[2].startswith("_"):  # where a transformation keeps its function
        path = new.name
    if (old.name, old.where) == (new.name, new.where):
        return Change(path, "function identity", told(old), "a new object of the same code")
    return Change(path, "function identity", told(old), told(new))


def _told_apart(old: StaticValue, new: StaticValue) -> tuple[str, str]:
    """Texts of two values that differ, with what tells them apart when the texts do not."""
    if old.text != new.text:
        return old.text, new.text
    if old.type is not new.type:
        return f"{old.text} ({old.type.__name__})", f"{new.text} ({new.type.__name__})"
    return old.text, f"another {new.type.__name__} object, not equal to the first"


def _describe(entry: Entry | None) -> str:
    match entry:
        case None:
            return "absent"
        case FunctionIdentity():
            return f"`{entry.name}`"
        case StaticValue():
            return f"the static {entry.text}"
        case ArrayType():
            return f"an array {entry}"
        case _:
            return str(entry)


def explain_recompiles(
    signatures: Sequence[CallSignature], compiled: Iterable[int], *, name: str = ""
) -> tuple[Recompile, ...]:
    """Explain the compiles of a stream of calls by what changed since the nearest earlier call.

    Args:
        signatures: of the calls in order.
        compiled: numbers of the calls that compiled, from 0.
        name: the function's name; by default as the signatures have it.

    Returns:
        One entry for each compile after the first call's.
    """
    found = []
    for call in sorted(set(compiled)):
        if call == 0:
            continue
        changes, nearest = min(
            ((explain(signatures[earlier], signatures[call]), earlier) for earlier in range(call)),
            key=lambda pair: (len(pair[0]), -pair[1]),
        )
        title = name or signatures[call].name or "the function"
        found.append(Recompile(title, call, nearest, changes))
    return tuple(found)
