"""Clones of the course for tests to change, publish or add to."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder and return what it says."""
    command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b.c", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def clone(into: Path) -> Path:
    """Copy what git does not ignore, as it lies there, into a repository with one commit.

    Its `.venv` is the environment that the tests run in.

    Args:
        into: a folder that is not there yet.

    Returns:
        The same.
    """
    listed = git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in listed.split("\0"):
        if name and (ROOT / name).is_file():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, into / name)
    (into / ".venv").symlink_to(sys.prefix)
    git(into, "init", "--quiet", "--initial-branch=main")
    (into / ".git" / "info" / "exclude").write_text("/.venv\n", encoding="utf-8")
    git(into, "add", "--all")
    git(into, "commit", "--quiet", "--message=All of it")
    return into


def shell(command: str, folder: Path, **environment: str) -> str:
    """Run a command line as a runner of GitHub's does; fail with what it said."""
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", command],
        cwd=folder,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout
