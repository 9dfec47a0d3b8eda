"""What every notebook of the tree says of itself to Colab, to Jupyter and to the book.

Read from the files as they are stored, without the authors' tools that write them.
"""

import json
import re
from pathlib import Path

import pytest

from tests.copies import ROOT, git

LISTED = git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "*.ipynb").splitlines()
NOTEBOOKS = sorted(name for name in LISTED if (ROOT / name).is_file())


def load(name: str) -> dict:
    return json.loads((ROOT / name).read_text(encoding="utf-8"))


def documented_tags() -> set[str]:
    """The tags that CONTRIBUTING.md lists."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.split("| tag | meaning |\n")[1].split("\n\n")[0]
    return set(re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE))


def test_there_are_notebooks_in_every_folder():
    assert {str(Path(name).parent) for name in NOTEBOOKS} == {
        "book/chapters",
        "labs",
        "labs/solutions",
    }


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_kernel_and_format(name: str):
    notebook = load(name)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    assert notebook["metadata"]["kernelspec"] == kernel
    assert notebook["metadata"]["language_info"] == {"name": "python"}


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_lab_asks_colab_for_a_gpu_and_a_chapter_for_none(name: str):
    metadata = load(name)["metadata"]
    if name.startswith("labs/"):
        assert metadata["accelerator"] == "GPU"
        assert metadata["colab"] == {"gpuType": "T4", "provenance": []}
        assert metadata["course"] == {"lab": Path(name).stem}
    else:
        assert not {"accelerator", "colab", "course"} & set(metadata)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_cell_ids_are_clean(name: str):
    ids = [cell["id"] for cell in load(name)["cells"]]
    assert len(set(ids)) == len(ids)
    for each in ids:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", each), each
        assert len(each) <= 64


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_cells_carry_documented_tags_and_no_traces_of_a_front_end(name: str):
    tags = documented_tags()
    for number, cell in enumerate(load(name)["cells"], start=1):
        carried = cell["metadata"].get("tags", [])
        assert set(carried) <= tags, (number, carried)
        kept = {"tags", "mystnb"} | ({"cellView", "jupyter"} if "bootstrap" in carried else set())
        assert set(cell["metadata"]) <= kept, (number, cell["metadata"])


def test_the_documented_tags_are_those_that_the_check_knows():
    from notebook_form import TAGS

    assert documented_tags() == set(TAGS)
