"""A process and all it starts: how much memory they hold, and ending every one of them.

The first process ends those below it when its standard input closes. Whatever comes of that, each
is looked for here too: by its parent, by having been seen before, and by a mark in its environment.
"""

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field

import psutil

MARK = "COURSE_RUN"
"""Environment variable that marks the processes of one run."""

_ROUNDS = 50
_ROUND_SECONDS = 0.1
_OWN_SECONDS = 5.0
"""For the first process to end all others and itself."""


@dataclass
class Tree:
    """A started process with its descendants.

    Attributes:
        process: the first process, with a pipe as its standard input; it leads a session and a
            process group of its own.
        mark: the value of `MARK` in its environment.
    """

    process: "subprocess.Popen[bytes]"
    mark: str
    _seen: dict[psutil.Process, None] = field(default_factory=dict)

    def ended(self) -> bool:
        """Whether the first process has ended; it stays a zombie until `end`, so its id is kept."""
        try:
            return psutil.Process(self.process.pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    def look(self) -> tuple[int, int]:
        """Return how many processes are alive, and the bytes of memory they hold together."""
        with contextlib.suppress(psutil.NoSuchProcess):
            first = psutil.Process(self.process.pid)
            for each in (first, *first.children(recursive=True)):
                self._seen[each] = None
        alive = [each for each in self._seen if _alive(each)]
        self._seen = dict.fromkeys(alive)
        return len(alive), sum(map(_resident, alive))

    def own_memory(self) -> int:
        """Return the bytes they hold, with pages that several share counted once. Slower."""
        return sum(map(_proportional, self._seen))

    def signal(self, number: int) -> None:
        """Send a signal to the first process alone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, number)

    def end(self) -> int:
        """End every process of the tree, and return the first one's exit status."""
        self.look()
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        deadline = time.monotonic() + _OWN_SECONDS
        while not self.ended() and time.monotonic() < deadline:
            time.sleep(0.005)
        for _ in range(_ROUNDS):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.look()
            left = {*self._seen, *self._marked()}
            for each in left:
                with contextlib.suppress(psutil.Error):
                    each.kill()
            deadline = time.monotonic() + _ROUND_SECONDS
            while (left := {each for each in left if _alive(each)}) and time.monotonic() < deadline:
                time.sleep(0.005)
            if not left and not self._marked():
                break
        return self.process.wait()

    def _marked(self) -> list[psutil.Process]:
        found = []
        for each in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if each.environ().get(MARK) == self.mark and _alive(each):
                    found.append(each)
        return found


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _resident(process: psutil.Process) -> int:
    try:
        return process.memory_info().rss
    except psutil.Error:
        return 0


def _proportional(process: psutil.Process) -> int:
    try:
        full = process.memory_full_info()
    except psutil.Error:
        return _resident(process)
    return getattr(full, "pss", None) or full.uss
