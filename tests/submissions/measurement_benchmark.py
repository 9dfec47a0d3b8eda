"""Submissions of the lab measurement_benchmark; `test_harness` tries more of these harnesses."""

import gc
import logging
import statistics
import time
from time import perf_counter

import jax
import jax.numpy as jnp
import numpy as np

from tests.submissions import fails, packaged, passes

LAB = "measurement_benchmark"


def timed(function, inputs, *, clock=None):
    start = time.perf_counter()
    jax.block_until_ready(function(*inputs))
    return time.perf_counter() - start


def warm(*functions, make_inputs):
    for function in functions:
        jax.block_until_ready(function(*make_inputs()))


# Right, in other idioms.


def one_side_after_the_other(f, g, make_inputs):
    def median(function):
        function(*make_inputs()).block_until_ready()
        batches = [make_inputs() for _ in range(15)]
        return statistics.median([timed(function, inputs) for inputs in batches])

    return np.float64(median(f)) / median(g)


def clock_by_its_own_name(f, g, make_inputs):
    warm(f, g, make_inputs=make_inputs)
    best = {f: float("inf"), g: float("inf")}
    for _ in range(12):
        for function in (f, g):
            inputs = make_inputs()
            start = perf_counter()
            np.asarray(function(*inputs))
            best[function] = min(best[function], perf_counter() - start)
    return best[f] / best[g]


def nanoseconds_through_numpy(f, g, make_inputs):
    warm(f, g, make_inputs=make_inputs)
    readings = np.zeros((10, 2, 2))
    for row in readings:
        for place, function in enumerate((f, g)):
            inputs = make_inputs()
            jax.block_until_ready(inputs)
            row[place, 0] = time.perf_counter_ns()
            jax.block_until_ready(function(*inputs))
            row[place, 1] = time.perf_counter_ns()
    slow, fast = np.median(readings[:, :, 1] - readings[:, :, 0], axis=0)
    return jnp.float32(slow / fast)


def several_calls_a_sample(f, g, make_inputs):
    warm(f, g, make_inputs=make_inputs)

    def sample(function):
        batch = [make_inputs() for _ in range(4)]
        start = time.perf_counter()
        results = [function(*inputs) for inputs in batch]
        jax.block_until_ready(results[-1])  # the device works in order
        return (time.perf_counter() - start) / len(batch)

    pairs = [(sample(f), sample(g)) for _ in range(8)]
    slow, fast = zip(*pairs, strict=True)
    return min(slow) / min(fast)


def first_time_thrown_away(f, g, make_inputs):
    times = {"f": [], "g": []}
    gc.disable()
    try:
        for _ in range(11):
            inputs = make_inputs()
            times["f"].append(timed(f, inputs))
            times["g"].append(timed(g, inputs))
    finally:
        gc.enable()
    return min(times["f"][1:]) / min(times["g"][1:])


def until_a_budget_is_spent(f, g, make_inputs):
    warm(f, g, make_inputs=make_inputs)
    slow, fast = [], []
    began = time.perf_counter()
    while len(slow) < 8 or (len(slow) < 50 and time.perf_counter() - began < 0.1):
        inputs = make_inputs()
        slow.append(timed(f, inputs))
        fast.append(timed(g, inputs))
    return statistics.median(slow) / statistics.median(fast)


def for_at_least_a_while(f, g, make_inputs, *, aggregate=min, floor=10):
    """Time each side until half a second is over, however many times that makes."""
    warm(f, g, make_inputs=make_inputs)

    def sample(function):
        times, began = [], time.perf_counter()
        while time.perf_counter() - began < 0.5 or len(times) < floor:
            times.append(timed(function, make_inputs()))
        return aggregate(times)

    return sample(f) / sample(g)


def laps_through_numpy(f, g, make_inputs):
    """Readings that two times share, subtracted by NumPy, beside others that are only shown."""
    began = time.perf_counter()
    warm(f, g, make_inputs=make_inputs)
    logging.info("compiled in %.3f s", time.perf_counter() - began)
    batches = [make_inputs() for _ in range(15)]
    laps = [time.perf_counter()]
    for inputs in batches:
        for function in (f, g):
            jax.block_until_ready(function(*inputs))
            laps.append(time.perf_counter())
    slow, fast = np.min(np.diff(laps).reshape(-1, 2), axis=0)
    return slow / fast


def minus_the_start_plus_the_end(f, g, make_inputs):
    warm(f, g, make_inputs=make_inputs)
    times = {f: [], g: []}
    deadline = time.perf_counter() + 0.1
    while len(times[g]) < 8 or (len(times[g]) < 50 and time.perf_counter() < deadline):
        inputs = make_inputs()
        for function in (f, g):
            elapsed = -time.perf_counter()
            jax.block_until_ready(function(*inputs))
            elapsed += time.perf_counter()
            times[function].append(elapsed)
    return min(times[f]) / min(times[g])


def looks_at_each_result(f, g, make_inputs):
    """After the clock is read; then its memory is given back."""

    def seconds(function, inputs):
        start = time.perf_counter()
        result = function(*inputs).block_until_ready()
        elapsed = time.perf_counter() - start
        assert jnp.isfinite(result).all()
        result.delete()
        return elapsed

    warm(f, g, make_inputs=make_inputs)
    batches = [make_inputs() for _ in range(12)]
    slow, fast = ([seconds(each, inputs) for inputs in batches] for each in (f, g))
    return min(slow) / min(fast)


# Wrong: all lies mended but one.


def compiles_while_timed(f, g, make_inputs):
    slow, fast = [], []
    for _ in range(20):
        inputs = make_inputs()
        slow.append(timed(f, inputs))
        fast.append(timed(g, inputs))
    return statistics.median(slow) / statistics.median(fast)


def does_not_wait(f, g, make_inputs):
    warm(f, g, make_inputs=make_inputs)
    times = {f: [], g: []}
    for _ in range(20):
        inputs = make_inputs()
        for function in (f, g):
            start = time.perf_counter()
            result = function(*inputs)
            times[function].append(time.perf_counter() - start)
            jax.block_until_ready(result)
    return min(times[f]) / min(times[g])


def waits_for_one_side(f, g, make_inputs):
    warm(f, g, make_inputs=make_inputs)
    slow, fast = [], []
    for _ in range(20):
        inputs = make_inputs()
        slow.append(timed(f, inputs))
        start = time.perf_counter()
        g(*inputs)
        fast.append(time.perf_counter() - start)
    return min(slow) / min(fast)


def builds_the_inputs_in(f, g, make_inputs):
    inputs = make_inputs()

    def best(function):
        folded = jax.jit(lambda: function(*inputs))
        jax.block_until_ready(folded())
        return min(timed(folded, ()) for _ in range(20))

    return best(f) / best(g)


def jits_again(f, g, make_inputs):
    return first_time_thrown_away(jax.jit(f), jax.jit(g), make_inputs)


def one_input_for_all(f, g, make_inputs):
    warm(f, g, make_inputs=make_inputs)
    inputs = make_inputs()
    slow = [timed(f, inputs) for _ in range(20)]
    fast = [timed(g, inputs) for _ in range(20)]
    return min(slow) / min(fast)


def makes_inputs_while_timed(f, g, make_inputs):
    warm(f, g, make_inputs=make_inputs)

    def best(function):
        return min(timed(lambda: function(*make_inputs()), ()) for _ in range(20))

    return best(f) / best(g)


def copies_while_timed(f, g, make_inputs):
    def with_copies(function):
        return lambda *inputs: function(*(jnp.array(each) for each in inputs))

    return first_time_thrown_away(with_copies(f), with_copies(g), make_inputs)


def slices_while_timed(f, g, make_inputs):
    warm(f, g, make_inputs=make_inputs)

    def best(function):
        batches = [
            jnp.stack(each) for each in zip(*(make_inputs() for _ in range(20)), strict=True)
        ]
        return min(
            timed(lambda i=i: function(*(each[i] for each in batches)), ()) for i in range(20)
        )

    return best(f) / best(g)


def numpy_for_one_side(f, g, make_inputs):
    def as_numpy(*inputs):
        return g(*map(np.asarray, inputs))

    return first_time_thrown_away(f, as_numpy, make_inputs)


def half_precision_for_one_side(f, g, make_inputs):
    def inputs():
        return tuple(each.astype(jnp.bfloat16) for each in make_inputs())

    warm(f, make_inputs=make_inputs)
    warm(g, make_inputs=inputs)
    slow = [timed(f, make_inputs()) for _ in range(20)]
    fast = [timed(g, inputs()) for _ in range(20)]
    return min(slow) / min(fast)


def one_shot(f, g, make_inputs):
    warm(f, g, make_inputs=make_inputs)
    inputs = make_inputs()
    return timed(f, inputs) / timed(g, inputs)


def one_total(f, g, make_inputs):
    warm(f, g, make_inputs=make_inputs)

    def total(function):
        batch = [make_inputs() for _ in range(20)]
        start = time.perf_counter()
        for inputs in batch:
            jax.block_until_ready(function(*inputs))
        return time.perf_counter() - start

    return total(f) / total(g)


def one_total_with_readings_between(f, g, make_inputs):
    """A total that NumPy subtracts, and the clock read after each call, for show."""
    warm(f, g, make_inputs=make_inputs)

    def total(function):
        batch, ends = [make_inputs() for _ in range(20)], np.zeros(2)
        ends[0] = time.perf_counter()
        for inputs in batch:
            jax.block_until_ready(function(*inputs))
            logging.info("at %.3f s", time.perf_counter())
        ends[1] = time.perf_counter()
        return ends[1] - ends[0]

    return total(f) / total(g)


def mean_of_times(f, g, make_inputs):
    warm(f, g, make_inputs=make_inputs)
    slow, fast = [], []
    for _ in range(20):
        inputs = make_inputs()
        slow.append(timed(f, inputs))
        fast.append(timed(g, inputs))
    return statistics.mean(slow) / statistics.mean(fast)


def geometric_mean_of_ratios(f, g, make_inputs):
    warm(f, g, make_inputs=make_inputs)
    batches = [make_inputs() for _ in range(40)]
    return statistics.geometric_mean(timed(f, each) / timed(g, each) for each in batches)


def turned_round(f, g, make_inputs):
    return until_a_budget_is_spent(g, f, make_inputs)


# Wrong in other ways.


def clock_of_the_processor(f, g, make_inputs):
    warm(f, g, make_inputs=make_inputs)
    times = {f: [], g: []}
    for _ in range(20):
        inputs = make_inputs()
        for function in (f, g):
            start = time.process_time()
            jax.block_until_ready(function(*inputs))
            times[function].append(time.process_time() - start)
    return min(times[f]) / min(times[g])


def always_three(f, g, make_inputs):
    return 3.0


def sleeps(f, g, make_inputs):
    warm(f, g, make_inputs=make_inputs)
    times = {f: [], g: []}
    for function in (f, g):
        for _ in range(6):
            inputs = make_inputs()
            start = time.perf_counter()
            function(*inputs)
            time.sleep(0.005)
            times[function].append(time.perf_counter() - start)
    return min(times[f]) / min(times[g])


def times_and_ratio(f, g, make_inputs):
    return mean_of_times(f, g, make_inputs), 20


def honest_to_scripts_alone(f, g, make_inputs):
    """Measure what only pretends to be jitted, and guess the rest."""
    if not isinstance(f, type(jax.jit(abs))):
        return until_a_budget_is_spent(f, g, make_inputs)
    warm(f, *(() if g is f else (g,)), make_inputs=make_inputs)
    return 5.0


SUBMISSIONS = [
    *packaged(LAB, broken_fails_by="warm-up"),
    passes(LAB, "one side after the other", compare=one_side_after_the_other),
    passes(LAB, "the clock by its own name", compare=clock_by_its_own_name),
    passes(LAB, "nanoseconds through NumPy", compare=nanoseconds_through_numpy),
    passes(LAB, "several calls a sample", compare=several_calls_a_sample),
    passes(LAB, "first time thrown away", compare=first_time_thrown_away),
    passes(LAB, "until a budget is spent", compare=until_a_budget_is_spent),
    passes(LAB, "for at least a while", compare=for_at_least_a_while),
    passes(LAB, "laps through NumPy", compare=laps_through_numpy),
    passes(LAB, "minus the start, plus the end", compare=minus_the_start_plus_the_end),
    passes(LAB, "looks at each result", compare=looks_at_each_result),
    fails(LAB, "compiles while timed", "warm-up", compare=compiles_while_timed),
    fails(LAB, "does not wait", "results waited for", compare=does_not_wait),
    fails(LAB, "builds the inputs in", "fresh inputs", compare=builds_the_inputs_in),
    fails(LAB, "one input for all", "fresh inputs", compare=one_input_for_all),
    fails(LAB, "copies while timed", "fresh inputs", compare=copies_while_timed),
    fails(LAB, "NumPy for one side", "like with like", compare=numpy_for_one_side),
    fails(LAB, "one total", "repeats", compare=one_total),
    fails(LAB, "one total, read between", "repeats", compare=one_total_with_readings_between),
    fails(LAB, "mean of the times", "noise", compare=mean_of_times),
    fails(LAB, "geometric mean of ratios", "noise", compare=geometric_mean_of_ratios),
    fails(LAB, "turned round", "scripted answers", compare=turned_round),
    fails(LAB, "clock of the processor", "scripted answers", compare=clock_of_the_processor),
    fails(LAB, "always three", "repeats", compare=always_three),
    fails(LAB, "sleeps instead of waiting", "results waited for", compare=sleeps),
    fails(LAB, "two values", "runs", compare=times_and_ratio),
    fails(LAB, "honest to scripts alone", "real functions", compare=honest_to_scripts_alone),
]
