"""The built book as a browser meets it: its pages, and a server for them on this machine.

Knows `_toc.yml` and the folder the HTML is written to. Knows nothing of what is tested or
photographed.
"""

import functools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal, get_args

import yaml

ROOT = Path(__file__).resolve().parent.parent
VARIABLE = "COURSE_BUILT_BOOK"

Theme = Literal["light", "dark"]
THEMES: tuple[Theme, ...] = get_args(Theme)


def folder() -> Path:
    """Where the HTML lies: `_build/html`, or what COURSE_BUILT_BOOK names."""
    return Path(os.environ.get(VARIABLE, ROOT / "_build" / "html")).resolve()


def pages() -> list[str]:
    """Every page of the table of contents, in reading order, as `labs/eager_crops`."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    return [toc["root"], *_files(toc)]


def _files(entry: dict) -> Iterator[str]:
    for part in entry.get("parts", []):
        yield from _files(part)
    for group in ("chapters", "sections"):
        for child in entry.get(group, []):
            if "file" in child:
                yield child["file"]
            yield from _files(child)


def runnable(page: str) -> bool:
    """Whether a page is a notebook."""
    return (ROOT / f"{page}.ipynb").is_file()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base's name)
        pass


@contextmanager
def served(where: Path) -> Iterator[str]:
    """Serve a folder on a free port of this machine.

    Yields:
        The address of the folder, ending in `/`.
    """
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(where)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def choose_theme(theme: Theme) -> str:
    """Script that makes the theme's choice before a page's own scripts run, as a reader's click."""
    return f"localStorage.setItem('mode', '{theme}'); localStorage.setItem('theme', '{theme}');"
