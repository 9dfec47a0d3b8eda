"""A report shows the same facts as text, as a card and as data, whatever is in it."""

import html.parser
import re

import pytest

from course_utils.findings import Comparison, Finding, Report, Verdict, overall
from course_utils.quantities import data, number, plural, quantity, seconds
from course_utils.report import html as card_html
from course_utils.report import text as card_text
from course_utils.report.links import address
from course_utils.report.scale import bars

NASTY = '<script>alert("x")</script> & `code` \x1b[31m'


def report(*findings, **fields):
    return Report("toy", findings, seed=7, device="cpu", versions={"jax": "1.2.3"}, **fields)


FAILING = report(
    Finding("runs", Verdict.PASS, cause="Ran twice."),
    Finding(
        "launches",
        Verdict.FAIL,
        687.0,
        10.0,
        "at most",
        "launches per crop",
        "686 of 687 launches per crop were single operations, all from `out = model(crop)`. " * 3,
        "Put it into one function under `eqx.filter_jit`.",
        "book/chapters/01_eager.html#the-fix",
        detail=("in predict, line 3: `out = model(crop)`", "TypeError: no"),
    ),
    Finding("speedup", Verdict.NOT_CHECKED, cause="Not checked: an earlier check failed."),
    Finding("time", Verdict.NOT_CHECKED, cause="Not checked: an earlier check failed."),
    comparisons=(
        Comparison("launches per crop", "", {"broken": 687, "yours": 687, "solution": 5.5}),
        Comparison("time of one call", "s", {"broken": 0.2, "yours": 0.1, "solution": 0.003}),
    ),
)


class Page(html.parser.HTMLParser):
    """Collects tags, and the text outside of them."""

    def __init__(self, source):
        super().__init__()
        self.tags, self.open, self.words = [], [], ""
        self.feed(source)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data


@pytest.mark.parametrize(
    ("verdicts", "whole"),
    [
        (["pass"], "pass"),
        (["pass", "not checked"], "pass"),
        (["pass", "inconclusive"], "inconclusive"),
        (["inconclusive", "fail", "pass"], "fail"),
        (["not checked"], "inconclusive"),
        ([], "inconclusive"),
    ],
)
def test_the_whole_verdict(verdicts, whole):
    assert overall(Verdict(each) for each in verdicts) == whole


def test_text_fits_a_hundred_columns_and_says_it_all():
    shown = str(FAILING)
    assert max(map(len, shown.splitlines())) <= 100
    assert shown.splitlines()[0].startswith("FAIL toy: 686 of 687")
    for words in (
        "687 launches per crop (at most 10)",
        "TypeError: no",
        "→ Put it into one",
        f"see {address('book/chapters/01_eager.html#the-fix')}",
        "speedup, time. Not checked",
        "broken",
        "200 ms",
        "seed 7",
        "jax 1.2.3",
    ):
        assert words in shown


def test_a_passing_report_is_short():
    passing = report(Finding("launches", Verdict.PASS, 5.5, 10.0, unit="launches per crop"))
    assert str(passing).splitlines()[0] == "PASS toy"
    assert "ok   launches: 5.5 launches per crop (at most 10)" in str(passing)


def test_the_card_is_one_self_contained_piece():
    page = Page(FAILING._repr_html_())
    assert page.open == [], "every tag is closed"
    assert {tag for tag, _ in page.tags} <= {"div", "span", "b", "code", "pre", "a"}
    assert not any("src" in attributes or "onclick" in attributes for _, attributes in page.tags)
    (href,) = [a["href"] for tag, a in page.tags if tag == "a"]
    assert href.endswith("#the-fix")
    for words in ("fail", "687 launches per crop (at most 10)", "What to do:", "solution", "5.5"):
        assert words in page.words
    labels = [a["aria-label"] for _, a in page.tags if "aria-label" in a]
    assert labels[0] == "Verdict: fail"
    assert "broken 687, yours 687, solution 5.5" in labels[1]


def test_everything_from_outside_is_escaped():
    nasty = report(
        Finding(NASTY, Verdict.FAIL, cause=NASTY, hint=NASTY, link='"><script>', detail=(NASTY,)),
        comparisons=(Comparison(NASTY, NASTY, {NASTY: 1.0}),),
        subject=NASTY,
    )
    page = Page(card_html.card(nasty))
    assert "script" not in {tag for tag, _ in page.tags}
    assert 'alert("x")' in page.words
    assert "\x1b" not in card_text.card(nasty)


def test_a_sentence_with_a_lone_backquote_is_left_alone():
    page = Page(card_html.card(report(Finding("a", Verdict.FAIL, cause="it`s <so>"))))
    assert "it`s <so>" in page.words


def test_a_missing_check_is_an_error_that_lists_the_others():
    with pytest.raises(KeyError, match="'runs', 'launches'"):
        FAILING.finding("lunches")


def test_bars_show_ratios_as_distances():
    shares = [share for _, _, share in bars(Comparison("q", "", {"a": 1.0, "b": 10.0, "c": 100.0}))]
    assert shares[2] == 1.0
    assert shares[2] - shares[1] == pytest.approx(shares[1] - shares[0])
    assert shares[0] > 0.1
    assert bars(Comparison("q", "", {"a": 0.0, "b": 5.0}))[0][2] == 0.0
    assert bars(Comparison("q", "", {"a": 0.0}))[0][2] == 0.0


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (number(687.0), "687"),
        (number(5.75), "5.75"),
        (number(1234567), "1,234,567"),
        (number(0.0123456), "0.0123"),
        (number(9.1e-06), "9.1e-06"),
        (number(float("nan")), "not a number"),
        (seconds(1.5), "1.5 s"),
        (seconds(0.0028), "2.8 ms"),
        (seconds(3e-6), "3 µs"),
        (seconds(0.9996e-3), "1 ms"),
        (seconds(0.9996), "1 s"),
        (data(512), "512 bytes"),
        (data(1023.9 * 2**10), "1,020 KiB"),
        (data(3 * 2**20), "3 MiB"),
        (quantity(0.2, "s"), "200 ms"),
        (quantity(31.4, "times"), "31.4 times"),
        (plural(1, "launch"), "1 launch"),
        (plural(20, "launch"), "20 launches"),
        (plural(2, "crop"), "2 crops"),
    ],
)
def test_numbers_are_written_with_the_digits_they_deserve(shown, expected):
    assert shown == expected


def test_no_control_characters_reach_a_terminal():
    shown = card_text.card(report(Finding("a", Verdict.FAIL, cause="red \x1b[31m\x07 bell")))
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", shown)
