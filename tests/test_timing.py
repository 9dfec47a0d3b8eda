"""Timing interleaves its arms, feeds them fresh inputs, and stops when the answer is clear."""

import itertools

import pytest

from course_utils.instruments import timing
from course_utils.instruments.timing import Timing, interleave


class FakeClock:
    """A clock that moves only when an arm works."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    fake = FakeClock()
    monkeypatch.setattr(timing, "clock", fake)
    return fake


def work(clock, seconds, log=None, name=""):
    def arm(x):
        clock.now += seconds
        if log is not None:
            log.append((name, x))
        return x

    return arm


def counter():
    numbers = itertools.count()
    return lambda: (next(numbers),)


def test_ratio_is_of_pooled_minima(clock):
    done = interleave(
        {"slow": work(clock, 8e-3), "fast": work(clock, 2e-3)}, counter(), max_rounds=2
    )
    assert done.ratio("slow", "fast") == pytest.approx(4.0)
    assert done.round_ratios("slow", "fast") == pytest.approx((4.0, 4.0))
    assert done.best("fast") == done.median("fast") == pytest.approx(2e-3)


def test_a_burst_of_noise_does_not_move_the_ratio(clock):
    costs = itertools.chain([8e-3] * 3, [80e-3] * 4, itertools.repeat(8e-3))

    def slow(x):
        clock.now += next(costs)
        return x

    done = interleave({"slow": slow, "fast": work(clock, 2e-3)}, counter(), max_rounds=1)
    assert done.ratio("slow", "fast") == pytest.approx(4.0)


def test_a_round_goes_on_while_an_arm_is_disturbed(clock):
    disturbed = itertools.chain([3e-3], (5e-3 + 2e-3 * (i % 10) for i in range(30)))

    def yours(x):
        clock.now += next(disturbed, 3e-3)
        return x

    arms = {"yours": yours, "solution": work(clock, 3e-3)}
    done = interleave(arms, counter(), max_rounds=1)
    assert len(done.rounds["yours"][0]) == len(done.rounds["solution"][0]) > 35
    assert done.ratio("yours", "solution") == pytest.approx(1.0)


def test_a_steady_round_and_a_long_one_end_after_their_pairs(clock):
    costs = itertools.cycle([0.2, 0.6, 1.0])

    def scattered(x):
        clock.now += next(costs)
        return x

    for arm in (work(clock, 2e-3), scattered):
        assert len(interleave({"a": arm}, counter(), max_rounds=1).rounds["a"][0]) == 10


def test_arms_alternate_and_swap_their_order(clock):
    log = []
    arms = {name: work(clock, 2e-3, log, name) for name in "ab"}
    interleave(arms, counter(), pairs=4, max_rounds=1)
    timed = [name for name, _ in log[2:]]  # each arm is calibrated with one call first
    assert timed == list("abbaabba")


def test_every_call_gets_new_inputs_and_both_arms_the_same(clock):
    log = []
    arms = {name: work(clock, 2e-3, log, name) for name in "ab"}
    interleave(arms, counter(), pairs=5, max_rounds=2)
    for name in arms:
        seen = [x for arm, x in log if arm == name]
        assert len(set(seen)) == len(seen)
    pairs = [{x for _, x in log[i : i + 2]} for i in range(2, len(log), 2)]
    assert all(len(pair) == 1 for pair in pairs)


def test_short_calls_are_repeated_to_a_millisecond(clock):
    done = interleave({"short": work(clock, 1e-4), "long": work(clock, 5e-3)}, counter())
    assert done.inner == {"short": 10, "long": 1}
    assert done.best("short") == pytest.approx(1e-4)


def test_stops_when_settled_or_out_of_time(clock):
    arms = {"a": work(clock, 1.0), "b": work(clock, 1.0)}

    def rounds(**options):
        return len(interleave(arms, counter(), pairs=2, **options).rounds["a"])

    assert rounds(max_rounds=4, budget=1e9) == 4
    assert rounds(settled=lambda _: True, budget=1e9) == 1
    assert rounds(budget=0.0) == 1, "one round always finishes"


def test_results_are_kept_outside_the_timed_region(clock):
    kept = []

    def keep(name, args, result):
        clock.now += 100.0
        kept.append((name, args, result))

    done = interleave({"a": work(clock, 2e-3)}, counter(), pairs=3, max_rounds=1, keep=keep)
    assert done.best("a") == pytest.approx(2e-3)
    assert [(name, (result,)) for name, _, result in kept] == [("a", args) for _, args, _ in kept]


def test_an_arm_that_donates_gets_its_own_copies(clock):
    eaten = []

    def eat(box):
        clock.now += 2e-3
        eaten.append(box.pop())

    boxes = ([i] for i in itertools.count())
    interleave(
        {"a": eat, "b": eat},
        lambda: (next(boxes),),
        pairs=3,
        max_rounds=1,
        own=lambda args: ([*args[0]],),
    )
    assert len(eaten) == 2 + 6


def test_timing_is_frozen():
    done = Timing({"a": ((1.0, 2.0),)}, {"a": 1}, 0.1)
    with pytest.raises(AttributeError):
        done.seconds = 2.0  # type: ignore[misc]
