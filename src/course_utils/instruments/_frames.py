"""Whose line of code is running: finds the learner's line under library frames.

It knows Python frames and source files. It knows nothing of JAX.
"""

import functools
import linecache
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARIES = tuple(
    folder + os.sep
    for folder in {
        *(sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib", "platstdlib")),
        _PACKAGE.rstrip(os.sep),
    }
)
_GUARD = os.path.join(_PACKAGE, "guard.py")
"""Runs the learner's code: what called it is the grader, and above that the cell with the grade."""

_SHOWN = 72
"""Characters of a source line that a message shows."""


@dataclass(frozen=True, order=True)
class Line:
    """A line of the learner's code.

    Attributes:
        file: the file as Python names it (a notebook cell has a made-up name).
        number: line number in that file or cell, from 1.
        text: the source text of the line, stripped; empty when Python does not have it.
    """

    file: str
    number: int
    text: str = ""

    def __str__(self) -> str:
        text = self.text if len(self.text) <= _SHOWN else self.text[: _SHOWN - 1] + "…"
        return f"line {self.number}: `{text}`" if text else f"line {self.number}"


@functools.lru_cache(maxsize=4096)
def _is_library(file: str) -> bool:
    return file.startswith("<frozen") or os.path.abspath(file).startswith(_LIBRARIES)


@functools.lru_cache(maxsize=4096)
def _is_guard(file: str) -> bool:
    return os.path.abspath(file) == _GUARD


def code_of(function: Any) -> CodeType | None:
    """Return the code object behind a function, a wrapper, a partial or a callable object."""
    for _ in range(20):
        code = getattr(function, "__code__", None)
        if isinstance(code, CodeType):
            return code
        inner = (
            getattr(function, "__wrapped__", None)
            or getattr(function, "func", None)
            or getattr(function, "__func__", None)
        )
        if inner is None:
            inner = vars(type(function)).get("__call__")
        if inner is None:
            return None
        function = inner
    return None


class Owner:
    """Tells the learner's frames from everybody else's.

    A frame is the learner's when its file is not a library's. Where the graded function itself
    comes from this package (a packaged starter or solution), only the frames of its own code are.
    """

    def __init__(self, functions: Iterable[Callable[..., Any]] = ()) -> None:
        codes = [code for code in map(code_of, functions) if code is not None]
        self._codes = {code for code in codes if _is_library(code.co_filename)}
        self._inner = {
            const for code in self._codes for const in code.co_consts if isinstance(const, CodeType)
        }

    def owns(self, frame: FrameType) -> bool:
        """Whether this frame runs the learner's code."""
        return self.owns_code(frame.f_code)

    def owns_code(self, code: CodeType) -> bool:
        """Whether this is the learner's code."""
        return code in self._codes or code in self._inner or not _is_library(code.co_filename)

    @staticmethod
    def line_of(frame: FrameType, number: int) -> Line:
        """Return a line of the code that a frame runs."""
        file = frame.f_code.co_filename
        return Line(file, number, linecache.getline(file, number).strip())

    def line(self, depth: int = 1) -> Line | None:
        """Return the learner's innermost running line, looking from `depth` frames up.

        None when the grader itself called what runs, with no line of the learner's between.
        """
        frame: FrameType | None = sys._getframe(depth)
        while frame is not None:
            if self.owns(frame):
                return self.line_of(frame, frame.f_lineno)
            if _is_guard(frame.f_code.co_filename):
                return None
            frame = frame.f_back
        return None
