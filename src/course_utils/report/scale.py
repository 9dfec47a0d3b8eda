"""Bars on one logarithmic scale: the figure of a card, before it is drawn."""

import math

from course_utils.findings import Comparison


def bars(comparison: Comparison) -> list[tuple[str, float, float]]:
    """Return `(name, value, share)` of each bar, the share of the longest from 0 to 1.

    The scale is logarithmic, from a quarter of the smallest positive value: ratios show as
    distances, whatever their size. A value of zero or less has a share of 0.
    """
    positive = [value for value in comparison.values.values() if value > 0]
    if not positive:
        return [(name, value, 0.0) for name, value in comparison.values.items()]
    low = math.log(min(positive) / 4)
    span = math.log(max(positive)) - low
    return [
        (name, value, (math.log(value) - low) / span if value > 0 else 0.0)
        for name, value in comparison.values.items()
    ]
