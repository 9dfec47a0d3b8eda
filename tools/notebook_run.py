"""Runs notebooks in fresh kernels and stores their outputs in normal form.

Knows nbclient. A notebook in which a cell raised is not stored. What ran, when, with which
versions and for how long is noted in `book/execution.json`.
"""

import copy
import datetime
import importlib.metadata
import json
import os
import platform
import re
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from notebook_form import Tree, code_digest, normalise, read, tags, write

CELL_TIMEOUT_SECONDS = 300
PACKAGES = ("jax", "jaxlib", "equinox")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
#: Asks a kernel that has imported JAX where it ran.
_DEVICE_PROBE = """
import sys as _sys
if "jax" in _sys.modules:
    print(_sys.modules["jax"].devices()[0].device_kind)
"""


class NotebookError(Exception):
    """A notebook did not run to its end; the message names the cell."""


@dataclass(frozen=True)
class Run:
    """A notebook that ran to its end."""

    notebook: NotebookNode
    seconds: float
    device: str


def run(notebook: NotebookNode, folder: Path, *, name: str) -> Run:
    """Run every cell of a notebook in a fresh kernel.

    Args:
        notebook: what to run; it is not changed.
        folder: the kernel's working directory.
        name: what messages call the notebook.

    Returns:
        The notebook with new outputs, the seconds its own cells took, and the device that JAX
        used, or `""` when the notebook does not import JAX.

    Raises:
        NotebookError: when a cell raises without the tag raises-exception, takes more than
            `CELL_TIMEOUT_SECONDS`, or its kernel dies.
    """
    fresh = copy.deepcopy(notebook)
    for cell in fresh.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
            if "nbval-skip" in tags(cell):
                cell.metadata["tags"] = [*tags(cell), "skip-execution"]
    probe = nbformat.v4.new_code_cell(_DEVICE_PROBE)
    fresh.cells.append(probe)
    started: dict[int, float] = {}
    client = NotebookClient(
        fresh,
        timeout=CELL_TIMEOUT_SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        coalesce_streams=True,
        record_timing=False,
        store_widget_state=False,
        skip_cells_with_tag="skip-execution",
        on_cell_start=lambda cell, cell_index: started.update({cell_index: time.monotonic()}),
    )
    try:
        client.execute(env=kernel_environment())
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        number = max(started, default=0) + 1
        plain = _COLOUR.sub("", str(error)).strip()
        raise NotebookError(f"{name}: cell {number} did not run:\n{plain}") from error
    fresh.cells.pop()
    for cell in fresh.cells:
        if "skip-execution" in tags(cell):
            cell.metadata["tags"].remove("skip-execution")
    times = sorted(started.values())
    device = "".join(output.get("text", "") for output in probe.outputs).strip()
    return Run(fresh, times[-1] - times[0], device)


def kernel_environment() -> dict[str, str]:
    """The environment a kernel gets: JAX picks its device, matplotlib draws into the notebook."""
    left_out = {"JAX_PLATFORMS", "JAX_PLATFORM_NAME", "MPLBACKEND", "FORCE_COLOR"}
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return kept | {
        "JUPYTER_PREFER_ENV_PATH": "1",
        "COURSE_LINKS": "pages",  # a stored card links to the pages of the built book
        # Verdicts of stored runs are not the author's own.
        "COURSE_STATE": tempfile.mkdtemp(prefix="course-state-"),
    }


def execute(tree: Tree, path: Path) -> Run:
    """Run one notebook, store it in normal form and note the run.

    Args:
        tree: the checkout.
        path: one of its notebooks.

    Returns:
        What ran.

    Raises:
        NotebookError: see `run`; the stored notebook is then left as it was.
    """
    notebook = read(path)
    normalise(notebook, tree.kind(path), path.stem)
    done = run(notebook, path.parent, name=tree.name(path))
    normalise(done.notebook, tree.kind(path), path.stem)
    write(path, done.notebook)
    _record(tree, path, done)
    return done


def _record(tree: Tree, path: Path, done: Run) -> None:
    """Note the run, and forget notebooks that are no longer there."""
    target = tree.execution_record
    old = json.loads(target.read_text(encoding="utf-8")) if target.is_file() else {}
    names = {tree.name(notebook) for notebook in tree.notebooks()}
    record = {name: entry for name, entry in old.items() if name in names}
    record[tree.name(path)] = {
        "code": code_digest(done.notebook),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "device": done.device,
        "python": platform.python_version(),
        "seconds": round(done.seconds, 1),
        "versions": {package: importlib.metadata.version(package) for package in PACKAGES},
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=target.parent, suffix=".tmp", delete=False
    ) as handle:
        handle.write(text)
    Path(handle.name).chmod(0o644)
    Path(handle.name).replace(target)
