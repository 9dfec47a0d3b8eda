"""The first code cell of every runnable page. `tools/notebooks.py sync` writes the region below.

It runs where nothing of the course may be installed: until then it has only the standard library
and pip. It installs from no address but the one stamped into it when the course was published.
"""
# ruff: noqa: PLC0415  (JAX is imported only once it may have been installed)

# region bootstrap
# @title Setup: run this cell first. There is nothing to change in it.
import importlib.metadata
import importlib.util
import pathlib
import platform
import subprocess
import sys
import tempfile

COURSE_ADDRESS = ""  # what pip installs on Colab; written here when the course is published


def _importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _pip_install(what: str) -> None:
    # A JAX that is already here stays as it is: on Colab it is the one that drives the GPU.
    present = [name for name in ("jax", "jaxlib") if _importable(name)]
    with tempfile.TemporaryDirectory() as folder:
        keep = pathlib.Path(folder, "keep.txt")
        keep.write_text("".join(f"{n}=={importlib.metadata.version(n)}\n" for n in present))
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.check_call([*pip, "--constraint", str(keep), what])
    importlib.invalidate_caches()


def _install_course(on_colab: bool) -> None:
    here = pathlib.Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "src" / "course_utils").is_dir() and (folder / "pyproject.toml").is_file():
            return _pip_install(str(folder))
    if not COURSE_ADDRESS:
        raise RuntimeError(
            "course_utils is not installed, and this copy of the notebook does not say where to "
            "get it: it was not published with an address.\n"
            "On your own machine: run `make lab` in a clone of the course.\n"
            "On Colab: open the notebook with the button of the published book."
        )
    if not on_colab:
        raise RuntimeError(
            "course_utils is not installed in this kernel's Python. In a terminal:\n"
            f"    {sys.executable} -m pip install '{COURSE_ADDRESS}'\n"
            "Then run this cell again."
        )
    return _pip_install(COURSE_ADDRESS)


def _set_up() -> None:
    on_colab = _importable("google.colab")
    if not _importable("course_utils"):
        _install_course(on_colab)
    import jax

    names = ("jax-jit-course", "jax", "equinox")
    print(", ".join(f"{name} {importlib.metadata.version(name)}" for name in names))
    device = jax.devices()[0]
    print(f"Python {platform.python_version()}, device {device.platform}: {device.device_kind}")
    if on_colab and device.platform == "cpu":
        print(
            "This Colab runtime has no GPU. Everything here works without one. To get one: "
            "Runtime, Change runtime type, T4 GPU, Save; then run the notebook from the top."
        )


_set_up()
# endregion
