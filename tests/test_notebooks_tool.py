"""The authors' command keeps notebooks equal to their sources, and says where they are not."""

import json
import re
import shutil
from pathlib import Path

import nbformat
import notebook_run
import notebooks
import pytest
from notebook_form import TAGS, Tree, dump, normalise, read, tagged, write
from notebook_sync import BOOTSTRAP_SOURCE, check, region, sync, without_prefix

ROOT = Path(__file__).resolve().parent.parent
MODULE = '''\
"""A lab small enough to run in a test."""

# region student-broken
def broken_double(x):
    """Return twice x."""
    return sum(
        [x for _ in range(2)]
    )


# endregion
# region student-solution
def solution_double(x):
    """Return twice x."""
    return 2 * x


# endregion
'''


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A checkout with one lab, synced and noted as run."""
    tree = Tree(tmp_path)
    tree.module("tiny").parent.mkdir(parents=True)
    tree.module("tiny").write_text(MODULE, encoding="utf-8")
    assert notebooks.main(["--root", str(tmp_path), "new-lab", "tiny"]) == 0
    notebook = read(tree.lab("tiny"))
    tagged(notebook, "grade")[0].source = "assert double(3) == 6\ndouble(3)"
    write(tree.lab("tiny"), notebook)
    sync(tree)
    return tree


@pytest.fixture
def run_tree(tree: Tree) -> Tree:
    """The same with a set-up cell that needs no JAX, run once: nothing is wrong with it."""
    for path in tree.notebooks():
        _pretend_run(tree, path)
    assert check(tree) == []
    return tree


def _pretend_run(tree: Tree, path: Path) -> None:
    notebook = read(path)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.execution_count = 1
    normalise(notebook, tree.kind(path), path.stem)
    write(path, notebook)
    notebook_run._record(tree, path, notebook_run.Run(notebook, 0.0, "cpu"))


def _edit(path: Path, tag: str, source: str) -> None:
    notebook = read(path)
    tagged(notebook, tag)[0].source = source
    write(path, notebook)


def test_sync_writes_each_notebooks_student_cell_from_its_region(tree: Tree):
    broken = tagged(read(tree.lab("tiny")), "student")[0].source
    solved = tagged(read(tree.solution("tiny")), "student")[0].source
    assert (
        broken == 'def double(x):\n    """Return twice x."""\n    return sum([x for _ in range(2)])'
    )
    assert solved == 'def double(x):\n    """Return twice x."""\n    return 2 * x'


def test_sync_a_second_time_changes_nothing(tree: Tree):
    before = {path: path.read_bytes() for path in tree.notebooks()}
    assert sync(tree) == []
    assert {path: path.read_bytes() for path in tree.notebooks()} == before


def test_lab_and_solution_differ_only_in_the_student_cell_and_the_folder_of_links(tree: Tree):
    lab, solution = read(tree.lab("tiny")), read(tree.solution("tiny"))
    for cell in (*lab.cells, *solution.cells):
        if cell.cell_type == "markdown":
            cell.source = re.sub(r"\]\((.*?)([^/)]+)\)", r"](\2)", cell.source)
    differing = [
        one.metadata.get("tags")
        for one, other in zip(lab.cells, solution.cells, strict=True)
        if one != other
    ]
    assert differing == [["student"]]
    assert lab.metadata == solution.metadata


def test_a_changed_module_is_named(run_tree: Tree):
    run_tree.module("tiny").write_text(MODULE.replace("2 * x", "x + x"), encoding="utf-8")
    (sentence,) = check(run_tree)
    assert sentence.startswith(
        "labs/solutions/tiny.ipynb: the student cell differs from the region"
    )
    assert "src/course_utils/labs/tiny.py" in sentence


def test_an_edited_student_cell_is_named(run_tree: Tree):
    _edit(run_tree.lab("tiny"), "student", "def double(x):\n    return 2 * x")
    found = check(run_tree)
    assert found[0].startswith("labs/tiny.ipynb: the student cell differs")
    assert any("run make execute" in sentence for sentence in found)


def test_an_edited_solution_is_named_and_put_back(run_tree: Tree):
    _edit(run_tree.solution("tiny"), "grade", "double(4)")
    found = check(run_tree)
    assert any(
        sentence.startswith("labs/solutions/tiny.ipynb: cell 8 differs from the lab's")
        for sentence in found
    )
    sync(run_tree)
    assert "double(3)" in tagged(read(run_tree.solution("tiny")), "grade")[0].source


def test_an_edited_lab_reaches_the_solution(run_tree: Tree):
    _edit(run_tree.lab("tiny"), "grade", "double(4)")
    assert any(
        sentence.startswith("labs/solutions/tiny.ipynb: cell 8") for sentence in check(run_tree)
    )
    sync(run_tree)
    assert tagged(read(run_tree.solution("tiny")), "grade")[0].source == "double(4)"


def test_an_edited_bootstrap_cell_is_named_and_put_back(run_tree: Tree):
    _edit(run_tree.lab("tiny"), "bootstrap", "pass")
    assert any("the bootstrap cell is not the course's" in sentence for sentence in check(run_tree))
    sync(run_tree)
    cell = tagged(read(run_tree.lab("tiny")), "bootstrap")[0]
    assert cell.source == region(BOOTSTRAP_SOURCE, "bootstrap")


def test_sync_keeps_the_solutions_outputs_where_the_code_stayed(run_tree: Tree):
    notebook = read(run_tree.solution("tiny"))
    output = nbformat.v4.new_output("stream", text="stays\n")
    for tag in ("student", "grade"):
        tagged(notebook, tag)[0].outputs = [output]
    write(run_tree.solution("tiny"), notebook)
    _edit(run_tree.lab("tiny"), "grade", "double(4)")
    sync(run_tree)
    solution = read(run_tree.solution("tiny"))
    assert tagged(solution, "student")[0].outputs == [output]
    assert tagged(solution, "grade")[0].outputs == []


def test_a_chapters_bootstrap_cell_is_written_and_not_compared(tree: Tree):
    path = tree.root / "book" / "chapters" / "01_one.ipynb"
    cell = nbformat.v4.new_code_cell("", metadata={"tags": ["bootstrap"]})
    write(path, nbformat.v4.new_notebook(cells=[cell]))
    sync(tree)
    cell = read(path).cells[0]
    assert cell.source == region(BOOTSTRAP_SOURCE, "bootstrap")
    assert "nbval-ignore-output" in cell.metadata["tags"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda cell: cell.metadata["tags"].append("slow"), "has the tag 'slow'"),
        (lambda cell: cell.metadata["tags"].remove("grade"), "no cell tagged grade"),
        (lambda cell: cell.metadata["tags"].append("student"), "has 2 cells tagged student"),
        (lambda cell: cell.update(execution_count=None), "was never run"),
        (
            lambda cell: cell.outputs.append(nbformat.v4.new_output("error", ename="E", evalue="")),
            "stores an error, E",
        ),
        (
            lambda cell: cell.outputs.append(
                nbformat.v4.new_output("stream", text="<object at 0x7f12ab34cd>")
            ),
            "prints a memory address",
        ),
        (
            lambda cell: cell.outputs.append(
                nbformat.v4.new_output("stream", text="/home/someone/course")
            ),
            "prints a path of one machine",
        ),
        (
            lambda cell: cell.outputs.append(
                nbformat.v4.new_output("display_data", {"image/png": "", "text/plain": "a figure"})
            ),
            "shows a picture without an alt text",
        ),
    ],
)
def test_what_an_author_must_mend_is_named(run_tree: Tree, change, expected: str):
    for path in run_tree.notebooks():
        notebook = read(path)
        change(tagged(notebook, "grade")[0])
        write(path, notebook)
    found = check(run_tree)
    for name in ("labs/tiny.ipynb", "labs/solutions/tiny.ipynb"):
        assert any(each.startswith(f"{name}: ") and expected in each for each in found), found


def test_a_link_from_the_root_is_named(run_tree: Tree):
    notebook = read(run_tree.lab("tiny"))
    notebook.cells[0].source += "\n[nowhere](/a.md)"
    write(run_tree.lab("tiny"), notebook)
    sync(run_tree)
    found = check(run_tree)
    assert len(found) == 2
    assert all("cell 1 links to '/a.md'" in sentence for sentence in found)


def test_links_of_the_solution_lead_to_the_same_files(run_tree: Tree):
    notebook = read(run_tree.lab("tiny"))
    notebook.cells[
        0
    ].source += (
        "\n[solution](solutions/tiny.ipynb#here) [page](../book/a.md) [web](https://a.b) [up](#top)"
    )
    write(run_tree.lab("tiny"), notebook)
    sync(run_tree)
    assert check(run_tree) == []
    assert (
        read(run_tree.solution("tiny"))
        .cells[0]
        .source.endswith(
            "\n[solution](tiny.ipynb#here) [page](../../book/a.md) [web](https://a.b) [up](#top)"
        )
    )


def test_normal_form_drops_noise_and_keeps_the_rest():
    cell = nbformat.v4.new_code_cell("1", execution_count=7)
    cell.metadata = nbformat.from_dict(
        {"execution": {"iopub.status.busy": "2026"}, "tags": ["grade"], "collapsed": True}
    )
    cell.outputs = [
        nbformat.v4.new_output(
            "execute_result",
            {"text/plain": "1", "application/vnd.jupyter.widget-view+json": {}},
            execution_count=7,
        ),
        nbformat.v4.new_output("display_data", {"text/plain": ""}),
        nbformat.v4.new_output("display_data", {"application/vnd.jupyter.widget-view+json": {}}),
        nbformat.v4.new_output("display_data", {"text/html": "<p>", "text/latex": "x"}),
        nbformat.v4.new_output("display_data", {"text/latex": "x"}),
    ]
    notebook = nbformat.v4.new_notebook(cells=[cell])
    notebook.metadata = nbformat.from_dict({"widgets": {}, "language_info": {"version": "3.11.7"}})
    normalise(notebook, "lab", "tiny")
    assert notebook.metadata == {
        "accelerator": "GPU",
        "colab": {"gpuType": "T4", "provenance": []},
        "course": {"lab": "tiny"},
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    assert cell.metadata == {"tags": ["grade"]}
    assert cell.execution_count == cell.outputs[0].execution_count == 1
    assert [output.data for output in cell.outputs] == [
        {"text/plain": "1"},
        {"text/html": "<p>"},
        {"text/latex": "x"},
    ]
    once = dump(notebook)
    normalise(notebook, "lab", "tiny")
    assert dump(notebook) == once
    assert once.endswith("}\n")


@pytest.mark.parametrize("second", ["same", "", "not an id"])
def test_a_cell_without_an_id_of_its_own_gets_one_that_repeats(tmp_path: Path, second: str):
    cells = [{"cell_type": "markdown", "metadata": {}, "source": "a", "id": "same"}]
    cells.append({"cell_type": "markdown", "metadata": {}, "source": ["b\n", "c"], "id": second})
    path = tmp_path / "one.ipynb"
    raw = {"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": cells}
    path.write_text(json.dumps(raw), encoding="utf-8")
    ids = [[cell.id for cell in read(path).cells] for _ in range(2)]
    assert ids[0] == ids[1]
    assert ids[0][0] == "same"
    assert ids[0][1] not in {"same", second}


def test_a_notebook_of_another_format_is_refused(tmp_path: Path):
    path = tmp_path / "old.ipynb"
    path.write_text('{"nbformat": 3}', encoding="utf-8")
    with pytest.raises(ValueError, match="expected a notebook of format 4, found 3"):
        read(path)


def test_a_name_without_prefix_that_clashes_is_refused():
    code = "def broken_f(x):\n    f = 1\n    return f + x\n"
    with pytest.raises(ValueError, match="the names f would clash"):
        without_prefix(code, "broken")


def test_a_word_of_a_comment_is_no_clash():
    code = "def broken_f(x):\n    # what f does\n    return other_broken_f(x)\n"
    assert without_prefix(code, "broken").startswith("def f(x):\n    # what f does\n")
    assert "other_broken_f" in without_prefix(code, "broken")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", "found 0"), ("# region a\n# region a\n", "found 2"), ("# region a\nx\n", "not closed")],
)
def test_a_region_that_is_not_one_is_refused(tmp_path: Path, text: str, expected: str):
    path = tmp_path / "lab.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=expected):
        region(path, "a")


def test_new_lab_refuses_a_bad_name_and_an_existing_lab(
    tree: Tree, capsys: pytest.CaptureFixture[str]
):
    for name, expected in (
        ("Bad-Name", "expected lower-case words"),
        ("tiny", "labs/tiny.ipynb is there already"),
    ):
        assert notebooks.main(["--root", str(tree.root), "new-lab", name]) == 1
        assert expected in capsys.readouterr().out


def test_new_lab_writes_what_is_missing_and_keeps_what_is_there(tree: Tree):
    assert tree.module("tiny").read_text(encoding="utf-8") == MODULE
    assert notebooks.main(["--root", str(tree.root), "new-lab", "other"]) == 0
    for path in (tree.module("other"), tree.submissions("other")):
        text = path.read_text(encoding="utf-8")
        assert "my_lab" not in text
        assert '"other"' in text
    notebook = read(tree.lab("other"))
    assert notebook.metadata.accelerator == "GPU"
    assert notebook.metadata.colab.gpuType == "T4"
    assert "def smooth(signals):" in tagged(notebook, "student")[0].source


def _chapter(tree: Tree, *sources: str) -> Path:
    path = tree.root / "book" / "chapters" / "01_one.ipynb"
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    for index, cell in enumerate(cells):
        cell.id = f"c{index}"
    notebook = nbformat.v4.new_notebook(cells=cells)
    normalise(notebook, "chapter", path.stem)
    write(path, notebook)
    return path


def test_execute_stores_outputs_in_normal_form_and_notes_the_run(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    path = _chapter(tree, "import os\nprint(os.environ.get('JAX_PLATFORMS'))", "os.getcwd()")
    assert notebooks.main(["--root", str(tree.root), "execute", str(path)]) == 0
    first, second = read(path).cells
    assert first.outputs[0].text == "None\n"
    assert repr(str(path.parent)) == second.outputs[0].data["text/plain"]
    notebook = read(path)
    normalise(notebook, "chapter", path.stem)
    assert dump(notebook) == path.read_text(encoding="utf-8")
    record = json.loads(tree.execution_record.read_text(encoding="utf-8"))
    entry = record["book/chapters/01_one.ipynb"]
    assert entry["seconds"] >= 0
    assert entry["device"] == ""
    assert set(entry["versions"]) == set(notebook_run.PACKAGES)


def test_execute_refuses_to_store_a_notebook_whose_cell_raised(
    tree: Tree, capsys: pytest.CaptureFixture[str]
):
    path = _chapter(tree, "print('fine')", "raise ValueError('not fine')")
    before = path.read_bytes()
    assert notebooks.main(["--root", str(tree.root), "execute", str(path)]) == 1
    assert path.read_bytes() == before
    message = capsys.readouterr().err
    assert "book/chapters/01_one.ipynb: cell 2 did not run" in message
    assert "ValueError: not fine" in message


def test_execute_refuses_a_path_outside_the_course(tree: Tree, capsys: pytest.CaptureFixture[str]):
    path = tree.root / "elsewhere.ipynb"
    write(path, nbformat.v4.new_notebook())
    assert notebooks.main(["--root", str(tree.root), "execute", str(path)]) == 1
    assert "expected a notebook of book/chapters" in capsys.readouterr().err


def test_the_courses_notebooks_are_as_they_should_be():
    assert check(Tree(ROOT)) == []


def test_one_labs_notebooks_can_be_checked_alone(
    run_tree: Tree, capsys: pytest.CaptureFixture[str]
):
    assert notebooks.main(["--root", str(run_tree.root), "new-lab", "other"]) == 0
    check_one = ["--root", str(run_tree.root), "check", "--lab"]
    capsys.readouterr()
    assert notebooks.main([*check_one, "tiny"]) == 0
    assert capsys.readouterr().out == "2 notebooks are as they should be.\n"
    assert notebooks.main([*check_one, "other"]) == 1
    assert "labs/solutions/other.ipynb: " in capsys.readouterr().out
    assert notebooks.main([*check_one, "absent"]) == 1
    assert "no notebook of 'absent'" in capsys.readouterr().out


def test_contributing_lists_every_tag():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for tag in TAGS:
        assert f"`{tag}`" in text, tag


def test_a_drift_in_a_copy_of_the_course_is_found(tmp_path: Path):
    tree = Tree(tmp_path)
    for folder in ("labs", "book", "src/course_utils/labs"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    labs = [path for path in tree.notebooks() if tree.kind(path) == "lab"]
    assert labs
    for path in labs:
        _edit(path, "student", "pass")
        assert any(
            sentence.startswith(f"{tree.name(path)}: the student cell") for sentence in check(tree)
        )
