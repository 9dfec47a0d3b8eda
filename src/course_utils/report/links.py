"""Where a finding's link leads from here: the published book, the built one, or the notebook.

A link names a page of the book and a heading, from the project's root: `book/x.html#heading`. It
knows files and folders only.
"""

import os
from pathlib import Path

LINKS_VARIABLE = "COURSE_LINKS"
"""`pages`: link to the book's pages beside this one, as stored outputs must. Else an address."""

PUBLISHED = ""
"""The published book's address, ending in `/`; written here when the course is published."""


def address(link: str) -> str:
    """Return what a browser needs to follow a link.

    Args:
        link: the page and heading, from the project's root.

    Returns:
        In a stored output, the page relative to this notebook's; else the page of the book built in
        this clone, or the chapter's notebook; outside a clone, the published page or, unpublished,
        the link as it is.
    """
    wanted = os.environ.get(LINKS_VARIABLE, "")
    if wanted not in ("", "pages"):
        return wanted.rstrip("/") + "/" + link
    root = _root()
    if root is None:
        return PUBLISHED + link
    page, _, heading = link.partition("#")
    notebook = Path(page).with_suffix(".ipynb")
    built = Path("_build", "html", page)
    if wanted == "pages":
        target = Path(page)
    elif (root / built).is_file():
        target = built
    elif (root / notebook).is_file():
        target = notebook
    else:
        target = Path(page)
    relative = os.path.relpath(root / target, Path.cwd())
    return Path(relative).as_posix() + (f"#{heading}" if heading else "")


def _root() -> Path | None:
    """Return the clone that the working directory is in, or None."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "_toc.yml").is_file() and (folder / "labs").is_dir():
            return folder
    return None
