"""A finding's link leads somewhere from wherever its card is shown."""

import pytest

from course_utils.report.links import LINKS_VARIABLE, address

LINK = "book/chapters/01_eager.html#the-fix"


@pytest.fixture
def clone(tmp_path, monkeypatch):
    monkeypatch.delenv(LINKS_VARIABLE, raising=False)
    for folder in ("labs/solutions", "book/chapters"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "_toc.yml").touch()
    (tmp_path / "book/chapters/01_eager.ipynb").touch()
    monkeypatch.chdir(tmp_path / "labs")
    return tmp_path


def test_in_a_clone_it_leads_to_the_chapters_notebook(clone):
    assert address(LINK) == "../book/chapters/01_eager.ipynb#the-fix"


def test_where_the_book_is_built_it_leads_to_the_page(clone):
    built = clone / "_build/html" / LINK.partition("#")[0]
    built.parent.mkdir(parents=True)
    built.touch()
    assert address(LINK) == f"../_build/html/{LINK}"


@pytest.mark.parametrize(("folder", "up"), [("labs", ".."), ("labs/solutions", "../.."), ("", ".")])
def test_a_stored_card_leads_to_the_page_beside_its_own(clone, monkeypatch, folder, up):
    monkeypatch.setenv(LINKS_VARIABLE, "pages")
    monkeypatch.chdir(clone / folder)
    assert address(LINK) == (f"{up}/{LINK}" if up != "." else LINK)


def test_outside_a_clone_it_is_as_it_was_until_published(tmp_path, monkeypatch):
    monkeypatch.delenv(LINKS_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    assert address(LINK) == LINK
    monkeypatch.setenv(LINKS_VARIABLE, "https://example.org/course")
    assert address(LINK) == f"https://example.org/course/{LINK}"
