"""Talks to the worker process: starts it once, keeps it, starts another when it has died.

Knows environments, pipes and timeouts. What is asked and what the answers mean is `api`'s business.
The caller's own environment and JAX are only read.
"""

import atexit
import contextlib
import io
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO

from course_utils.instruments.xray import toolchain, worker
from course_utils.instruments.xray.errors import XrayError, XrayTimeout, XrayUnavailable

COMPILER_FLAGS = ("--xla_gpu_autotune_level=0", "--xla_gpu_shard_autotuning=false")
"""Autotuning times kernels on the device, and there is none."""

START_SECONDS = 120.0
_DROPPED = ("JAX_", "XLA_", "CUDA", "NVIDIA_", "TF_", "NVCC", "LIBTPU", "TPU_", "ROCM_", "PYTHON")
_MISSING_PARTS = ("libdevice", "PTX compilation provider", "ptxas", "nvlink")


def worker_environment(folder: Path) -> dict[str, str]:
    """Return the worker's environment: the caller's, without anything that steers JAX or CUDA.

    A CUDA toolkit of the machine is out of reach: not on the path, and XLA is told where the
    toolchain's own is.

    Args:
        folder: the toolchain.
    """
    env = {
        name: text
        for name, text in os.environ.items()
        if name == "PYTHONHOME" or not name.startswith(_DROPPED)
    }
    own = folder / "nvidia" / "cuda_nvcc"
    for name in ("PATH", "LD_LIBRARY_PATH"):
        kept = [part for part in env.get(name, "").split(os.pathsep) if _is_clean(part)]
        env.pop(name, None)
        if kept:
            env[name] = os.pathsep.join(kept)
    own_paths = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return env | {
        "PYTHONPATH": os.pathsep.join((str(folder), *map(os.path.abspath, own_paths))),
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_X64": "1",  # dtypes are the program's own; nothing is narrowed
        "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "XLA_FLAGS": " ".join((*COMPILER_FLAGS, f'--xla_gpu_cuda_data_dir="{own}"')),
    }


def _is_clean(part: str) -> bool:
    """Whether a folder of a search path holds nothing of a CUDA toolkit."""
    if not part or "cuda" in part.lower() or "nvidia" in part.lower():
        return False
    tools = ("ptxas", "nvcc", "nvlink", "fatbinary")
    return not any(os.path.lexists(os.path.join(part, tool)) for tool in tools)


class Worker:
    """One running worker process."""

    def __init__(self, folder: Path) -> None:
        self._log = tempfile.TemporaryFile("w+b")  # noqa: SIM115  (open while the worker lives)
        read_end, write_end = os.pipe()  # not standard output: anybody may print there
        self._answers = os.fdopen(read_end, "rb", buffering=0)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", worker.__file__, str(write_end)],
                stdin=subprocess.PIPE,
                stdout=self._log,
                stderr=self._log,
                pass_fds=(write_end,),
                env=worker_environment(folder),
                start_new_session=True,  # an interrupt from the keyboard is for the caller
            )
        except BaseException:
            self._answers.close()
            self._log.close()
            raise
        finally:
            os.close(write_end)
        assert self._process.stdin is not None
        self._requests: BinaryIO = self._process.stdin  # type: ignore[assignment]
        try:
            self.hello, _ = self.ask({"what": "hello"}, timeout=START_SECONDS)
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        """The process number."""
        return self._process.pid

    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def ask(
        self, header: dict[str, Any], payload: bytes = b"", *, timeout: float
    ) -> tuple[dict[str, Any], bytes]:
        """Send a request and wait for the answer.

        Raises:
            XrayTimeout: no answer came in time.
            EOFError: the worker died.
        """
        try:
            worker.write_message(self._requests, header, payload)
        except (BrokenPipeError, ValueError) as error:
            raise EOFError(self.last_words()) from error
        deadline = time.monotonic() + timeout
        reader = _Deadline(self._answers, deadline)
        message = worker.read_message(reader)  # type: ignore[arg-type]
        if message is None:
            raise EOFError(self.last_words())
        return message

    def last_words(self) -> str:
        """Return the end of what the worker wrote to its log."""
        with contextlib.suppress(OSError, ValueError):
            self._log.seek(0)
            return self._log.read().decode(errors="replace")[-2000:].strip()
        return ""

    def stop(self) -> None:
        """End the process and wait for it."""
        with contextlib.suppress(OSError):
            self._process.kill()
        self._process.wait()
        self.forget()

    def forget(self) -> None:
        """Close this side of the pipes, leaving the process alone."""
        for stream in (self._requests, self._answers, self._log):
            with contextlib.suppress(OSError):
                stream.close()


class _Deadline:
    """Reads whole blocks from a pipe, and gives up at a point in time."""

    def __init__(self, stream: io.FileIO, deadline: float) -> None:
        self._descriptor = stream.fileno()
        self._deadline = deadline

    def read(self, count: int) -> bytes:
        blocks: list[bytes] = []
        while count:
            left = self._deadline - time.monotonic()
            ready, _, _ = select.select([self._descriptor], [], [], max(0.0, left))
            if not ready:
                raise XrayTimeout("no answer")
            block = os.read(self._descriptor, min(count, 1 << 20))
            if not block:
                break
            blocks.append(block)
            count -= len(block)
        return b"".join(blocks)


_lock = threading.Lock()
_worker: Worker | None = None


def request(header: dict[str, Any], payload: bytes, *, timeout: float) -> tuple[dict, bytes]:
    """Ask the worker, starting it where none runs. One request is answered at a time.

    Args:
        header: the request.
        payload: its bytes.
        timeout: seconds to wait for the answer, a start not counted.

    Returns:
        The answer's header and payload.

    Raises:
        XrayUnavailable: the toolchain is missing or broken.
        XrayTimeout: the compiler took longer than `timeout`.
        XrayError: the worker died twice over this request, or could not read it.
    """
    folder = toolchain.require()
    with _lock:
        try:
            answer, text = _ask(folder, header, payload, timeout)
        except EOFError:  # it died, perhaps long ago: once more with a new one
            stop()
            try:
                answer, text = _ask(folder, header, payload, timeout)
            except EOFError as error:
                stop()
                raise _broken(str(error)) from None
    if "error" in answer:
        raise _broken(answer["error"])
    if answer.get("refused") and any(part in text.decode() for part in _MISSING_PARTS):
        raise _broken(text.decode())
    return answer, text


def _ask(folder: Path, header: dict, payload: bytes, timeout: float) -> tuple[dict, bytes]:
    global _worker  # noqa: PLW0603
    if _worker is None or not _worker.alive():
        stop()
        _worker = Worker(folder)
    try:
        return _worker.ask(header, payload, timeout=timeout)
    except XrayTimeout:
        stop()
        raise XrayTimeout(
            f"the X-ray compiler took longer than {timeout:g} s: X-ray a smaller program, or pass "
            "a larger `timeout`."
        ) from None
    except EOFError:
        raise
    except BaseException:
        stop()  # an answer nobody waits for would be taken for the next one's
        raise


def _broken(words: str) -> XrayError:
    last = words.splitlines()[-1] if words else "it says nothing"
    if any(part in words for part in (*_MISSING_PARTS, "plugin", "Unknown backend")):
        return XrayUnavailable(
            f"The X-ray toolchain in {toolchain.folder()} does not work ({last}): run "
            f"`course xray --remove` and `{toolchain.COMMAND}`."
        )
    return XrayError(f"the X-ray worker failed: {last}")


def worker_pid() -> int | None:
    """Return the process number of the running worker, or None."""
    return _worker.pid if _worker is not None and _worker.alive() else None


def stop() -> None:
    """End the worker, if one runs; the next request starts another."""
    global _worker  # noqa: PLW0603
    if _worker is not None:
        _worker.stop()
        _worker = None


def _after_fork() -> None:
    """In a forked child: leave the parent's worker alone and have none."""
    global _lock, _worker  # noqa: PLW0603
    _lock = threading.Lock()
    if _worker is not None:
        _worker.forget()
        _worker = None


atexit.register(stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
