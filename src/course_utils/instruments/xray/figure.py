"""Draws X-rays: each launched kernel is a block, in program order, one program above the other.

A short program shows its blocks large, with the operations inside. A long one shows one small
square for each launch, with the number of operations in it, so that lengths compare at a glance.
Draws what it is given and compiles nothing.
"""

import textwrap
from collections.abc import Iterable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from course_utils import colours
from course_utils.instruments.xray.result import Kernel, Xray, short_ops
from course_utils.plotting import CourseFigure
from course_utils.quantities import plural

LARGE_BLOCKS = 12
"""Programs of up to this many different kernels are drawn with large blocks."""

_PER_ROW_LARGE = 3
_PER_ROW_SMALL = 32
_MOST_SQUARES = 1280
_LOOKS = {
    "fusion": ("kernel written by the compiler", colours.YOURS, ""),
    "library": ("library call", colours.SLOW, "//"),
    "copy": ("copy", colours.NEUTRAL, ""),
    "other": ("not fused", colours.EXTRA, "\\\\"),
}
_INK = "#1f2933"
_WIDTH_INCHES = 5.6
_LARGE_INCHES, _SMALL_INCHES = 0.68, 0.172
_TITLE_INCHES, _CAPTION_INCHES, _FOOT_INCHES = 0.34, 0.26, 0.52
_FOOT = "A count of launched work, not a time. A library call counts once."


def draw_programs(programs: Mapping[str, Xray]) -> CourseFigure:
    """Draw programs one above the other, a block for each kernel.

    Args:
        programs: X-rays by the name to show, for example `{"eager": …, "jitted": …}`.

    Returns:
        A figure that a notebook shows when it is the last value of a cell.

    Raises:
        ValueError: there is nothing to draw.
    """
    if not programs:
        raise ValueError("draw_programs: expected at least one X-ray, got none")
    bodies = [_rows_of(xray) * _row_inches(xray) for xray in programs.values()]
    panels = [_TITLE_INCHES + body + _CAPTION_INCHES for body in bodies]
    height = sum(panels) + _FOOT_INCHES
    made = CourseFigure(figsize=(_WIDTH_INCHES, height), facecolor="white")
    top = height
    for (name, xray), body, panel in zip(programs.items(), bodies, panels, strict=True):
        low = top - _TITLE_INCHES - body
        left, width = 0.05 / _WIDTH_INCHES, 1 - 0.1 / _WIDTH_INCHES
        _draw_one(made.add_axes((left, low / height, width, body / height)), name, xray)
        top -= panel
    _draw_foot(made, programs.values(), height)
    return made


def describe_programs(programs: Mapping[str, Xray]) -> str:
    """Say in words what `draw_programs` shows, for readers who cannot see it."""
    return "; ".join(_title(name, xray) for name, xray in programs.items())


def _draw_foot(made: CourseFigure, xrays: Iterable[Xray], height: float) -> None:
    """Write what the colours mean and what the counts cannot say."""
    kinds = [kind for kind in _LOOKS if any(kind in _kinds(xray) for xray in xrays)]
    handles = [
        Patch(facecolor=_LOOKS[kind][1], hatch=_LOOKS[kind][2], edgecolor="white") for kind in kinds
    ]
    if handles:
        made.legend(
            handles,
            [_LOOKS[kind][0] for kind in kinds],
            loc="center left",
            bbox_to_anchor=(0, 0.36 / height),
            ncols=len(kinds),
            frameon=False,
            fontsize=9,
            labelcolor=_INK,
            handlelength=1.2,
            columnspacing=1.2,
            borderpad=0,
        )
    made.text(0.05 / _WIDTH_INCHES, 0.08 / height, _FOOT, fontsize=8, color=colours.NEUTRAL)


def _kinds(xray: Xray) -> set[str]:
    return set() if xray.refused else {kernel.kind for kernel in xray.program}


def _is_large(xray: Xray) -> bool:
    return xray.refused is not None or len(xray.program) <= LARGE_BLOCKS


def _rows_of(xray: Xray) -> int:
    if xray.refused is not None:
        return 1
    if _is_large(xray):
        return max(1, -(-len(xray.program) // _PER_ROW_LARGE))
    return -(-len(_squares(xray)[0]) // _PER_ROW_SMALL)


def _row_inches(xray: Xray) -> float:
    return _LARGE_INCHES if _is_large(xray) else _SMALL_INCHES


def _squares(xray: Xray) -> tuple[Sequence[Kernel], int]:
    """Return a kernel for each square, and how many launches a square stands for."""
    each = max(1, -(-xray.kernels // _MOST_SQUARES))
    kernels = []
    for kernel in xray.program:
        kernels += [kernel] * (-(-kernel.launches // each))
    return kernels, each


def _title(name: str, xray: Xray) -> str:
    if xray.refused is not None:
        return f"{name}: {xray.title} refuses it"
    start = f"{name}: {plural(xray.kernels, 'kernel')} on {xray.title}"
    if xray.dispatches > 1:
        start += f", {plural(xray.dispatches, 'dispatch', 'dispatches')}"
    return start


def _draw_one(ax: Axes, name: str, xray: Xray) -> None:
    ax.set_title(_title(name, xray), loc="left", fontsize=11, fontweight="bold", color=_INK)
    ax.set_axis_off()
    ax.set_ylim(_rows_of(xray), 0)
    if xray.refused is not None:
        ax.set_xlim(0, 1)
        reason = textwrap.fill(xray.refused, 78)
        ax.text(0, 0.1, reason, fontsize=9, color=_INK, va="top")
    elif _is_large(xray):
        _draw_large(ax, xray.program)
    else:
        _draw_squares(ax, *_squares(xray))


def _draw_large(ax: Axes, program: Sequence[Kernel]) -> None:
    ax.set_xlim(0, _PER_ROW_LARGE)
    for number, kernel in enumerate(program):
        row, column = divmod(number, _PER_ROW_LARGE)
        _, colour, hatch = _LOOKS[kernel.kind]
        ax.add_patch(
            Rectangle(
                (column + 0.01, row + 0.05),
                0.97,
                0.88,
                facecolor="white",
                edgecolor=colour,
                linewidth=1.4,
            )
        )
        ax.add_patch(
            Rectangle(
                (column + 0.01, row + 0.05),
                0.06,
                0.88,
                facecolor=colour,
                hatch=hatch,
                edgecolor="white",
                linewidth=0,
            )
        )
        head = f"{number + 1}  {_head(kernel)}"
        if kernel.launches > 1 or not kernel.known:
            times = f"×{kernel.launches:,}" if kernel.known else "×?"
            ax.text(
                column + 0.95,
                row + 0.87,
                times,
                fontsize=9,
                fontweight="bold",
                color=_INK,
                ha="right",
                va="bottom",
            )
        ax.text(
            column + 0.11, row + 0.14, head, fontsize=8.5, fontweight="bold", color=_INK, va="top"
        )
        ops = textwrap.wrap(short_ops(kernel.ops, limit=40), 27)[:2]
        ax.text(column + 0.11, row + 0.45, "\n".join(ops), fontsize=8, color=_INK, va="top")


def _head(kernel: Kernel) -> str:
    if kernel.kind == "library":
        return kernel.library
    if len(kernel.ops) > 1:
        return f"{len(kernel.ops)} operations fused"
    return {"copy": "copy", "other": "not fused"}.get(kernel.kind, "one operation")


def _draw_squares(ax: Axes, kernels: Sequence[Kernel], each: int) -> None:
    ax.set_xlim(0, _PER_ROW_SMALL)
    for number, kernel in enumerate(kernels):
        row, column = divmod(number, _PER_ROW_SMALL)
        _, colour, hatch = _LOOKS[kernel.kind]
        ax.add_patch(
            Rectangle(
                (column + 0.06, row + 0.06),
                0.88,
                0.88,
                facecolor=colour,
                hatch=hatch * 2,
                edgecolor="white",
                linewidth=0,
            )
        )
        if kernel.kind == "fusion" and len(kernel.ops) > 1:
            ax.text(
                column + 0.5,
                row + 0.54,
                str(len(kernel.ops)) if len(kernel.ops) < 100 else "99+",
                fontsize=6.2,
                color="white",
                ha="center",
                va="center",
            )
    what = "a launch" if each == 1 else f"{each} launches"
    ax.annotate(
        f"Each square is {what}; a number counts the operations fused in it.",
        (0, 0),
        xycoords="axes fraction",
        xytext=(0, -2),
        textcoords="offset points",
        fontsize=8.5,
        color=_INK,
        va="top",
    )
