"""Writes a target's addresses into a copy of the course.

Two copies: `book`, from which the HTML is built, and `branch`, which is pushed. They differ in the
links of notebooks alone: between pages in the one; in the other, which is opened in Colab far from
its neighbours, to the published book. Knows the course's files; never touches the tree it copies.
"""

import copy
import posixpath
import re
import shutil
import subprocess
from pathlib import Path

import yaml
from nbformat import NotebookNode
from notebook_form import Tree, read, tagged, write
from publish_target import COLAB, Target

BOOK, PUSHED = "book", "branch"
LEFT_OUT = (".ci/", ".github/")
"""What is not published: nothing is tested or published from the stamped tree again."""

#: Code, which stays as it is, or a link to what is no address of its own.
_MARKDOWN_LINK = re.compile(r"```.*?```|`[^`\n]*`|(\]\()(?![a-z]+:)([^)\s]+)(\))", re.DOTALL)
_HTML_LINK = re.compile(r"(\bhref=[\"'])(?![a-z]+:|//)([^\"']+)([\"'])")


def publish(source: Path, into: Path, target: Target) -> tuple[Path, Path]:
    """Write both stamped copies.

    Args:
        source: the root of a clone of the course; its files are copied as they lie there.
        into: an empty or missing folder outside the clone.
        target: the addresses.

    Returns:
        The folder to build the book from, and the folder to push.

    Raises:
        ValueError: when `into` cannot be used, `source` is no clone, or a file does not have the
            one place that an address belongs in.
    """
    source, into = source.resolve(), into.resolve()
    if into == source or source in into.parents:
        raise ValueError(f"{into}: expected a folder outside the clone; name another.")
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise ValueError(f"{into}: expected an empty folder or none; empty it or name another.")
    book, pushed = into / BOOK, into / PUSHED
    for folder in (book, pushed):
        copy_files(source, folder)
        stamp(folder, target)
    tree = Tree(pushed)
    for path in tree.notebooks():
        notebook = read(path)
        link_to_the_web(notebook, tree.name(path), tree.root, target)
        write(path, notebook)
    readme = pushed / "README.md"
    readme.write_text(_preface(tree, target) + readme.read_text(encoding="utf-8"), encoding="utf-8")
    return book, pushed


def files(source: Path) -> list[str]:
    """The paths of a clone's files that git does not ignore, but for `LEFT_OUT`.

    Raises:
        ValueError: when the folder is not the root of a clone.
    """
    listed = _git(source, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    names = [name for name in listed.split("\0") if name and not name.startswith(LEFT_OUT)]
    return [name for name in names if (source / name).is_file()]


def uncommitted(source: Path) -> list[str]:
    """What differs from the last commit, as git's short status says it."""
    return _git(source, "status", "--porcelain").splitlines()


def _git(source: Path, *arguments: str) -> str:
    if not (source / ".git").exists():
        raise ValueError(f"{source}: expected the root of a git clone of the course.")
    command = ["git", "-C", str(source), *arguments]
    return subprocess.run(command, check=True, capture_output=True, encoding="utf-8").stdout


def copy_files(source: Path, into: Path) -> None:
    """Copy a clone's files as they lie there."""
    for name in files(source):
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source / name, into / name)


def stamp(root: Path, target: Target) -> None:
    """Write the addresses into a copy: settings of the book, the package, every set-up cell.

    Args:
        root: the copy.
        target: the addresses.

    Raises:
        ValueError: when a file does not have exactly one place for an address.
    """
    config = root / "_config.yml"
    for old, new in (
        ('  url: ""', f'  url: "{target.repository}"'),
        ("  branch: main", f"  branch: {target.branch}"),
        ("      repository_branch: main", f"      repository_branch: {target.branch}"),
        ('  colab_url: ""', f'  colab_url: "{COLAB if target.colab else ""}"'),
        ("  use_repository_button: false", "  use_repository_button: true"),
    ):
        _replace(config, old, new)
    settings = yaml.safe_load(config.read_text(encoding="utf-8"))
    assert settings["repository"]["url"] == target.repository
    _replace(
        root / "src" / "course_utils" / "report" / "links.py",
        'PUBLISHED = ""',
        f'PUBLISHED = "{target.pages}"',
    )
    cell, line = root / "tools" / "bootstrap_cell.py", 'COURSE_ADDRESS = ""'
    stamped = f'COURSE_ADDRESS = "{target.requirement}"'
    _replace(cell, line, stamped, whole_line=False)
    for path in Tree(root).notebooks():
        notebook = read(path)
        (bootstrap,) = tagged(notebook, "bootstrap")
        if bootstrap.source.count(line) != 1:
            raise ValueError(f"{path}: expected one {line!r} in its set-up cell; run make sync.")
        bootstrap.source = bootstrap.source.replace(line, stamped)
        write(path, notebook)


def _replace(path: Path, old: str, new: str, *, whole_line: bool = True) -> None:
    text = path.read_text(encoding="utf-8")
    pattern = rf"^{re.escape(old)}" + (r"$" if whole_line else r"(?=\s)")
    found, count = re.subn(pattern, lambda _: new, text, flags=re.MULTILINE)
    if count != 1:
        raise ValueError(f"{path}: expected the line {old.strip()!r} once, found it {count} times.")
    path.write_text(found, encoding="utf-8")


def link_to_the_web(notebook: NotebookNode, name: str, root: Path, target: Target) -> None:
    """Turn the links between the course's files into links to the published book, in place.

    Args:
        notebook: one of the course's.
        name: its path from the root.
        root: the stamped copy, which has the linked files.
        target: where the book is.

    Raises:
        ValueError: when a link leads to no file of the course.
    """

    def follow(match: re.Match[str]) -> str:
        before, link, after = match.groups()
        if link is None:
            return match[0]
        return f"{before}{web_address(link, name, root, target)}{after}"

    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = _MARKDOWN_LINK.sub(follow, cell.source)
        for output in cell.get("outputs", []):
            html = output.get("data", {}).get("text/html")
            if html is not None:
                output.data = copy.deepcopy(output.data)
                output.data["text/html"] = _HTML_LINK.sub(follow, html)


def web_address(link: str, name: str, root: Path, target: Target) -> str:
    """The address on the web of what a notebook links to.

    Args:
        link: a path, from the root when it begins with `/`, else from the notebook's folder, with
            or without a heading; or a heading alone.
        name: the notebook's path from the root.
        root: the copy that has the linked files.
        target: where the book is.

    Returns:
        A page of the book for what is a page, else the file in the repository.

    Raises:
        ValueError: when there is no such file.
    """
    path, mark, heading = link.partition("#")
    wanted = posixpath.normpath(
        path.lstrip("/") if path.startswith("/") else posixpath.join(posixpath.dirname(name), path)
    )
    if not path:
        wanted = name
    stem, ending = posixpath.splitext(wanted)
    if ending == ".html":
        sources = [stem + each for each in (".ipynb", ".md") if (root / (stem + each)).is_file()]
    else:
        sources = [wanted] if (root / wanted).is_file() else []
    if not sources:
        raise ValueError(f"{name}: links to {link!r}, which is no file of the course; mend it.")
    if stem in _pages(root):
        return target.page(stem) + mark + heading
    return target.file(sources[0]) + mark + heading


def _pages(root: Path) -> set[str]:
    """The pages of the book, from its table of contents, by path without ending."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    found = {toc["root"]}

    def walk(entry: object) -> None:
        if isinstance(entry, dict):
            if "file" in entry:
                found.add(entry["file"])
            for each in entry.values():
                walk(each)
        elif isinstance(entry, list):
            for each in entry:
                walk(each)

    walk(toc)
    return found


def _preface(tree: Tree, target: Target) -> str:
    """What stands above the README of the stamped tree."""
    lines = [
        f"> Made from version `{target.version}` and made anew at every publication: change "
        "nothing here.",
        f"> The book: <{target.pages}>",
        "",
    ]
    if target.colab:
        lines += ["| lab | |", "| --- | --- |"]
        labs = [path for path in tree.notebooks() if tree.kind(path) == "lab"]
        lines += [
            f"| {path.stem} | [open in Colab]({target.colab}/{tree.name(path)}) |" for path in labs
        ]
        lines.append("")
    return "\n".join(lines) + "\n"
