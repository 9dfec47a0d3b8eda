"""What a graded process says to its parent: lines that are appended to a file, each one signed.

The key is known to the two processes alone and is never written down, so that whoever can read and
write the file cannot add a line that counts. Code that runs inside the graded process can get at
the key all the same. Both ends are here; neither knows what the messages are about.
"""

import json
import threading
from collections.abc import Mapping
from hashlib import blake2b
from os import O_APPEND, O_CREAT, O_WRONLY, _exit, close, getpid, write
from os import open as open_file
from pathlib import Path
from typing import Any

Message = Mapping[str, Any]

KEY_BYTES = 32
_SIGNATURE_BYTES = 16
_MESSAGE_BYTES = 4 * 1024 * 1024

_encode = json.JSONEncoder(allow_nan=False).encode


def _signature(data: bytes, key: bytes) -> bytes:
    return blake2b(data, key=key, digest_size=_SIGNATURE_BYTES).hexdigest().encode()


class Channel:
    """The end that speaks: opens the file anew for each line.

    A learner's code that closes every file descriptor does not cut it. A copy of the process that
    the learner's code forked has nothing to say: it ends where it would speak.
    """

    def __init__(self, path: str, key: bytes) -> None:
        self._path, self._key, self._pid = path, key, getpid()
        self._count = 0
        self._lock = threading.Lock()

    def say(self, kind: str, **fields: Any) -> None:
        """Append one message."""
        if getpid() != self._pid:
            _exit(1)
        with self._lock:
            self._count += 1
            data = _encode({"count": self._count, "kind": kind, **fields}).encode()
            data = _signature(data, self._key) + b" " + data + b"\n"
            handle = open_file(self._path, O_WRONLY | O_APPEND | O_CREAT, 0o600)
            try:
                while data:
                    data = data[write(handle, data) :]
            finally:
                close(handle)


class Mailbox:
    """The end that listens: only lines with the right signature count, and each only once."""

    def __init__(self, path: Path, key: bytes) -> None:
        self._path, self._key = path, key
        self._offset = 0
        self._rest = b""
        self._count = 0

    def new(self) -> list[Message]:
        """Return the messages that came since the last call, in order."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(_MESSAGE_BYTES)
        except OSError:
            return []
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-_MESSAGE_BYTES:]
        return [message for line in lines if (message := self._message(line)) is not None]

    def _message(self, line: bytes) -> Message | None:
        signature, _, data = line.partition(b" ")
        if signature != _signature(data, self._key):
            return None
        try:
            plain = json.loads(data)
            count, kind = plain.pop("count"), plain["kind"]
        except (ValueError, RecursionError, TypeError, LookupError, AttributeError):
            return None
        if not isinstance(count, int) or not isinstance(kind, str):
            return None
        if count <= self._count:  # said before, and copied
            return None
        self._count = count
        return plain
