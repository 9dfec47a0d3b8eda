"""An X-ray reads well as text, as HTML and as a figure, also when refused or very long."""

from dataclasses import replace
from html.parser import HTMLParser

import matplotlib.colors
import matplotlib.text
import pytest

from course_utils import colours
from course_utils.instruments.xray import (
    LIMITS,
    Kernel,
    Memory,
    Source,
    Xray,
    XrayError,
    describe_programs,
    draw_programs,
)

HERE = Source("/home/ann/model.py", 7, "f")
FUSED = Kernel("fusion", "fusion", ops=("sin", "mul", "add"), output="f32[8]", source=HERE)
CALL = Kernel("custom-call", "library", "cuBLAS", ("dot_general",), launches=100, output="f32[8,8]")
COPY = Kernel("copy", "copy", ops=("copy",), output="s32[]")
GIB = 2**30


def made(*kernels: Kernel, temp: int = 0, donated: int = 0, **fields) -> Xray:
    memory = Memory(temp, 4 * GIB, 2 * GIB, donated)
    return Xray("t4", "Tesla T4", "step", kernels, memory, memory_bytes=16 * GIB, **fields)


REFUSED = Xray("t4", "Tesla T4", "step", refused="The Tesla T4 cannot <do> this.")


def test_counts_add_up_over_loops_and_kinds():
    xray = made(FUSED, CALL, COPY, FUSED)
    assert (xray.kernels, xray.fusions, xray.copies) == (103, 2, 1)
    assert xray.library_calls == {"cuBLAS": 100}
    assert xray.by_source() == {None: 101, HERE: 2}


def test_needed_memory_counts_donated_bytes_once():
    assert made(donated=2 * GIB).needed_bytes == 4 * GIB
    assert made(temp=GIB).needed_bytes == 7 * GIB


@pytest.mark.parametrize(
    ("temp", "fits", "pool", "words"),
    [
        (0, True, True, "fits: 6 GiB of 16 GiB"),
        (8 * GIB, True, False, "but not the 75% that JAX reserves"),
        (10 * GIB, True, False, "XLA_PYTHON_CLIENT_MEM_FRACTION"),
        (11 * GIB, False, False, "does not fit: needs 17 GiB"),
    ],
)
def test_what_fits_is_said_for_the_card_and_for_what_jax_reserves(temp, fits, pool, words):
    xray = made(FUSED, temp=temp)
    assert (xray.fits, xray.fits_pool) == (fits, pool)
    assert words in str(xray)


def test_a_device_that_does_not_tell_its_memory_gives_no_answer():
    assert replace(made(FUSED), memory_bytes=None).fits is None


@pytest.mark.parametrize("what", ["kernels", "fusions", "library_calls", "temp_bytes", "exact"])
def test_a_refused_program_has_no_counts(what):
    assert REFUSED.fits is None
    with pytest.raises(XrayError, match="cannot <do> this"):
        getattr(REFUSED, what)


def test_the_table_names_operations_library_and_line_and_its_limits():
    text = str(made(FUSED, CALL, COPY))
    assert "102 kernels" in text
    assert "sin, mul, add" in text
    assert "100  cuBLAS   dot_general" in text
    assert "model.py:7" in text
    assert text.endswith(LIMITS)
    assert all(len(line) < 110 for line in text.replace(LIMITS, "").splitlines())


def test_equal_neighbours_share_a_row_and_a_long_table_ends():
    text = made(*[FUSED] * 50).table()
    assert text.count("sin, mul, add") == 1
    long = [replace(FUSED, ops=(f"op{number}",)) for number in range(50)]
    assert "and 10 launches more in 10 rows" in made(*long).table()


def test_a_loop_of_unknown_length_is_marked():
    assert "1×?" in str(made(replace(FUSED, known=False), notes=("Beware.",)))
    assert not made(replace(FUSED, known=False)).exact
    assert "Note: Beware." in str(made(FUSED, notes=("Beware.",)))


def test_eager_code_tells_its_dispatches():
    assert "2 kernels in 2 dispatches" in str(made(FUSED, FUSED, dispatches=2))


class Checker(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.text = [], ""

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize("xray", [made(FUSED, replace(CALL, library="<b>lib</b>")), REFUSED])
def test_html_is_well_formed_escaped_and_brings_no_colours(xray):
    html = xray._repr_html_()
    checker = Checker()
    checker.feed(html)
    assert checker.open == []
    assert ("<b>lib</b>" in checker.text) or ("cannot <do> this" in checker.text)
    assert "color" not in html


def words(figure) -> str:
    return " ".join(text.get_text() for text in figure.findobj(matplotlib.text.Text))


def test_the_figure_shows_a_short_program_with_its_operations():
    shown = words(draw_programs({"jitted": made(FUSED, CALL)}))
    assert "jitted: 101 kernels on Tesla T4" in shown
    assert "3 operations fused" in shown
    assert "sin, mul, add" in shown
    assert "×100" in shown
    assert "library call" in shown


def test_a_long_program_gets_a_square_for_each_launch_in_the_colour_of_its_kind():
    figure = draw_programs({"eager": made(*[FUSED, COPY] * 300, dispatches=600)})
    squares = list(figure.axes[0].patches)
    assert len(squares) == 600
    assert {matplotlib.colors.to_hex(patch.get_facecolor()) for patch in squares} == {
        colours.YOURS,
        colours.NEUTRAL,
    }


def test_a_very_long_program_says_how_many_launches_a_square_is():
    kernels = [replace(CALL, launches=1000) for _ in range(13)]
    figure = draw_programs({"loop": made(*kernels)})
    assert len(figure.axes[0].patches) <= 1300
    assert "11 launches" in words(figure)


def test_programs_stand_one_above_the_other_on_the_same_scale():
    figure = draw_programs({"eager": made(*[FUSED] * 200), "jitted": made(*[FUSED] * 40)})
    above, below = figure.axes
    assert above.get_position().y0 > below.get_position().y1
    heights = [
        abs(ax.transData.transform((0, 1))[1] - ax.transData.transform((0, 0))[1])
        for ax in (above, below)
    ]
    assert heights[0] == pytest.approx(heights[1], rel=1e-6)


def test_a_refusal_is_drawn_as_words():
    shown = words(draw_programs({"on a T4": REFUSED}))
    assert "Tesla T4 refuses it" in shown
    assert "cannot <do> this" in shown.replace("\n", " ")


def test_the_figure_can_be_said_in_words():
    said = describe_programs({"eager": made(FUSED, FUSED, dispatches=2), "jitted": made(FUSED)})
    assert said == "eager: 2 kernels on Tesla T4, 2 dispatches; jitted: 1 kernel on Tesla T4"


def test_nothing_to_draw_is_an_error():
    with pytest.raises(ValueError, match="at least one X-ray"):
        draw_programs({})
