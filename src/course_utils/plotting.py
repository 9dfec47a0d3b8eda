"""The one figure style of the course: bars, lanes in time, and curves.

A figure shows itself in a notebook as a picture on an opaque white background, so that it reads on
a dark page too; its lettering is large enough for a phone. Colours come from `colours`, numbers are
written by `quantities`. It draws what it is given and measures nothing.
"""

import io
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_utils import colours
from course_utils.quantities import quantity

Span = tuple[float, float]
"""A beginning and an end, in the unit of the figure."""

_WIDTH_INCHES = 4.8
_POINTS = 11
_DOTS_PER_INCH = 144
_INK = "#1f2933"
_GRID = "#d5d9de"


class CourseFigure(Figure):
    """A figure that is shown by being the last value of a cell, without pyplot."""

    def _repr_png_(self) -> bytes:
        target = io.BytesIO()
        self.savefig(target, format="png", dpi=_DOTS_PER_INCH)
        return target.getvalue()

    def __repr__(self) -> str:
        return f"<figure with {len(self.axes)} axes>"


def figure(height: float = 2.6, *, rows: int = 1) -> tuple[CourseFigure, list[Axes]]:
    """Return an empty figure in the course's style, and its axes from top to bottom.

    Args:
        height: height of the whole figure, in inches; the width is always the same.
        rows: how many axes, one below the other.
    """
    made = CourseFigure(figsize=(_WIDTH_INCHES, height), facecolor="white", layout="constrained")
    axes = [made.add_subplot(rows, 1, row + 1) for row in range(rows)]
    for each in axes:
        each.set_facecolor("white")
        each.spines[["top", "right"]].set_visible(False)
        each.spines[["left", "bottom"]].set_color(_INK)
        each.tick_params(labelsize=_POINTS - 1, colors=_INK)
        each.set_axisbelow(True)
    return made, axes


def bar_chart(
    values: Mapping[str, float],
    *,
    label: str,
    unit: str = "",
    log: bool = False,
    tones: Sequence[str] = colours.ALL,
) -> CourseFigure:
    """Return horizontal bars, the first on top, each with its value written beside it.

    Args:
        values: length of each bar by its name, in `unit`.
        label: what is shown, for the axis.
        unit: unit of the values, as `quantities.quantity` knows it.
        log: a logarithmic scale, from a third of the smallest value: ratios show as distances.
        tones: the bars' colours, repeated when there are more bars.

    Raises:
        ValueError: there is nothing to show, or a value is not positive on a logarithmic scale.
    """
    if not values:
        raise ValueError("bar_chart: expected at least one bar, got none")
    for name, value in values.items():
        if log and not value > 0:
            raise ValueError(
                f"bar_chart: the bar {name!r} is {value}; a logarithmic scale shows positive "
                "values only. Leave the bar out or use log=False."
            )
    made, (axes,) = figure(0.9 + 0.42 * len(values))
    places = range(len(values))
    left = min(values.values()) / 3 if log else 0.0
    shades = [tones[place % len(tones)] for place in places]
    axes.barh(places, [value - left for value in values.values()], left=left, color=shades)
    if log:
        axes.set_xscale("log")
    for place, value in enumerate(values.values()):
        axes.annotate(
            quantity(value, unit),
            (value, place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            size=_POINTS,
            color=_INK,
        )
    axes.set_yticks(places, list(values), size=_POINTS, color=_INK)
    axes.invert_yaxis()
    largest = max(values.values())
    axes.set_xlim(left, largest * (largest / left) ** 0.25 if log else 1.3 * largest or 1.0)
    _name(axes, ", ".join(filter(None, (label, unit, "logarithmic scale" if log else ""))))
    return made


def lanes(spans: Mapping[str, Sequence[Span]], *, label: str, tones: Sequence[str]) -> CourseFigure:
    """Return one lane for each name, with a block for each of its spans of time.

    Args:
        spans: by lane, from the top, beginnings and ends in the unit of the axis; a lane may be
            empty.
        label: what the axis shows, with its unit.
        tones: a colour for each lane.

    Raises:
        ValueError: there are not as many colours as lanes.
    """
    if len(tones) != len(spans):
        raise ValueError(
            f"lanes: expected {len(spans)} colours, one for each lane, got {len(tones)}"
        )
    made, (axes,) = figure(0.9 + 0.45 * len(spans))
    for place, (each, tone) in enumerate(zip(spans.values(), tones, strict=True)):
        blocks = [(begin, end - begin) for begin, end in each]
        axes.broken_barh(blocks, (place - 0.35, 0.7), facecolors=tone, linewidth=0)
    axes.set_yticks(range(len(spans)), list(spans), size=_POINTS, color=_INK)
    axes.set_ylim(len(spans) - 0.5, -0.5)
    axes.set_xlim(left=0)
    _name(axes, label)
    return made


def curves(
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    across: str,
    up: str,
    log: bool = False,
    tones: Sequence[str] = colours.ALL,
    height: float = 3.0,
) -> tuple[CourseFigure, Axes]:
    """Return a figure of curves, and its axes for marks of your own.

    Args:
        lines: x and y of each curve by its name, which the legend shows.
        across: what the x axis shows, with its unit.
        up: what the y axis shows, with its unit.
        log: logarithmic scales on both axes.
        tones: the curves' colours, repeated when there are more curves.
        height: height of the figure, in inches.
    """
    made, (axes,) = figure(height)
    for place, (name, (x, y)) in enumerate(lines.items()):
        axes.plot(x, y, color=tones[place % len(tones)], label=name, linewidth=2)
    if log:
        axes.set_xscale("log")
        axes.set_yscale("log")
    axes.grid(color=_GRID, linewidth=0.8)
    axes.set_ylabel(up, size=_POINTS, color=_INK)
    _name(axes, across)
    if len(lines) > 1:
        axes.legend(frameon=False, fontsize=_POINTS - 1, labelcolor=_INK)
    return made, axes


def _name(axes: Axes, label: str) -> None:
    axes.set_xlabel(label, size=_POINTS, color=_INK)
