"""The process between the parent and a graded program: nothing that the program starts outlives it.

Started as `python -m course_utils.runner.keeper MODULE FOLDER`; runs MODULE with FOLDER, and ends
as that ends. On Linux every process below it whose own parent ends becomes its child, however it
detached itself, so that it can end them all. Elsewhere it ends the program's process group and what
is still below it; the parent looks for the rest.

Standard input is a pipe that the parent holds open: when it closes, all is to end. Knows nothing of
what the program does.
"""

import contextlib
import ctypes
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import NoReturn

import psutil

_PR_SET_CHILD_SUBREAPER = 36


def main(module: str, folder: str) -> NoReturn:
    """Run the module with the folder, then end all it left, then end as it did."""
    _adopt_orphans()
    program = subprocess.Popen(
        [sys.executable, "-P", "-m", module, folder],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )

    def pass_on(number: int, _frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(program.pid, number)

    signal.signal(signal.SIGUSR1, pass_on)
    threading.Thread(target=_await_parent, daemon=True).start()
    status = _ended(program.pid)
    _end_all(program.pid)
    if select.select([0], [], [], 0)[0]:  # the parent may be gone, so nobody else removes it
        shutil.rmtree(folder, ignore_errors=True)
    _leave(status)


def _adopt_orphans() -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # a C library without it
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _await_parent() -> None:
    """End what runs when the parent lets go of the pipe; the main thread then sees it end."""
    with contextlib.suppress(OSError):
        while os.read(0, 1):
            pass
    _kill_below()


def _ended(pid: int) -> int:
    """Wait for a child, and for the orphans that end meanwhile; return its exit status."""
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == pid:
            return os.waitstatus_to_exitcode(status)


def _end_all(group: int) -> None:
    """End every process below this one; on Linux there is none left when it has no child."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
    while True:
        _kill_below()
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.005)


def _kill_below() -> None:
    for each in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            each.kill()


def _leave(status: int) -> NoReturn:
    """End with an exit code, or by the signal that ended the program."""
    if status < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it has dumped its own, if any
        with contextlib.suppress(OSError):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main(*sys.argv[1:])
