"""The parent of a graded process: starts it, reads what it says, bounds it, and ends it.

Whatever the process does, `supervise` returns within the limits, with a bounded part of what it
printed, and no process of its tree is left. It knows nothing of what is being graded.
"""

import contextlib
import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from course_utils import state
from course_utils.runner.channel import KEY_BYTES, Mailbox, Message
from course_utils.runner.processes import MARK, Tree

Why = Literal["said", "exited", "seconds", "memory", "processes", "start"]
"""Why a run ended: it said its last word, its process ended without one, or a limit was passed."""

LAST_WORDS = ("report", "problem", "crashed", "interrupted")
"""Kinds of message after which the process ends by itself, at once."""
SO_FAR = "stuck"
"""Kind of message that is the last unless another comes within as long again as it took."""
MAX_PROCESSES = 200
START_SECONDS = 180.0
"""For loading Python, JAX and the grader; the time limit counts from then on."""

_KEPT_BYTES = 64 * 1024
_READ_BYTES = 64 * 1024
_READS_PER_TURN = 64
_TURN_SECONDS = 0.05
_LOOK_SECONDS = 0.2
_LOOK_SHARE = 20
"""Looking at the process tree takes at most one part in so many of the time."""
_STACK_SECONDS = 1.0
_LAST_WORD_SECONDS = 2.0
"""For a process that has said its last word to end by itself."""
_KEEPER = "course_utils.runner.keeper"


@dataclass(frozen=True)
class Limits:
    """What a run may use.

    Attributes:
        seconds: wall time of the learner's cells and the grade together.
        memory: bytes that the process and all it starts may hold together.
    """

    seconds: float
    memory: int


@dataclass(frozen=True)
class Ended:
    """A run that is over.

    Attributes:
        why: what ended it.
        messages: what the process said, in order.
        status: its exit status; negative for the signal that ended it.
        stack: where its threads were when a limit was passed, as `faulthandler` writes it.
        output: beginning and end of what it printed.
        seconds: how long the learner's code and the grade ran, in seconds.
    """

    why: Why
    messages: tuple[Message, ...]
    status: int
    stack: str
    output: str
    seconds: float

    def first(self, kind: str) -> Message | None:
        """Return the first message of this kind, or None."""
        return next((each for each in self.messages if each["kind"] == kind), None)

    def last(self, *kinds: str) -> Message | None:
        """Return the last message of one of these kinds, or None."""
        return next((each for each in reversed(self.messages) if each["kind"] in kinds), None)


@dataclass
class _Kept:
    """The beginning and the end of a stream of bytes, in bounded memory."""

    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    count: int = 0

    def add(self, data: bytes) -> None:
        self.count += len(data)
        room = _KEPT_BYTES - len(self.head)
        self.head += data[:room]
        self.tail += data[room:]
        del self.tail[:-_KEPT_BYTES]

    def text(self) -> str:
        left_out = self.count - len(self.head) - len(self.tail)
        gap = f"\n… {left_out} bytes left out …\n".encode() if left_out else b""
        return (bytes(self.head) + gap + bytes(self.tail)).decode("utf-8", "replace")


def supervise(
    module: str,
    job: Mapping[str, Any],
    limits: Limits,
    *,
    stack_file: str,
    hear: Callable[[Message], None] = lambda _: None,
    cancelled: threading.Event | None = None,
) -> Ended:
    """Run a module in a process of its own, until it has said its last word or passed a limit.

    Args:
        module: the program: it gets a folder, finds `job.json` there, and says its messages over
            a `Channel` with the job's `channel` and, in hexadecimal, `key`.
        job: what to do, as plain data.
        limits: what it may use.
        stack_file: name of the file, in the folder, to which it writes its stack on SIGUSR1.
        hear: called with each message as it comes.
        cancelled: ends the run when set.

    Returns:
        How it ended. By then no process of it is left.

    Raises:
        KeyboardInterrupt: when cancelled.
        OSError: the process cannot be started.
    """
    with tempfile.TemporaryDirectory(prefix="course-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        channel, key = folder / f"channel-{secrets.token_hex(8)}", secrets.token_bytes(KEY_BYTES)
        text = json.dumps({**job, "channel": str(channel), "key": key.hex()})
        (folder / "job.json").write_text(text, encoding="utf-8")
        tree = _start(module, folder)
        watch = _Watch(tree, limits, Mailbox(channel, key), hear, cancelled)
        stack, status = "", 0
        try:
            why = watch.run()
            if why in {"seconds", "memory", "processes"}:
                stack = _stack(tree, folder / stack_file)
        finally:
            status = tree.end()
            watch.close()
        messages, output = tuple(watch.messages), watch.kept.text()
        return Ended(why, messages, status, stack, output, watch.seconds)


def _start(module: str, folder: Path) -> Tree:
    mark = secrets.token_hex(8)
    environment = os.environ | {
        MARK: mark,
        "IPYTHONDIR": str(folder / "ipython"),
        "MPLBACKEND": "Agg",
        "PYTHONIOENCODING": "utf-8:backslashreplace",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        state.VARIABLE: str(folder / "state"),  # what a notebook grades by itself does not count
    }
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", _KEEPER, module, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,
    )
    return Tree(process, mark)


class _Watch:
    """One run under way."""

    def __init__(
        self,
        tree: Tree,
        limits: Limits,
        mailbox: Mailbox,
        hear: Callable[[Message], None],
        cancelled: threading.Event | None,
    ) -> None:
        self._tree, self._limits, self._mailbox = tree, limits, mailbox
        self._hear, self._cancelled = hear, cancelled
        self.messages: list[Message] = []
        self.kept = _Kept()
        assert tree.process.stdout is not None
        self._output = tree.process.stdout.fileno()
        os.set_blocking(self._output, False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._output, selectors.EVENT_READ)
        self._started = time.monotonic()
        self._ready: float | None = None
        self._until: float | None = None
        self._last = False
        self._next_look = self._started

    def run(self) -> Why:
        """Return why the run is to end."""
        while True:
            self._drain(_TURN_SECONDS)
            ended = self._tree.ended()
            self._read()
            if ended:
                return "exited" if self._until is None else "said"
            if self._until is not None and time.monotonic() > self._until:
                return "said"
            if self._cancelled is not None and self._cancelled.is_set():
                raise KeyboardInterrupt
            if (why := self._over()) is not None:
                return why

    def close(self) -> None:
        """Take what was printed last, and let go of the pipes."""
        self._drain(0)
        self._selector.close()
        for pipe in (self._tree.process.stdin, self._tree.process.stdout):
            if pipe is not None:
                pipe.close()

    @property
    def seconds(self) -> float:
        """How long the learner's code and the grade have run, in seconds."""
        return 0.0 if self._ready is None else time.monotonic() - self._ready

    def _read(self) -> None:
        for message in self._mailbox.new():
            self.messages.append(message)
            now = time.monotonic()
            if message["kind"] == "ready" and self._ready is None:
                self._ready = now
            elif message["kind"] in LAST_WORDS:
                self._until, self._last = now + _LAST_WORD_SECONDS, True
            elif not self._last:
                self._until = now + self.seconds if message["kind"] == SO_FAR else None
            self._hear(message)

    def _over(self) -> Why | None:
        now = time.monotonic()
        if self._ready is None:
            if now - self._started > START_SECONDS:
                return "start"
        elif self.seconds > self._limits.seconds:
            return "seconds"
        if now < self._next_look:
            return None
        count, memory = self._tree.look()
        took = time.monotonic() - now
        self._next_look = now + max(_LOOK_SECONDS, _LOOK_SHARE * took)
        if count > MAX_PROCESSES:
            return "processes"
        if memory > self._limits.memory and self._tree.own_memory() > self._limits.memory:
            return "memory"
        return None

    def _drain(self, seconds: float) -> None:
        """Wait for output, at most so long, and take some of it."""
        if not self._selector.get_map():
            time.sleep(seconds)
            return
        if not self._selector.select(seconds):
            return
        for _ in range(_READS_PER_TURN):
            try:
                data = os.read(self._output, _READ_BYTES)
            except BlockingIOError:
                return
            if not data:  # everybody who could print has closed it
                self._selector.unregister(self._output)
                return
            self.kept.add(data)


def _stack(tree: Tree, file: Path) -> str:
    """Return where the process is, if it can still say so."""
    if not hasattr(signal, "SIGUSR1"):
        return ""
    tree.signal(signal.SIGUSR1)
    deadline = time.monotonic() + _STACK_SECONDS
    text = ""
    while time.monotonic() < deadline:
        time.sleep(0.05)
        with contextlib.suppress(OSError):
            new = file.read_text(encoding="utf-8", errors="replace")
            if new and new == text:
                break
            text = new
    return text
