"""Checks on X-rays judge made-up programs; where none can be made, a grade says so and goes on."""

import pytest

from course_utils import grade
from course_utils.checks import (
    CardDonatedBytesAtLeast,
    CardTempBytesAtMost,
    FitsOn,
    KernelsAtMost,
    RunsOn,
)
from course_utils.findings import Link, overall
from course_utils.instruments.xray import Kernel, Memory, Xray, toolchain
from course_utils.labs import get
from tests.submissions import SEED

LINK = Link("book/chapters/xray")
GIB = 2**30
CHECKS = {
    "kernels on a T4": KernelsAtMost(10, LINK),
    "fits a T4": FitsOn(LINK),
    "scratch memory on a T4": CardTempBytesAtMost(GIB, LINK),
    "donated on a T4": CardDonatedBytesAtLeast(1024, LINK),
    "runs on a T4": RunsOn(LINK),
}


def xrayed(*, kernels=1, temp=0, argument=0, donated=0, refused=None):
    program = tuple(
        Kernel(name=f"fusion.{i}", kind="fusion", library="", ops=("add",)) for i in range(kernels)
    )
    memory = Memory(temp, argument, 0, donated)
    return Xray("t4", "Tesla T4", "f", program, memory, 15 * GIB, dispatches=3, refused=refused)


def judge(check, xray):
    return check.judge(xray, 2, "crop") if isinstance(check, KernelsAtMost) else check.judge(xray)


@pytest.mark.parametrize(
    ("name", "good", "bad", "words"),
    [
        ("kernels on a T4", {"kernels": 20}, {"kernels": 22}, "11 kernels per crop"),
        ("fits a T4", {"temp": 15 * GIB}, {"temp": 14 * GIB, "argument": 2 * GIB}, "16 GiB"),
        ("scratch memory on a T4", {"temp": GIB}, {"temp": GIB + 1}, "1 GiB"),
        ("donated on a T4", {"donated": 1024}, {"donated": 1023}, "1023 bytes"),
    ],
)
def test_each_is_judged_at_its_limit(name, good, bad, words):
    check = CHECKS[name]
    assert check.name == name
    assert judge(check, xrayed(**good)).verdict == "pass"
    finding = judge(check, xrayed(**bad))
    assert finding.verdict == "fail"
    assert words.split()[0] in finding.cause
    assert finding.hint


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_a_refusal_fails_in_the_cards_words(check):
    finding = judge(check, xrayed(refused="It cannot multiply bfloat16"))
    assert finding.verdict == "fail"
    assert "It cannot multiply bfloat16" in finding.cause


def test_a_program_that_the_card_takes_runs_on_it():
    assert CHECKS["runs on a T4"].judge(xrayed()).verdict == "pass"


def test_without_the_toolchain_a_grade_goes_on_and_names_the_command(tmp_path, monkeypatch):
    monkeypatch.setenv(toolchain.ROOT_VARIABLE, str(tmp_path))
    lab = get("eager_crops")
    report = grade(lab, seed=SEED, **lab.solution)
    finding = report.finding("kernels on a T4")
    assert finding.verdict == "not checked"
    assert "course xray --install" in finding.cause
    others = [each.verdict for each in report.findings if each is not finding]
    assert overall(others) == report.verdict != "fail"
