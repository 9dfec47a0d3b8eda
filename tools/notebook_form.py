"""The normal form of the course's notebooks.

Where they lie, what may stand in them and how they are stored.

Knows the layout of the repository and the notebook format. Knows nothing of lab modules
(`notebook_sync`) or of kernels (`notebook_run`).
"""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import nbformat
from nbformat import NotebookNode

Kind = Literal["chapter", "lab", "solution"]

#: Every tag a cell may carry, with its meaning. CONTRIBUTING.md shows the same list.
TAGS = {
    "bootstrap": "the set-up cell; written by `make sync`",
    "student": "the one cell of a lab that the learner edits; written by `make sync`",
    "grade": "calls the grader",
    "hide-input": "the book folds the code",
    "hide-output": "the book folds the output",
    "hide-cell": "the book folds both",
    "remove-cell": "the book leaves the cell out",
    "remove-input": "the book leaves the code out",
    "nbval-ignore-output": "run, but its output is not compared: it holds times or a plot",
    "nbval-skip": "not run by the tests",
    "raises-exception": "meant to raise",
}
LAB_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")

#: Words of lower-case letters and digits, joined by hyphens.
_CELL_ID = re.compile(r"(?=.{1,64}$)[a-z0-9]+(-[a-z0-9]+)*")
_KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}
_ROOTED_LINK = re.compile(r"\]\((/[^)\s]*)")
_UNREPEATABLE = {
    "a memory address": re.compile(r"\b0x[0-9a-fA-F]{6,}\b"),
    "a path of one machine": re.compile(r"/(?:home|root|Users|tmp)/\S+|ipykernel_\d+"),
}
#: What a cell's metadata may hold beside its tags: `mystnb` gives figures their alt text.
_CELL_KEYS = ("mystnb",)
_BOOTSTRAP_KEYS = ("mystnb", "cellView", "jupyter")


@dataclass(frozen=True)
class Tree:
    """A checkout of the course, seen as notebooks and lab modules."""

    root: Path

    @property
    def execution_record(self) -> Path:
        """Where `execute` notes when and with what each notebook was run."""
        return self.root / "book" / "execution.json"

    def module(self, lab: str) -> Path:
        """The lab's module."""
        return self.root / "src" / "course_utils" / "labs" / f"{lab}.py"

    def submissions(self, lab: str) -> Path:
        """The lab's submissions with known verdicts."""
        return self.root / "tests" / "submissions" / f"{lab}.py"

    def lab(self, lab: str) -> Path:
        """The notebook that the learner opens."""
        return self.root / "labs" / f"{lab}.ipynb"

    def solution(self, lab: str) -> Path:
        """The same, solved."""
        return self.root / "labs" / "solutions" / f"{lab}.ipynb"

    def chapters(self) -> list[Path]:
        """The notebooks of the book itself."""
        return sorted((self.root / "book" / "chapters").glob("*.ipynb"))

    def notebooks(self) -> list[Path]:
        """Every notebook of the course."""
        labs = sorted((self.root / "labs").glob("*.ipynb"))
        return [
            *self.chapters(),
            *labs,
            *sorted((self.root / "labs" / "solutions").glob("*.ipynb")),
        ]

    def kind(self, path: Path) -> Kind:
        """What a notebook is, by where it lies.

        Raises:
            ValueError: when it lies in none of the course's three folders.
        """
        match path.resolve().relative_to(self.root.resolve()).parent.parts:
            case ("book", "chapters"):
                return "chapter"
            case ("labs",):
                return "lab"
            case ("labs", "solutions"):
                return "solution"
        raise ValueError(
            f"{path}: expected a notebook of book/chapters, labs or labs/solutions; move it there."
        )

    def name(self, path: Path) -> str:
        """A path as messages and records show it."""
        return path.resolve().relative_to(self.root.resolve()).as_posix()


def read(path: Path) -> NotebookNode:
    """A notebook as it lies on disk, upgraded to format 4.5 in memory.

    Cells without a clean id of their own get one that depends on the file's name and the cell's
    place alone: nbformat would draw them at random.

    Args:
        path: the file.

    Returns:
        The notebook.

    Raises:
        ValueError: when the file is no notebook of format 4.
    """
    raw = json.loads(path.read_text(encoding="utf-8"))
    if raw.get("nbformat") != 4:
        raise ValueError(
            f"{path}: expected a notebook of format 4, found {raw.get('nbformat')!r}; save it "
            "again with a current JupyterLab."
        )
    raw["nbformat_minor"] = 5
    seen: set[str] = set()
    for index, cell in enumerate(raw["cells"]):
        cell_id = cell.get("id", "")
        if not _CELL_ID.fullmatch(cell_id) or cell_id in seen:
            cell["id"] = hashlib.sha256(f"{path.stem} {index}".encode()).hexdigest()[:8]
        seen.add(cell["id"])
    notebook = nbformat.reads(json.dumps(raw), as_version=4)
    assert isinstance(notebook, NotebookNode)
    return notebook


def dump(notebook: NotebookNode) -> str:
    """The text a notebook is stored as: sorted keys, one blank of indent, one final newline."""
    nbformat.validate(notebook)
    return nbformat.writes(notebook).rstrip("\n") + "\n"


def write(path: Path, notebook: NotebookNode) -> bool:
    """Store a notebook; an equal file is left untouched. True when something was written."""
    text = dump(notebook)
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return True


def tags(cell: NotebookNode) -> list[str]:
    """The tags of a cell."""
    return list(cell.metadata.get("tags", []))


def tagged(notebook: NotebookNode, tag: str) -> list[NotebookNode]:
    """The cells that carry a tag, in order."""
    return [cell for cell in notebook.cells if tag in tags(cell)]


def code_digest(notebook: NotebookNode) -> str:
    """A short digest of all code: when it changes, stored outputs are no longer its outputs."""
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    return hashlib.sha256(json.dumps(sources).encode()).hexdigest()[:16]


def normalise(notebook: NotebookNode, kind: Kind, name: str) -> None:
    """Bring a notebook into normal form, in place; doing it twice changes nothing more.

    Args:
        notebook: what to change. Sources and outputs' contents stay.
        kind: decides the metadata: labs and solutions ask Colab for a GPU.
        name: the notebook's name without folder and suffix; a lab's is the lab's name.
    """
    metadata: dict[str, Any] = {
        "kernelspec": _KERNELSPEC,
        "language_info": {"name": "python"},
    }
    if "mystnb" in notebook.metadata:
        metadata["mystnb"] = notebook.metadata["mystnb"]
    if kind != "chapter":
        metadata["accelerator"] = "GPU"
        metadata["colab"] = {"gpuType": "T4", "provenance": []}
        metadata["course"] = {"lab": name}
    notebook.metadata = nbformat.from_dict(metadata)
    notebook.nbformat, notebook.nbformat_minor = 4, 5

    count = 0
    for cell in notebook.cells:
        _normalise_cell_metadata(cell)
        if cell.cell_type != "code":
            continue
        if cell.get("execution_count") is not None:
            count += 1
            cell.execution_count = count
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = cell.execution_count
            if "data" in output:
                for kind_of_data in [key for key in output.data if _of_no_use(key, output.data)]:
                    del output.data[kind_of_data]
        cell.outputs = [output for output in cell.outputs if not _shows_nothing(output)]


def _of_no_use(kind_of_data: str, data: NotebookNode) -> bool:
    """Whether no reader of the course shows this form of an output.

    Sphinx takes LaTeX beside HTML for an equation, and its page then fetches MathJax.
    """
    return "widget" in kind_of_data or (kind_of_data == "text/latex" and "text/html" in data)


def _shows_nothing(output: NotebookNode) -> bool:
    """Whether a display was emptied again, as a line of progress is: the book would show a box."""
    return output.output_type == "display_data" and not any(output.data.values())


def _normalise_cell_metadata(cell: NotebookNode) -> None:
    cell_tags = sorted(set(tags(cell)))
    keys = _BOOTSTRAP_KEYS if "bootstrap" in cell_tags else _CELL_KEYS
    metadata = {key: cell.metadata[key] for key in keys if key in cell.metadata}
    if cell_tags:
        metadata["tags"] = cell_tags
    cell.metadata = nbformat.from_dict(metadata)


def problems(notebook: NotebookNode, kind: Kind) -> list[str]:
    """What an author must mend by hand, one sentence each.

    Args:
        notebook: a notebook in normal form.
        kind: labs and solutions have cells that chapters do not.

    Returns:
        Sentences that name the cell by number, counted from 1, and say what to do.
    """
    found: list[str] = []
    for tag, expected in (("bootstrap", 1), ("student", 0 if kind == "chapter" else 1)):
        cells = tagged(notebook, tag)
        if len(cells) != expected:
            found.append(f"has {len(cells)} cells tagged {tag}; expected {expected}")
    if kind != "chapter" and not tagged(notebook, "grade"):
        found.append("has no cell tagged grade; tag the cell that calls the grader")
    first_code = next((cell for cell in notebook.cells if cell.cell_type == "code"), None)
    if first_code is not None and "bootstrap" not in tags(first_code):
        found.append("its first code cell is not the one tagged bootstrap; move that one first")
    for number, cell in enumerate(notebook.cells, start=1):
        found += [f"cell {number} {sentence}" for sentence in _cell_problems(cell, kind)]
    return found


def _cell_problems(cell: NotebookNode, kind: Kind) -> Iterator[str]:
    for tag in tags(cell):
        if tag not in TAGS:
            yield f"has the tag {tag!r}; the tags are {', '.join(TAGS)}"
    if cell.cell_type == "markdown":
        for target in _ROOTED_LINK.findall(cell.source):
            yield (
                f"links to {target!r}, which JupyterLab does not find; write the path from the "
                "notebook's own folder"
            )
    if cell.cell_type != "code":
        return
    if cell.source.strip() and cell.execution_count is None and "nbval-skip" not in tags(cell):
        yield "was never run; run make execute"
    alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
    if not alt.strip() and any(_is_picture(output) for output in cell.outputs):
        yield (
            "shows a picture without an alt text; put what it shows into the cell's metadata: "
            '{"mystnb": {"image": {"alt": "..."}}}'
        )
    for output in cell.outputs:
        if output.output_type == "error" and "raises-exception" not in tags(cell):
            yield f"stores an error, {output.ename}; mend it and run make execute"
        for text in _texts(output):
            for what, pattern in _UNREPEATABLE.items():
                if match := pattern.search(text):
                    yield f"prints {what}, {match[0]!r}; print something that repeats"


def _is_picture(output: NotebookNode) -> bool:
    return any(kind_of_data.startswith("image/") for kind_of_data in output.get("data", {}))


def _texts(output: NotebookNode) -> Iterator[str]:
    if output.output_type == "stream":
        yield output.text
    for mime, data in output.get("data", {}).items():
        if mime.startswith("text/") and isinstance(data, str):
            yield data
