"""A harness on the scripted machine: each lie shows in the record, and in a finding of its own."""

import contextlib
import functools
import statistics
import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from course_utils.checks import (
    CompiledOnce,
    FreshInputs,
    LikeWithLike,
    PairsToldRight,
    RightAnswer,
    SamplesAtLeast,
    SteadyUnderNoise,
    WaitedFor,
    WarmedUp,
)
from course_utils.checks.harness import Pair
from course_utils.findings import Link, Verdict
from course_utils.guard import SubmissionError
from course_utils.instruments.compiles import Compiles
from course_utils.instruments.harness import Compare, World, as_number, observe, try_out
from course_utils.labs.measurement_benchmark import LAB, make_pairs
from course_utils.session import Session
from tests.submissions import measurement_benchmark as submitted

LINK = Link("book/chapters/06_measurement", "noise")
WORLD = World(f=6e-3, g=2e-3)
SCRIPTED = (
    WarmedUp(LINK),
    WaitedFor(LINK),
    FreshInputs(LINK),
    LikeWithLike(LINK),
    SamplesAtLeast(5, LINK),
    SteadyUnderNoise(1.5, LINK),
    RightAnswer(1.2, LINK),
)
solution = LAB.solution["compare"]
broken = LAB.broken["compare"]


def verdicts(compare: Compare, seed: int = 1) -> dict[str, str]:
    trial = try_out(compare, seed=seed)
    return {check.name: str(check.judge(trial).verdict) for check in SCRIPTED}


def failing(compare: Compare) -> list[str]:
    return [name for name, verdict in verdicts(compare).items() if verdict == "fail"]


def by_default(function, inputs, clock=time.perf_counter):
    start = clock()
    jax.block_until_ready(function(*inputs))
    return clock() - start


def by_option(function, inputs, *, clock=time.perf_counter):
    return by_default(function, inputs, clock)


def _closed_over(clock):
    return lambda function, inputs: by_default(function, inputs, clock)


by_closure = _closed_over(time.perf_counter)
by_partial = functools.partial(by_default, clock=time.perf_counter)
CLOCKS = {"wall": time.perf_counter}


def by_table(function, inputs):
    return by_default(function, inputs, CLOCKS["wall"])


class Stopwatch:
    clock = staticmethod(time.perf_counter)

    def __enter__(self):
        self.start = self.clock()
        return self

    def __exit__(self, *error):
        self.seconds = self.clock() - self.start


def by_class(function, inputs):
    with Stopwatch() as watch:
        jax.block_until_ready(function(*inputs))
    return watch.seconds


@dataclass
class Timer:
    clock: Callable[[], float] = time.perf_counter

    def __call__(self, function, inputs):
        return by_default(function, inputs, self.clock)


by_object = Timer()


def by_new_object(function, inputs):
    return Timer()(function, inputs)


@contextlib.contextmanager
def _timing(times, clock=time.perf_counter):
    start = clock()
    yield
    times.append(clock() - start)


def by_context(function, inputs):
    with _timing(times := []):
        jax.block_until_ready(function(*inputs))
    return times[0]


def by_timeit(function, inputs):
    return timeit.timeit(lambda: function(*inputs).block_until_ready(), number=1)


def by_repeat(function, inputs):
    return min(timeit.repeat(lambda: function(*inputs).block_until_ready(), repeat=1, number=1))


def by_timer(function, inputs):
    return timeit.Timer("call()", globals={"call": lambda: by_wait(function, inputs)}).timeit(1)


def by_wait(function, inputs):
    return jax.block_until_ready(function(*inputs))


def by_default_timer(function, inputs):
    return by_default(function, inputs, timeit.default_timer)


KEPT = {name: value for name, value in globals().items() if name.startswith("by_")}
del KEPT["by_wait"]


class TestObserve:
    def test_a_right_harness_comes_to_the_scripted_ratio(self):
        seen = observe(solution, WORLD)
        assert seen.truth == pytest.approx(3)
        assert seen.answer == pytest.approx(3, rel=0.06)
        assert seen.samples("f") == seen.samples("g") == 20
        assert not seen.traced
        assert not seen.made_while_timed

    def test_a_call_comes_back_before_its_result_is_there(self):
        def compare(f, g, make_inputs):
            start = time.perf_counter()
            result = f(*make_inputs())
            handed_over = time.perf_counter() - start
            jax.block_until_ready(result)
            return (time.perf_counter() - start) / handed_over

        seen = observe(compare, World(f=1.0, g=1.0, compile=0.0))
        assert seen.answer > 100

    def test_waiting_for_the_last_result_waits_for_all_before_it(self):
        def compare(f, g, make_inputs):
            start = time.perf_counter()
            _, last = f(*make_inputs()), f(*make_inputs())
            last.block_until_ready()
            return time.perf_counter() - start

        seen = observe(compare, WORLD)
        assert [call.ready_at for call in seen.calls] == [1, 1]

    @pytest.mark.parametrize(
        "wait",
        [
            jax.block_until_ready,
            lambda x: x.block_until_ready(),
            np.asarray,
            jax.device_get,
            lambda x: x.tolist(),
            lambda x: float(x[0]),
            lambda x: jax.tree.map(lambda each: each.block_until_ready(), x),
            lambda x: float(x.sum()),
            lambda x: float(jnp.asarray(x).sum()),
            lambda x: bool(jnp.isfinite(x).all()),
            lambda x: bool(jnp.allclose(x, x + 0)),
            lambda x: jax.block_until_ready(jnp.add(jnp.ones(()), x)),
            lambda x: jax.device_get(jnp.stack([x, x])),
            lambda x: float(x.std()),
            lambda x: jax.nn.relu(x.T).tolist(),
            lambda x: jax.device_put(x).block_until_ready(),
            repr,
            lambda x: float(x.mean()),
            lambda x: jax.block_until_ready(x + 0),
            lambda x: jax.block_until_ready([2 * x.max() - x]),
            lambda x: isinstance(x, jax.Array) and x.block_until_ready(),
            lambda x: x.ravel()[0].item(),
            lambda x: float(next(iter(x))),
            lambda x: (x.copy_to_host_async(), np.asarray(x)),
            lambda x: [None for _ in iter(x.is_ready, True)],
        ],
    )
    def test_every_way_to_wait_is_one(self, wait):
        def compare(f, g, make_inputs):
            wait(f(*make_inputs()))
            return 1.0

        assert observe(compare, WORLD).calls[0].ready_at == 0

    @pytest.mark.parametrize(
        "wait",
        [
            lambda x: x + 0,
            lambda x: x.mean(),
            lambda x: x[0],
            lambda x: x.is_ready(),
            lambda x: jnp.sum(jnp.isfinite(x)),
            lambda x: x.std() == x.T,
            lambda x: x.nbytes + len(x.devices()) + x.is_deleted(),
            lambda x: jax.eval_shape(jnp.abs, x).shape == x.shape,
            lambda x: jax.block_until_ready(jnp.ones(3) + 1),
            lambda x: x.delete(),
        ],
    )
    def test_what_is_computed_on_the_device_is_no_wait(self, wait):
        def compare(f, g, make_inputs):
            wait(f(*make_inputs()))
            return 1.0

        assert observe(compare, WORLD).calls[0].ready_at is None

    def test_a_deleted_result_cannot_be_read(self):
        def compare(f, g, make_inputs):
            result = f(*make_inputs())
            result.delete()
            assert result.is_deleted()
            return np.asarray(result).sum()

        with pytest.raises(RuntimeError, match="deleted"):
            observe(compare, WORLD)

    @pytest.mark.parametrize("use", [jax.jit(jnp.sum), jax.grad(jnp.sum), jnp.ones(()).__add__])
    def test_what_a_result_cannot_do_is_said(self, use):
        def compare(f, g, make_inputs):
            return float(use(f(*make_inputs())))

        with pytest.raises(NotImplementedError, match=r"np\.asarray"):
            observe(compare, WORLD)

    def test_jax_is_itself_again_afterwards(self):
        before = [dict(vars(module)) for module in (jax, jnp, jnp.linalg, jax.lax, jax.nn)]

        def compare(f, g, make_inputs):
            assert jnp.sum is not before[1]["sum"]
            assert jax.jit(jnp.sum)(jnp.ones(3)) == jnp.add.reduce(jnp.ones(3)) == 3
            return 1.0

        observe(compare, WORLD)
        assert before == [dict(vars(module)) for module in (jax, jnp, jnp.linalg, jax.lax, jax.nn)]

    def test_both_sides_can_be_compiled_ahead(self):
        def compare(f, g, make_inputs):
            times = []
            for function in (f, g):
                assert function._cache_size() == 0
                compiled = function.lower(*make_inputs()).compile()
                assert function._cache_size() == 1
                times.append([submitted.timed(compiled, make_inputs()) for _ in range(8)])
                with pytest.raises(TypeError, match="compiled for"):
                    compiled(np.ones(3))
            return min(times[0]) / min(times[1])

        assert failing(compare) == []
        assert not any(call.compiles for call in observe(compare, WORLD).calls)

    def test_a_cleared_cache_compiles_again(self):
        def compare(f, g, make_inputs):
            f(*make_inputs())
            f.clear_cache()
            f(*make_inputs())
            return 1.0

        assert [call.compiles for call in observe(compare, WORLD).calls] == [True, True]

    def test_the_clock_is_scripted_under_every_name_and_put_back(self):
        real = time.perf_counter

        def compare(f, g, make_inputs):
            return time.perf_counter() + time.monotonic_ns() + submitted.perf_counter()

        compare.__globals__["perf_counter"] = real
        try:
            seen = observe(compare, WORLD)
            assert compare.__globals__["perf_counter"] is real
        finally:
            del compare.__globals__["perf_counter"]
        assert seen.readings == 2
        assert time.perf_counter is real
        assert observe(submitted.clock_by_its_own_name, WORLD).readings == 48
        assert submitted.perf_counter is real

    @pytest.mark.parametrize("kept", KEPT)
    def test_a_clock_that_was_taken_early_is_replaced_and_put_back(self, kept):
        seconds = KEPT[kept]

        def compare(f, g, make_inputs):
            submitted.warm(f, g, make_inputs=make_inputs)
            slow = [seconds(f, make_inputs()) for _ in range(6)]
            return min(slow) / min(seconds(g, make_inputs()) for _ in range(6))

        seen = observe(compare, WORLD)
        assert seen.samples("f") == 6
        assert seen.answer == pytest.approx(3, rel=0.06)
        inputs = (jnp.ones(2),)
        assert 0 < seconds(lambda x: x, inputs) < 1  # the scripted one would still count on
        assert type(seconds(lambda x: x, inputs)) is float
        assert time.perf_counter is timeit.default_timer
        assert by_default.__defaults__ == (time.perf_counter,)
        assert time.perf_counter is CLOCKS["wall"] is Stopwatch.clock is by_object.clock
        assert isinstance(vars(Stopwatch)["clock"], staticmethod)

    def test_the_clock_is_put_back_after_an_error(self):
        real = time.perf_counter

        def compare(f, g, make_inputs):
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            observe(compare, WORLD)
        assert time.perf_counter is real

    @pytest.mark.parametrize("name", ["process_time", "process_time_ns", "thread_time"])
    def test_the_processor_s_time_stands_still_while_the_host_waits(self, name):
        def compare(f, g, make_inputs):
            inputs, read = make_inputs(), getattr(time, name)
            start = read()
            result = f(*inputs)
            called = read()
            jax.block_until_ready(result)
            return (read() - called) / (called - start)

        seen = observe(compare, World(f=1.0, g=1.0))
        assert 0 < seen.answer < 1e-3
        assert seen.is_of_processor
        assert not observe(solution, WORLD).is_of_processor

    def test_partials_and_objects_read_the_scripted_clock_too(self):
        class Harness:
            def __call__(self, f, g, make_inputs):
                return submitted.clock_by_its_own_name(f, g, make_inputs)

        with_option = functools.partial(lambda f, g, m, n: time.perf_counter(), n=3)
        assert observe(with_option, WORLD).readings == 1
        assert observe(Harness(), WORLD).answer > 0

    def test_timeit_reads_the_clock_for_its_caller(self):
        def compare(f, g, make_inputs):
            def best(function):
                function(*make_inputs()).block_until_ready()
                inputs = iter([make_inputs() for _ in range(6)])
                timer = timeit.Timer(
                    lambda: function(*next(inputs)).block_until_ready(), timer=time.perf_counter
                )
                return min(timer.repeat(6, number=1))

            return best(f) / best(g)

        assert observe(compare, WORLD).samples("f") == 6
        assert failing(compare) == []

    def test_an_outer_interval_around_timed_ones_does_not_count(self):
        seen = observe(submitted.until_a_budget_is_spent, WORLD)
        assert seen.samples("f") == len([c for c in seen.calls if c.side == "f"]) - 1

    def test_readings_that_are_subtracted_elsewhere_are_paired_by_what_the_answer_uses(self):
        seen = observe(submitted.nanoseconds_through_numpy, WORLD)
        assert seen.intervals[:2] == ((0, 1), (2, 3))
        assert seen.answer == pytest.approx(3, rel=0.06)

        def with_a_start_and_a_call_between(f, g, make_inputs):
            float(time.perf_counter())
            submitted.warm(f, g, make_inputs=make_inputs)
            times = np.zeros((9, 2, 2))
            for row in times:
                for ends, function in zip(row, (f, g), strict=True):
                    inputs = make_inputs()
                    ends[0] = time.perf_counter()
                    jax.block_until_ready(function(*inputs))
                    ends[1] = time.perf_counter()
                    function(*inputs)
            slow, fast = np.median(times[:, :, 1] - times[:, :, 0], axis=0)
            return slow / fast

        seen = observe(with_a_start_and_a_call_between, WORLD)
        assert seen.intervals[:2] == ((1, 2), (3, 4))
        assert (seen.samples("f"), len(seen.timed())) == (9, 18)

    @pytest.mark.parametrize(
        "taken",
        [
            lambda start, end: end - start,
            lambda start, end: -start + end,
            lambda start, end: abs(start - end),
            lambda start, end: sum((end, -start)),
            lambda start, end: (0.5 - start) + end - 0.5,
        ],
    )
    def test_a_difference_is_seen_however_it_is_taken(self, taken):
        def compare(f, g, make_inputs):
            start = time.perf_counter()
            jax.block_until_ready(f(*make_inputs()))
            time.perf_counter()
            return taken(start, time.perf_counter())

        seen = observe(compare, World(f=1.0, g=1.0, is_first_instant=True))
        assert seen.intervals == ((0, 2),)
        assert seen.answer == pytest.approx(3e-3, rel=0.1)
        assert type(seen.answer) is float

    def test_a_deadline_is_a_number_like_any_other(self):
        def compare(f, g, make_inputs):
            deadline, whole = 1.0 + time.perf_counter(), time.perf_counter_ns()
            assert deadline > time.perf_counter()
            assert type(whole * 2) is type(whole - time.perf_counter_ns()) is int
            return (np.asarray([deadline]) - deadline)[0] + max(0.0, deadline - 1.0)

        assert observe(compare, WORLD).answer == pytest.approx(0, abs=1e-4)

    def test_a_jit_around_a_function_is_seen(self):
        closed = observe(broken, WORLD)
        assert [call.traced for call in closed.calls] == ["closed over"] * 2

        def wrapped(f, g, make_inputs):
            jax.jit(f)(*make_inputs())
            return 1.0

        assert [call.traced for call in observe(wrapped, WORLD).calls] == ["wrapped"]

    @pytest.mark.parametrize("answer", [None, "3", (1.0, 2.0), np.ones(2), {"ratio": 2.0}])
    def test_what_is_no_number_is_named(self, answer):
        with pytest.raises(TypeError, match="must return one number"):
            as_number(answer)

    @pytest.mark.parametrize("answer", [3, 3.0, np.float32(3), jnp.float32(3), jnp.ones(()) * 3])
    def test_every_number_is_one(self, answer):
        assert as_number(answer) == 3.0


class TestLies:
    def test_the_solution_tells_none(self):
        assert set(verdicts(solution).values()) == {"pass"}

    @pytest.mark.parametrize("seed", range(3))
    def test_an_answer_that_compiling_made_is_not_taken_for_one_turned_round(self, seed):
        hint = RightAnswer(1.2, LINK).judge(try_out(broken, seed=seed)).hint
        assert "Mend what failed" in hint

    def test_the_starter_tells_all_six(self):
        names = {check.name for check in SCRIPTED} - {"scripted answers"}
        assert set(failing(broken)) >= names

    @pytest.mark.parametrize(
        ("lie", "finding"),
        [
            ("compiles_while_timed", "warm-up"),
            ("does_not_wait", "results waited for"),
            ("waits_for_one_side", "results waited for"),
            ("sleeps", "results waited for"),
            ("builds_the_inputs_in", "fresh inputs"),
            ("one_input_for_all", "fresh inputs"),
            ("makes_inputs_while_timed", "fresh inputs"),
            ("copies_while_timed", "fresh inputs"),
            ("slices_while_timed", "fresh inputs"),
            ("jits_again", "fresh inputs"),
            ("numpy_for_one_side", "like with like"),
            ("half_precision_for_one_side", "like with like"),
            ("one_shot", "repeats"),
            ("one_total", "repeats"),
            ("one_total_with_readings_between", "repeats"),
            ("mean_of_times", "noise"),
            ("geometric_mean_of_ratios", "noise"),
            ("turned_round", "scripted answers"),
            ("clock_of_the_processor", "scripted answers"),
        ],
    )
    def test_each_lie_has_its_own_finding(self, lie, finding):
        assert failing(getattr(submitted, lie))[0] == finding

    @pytest.mark.parametrize(
        "idiom",
        [
            "one_side_after_the_other",
            "clock_by_its_own_name",
            "nanoseconds_through_numpy",
            "several_calls_a_sample",
            "first_time_thrown_away",
            "until_a_budget_is_spent",
            "for_at_least_a_while",
            "laps_through_numpy",
            "minus_the_start_plus_the_end",
            "looks_at_each_result",
        ],
    )
    @pytest.mark.parametrize("seed", range(5))
    def test_no_other_idiom_is_accused(self, idiom, seed):
        assert set(verdicts(getattr(submitted, idiom), seed).values()) == {"pass"}

    def test_a_first_time_that_is_used_is_told_from_one_thrown_away(self):
        def keeps_it(f, g, make_inputs):
            slow, fast = [], []
            for _ in range(9):
                inputs = make_inputs()
                slow.append(submitted.timed(f, inputs))
                fast.append(submitted.timed(g, inputs))
            return min(slow) / min(fast)

        assert failing(keeps_it) == ["warm-up"]

    def test_a_warm_up_that_is_timed_for_show_is_not_blamed(self):
        shown = []

        def compare(f, g, make_inputs):
            start = time.perf_counter()
            submitted.warm(f, g, make_inputs=make_inputs)
            shown.append(time.perf_counter() - start)
            return submitted.for_at_least_a_while(f, g, make_inputs, floor=8)

        def on_its_inputs(f, g, make_inputs):
            inputs = [make_inputs() for _ in range(8)]
            shown.extend(submitted.timed(function, inputs[0]) for function in (f, g))
            slow, fast = ([submitted.timed(each, x) for x in inputs] for each in (f, g))
            return min(slow) / min(fast)

        assert failing(compare) == failing(on_its_inputs) == []
        assert max(shown) > WORLD.compile

    def test_a_harness_without_a_clock_is_told_so(self):
        trial = try_out(submitted.always_three, seed=1)
        finding = SamplesAtLeast(5, LINK).judge(trial)
        assert "never read" in finding.cause
        assert WarmedUp(LINK).judge(trial).verdict is Verdict.NOT_CHECKED
        assert SteadyUnderNoise(1.5, LINK).judge(trial).verdict is Verdict.NOT_CHECKED
        assert "neither function was called" in LikeWithLike(LINK).judge(trial).cause

    def test_readings_that_the_answer_does_not_use_are_no_times(self):
        def compare(f, g, make_inputs):
            for function in (f, g) * 9:
                float(time.perf_counter())
                jax.block_until_ready(function(*make_inputs()))
                float(time.perf_counter())
            return 2.0

        finding = SamplesAtLeast(5, LINK).judge(try_out(compare, seed=1))
        assert finding.verdict is Verdict.FAIL
        assert "could not be seen" in finding.cause
        assert "end - start" in finding.hint

    def test_a_median_of_few_survives_and_a_trimmed_mean_too(self):
        def median(f, g, make_inputs):
            submitted.warm(f, g, make_inputs=make_inputs)
            slow = [submitted.timed(f, make_inputs()) for _ in range(5)]
            fast = [submitted.timed(g, make_inputs()) for _ in range(5)]
            return statistics.median(slow) / statistics.median(fast)

        assert failing(median) == []

    @pytest.mark.parametrize("aggregate", [min, statistics.median])
    def test_a_budget_of_time_that_noise_spends_is_not_blamed(self, aggregate):
        harness = functools.partial(submitted.for_at_least_a_while, aggregate=aggregate, floor=5)
        assert failing(harness) == []

    @pytest.mark.parametrize("aggregate", [statistics.mean, max, lambda times: times[-1]])
    def test_a_budget_of_time_does_not_hide_what_noise_does(self, aggregate):
        harness = functools.partial(submitted.for_at_least_a_while, aggregate=aggregate)
        assert failing(harness) == ["noise"]

    @pytest.mark.parametrize("used", range(0, 20, 3))
    def test_a_single_time_that_is_used_is_hit_wherever_it_is(self, used):
        def compare(f, g, make_inputs):
            submitted.warm(f, g, make_inputs=make_inputs)
            slow = [submitted.timed(f, make_inputs()) for _ in range(20)]
            fast = [submitted.timed(g, make_inputs()) for _ in range(20)]
            return slow[used] / fast[-1 - used]

        assert failing(compare) == ["noise"]


class TestOnScripts:
    def test_a_harness_that_fails_there_is_run_once_and_told_once(self):
        runs = []

        def compare(f, g, make_inputs):
            runs.append(f)
            raise ZeroDivisionError

        session = Session(LAB, {"compare": compare}, 0)
        with pytest.raises(SubmissionError, match=r"ZeroDivisionError.*scripted machine") as told:
            SCRIPTED[0].run(session)
        assert "observe(compare, World" in told.value.hint
        others = [check.run(session) for check in SCRIPTED[1:]]
        assert {str(finding.verdict) for finding in others} == {"not checked"}
        assert all("did not get through" in finding.cause for finding in others)
        assert len(runs) == 1


class TestCompiledOnce:
    pair = Pair("two", jax.jit(lambda x: x), jax.jit(lambda x: x), lambda: (jnp.ones(3),))

    def judge(self, *names: str):
        return CompiledOnce(LINK).judge([((self.pair,), Compiles(names, (), 0, 0.0, 0))])

    def test_once(self):
        assert self.judge("other", "<lambda>").verdict == "pass"

    def test_twice(self):
        assert "more than one kind" in self.judge("<lambda>", "<lambda>").cause

    def test_never(self):
        finding = self.judge("timed")
        assert (finding.verdict, finding.measured) == ("fail", 0)


class TestPairs:
    def test_names_order_and_sides_do_not_tell_what_is_right(self):
        config = LAB.sizes["cpu"].config
        drawn = [make_pairs(config, np.random.default_rng(seed)) for seed in range(80)]
        for place in range(4):
            assert len({pairs[place].title for pairs in drawn}) == 4
            assert {pairs[place].is_turned for pairs in drawn} == {True, False}
        assert {pair.names[0][:2] for pair in drawn[0]} == {"f_"}

    def test_a_ratio_is_turned_back(self):
        pair = Pair("two", abs, abs, tuple, is_turned=True)
        assert pair.straight(4.0) == 0.25
        assert pair.straight(0.0) == float("inf")


class TestPairsToldRight:
    check = PairsToldRight(2, LINK)

    def judge(self, answers, measured):
        return self.check.judge({"a pair": answers}, {"a pair": measured})

    def test_below_ten_times_the_answer_must_be_near(self):
        assert self.judge((3.0, 3.1), 4.0).verdict == "pass"
        assert self.judge((1.0, 1.1), 4.0).verdict == "fail"
        assert self.judge((3.0, 3.0), 1.0).verdict == "fail"

    def test_the_better_of_two_answers_counts_there(self):
        assert self.judge((9.0, 4.0), 4.0).verdict == "pass"

    def test_near_the_limit_nothing_is_decided(self):
        assert self.judge((2.0, 2.0), 4.0).verdict == "inconclusive"

    @pytest.mark.parametrize(
        ("noise", "verdict"), [(1.0, "fail"), (1.1, "fail"), (1.4, "inconclusive")]
    )
    def test_what_the_noise_explains_is_not_failed(self, noise, verdict):
        finding = self.check.judge({"a pair": (2.8, 2.9)}, {"a pair": 1.0}, noise=noise)
        assert finding.verdict == verdict

    def test_no_noise_explains_a_lie_nor_a_wrong_direction(self):
        for answers, own in (((0.9, 1.0), 5.0), ((0.5, 30.0), 50.0)):
            finding = self.check.judge({"a pair": answers}, {"a pair": own}, noise=1.9)
            assert finding.verdict == "fail"

    def test_of_a_ranked_pair_only_the_direction_counts(self):
        for answers, verdict in (((3.0, 90.0), "pass"), ((0.9, 4.0), "fail")):
            finding = self.check.judge({"a pair": answers}, {"a pair": 4.0}, ranked={"a pair"})
            assert finding.verdict == verdict

    def test_beyond_ten_times_only_the_direction_counts(self):
        assert self.judge((3.0, 900.0), 50.0).verdict == "pass"
        assert self.judge((0.1, 0.3), 0.01).verdict == "pass"
        assert self.judge((0.9, 30.0), 50.0).verdict == "fail"

    def test_the_worst_pair_is_named(self):
        finding = self.check.judge(
            {"good": (2.0, 2.0), "bad": (2.0, 2.0)}, {"good": 2.0, "bad": 0.02}
        )
        assert (finding.measured, finding.required) == (1, 2)
        assert finding.cause.startswith("Bad:")

    @pytest.mark.parametrize("answer", [0.0, -1.0, float("inf"), float("nan")])
    def test_what_is_no_ratio_is_wrong(self, answer):
        assert self.judge((answer, answer), 2.0).verdict == "fail"
