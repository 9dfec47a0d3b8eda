"""The CUDA compiler that X-rays need: where it is, whether it is whole, how it gets there.

The toolchain is JAX's CUDA plugin and NVIDIA's assembler in a folder of their own, one folder for
each JAX and Python version. Nothing is put into the reader's environment. Only the worker process
sees the folder. Knows nothing of cards or programs.
"""

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from course_utils.instruments.xray.errors import XrayUnavailable

ROOT_VARIABLE = "COURSE_XRAY_TOOLCHAIN"
"""Environment variable that names another folder for the toolchains."""

COMMAND = "course xray --install"
OLDEST_JAX = (0, 7, 2)
NEEDED_BYTES = 1_000_000_000
"""Free disk that an installation asks for: the files unpacked, and pip's copies on the way."""

_ASSEMBLER = "nvidia-cuda-nvcc-cu12>=12.6,<13"
_MARKER = "toolchain.json"
_PARTS = (
    "jax_plugins/xla_cuda12/xla_cuda_plugin.so",
    "nvidia/cuda_nvcc/bin/ptxas",
    "nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc",
)


@dataclass(frozen=True)
class Status:
    """Whether X-rays can be made here.

    Attributes:
        ready: the toolchain for the running JAX is installed and whole.
        reason: one sentence on why not; empty when ready.
        folder: where the toolchain is or would be.
        size_bytes: what it takes on disk; 0 when absent.
        packages: installed distributions with their versions.
    """

    ready: bool
    reason: str
    folder: Path
    size_bytes: int = 0
    packages: tuple[str, ...] = ()


def root() -> Path:
    """Return the folder that holds the toolchains of all JAX versions."""
    chosen = os.environ.get(ROOT_VARIABLE)
    if chosen:
        return Path(chosen).expanduser().absolute()
    return platformdirs.user_data_path("course_utils") / "xray"


def jax_version() -> str:
    """Return the version of the installed JAX, without importing it."""
    return importlib.metadata.version("jax")


def folder() -> Path:
    """Return the folder of the toolchain that belongs to the running JAX and Python."""
    python = f"py{sys.version_info.major}{sys.version_info.minor}"
    return root() / f"jax-{jax_version()}-{python}-{platform.machine()}"


def not_possible() -> str | None:
    """Say why X-rays can never work on this machine with this JAX, or return None."""
    system, machine = platform.system(), platform.machine()
    if system != "Linux":
        name = {"Darwin": "macOS"}.get(system, system)
        return (
            f"X-rays are not possible on {name}: NVIDIA's compiler exists for Linux only; "
            "use Linux, WSL or Colab."
        )
    if machine not in ("x86_64", "aarch64"):
        return (
            f"X-rays are not possible on a {machine} processor: JAX's CUDA compiler exists for "
            "x86_64 and aarch64 only."
        )
    version = jax_version()
    if _numbers(version) < OLDEST_JAX:
        oldest = ".".join(map(str, OLDEST_JAX))
        return (
            f"X-rays are not possible with jax {version}: they need jax {oldest} or newer; "
            "update JAX."
        )
    return None


def _numbers(version: str) -> tuple[int, ...]:
    digits = []
    for part in version.split(".")[:3]:
        if not part.isdigit():
            break
        digits.append(int(part))
    return tuple(digits)


def status() -> Status:
    """Look at the toolchain without changing anything."""
    where = folder()
    if reason := not_possible():
        return Status(False, reason, where)
    marker = _read_marker(where)
    missing = [part for part in _PARTS if not (where / part).is_file()]
    if marker is not None and not missing:
        size = sum(file.stat().st_size for file in where.rglob("*") if file.is_file())
        return Status(True, "", where, size, tuple(marker.get("packages", ())))
    if where.exists():
        what = missing[0] if missing else _MARKER
        reason = f"The X-ray toolchain is damaged ({what} is missing): run `{COMMAND}` again."
    else:
        reason = (
            f"The X-ray toolchain for jax {jax_version()} is not installed: run `{COMMAND}` "
            "(about 600 MB, once, in a folder of its own)."
        )
    return Status(False, reason, where)


def require() -> Path:
    """Return the toolchain's folder.

    Raises:
        XrayUnavailable: if it is not installed or cannot be.
    """
    where = folder()
    if reason := not_possible():
        raise XrayUnavailable(reason)
    if _read_marker(where) is None or not all((where / part).is_file() for part in _PARTS):
        raise XrayUnavailable(status().reason)
    return where


def install(*, quiet: bool = False) -> Status:
    """Install the toolchain for the running JAX; return at once when it is there already.

    Safe to call from several processes: one installs, the others wait for it. A broken-off
    installation leaves nothing behind that could be taken for a whole one.

    Args:
        quiet: print nothing while pip works.

    Raises:
        XrayUnavailable: if it cannot be installed; one sentence says why.
    """
    now = status()
    if now.ready:
        return now
    if reason := not_possible():
        raise XrayUnavailable(reason)
    where = folder()
    try:
        where.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _no_folder(where.parent, error) from error
    with _locked(where.parent):
        now = status()  # another process may have installed it meanwhile
        if now.ready:
            return now
        free = shutil.disk_usage(where.parent).free
        if free < NEEDED_BYTES:
            raise XrayUnavailable(
                f"The X-ray toolchain needs {NEEDED_BYTES / 1e9:.0f} GB of free disk in "
                f"{where.parent}, and {free / 1e9:.2f} GB are free: make room, or set "
                f"{ROOT_VARIABLE} to a folder on another disk."
            )
        fresh = where.parent / f".new-{uuid.uuid4().hex}"
        try:
            packages = _pip(fresh, quiet=quiet)
            missing = [part for part in _PARTS if not (fresh / part).is_file()]
            if missing:
                raise XrayUnavailable(
                    f"The X-ray toolchain for jax {jax_version()} came without {missing[0]}: "
                    "this JAX version is not supported yet."
                )
            (fresh / "nvidia/cuda_nvcc/bin/ptxas").chmod(0o755)
            marker = {"jax": jax_version(), "packages": packages}
            (fresh / _MARKER).write_text(json.dumps(marker))
            if where.exists():
                shutil.rmtree(where)
            fresh.rename(where)
        except OSError as error:
            raise _no_folder(where.parent, error) from error
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return status()


def remove() -> list[Path]:
    """Delete the toolchains of every JAX version; return the folders that were deleted."""
    if not root().is_dir():
        return []
    with _locked(root()):
        found = [each for each in root().iterdir() if each.name.startswith(("jax-", ".new-"))]
        for each in found:
            shutil.rmtree(each)
    return found


def _read_marker(where: Path) -> dict | None:
    try:
        marker = json.loads((where / _MARKER).read_text())
    except (OSError, ValueError):
        return None
    return marker if isinstance(marker, dict) else None


def _no_folder(where: Path, error: OSError) -> XrayUnavailable:
    return XrayUnavailable(
        f"The X-ray toolchain cannot be written to {where} ({error.strerror or error}): set "
        f"{ROOT_VARIABLE} to a folder you can write to."
    )


@contextlib.contextmanager
def _locked(parent: Path) -> Iterator[None]:
    """Hold the one lock for changes below a toolchain root; it ends with the process."""
    import fcntl  # noqa: PLC0415  (does not exist on Windows)

    with open(parent / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _requirements() -> list[str]:
    """Name the packages: the plugin must match jaxlib exactly, or it refuses to load."""
    version = importlib.metadata.version("jaxlib")
    return [f"jax-cuda12-plugin=={version}", f"jax-cuda12-pjrt=={version}", _ASSEMBLER]


def _pip(target: Path, *, quiet: bool) -> list[str]:
    """Install the packages into `target`; return their names with versions."""
    options = ["--no-deps", "--target", str(target), *_requirements()]
    if importlib.util.find_spec("pip"):
        command = [sys.executable, "-m", "pip", "install", "--no-input", "--no-compile", *options]
        command.append("--disable-pip-version-check")
    elif uv := shutil.which("uv"):
        command = [uv, "pip", "install", "--python", sys.executable, *options]
    else:
        raise XrayUnavailable(
            f"The X-ray toolchain needs pip, which this Python ({sys.executable}) lacks: run "
            f"`{sys.executable} -m ensurepip`, then `{COMMAND}` again."
        )
    with tempfile.TemporaryFile("w+") as log:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log if quiet else None,
            stderr=log,
            check=False,
            env={name: value for name, value in os.environ.items() if name != "PIP_USER"},
        )
        log.seek(0)
        text = log.read()
    if done.returncode:
        raise XrayUnavailable(_why_pip_failed(text))
    return sorted(
        f"{found.metadata['Name']}=={found.version}"
        for found in importlib.metadata.distributions(path=[str(target)])
    )


def _why_pip_failed(text: str) -> str:
    """Turn pip's output into one sentence."""
    lowered = text.lower()
    network = ("connection", "network", "timed out", "temporary failure", "retrying", "proxy")
    if "no space left" in lowered:
        return (
            f"The X-ray toolchain did not fit on the disk of {root()}: make room, or set "
            f"{ROOT_VARIABLE} to a folder on another disk."
        )
    if any(word in lowered for word in network):
        return (
            "The X-ray toolchain could not be downloaded because the package index did not "
            f"answer: check the network, then run `{COMMAND}` again."
        )
    if "no matching distribution" in lowered or "no solution found" in lowered:
        return (
            f"There is no CUDA compiler for jax {jax_version()} on Python "
            f"{sys.version_info.major}.{sys.version_info.minor} ({platform.machine()}), so "
            "X-rays are not possible with this JAX; use a released version."
        )
    lines = [line for line in text.splitlines() if line.strip()] or ["no output"]
    return f"The X-ray toolchain could not be installed; pip says: {lines[-1].strip()}"
