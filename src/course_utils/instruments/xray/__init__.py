"""X-ray: the program a GPU would run, read on a machine that has none.

JAX's CUDA compiler can compile for a GPU that is only described to it. A worker process with a
toolchain of its own does so; the caller's JAX, environment and flags are not touched. The result
says how many kernels one call launches, what fused into each, how much memory it needs and whether
that fits the card. It does not know times, and it runs nothing.
"""

from typing import TYPE_CHECKING, Any

from course_utils.instruments.xray.api import xray, xray_eager
from course_utils.instruments.xray.cards import CARDS, Card
from course_utils.instruments.xray.errors import XrayError, XrayTimeout, XrayUnavailable
from course_utils.instruments.xray.result import LIMITS, Kernel, Memory, Source, Xray

if TYPE_CHECKING:
    from course_utils.instruments.xray.figure import describe_programs, draw_programs

__all__ = [
    "CARDS",
    "LIMITS",
    "Card",
    "Kernel",
    "Memory",
    "Source",
    "Xray",
    "XrayError",
    "XrayTimeout",
    "XrayUnavailable",
    "describe_programs",
    "draw_programs",
    "xray",
    "xray_eager",
]


def __getattr__(name: str) -> Any:
    """Import the figure's functions when they are asked for: matplotlib takes a while."""
    if name in ("describe_programs", "draw_programs"):
        from course_utils.instruments.xray import figure  # noqa: PLC0415

        return getattr(figure, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
