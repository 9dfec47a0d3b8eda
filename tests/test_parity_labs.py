"""What the two parity labs promise beyond what their submissions show."""

import dataclasses
import functools
import inspect
import os
import platform
import subprocess
import sys

import jax
import numpy as np
import pytest

from course_utils import grade
from course_utils.labs import parity_gate, parity_nan
from tests.submissions import deciding
from tests.submissions import parity_nan as recorded

GATE, NAN = parity_gate.LAB, parity_nan.LAB


@functools.cache
def made(seed):
    model = parity_gate.make_model(GATE.sizes["cpu"].config, seed)
    return parity_gate.make_cases(GATE.sizes["cpu"], model, np.random.default_rng(seed))


@pytest.fixture(params=range(3))
def cases(request):
    return made(request.param)


def test_candidates_are_clearly_right_or_clearly_wrong(cases):
    tolerance, margin = parity_gate.TOLERANCE, parity_gate.MARGIN
    for case in cases:
        if case.right:
            assert case.error <= tolerance / margin, case.name
        else:
            assert not case.error < tolerance * margin, case.name
    assert sum(case.right for case in cases) == sum(not case.right for case in cases) == 14


def test_nothing_but_the_values_tells_candidates_apart(cases):
    for case in cases:
        trusted, candidate, inputs = case.args
        mine, right = candidate(inputs[0]), trusted(inputs[0])
        assert (type(mine), mine.shape, mine.dtype) == (type(right), right.shape, right.dtype)
        assert candidate.__code__ is trusted.__code__


def test_equal_bits_say_nothing():
    """Of the first batch, that is: a wrong candidate differs from the reference somewhere."""

    def alike(case):
        trusted, candidate, inputs = case.args
        return np.array_equal(trusted(inputs[0]), candidate(inputs[0]))

    seen = {(case.right, alike(case)) for seed in range(3) for case in made(seed)}
    assert seen == {(True, True), (True, False), (False, True), (False, False)}


def test_each_grade_has_new_candidates():
    model = parity_gate.make_model(GATE.sizes["cpu"].config, 0)
    again = parity_gate.make_cases(GATE.sizes["cpu"], model, np.random.default_rng(1))
    sets = made(0), again
    wrong = [{case.error for case in each if not case.right} for each in sets]
    assert len({error for error in wrong[0] & wrong[1] if np.isfinite(error)}) == 0


def test_a_gate_may_cut_the_crops_into_other_batches(cases):
    for case in cases:
        _, candidate, inputs = case.args
        if case.name == "answers of an earlier call":
            continue  # one call has no earlier one
        whole = np.concatenate([candidate(crops) for crops in inputs])
        np.testing.assert_array_equal(candidate(np.concatenate(inputs)), whole, case.name)
        np.testing.assert_array_equal(candidate(inputs[1][2:3]), whole[6:7], case.name)


def distances(off):
    return np.linalg.norm(off, axis=-1)


# By what is wrong with it: lets offsets of a batch, (n, landmarks, 2), through, or does not.
HOLES = {
    "limit twice too wide": lambda off, _: distances(off).max() <= 1,
    "pixels squared": lambda off, _: (off**2).sum(axis=-1).max() <= 0.5,
    "RMS of x and y": lambda off, _: np.sqrt((off**2).mean(axis=-1)).max() <= 0.5,
    "99th percentile of a batch": lambda off, _: np.percentile(distances(off), 99) <= 0.5,
    "relative to the values, 1%": lambda off, right: (abs(off) <= 0.01 * right).all(),
    "relative to the values, 2%": lambda off, right: (abs(off) <= 0.02 * right).all(),
    "relative to the values, 3%": lambda off, right: (abs(off) <= 0.03 * right).all(),
    "mean over landmarks": lambda off, _: distances(off).mean(axis=1).max() <= 0.5,
    "mean over landmarks, narrow": lambda off, _: distances(off).mean(axis=1).max() <= 0.12,
    "RMS over a batch, narrow": lambda off, _: np.sqrt((distances(off) ** 2).mean()) <= 0.2,
    "RMS over a crop": lambda off, _: np.sqrt((distances(off) ** 2).mean(axis=1)).max() <= 0.4,
    "mean of x and y": lambda off, _: abs(off).max(axis=(0, 1)).mean() <= 0.5,
    "sum of x and y": lambda off, _: abs(off.sum(axis=-1)).max() <= 0.5,
    "x alone": lambda off, _: abs(off[..., 0]).max() <= 0.5,
    "y alone": lambda off, _: abs(off[..., 1]).max() <= 0.5,
    "first landmark skipped": lambda off, _: distances(off)[:, 1:].max() <= 0.5,
    "last landmark skipped": lambda off, _: distances(off)[:, :-1].max() <= 0.5,
    **{
        f"crop {crop} skipped": lambda off, _, crop=crop: (
            distances(np.delete(off, crop, axis=0)).max() <= 0.5
        )
        for crop in range(parity_gate.CROPS)
    },
    "distance from the corner": lambda off, right: (
        abs(np.linalg.norm(right + off, axis=-1) - np.linalg.norm(right, axis=-1)).max() <= 0.5
    ),
}
SOUND = {
    "largest distance": lambda off, _: distances(off).max() <= 0.5,
    "x and y each": lambda off, _: abs(off).max() <= 0.5,
}


def judged_wrongly(lets_through, cases):
    """Return the names of candidates that a gate gets wrong."""

    def accepts(case):
        trusted, candidate, inputs = case.args
        both = [[np.asarray(f(crops), float) for f in (trusted, candidate)] for crops in inputs]
        return all(lets_through(mine - right, right) for right, mine in both)

    return [case.name for case in cases if accepts(case) != case.right]


@pytest.mark.parametrize("hole", HOLES)
def test_every_grade_finds_the_hole_in_a_gate(cases, hole):
    assert judged_wrongly(HOLES[hole], cases)


@pytest.mark.parametrize("gate", SOUND)
def test_every_grade_lets_a_sound_gate_pass(cases, gate):
    assert judged_wrongly(SOUND[gate], cases) == []


@pytest.mark.parametrize(
    "around",
    [jax.jit, jax.vmap, lambda f: functools.partial(jax.eval_shape, f)],
    ids=["jit", "vmap", "eval_shape"],
)
def test_a_candidate_inside_a_transformation_says_what_to_do(around):
    _, candidate, inputs = made(0)[0].args
    with pytest.raises(TypeError, match="whole batches of arrays, outside any jit"):
        around(candidate)(inputs[0])
    with pytest.raises(TypeError, match=r"got float32\[3, 64, 64\]"):
        candidate(inputs[0][0])


def rounds_twice(*scan):
    """The starter without its jit: each square is rounded, as on a device that does not fuse."""
    return inspect.unwrap(parity_nan.broken_fit)(*scan)


LAB = dataclasses.replace(NAN, broken={"fit": rounds_twice})
"""The lab on a device that gives no NaN; a lab is called so by its module."""


@pytest.mark.timed
def test_where_the_starter_gives_no_nan_the_lab_says_so_and_passes_what_is_right():
    report = grade(LAB, parity_nan.solution_fit, seed=1, progress=lambda _: None)
    assert report.passed, str(report)
    finding = report.finding("non-finite losses")
    assert finding.verdict == "not checked"
    assert "so are the starter's on this device" in finding.cause
    assert report.finding("loss error").verdict == "pass"
    assert report.finding("non-finite gradients").verdict == "pass"


@pytest.mark.timed
def test_where_the_starter_gives_no_nan_its_values_are_checked_still():
    clipped = recorded.fit(ground=recorded.ground_clipped_with_a_careful_root)
    report = grade(LAB, clipped, seed=1, progress=lambda _: None)
    assert (report.verdict, deciding(report)) == ("fail", "loss error")
    report = grade(LAB, jax.jit(rounds_twice), seed=1, progress=lambda _: None)
    assert report.verdict == "fail"
    assert report.finding("loss error").verdict == "fail"


_GRADE_THE_STARTER = """
from course_utils import grade
from course_utils.labs.parity_nan import LAB
report = grade(LAB, **LAB.broken, seed=1, progress=lambda _: None)
for name in ("non-finite losses", "non-finite gradients", "loss error"):
    print(report.finding(name).verdict)
"""


@pytest.mark.timed
@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"),
    reason="only for x86 can XLA be told to use an older instruction set",
)
def test_on_a_processor_that_does_not_fuse_the_starter_fails_by_its_values():
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_max_isa=AVX"
    done = subprocess.run(
        [sys.executable, "-c", _GRADE_THE_STARTER],
        env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split("\n")[:3] == ["not checked", "fail", "fail"], done.stderr
