"""The program that runs in a fresh process: the learner's cells, then the grade.

Started as `python -m course_utils.runner.child FOLDER`, where FOLDER holds `job.json`, which it
removes. What it has to say goes to the channel that is named in the job; standard output and error
are the learner's. The grader, JAX and the lab are loaded before any of the learner's code, and what
this module uses later is taken by name here, so that a notebook that replaces `json.dumps` or
`os.write` changes nothing.
"""

import asyncio
import contextlib
import faulthandler
import importlib
import inspect
import json
import linecache
import os
import signal
import subprocess
import sys
import traceback
import types
from ast import PyCF_ALLOW_TOP_LEVEL_AWAIT
from collections.abc import Callable
from os import _exit
from pathlib import Path
from typing import Any, NoReturn

from course_utils import grading
from course_utils.runner.channel import Channel
from course_utils.runner.source import CannotGradeError, Cell

STACK = "stack"
"""File in the folder that gets every thread's stack on SIGUSR1, also from inside compiled code."""

_AGAIN = "Restart the kernel and run all cells: the same error shows there. Mend it and save."
_SCRIPT_AGAIN = "Import the file in a Python session: the same error shows there. Mend it and save."


class Space:
    """The namespace that cells run in: IPython's where IPython is installed, for its magics."""

    def __init__(self, file: str, *, script: bool) -> None:
        self.names: dict[str, Any]
        self.again = _SCRIPT_AGAIN if script else _AGAIN
        self._shell = None if script else _shell()
        if self._shell is not None:
            self.names = self._shell.user_ns
        else:
            name = "submission" if script else "__main__"
            module = sys.modules[name] = types.ModuleType(name)
            self.names = vars(module)
            if script:
                self.names["__file__"] = file
        self._loop = asyncio.Runner()

    def run(self, cell: Cell) -> None:
        """Run one cell; whatever it raises comes out, a `SyntaxError` before any of it ran."""
        text = cell.text
        if self._shell is not None:
            text = self._shell.transform_cell(text)
        linecache.cache[cell.file] = (len(text), None, text.splitlines(keepends=True), cell.file)
        code = compile(text, cell.file, "exec", PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        trap = self._shell.builtin_trap if self._shell is not None else contextlib.nullcontext()
        with trap:
            if code.co_flags & inspect.CO_COROUTINE:
                self._loop.run(eval(code, self.names))
            else:
                exec(code, self.names)


def _shell() -> Any:
    try:
        from IPython.core.interactiveshell import InteractiveShell  # noqa: PLC0415
        from traitlets.config import Config  # noqa: PLC0415
    except ImportError:
        return None

    class Shell(InteractiveShell):
        def enable_gui(self, gui: str | None = None) -> None:
            """Do nothing: figures are drawn into memory, no window opens."""

        def ask_exit(self) -> None:
            """Do what `exit` and `quit` ask for."""
            raise SystemExit

        def system(self, cmd: str) -> None:
            """Run `!cmd` without forking: a fork of a process that runs JAX may deadlock."""
            command = self.var_expand(cmd, depth=1)
            sys.stdout.flush()
            self.user_ns["_exit_code"] = subprocess.run(command, shell=True, check=False).returncode

    config = Config()
    config.HistoryManager.enabled = False
    return Shell.instance(config=config)


def run_cells(cells: tuple[Cell, ...], space: Space, starts: Callable[[Cell], None]) -> None:
    """Run the cells in order.

    Args:
        cells: the learner's code.
        space: where it runs.
        starts: called before each cell.

    Raises:
        CannotGradeError: one of them is not Python, or raised.
    """
    files = {cell.file for cell in cells}
    for cell in cells:
        starts(cell)
        try:
            space.run(cell)
        except Exception as error:
            if not cell.may_raise:
                raise _cell_failed(cell, error, files, space.again) from None
        except BaseException as error:
            raise _cell_failed(cell, error, files, space.again) from None


def _cell_failed(cell: Cell, error: BaseException, files: set[str], again: str) -> CannotGradeError:
    if isinstance(error, SyntaxError) and error.filename == cell.file:
        number = error.lineno or 0
        text = f": `{cell.line(number)}`" if cell.line(number) else ""
        if cell.line(number).startswith(("%", "!")):
            return CannotGradeError(
                f"Line {number} of {cell.title} is a command of IPython, which is not installed"
                f"{text}.",
                f"Install it, then grade again: {sys.executable} -m pip install ipython",
            )
        return CannotGradeError(
            f"Syntax error in line {number} of {cell.title}{text} ({error.msg}).",
            "Correct that line, save, and grade again.",
        )
    where = _where(cell, error, files)
    if isinstance(error, ModuleNotFoundError) and error.name:
        return CannotGradeError(
            f"{where} imports `{error.name}`, which is not installed here.",
            "Remove the import if the lab does not need it; else install it: "
            f"{sys.executable} -m pip install {error.name.partition('.')[0]}",
        )
    if isinstance(error, SystemExit):
        return CannotGradeError(
            f"{where} ends the program (`sys.exit`, `exit` or `quit`).",
            "Remove that call, save, and grade again.",
        )
    return CannotGradeError(f"{where} raised {_one_line(error)}.", again)


def _where(cell: Cell, error: BaseException, files: set[str]) -> str:
    """Return the learner's line that the error comes from."""
    found = [
        (frame.f_code.co_filename, number)
        for frame, number in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_filename in files
    ]
    here = [number for file, number in found if file == cell.file]
    if not here:
        return cell.title[0].upper() + cell.title[1:]
    text = cell.line(here[-1])
    return f"Line {here[-1]} of {cell.title}" + (f" (`{text}`)" if text else "")


def _one_line(error: BaseException) -> str:
    try:
        text = str(error).strip().split("\n", 1)[0]
    except Exception:
        text = ""
    text = text if len(text) <= 300 else text[:299] + "…"
    name = type(error).__name__
    return f"{name}: {text}".rstrip(".") if text else name


def take(names: dict[str, Any], lab: Any, *, script: bool) -> dict[str, Any]:
    """Return the lab's entry points, by name, from what the cells defined.

    Raises:
        CannotGradeError: one is missing.
    """
    missing = [str(entry) for entry in lab.entries if entry.name not in names]
    if missing:
        raise CannotGradeError(
            f"The code does not define {' and '.join(f'`{each}`' for each in missing)}, which the "
            f"lab {lab.name} grades.",
            "Keep the names that the starter uses; "
            + (
                "the whole file was run."
                if script
                else "all cells up to the last one tagged `student` were run."
            ),
        )
    return {entry.name: names[entry.name] for entry in lab.entries}


def _grade(job: dict[str, Any], channel: Channel) -> None:
    lab = importlib.import_module(job["registry"]).get(job["lab"])
    cells = tuple(Cell(**cell) for cell in job["cells"])
    modules = dict(sys.modules)
    space = Space(job["file"], script=job["script"])
    channel.say("ready", versions=grading.versions(), checks=[check.name for check in lab.checks])
    os.chdir(job["folder"])
    sys.path.insert(0, job["folder"])
    run_cells(cells, space, lambda cell: channel.say("cell", title=cell.title))
    sys.modules.update(modules)  # what the cells removed or put in the place of loaded modules
    functions = take(space.names, lab, script=job["script"])
    channel.say("grading")
    try:
        report = grading.grade_lab(
            lab,
            functions,
            seed=job["seed"],
            progress=lambda line: channel.say("progress", line=line),
            stuck=lambda report: channel.say("stuck", report=report.to_dict()),
        )
    except KeyboardInterrupt as error:  # no key does that here: the submission did
        frames = traceback.extract_tb(error.__traceback__)
        channel.say("interrupted", frames=[(each.filename, each.lineno) for each in frames])
    else:
        channel.say("report", report=report.to_dict())


def main(folder: str) -> NoReturn:
    """Do the job that lies in `folder`."""
    file = Path(folder, "job.json")
    job = json.loads(file.read_text(encoding="utf-8"))
    file.unlink()
    channel = Channel(job["channel"], bytes.fromhex(job.pop("key")))
    sys.argv[:] = [job["file"]]
    _be_first_to_go()
    with open(Path(folder, STACK), "w", encoding="utf-8") as stack:
        if hasattr(faulthandler, "register"):
            faulthandler.register(signal.SIGUSR1, file=stack, all_threads=True)
        try:
            _grade(job, channel)
        except CannotGradeError as error:
            channel.say("problem", problem=error.problem, todo=error.todo)
        except BaseException as error:
            channel.say("crashed", error=_one_line(error))
            with contextlib.suppress(Exception):
                traceback.print_exception(error)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        _exit(0)  # not through the learner's exit handlers and threads


def _be_first_to_go() -> None:
    """When memory runs out, Linux ends this process before any other."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


if __name__ == "__main__":
    main(sys.argv[1])
