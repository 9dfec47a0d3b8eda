"""Runs chapters with each assert's subject exchanged for its counterpart: each must notice.

A chapter claims something in each cell, e.g. that the eager call makes more launches than the
jitted one. An assert that holds just as well with the two exchanged claims nothing. Here each
assert that held is evaluated again in place, with

- two of its names, keys or places exchanged for each other (`swap`),
- a key exchanged for another key of the same mapping (`sibling`),
- a name exchanged for another of the same kind that the page has defined (`other`),

until one of them makes it false. One that the page itself has seen fail needs no exchange (`seen`).
What no exchange makes false is listed, for a person to judge: a truth value that was computed
before, say. Run by `make exchange`; it takes as long as the chapters do.
"""

import ast
import contextlib
import io
import itertools
import linecache
import numbers
import subprocess
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib
import nbformat

ROOT = Path(__file__).resolve().parent.parent
OTHERS = 12
"""At most so many names of the same type are tried for one name."""


@dataclass
class Outcome:
    """What became of a chapter's asserts.

    Attributes:
        noticed: for each assert, by cell and source, the kind of exchange that made it false.
        deaf: asserts that held and that no exchange made false.
    """

    noticed: dict[tuple[int, str], str] = field(default_factory=dict)
    deaf: set[tuple[int, str]] = field(default_factory=set)


def _evaluate(tree: ast.expr, names: dict[str, Any]) -> bool:
    """Whether an expression is true; one that raises counts as true: it shows nothing."""
    code = compile(ast.fix_missing_locations(ast.Expression(tree)), "<exchanged>", "eval")
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return bool(eval(code, names))
    except Exception:
        return True


def _marks(tree: ast.expr) -> list[ast.Name | ast.Constant]:
    """The names and the strings of an expression, each time that they stand in it."""
    bound = {
        argument.arg
        for node in ast.walk(tree)
        if isinstance(node, ast.arguments)
        for argument in (*node.args, *node.kwonlyargs)
    }
    bound |= {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    places = [node.slice for node in ast.walk(tree) if isinstance(node, ast.Subscript)]
    places += [place.operand for place in places if isinstance(place, ast.UnaryOp)]
    return [
        node
        for node in ast.walk(tree)
        if (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in bound)
        or (isinstance(node, ast.Constant) and isinstance(node.value, str))
        or (isinstance(node, ast.Constant) and node in places)
    ]


def _value(mark: ast.Name | ast.Constant) -> Any:
    return mark.id if isinstance(mark, ast.Name) else mark.value


def _put(mark: ast.Name | ast.Constant, value: Any) -> None:
    if isinstance(mark, ast.Name):
        mark.id = value
    else:
        mark.value = value


@contextlib.contextmanager
def _exchanged(changes: dict[ast.Name | ast.Constant, Any]) -> Iterator[None]:
    before = {mark: _value(mark) for mark in changes}
    for mark, value in changes.items():
        _put(mark, value)
    try:
        yield
    finally:
        for mark, value in before.items():
            _put(mark, value)


def _own(name: str, value: object) -> bool:
    """Whether a page defined this itself: no module, no library's function or class."""
    if name.startswith("_") or isinstance(value, types.ModuleType | type):
        return False
    module, path = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not callable(value) or not isinstance(path, str):
        return True
    return getattr(sys.modules.get(str(module)), path, None) is not value


def _kind(value: object) -> object:
    """What a value can be exchanged for: a function for a function, a number for a number."""
    if callable(value):
        return "function"
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        return "number"
    return type(value)


def _keys_of(tree: ast.expr, mark: ast.Constant, names: dict[str, Any]) -> list[str]:
    """The other keys of the mapping that a string is looked up in."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and node.slice is mark:
            code = compile(ast.fix_missing_locations(ast.Expression(node.value)), "<key>", "eval")
            with contextlib.suppress(Exception):
                mapping = eval(code, names)
                if isinstance(mapping, Mapping):
                    return [key for key in mapping if isinstance(key, str) and key != mark.value]
    return []


def _exchanges(
    tree: ast.expr, names: dict[str, Any]
) -> Iterator[tuple[str, dict[ast.Name | ast.Constant, Any]]]:
    marks = [
        mark
        for mark in _marks(tree)
        if isinstance(mark, ast.Constant) or (mark.id in names and _own(mark.id, names[mark.id]))
    ]
    by_value: dict[tuple[type, Any], list[ast.Name | ast.Constant]] = {}
    for mark in marks:
        by_value.setdefault((type(mark), _value(mark)), []).append(mark)
    for (a, first), (b, second) in itertools.combinations(by_value.items(), 2):
        if a[0] is b[0]:
            yield (
                "swap",
                {
                    **dict.fromkeys(first, b[1]),
                    **dict.fromkeys(second, a[1]),
                },
            )
    for (kind, _), same in by_value.items():
        if kind is ast.Constant:
            for mark in same:
                for key in _keys_of(tree, mark, names):  # pyright: ignore[reportArgumentType]
                    yield "sibling", {mark: key}
    for (kind, value), same in by_value.items():
        if kind is ast.Name:
            others = [
                name
                for name, other in names.items()
                if name != value and _kind(other) == _kind(names[value]) and _own(name, other)
            ]
            for name in others[-OTHERS:]:
                yield "other", dict.fromkeys(same, name)


class _Probes(ast.NodeTransformer):
    """Lets a probe see what each assert found, and the names that it was about."""

    def visit_Assert(self, node: ast.Assert) -> ast.Assert:
        probe = ast.parse(f"__probe__({ast.unparse(node.test)!r}, 0, {{**globals(), **locals()}})")
        (call,) = probe.body
        assert isinstance(call, ast.Expr)
        assert isinstance(call.value, ast.Call)
        call.value.args[1] = node.test
        return ast.copy_location(ast.Assert(call.value, node.msg), node)


def run(chapter: Path) -> Outcome:
    """Run a chapter's cells, then try its asserts again with their subjects exchanged.

    Only at the end, since what an assert calls may compile something that a later cell counts.

    Raises:
        Exception: whatever a cell raises; an assert that does not hold among it.
    """
    outcome = Outcome()
    held: list[tuple[tuple[int, str], dict[str, Any]]] = []
    page = types.ModuleType("__page__")
    sys.modules["__page__"] = page
    cells = [
        cell
        for cell in nbformat.read(chapter, as_version=4).cells
        if cell.cell_type == "code" and "bootstrap" not in cell.metadata.get("tags", ())
    ]
    number = 0

    def probe(source: str, found: object, names: dict[str, Any]) -> bool:
        if found:
            held.append(((number, source), names))
        else:
            outcome.noticed[(number, source)] = "seen"
        return bool(found)

    page.__dict__["__probe__"] = probe
    for number, cell in enumerate(cells, 1):
        tree = ast.fix_missing_locations(_Probes().visit(ast.parse(cell.source)))
        file, lines = f"<cell {number}>", cell.source.splitlines(keepends=True)
        linecache.cache[file] = (len(cell.source), None, lines, file)  # pages quote their lines
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(tree, file, "exec"), page.__dict__)
    for where, names in held:
        if where not in outcome.noticed:
            kind = _noticing(where[1], names)
            if kind is not None:
                outcome.noticed[where] = kind
    outcome.deaf = {where for where, _ in held} - outcome.noticed.keys()
    return outcome


def _noticing(source: str, names: dict[str, Any]) -> str | None:
    """Return the kind of exchange that makes an assert false which holds without one."""
    tree = ast.parse(source, mode="eval").body
    if not _evaluate(tree, names):
        return None
    for kind, changes in _exchanges(tree, names):
        with _exchanged(changes):
            if not _evaluate(tree, names):
                return kind
    return None


def report(chapter: Path) -> None:
    outcome = run(chapter)
    kinds = list(outcome.noticed.values())
    counts = ", ".join(
        f"{kinds.count(kind)} by {kind}" for kind in ("swap", "sibling", "other", "seen")
    )
    total = len(kinds) + len(outcome.deaf)
    print(f"{chapter.stem}: {len(kinds)} of {total} asserts notice an exchange ({counts})")
    for cell, source in sorted(outcome.deaf):
        print(f"    cell {cell}: assert {source}")


def main() -> int:
    matplotlib.use("agg")
    chosen = [Path(name) for name in sys.argv[1:]]
    chapters = chosen or sorted((ROOT / "book/chapters").glob("*.ipynb"))
    if len(chapters) == 1:
        report(chapters[0])
        return 0
    # Each in a process of its own, as its readers run it: settings and compiled programs stay.
    codes = [
        subprocess.run([sys.executable, __file__, chapter], check=False).returncode
        for chapter in chapters
    ]
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
