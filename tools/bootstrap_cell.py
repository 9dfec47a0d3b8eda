"""The first code cell of every runnable page. `tools/notebooks.py sync` writes the region below.

It runs where nothing of the course may be installed: it needs only the standard library and pip.
It never installs from an address that was not stamped into it when the course was published.
"""

# region bootstrap
# @title Setup: run this cell first. There is nothing to change in it.
import importlib.metadata
import importlib.util
import pathlib
import platform
import subprocess
import sys
import tempfile

COURSE_ADDRESS = ""  # what pip installs on Colab: written here when the course is published


def _importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _pip_install(what: str) -> None:
    # A JAX that is already here stays as it is: on Colab it is the one that knows the GPU.
    keep = [
        f"{name}=={importlib.metadata.version(name)}\n"
        for name in ("jax", "jaxlib")
        if _importable(name)
    ]
    with tempfile.TemporaryDirectory() as folder:
        constraints = pathlib.Path(folder, "constraints.txt")
        constraints.write_text("".join(keep))
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.check_call([*pip, "--constraint", str(constraints), what])
    importlib.invalidate_caches()


ON_COLAB = _importable("google.colab")
if not _importable("course_utils"):
    here = pathlib.Path.cwd()
    clone = next((p for p in (here, *here.parents) if (p / "src/course_utils").is_dir()), None)
    if clone is not None:
        _pip_install(str(clone))
    elif ON_COLAB and COURSE_ADDRESS:
        _pip_install(COURSE_ADDRESS)
    elif COURSE_ADDRESS:
        raise RuntimeError(
            "course_utils is not installed in this kernel's Python. Install it and run this cell again:\n"
            f"    {sys.executable} -m pip install '{COURSE_ADDRESS}'"
        )
    else:
        raise RuntimeError(
            "course_utils is not installed, and this copy of the notebook does not know where to get it: "
            "it was not published with an address.\n"
            "On your own machine: run `make lab` in a clone of the course.\n"
            "On Colab: open the notebook with the button in the published book, or clone the course "
            "into this runtime and open a notebook of the clone."
        )

import jax

import course_utils  # noqa: F401

device = jax.devices()[0]
versions = {name: importlib.metadata.version(name) for name in ("jax-jit-course", "jax", "equinox")}
print(", ".join(f"{name} {version}" for name, version in versions.items()))
print(f"Python {platform.python_version()} on {device.device_kind} ({device.platform})")
if ON_COLAB and device.platform == "cpu":
    print(
        "This Colab runtime has no GPU. Everything here works without one. To get one: Runtime, "
        "Change runtime type, T4 GPU, Save; then run the notebook from the top."
    )
# endregion
