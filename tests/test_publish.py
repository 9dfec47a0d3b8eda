"""Publishing stamps the named addresses and no other, and what they lead to is there.

The book is built once, by the commands of the Pages workflow in a clone with a remote of its own.
"""

import dataclasses
import functools
import importlib.util
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urldefrag, urljoin

import publish
import pytest
import yaml
from notebook_form import Tree, read, tagged
from publish_stamp import link_to_the_web
from publish_target import make

from course_utils import labs
from course_utils.findings import Link
from course_utils.report.links import LINKS_VARIABLE, address
from tests.copies import ROOT, clone, git, shell

REPOSITORY = "someone/jit-course"
URL = f"https://github.com/{REPOSITORY}"
PAGES = "https://someone.github.io/jit-course/"
COLAB = f"https://colab.research.google.com/github/{REPOSITORY}/blob/published/"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


# What is named and what follows from it.


def test_on_github_every_address_follows_from_the_repository():
    target = make("Someone/jit-course", "v1.2")
    assert target.repository == "https://github.com/Someone/jit-course"
    assert target.tag == "published-v1.2"
    assert target.requirement == (
        "jax-jit-course @ https://github.com/Someone/jit-course/archive/refs/tags/"
        "published-v1.2.zip"
    )
    assert target.pages == PAGES
    assert target.colab == COLAB.replace("someone", "Someone").rstrip("/")
    assert make("https://github.com/Someone/jit-course.git/", "v1.2") == make(
        "Someone/jit-course", "v1.2"
    )


def test_a_users_own_site_has_no_folder():
    assert make("Someone/someone.github.io", "v1").pages == "https://someone.github.io/"


def test_another_host_has_no_colab_and_says_where_its_book_is():
    target = make("https://gitlab.com/group/sub/course", "v1", pages="https://a.example/c")
    assert target.archive == (
        "https://gitlab.com/group/sub/course/-/archive/published-v1/course-published-v1.zip"
    )
    assert target.pages == "https://a.example/c/"
    assert target.colab == ""


@pytest.mark.parametrize(
    ("repository", "version", "options", "expected"),
    [
        ("course", "v1", {}, "repository 'course': expected owner/name"),
        ("a/b/c", "v1", {}, "expected owner/name"),
        ("a/..", "v1", {}, "expected owner/name"),
        ("git@github.com:a/b", "v1", {}, "expected owner/name"),
        ("ftp://host.example/a/b", "v1", {}, "expected owner/name"),
        ("https://user:word@github.com/a/b", "v1", {}, "expected owner/name"),
        ("https://github.com/a", "v1", {}, "expected owner/name"),
        ("https://github.com/a/b?c", "v1", {}, "expected owner/name"),
        ("a/b", "", {}, "version '': expected a name that git takes"),
        ("a/b", "v1 2", {}, "version 'v1 2'"),
        ("a/b", "v1..2", {}, "version 'v1..2'"),
        ("a/b", 'v1"', {}, "version 'v1\"'"),
        ("a/b", "v1", {"branch": "-x"}, "branch '-x'"),
        ("a/b", "v1", {"pages": "a.example"}, "pages 'a.example': expected an address"),
        ("a/b", "v1", {"archive": "https://a.example/'x"}, "archive"),
        ("https://host.example/a/b", "v1", {}, "name it with --archive"),
        ("https://gitlab.com/a/b", "v1", {}, "name it with --pages"),
    ],
)
def test_what_cannot_be_is_named(repository, version, options, expected):
    with pytest.raises(ValueError, match=re.escape(expected)):
        make(repository, version, **options)


# What is stamped, by the commands of the workflow.


@dataclasses.dataclass(frozen=True)
class Published:
    """A clone that was published, and what came of it."""

    clone: Path
    remote: Path
    into: Path
    version: str

    @property
    def book(self) -> Path:
        return self.into / publish.BOOK

    @property
    def branch(self) -> Path:
        return self.into / publish.PUSHED

    @property
    def html(self) -> Path:
        return self.book / "_build" / "html"

    def package_links(self) -> ModuleType:
        """Return the published package's module of links."""
        path = self.branch / "src" / "course_utils" / "report" / "links.py"
        spec = importlib.util.spec_from_file_location("published_links", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


def steps(workflow: str, job: str) -> list[dict]:
    path = ROOT / ".github" / "workflows" / workflow
    return yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"][job]["steps"]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Published:
    folder = tmp_path_factory.mktemp("publish")
    remote = folder / "remote.git"
    remote.mkdir()
    git(remote, "init", "--quiet", "--bare")
    source = clone(folder / "clone")
    git(source, "remote", "add", "origin", str(remote))
    version = git(source, "rev-parse", "HEAD")
    runner = {
        "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_REPOSITORY": REPOSITORY,
        "VERSION": version,
        "PUBLISHED": str(folder / "published"),
        "PAGES": PAGES.rstrip("/"),
    }
    commands = [step["run"] for step in steps("pages.yml", "build") if "run" in step]
    made, *rest = commands
    assert "tools/venv.sh" in made  # the clone has this environment
    assert len(rest) == 3
    for command in rest:
        shell(command, source, **runner)
    return Published(source, remote, folder / "published", version)


def test_the_clone_that_was_published_is_as_it_was(published: Published):
    assert git(published.clone, "status", "--porcelain") == ""
    assert git(published.clone, "rev-parse", "HEAD") == published.version
    assert git(published.clone, "branch", "--list") == "* main"


def test_every_set_up_cell_installs_the_published_version(published: Published):
    wanted = (
        f'COURSE_ADDRESS = "jax-jit-course @ {URL}/archive/refs/tags/'
        f'published-{published.version}.zip"'
    )
    for folder in (published.book, published.branch):
        notebooks = Tree(folder).notebooks()
        assert len(notebooks) == len(Tree(ROOT).notebooks())
        for path in notebooks:
            (cell,) = tagged(read(path), "bootstrap")
            assert wanted in cell.source, path
            assert cell.source.count("COURSE_ADDRESS = ") == 1


def test_the_branch_holds_the_stamped_tree_under_its_tag(published: Published):
    files = git(published.remote, "ls-tree", "-r", "--name-only", "published").splitlines()
    there = [path for path in published.branch.rglob("*") if path.is_file()]
    assert sorted(files) == sorted(path.relative_to(published.branch).as_posix() for path in there)
    assert not [name for name in files if name.startswith((".github/", ".ci/"))]
    tag = git(published.remote, "rev-parse", f"published-{published.version}^{{commit}}")
    assert tag == git(published.remote, "rev-parse", "published")


def test_publishing_again_adds_to_the_branch_and_keeps_the_old_tag(
    published: Published, tmp_path: Path
):
    def remote(ref: str) -> str:
        return git(published.remote, "rev-parse", ref)

    before = remote("published")
    root = ["--root", str(published.clone)]
    assert publish.main([*root, "push", "--from", str(published.into)]) == 0
    assert remote("published") == before  # nothing changed
    stamp = ["stamp", "--repository", REPOSITORY, "--into", str(tmp_path / "next")]
    assert publish.main([*root, *stamp, "--version", "v2"]) == 0
    assert publish.main([*root, "push", "--from", str(tmp_path / "next")]) == 0
    assert remote("published^") == before
    assert remote("published-v2^{commit}") == remote("published")
    assert remote(f"published-{published.version}^{{commit}}") == before


def test_a_used_folder_a_changed_clone_and_a_folder_without_git_are_refused(
    published: Published, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    stamp = ["stamp", "--repository", REPOSITORY, "--version", "v3", "--into"]
    root = ["--root", str(published.clone)]
    assert publish.main([*root, *stamp, str(published.into)]) == 2
    assert "expected an empty folder or none" in capsys.readouterr().err
    assert publish.main([*root, *stamp, str(published.clone / "in")]) == 2
    assert "expected a folder outside the clone" in capsys.readouterr().err
    stray = published.clone / "stray.txt"
    stray.touch()
    assert publish.main([*root, *stamp, str(tmp_path / "a")]) == 2
    assert "has changes that no commit holds" in capsys.readouterr().err
    stray.unlink()
    assert publish.main(["--root", str(tmp_path), *stamp, str(tmp_path / "b")]) == 2
    assert "expected the root of a git clone" in capsys.readouterr().err
    assert publish.main([*root, "push", "--from", str(tmp_path)]) == 2
    assert "expected a folder that `stamp` wrote" in capsys.readouterr().err


def test_a_file_without_the_place_for_an_address_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    source = tmp_path / "clone"
    clone(source)
    config = source / "_config.yml"
    config.write_text(
        config.read_text(encoding="utf-8").replace('colab_url: ""', "colab_url: x"),
        encoding="utf-8",
    )
    git(source, "commit", "--all", "--quiet", "--message=Changed")
    stamp = ["stamp", "--repository", REPOSITORY, "--version", "v1", "--into", str(tmp_path / "o")]
    assert publish.main(["--root", str(source), *stamp]) == 2
    assert "expected the line 'colab_url: \"\"' once, found it 0 times" in capsys.readouterr().err


# What the addresses lead to.


class Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, path: Path):
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            if tag == "a" and name == "href" and value:
                self.links.append(value)


@functools.cache
def read_page(path: Path) -> Page:
    return Page(path)


def is_there(address: str, html: Path) -> bool:
    """Whether an address of the published book is a page, with its anchor, of the built one."""
    page, anchor = urldefrag(address)
    assert page.startswith(PAGES), address
    path = html / unquote(page.removeprefix(PAGES))
    return path.is_file() and (not anchor or unquote(anchor) in read_page(path).anchors)


def test_every_runnable_page_opens_in_colab_from_a_file_of_the_branch(published: Published):
    tree = Tree(published.branch)
    for path in tree.notebooks():
        name = tree.name(path)
        page = read_page(published.html / Path(name).with_suffix(".html"))
        buttons = {link for link in page.links if "colab.research.google.com" in link}
        assert buttons == {COLAB + name}, name


def test_links_to_the_repository_lead_to_files_of_the_branch(published: Published):
    found = 0
    for path in published.html.rglob("*.html"):
        for link in read_page(path).links:
            if link.startswith((f"{URL}/blob/", COLAB)):
                ref, _, name = urldefrag(link)[0].partition("/blob/")[2].partition("/")
                assert ref == "published", (path, link)
                assert (published.branch / name.partition("?")[0]).is_file(), (path, link)
                found += 1
    assert found >= len(Tree(published.branch).notebooks())


def test_every_link_of_a_notebook_on_the_branch_leads_somewhere(published: Published):
    tree, found = Tree(published.branch), 0
    for path in tree.notebooks():
        for cell in read(path).cells:
            texts = [cell.source] if cell.cell_type == "markdown" else []
            texts += [o.get("data", {}).get("text/html", "") for o in cell.get("outputs", [])]
            for text in texts:
                for written, shown in re.findall(r"\]\(([^)\s]+)\)|\bhref=\"([^\"]+)\"", text):
                    link = written or shown
                    assert "://" in link, (path, link)
                    if link.startswith(PAGES):
                        found += 1
                        assert is_there(link, published.html), (path, link)
                    elif link.startswith(URL):
                        name = urldefrag(link)[0].removeprefix(f"{URL}/blob/published/")
                        assert (published.branch / name).is_file(), (path, link)
    assert found >= len(tree.notebooks())


def test_a_notebooks_link_to_nothing_stops_the_publication(published: Published):
    path = published.book / "labs" / f"{labs.NAMES[0]}.ipynb"
    notebook = read(path)
    notebook.cells[0].source += "\n`[not](/a/link.ipynb)` [one](/labs/absent.ipynb)"
    with pytest.raises(ValueError, match=r"links to '/labs/absent\.ipynb', which is no file"):
        link_to_the_web(
            notebook, f"labs/{path.name}", published.branch, make(REPOSITORY, published.version)
        )


def links(value: object) -> Iterator[Link]:
    """Every link to the book in a check, at whatever depth."""
    if isinstance(value, Link):
        yield value
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from links(getattr(value, field.name))
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from links(each)


@pytest.mark.parametrize("lab", labs.NAMES)
def test_every_findings_link_leads_to_a_heading_of_the_book(
    lab: str, published: Published, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.delenv(LINKS_VARIABLE, raising=False)
    module = published.package_links()
    for check in labs.get(lab).checks:
        found = list(links(check))
        assert found, f"{check.name} has no link"
        for link in map(str, found):
            # In a clone with its book built: a file beside the notebook.
            here = published.book / "labs"
            monkeypatch.chdir(here)
            page, _, anchor = address(link).partition("#")
            assert (here / page).resolve().is_relative_to(published.html), (check.name, link)
            assert anchor in read_page((here / page).resolve()).anchors, (check.name, link)
            # Anywhere else, with the published package: an address.
            monkeypatch.chdir(tmp_path)
            assert module.address(link) == PAGES + link
            assert is_there(module.address(link), published.html), (check.name, link)


def test_a_stored_cards_links_lead_to_headings_beside_its_page(published: Published):
    found = 0
    for lab in labs.NAMES:
        for name in (f"labs/{lab}", f"labs/solutions/{lab}"):
            for link in read_page(published.html / f"{name}.html").links:
                if "book/chapters/" in link and "://" not in link and "#" in link:
                    assert is_there(urljoin(f"{PAGES}{name}.html", link), published.html), link
                    found += 1
    assert found


# The workflows.


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_calls_what_is_there(path: Path):
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    called = 0
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 60
        for step in job["steps"]:
            if "uses" in step:
                assert re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"]), step
                continue
            called += 1
            # What a stranger may choose never becomes part of a command.
            assert "${{" not in step["run"], step
            words = [word for word in shlex.split(step["run"]) if not re.match(r"[A-Z]+=", word)]
            if words[0] == "make":
                assert words[1] in targets, step
            else:
                program = ROOT / words[0]
                assert os.access(program, os.X_OK), step
                if words[0] == ".venv/bin/python":
                    assert (ROOT / words[1]).is_file(), step
    assert called or "deploy" in workflow["jobs"]


def test_only_what_the_tests_of_main_passed_is_published():
    path = ROOT / ".github" / "workflows" / "pages.yml"
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    triggers = workflow[True]  # YAML reads `on` as a truth value
    assert triggers["workflow_run"]["workflows"] == ["test"]
    tests = (path.with_name("test.yml")).read_text(encoding="utf-8")
    assert yaml.safe_load(tests)["name"] == "test"
    build = workflow["jobs"]["build"]
    assert "workflow_run.conclusion == 'success'" in build["if"]
    assert "workflow_run.event == 'push'" in build["if"]
    assert build["permissions"] == {"contents": "write", "pages": "read"}
    (checkout,) = [step for step in build["steps"] if "checkout" in step.get("uses", "")]
    assert checkout["with"]["ref"] == "${{ env.VERSION }}"


def test_the_record_of_a_stamping_is_read_back(published: Published):
    record = json.loads((published.into / publish.RECORD).read_text(encoding="utf-8"))
    assert record == dataclasses.asdict(
        make(REPOSITORY, published.version, pages=PAGES.rstrip("/"))
    )


def test_the_script_itself_starts():
    command = [ROOT / ".venv" / "bin" / "python", ROOT / "tools" / "publish.py", "--help"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "stamp" in said
    assert "push" in said
