"""The steps of CONTRIBUTING.md for adding a lab, followed to the letter in a copy of the course."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from notebook_form import Tree, read

from tests.copies import ROOT, clone, shell

LAB = "my_lab"
FOLLOWED_ELSEWHERE = "make test"
"""The last command of the steps, which runs everything, this test too."""


def steps() -> list[str]:
    """The numbered steps, each as one line."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.split("\n## Adding a lab\n")[1].split("\n## ")[0]
    found = re.split(r"^\d+\. ", section, flags=re.MULTILINE)[1:]
    return [" ".join(step.split()) for step in found]


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text, (path, old)
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def list_the_lab(path: Path) -> None:
    replace(path, "\n)\n", f'\n    "{LAB}",\n)\n')


def write_the_prose(path: Path) -> None:
    replace(
        path,
        "[CHAPTER TITLE](../book/chapters/NAME.ipynb)",
        "[E](../book/chapters/01_eager.ipynb)",
    )


def add_the_pages(path: Path) -> None:
    replace(path, "  - caption: Solutions\n", f"      - file: labs/{LAB}\n  - caption: Solutions\n")
    first = "      - file: labs/solutions/"
    replace(path, first, f"      - file: labs/solutions/{LAB}\n{first}")


EDITS: dict[str, Callable[[Path], None]] = {
    "src/course_utils/labs/__init__.py": list_the_lab,
    f"labs/{LAB}.ipynb": write_the_prose,
    "_toc.yml": add_the_pages,
}


@pytest.mark.timed
def test_a_lab_is_added_by_the_steps_alone(tmp_path: Path):
    course = clone(tmp_path / "course")
    edited: list[str] = []
    ran: list[str] = []
    said = ""
    for step in steps():
        named = re.findall(r"`([^`]+)`", step)
        for name in named:
            if name in EDITS and name not in edited:
                EDITS[name](course / name)
                edited.append(name)
        for command in named:
            if command.startswith("make ") and command != FOLLOWED_ELSEWHERE:
                # The copy's environment is this one, which is up to date.
                make = command.replace("make ", "make -o .venv/.installed ", 1)
                said = shell(make, course, PYTHONPATH=str(course / "src"))
                ran.append(command)
    assert sorted(edited) == sorted(EDITS)
    assert ran[0] == f"make new-lab NAME={LAB}"
    assert ran[-1] == f"make contract LAB={LAB}"
    passed = re.search(r"(\d+) passed", said)
    assert passed is not None
    assert " failed" not in said

    tree = Tree(course)
    for path in (tree.lab(LAB), tree.solution(LAB)):
        assert all(c.execution_count for c in read(path).cells if c.cell_type == "code"), path
    page = (course / "book" / "submissions.md").read_text(encoding="utf-8")
    table = page.split(f"## {LAB}\n")[1].split("\n## ")[0]
    assert table.count("| yes |") == len(re.findall(r"^\| (?!sub|---)", table, re.MULTILINE)) > 8
    stored = (ROOT / "book" / "submissions.md").read_text(encoding="utf-8")
    assert page.replace(f"\n## {LAB}\n{table}", "") == stored.rstrip("\n") + "\n"


def test_every_file_that_the_steps_name_is_there_or_is_made():
    named = {name for step in steps() for name in re.findall(r"`([a-z_./]+/[a-z_./]+)`", step)}
    made = {name for name in named if LAB in name}
    assert made
    for name in named - made:
        assert (ROOT / name).exists(), name


def test_the_page_of_the_book_is_this_file():
    page = (ROOT / "book" / "contributing.md").read_text(encoding="utf-8")
    assert "{include} ../CONTRIBUTING.md" in page
    assert "- file: book/contributing\n" in (ROOT / "_toc.yml").read_text(encoding="utf-8")
