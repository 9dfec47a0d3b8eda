"""Keeps compiled programs on disk, named by what they were compiled from.

An entry never changes: another program, card, JAX or compiler flag has another name. Entries are
written whole or not at all, so several processes can write at once. What cannot be read counts as
absent.
"""

import contextlib
import gzip
import hashlib
import json
import os
import tempfile
import zlib
from pathlib import Path
from typing import Any

import platformdirs

FOLDER_VARIABLE = "COURSE_XRAY_CACHE"
"""Environment variable that names another folder for the cache."""

SCHEMA = 1
"""Changes when entries mean something else."""


def folder() -> Path:
    """Return the cache's folder; it may not exist yet."""
    chosen = os.environ.get(FOLDER_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    return platformdirs.user_cache_path("course_utils") / "xray"


def key(*parts: str) -> str:
    """Return the name of an entry made from these parts."""
    return hashlib.sha256(json.dumps([SCHEMA, *parts]).encode()).hexdigest()


def load(name: str) -> tuple[dict[str, Any], str] | None:
    """Return an entry's header and text, or None where there is no whole entry."""
    try:
        entry = json.loads(gzip.decompress(_path(name).read_bytes()))
        if entry["name"] != name:
            return None
        return dict(entry["header"]), str(entry["text"])
    except (OSError, EOFError, ValueError, KeyError, TypeError, zlib.error):
        return None


def store(name: str, header: dict[str, Any], text: str) -> None:
    """Write an entry. A cache that cannot be written is a slow one, not an error."""
    entry = json.dumps({"name": name, "header": header, "text": text})
    data = gzip.compress(entry.encode(), compresslevel=3, mtime=0)
    path = _path(name)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, fresh = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            os.replace(fresh, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(fresh)


def _path(name: str) -> Path:
    return folder() / name[:2] / f"{name}.json.gz"
