"""The autograder of the course on JIT and fusion in JAX, and the instruments it measures with.

Names are loaded when they are first used, so that importing the package costs almost nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from course_utils.findings import Comparison, Finding, Link, Report, Verdict
    from course_utils.grading import grade
    from course_utils.instruments.xray import Xray, draw_programs, xray, xray_eager

_HOMES = {
    "Comparison": "course_utils.findings",
    "Finding": "course_utils.findings",
    "Link": "course_utils.findings",
    "Report": "course_utils.findings",
    "Verdict": "course_utils.findings",
    "Xray": "course_utils.instruments.xray",
    "draw_programs": "course_utils.instruments.xray",
    "grade": "course_utils.grading",
    "xray": "course_utils.instruments.xray",
    "xray_eager": "course_utils.instruments.xray",
}

__all__ = [
    "Comparison",
    "Finding",
    "Link",
    "Report",
    "Verdict",
    "Xray",
    "draw_programs",
    "grade",
    "xray",
    "xray_eager",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'course_utils' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
