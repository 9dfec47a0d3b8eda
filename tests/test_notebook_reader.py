"""Whatever a file holds, reading it ends in cells to run or in a sentence; never in a traceback."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from course_utils.runner import source
from course_utils.runner.source import CannotGradeError, read
from tests.cli_labs.files import RIGHT, notebook

PATH = Path("lab.ipynb")
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=20,
)
CELLS = st.fixed_dictionaries(
    {},
    optional={
        "cell_type": st.sampled_from(["code", "markdown"]) | SCALARS,
        "source": st.text(max_size=40) | st.lists(st.text(max_size=10) | SCALARS, max_size=4),
        "metadata": st.fixed_dictionaries({}, optional={"tags": st.lists(st.just("student"))})
        | JSON,
    },
)
NOTEBOOKS = st.fixed_dictionaries(
    {"cells": st.lists(CELLS | JSON, max_size=5)},
    optional={
        "metadata": JSON
        | st.fixed_dictionaries({"course": JSON, "kernelspec": st.dictionaries(st.text(), JSON)})
    },
)


def _reads_or_says_why(data: bytes) -> source.Source | None:
    try:
        return source.notebook(PATH, data)
    except CannotGradeError as error:
        problem, todo = error.problem, error.todo
    assert problem.endswith(".")
    assert "\n" not in problem
    assert todo
    return None


@given(st.binary(max_size=200))
@example(b"")
@example(b"\xef\xbb\xbf{}")
@example(b"[" * 100_000)
@example(b"1" * 5000)
@example(b'{"cells": [1e400, NaN]}')
def test_any_bytes(data: bytes):
    _reads_or_says_why(data)
    try:
        cells = source.script(Path("lab.py"), data).cells
    except CannotGradeError:
        return
    assert len(cells) == 1


@given(JSON)
def test_any_json(plain: Any):
    assert _reads_or_says_why(json.dumps(plain).encode()) is None


@given(NOTEBOOKS)
@example({"cells": [{"cell_type": "code", "source": "\ud800", "metadata": {"tags": ["student"]}}]})
@example({"cells": [{"cell_type": "code", "source": "x\0", "metadata": {"tags": ["student"]}}]})
def test_anything_like_a_notebook(plain: Any):
    read_as = _reads_or_says_why(json.dumps(plain).encode())
    if read_as is not None:
        assert read_as.cells
        for cell in read_as.cells:
            cell.text.encode()


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r")), st.booleans())
def test_a_cell_is_read_as_it_was_written(text: str, as_lines: bool):
    plain = {
        "cells": [
            {"cell_type": "markdown", "source": "# Title"},
            {
                "cell_type": "code",
                "source": text.splitlines(keepends=True) if as_lines else text,
                "metadata": {"tags": ["student"]},
            },
        ]
    }
    read_as = source.notebook(PATH, json.dumps(plain).encode())
    assert [cell.text for cell in read_as.cells] == [text]
    assert read_as.cells[0].title == "code cell 1"


def test_cells_end_with_the_last_tagged_one(tmp_path: Path):
    path = notebook(tmp_path / "lab.ipynb", "x = 1")
    plain = json.loads(path.read_text())
    plain["cells"].insert(1, plain["cells"][2])  # the student's cell was split in two
    path.write_text(json.dumps(plain))
    read_as = read(path)
    assert len(read_as.cells) == 4
    assert read_as.cells[-1].text == RIGHT
    assert read_as.lab == "double"


@pytest.mark.parametrize("size", [1, 40, -40, -2, -1])
def test_a_truncated_notebook(tmp_path: Path, size: int):
    path = notebook(tmp_path / "lab.ipynb")
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(CannotGradeError, match="cut off") as error:
        read(path)
    assert "download it again" in error.value.todo


@pytest.mark.parametrize(
    ("plain", "problem"),
    [
        ({}, "no list of cells"),
        ([], "no list of cells"),
        ({"worksheets": [{"cells": []}]}, "old format"),
        ({"cells": []}, "no code cells"),
        ({"cells": [{"cell_type": "code", "source": "x = 1"}]}, "tagged `student`"),
        ({"cells": [{"cell_type": "code"}]}, "code cell 1 has no source"),
        ({"cells": [], "metadata": {"kernelspec": {"language": "R"}}}, "'R', not Python"),
    ],
)
def test_json_that_is_no_lab(tmp_path: Path, plain: Any, problem: str):
    path = tmp_path / "lab.ipynb"
    path.write_text(json.dumps(plain))
    with pytest.raises(CannotGradeError, match=problem):
        read(path)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("lab.txt", "ends in '.txt'"),
        ("lab", "Its name says neither"),
        ("missing.ipynb", "no such file"),
        ("missing", "no such file or folder"),
        ("folder.ipynb", "a folder without a notebook"),
        ("folder", "a folder without a notebook"),
        ("bad\0name.ipynb", "cannot be read"),
    ],
)
def test_a_path_that_is_no_file(tmp_path: Path, name: str, problem: str):
    (tmp_path / "folder.ipynb").mkdir()
    (tmp_path / "folder").mkdir()
    if name.startswith("lab"):
        (tmp_path / name).touch()
    with pytest.raises(CannotGradeError, match=problem):
        read(tmp_path / name)


def test_a_file_that_is_too_large(tmp_path: Path):
    path = tmp_path / "lab.ipynb"
    with path.open("wb") as file:
        file.truncate(10**9)
    with pytest.raises(CannotGradeError, match="larger than 200 MB") as error:
        read(path)
    assert "Clear the notebook's outputs" in error.value.todo


def test_a_script_in_another_declared_encoding():
    data = "# coding: latin-1\nname = 'ä'\n".encode("latin-1")
    assert "ä" in source.script(Path("double.py"), data).cells[0].text
    with pytest.raises(CannotGradeError, match="invalid or missing encoding declaration"):
        source.script(Path("double.py"), "name = 'ä'".encode("latin-1"))
