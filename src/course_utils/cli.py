"""The command `course`: lists the labs, and grades files.

Everything that takes long to load is loaded by the command that needs it. What a graded file made
us print is shown with its control characters made visible, so that it cannot draw on the terminal.
"""

import argparse
import contextlib
import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from course_utils.runner.channel import Message
    from course_utils.runner.outcome import Outcome
    from course_utils.runner.supervise import Limits

REGISTRY = "course_utils.labs"
WIDTH = 100

_WRONG_USAGE = 2
_INTERRUPTED = 130
_GB = 10**9
_GRADE_NOTES = """\
exit codes:
  0  pass
  1  fail
  2  wrong usage
  3  could not be graded: no tagged cell, a syntax error, not a notebook, a missing import, …
  4  inconclusive
With several files: the worst, in the order 3, 1, 4, 0.
"""


def main(arguments: Sequence[str] | None = None, *, registry: str = REGISTRY) -> int:
    """Run the command line.

    Args:
        arguments: what follows `course`; by default what the process was started with.
        registry: name of the module that lists the labs.

    Returns:
        The exit code.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    with contextlib.suppress(AttributeError):  # a stream that a test or a notebook put there
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    parser = _parser(loading_xray="xray" in arguments[:1])
    options = parser.parse_args(arguments)
    if options.run is None:
        parser.print_help()
        return _WRONG_USAGE
    options.registry = registry
    try:
        return int(options.run(options))
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:  # the reader of our output has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _INTERRUPTED


def _parser(*, loading_xray: bool) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="course", description="Grades the labs of the course on JIT and fusion in JAX."
    )
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    labs = commands.add_parser(
        "labs",
        help="list the labs with minutes, difficulty and your last verdict",
        description="List the labs, with minutes, difficulty (1: one change, to 3) and the last "
        "verdict on this machine.",
    )
    labs.add_argument(
        "--reset",
        nargs="?",
        const="",
        metavar="LAB",
        help="forget the last verdict of LAB, or of every lab",
    )
    labs.set_defaults(run=_labs)
    _add_grade(commands)
    _add_xray(commands, loading=loading_xray)
    return parser


def _add_grade(commands: Any) -> None:
    grade = commands.add_parser(
        "grade",
        help="grade notebooks or Python files",
        description="Run each file's code up to its last cell tagged `student`, in a process of\n"
        "its own, and grade the lab's functions there.",
        epilog=_GRADE_NOTES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    grade.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="a notebook, a .py file that defines the lab's function, or a folder of notebooks",
    )
    grade.add_argument(
        "--lab", metavar="NAME", help="the lab; by default the one that the notebook names"
    )
    grade.add_argument(
        "--json", type=_target, metavar="FILE", help="write all results there as JSON, as they come"
    )
    grade.add_argument(
        "--junit", type=_target, metavar="FILE", help="write them as JUnit XML, as they come"
    )
    grade.add_argument(
        "--seed", type=_seed, metavar="N", help="make the inputs of an earlier grade again"
    )
    grade.add_argument(
        "--time-limit",
        type=_positive,
        default=300.0,
        metavar="SECONDS",
        help="for a file's cells and its grade together (default: %(default).0f)",
    )
    grade.add_argument(
        "--memory-limit",
        type=_positive,
        metavar="GB",
        help="for a file's process and all it starts (default: three quarters of what is free)",
    )
    grade.add_argument(
        "--jobs",
        type=_count,
        default=1,
        metavar="N",
        help="files graded at once (default: 1); more disturb the timed checks",
    )
    grade.add_argument(
        "--cards", action="store_true", help="print the whole card of each of several files too"
    )
    grade.add_argument(
        "--output", action="store_true", help="print what each file's code printed too"
    )
    grade.set_defaults(run=_grade)


def _add_xray(commands: Any, *, loading: bool) -> None:
    """Add `course xray`; its own options are loaded only when it is called."""
    package = "course_utils.instruments.xray"
    if not (Path(__file__).parent / "instruments" / "xray" / "cli.py").is_file():
        return
    if loading:
        importlib.import_module(f"{package}.cli").add_parser(commands)
    else:
        commands.add_parser("xray", help="install the compiler that shows what a GPU would run")


# Types of options: what argparse says of a wrong value is the text of the error.


def _number(text: str, what: str, kind: Callable[[str], Any], least: float) -> Any:
    try:
        value = kind(text)
        if least <= value < float("inf"):
            return value
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"expected {what}, got {text!r}")


def _positive(text: str) -> float:
    return _number(text, "a number above 0", float, 1e-3)


def _count(text: str) -> int:
    return _number(text, "a whole number from 1", int, 1)


def _seed(text: str) -> int:
    return _number(text, "a whole number from 0", int, 0)


def _target(text: str) -> Path:
    path = Path(text)
    if path.is_dir() or (path.exists() and not path.is_file()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a file that can be replaced")
    if not os.access(path.absolute().parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"cannot write {text!r}: no such folder, or not allowed")
    return path


def printable(text: str) -> str:
    """Return the text with every character that could steer a terminal made visible."""
    return "".join(
        each if each in "\n\t" or each.isprintable() else each.encode("unicode_escape").decode()
        for each in text.replace("\r\n", "\n")
    )


# course labs


def _labs(options: argparse.Namespace) -> int:
    from course_utils import catalogue, state  # noqa: PLC0415

    entries = catalogue.entries(options.registry)
    if options.reset is not None:
        return _reset(options.reset, [entry.name for entry in entries])
    rows = [("lab", "minutes", "difficulty", "last verdict", "title")]
    for entry in entries:
        last = state.last(entry.name)
        verdict = f"{last.verdict}, {last.when[:10]}" if last is not None else "-"
        rows.append(
            (entry.name, str(entry.minutes), f"{entry.difficulty} of 3", verdict, entry.title)
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print(printable("  ".join(cells).rstrip()))
    return 0


def _reset(lab: str, names: Sequence[str]) -> int:
    from course_utils import state  # noqa: PLC0415

    if lab and lab not in names:
        print(
            f"course labs: no lab called {lab!r}. The labs are: {', '.join(names)}", file=sys.stderr
        )
        return _WRONG_USAGE
    try:
        forgotten = [name for name in ([lab] if lab else names) if state.reset(name)]
    except OSError as error:
        print(f"course labs: cannot remove {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    print(f"Forgot the last verdict of {', '.join(forgotten)}." if forgotten else "None was kept.")
    return 0


# course grade


def _grade(options: argparse.Namespace) -> int:
    from course_utils import state  # noqa: PLC0415
    from course_utils.runner.grade_file import grade_file  # noqa: PLC0415
    from course_utils.runner.outcome import worst  # noqa: PLC0415

    files = list(_files(options))
    show = _Show(files, options)
    limits = _limits(options)
    cancelled = threading.Event()
    outcomes: dict[int, Outcome] = {}

    def one(index: int) -> None:
        show.hear(index, {"kind": "start"})
        outcome = grade_file(
            files[index],
            limits,
            lab=options.lab,
            seed=options.seed,
            hear=lambda message: show.hear(index, message),
            cancelled=cancelled,
            registry=options.registry,
        )
        with show.lock:
            if outcome.report is not None:
                state.record(outcome.report)
            outcomes[index] = outcome
            show.outcome(outcome)
            try:
                _write(options, [outcomes[each] for each in sorted(outcomes)])
            except OSError as error:
                show.problem = f"cannot write the results: {error.strerror or error}"

    with _ended_by_signals(), show.progress():
        _each(range(len(files)), one, options.jobs, cancelled)
    show.end(list(outcomes.values()))
    if show.problem:
        print(f"course grade: {printable(show.problem)}", file=sys.stderr)
        return _WRONG_USAGE
    return worst(outcomes.values())


def _files(options: argparse.Namespace) -> Iterator[Path]:
    """Yield the files; of each folder its notebooks, and the `.py` files whose lab is known."""
    names = importlib.import_module(options.registry).NAMES
    for path in options.files:
        if not path.is_dir():
            yield path
            continue
        seen = [
            each
            for each in sorted(path.rglob("*"))
            if each.suffix in {".ipynb", ".py"}
            and not any(part.startswith(".") for part in each.relative_to(path).parts)
        ]
        inside = [
            each for each in seen if each.suffix == ".ipynb" or options.lab or each.stem in names
        ]
        if left := [each.name for each in seen if each not in inside]:
            names_left = printable(", ".join(left))
            print(
                f"course grade: left out, since not called like a lab: {names_left}. "
                "Give such a file by its own name, with --lab.",
                file=sys.stderr,
            )
        yield from inside or [path]


def _limits(options: argparse.Namespace) -> "Limits":
    import psutil  # noqa: PLC0415

    from course_utils.runner.supervise import Limits  # noqa: PLC0415

    free = psutil.virtual_memory().available * 3 // 4
    memory = free if options.memory_limit is None else int(options.memory_limit * _GB)
    return Limits(options.time_limit, memory)


def _each(
    indices: Sequence[int],
    one: Callable[[int], None],
    jobs: int,
    cancelled: threading.Event,
) -> None:
    """Call `one` for each index, on at most `jobs` threads; the first error ends all."""
    if jobs == 1 or len(indices) == 1:
        for index in indices:
            one(index)
        return
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    with ThreadPoolExecutor(jobs) as pool:
        waiting = [pool.submit(one, index) for index in indices]
        try:
            for each in waiting:
                each.result()
        except BaseException:
            cancelled.set()
            pool.shutdown(cancel_futures=True)
            raise


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let a polite request to end come as KeyboardInterrupt, so that no process is left behind."""

    def end(_number: int, _frame: Any) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {name: signal.signal(getattr(signal, name), end) for name in names}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)


def _write(options: argparse.Namespace, outcomes: "Sequence[Outcome]") -> None:
    """Write the results so far: each file is replaced as a whole, so a killed run loses nothing."""
    from course_utils.findings import to_json  # noqa: PLC0415
    from course_utils.report.junit import Suite, junit  # noqa: PLC0415
    from course_utils.state import write_whole  # noqa: PLC0415

    if options.json is not None:
        results = {"schema": 1, "results": [each.to_dict() for each in outcomes]}
        write_whole(options.json, to_json(results) + "\n")
    if options.junit is not None:
        suites = [
            Suite(str(each.file), each.report, f"{each.problem} {each.todo}", each.seconds)
            for each in outcomes
        ]
        write_whole(options.junit, junit(suites))


class _Show:
    """What `course grade` prints: a card for one file, a table with a line per file for several."""

    def __init__(self, files: Sequence[Path], options: argparse.Namespace) -> None:
        self.lock = threading.RLock()
        self.problem = ""
        self._files, self._options = files, options
        self._table = len(files) > 1
        self._name_width = min(40, max(len(str(file)) for file in files))
        self._done = 0
        self._now: dict[int, str] = {}
        self._tty = sys.stderr.isatty()
        self._started = time.monotonic()
        if self._table:
            print(self._row("verdict", "lab", "file", "first reason"))

    def hear(self, index: int, message: "Message") -> None:
        """Note what a file's process is doing."""
        text = {
            "start": "loading JAX",
            "ready": "loaded",
            "cell": f"running {message.get('title')}",
            "grading": "grading",
            "progress": str(message.get("line")),
        }.get(message["kind"])
        if text is not None:
            with self.lock:
                self._now[index] = text

    @contextlib.contextmanager
    def progress(self) -> Iterator[None]:
        """Keep one line about the work under way, where there is a terminal to show it."""
        if not self._tty:
            yield
            return
        stop = threading.Event()

        def refresh() -> None:
            while not stop.wait(0.5):
                with self.lock:
                    self._clear()
                    sys.stderr.write(self._line())
                    sys.stderr.flush()

        thread = threading.Thread(target=refresh, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            self._clear()

    def outcome(self, outcome: "Outcome") -> None:
        """Print what came of one file."""
        self._done += 1
        for index in [i for i in self._now if self._files[i] == outcome.file]:
            del self._now[index]
        self._clear()
        if self._table:
            reason = "" if outcome.report is None else _reason(outcome)
            print(
                self._row(
                    outcome.verdict,
                    outcome.lab or "?",
                    _shortened(str(outcome.file), self._name_width),
                    reason or outcome.problem,
                )
            )
        if not self._table or self._options.cards:
            print(self._card(outcome))
        if self._options.output:
            print(f"What {outcome.file} printed:" if outcome.output else "It printed nothing.")
            print(printable(outcome.output).rstrip("\n"))
        sys.stdout.flush()

    def end(self, outcomes: "Sequence[Outcome]") -> None:
        """Print the totals of several files."""
        if not self._table:
            return
        counts: dict[str, int] = {}
        for each in outcomes:
            counts[each.verdict] = counts.get(each.verdict, 0) + 1
        total = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
        print(f"{len(outcomes)} files: {total}, in {time.monotonic() - self._started:.0f} s")

    def _card(self, outcome: "Outcome") -> str:
        if outcome.report is None:
            text = f"COULD NOT BE GRADED {outcome.file}: {outcome.problem}\n  → {outcome.todo}"
        else:
            text = f"{outcome.file}, graded as lab {outcome.lab}:\n{outcome.report}"
        return printable(text)

    def _row(self, verdict: str, lab: str, file: str, reason: str) -> str:
        text = f"{verdict:<19} {lab:<14} {file:<{self._name_width}} {reason}"
        return _shortened(printable(text).replace("\n", " ").rstrip(), WIDTH)

    def _line(self) -> str:
        done, total = self._done, len(self._files)
        filled = 20 * done // total
        bar = f"[{'#' * filled}{'.' * (20 - filled)}] {done} of {total}; " if self._table else ""
        now = "; ".join(f"{self._files[index]}: {text}" for index, text in self._now.items())
        passed = f"{time.monotonic() - self._started:.0f} s"
        return _shortened(printable(f"{bar}{passed}; {now}").replace("\n", " "), WIDTH - 1)

    def _clear(self) -> None:
        if self._tty:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _reason(outcome: "Outcome") -> str:
    report = outcome.report
    first = report.first(report.verdict) if report is not None and not report.passed else None
    return f"{first.check}: {first.cause}" if first is not None else ""


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


if __name__ == "__main__":
    sys.exit(main())
