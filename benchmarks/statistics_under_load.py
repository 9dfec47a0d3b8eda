"""Which statistic of two sets of timings decides rightly on a busy machine?

Two calls of one program, one of which makes a known multiple of the other's turns, are timed by
turns while other processes keep the machine busy. From the same samples each statistic says
whether the ratio is above a threshold, and is counted as wrong or right. The results go to
`course_utils/measurements/statistics_under_load.json`, which the book's measurement chapter reads.

It knows nothing of the grader; `instruments/timing.py` holds the statistic that came out best. Run
it on a machine that does nothing else. Each load takes up to a minute.
"""

import argparse
import contextlib
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np

TARGET = (
    Path(__file__).resolve().parent.parent
    / "src/course_utils/measurements/statistics_under_load.json"
)
THRESHOLD = 4.0
PAIRS = 10
RATIOS = (2, 3, 8, 18)
"""Multiples of the fast call's turns; `THRESHOLD` lies at least a third away from each."""
FAST_SECONDS = 5e-4
"""What the fast call takes when it is not disturbed."""

_LOOP = "while True: pass"
_PRODUCT = "import numpy as np\na = np.ones((700, 700))\nwhile True: a @ a"


@dataclass(frozen=True)
class Load:
    """What else runs: `per_core` processes of `code` for each core."""

    per_core: int
    code: str


LOADS = {
    "nothing else": Load(0, ""),
    "a busy loop on each core": Load(1, _LOOP),
    "two busy loops on each core": Load(2, _LOOP),
    "a matrix product on each core": Load(1, _PRODUCT),
}


@dataclass(frozen=True)
class Samples:
    """Samples of one trial, in seconds: each pair's slow and fast call, by two clocks."""

    slow: Sequence[float]
    fast: Sequence[float]
    slow_cpu: Sequence[float]
    fast_cpu: Sequence[float]


@dataclass(frozen=True)
class Cell:
    """How one statistic did over the trials of one load and one ratio.

    Attributes:
        wrong: trials that it put on the wrong side of the threshold.
        low: 5th percentile of the ratio it measured.
        high: 95th percentile.
    """

    wrong: int
    low: float
    high: float


STATISTICS: Mapping[str, Callable[[Samples], float]] = {
    "one shot": lambda s: s.slow[0] / s.fast[0],
    "mean": lambda s: statistics.fmean(s.slow) / statistics.fmean(s.fast),
    "median": lambda s: statistics.median(s.slow) / statistics.median(s.fast),
    "CPU time": lambda s: sum(s.slow_cpu) / sum(s.fast_cpu),
    "min/min": lambda s: min(s.slow) / min(s.fast),
}


@jax.jit
def work(x: jax.Array, turns: jax.Array) -> jax.Array:
    """A loop whose time is proportional to `turns`; it runs on one core."""
    return jax.lax.fori_loop(0, turns, lambda _, x: jnp.sin(x) + 0.1 * x, x)


def timed(turns: jax.Array, rng: np.random.Generator) -> tuple[float, float]:
    """Return the wall-clock and the process's CPU seconds of one call on new values."""
    x = jax.block_until_ready(jnp.asarray(rng.normal(size=64), jnp.float32))
    cpu, start = time.process_time(), time.perf_counter()
    jax.block_until_ready(work(x, turns))
    return time.perf_counter() - start, time.process_time() - cpu


def calibrate(rng: np.random.Generator) -> int:
    """Return the turns that take `FAST_SECONDS` when nothing disturbs them."""
    turns = 1000
    timed(jnp.int32(turns), rng)
    best = min(timed(jnp.int32(turns), rng)[0] for _ in range(50))
    return max(1, round(turns * FAST_SECONDS / best))


def trial(turns: int, ratio: int, rng: np.random.Generator) -> Samples:
    """Time pairs of a slow and a fast call, in alternating order."""
    by_name = {"slow": jnp.int32(ratio * turns), "fast": jnp.int32(turns)}
    wall: dict[str, list[float]] = {name: [] for name in by_name}
    cpu: dict[str, list[float]] = {name: [] for name in by_name}
    for pair in range(PAIRS):
        for name in by_name if pair % 2 == 0 else reversed(by_name):
            seconds, cpu_seconds = timed(by_name[name], rng)
            wall[name].append(seconds)
            cpu[name].append(cpu_seconds)
    return Samples(wall["slow"], wall["fast"], cpu["slow"], cpu["fast"])


@contextlib.contextmanager
def busy(load: Load) -> Iterator[None]:
    """Keep the machine busy, and stop when left."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    running = [
        subprocess.Popen([sys.executable, "-c", load.code], env=environment)
        for _ in range(load.per_core * (os.cpu_count() or 1))
    ]
    try:
        time.sleep(1.0 if running else 0.0)  # until every one of them is at work
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def measure(load: Load, trials: int, rng: np.random.Generator) -> dict[str, dict[str, Cell]]:
    """Return each statistic's record for each ratio, by the ratio as text."""
    turns = calibrate(rng)
    measured: dict[int, list[Samples]] = {ratio: [] for ratio in RATIOS}
    with busy(load):
        for _ in range(trials):
            for ratio in RATIOS:
                measured[ratio].append(trial(turns, ratio, rng))
    return {
        str(ratio): {name: _cell(each, samples, ratio) for name, each in STATISTICS.items()}
        for ratio, samples in measured.items()
    }


def _cell(statistic: Callable[[Samples], float], trials: Sequence[Samples], ratio: int) -> Cell:
    # The clock of CPU time is coarse on some systems: nothing over nothing decides nothing.
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.array([statistic(samples) for samples in trials])
    wrong = int(((found > THRESHOLD) != (ratio > THRESHOLD)).sum())
    low, high = np.percentile(found, (5, 95))
    return Cell(wrong, round(float(low), 3), round(float(high), 3))


def processor() -> str:
    """Return what the system calls its processor."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def main() -> None:
    """Measure the named loads and write them into the results, beside those that are there."""
    parser = argparse.ArgumentParser(description="Try statistics of timings on a busy machine.")
    parser.add_argument("--loads", nargs="+", choices=LOADS, default=list(LOADS))
    parser.add_argument("--trials", type=int, default=40)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    old = json.loads(TARGET.read_text(encoding="utf-8")) if TARGET.is_file() else {}
    loads = {name: old.get("loads", {}).get(name) for name in LOADS}
    for name in options.loads:
        cells = measure(LOADS[name], options.trials, rng)
        loads[name] = {
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "trials": options.trials,
            "ratios": {
                ratio: {each: asdict(cell) for each, cell in by_statistic.items()}
                for ratio, by_statistic in cells.items()
            },
        }
        for ratio, by_statistic in cells.items():
            wrong = ", ".join(f"{each} {cell.wrong}" for each, cell in by_statistic.items())
            print(f"{name}, true ratio {ratio}: wrong of {options.trials}: {wrong}", flush=True)
    record = {
        "machine": {
            "processor": processor(),
            "cores": os.cpu_count(),
            "system": platform.system(),
            "python": platform.python_version(),
            "jax": jax.__version__,
        },
        "threshold": THRESHOLD,
        "pairs": PAIRS,
        "fast_seconds": FAST_SECONDS,
        "loads": {name: each for name, each in loads.items() if each is not None},
    }
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
