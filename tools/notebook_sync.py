"""Keeps the notebooks' shared cells equal to their one source.

The source of a lab's student cell is the lab's module; of the set-up cell, `bootstrap_cell.py`; of
every other cell of a solution, the lab's notebook, with its links led from the other folder. Reads
modules as text and never imports them.
"""

import ast
import copy
import io
import json
import os
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from notebook_form import (
    Kind,
    Tree,
    code_digest,
    dump,
    normalise,
    problems,
    read,
    tagged,
    tags,
    write,
)

BOOTSTRAP_SOURCE = Path(__file__).with_name("bootstrap_cell.py")
_RELATIVE_LINK = re.compile(r"\]\((?![a-z]+:|/|#)([^)\s]+)")
#: The region of a lab's module, and the prefix of its names, that each notebook shows.
PREFIXES = {"lab": "broken", "solution": "solution"}


@dataclass
class Plan:
    """What the notebooks should hold, and in what they differ from it today."""

    notebooks: dict[Path, NotebookNode] = field(default_factory=dict)
    drifts: list[str] = field(default_factory=list)


def region(path: Path, name: str) -> str:
    """The text between `# region NAME` and the next `# endregion` of a file.

    Args:
        path: the file.
        name: the region's name.

    Returns:
        The lines between the marks, without blank lines at either end.

    Raises:
        ValueError: when the file has not exactly one such region, or it is not closed.
    """
    text = path.read_text(encoding="utf-8")
    parts = re.split(rf"^# region {re.escape(name)}[ \t]*\n", text, flags=re.MULTILINE)
    if len(parts) != 2:
        raise ValueError(f"{path.name}: expected one '# region {name}', found {len(parts) - 1}.")
    body, mark, _ = parts[1].partition("# endregion")
    if not mark:
        raise ValueError(f"{path.name}: '# region {name}' is not closed by '# endregion'.")
    return body.strip("\n")


def without_prefix(code: str, prefix: str) -> str:
    """Code as the learner sees it: `broken_predict` reads `predict`.

    Args:
        code: Python code.
        prefix: what names begin with, without the underscore.

    Returns:
        The code with the prefix taken off every whole name that begins with it, formatted.

    Raises:
        ValueError: when no function of the code has the prefix, or a shortened name is one that
            the code already uses for something else.
    """
    if not entry_points(code, prefix):
        raise ValueError(f"no function of the region has a name that begins with '{prefix}_'.")
    names = {
        token.string
        for token in tokenize.generate_tokens(io.StringIO(code).readline)
        if token.type == tokenize.NAME
    }
    clashes = {name for name in names if f"{prefix}_{name}" in names}
    if clashes:
        raise ValueError(
            f"without '{prefix}_' the names {', '.join(sorted(clashes))} would clash with others "
            "of the region; rename one."
        )
    return formatted(re.sub(rf"\b{prefix}_(?=[A-Za-z_])", "", code))


def entry_points(code: str, prefix: str) -> list[str]:
    """The names, without prefix, of the code's top-level functions that have the prefix."""
    functions = [node.name for node in ast.parse(code).body if isinstance(node, ast.FunctionDef)]
    return [name.removeprefix(f"{prefix}_") for name in functions if name.startswith(f"{prefix}_")]


def formatted(code: str) -> str:
    """Code as `ruff format` leaves it in a notebook's cell."""
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", "tools/cell.py", "-"]
    root = BOOTSTRAP_SOURCE.parent.parent
    done = subprocess.run(
        command, input=code, capture_output=True, text=True, check=True, cwd=root, encoding="utf-8"
    )
    return done.stdout.strip("\n")


def plan(tree: Tree) -> Plan:
    """What `sync` would write, and each difference from what is there.

    Args:
        tree: the checkout.

    Returns:
        Every notebook as it should be, and one sentence for each drift.
    """
    result = Plan()
    result.drifts += [
        f"{tree.name(path)}: not in normal form; run make sync"
        for path in tree.notebooks()
        if not _in_normal_form(tree, path)
    ]
    bootstrap = region(BOOTSTRAP_SOURCE, "bootstrap")
    for path in tree.chapters():
        notebook = read(path)
        _sync_bootstrap(notebook, "chapter", bootstrap, tree.name(path), result.drifts)
        normalise(notebook, "chapter", path.stem)
        result.notebooks[path] = notebook
    for lab in lab_names(tree):
        _plan_lab(tree, lab, bootstrap, result)
    return result


def lab_names(tree: Tree) -> list[str]:
    """Every lab that has a module with the marked regions, a notebook or a solution."""
    modules = sorted(tree.module("_").parent.glob("*.py"))
    marked = [path for path in modules if "# region student-" in path.read_text(encoding="utf-8")]
    notebooks = [path for path in tree.notebooks() if tree.kind(path) != "chapter"]
    return sorted({path.stem for path in [*marked, *notebooks]})


def _plan_lab(tree: Tree, lab: str, bootstrap: str, result: Plan) -> None:
    path, solution_path = tree.lab(lab), tree.solution(lab)
    if not path.is_file():
        result.drifts.append(f"{tree.name(path)}: missing; make it with make new-lab NAME={lab}")
        return
    notebook = read(path)
    _sync_bootstrap(notebook, "lab", bootstrap, tree.name(path), result.drifts)
    _sync_student(tree, notebook, path, _student_source(notebook), result.drifts)
    normalise(notebook, "lab", lab)
    result.notebooks[path] = notebook

    stored = read(solution_path) if solution_path.is_file() else None
    solution = _without_outputs(notebook)
    _move_links(solution, path.parent, solution_path.parent)
    _sync_student(tree, solution, solution_path, _student_source(stored), result.drifts)
    if stored is not None:
        _restore_outputs(solution, stored)
        for number, (new, old) in enumerate(zip_longest(solution.cells, stored.cells), start=1):
            if _differ(new, old):
                result.drifts.append(
                    f"{tree.name(solution_path)}: cell {number} differs from the lab's; "
                    "edit the lab's notebook, then run make sync"
                )
    normalise(solution, "solution", lab)
    result.notebooks[solution_path] = solution


def _sync_student(
    tree: Tree, notebook: NotebookNode, path: Path, stored: str | None, drifts: list[str]
) -> None:
    """Write the student cell from the module's region; `stored` is what is there today."""
    prefix = PREFIXES[tree.kind(path)]
    module = tree.module(path.stem)
    try:
        code = without_prefix(region(module, f"student-{prefix}"), prefix)
    except (ValueError, OSError, SyntaxError) as error:
        drifts.append(f"{tree.name(path)}: no code for its student cell: {error}")
        return
    if stored is None:
        drifts.append(f"{tree.name(path)}: has no student cell yet; run make sync")
    elif stored != code:
        drifts.append(
            f"{tree.name(path)}: the student cell differs from the region student-{prefix} of "
            f"{tree.name(module)}; run make sync"
        )
    for cell in tagged(notebook, "student"):
        cell.source = code


def _in_normal_form(tree: Tree, path: Path) -> bool:
    notebook = read(path)
    normalise(notebook, tree.kind(path), path.stem)
    return dump(notebook) == path.read_text(encoding="utf-8")


def _student_source(notebook: NotebookNode | None) -> str | None:
    cells = tagged(notebook, "student") if notebook is not None else []
    return cells[0].source if cells else None


def _sync_bootstrap(
    notebook: NotebookNode, kind: Kind, code: str, name: str, drifts: list[str]
) -> None:
    """Write the set-up cell: its code, and the metadata that folds it in every front end."""
    wanted_tags = ["bootstrap", "hide-input"]
    if kind == "chapter":
        wanted_tags.append("nbval-ignore-output")  # it prints versions and the device
    for cell in tagged(notebook, "bootstrap"):
        metadata = {"cellView": "form", "jupyter": {"source_hidden": True}, "tags": wanted_tags}
        if cell.source != code or cell.metadata != metadata:
            drifts.append(f"{name}: the bootstrap cell is not the course's; run make sync")
        cell.source = code
        cell.metadata = nbformat.from_dict(metadata)


def _without_outputs(notebook: NotebookNode) -> NotebookNode:
    bare = copy.deepcopy(notebook)
    for cell in bare.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return bare


def _move_links(notebook: NotebookNode, before: Path, after: Path) -> None:
    """Make the links of texts lead from another folder to where they led before."""

    def moved(match: re.Match[str]) -> str:
        file, mark, heading = match[1].partition("#")
        path = os.path.relpath(os.path.normpath(before / file), after)
        return f"]({Path(path).as_posix()}{mark}{heading}"

    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = _RELATIVE_LINK.sub(moved, cell.source)


def _restore_outputs(derived: NotebookNode, solution: NotebookNode) -> None:
    """Give back the outputs of cells whose code did not change."""
    stored = {cell.id: cell for cell in solution.cells if cell.cell_type == "code" and "id" in cell}
    for cell in derived.cells:
        old = stored.get(cell.id)
        if cell.cell_type == "code" and old is not None and old.source == cell.source:
            cell.outputs = copy.deepcopy(old.outputs)
            cell.execution_count = old.execution_count


def _differ(new: NotebookNode | None, old: NotebookNode | None) -> bool:
    """Whether a solution's cell differs from the lab's, the student cell's code left aside."""
    if new is None or old is None:
        return True
    keys = ["id", "cell_type", "metadata"]
    if "student" not in tags(new):
        keys.append("source")
    return any(new.get(key) != old.get(key) for key in keys)


def sync(tree: Tree) -> list[Path]:
    """Write every notebook as it should be.

    Args:
        tree: the checkout.

    Returns:
        The notebooks that changed.
    """
    return [path for path, notebook in plan(tree).notebooks.items() if write(path, notebook)]


def check(tree: Tree) -> list[str]:
    """Everything that is wrong with the notebooks.

    Args:
        tree: the checkout.

    Returns:
        Sentences, each beginning with a notebook's path: drifts first, then what an author must
        mend, then outputs that are older than their code.
    """
    return [*plan(tree).drifts, *_author_problems(tree), *_stale(tree)]


def _author_problems(tree: Tree) -> Iterator[str]:
    for path in tree.notebooks():
        for sentence in problems(read(path), tree.kind(path)):
            yield f"{tree.name(path)}: {sentence}"


def _stale(tree: Tree) -> Iterator[str]:
    record = {}
    if tree.execution_record.is_file():
        record = json.loads(tree.execution_record.read_text(encoding="utf-8"))
    names = {tree.name(path): path for path in tree.notebooks()}
    for name, path in names.items():
        if record.get(name, {}).get("code") != code_digest(read(path)):
            yield f"{name}: its code is not what make execute last ran; run make execute"
    for name in sorted(set(record) - set(names)):
        yield f"{name}: is in {tree.execution_record.name} but not in the course; run make execute"
