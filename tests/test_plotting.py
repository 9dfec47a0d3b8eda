"""Figures of the course: readable by everybody, on any page, and true to their numbers."""

import io
import itertools
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.image import imread
from matplotlib.patches import Rectangle

from course_utils import colours, plotting

# Machado, Oliveira and Fernandes (2009), severity 1: what each kind of colour blindness sees.
BLINDNESS = {
    "none": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanopia": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}


def linear(colour: str) -> np.ndarray:
    rgb = np.array(to_rgb(colour))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIELAB of linear sRGB."""
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    xyz = to_xyz @ np.clip(rgb, 0, 1) / np.array([0.9505, 1.0, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("kind", BLINDNESS)
def test_colours_stay_apart_for_every_kind_of_colour_blindness(kind):
    seen = [lab(BLINDNESS[kind] @ linear(colour)) for colour in colours.ALL]
    nearest = min(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(seen, 2))
    assert nearest > 15  # a difference of 2.3 can just be noticed


def test_colours_stand_out_from_the_figures_white():
    for colour in colours.ALL:
        luminance = float(np.array([0.2126, 0.7152, 0.0722]) @ linear(colour))
        assert 1.05 / (luminance + 0.05) >= 3  # WCAG 2.1, 1.4.11: graphics


def pixels(made: plotting.CourseFigure) -> np.ndarray:
    return imread(io.BytesIO(made._repr_png_()), format="png")


def bars(axes: Axes) -> list[tuple[float, float]]:
    """Left end and width of each bar."""
    return [(p.get_x(), p.get_width()) for p in axes.patches if isinstance(p, Rectangle)]


def test_a_figure_is_opaque_so_that_it_reads_on_a_dark_page():
    picture = pixels(plotting.bar_chart({"eager": 3.0, "jitted": 1.0}, label="launches"))
    assert picture.shape[2] == 3 or (picture[..., 3] == 1).all()
    assert (picture[0, 0, :3] == 1).all()


def test_bars_have_the_values_lengths_and_say_them():
    made = plotting.bar_chart({"eager": 0.25, "jitted": 0.001}, label="time", unit="s")
    (axes,) = made.axes
    assert [width for _, width in bars(axes)] == [0.25, 0.001]
    assert [text.get_text() for text in axes.texts] == ["250 ms", "1 ms"]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["eager", "jitted"]
    assert axes.get_xlabel() == "time, s"


def test_bars_on_a_logarithmic_scale_end_at_their_values():
    made = plotting.bar_chart({"eager": 707.0, "jitted": 1.0}, label="launches", log=True)
    (axes,) = made.axes
    assert axes.get_xscale() == "log"
    ends = [left + width for left, width in bars(axes)]
    assert ends == pytest.approx([707.0, 1.0])
    assert axes.get_xlim()[1] > 707


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_a_logarithmic_scale_refuses_what_it_cannot_show(value):
    with pytest.raises(ValueError, match="'none' is"):
        plotting.bar_chart({"some": 1.0, "none": value}, label="launches", log=True)


def test_no_bars_are_an_error_and_zero_bars_are_not():
    with pytest.raises(ValueError, match="at least one bar"):
        plotting.bar_chart({}, label="launches")
    pixels(plotting.bar_chart({"syncs": 0.0}, label="syncs"))


def test_lanes_have_a_block_for_each_span_and_may_be_empty():
    made = plotting.lanes(
        {"host": [(0.0, 2.0), (3.0, 4.0)], "device": []}, label="ms", tones=colours.ALL[:2]
    )
    (axes,) = made.axes
    across = [np.asarray(path.vertices)[:, 0] for path in axes.collections[0].get_paths()]
    assert [(x.min(), x.max()) for x in across] == [(0, 2), (3, 4)]
    pixels(made)


def test_lanes_want_a_colour_each():
    with pytest.raises(ValueError, match="expected 2 colours"):
        plotting.lanes({"host": [], "device": []}, label="ms", tones=colours.ALL[:1])


def test_curves_are_named_in_a_legend():
    _, axes = plotting.curves(
        {"a": ([1, 2], [1, 4]), "b": ([1, 2], [2, 3])}, across="x", up="y", log=True
    )
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b"]
    assert axes.get_xscale() == axes.get_yscale() == "log"


def test_plotting_leaves_pyplots_global_state_alone():
    code = "import sys, course_utils.plotting; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
