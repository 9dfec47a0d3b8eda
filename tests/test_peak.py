"""The peak-memory instrument, on code whose bytes can be told by hand, and its check."""

import jax
import jax.numpy as jnp
import pytest

from course_utils.checks import TempBytesAtMost
from course_utils.findings import Link
from course_utils.instruments._frames import Line
from course_utils.instruments.jaxprs import Intermediate
from course_utils.instruments.peak import Peak, peak_of
from course_utils.instruments.xray import XrayError

KIB = 1024
LINK = Link("book/chapters/03_boundary", "too-wide")


@pytest.fixture
def rows():
    return jnp.ones((64, 256))  # 64 KiB, 1 KiB a row


def test_operations_outside_jit_hold_what_they_have_made(rows):
    def squares_then_sum(x):
        a = x + 1
        b = a * a
        return b.sum()

    peak = peak_of(squares_then_sum, rows)
    # At the sum: `a`, `b` and the result; the argument is not counted.
    assert peak.held_bytes == 2 * 64 * KIB + 4
    assert (peak.program, peak.launch, peak.launches) == ("_reduce_sum", 3, 3)


def test_what_is_let_go_is_not_held(rows):
    def squares_then_sum(x):
        x = x + 1
        x = x * x
        return x.sum()

    # At the product its operand is still there; at the sum only the product is.
    assert peak_of(squares_then_sum, rows).held_bytes == 2 * 64 * KIB


def test_a_program_needs_its_scratch_memory(rows):
    @jax.jit
    def outer(x):
        return jnp.linalg.norm(jnp.sort(x, axis=0) @ x.T @ x, axis=1)

    peak = peak_of(lambda x: outer(x), rows)
    assert peak.launches == 1
    assert peak.held_bytes == 64 * 4
    assert peak.temp_bytes >= 64 * KIB


def test_parts_that_are_kept_are_held_together(rows):
    part = jax.jit(lambda x: 2 * x)
    add = jax.jit(lambda x, y: x + y)
    quarters = tuple(jnp.split(rows, 4))

    def kept(quarters):
        total, *others = [part(each) for each in quarters]
        for each in others:
            total = add(total, each)
        return total

    def summed(quarters):
        total = part(quarters[0])
        for each in quarters[1:]:
            total = add(total, part(each))
        return total

    # All four parts and the first sum; against two parts and their sum.
    assert peak_of(kept, quarters).held_bytes == 5 * 16 * KIB
    assert peak_of(summed, quarters).held_bytes == 3 * 16 * KIB


def test_a_loop_over_chunks_holds_one_chunk(rows):
    def wide(x):
        return jnp.sum(jnp.tanh(x[:, :, None] * x[:, None, :]) @ jnp.ones((256, 8)), axis=0)

    def chunked(x):
        return jax.lax.map(lambda chunk: wide(chunk), x.reshape(32, 2, 256)).sum(axis=0)

    whole = peak_of(jax.jit(wide), rows)
    parts = peak_of(jax.jit(chunked), rows)
    assert parts.bytes < whole.bytes / 8


def test_nothing_launched_is_nothing_held():
    peak = peak_of(lambda: None)
    assert (peak.bytes, peak.launches) == (0, 0)


def test_a_program_compiled_ahead_of_time_cannot_be_planned(rows):
    compiled = jax.jit(lambda x: x + 1).lower(rows).compile()
    with pytest.raises(XrayError, match="ahead of time"):
        peak_of(lambda x: compiled(x), rows)


class TestCheck:
    check = TempBytesAtMost(3 << 20, LINK, hint="take fewer at once")

    def judge(self, held: int, temp: int, *, items: int = 1):
        largest = Intermediate(
            1 << 20, (256, 1024), "float32", "dot_general", Line("<cell>", 7, "y = x @ w")
        )
        return self.check.judge(Peak("survey", 2, 5, held, temp), largest, items, "view")

    def test_at_the_limit(self):
        finding = self.judge(1 << 20, 2 << 20)
        assert (finding.verdict, finding.measured) == ("pass", 3 << 20)

    def test_scratch_memory_over_the_limit_is_named_with_the_largest_value(self):
        finding = self.judge(1, 3 << 20)
        assert finding.verdict == "fail"
        for words in ("scratch memory of the program `survey`", "float32[256, 1024]", "line 7"):
            assert words in finding.cause
        assert finding.hint == "take fewer at once"
        assert finding.link == str(LINK)

    def test_arrays_that_are_held_are_told_from_scratch_memory(self):
        finding = self.judge(3 << 20, 1)
        assert "arrays that you hold" in finding.cause
        assert "launch 2 of 5" in finding.cause

    def test_with_several_items_the_share_of_one_is_said(self):
        assert "1 MiB for each of 4 views" in self.judge(0, 4 << 20, items=4).cause
