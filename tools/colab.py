"""Makes environments like Colab's: a JAX that is not the pinned one, IPython, `google.colab`.

What takes long to install is installed once, under .versions/, and kept; each environment is a new
layer over it, in which nothing of the course is. As a program it says whether this machine can make
one, and keeps what it installed. Knows Python, pip and kernels; knows nothing of what is tried in
them.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from versions import HOME, interpreter

PYTHON = "3.13"
JAX = "0.9.2"
"""Older than the pinned one: an installation that replaced it would show."""
PREINSTALLED = (f"jax=={JAX}", f"jaxlib=={JAX}", "numpy", "matplotlib", "ipykernel")
FETCHED = ("hatchling", "equinox")
"""What an installation of the course needs and Colab does not have: to build it, and to run it."""
_PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet")


class NotPossibleError(Exception):
    """This machine cannot make the environment; the message says what is missing."""


def base() -> Path:
    """Return the Python that has what Colab has, made when it is not there.

    Raises:
        NotPossibleError: there is no such Python, or the package index cannot be reached.
    """
    folder = HOME / "colab"
    python, stamp = folder / "bin" / "python", folder / ".installed"
    wanted = " ".join((PYTHON, *PREINSTALLED))
    try:
        found = interpreter(PYTHON)
    except LookupError as error:
        raise NotPossibleError(f"{error}.") from error
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([found, "-m", "venv", folder], check=True)
        _pip(python, "install", "--no-compile", *PREINSTALLED)
        stamp.write_text(wanted, encoding="utf-8")
    return python


def ready() -> Path:
    """Return `base()` once pip can fetch what every installation of the course needs.

    Raises:
        NotPossibleError: as `base`, or the package index cannot be reached.
    """
    python = base()
    with tempfile.TemporaryDirectory() as fetched:
        _pip(python, "download", "--no-deps", "--dest", fetched, *FETCHED)
    return python


def layer(folder: Path) -> Path:
    """Make a new environment over the kept one, with an importable `google.colab`.

    Args:
        folder: where; it must not exist.

    Returns:
        Its Python. What is installed through it lands in it and hides what is below.

    Raises:
        NotPossibleError: as `ready`.
    """
    below = ready()
    subprocess.run([below, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    packages = _packages(python)
    (packages / "below.pth").write_text(f"{_packages(below)}\n", encoding="utf-8")
    (packages / "google" / "colab").mkdir(parents=True)
    (packages / "google" / "colab" / "__init__.py").touch()
    return python


def add_kernel(python: Path, folder: Path) -> str:
    """Write a kernel on `python` where `JUPYTER_PATH=folder` finds it; return its name."""
    spec = folder / "kernels" / "colab"
    spec.mkdir(parents=True)
    command = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    text = json.dumps({"argv": command, "display_name": "Python 3", "language": "python"})
    (spec / "kernel.json").write_text(text, encoding="utf-8")
    return spec.name


def environment(state: Path) -> Mapping[str, str]:
    """Return the variables of a kernel there: nothing of this checkout, JAX picks its device."""
    ours = ("JAX_", "COURSE_", "PYTHON", "VIRTUAL_ENV", "PYTEST_", "MPLBACKEND")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | {"COURSE_STATE": str(state)}


def _packages(python: Path) -> Path:
    command = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    return Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())


def _pip(python: Path, *arguments: str | Path) -> None:
    command = [python, *_PIP, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise NotPossibleError(
            f"pip could not {arguments[0]} what it takes to stand in for Colab: {last}"
        )


def main() -> int:
    """Say what is missing, with exit code 1, where no such environment can be made."""
    try:
        ready()
    except NotPossibleError as error:
        print(f"{error}\nNot run: a published lab on a machine like Colab.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
