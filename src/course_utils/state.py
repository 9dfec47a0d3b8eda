"""The last verdict of each lab on this machine, one small file per lab.

The files lie in the user's state folder, or in the folder that the environment variable
`COURSE_STATE` names. They are written whole or not at all, so that a killed process or a full disk
leaves the earlier verdict. A file that cannot be read counts as no verdict. Knows reports, and
nothing of labs.
"""

import contextlib
import json
import os
import re
import secrets
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from course_utils.findings import Report, Verdict

VARIABLE = "COURSE_STATE"
"""Environment variable that names another folder."""

_NAME = re.compile(r"[A-Za-z0-9_]{1,100}")


@dataclass(frozen=True)
class Last:
    """The last verdict of a lab.

    Attributes:
        verdict: what the grade came to.
        when: when it was graded, in ISO 8601 with the offset from UTC.
        device: what it was graded on.
        subject: the file that was graded; empty when it was graded in a notebook.
    """

    verdict: Verdict
    when: str
    device: str
    subject: str


def folder() -> Path:
    """Return the folder that holds the verdicts; it need not exist yet."""
    if given := os.environ.get(VARIABLE):
        return Path(given)
    import platformdirs  # noqa: PLC0415

    return Path(platformdirs.user_state_path("jax-jit-course", appauthor=False))


def record(report: Report) -> None:
    """Keep a report's verdict as its lab's last one. Never raises: a grade must not fail by it."""
    with contextlib.suppress(Exception):
        now = datetime.now(UTC).astimezone().isoformat(timespec="seconds")
        last = Last(report.verdict, now, report.device, report.subject)
        write_whole(_file(report.lab), json.dumps(asdict(last)))


def last(lab: str) -> Last | None:
    """Return a lab's last verdict, or None when there is none or it cannot be read."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        plain = json.loads(_file(lab).read_text(encoding="utf-8"))
        text = {name: str(plain[name]) for name in ("when", "device", "subject")}
        return Last(Verdict(plain["verdict"]), **text)
    return None


def reset(lab: str) -> bool:
    """Forget a lab's last verdict.

    Returns:
        Whether there was one.

    Raises:
        OSError: it is there and cannot be removed.
    """
    try:
        _file(lab).unlink()
    except FileNotFoundError:
        return False
    return True


def write_whole(path: Path, text: str) -> None:
    """Write a text file so that whoever reads it sees the old text or the new, never a part.

    Raises:
        OSError: it cannot be written; the old file is as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("x", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _file(lab: str) -> Path:
    if not _NAME.fullmatch(lab):
        raise ValueError(f"not a lab's name: {lab!r}")
    return folder() / f"{lab}.json"
