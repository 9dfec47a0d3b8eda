"""Reads what a learner hands in: a notebook or a Python file, as the code cells to run.

Whatever the bytes are, reading ends in a `Source` or in a `CannotGradeError` that says what is
wrong with the file and what to do. Knows the notebook format; runs nothing and knows no lab.
"""

import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TAG = "student"
"""The tag of the cells that the learner edits."""

_MAX_BYTES = 200 * 10**6
_FRESH_COPY = "Open a fresh copy of the lab's notebook and paste your code into its student cell."


class CannotGradeError(Exception):
    """A file could not be graded.

    Attributes:
        problem: what is so, in one sentence.
        todo: what to do, in one sentence.
    """

    def __init__(self, problem: str, todo: str) -> None:
        super().__init__(f"{problem} {todo}")
        self.problem, self.todo = problem, todo


@dataclass(frozen=True)
class Cell:
    """A piece of code that runs at once.

    Attributes:
        file: what Python calls it in tracebacks: `<code cell 3>`, or the script's path.
        title: what people call it: `code cell 3`, or the script's name.
        text: its source.
        may_raise: whether an exception in it is expected, as in Jupyter's `raises-exception`.
    """

    file: str
    title: str
    text: str
    may_raise: bool = False

    def line(self, number: int) -> str:
        """Return one line of it, stripped; empty when there is no such line."""
        lines = self.text.splitlines()
        return lines[number - 1].strip() if 0 < number <= len(lines) else ""


@dataclass(frozen=True)
class Source:
    """A file to grade.

    Attributes:
        path: the file, as an absolute path.
        cells: the code to run, in order, ending with what the learner edited.
        lab: the lab that the file names; None when it names none.
        script: whether it is a Python file and not a notebook.
    """

    path: Path
    cells: tuple[Cell, ...]
    lab: str | None
    script: bool


def read(path: Path) -> Source:
    """Read a notebook (`.ipynb`) or a Python file (`.py`).

    Raises:
        CannotGradeError: it cannot be read, or is not such a file.
    """
    suffix = path.suffix.lower()
    if path.is_dir():
        raise CannotGradeError(
            "It is a folder without a notebook (.ipynb) or a Python file (.py) called like a lab.",
            "Give the folder that the lab's notebook is in, or the notebook itself.",
        )
    if suffix not in {".ipynb", ".py"} and not path.exists():
        raise CannotGradeError(
            f"There is no such file or folder in {Path.cwd()}.",
            "Give the notebook of the lab, such as labs/NAME.ipynb, or its folder.",
        )
    if suffix not in {".ipynb", ".py"}:
        raise CannotGradeError(
            f"It is neither a notebook (.ipynb) nor a Python file (.py): its name ends in "
            f"{path.suffix!r}."
            if suffix
            else "Its name says neither that it is a notebook (.ipynb) nor a Python file (.py).",
            "Give the notebook of the lab, or a .py file that defines the lab's function.",
        )
    data = _bytes(path)
    return notebook(path, data) if suffix == ".ipynb" else script(path, data)


def _bytes(path: Path) -> bytes:
    try:
        size = path.stat().st_size
        if size > _MAX_BYTES:
            raise CannotGradeError(
                f"It is larger than {_MAX_BYTES // 10**6} MB.",
                "Clear the notebook's outputs (Edit, Clear Outputs of All Cells) and save it.",
            )
        return path.read_bytes()
    except FileNotFoundError:
        raise CannotGradeError(
            f"There is no such file{'' if path.is_absolute() else f' in {Path.cwd()}'}.",
            "Check the path.",
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CannotGradeError(
            f"It cannot be read: {reason}.", "Check the path and its permissions."
        ) from None


def script(path: Path, data: bytes) -> Source:
    """Read a Python file; its name may be a lab's name.

    Raises:
        CannotGradeError: the bytes are not Python source text.
    """
    try:
        text = importlib.util.decode_source(data)
    except (SyntaxError, ValueError, LookupError) as error:
        raise CannotGradeError(
            f"It is not Python source text: {_reason(error)}.", "Save it as UTF-8 text."
        ) from None
    path = path.absolute()
    cell = Cell(str(path), path.name, _checked(text, "It"))
    return Source(path, (cell,), path.stem, script=True)


def notebook(path: Path, data: bytes) -> Source:
    """Read a notebook: its code cells up to the last one that is tagged `student`.

    Raises:
        CannotGradeError: the bytes are not such a notebook.
    """
    try:
        plain = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        if not data.strip():
            problem = "It is empty."
        elif _is_cut_off(error):
            problem = "It is cut off: the notebook's JSON ends too early."
        else:
            problem = f"It is not a notebook: not JSON ({_reason(error)})."
        raise CannotGradeError(
            problem, "Save it again in Jupyter, or download it again as .ipynb."
        ) from None
    if not isinstance(plain, dict) or not isinstance(plain.get("cells"), list):
        old = isinstance(plain, dict) and "worksheets" in plain
        raise CannotGradeError(
            "It is a notebook of an old format, without a list of cells."
            if old
            else "It is JSON, but not a notebook: it has no list of cells.",
            "Open it in JupyterLab and save it." if old else _FRESH_COPY,
        )
    metadata = _dict(plain.get("metadata"))
    language = _dict(metadata.get("kernelspec")).get("language", "python")
    if language != "python":
        raise CannotGradeError(f"Its language is {language!r}, not Python.", _FRESH_COPY)
    cells, last = [], 0
    for plain_cell in plain["cells"]:
        cell = _dict(plain_cell)
        if cell.get("cell_type") != "code":
            continue
        number = len(cells) + 1
        tags = _dict(cell.get("metadata")).get("tags")
        tags = tags if isinstance(tags, list) else []
        title = f"code cell {number}"
        text = _checked(_text(cell.get("source"), title), title)
        cells.append(Cell(f"<{title}>", title, text, "raises-exception" in tags))
        last = number if TAG in tags else last
    if not cells:
        raise CannotGradeError("It has no code cells.", _FRESH_COPY)
    if not last:
        raise CannotGradeError(f"No code cell in it is tagged `{TAG}`.", _FRESH_COPY)
    lab = _dict(metadata.get("course")).get("lab")
    return Source(
        path.absolute(), tuple(cells[:last]), lab if isinstance(lab, str) else None, script=False
    )


def _is_cut_off(error: Exception) -> bool:
    """Whether JSON broke off at its end: inside a string, or where something had to follow."""
    if not isinstance(error, json.JSONDecodeError) or error.msg == "Extra data":
        return False
    left = len(error.doc.rstrip()) - error.pos
    return error.msg.startswith("Unterminated string") or left < len("false")


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any, title: str) -> str:
    """Return a cell's source, which a notebook stores as text or as a list of lines."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "".join(value)
    raise CannotGradeError(f"It is a damaged notebook: {title} has no source text.", _FRESH_COPY)


def _checked(text: str, title: str) -> str:
    """Return the text, which must be such that Python can compile it or point at a line."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        bad = "half a character"
    else:
        bad = "a null character" if "\0" in text else ""
    if bad:
        raise CannotGradeError(f"{title} is not text: it holds {bad}.", _FRESH_COPY)
    return text


def _reason(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 at byte {error.start}"
    return str(error).rstrip(".")
