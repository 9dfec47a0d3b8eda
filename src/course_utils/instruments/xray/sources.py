"""Which line of the learner's code a compiler location means.

Reads the call stacks that JAX writes into programs, in StableHLO text and in compiled HLO text, and
picks the innermost frame that is not a library's. Also makes the text that stands for a program in
the cache: the same for the same program, whatever called it.
"""

import functools
import os
import re
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_INSTRUMENTS = str(Path(__file__).resolve().parents[1]) + os.sep
_LABS = str(Path(__file__).resolve().parents[2] / "labs") + os.sep
_LIBRARIES = tuple(
    {
        sysconfig.get_path(name) + os.sep
        for name in ("purelib", "platlib", "stdlib", "platstdlib")
        if sysconfig.get_path(name)
    }
)
_CELL = re.compile(r".*[/\\]ipykernel_\d+[/\\](\d+)\.py$")


@dataclass(frozen=True, order=True)
class Source:
    """A place in Python code.

    Attributes:
        file: path of the file; for a notebook cell `<cell NUMBER>`, the same in each session.
        line: line number, from 1.
        function: qualified name of the function; empty where unknown.
    """

    file: str
    line: int
    function: str = ""

    def __str__(self) -> str:
        place = "cell" if self.file.startswith("<cell ") else os.path.basename(self.file)
        return f"{place}:{self.line}"


def normal_file(file: str) -> str:
    """Name a notebook cell without the number of the process that runs it."""
    cell = _CELL.match(file)
    return f"<cell {cell.group(1)}>" if cell else file


@functools.lru_cache(maxsize=4096)
def is_library(file: str) -> bool:
    """Whether a file belongs to an installed package, to Python or to the instruments.

    The labs' own functions count as the learner's, though they are installed with this package.
    """
    if file.startswith(_LABS):
        return False
    return (
        "site-packages" in file
        or "dist-packages" in file
        or file.startswith((_INSTRUMENTS, *_LIBRARIES, "<frozen"))
    )


def pick(frames: Sequence[Source]) -> Source | None:
    """Return the innermost frame of the learner's code.

    Frames outside the instruments' own are those of whoever asked for the X-ray; they are no part
    of the program.

    Args:
        frames: innermost first.

    Returns:
        The frame, or None where every frame is a library's.
    """
    for frame in frames:
        if frame.file.startswith(_INSTRUMENTS):
            return None
        if not is_library(frame.file):
            return frame
    return None


_ROW = re.compile(r"^(\d+)\s+(.*)$")
_CELLS = re.compile(r"(\w+)=(-?\d+)")
_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")


class HloStacks:
    """The call stacks written at the head of a compiled program's text.

    Args:
        text: what `compiled.as_text()` returned. Older XLA has no such tables; then only the
            places written beside the instructions are known.
    """

    def __init__(self, text: str) -> None:
        tables: dict[str, dict[int, str]] = {name: {} for name in _TABLES}
        rows: dict[int, str] | None = None
        for line in text.splitlines():
            if line in tables:
                rows = tables[line]
            elif rows is not None and (found := _ROW.match(line)):
                rows[int(found.group(1))] = found.group(2)
            elif line.endswith("{") and not line.startswith("HloModule"):
                break
        names = {key: name.strip('"') for key, name in tables["FunctionNames"].items()}
        files = {key: normal_file(name.strip('"')) for key, name in tables["FileNames"].items()}
        self._frames: dict[int, tuple[Source | None, int]] = {}
        places: dict[int, Source] = {}
        for key, row in tables["FileLocations"].items():
            cells = _numbers(row)
            file = files.get(cells.get("file_name_id", 0))
            if file:
                function = names.get(cells.get("function_name_id", 0), "")
                places[key] = Source(file, cells.get("line", 0), function)
        frames = {key: _numbers(row) for key, row in tables["StackFrames"].items()}
        # XLA prints the parent's number plus one where it counts from one: then the outermost
        # frame seems to be its own parent.
        shift = int(any(row.get("parent_frame_id") == key for key, row in frames.items()))
        for key, row in frames.items():
            parent = row.get("parent_frame_id", 0) - shift
            self._frames[key] = places.get(row.get("file_location_id", 0)), parent

    def frames(self, metadata: Mapping[str, str]) -> list[Source]:
        """Return the call stack of an instruction, innermost frame first."""
        if metadata.get("source_file"):
            line = metadata.get("source_line", "0")
            return [Source(normal_file(metadata["source_file"]), int(line))]
        key = metadata.get("stack_frame_id", "")
        number = int(key) if key.isdigit() else 0
        stack: list[Source] = []
        seen: set[int] = set()
        while number in self._frames and number not in seen:
            seen.add(number)
            place, number = self._frames[number]
            if place is not None:
                stack.append(place)
        return stack


def _numbers(row: str) -> dict[str, int]:
    return {name: int(value) for name, value in _CELLS.findall(row)}


_DEFINITION = re.compile(r"^(#loc\d*) = loc\((.*)\)$")
_USE = re.compile(r"loc\((#loc\d*)\)")
_PLACE = re.compile(r'^"((?:[^"\\]|\\.)*)":(\d+):\d+')
_NAMED = re.compile(r'^"((?:[^"\\]|\\.)*)"(?:\((#loc\d*)\))?$')
_CALL = re.compile(r"^callsite\((#loc\d*) at (#loc\d*)\)$")


def canonical_text(stablehlo: str, *, locations: bool = True) -> str:
    """Return a program's text with each location cut down to what an X-ray shows of it.

    Two programs with the same canonical text have the same X-ray, line numbers included. Where a
    function is called from does not matter, so an X-ray made in one notebook session serves in
    the next.

    Args:
        stablehlo: the program as `jax.export` prints it, locations included.
        locations: keep names and source lines; without them only the computation is left.
    """
    definitions: dict[str, str] = {}
    body: list[str] = []
    for line in stablehlo.splitlines():
        found = _DEFINITION.match(line)
        if found:
            definitions[found.group(1)] = found.group(2)
        else:
            body.append(line)

    @functools.cache
    def resolve(name: str) -> tuple[str, tuple[Source, ...]]:
        text = definitions.get(name, "")
        if place := _PLACE.match(text):
            return "", (Source(normal_file(place.group(1)), int(place.group(2))),)
        if named := _NAMED.match(text):
            _, frames = resolve(named.group(2)) if named.group(2) else ("", ())
            if len(frames) == 1 and not frames[0].function:
                frames = (Source(frames[0].file, frames[0].line, named.group(1)),)
            return named.group(1), frames
        if call := _CALL.match(text):
            _, inner = resolve(call.group(1))
            _, outer = resolve(call.group(2))
            return "", inner + outer
        return "", ()

    def short(found: re.Match[str]) -> str:
        if not locations:
            return ""
        name, frames = resolve(found.group(1))
        return f"[{name} @ {pick(frames)}]" if frames else f"[{name}]"

    lines = (_USE.sub(short, line) for line in body)
    if not locations:
        lines = (re.sub(r'loc\((?:"(?:[^"\\]|\\.)*"|unknown)\)', "", line) for line in lines)
    return "\n".join(lines)
