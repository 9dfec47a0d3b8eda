"""What does a benchmark harness do with the two functions that it is given?

The harness runs on a scripted machine: functions that only pretend to compute, a device that works
behind the host's back, and a clock that moves when the script says so. Nothing is timed, so what is
seen is exact and the same on every machine: which calls lay between two readings of the clock, what
they were called with, whether their results were there, and what answer came out. It knows nothing
of what is required of a harness.
"""

import bisect
import contextlib
import functools
import itertools
import math
import random
import sys
import time
import timeit
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from course_utils.instruments import _bound
from course_utils.instruments._pending import NAMESPACES, Pending, Work, on_device
from course_utils.instruments._readings import reading
from course_utils.instruments.syncs import count_syncs

Compare = Callable[..., Any]
"""A harness, `compare(f, g, make_inputs)`: how many times faster `g` is than `f`."""

_DISPATCH_SECONDS = 20e-6
"""What a call costs the host, whatever the device does."""
_READING_SECONDS = 1e-6
_MAKE_SECONDS = 3e-3
_LATE_SECONDS = 5.0
"""How long the process is set aside before a reading of the clock that comes late."""
_JITTER = 0.05
_VALUES = 16
_SAME = 1e-6
"""Answers this near are the same but for rounding; the scripted durations are all different."""

_CLOCKS = {
    f"{name}{suffix}": getattr(time, f"{name}{suffix}")
    for name in ("monotonic", "perf_counter", "process_time", "thread_time", "time")
    for suffix in ("", "_ns")
    if hasattr(time, f"{name}{suffix}")
}
_OF_PROCESSOR = ("process_time", "thread_time")
"""Clocks that stand still while the host waits."""
_BACKGROUND = {"equinox", "jax", "jaxlib", "numpy", "optax", *sys.stdlib_module_names} - {"timeit"}
"""Modules that read the clock for themselves and get the real one; `timeit` reads for others."""


@dataclass(frozen=True)
class World:
    """A scripted machine on which a harness is tried.

    Attributes:
        f: seconds that the device takes for a call of `f`.
        g: seconds that the device takes for a call of `g`.
        compile: seconds of compiling `f`, for the first call with arguments of a kind; `g` takes
            twenty times as long.
        is_first_instant: whether that first call takes no time at all instead.
        late: readings of the clock, counted from 0, that come five seconds late.
        wrong_by: by how many seconds each reading of the clock is wrong, in their order; the last
            of these is for all that follow.
        seed: where the small differences between calls come from.
    """

    f: float
    g: float
    compile: float = 0.5
    is_first_instant: bool = False
    late: Sequence[int] = ()
    wrong_by: tuple[float, ...] = (0.0,)
    seed: int = 0

    @property
    def truth(self) -> float:
        """How many times faster `g` is than `f`."""
        return self.f / self.g


@dataclass(frozen=True)
class Kind:
    """What a call was given, its values left aside: `float32[16] on cpu`, one for each argument."""

    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join(self.arguments) or "nothing"


@dataclass(frozen=True)
class Call:
    """A call of one of the two functions.

    Attributes:
        side: `"f"` or `"g"`.
        at: how many readings of the clock came before it.
        kind: what it was given.
        values: the values it was given; equal for equal values.
        is_given_new: whether an array that it was given was made after the last reading of the
            clock: by `make_inputs`, or as a copy or a part of another.
        compiles: whether it was the first with arguments of that kind, or was traced.
        traced: `"closed over"` or `"wrapped"` if another jit was tracing it: with its inputs
            inside, or given as arguments. Then what runs later is not seen. Else empty.
        ready_at: how many readings came before its result was waited for; None if it never was.
    """

    side: str
    at: int
    kind: Kind
    values: bytes
    is_given_new: bool
    compiles: bool
    traced: str
    ready_at: int | None


@dataclass(frozen=True)
class Observed:
    """What a harness did in one world.

    Attributes:
        answer: what it returned.
        truth: what it should have returned.
        readings: how often it read the clock.
        of_processor: which of these readings, counted from 0, were of the processor's time, which
            waiting does not add to.
        intervals: pairs of readings between which it timed calls: the smallest, without those that
            contain another. Either it subtracted them itself, or they show in the answer.
        calls: its calls of `f` and `g`, in order.
        makes: for each time it made inputs, the readings before that, and the inputs' kind.
        syncs: how often it blocked on real arrays, which come out of a jit of its own; 0 where that
            was not watched.
    """

    answer: float
    truth: float
    readings: int
    of_processor: frozenset[int]
    intervals: tuple[tuple[int, int], ...]
    calls: tuple[Call, ...]
    makes: tuple[tuple[int, Kind], ...]
    syncs: int

    def timed(self, side: str | None = None) -> tuple[tuple[Call, tuple[int, int]], ...]:
        """Return the calls that lie in a timed interval, of one side or both, with the interval."""
        return tuple(
            (call, interval)
            for interval in self.intervals
            for call in self.calls
            if side in (None, call.side) and _inside(call.at, interval)
        )

    def samples(self, side: str) -> int:
        """Return in how many timed intervals a side was called."""
        return len({interval for _, interval in self.timed(side)})

    @property
    def is_of_processor(self) -> bool:
        """Whether calls were timed by the processor's time."""
        return any(self.of_processor.intersection(interval) for interval in self.intervals)

    @property
    def traced(self) -> tuple[Call, ...]:
        """The calls that were traced by a jit of the harness's own."""
        return tuple(call for call in self.calls if call.traced)

    @property
    def made_while_timed(self) -> int:
        """How often inputs were made between two readings that time calls."""
        return sum(
            any(_inside(at, interval) for interval in self.intervals) for at, _ in self.makes
        )


@dataclass(frozen=True)
class Trial:
    """A harness in several worlds that differ in one thing each.

    Attributes:
        quiet: nothing disturbs it.
        other: nothing disturbs it either, but the other function is the faster one.
        instant: like `quiet`, but first calls take no time.
        late: like `quiet`, but some readings or one of them, each time others, come late; of each
            side's times at most a tenth, or one, is hit. Twice only one side's times are.
    """

    quiet: Observed
    other: Observed
    instant: Observed
    late: tuple[Observed, ...]

    @property
    def uses_first_calls(self) -> bool:
        """Whether the answer depends on how long first calls take."""
        return not math.isclose(self.quiet.answer, self.instant.answer, rel_tol=_SAME)

    @property
    def counted(self) -> Observed:
        """`quiet` without the intervals of first calls whose time is not used, printed perhaps."""
        if self.uses_first_calls:
            return self.quiet
        first = {interval for call, interval in self.quiet.timed() if call.compiles}
        return replace(
            self.quiet, intervals=tuple(each for each in self.quiet.intervals if each not in first)
        )


_WINDOWS = 10
_FINEST = 4


def try_out(compare: Compare, *, seed: int) -> Trial:
    """Run a harness in every world.

    Args:
        compare: the harness.
        seed: where the scripted durations come from.

    Raises:
        TypeError: it does not return one number.
    """
    rng = random.Random(seed)
    slow, times = rng.uniform(2e-3, 6e-3), rng.uniform(3.0, 6.0)
    plain = World(f=slow, g=slow / times, seed=rng.randrange(2**32))
    ran = _run(compare, plain, watch_arrays=True)
    sources = _find_sources(compare, ran)

    def see(**changes: Any) -> Observed:
        return _run(compare, replace(plain, **changes)).observed(sources)

    quiet = ran.observed(sources)
    other = see(g=slow * rng.uniform(3.0, 6.0))
    instant = see(is_first_instant=True)
    return Trial(quiet, other, instant, (*_in_turn(see, quiet), *_one_sided(see, quiet)))


See = Callable[..., Observed]
"""Observes a harness in the plain world with some of its attributes changed."""


def _in_turn(see: See, quiet: Observed) -> list[Observed]:
    """Observe a harness while window after window of its readings comes late, and one alone."""
    widest = max(1, quiet.readings // _WINDOWS)
    late, start, tried = [], 0, widest
    while start < quiet.readings:
        window = range(start, start + min(tried, quiet.readings - start))
        width, seen = _disturbed(see, window)
        late.append(seen)
        # A window that is narrow because the run ended early may leave a gap behind it: without
        # one there would be hundreds of runs.
        start += max(width, widest // _FINEST)
        tried = min(widest, 2 * width) if width == tried else width
    middle = quiet.readings // 2
    return late + [see(late=(each,)) for each in (middle, middle + 1)]


def _one_sided(see: See, quiet: Observed) -> list[Observed]:
    """Observe a harness while every tenth time of one side is too long, and then of the other.

    What hits both sides alike could cancel.
    """
    ends = (sorted({end for _, (_, end) in quiet.timed(side)}) for side in ("f", "g"))
    hit = (each[_WINDOWS - 1 :: _WINDOWS] or each[-1:] for each in ends)
    return [_disturbed(see, late)[1] for late in hit if late]


def _disturbed(see: See, late: Sequence[int]) -> tuple[int, Observed]:
    """Observe a harness while readings come late, as many of them as it must survive.

    A harness with a budget of time takes fewer times when it is disturbed, so how large a part of
    them was hit shows only afterwards.

    Returns:
        How many readings came late, and what was seen.
    """
    while True:
        seen = see(late=late)
        if len(late) == 1 or all(_is_spared(seen, side, late) for side in ("f", "g")):
            return len(late), seen
        late = late[: len(late) // 2]


def _is_spared(seen: Observed, side: str, late: Collection[int]) -> bool:
    """Whether late readings hit at most a tenth of a side's times, or one of them."""
    intervals = {interval for _, interval in seen.timed(side)}
    hit = sum(any(_inside(each, interval) for each in late) for interval in intervals)
    return hit <= max(1, len(intervals) // _WINDOWS)


def observe(compare: Compare, world: World, *, watch_arrays: bool = False) -> Observed:
    """Run a harness on a scripted machine: once, or more often to see which readings it uses.

    Args:
        compare: the harness.
        world: the machine.
        watch_arrays: whether to count waits for real arrays too, which takes a while to set up.

    Raises:
        TypeError: it does not return one number.
    """
    ran = _run(compare, world, watch_arrays=watch_arrays)
    return ran.observed(_find_sources(compare, ran))


def _run(compare: Compare, world: World, *, watch_arrays: bool = False) -> "_Run":
    machine = _Machine(world)
    f, g = _Scripted("f", machine), _Scripted("g", machine)
    with contextlib.ExitStack() as stack:
        syncs = stack.enter_context(count_syncs()) if watch_arrays else None
        stack.enter_context(machine.in_place(compare))
        answer = compare(f, g, machine.make_inputs)
    blocks = 0 if syncs is None else sum("block" in each.how for each in syncs().syncs)
    return _Run(as_number(answer), machine, blocks)


@dataclass(frozen=True)
class _Run:
    """One run of a harness: its answer, the machine it ran on, and its waits for real arrays."""

    answer: float
    machine: "_Machine"
    syncs: int

    def observed(self, sources: "_Sources") -> Observed:
        machine = self.machine
        return Observed(
            self.answer,
            machine.world.truth,
            machine.readings,
            frozenset(machine.of_processor),
            machine.intervals(sources),
            machine.calls(),
            tuple(machine.makes),
            self.syncs,
        )


Place = tuple[tuple[int, int], ...]
"""Where in its code a harness read the clock: what was called from where, innermost first."""


@dataclass(frozen=True)
class _Sources:
    """What the answer comes from, where the harness did not subtract one reading from another.

    Attributes:
        readings: where the clock is read for it.
        pairs: of these, two in a row that calls are timed between.
    """

    readings: frozenset[Place] = frozenset()
    pairs: frozenset[tuple[Place, Place]] = frozenset()


_WRONG_SECONDS = 1e-5
"""By how much a reading is made wrong: less than any call takes."""


def _find_sources(compare: Compare, ran: _Run) -> _Sources:
    """Make readings wrong and see whether the answer moves.

    A printed reading or that of a deadline does not move it, nor does what passes between two
    times. All that was read at one place is tried at once: a minimum or a median of many times does
    not depend on one of them.
    """
    machine = ran.machine
    if not machine.loose():
        return _Sources()
    draw = random.Random(machine.world.seed).uniform

    def is_read(places: Collection[Place]) -> bool:
        chosen = [draw(0.1, 1) if each in places else 0.0 for each in machine.places]
        return _moves(compare, ran, (*chosen, 0.0))

    def is_timed(pairs: Collection[tuple[Place, Place]]) -> bool:
        ends = {
            last
            for first, last in machine.between(readings)
            if (machine.places[first], machine.places[last]) in pairs
        }
        steps = (draw(0.1, 1) if each in ends else 0.0 for each in range(machine.readings))
        return _moves(compare, ran, tuple(itertools.accumulate(steps)))

    readings = _that_matter(dict.fromkeys(machine.places), is_read)
    pairs = [
        (machine.places[first], machine.places[last]) for first, last in machine.between(readings)
    ]
    return _Sources(readings, _that_matter(dict.fromkeys(pairs), is_timed))


def _that_matter(each: Collection[Any], matter: Callable[[Collection[Any]], bool]) -> frozenset:
    """Return those that matter alone, and the others if they do together."""
    alone = {one for one in each if matter({one})}
    others = set(each) - alone
    return frozenset(alone | others if others and matter(others) else alone)


def _moves(compare: Compare, ran: _Run, wrong_by: Sequence[float]) -> bool:
    """Whether the answer moves when readings are wrong, in multiples of a short time.

    A deadline that is wrong can change how many times are taken: then it is made less so.
    """
    for unit in (_WRONG_SECONDS, _WRONG_SECONDS / 100):
        world = replace(ran.machine.world, wrong_by=tuple(unit * each for each in wrong_by))
        try:
            wrong = _run(compare, world)
        except Exception:  # it looks at its own times: it need not get through with wrong ones
            return True
        if wrong.machine.readings == ran.machine.readings:
            return not math.isclose(wrong.answer, ran.answer, rel_tol=_SAME)
    return True


def as_number(answer: Any) -> float:
    """Return a harness's answer as a plain number.

    Raises:
        TypeError: it is not one real number.
    """
    if not isinstance(answer, str | bytes):
        with contextlib.suppress(TypeError, ValueError):
            return float(answer)
    raise TypeError(
        "it must return one number, how many times faster g is than f; "
        f"what came is {_short(answer)}"
    )


def _short(value: Any) -> str:
    if value is None:
        return "None"
    shape = getattr(value, "shape", None)
    return f"a {type(value).__name__}" + (f" of shape {shape}" if shape else "")


def _inside(at: int, interval: tuple[int, int]) -> bool:
    """Whether something that happened after `at` readings lies between two of them."""
    first, last = interval
    return first < at <= last


def _covers(outer: tuple[int, int], inner: tuple[int, int]) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


class _Machine:
    """The clock, the device and the record of one scripted run."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.now = 0.0
        self.worked = 0.0  # of that, what the host did not wait
        self.readings = 0
        self.of_processor: set[int] = set()
        self.differences: set[tuple[int, int]] = set()
        self.places: list[Place] = []  # of the readings
        self.makes: list[tuple[int, Kind]] = []
        self._calls: list[dict[str, Any]] = []
        self._free = 0.0
        self._alive: dict[int, jax.Array] | None = None  # the arrays there were when last read
        self._known: set[tuple[str, Kind]] = set()
        self._jitter = {side: random.Random(f"{world.seed}{side}") for side in ("f", "g")}
        self._values = np.random.default_rng(world.seed)

    def _work(self, seconds: float) -> None:
        """Keep the host busy."""
        self.now += seconds
        self.worked += seconds

    def make_inputs(self) -> tuple[jax.Array, jax.Array]:
        """Return new inputs: two vectors with values not seen before."""
        self._work(_MAKE_SECONDS)
        drawn = self._values.normal(size=(2, _VALUES)).astype(np.float32)
        inputs = jnp.asarray(drawn[0]), jnp.asarray(drawn[1])
        self.makes.append((self.readings, _kind(inputs)))
        return inputs

    def call(self, side: str, args: tuple[Any, ...]) -> Any:
        """Pretend to run one side: hand the work to the device and come back at once."""
        kind = _kind(args)
        traced = ""
        if any(isinstance(each, Tracer) for each in jax.tree.leaves(args)):
            traced = "wrapped"
        elif isinstance(jnp.zeros(()), Tracer):  # inside a trace, everything new is a tracer
            traced = "closed over"
        is_new = (side, kind) not in self._known
        self._known.add((side, kind))
        first = is_new or bool(traced)
        self._calls.append(
            {
                "side": side,
                "at": self.readings,
                "kind": kind,
                "values": b"" if traced == "wrapped" else self._read_values(args),
                "is_given_new": self._is_new(args),
                "compiles": first,
                "traced": traced,
                "ready_at": None,
            }
        )
        lasts = getattr(self.world, side) * (1 + _JITTER * self._jitter[side].random())
        if first and self.world.is_first_instant:
            lasts = 0.0
        elif first:
            self._compile(side)
        self._work(_DISPATCH_SECONDS)
        if traced:
            return jnp.zeros(())
        self._free = max(self._free, self.now) + lasts
        done = len(self._calls), self._free
        work = Work(self._free, lambda: self.wait(*done), lambda: self.ask(*done))
        return Pending(work, np.zeros(_VALUES, np.float32))

    def _compile(self, side: str) -> None:
        self._work(self.world.compile * (1 if side == "f" else 20))

    def compile(self, side: str, kind: Kind) -> None:
        """Compile one side ahead of its calls."""
        if not self.world.is_first_instant:
            self._compile(side)
        self._known.add((side, kind))

    def compiled(self, side: str) -> int:
        """Return for how many kinds of arguments a side is compiled."""
        return sum(known == side for known, _ in self._known)

    def forget(self, side: str) -> None:
        """Let a side's next call compile again."""
        self._known = {known for known in self._known if known[0] != side}

    def ask(self, calls: int, ready: float) -> bool:
        """Tell whether a result is there; a host that knows it is has waited for it."""
        self._work(_DISPATCH_SECONDS)
        is_ready = self.now >= ready
        if is_ready:
            self.wait(calls, ready)
        return is_ready

    def _is_new(self, args: tuple[Any, ...]) -> bool:
        """Whether an array among the arguments was not there when the clock was last read."""
        arrays = (
            each
            for each in jax.tree.leaves(args)
            if isinstance(each, jax.Array) and not isinstance(each, Tracer)
        )
        return self._alive is not None and any(id(each) not in self._alive for each in arrays)

    def _read_values(self, args: tuple[Any, ...]) -> bytes:
        leaves = [
            each for each in jax.tree.leaves(args) if isinstance(each, jax.Array | np.ndarray)
        ]
        return b"".join(np.asarray(each, dtype=np.float32).tobytes() for each in leaves)

    def wait(self, calls: int, ready: float) -> None:
        """Let the host wait for a result; the device works in order, so all before it is there."""
        self.now = max(self.now, ready)
        for call in self._calls[:calls]:
            if call["ready_at"] is None:
                call["ready_at"] = self.readings

    def read(self, place: Place, *, whole: bool, of_processor: bool) -> Any:
        """Read the clock, or the processor's time, in seconds or in whole nanoseconds."""
        index = self.readings
        if index in self.world.late:
            self.now += _LATE_SECONDS
        self._work(_READING_SECONDS)
        if of_processor:
            self.of_processor.add(index)
        self.places.append(place)
        self.readings += 1
        self._alive = {id(each): each for each in jax.live_arrays()}
        now = self.worked if of_processor else self.now
        now += self.world.wrong_by[min(index, len(self.world.wrong_by) - 1)]
        return reading(round(1e9 * now) if whole else now, index, self._note)

    def _note(self, earlier: int, later: int) -> None:
        self.differences.add((earlier, later))

    def calls(self) -> tuple[Call, ...]:
        """Return the record of the calls."""
        return tuple(Call(**each) for each in self._calls)

    def loose(self) -> list[int]:
        """Return where calls lie between two readings in a row that were not subtracted."""
        ats = dict.fromkeys(call["at"] for call in self._calls)
        return [at for at in ats if 0 < at < self.readings and (at - 1, at) not in self.differences]

    def between(self, places: Collection[Place]) -> list[tuple[int, int]]:
        """Return, for those calls, the nearest readings at some places, before and after.

        Where two readings that near or nearer were subtracted, it was those that timed the call.
        """
        taken = [index for index, place in enumerate(self.places) if place in places]
        found = []
        for at in self.loose():
            after = bisect.bisect_left(taken, at)
            if not 0 < after < len(taken):
                continue
            pair = taken[after - 1], taken[after]
            if not any(_inside(at, each) and _covers(pair, each) for each in self.differences):
                found.append(pair)
        return list(dict.fromkeys(found))

    def intervals(self, sources: _Sources) -> tuple[tuple[int, int], ...]:
        """Return the smallest intervals that were timed and have calls in them.

        They are the differences that were taken; where none was taken between two readings
        themselves (NumPy took it, say), they come from what the answer comes from.
        """
        pairs = self.differences | {
            (first, last)
            for first, last in self.between(sources.readings)
            if (self.places[first], self.places[last]) in sources.pairs
        }
        busy = sorted(
            pair for pair in pairs if any(_inside(call["at"], pair) for call in self._calls)
        )
        return tuple(
            pair for pair in busy if not any(each != pair and _covers(pair, each) for each in busy)
        )

    @contextlib.contextmanager
    def in_place(self, function: Compare) -> Iterator[None]:
        """Put the scripted clocks in the place of Python's, wherever the harness looks.

        JAX's functions take what the scripted device computes, for so long.
        """
        scripted = {real: _Clock(self, name, real) for name, real in _CLOCKS.items()}
        swaps, also = {**scripted, **on_device()}, (time.__dict__, timeit.__dict__, *NAMESPACES)
        with _bound.replaced(function, swaps, also=also):
            yield


class _Clock:
    """What stands in a clock's place; like the clock, it is no method where a class holds it."""

    def __init__(self, machine: _Machine, name: str, real: Callable[[], Any]) -> None:
        self.__name__ = self.__qualname__ = name
        self._real = real
        whole, of_processor = name.endswith("_ns"), name.startswith(_OF_PROCESSOR)
        self._read = functools.partial(machine.read, whole=whole, of_processor=of_processor)

    def __call__(self) -> Any:
        caller = sys._getframe(1)
        return self._real() if _is_background(caller) else self._read(_place(caller))


def _is_background(frame: Any) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] in _BACKGROUND


def _place(frame: Any) -> Place:
    """Return where a frame is in its code, and those it was called from, out to the grader's."""
    places = []
    while frame is not None and frame.f_globals is not globals():
        if not _is_background(frame):
            places.append((id(frame.f_code), frame.f_lasti))
        frame = frame.f_back
    return tuple(places)


class _Scripted:
    """One side, with what a jitted function offers beside being called."""

    def __init__(self, side: str, machine: _Machine) -> None:
        self.__name__ = self.__qualname__ = side
        self._machine = machine

    def __call__(self, *args: Any) -> Any:
        return self._machine.call(self.__name__, args)

    def lower(self, *args: Any) -> "_Lowered":
        return _Lowered(self, self._machine, _kind(args))

    def clear_cache(self) -> None:
        self._machine.forget(self.__name__)

    def _cache_size(self) -> int:
        return self._machine.compiled(self.__name__)


@dataclass(frozen=True)
class _Lowered:
    scripted: _Scripted
    machine: _Machine
    kind: Kind

    def compile(self) -> Callable[..., Any]:
        self.machine.compile(self.scripted.__name__, self.kind)
        return self._call

    def _call(self, *args: Any) -> Any:
        if _kind(args) != self.kind:
            raise TypeError(f"compiled for {self.kind}, called with {_kind(args)}")
        return self.scripted(*args)


def _kind(args: tuple[Any, ...]) -> Kind:
    return Kind(tuple(map(_describe, jax.tree.leaves(args))))


def _describe(leaf: Any) -> str:
    if isinstance(leaf, Tracer):
        return f"{leaf.dtype}{list(leaf.shape)} traced"
    if isinstance(leaf, jax.Array):
        where = ", ".join(sorted(f"{each.platform}:{each.id}" for each in leaf.devices()))
        return f"{leaf.dtype}{list(leaf.shape)} on {where}"
    if isinstance(leaf, np.ndarray | np.generic):
        return f"{leaf.dtype}{list(leaf.shape)} in NumPy"
    return f"a Python {type(leaf).__name__}"
